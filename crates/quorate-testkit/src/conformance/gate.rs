use super::{TestClient, client::*};
use quorate::node::{LedgerState, Node, NodeTime, Refusal, Reply, Request, Resource};
use std::time::Duration;

/// Returns one request of each kind that a node serves only under two conditions: the deadline of the batch has
/// not passed, and the batch names the node's marker. [`Request::Mark`] is left out, because only the deadline
/// applies to it.
fn votes<N: Node>(client: &TestClient<N>, resource: &Resource) -> Vec<Request> {
    let one = record(5, 1, false, "v");
    vec![
        client.acquire(resource, &owner(1), LONG),
        raise(resource, &owner(1), 9),
        extend(resource, &owner(1), LONG, 9),
        share(resource, &owner(1), LONG),
        extend_share(resource, &owner(1), LONG),
        downgrade(resource, &owner(1), 9, &owner(2), LONG),
        client.queue(resource, &owner(1), Duration::ZERO, LONG, true),
        complete(resource, &owner(1), 9, ""),
        write("g", "k", None, &one),
        prune("g", 3),
        Request::Keep { ledger: "g".into(), life: LONG },
    ]
}

async fn nothing_stands<N: Node>(client: &mut TestClient<N>, resource: &Resource) {
    assert_eq!(
        client.inspect(resource).await,
        ResourceState { holder: None, counter: None, done: None, begun: None }
    );
    assert_eq!(client.read("g").await, LedgerState::default());
}

pub(super) async fn a_late_batch_is_refused_and_changes_nothing<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("r");
    let mut requests = votes(&client, &resource);
    requests.push(mark(Some(STAMP), "late"));
    for late in [NodeTime::default(), client.wall() - Duration::from_millis(50)] {
        client.not_after = late;
        for (request, reply) in requests.iter().zip(client.ask_all(requests.clone()).await.replies) {
            // Plain commands find it after they have set the record. The attempt releases it.
            let may_hold = reply == Reply::MayHold(Refusal::Stale);
            assert!(may_hold || reply == Reply::Refused(Refusal::Stale), "{request:?}: {reply:?}");
            if let Request::Acquire { resource, owner, .. } = request
                && may_hold
            {
                let release = Request::Release { resource: resource.clone(), owner: owner.clone() };
                client.ask(release).await;
            }
        }
        let seen = client.inspect(&resource).await;
        assert_eq!(ResourceState { counter: None, ..seen }, ResourceState::default());
        assert_eq!(client.read("g").await, LedgerState::default());
    }
    client.not_after = client.wall() + Duration::from_secs(30);
    let granted = client.ask(client.acquire(&resource, &owner(1), LONG)).await;
    assert!(matches!(granted, Reply::Granted { .. }), "the marker still stands: {granted:?}");
}

pub(super) async fn another_marker_is_refused_and_named<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = claim("r");
    for stamp in ["", "other", "{\"run\":\"conformance\"} "] {
        client.stamp = stamp.into();
        for reply in client.ask_all(votes(&client, &resource)).await.replies {
            assert_eq!(reply, Reply::Refused(Refusal::Marker(Some(STAMP.into()))));
        }
    }
    nothing_stands(&mut client, &resource).await;
}

pub(super) async fn a_missing_marker_is_refused<N: Node>(node: N) {
    let mut client = TestClient::bare(node).await;
    assert_eq!(client.hello.marker, None);
    let resource = claim("r");
    for stamp in ["", STAMP] {
        client.stamp = stamp.into();
        for reply in client.ask_all(votes(&client, &resource)).await.replies {
            assert_eq!(reply, Reply::Refused(Refusal::Marker(None)));
        }
    }
    nothing_stands(&mut client, &resource).await;
}

pub(super) async fn releases_and_inspections_are_always_served<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.must_acquire(&resource, &owner(1), LONG).await;
    let one = record(5, 4, false, "v");
    assert_eq!(client.ask(write("g", "k", None, &one)).await, Reply::Written);
    client.not_after = NodeTime::default();
    client.stamp = "other".into();
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
    assert_eq!(client.read("g").await.records, [("k".into(), one)]);
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    assert!(client.inspect(&resource).await.is_free());
    for asked in [release_share(&resource, &owner(1)), leave_queue(&resource, &owner(1))] {
        assert_eq!(client.ask(asked).await, Reply::Released(false));
    }
}

pub(super) async fn mark_compares_and_sets<N: Node>(node: N) {
    let mut client = TestClient::bare(node).await;
    let stands = |marker: Option<&str>| Reply::Refused(Refusal::Marker(marker.map(Into::into)));
    assert_eq!(client.ask(mark(Some("a"), "b")).await, stands(None));
    assert_eq!(client.ask(mark(Some(""), "b")).await, stands(None));
    assert_eq!(client.ask(mark(None, "a")).await, Reply::Marked);
    assert_eq!(client.ask(mark(None, "b")).await, stands(Some("a")));
    assert_eq!(client.ask(mark(Some("b"), "c")).await, stands(Some("a")));
    assert_eq!(client.ask(mark(Some("a"), "b: ü\n\"")).await, Reply::Marked);
    client.reopen().await;
    assert_eq!(client.hello.marker.as_deref(), Some("b: ü\n\""));
    // The node serves requests that name the new marker, and refuses requests that name the old one.
    client.stamp = "b: ü\n\"".into();
    client.must_acquire(&lock("r"), &owner(1), LONG).await;
    client.stamp = "a".into();
    assert_eq!(client.ask(client.acquire(&lock("s"), &owner(1), LONG)).await, stands(Some("b: ü\n\"")));
}
