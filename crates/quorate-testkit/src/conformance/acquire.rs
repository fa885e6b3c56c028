use super::{TestClient, client::*};
use quorate::node::{FencingToken, Node, Owner, Refusal, Reply, Request, Resource};
use std::time::Duration;

pub(super) async fn a_free_resource_is_granted_and_counted<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (here, there) = (lock("here"), lock("there"));
    let propose = client.wall().as_micros();
    let granted = client.ask(client.acquire_from(&here, &owner(1), LONG, propose)).await;
    assert_eq!(granted, Reply::Granted { counter: token(propose + 1), begun: None });
    let seen = client.inspect(&here).await;
    assert!(seen.held_by(&owner(1)), "{seen:?}");
    assert_eq!((seen.counter, seen.done.is_none()), (Some(propose + 1), true));
    assert_eq!(
        client.inspect(&there).await,
        ResourceState { holder: None, counter: None, done: None, begun: None }
    );
}

pub(super) async fn a_held_resource_names_the_holder_and_the_remaining_time<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), Duration::from_secs(30)).await;
    match client.ask(client.acquire(&resource, &owner(2), LONG)).await {
        Reply::Held { owner: holder, remaining: Some(left) } => {
            assert_eq!(holder, owner(1));
            // A server counts whole milliseconds and may round the remaining time up. The limit is therefore
            // a millisecond above the TTL.
            assert!(left > Duration::from_secs(15) && left <= Duration::from_millis(30_001), "{left:?}");
        }
        other => unexpected(&other),
    }
    assert_eq!(client.inspect(&resource).await.counter, Some(counted), "a refusal counts no grant");
}

pub(super) async fn its_own_holder_does_not_acquire_again<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.must_acquire(&resource, &owner(1), LONG).await;
    let again = client.ask(client.acquire(&resource, &owner(1), LONG)).await;
    assert!(matches!(again, Reply::Held { owner: holder, .. } if holder == owner(1)));
}

pub(super) async fn a_lease_ends_at_its_time_and_not_before<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let ttl = Duration::from_micros(80_300);
    let sent = client.now();
    let counted = client.must_acquire(&resource, &owner(1), ttl).await;
    client.wait_until(&resource, ResourceState::is_free).await;
    let lived = sent.until(client.now());
    assert!(lived >= ttl, "ended after {lived:?}");
    assert!(lived < ttl + Duration::from_secs(5), "ended only after {lived:?}");
    assert_eq!(client.must_acquire(&resource, &owner(2), LONG).await, counted + 1);
}

pub(super) async fn an_existing_counter_ignores_the_proposal<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    let far = client.ask(client.acquire_from(&resource, &owner(2), LONG, 5)).await;
    assert_eq!(far, Reply::Granted { counter: token(counted + 1), begun: None });
}

pub(super) async fn a_missing_counter_refuses_a_far_proposal<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let now = client.wall().as_micros();
    for propose in [now - 20_000_000, now + 20_000_000] {
        match client.ask(client.acquire_from(&resource, &owner(1), LONG, propose)).await {
            Reply::Refused(Refusal::Clock { apart }) => {
                assert!(apart > Duration::from_secs(15) && apart < Duration::from_secs(25), "{apart:?}");
            }
            other => unexpected(&other),
        }
    }
    assert_eq!(
        client.inspect(&resource).await,
        ResourceState { holder: None, counter: None, done: None, begun: None }
    );
    for propose in [now - 1_000_000, now + 1_000_000] {
        let near = lock(&format!("near {propose}"));
        let granted = client.ask(client.acquire_from(&near, &owner(1), LONG, propose)).await;
        assert_eq!(granted, Reply::Granted { counter: token(propose + 1), begun: None });
    }
}

pub(super) async fn a_full_counter_grants_no_more<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let max = FencingToken::MAX.get();
    assert_eq!(client.ask(extend(&resource, &owner(1), LONG, max - 1)).await, Reply::Extended);
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    assert_eq!(client.must_acquire(&resource, &owner(2), LONG).await, max);
    assert_eq!(client.ask(release(&resource, &owner(2))).await, Reply::Released(true));
    let full = client.ask(client.acquire(&resource, &owner(3), LONG)).await;
    assert_eq!(full, Reply::Refused(Refusal::CounterFull));
    assert_eq!(
        client.inspect(&resource).await,
        ResourceState { holder: None, counter: Some(max), done: None, begun: None }
    );
}

pub(super) async fn a_counter_expires_at_its_time<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let mut short = client.acquire(&resource, &owner(1), Duration::from_millis(5));
    if let Request::Acquire { keep, .. } = &mut short {
        *keep = Duration::from_millis(60);
    }
    let sent = client.now();
    assert!(matches!(client.ask(short).await, Reply::Granted { .. }));
    client.wait_until(&resource, |seen| seen.counter.is_none()).await;
    assert!(sent.until(client.now()) >= Duration::from_millis(60));
    let propose = client.wall().as_micros();
    let anew = client.ask(client.acquire_from(&resource, &owner(2), LONG, propose)).await;
    assert_eq!(anew, Reply::Granted { counter: token(propose + 1), begun: None });
}

pub(super) async fn resources_of_different_kinds_are_separate<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let all = [
        lock("x"),
        expect(Resource::election("x")),
        expect(Resource::claim("x", "x")),
        lock("X"),
        expect(Resource::claim("x", "x/x")),
        lock("x:fence"),
        lock("x:done"),
    ];
    for (number, resource) in (1..).zip(&all) {
        client.must_acquire(resource, &owner(number), LONG).await;
    }
    for (number, resource) in (1..).zip(&all) {
        assert!(client.inspect(resource).await.held_by(&owner(number)), "{resource}");
    }
}

pub(super) async fn names_and_owners_may_hold_odd_characters<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let long = "n".repeat(512);
    let names = ["a b", "..", ".", "/", "a/../b", "~", "%2F", "ünïcödé", "*?[x]", "'\";\\", "con", &long];
    for name in names {
        let resource = lock(name);
        let signed = Owner::sign(name, 3, 4);
        client.must_acquire(&resource, &signed, LONG).await;
        assert!(client.inspect(&resource).await.held_by(&signed), "{name:?}");
        assert_eq!(client.ask(release(&resource, &signed)).await, Reply::Released(true), "{name:?}");
    }
}
