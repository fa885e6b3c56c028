use super::{Desk, inbox::*};
use quorate::node::{Cause, Freed, Listen, Node, Nudge, Owner, Push, Reply, Request, Resource, Session};
use std::time::Duration;
use tokio::sync::mpsc;

/// Another session with the same node, and the releases that it receives.
struct Listener<S> {
    session: S,
    pushes: mpsc::Receiver<Push>,
}

impl<S: Session> Listener<S> {
    async fn open<N: Node<Session = S>>(desk: &Desk<N>) -> Self {
        let (nudge, pushes) = Nudge::channel();
        Self { session: expect(desk.node.open(nudge).await).0, pushes }
    }

    fn begin(&mut self, resource: &Resource) {
        self.session.listen(Listen::Begin(resource.clone()));
    }

    fn end(&mut self, resource: &Resource) {
        self.session.listen(Listen::End(resource.clone()));
    }

    /// Returns once the node has processed every message that it received so far.
    async fn settle<N: Node<Session = S>>(&mut self, desk: &Desk<N>) {
        let reply = self.session.send(desk.batch(Vec::new()));
        expect(desk.env.before(desk.now() + PATIENCE, reply).await.unwrap_or(Err(Cause::TimedOut)));
    }

    async fn hears<N: Node<Session = S>>(
        &mut self,
        desk: &Desk<N>,
        resource: &Resource,
        owner: &Owner,
        by: u32,
    ) {
        let told = desk.env.before(desk.now() + PATIENCE, self.pushes.recv()).await;
        let freed = Freed { resource: resource.clone(), owner: owner.clone() };
        assert_eq!(told, Some(Some(Push::Released { freed, told: by })), "it was not told");
    }
}

async fn grant_and_release<N: Node>(desk: &mut Desk<N>, resource: &Resource, by: u64) {
    desk.must_acquire(resource, &owner(by), LONG).await;
    assert_eq!(desk.ask(release(resource, &owner(by))).await, Reply::Released(true));
}

pub(super) async fn a_listener_hears_every_release_in_turn<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let mut listener = Listener::open(&desk).await;
    let resource = lock("r");
    listener.begin(&resource);
    for number in 1..=50 {
        desk.must_acquire(&resource, &owner(number), LONG).await;
        // A client that finds the lock held after it began to listen will receive the release.
        let seen = desk.batch(vec![Request::Inspect { resource: resource.clone() }]);
        let seen = expect(listener.session.send(seen).await);
        assert!(matches!(&seen.replies[..], [Reply::State { holder: Some(_), .. }]), "{seen:?}");
        assert_eq!(desk.ask(release(&resource, &owner(number))).await, Reply::Released(true));
        listener.hears(&desk, &resource, &owner(number), 1).await;
    }
}

pub(super) async fn a_listener_hears_its_own_release_and_others_hear_it_too<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let mut listeners = [Listener::open(&desk).await, Listener::open(&desk).await];
    let resource = lock("odd \u{e9} \"name\"");
    for listener in &mut listeners {
        listener.begin(&resource);
        listener.settle(&desk).await;
    }
    desk.must_acquire(&resource, &owner(1), LONG).await;
    let batch = desk.batch(vec![release(&resource, &owner(1))]);
    let replies = expect(listeners[0].session.send(batch).await).replies;
    assert_eq!(replies, [Reply::Released(true)], "a push is no reply");
    for listener in &mut listeners {
        listener.hears(&desk, &resource, &owner(1), 2).await;
    }
}

pub(super) async fn a_completed_claim_is_told<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let mut listener = Listener::open(&desk).await;
    let (resource, expired) = (claim("message"), claim("expired"));
    listener.begin(&resource);
    listener.begin(&expired);
    listener.settle(&desk).await;
    let gone = desk.must_acquire(&expired, &owner(2), Duration::from_millis(5)).await;
    desk.wait_until(&expired, Seen::is_free).await;
    assert_eq!(desk.ask(complete(&expired, &owner(2), gone, "late")).await, Reply::Completed);
    let counted = desk.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(desk.ask(complete(&resource, &owner(1), counted, "fine")).await, Reply::Completed);
    // The first release freed nothing: its lease had ended.
    listener.hears(&desk, &resource, &owner(1), 1).await;
}

pub(super) async fn what_frees_nothing_is_not_told<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let mut listener = Listener::open(&desk).await;
    let resource = lock("r");
    listener.begin(&resource);
    listener.settle(&desk).await;
    assert_eq!(desk.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    let counted = desk.must_acquire(&resource, &owner(2), LONG).await;
    assert_eq!(desk.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    assert_eq!(desk.ask(extend(&resource, &owner(2), LONG, counted)).await, Reply::Extended);
    grant_and_release(&mut desk, &lock("another"), 4).await;
    assert_eq!(desk.ask(release(&resource, &owner(2))).await, Reply::Released(true));
    listener.hears(&desk, &resource, &owner(2), 1).await;
}

pub(super) async fn nothing_is_told_after_the_end<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let mut listener = Listener::open(&desk).await;
    let (resource, other) = (lock("r"), lock("other"));
    listener.begin(&resource);
    listener.begin(&other);
    listener.settle(&desk).await;
    listener.end(&resource);
    listener.settle(&desk).await;
    grant_and_release(&mut desk, &resource, 1).await;
    grant_and_release(&mut desk, &other, 2).await;
    listener.hears(&desk, &other, &owner(2), 1).await;
    listener.begin(&resource);
    listener.settle(&desk).await;
    grant_and_release(&mut desk, &resource, 3).await;
    listener.hears(&desk, &resource, &owner(3), 1).await;
}

pub(super) async fn a_session_that_is_gone_hears_nothing_and_hinders_nobody<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = lock("r");
    let mut gone = Listener::open(&desk).await;
    gone.begin(&resource);
    gone.settle(&desk).await;
    let Listener { session, mut pushes } = gone;
    drop(session);
    let mut listener = Listener::open(&desk).await;
    listener.begin(&resource);
    listener.settle(&desk).await;
    grant_and_release(&mut desk, &resource, 1).await;
    listener.hears(&desk, &resource, &owner(1), 1).await;
    let told = desk.env.before(desk.now() + PATIENCE, pushes.recv()).await;
    assert!(matches!(told, Some(None | Some(Push::Closed))), "{told:?}");
}

/// For every kind of node, whether it pushes or not.
pub(super) async fn listening_in_any_order_spoils_no_batch<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let mut listener = Listener::open(&desk).await;
    let resources = ["a", "b", "c"].map(lock);
    for number in 0..200 {
        let resource = &resources[number % 3];
        // Ends subscriptions that never began, begins them twice, and begins those that have just ended,
        // with batches in between.
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
        let requests = vec![desk.acquire(resource, &by, LONG), release(resource, &by)];
        let batch = desk.batch(requests);
        let replies = expect(listener.session.send(batch).await).replies;
        assert!(matches!(replies[..], [Reply::Granted { .. }, Reply::Released(true)]), "{replies:?}");
    }
    assert!(desk.inspect(&resources[0]).await.is_free());
}
