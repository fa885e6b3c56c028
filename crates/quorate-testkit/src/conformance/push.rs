use super::{TestClient, client::*};
use quorate::node::{
    Cause, Listen, Node, Owner, Push, PushSender, ReleasedLease, Reply, Request, Resource, Session,
};
use std::time::Duration;
use tokio::sync::mpsc;

/// A second session with the client's node, and the channel on which it receives pushes.
struct Listener<S> {
    session: S,
    pushes: mpsc::Receiver<Push>,
}

impl<S: Session> Listener<S> {
    async fn open<N: Node<Session = S>>(client: &TestClient<N>) -> Self {
        let (push_sender, pushes) = PushSender::channel();
        Self { session: expect(client.node.open(push_sender).await).0, pushes }
    }

    fn begin(&mut self, resource: &Resource) {
        self.session.listen(Listen::Begin(resource.clone()));
    }

    fn end(&mut self, resource: &Resource) {
        self.session.listen(Listen::End(resource.clone()));
    }

    /// Waits until the node has processed every message that this session has sent.
    async fn settle<N: Node<Session = S>>(&mut self, client: &TestClient<N>) {
        let reply = self.session.send(client.batch(Vec::new()));
        expect(client.env.before(client.now() + PATIENCE, reply).await.unwrap_or(Err(Cause::TimedOut)));
    }

    async fn hears<N: Node<Session = S>>(
        &mut self,
        client: &TestClient<N>,
        resource: &Resource,
        owner: &Owner,
        by: u32,
    ) {
        assert_eq!(self.heard(client, resource, owner).await, by, "the number of notified sessions");
    }

    /// Waits for the report of a release. Returns the number of sessions that the node notified.
    async fn heard<N: Node<Session = S>>(
        &mut self,
        client: &TestClient<N>,
        resource: &Resource,
        owner: &Owner,
    ) -> u32 {
        let received = client.env.before(client.now() + PATIENCE, self.pushes.recv()).await;
        let freed = ReleasedLease { resource: resource.clone(), owner: owner.clone() };
        let notified = match &received {
            Some(Some(Push::Released { lease, notified })) if *lease == freed => Some(*notified),
            _ => None,
        };
        assert!(notified.is_some(), "the release was not reported: {received:?}");
        notified.unwrap_or_default()
    }
}

async fn grant_and_release<N: Node>(client: &mut TestClient<N>, resource: &Resource, by: u64) {
    client.must_acquire(resource, &owner(by), LONG).await;
    assert_eq!(client.ask(release(resource, &owner(by))).await, Reply::Released(true));
}

pub(super) async fn a_listener_receives_every_release_in_order<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut listener = Listener::open(&client).await;
    let resource = lock("r");
    listener.begin(&resource);
    for number in 1..=50 {
        client.must_acquire(&resource, &owner(number), LONG).await;
        // The session inspects the lock after it has begun to listen. If the inspection shows a holder, the
        // session must also receive the message about that holder's release.
        let seen = client.batch(vec![Request::Inspect { resource: resource.clone() }]);
        let seen = expect(listener.session.send(seen).await);
        assert!(matches!(&seen.replies[..], [Reply::State { holder: Some(_), .. }]), "{seen:?}");
        assert_eq!(client.ask(release(&resource, &owner(number))).await, Reply::Released(true));
        listener.hears(&client, &resource, &owner(number), 1).await;
    }
}

pub(super) async fn every_listener_receives_a_release_its_sender_too<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut listeners = [Listener::open(&client).await, Listener::open(&client).await];
    let resource = lock("odd \u{e9} \"name\"");
    for listener in &mut listeners {
        listener.begin(&resource);
        listener.settle(&client).await;
    }
    client.must_acquire(&resource, &owner(1), LONG).await;
    let batch = client.batch(vec![release(&resource, &owner(1))]);
    let replies = expect(listeners[0].session.send(batch).await).replies;
    assert_eq!(replies, [Reply::Released(true)], "a push is no reply");
    for listener in &mut listeners {
        listener.hears(&client, &resource, &owner(1), 2).await;
    }
}

pub(super) async fn a_completed_claim_is_reported<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut listener = Listener::open(&client).await;
    let (resource, expired) = (claim("message"), claim("expired"));
    listener.begin(&resource);
    listener.begin(&expired);
    listener.settle(&client).await;
    let gone = client.must_acquire(&expired, &owner(2), Duration::from_millis(5)).await;
    client.wait_until(&expired, ResourceState::is_free).await;
    assert_eq!(client.ask(complete(&expired, &owner(2), gone, "late")).await, Reply::Completed);
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(complete(&resource, &owner(1), counted, "fine")).await, Reply::Completed);
    // The lease on the first claim had already expired, so completing this claim released nothing and pushed no
    // message. The first message is the one about the second claim.
    listener.hears(&client, &resource, &owner(1), 1).await;
}

pub(super) async fn a_release_that_frees_nothing_is_not_reported<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut listener = Listener::open(&client).await;
    let resource = lock("r");
    listener.begin(&resource);
    listener.settle(&client).await;
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    let counted = client.must_acquire(&resource, &owner(2), LONG).await;
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    assert_eq!(client.ask(extend(&resource, &owner(2), LONG, counted)).await, Reply::Extended);
    grant_and_release(&mut client, &lock("another"), 4).await;
    assert_eq!(client.ask(release(&resource, &owner(2))).await, Reply::Released(true));
    listener.hears(&client, &resource, &owner(2), 1).await;
}

pub(super) async fn nothing_is_reported_after_the_subscription_ends<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut listener = Listener::open(&client).await;
    let (resource, other) = (lock("r"), lock("other"));
    listener.begin(&resource);
    listener.begin(&other);
    listener.settle(&client).await;
    listener.end(&resource);
    listener.settle(&client).await;
    grant_and_release(&mut client, &resource, 1).await;
    grant_and_release(&mut client, &other, 2).await;
    listener.hears(&client, &other, &owner(2), 1).await;
    listener.begin(&resource);
    listener.settle(&client).await;
    grant_and_release(&mut client, &resource, 3).await;
    listener.hears(&client, &resource, &owner(3), 1).await;
}

pub(super) async fn a_closed_session_receives_nothing_and_blocks_no_other<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let mut gone = Listener::open(&client).await;
    gone.begin(&resource);
    gone.settle(&client).await;
    let Listener { session, mut pushes } = gone;
    drop(session);
    let mut listener = Listener::open(&client).await;
    listener.begin(&resource);
    listener.settle(&client).await;
    // A server learns of the closed connection a moment later, and counts it until then.
    let end = client.now() + PATIENCE;
    let mut by = 1;
    loop {
        grant_and_release(&mut client, &resource, by).await;
        let notified = listener.heard(&client, &resource, &owner(by)).await;
        if notified == 1 {
            break;
        }
        assert!(notified == 2 && client.now() < end, "{notified} sessions are notified after {by} releases");
        by += 1;
    }
    let received = client.env.before(client.now() + PATIENCE, pushes.recv()).await;
    assert!(matches!(received, Some(None | Some(Push::Closed(_)))), "{received:?}");
}

/// Checks that a client may begin and end subscriptions in any order, and that its batches are still served.
/// Every kind of node runs this case, even a kind that pushes nothing.
pub(super) async fn subscriptions_in_any_order_break_no_batch<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut listener = Listener::open(&client).await;
    let resources = ["a", "b", "c"].map(lock);
    for number in 0..200 {
        let resource = &resources[number % 3];
        // This loop ends subscriptions that never began, and begins some subscriptions twice. It also begins
        // some again just after it has ended them. After each change it sends a batch.
        match number % 7 {
            0 | 3 => listener.end(resource),
            1 => {
                listener.begin(resource);
                listener.begin(resource);
            }
            4 => {
                listener.end(resource);
                listener.begin(resource);
            }
            _ => listener.begin(resource),
        }
        let by = owner(number as u64);
        let requests = vec![client.acquire(resource, &by, LONG), release(resource, &by)];
        let batch = client.batch(requests);
        let replies = expect(listener.session.send(batch).await).replies;
        assert!(matches!(replies[..], [Reply::Granted { .. }, Reply::Released(true)]), "{replies:?}");
    }
    assert!(client.inspect(&resources[0]).await.is_free());
}
