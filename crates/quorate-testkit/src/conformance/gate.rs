use super::{Desk, inbox::*};
use quorate::node::{LedgerState, Node, NodeTime, Refusal, Reply, Request, Resource};
use std::time::Duration;

/// Returns one of each request that could set a key, except *mark*.
fn votes<N: Node>(desk: &Desk<N>, resource: &Resource) -> Vec<Request> {
    let one = record(5, 1, false, "v");
    vec![
        desk.acquire(resource, &owner(1), LONG),
        raise(resource, &owner(1), 9),
        extend(resource, &owner(1), LONG, 9),
        share(resource, &owner(1), LONG),
        extend_share(resource, &owner(1), LONG),
        downgrade(resource, &owner(1), 9, &owner(2), LONG),
        desk.queue(resource, &owner(1), Duration::ZERO, LONG, true),
        complete(resource, &owner(1), 9, ""),
        seal("g", 1),
        write("g", 1, "k", None, &one),
        prune("g", 1, 3),
    ]
}

async fn nothing_stands<N: Node>(desk: &mut Desk<N>, resource: &Resource) {
    assert_eq!(desk.inspect(resource).await, Seen { holder: None, counter: None, done: None, begun: None });
    assert_eq!(desk.read("g").await, LedgerState::default());
}

pub(super) async fn what_comes_too_late_is_refused_and_changes_nothing<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = claim("r");
    let mut requests = votes(&desk, &resource);
    requests.push(mark(Some(STAMP), "late"));
    for late in [NodeTime::default(), desk.wall() - Duration::from_millis(50)] {
        desk.not_after = late;
        for reply in desk.ask_all(requests.clone()).await.replies {
            assert_eq!(reply, Reply::Refused(Refusal::Stale));
        }
        nothing_stands(&mut desk, &resource).await;
    }
    desk.not_after = desk.wall() + Duration::from_secs(30);
    let granted = desk.ask(desk.acquire(&resource, &owner(1), LONG)).await;
    assert!(matches!(granted, Reply::Granted { .. }), "the marker still stands: {granted:?}");
}

pub(super) async fn another_marker_is_refused_and_named<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = claim("r");
    for stamp in ["", "other", "{\"run\":\"conformance\"} "] {
        desk.stamp = stamp.into();
        for reply in desk.ask_all(votes(&desk, &resource)).await.replies {
            assert_eq!(reply, Reply::Refused(Refusal::Marker(Some(STAMP.into()))));
        }
    }
    nothing_stands(&mut desk, &resource).await;
}

pub(super) async fn a_missing_marker_is_refused<N: Node>(node: N) {
    let mut desk = Desk::bare(node).await;
    assert_eq!(desk.hello.marker, None);
    let resource = claim("r");
    for stamp in ["", STAMP] {
        desk.stamp = stamp.into();
        for reply in desk.ask_all(votes(&desk, &resource)).await.replies {
            assert_eq!(reply, Reply::Refused(Refusal::Marker(None)));
        }
    }
    nothing_stands(&mut desk, &resource).await;
}

pub(super) async fn releases_and_looks_are_always_served<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = lock("r");
    desk.must_acquire(&resource, &owner(1), LONG).await;
    assert!(matches!(desk.ask(seal("g", 4)).await, Reply::Ledger(_)));
    desk.not_after = NodeTime::default();
    desk.stamp = "other".into();
    assert!(desk.inspect(&resource).await.held_by(&owner(1)));
    assert_eq!(desk.read("g").await.term, token(4));
    assert_eq!(desk.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    assert!(desk.inspect(&resource).await.is_free());
    for asked in [release_share(&resource, &owner(1)), leave_queue(&resource, &owner(1))] {
        assert_eq!(desk.ask(asked).await, Reply::Released(false));
    }
}

pub(super) async fn mark_compares_and_sets<N: Node>(node: N) {
    let mut desk = Desk::bare(node).await;
    let stands = |marker: Option<&str>| Reply::Refused(Refusal::Marker(marker.map(Into::into)));
    assert_eq!(desk.ask(mark(Some("a"), "b")).await, stands(None));
    assert_eq!(desk.ask(mark(Some(""), "b")).await, stands(None));
    assert_eq!(desk.ask(mark(None, "a")).await, Reply::Marked);
    assert_eq!(desk.ask(mark(None, "b")).await, stands(Some("a")));
    assert_eq!(desk.ask(mark(Some("b"), "c")).await, stands(Some("a")));
    assert_eq!(desk.ask(mark(Some("a"), "b: ü\n\"")).await, Reply::Marked);
    desk.reopen().await;
    assert_eq!(desk.hello.marker.as_deref(), Some("b: ü\n\""));
    // Votes under the new marker count; votes under the old one count no more.
    desk.stamp = "b: ü\n\"".into();
    desk.must_acquire(&lock("r"), &owner(1), LONG).await;
    desk.stamp = "a".into();
    assert_eq!(desk.ask(desk.acquire(&lock("s"), &owner(1), LONG)).await, stands(Some("b: ü\n\"")));
}
