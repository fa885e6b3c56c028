use super::{TestClient, client::*};
use quorate::node::{FencingToken, Node, Refusal, Reply, Request};
use std::time::Duration;

pub(super) async fn raise_increases_the_holders_counter<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    for to in [counted, counted + 1000] {
        assert_eq!(client.ask(raise(&resource, &owner(1), to)).await, Reply::Raised);
        assert_eq!(client.inspect(&resource).await.counter, Some(to));
    }
}

pub(super) async fn raise_is_for_the_holder<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let not_owner = Reply::Refused(Refusal::NotOwner);
    assert_eq!(client.ask(raise(&resource, &owner(1), 7)).await, not_owner);
    assert_eq!(client.inspect(&resource).await.counter, None);
    let counted = client.must_acquire(&resource, &owner(1), Duration::from_millis(60)).await;
    assert_eq!(client.ask(raise(&resource, &owner(2), counted + 9)).await, not_owner);
    client.wait_until(&resource, ResourceState::is_free).await;
    assert_eq!(client.ask(raise(&resource, &owner(1), counted + 9)).await, not_owner);
    assert_eq!(client.inspect(&resource).await.counter, Some(counted));
}

pub(super) async fn raise_never_lowers<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    // The node must compare counters as numbers. 99 has fewer digits than the counter, and would be greater
    // in a comparison of texts.
    for to in [counted - 1, 99] {
        let lower = client.ask(raise(&resource, &owner(1), to)).await;
        assert_eq!(lower, Reply::Refused(Refusal::Superseded));
    }
    assert_eq!(client.inspect(&resource).await.counter, Some(counted));
}

pub(super) async fn raise_refuses_a_forgotten_counter<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let mut forgetful = client.acquire(&resource, &owner(1), LONG);
    if let Request::Acquire { keep, .. } = &mut forgetful {
        *keep = Duration::from_millis(5);
    }
    assert!(matches!(client.ask(forgetful).await, Reply::Granted { .. }));
    let seen = client.wait_until(&resource, |seen| seen.counter.is_none()).await;
    assert!(seen.held_by(&owner(1)));
    let raised = client.ask(raise(&resource, &owner(1), u64::MAX >> 12)).await;
    assert_eq!(raised, Reply::Refused(Refusal::Superseded));
    assert_eq!(client.inspect(&resource).await.counter, None);
}

pub(super) async fn extend_lengthens_and_raises_the_counter<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), Duration::from_secs(5)).await;
    assert_eq!(client.ask(extend(&resource, &owner(1), LONG, counted + 3)).await, Reply::Extended);
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&owner(1)) && seen.remaining() > Duration::from_secs(30), "{seen:?}");
    assert_eq!(seen.counter, Some(counted + 3));
    assert_eq!(client.ask(extend(&resource, &owner(1), LONG, counted)).await, Reply::Extended);
    assert_eq!(client.inspect(&resource).await.counter, Some(counted + 3), "never lower");
}

pub(super) async fn extend_never_shortens<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    let short = extend(&resource, &owner(1), Duration::from_millis(1), counted);
    assert_eq!(client.ask(short).await, Reply::Extended);
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&owner(1)) && seen.remaining() > Duration::from_secs(30), "{seen:?}");
}

pub(super) async fn extend_sets_the_owner_again_if_free<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (never_held, expired) = (lock("never held"), lock("expired"));
    assert_eq!(client.ask(extend(&never_held, &owner(1), LONG, 70)).await, Reply::Extended);
    let seen = client.inspect(&never_held).await;
    assert!(seen.held_by(&owner(1)) && seen.remaining() > Duration::from_secs(30), "{seen:?}");
    assert_eq!(seen.counter, Some(70));
    let counted = client.must_acquire(&expired, &owner(1), Duration::from_millis(10)).await;
    client.wait_until(&expired, ResourceState::is_free).await;
    assert_eq!(client.ask(extend(&expired, &owner(1), LONG, counted)).await, Reply::Extended);
    let seen = client.inspect(&expired).await;
    assert!(seen.held_by(&owner(1)), "{seen:?}");
    assert_eq!(seen.counter, Some(counted));
}

pub(super) async fn extend_does_not_set_the_owner_after_later_grants<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    for resource in [lock("r"), claim("17")] {
        let old = client.must_acquire(&resource, &owner(1), LONG).await;
        client.ask(release(&resource, &owner(1))).await;
        let new = client.must_acquire(&resource, &owner(2), LONG).await;
        client.ask(release(&resource, &owner(2))).await;
        let refused = client.ask(extend(&resource, &owner(1), LONG, old)).await;
        let counter = FencingToken::new(new);
        assert_eq!(refused, Reply::Refused(Refusal::LaterGrants { counter }), "{resource}");
        let seen = client.inspect(&resource).await;
        assert!(seen.is_free() && seen.counter == Some(new), "{seen:?}");
        // The holder vouches for the later grants.
        assert_eq!(client.ask(extend(&resource, &owner(1), LONG, new)).await, Reply::Extended);
        assert!(client.inspect(&resource).await.held_by(&owner(1)));
        // While it holds the resource, a smaller token is enough.
        assert_eq!(client.ask(extend(&resource, &owner(1), LONG, old)).await, Reply::Extended);
        assert_eq!(client.inspect(&resource).await.counter, Some(new), "never lower");
    }
}

pub(super) async fn extend_leaves_anothers_lease<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), Duration::from_secs(30)).await;
    let other = client.ask(extend(&resource, &owner(2), LONG, counted + 50)).await;
    assert!(matches!(other, Reply::Held { owner: holder, remaining: Some(_) } if holder == owner(1)));
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&owner(1)) && seen.remaining() <= Duration::from_millis(30_001), "{seen:?}");
    assert_eq!(seen.counter, Some(counted));
}

pub(super) async fn extend_keeps_the_counter_alive<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    // The extension raises the counter of the first resource by one, and leaves the counter of the second
    // resource unchanged. In both cases the node must renew the counter's lifetime.
    for (name, more) in [("lifted", 1), ("standing", 0)] {
        let resource = lock(name);
        let mut forgetful = client.acquire(&resource, &owner(1), LONG);
        if let Request::Acquire { keep, .. } = &mut forgetful {
            *keep = Duration::from_millis(150);
        }
        let counter = match client.ask(forgetful).await {
            Reply::Granted { counter, .. } => counter,
            other => unexpected(&other),
        };
        let extended = client.ask(extend(&resource, &owner(1), LONG, counter.get() + more)).await;
        assert_eq!(extended, Reply::Extended);
        client.env.sleep(Duration::from_millis(200)).await;
        assert_eq!(client.inspect(&resource).await.counter, Some(counter.get() + more), "{name}");
    }
}

pub(super) async fn release_frees_its_own_and_keeps_the_counter<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    assert_eq!(
        client.inspect(&resource).await,
        ResourceState { holder: None, counter: Some(counted), done: None, begun: None }
    );
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(false));
}

pub(super) async fn release_leaves_anothers_lease<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(release(&resource, &owner(2))).await, Reply::Released(false));
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
}

pub(super) async fn inspect_changes_nothing<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.inspect(&resource).await;
    let counted = client.must_acquire(&resource, &owner(1), Duration::from_millis(80)).await;
    // This call inspects the resource until the lease has ended. The inspections must not extend the lease.
    let seen = client.wait_until(&resource, ResourceState::is_free).await;
    assert_eq!(seen.counter, Some(counted));
}
