use super::{TestClient, client::*};
use quorate::node::{Node, NodeTime, Refusal, Reply, Request, Session};
use std::time::Duration;

pub(super) async fn replies_come_in_the_order_of_the_requests<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (here, there) = (lock("here"), lock("there"));
    let one = record(5, 1, false, "v");
    let propose = client.wall().as_micros();
    let read = || Request::Read { ledger: "g".into(), after: None, key: None };
    let requests = vec![
        client.acquire_from(&here, &owner(1), LONG, propose),
        client.acquire_from(&here, &owner(2), LONG, propose),
        release(&here, &owner(1)),
        client.acquire_from(&here, &owner(2), LONG, propose),
        client.acquire_from(&there, &owner(1), LONG, propose),
        raise(&here, &owner(2), propose + 7),
        read(),
        write("g", "k", None, &one),
        read(),
        release(&there, &owner(1)),
        release(&there, &owner(1)),
        Request::Inspect { resource: there.clone() },
    ];
    let replies = client.ask_all(requests).await.replies;
    assert_eq!(replies[0], Reply::Granted { counter: token(propose + 1), begun: None });
    assert!(matches!(&replies[1], Reply::Held { owner: holder, .. } if *holder == owner(1)));
    assert_eq!(replies[2], Reply::Released(true));
    assert_eq!(replies[3], Reply::Granted { counter: token(propose + 2), begun: None });
    assert_eq!(replies[4], Reply::Granted { counter: token(propose + 1), begun: None });
    assert_eq!(replies[5], Reply::Raised);
    assert!(matches!(&replies[6], Reply::Ledger(page) if page.state.records.is_empty()));
    assert_eq!(replies[7], Reply::Written);
    assert!(matches!(&replies[8], Reply::Ledger(page) if page.state.records.len() == 1));
    assert_eq!(replies[9..11], [Reply::Released(true), Reply::Released(false)]);
    assert!(matches!(&replies[11], Reply::State { holder: None, .. }));
}

pub(super) async fn a_batch_may_be_empty_or_long<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let before = client.wall();
    let empty = client.ask_all(Vec::new()).await;
    assert!(empty.node_time.distance(before) < Duration::from_secs(5), "{:?}", empty.node_time);
    let resources: Vec<_> = (0..600).map(|number| claim(&format!("message {number}"))).collect();
    let propose = client.wall().as_micros();
    let requests = resources.iter().map(|r| client.acquire_from(r, &owner(1), LONG, propose)).collect();
    let replies = client.ask_all(requests).await.replies;
    assert!(
        replies.iter().all(|reply| *reply == Reply::Granted { counter: token(propose + 1), begun: None })
    );
    let requests = resources.iter().rev().map(|r| release(r, &owner(1))).collect();
    let replies = client.ask_all(requests).await.replies;
    assert!(replies.iter().all(|reply| *reply == Reply::Released(true)));
}

pub(super) async fn a_refused_item_affects_no_other<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let requests = vec![
        client.acquire(&lock("a"), &owner(1), LONG),
        client.acquire_from(&lock("b"), &owner(1), LONG, 1),
        client.acquire(&lock("c"), &owner(1), LONG),
    ];
    let replies = client.ask_all(requests).await.replies;
    assert!(matches!(replies[0], Reply::Granted { .. }));
    assert!(matches!(replies[1], Reply::Refused(Refusal::Clock { .. })));
    assert!(matches!(replies[2], Reply::Granted { .. }));
}

pub(super) async fn batches_run_in_order_without_polling<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let propose = client.wall().as_micros();
    let rounds = 50;
    let mut kept = Vec::new();
    for number in 1..=rounds {
        // In each round, the first owner acquires the lock, the second owner is refused, and the first owner
        // releases the lock. If the node runs the requests in this order, each round adds exactly one grant to
        // the counter.
        for request in [
            client.acquire_from(&resource, &owner(number), LONG, propose),
            client.acquire_from(&resource, &owner(1000), LONG, propose),
            release(&resource, &owner(number)),
        ] {
            let batch = client.batch(vec![request]);
            let reply = client.session.send(batch);
            // In every second round the replies are kept but never polled. In the other rounds they are
            // dropped at once.
            if number % 2 == 0 {
                kept.push(reply);
            }
        }
    }
    let last = client.ask(client.acquire_from(&resource, &owner(2000), LONG, propose)).await;
    assert_eq!(last, Reply::Granted { counter: token(propose + rounds + 1), begun: None });
    drop(kept);
}

pub(super) async fn a_batch_is_sent_though_its_session_is_dropped<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let batch = client.batch(vec![client.acquire(&resource, &owner(1), LONG)]);
    let polled = client.session.send(batch);
    client.reopen().await;
    client.wait_until(&resource, |seen| seen.held_by(&owner(1))).await;
    drop(polled);
    drop(client.session.send(client.batch(vec![release(&resource, &owner(1))])));
    client.reopen().await;
    client.wait_until(&resource, ResourceState::is_free).await;
}

pub(super) async fn an_abandoned_batch_does_not_run_after_its_deadline<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resources: Vec<_> = (0..20).map(|number| lock(&format!("r{number}"))).collect();
    client.not_after = client.wall() + Duration::from_millis(30);
    for resource in &resources {
        let batch = client.batch(vec![client.acquire(resource, &owner(1), LONG)]);
        drop(client.session.send(batch));
    }
    client.reopen().await;
    // The deadline of these inspections is in the far future. A busy node may run the inspections late, and
    // must still answer them.
    let late = std::mem::replace(&mut client.not_after, NodeTime::from_micros(u64::MAX));
    // Once the node's clock has passed the deadline of the abandoned batches, the node's state must no
    // longer change.
    let looks: Vec<_> = resources.iter().map(|r| Request::Inspect { resource: r.clone() }).collect();
    let stands = loop {
        let reply = client.ask_all(looks.clone()).await;
        if reply.node_time > late {
            break reply.replies;
        }
    };
    client.env.sleep(Duration::from_millis(100)).await;
    let holders = |replies: &[Reply]| -> Vec<bool> {
        replies.iter().map(|reply| matches!(reply, Reply::State { holder: Some(_), .. })).collect()
    };
    let later = client.ask_all(looks).await.replies;
    assert_eq!(holders(&stands), holders(&later));
}

pub(super) async fn sessions_of_one_node_see_one_store<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.must_acquire(&resource, &owner(1), LONG).await;
    let old = std::mem::replace(
        &mut client.session,
        expect(client.node.open(quorate::node::PushSender::channel().0).await).0,
    );
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    client.session = old;
    assert!(client.inspect(&resource).await.is_free());
}

pub(super) async fn a_hello_states_facts<N: Node>(node: N) {
    let mut client = TestClient::bare(node).await;
    let first = client.hello.clone();
    assert!(!client.node.name().is_empty() && !first.run_id.is_empty() && !first.version.is_empty());
    assert!(!first.replica);
    assert_eq!(first.eviction.as_deref(), Some("noeviction"));
    assert_eq!(first.marker, None);
    assert!(first.node_time.distance(client.wall()) < Duration::from_secs(5));
    assert_eq!(client.ask(mark(None, "m")).await, Reply::Marked);
    client.reopen().await;
    assert_eq!(client.hello.run_id, first.run_id, "one run, one id");
    assert_eq!(client.hello.marker.as_deref(), Some("m"));
}

pub(super) async fn node_time_is_the_wall_clocks_and_goes_on<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let mut last = client.hello.node_time;
    for _ in 0..5 {
        let before = client.wall();
        let at = client.ask_all(vec![Request::Inspect { resource: lock("r") }]).await.node_time;
        let after = client.wall();
        // The test reads the clock before the request (`before`) and after it (`after`). The node reads the
        // same machine's clock in between. Some servers cache the time for a millisecond, so the time may be a
        // little earlier than `before`.
        assert!(at + Duration::from_millis(5) >= before && at <= after, "{before:?} {at:?} {after:?}");
        assert!(at >= last);
        last = at;
        client.env.sleep(Duration::from_millis(2)).await;
    }
}
