use super::{TestClient, client::*};
use quorate::node::{Node, Owner, Refusal, Reply, Request, engine::READERS_MAX};
use std::time::Duration;

fn readers() -> Owner {
    Owner::from_node(Owner::READERS)
}

fn held_by_readers(reply: &Reply) -> bool {
    matches!(reply, Reply::Held { owner, remaining: Some(_) } if *owner == readers())
}

fn held_by(reply: &Reply, by: &Owner) -> bool {
    matches!(reply, Reply::Held { owner, remaining: Some(_) } if owner == by)
}

pub(super) async fn readers_share_and_exclude_writers<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    for number in 1..=3 {
        assert_eq!(client.ask(share(&resource, &owner(number), LONG)).await, Reply::Shared);
    }
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&readers()) && seen.remaining() > Duration::from_secs(30), "{seen:?}");
    let writer = client.ask(client.acquire(&resource, &owner(4), LONG)).await;
    assert!(held_by_readers(&writer), "{writer:?}");
    let extends = client.ask(extend(&resource, &owner(4), LONG, 9)).await;
    assert!(held_by_readers(&extends), "repair, too: {extends:?}");
    // A writer's release frees the lock only if the node stores this writer's owner token. While readers hold
    // the lock, the node stores no writer's token.
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    assert!(client.inspect(&resource).await.held_by(&readers()));
}

pub(super) async fn a_writer_excludes_readers<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.must_acquire(&resource, &owner(1), LONG).await;
    for asked in [share(&resource, &owner(2), LONG), share(&resource, &owner(1), LONG)] {
        let reply = client.ask(asked).await;
        assert!(held_by(&reply, &owner(1)), "{reply:?}");
    }
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
    client.ask(release(&resource, &owner(1))).await;
    assert_eq!(client.ask(share(&resource, &owner(2), LONG)).await, Reply::Shared);
}

/// Checks that a node does not distinguish a plain lock from a writer's lock. The same request acquires both
/// of them, and both use the same counter.
pub(super) async fn a_plain_lock_and_a_writer_are_the_same<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    assert_eq!(client.ask(share(&resource, &owner(1), LONG)).await, Reply::Shared);
    client.ask(release_share(&resource, &owner(1))).await;
    let first = client.must_acquire(&resource, &owner(2), LONG).await;
    client.ask(release(&resource, &owner(2))).await;
    let second = client.must_acquire(&resource, &owner(3), LONG).await;
    assert_eq!(second, first + 1);
}

pub(super) async fn a_reader_ends_at_its_time_and_the_resource_with_the_last<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let asked = client.now();
    assert_eq!(client.ask(share(&resource, &owner(1), Duration::from_millis(400))).await, Reply::Shared);
    assert_eq!(client.ask(share(&resource, &owner(2), Duration::from_millis(30))).await, Reply::Shared);
    client.wait_until(&resource, ResourceState::is_free).await;
    let lived = asked.until(client.now());
    assert!(lived >= Duration::from_millis(395), "it ended after {lived:?}");
    client.must_acquire(&resource, &owner(3), LONG).await;
    assert_eq!(client.ask(release_share(&resource, &owner(2))).await, Reply::Released(false), "long gone");
}

pub(super) async fn extend_share_lengthens_never_shortens<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    assert_eq!(client.ask(share(&resource, &owner(1), Duration::from_secs(5))).await, Reply::Shared);
    assert_eq!(client.ask(extend_share(&resource, &owner(1), LONG)).await, Reply::Extended);
    let seen = client.inspect(&resource).await;
    assert!(seen.remaining() > Duration::from_secs(30), "{seen:?}");
    let short = extend_share(&resource, &owner(1), Duration::from_millis(1));
    assert_eq!(client.ask(short).await, Reply::Extended);
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&readers()) && seen.remaining() > Duration::from_secs(30), "{seen:?}");
}

pub(super) async fn extend_share_adds_the_reader_again_if_free<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (never_held, shared) = (lock("never held"), lock("shared"));
    assert_eq!(client.ask(extend_share(&never_held, &owner(1), LONG)).await, Reply::Extended);
    assert!(client.inspect(&never_held).await.held_by(&readers()));
    assert_eq!(client.ask(share(&shared, &owner(1), Duration::from_secs(5))).await, Reply::Shared);
    assert_eq!(client.ask(extend_share(&shared, &owner(2), LONG)).await, Reply::Extended);
    client.ask(release_share(&shared, &owner(1))).await;
    let seen = client.inspect(&shared).await;
    assert!(seen.held_by(&readers()) && seen.remaining() > Duration::from_secs(30), "{seen:?}");
}

pub(super) async fn extend_share_leaves_a_writers_lease<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.must_acquire(&resource, &owner(1), LONG).await;
    let reply = client.ask(extend_share(&resource, &owner(2), LONG)).await;
    assert!(held_by(&reply, &owner(1)), "{reply:?}");
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
}

pub(super) async fn release_share_frees_with_the_last_reader<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    assert_eq!(client.ask(release_share(&resource, &owner(1))).await, Reply::Released(false));
    for number in [1, 2] {
        assert_eq!(client.ask(share(&resource, &owner(number), LONG)).await, Reply::Shared);
    }
    assert_eq!(client.ask(release_share(&resource, &owner(3))).await, Reply::Released(false));
    assert_eq!(client.ask(release_share(&resource, &owner(1))).await, Reply::Released(true));
    assert!(client.inspect(&resource).await.held_by(&readers()));
    assert_eq!(client.ask(release_share(&resource, &owner(1))).await, Reply::Released(false));
    assert_eq!(client.ask(release_share(&resource, &owner(2))).await, Reply::Released(true));
    assert!(client.inspect(&resource).await.is_free());
    // A reader's release does not touch a writer's lease.
    client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(release_share(&resource, &owner(1))).await, Reply::Released(false));
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
}

pub(super) async fn a_released_reader_shortens_no_other_reader<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    assert_eq!(client.ask(share(&resource, &owner(1), Duration::from_secs(20))).await, Reply::Shared);
    assert_eq!(client.ask(share(&resource, &owner(2), LONG)).await, Reply::Shared);
    client.ask(release_share(&resource, &owner(2))).await;
    let left = client.inspect(&resource).await.remaining();
    assert!(left > Duration::from_secs(12) && left <= Duration::from_millis(20_001), "{left:?}");
}

pub(super) async fn downgrade_turns_a_writer_into_a_reader<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    let asked = downgrade(&resource, &owner(1), counted, &owner(2), Duration::from_secs(20));
    assert_eq!(client.ask(asked).await, Reply::Shared);
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&readers()) && seen.remaining() <= Duration::from_millis(20_001), "{seen:?}");
    assert_eq!(client.ask(share(&resource, &owner(3), LONG)).await, Reply::Shared, "others may read");
    // The stored owner is no longer the former writer. So a late message of the former writer has no effect.
    let late = client.ask(extend(&resource, &owner(1), LONG, 1)).await;
    assert!(held_by_readers(&late), "{late:?}");
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    for number in [2, 3] {
        assert_eq!(client.ask(release_share(&resource, &owner(number))).await, Reply::Released(true));
    }
    assert!(client.inspect(&resource).await.is_free());
}

pub(super) async fn downgrade_is_for_the_holder<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let asked = downgrade(&resource, &owner(1), u64::MAX >> 12, &owner(2), LONG);
    assert_eq!(client.ask(asked.clone()).await, Reply::Refused(Refusal::NotOwner));
    assert!(
        client.inspect(&resource).await.is_free(),
        "if it is free another owner may have held it between"
    );
    client.must_acquire(&resource, &owner(3), LONG).await;
    let reply = client.ask(asked.clone()).await;
    assert!(held_by(&reply, &owner(3)), "{reply:?}");
    client.ask(release(&resource, &owner(3))).await;
    client.ask(share(&resource, &owner(1), LONG)).await;
    let reply = client.ask(asked).await;
    assert!(held_by_readers(&reply), "{reply:?}");
}

/// Checks that a downgrade is refused if another owner was granted the lock after the writer. In this case
/// another owner has acquired and released the lock, and then a late extension has stored the former writer as
/// the owner again.
pub(super) async fn downgrade_is_refused_after_another_grant<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    client.ask(release(&resource, &owner(1))).await;
    let later = client.must_acquire(&resource, &owner(3), LONG).await;
    client.ask(release(&resource, &owner(3))).await;
    assert_eq!(client.ask(extend(&resource, &owner(1), LONG, later)).await, Reply::Extended);
    let late = client.ask(downgrade(&resource, &owner(1), counted, &owner(2), LONG)).await;
    assert_eq!(late, Reply::Refused(Refusal::Superseded));
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
    // The node also refuses the downgrade if it no longer stores a counter for the resource.
    let forgotten = lock("forgotten");
    let mut forgetful = client.acquire(&forgotten, &owner(1), LONG);
    if let Request::Acquire { keep, .. } = &mut forgetful {
        *keep = Duration::from_millis(5);
    }
    assert!(matches!(client.ask(forgetful).await, Reply::Granted { .. }));
    client.wait_until(&forgotten, |seen| seen.counter.is_none()).await;
    let late = client.ask(downgrade(&forgotten, &owner(1), u64::MAX >> 12, &owner(2), LONG)).await;
    assert_eq!(late, Reply::Refused(Refusal::Superseded));
}

pub(super) async fn readers_leave_the_counter_alone<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.ask(share(&resource, &owner(1), LONG)).await;
    client.ask(extend_share(&resource, &owner(1), LONG)).await;
    assert_eq!(client.inspect(&resource).await.counter, None);
    client.ask(release_share(&resource, &owner(1))).await;
    let counted = client.must_acquire(&resource, &owner(2), LONG).await;
    client.ask(downgrade(&resource, &owner(2), counted, &owner(3), LONG)).await;
    assert_eq!(client.inspect(&resource).await.counter, Some(counted));
}

pub(super) async fn a_node_limits_the_readers_of_a_lock<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let many = (0..READERS_MAX as u64).map(|number| share(&resource, &owner(number), LONG)).collect();
    assert!(client.ask_all(many).await.replies.iter().all(|reply| *reply == Reply::Shared));
    let crowded = Reply::Refused(Refusal::Crowded { most: READERS_MAX as u32 });
    let one_more = owner(READERS_MAX as u64);
    assert_eq!(client.ask(share(&resource, &one_more, LONG)).await, crowded);
    assert_eq!(client.ask(extend_share(&resource, &one_more, LONG)).await, crowded);
    assert_eq!(client.ask(extend_share(&resource, &owner(5), LONG)).await, Reply::Extended);
    client.ask(release_share(&resource, &owner(5))).await;
    assert_eq!(client.ask(share(&resource, &one_more, LONG)).await, Reply::Shared);
}
