use super::{TestClient, client::*};
use quorate::node::{Node, Owner, Refusal, Reply};
use std::time::Duration;

fn successor() -> Owner {
    Owner::reserve("successor", 5, 5)
}

/// Returns the owner token of an attempt of the worker named `successor`, for whom the resource is reserved.
fn successor_attempt() -> Owner {
    Owner::sign("successor", 6, 6)
}

pub(super) async fn a_reserved_resource_is_for_its_successor_alone<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.must_acquire(&resource, &owner(1), LONG).await;
    let lasts = Duration::from_secs(30);
    assert_eq!(client.ask(reserve(&resource, &owner(1), &successor(), lasts)).await, Reply::Reserved);
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&successor()) && seen.remaining() <= Duration::from_millis(30_001), "{seen:?}");
    // The node must refuse these owners: another attempt of the worker that made the reservation, an unrelated
    // worker, a worker whose name only begins with `successor`, and a value that is no owner token of Quorate.
    for other in
        [owner(2), Owner::sign("other", 6, 6), Owner::sign("successor2", 6, 6), Owner::from_node("successor")]
    {
        let said = client.ask(client.acquire(&resource, &other, LONG)).await;
        assert!(
            matches!(&said, Reply::Held { owner: holder, .. } if *holder == successor()),
            "{other:?}: {said:?}"
        );
    }
    let taken = client.ask(client.acquire(&resource, &successor_attempt(), LONG)).await;
    assert!(matches!(taken, Reply::Granted { .. }), "{taken:?}");
    let seen = client.inspect(&resource).await;
    assert!(seen.held_by(&successor_attempt()) && seen.remaining() > Duration::from_secs(31), "{seen:?}");
    let second = client.ask(client.acquire(&resource, &Owner::sign("successor", 7, 7), LONG)).await;
    assert!(matches!(second, Reply::Held { .. }), "it is taken once: {second:?}");
}

pub(super) async fn a_successor_counts_one_more<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(reserve(&resource, &owner(1), &successor(), LONG)).await, Reply::Reserved);
    assert_eq!(client.inspect(&resource).await.counter, Some(counted), "a reservation counts no grant");
    assert_eq!(client.must_acquire(&resource, &successor_attempt(), LONG).await, counted + 1);
}

pub(super) async fn reserve_is_for_the_holder<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let not_owner = Reply::Refused(Refusal::NotOwner);
    assert_eq!(client.ask(reserve(&resource, &owner(1), &successor(), LONG)).await, not_owner);
    assert!(client.inspect(&resource).await.is_free());
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(reserve(&resource, &owner(2), &successor(), LONG)).await, not_owner);
    assert!(client.inspect(&resource).await.held_by(&owner(1)));
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(true));
    assert_eq!(client.must_acquire(&resource, &owner(1), Duration::from_millis(20)).await, counted + 1);
    client.wait_until(&resource, ResourceState::is_free).await;
    assert_eq!(client.ask(reserve(&resource, &owner(1), &successor(), LONG)).await, not_owner);
    assert!(client.inspect(&resource).await.is_free());
}

pub(super) async fn a_reservation_ends_by_itself<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    let brief = reserve(&resource, &owner(1), &successor(), Duration::from_millis(30));
    assert_eq!(client.ask(brief).await, Reply::Reserved);
    client.wait_until(&resource, ResourceState::is_free).await;
    assert_eq!(client.must_acquire(&resource, &owner(2), LONG).await, counted + 1);
}

pub(super) async fn a_holder_that_transferred_neither_extends_nor_releases<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let counted = client.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(client.ask(reserve(&resource, &owner(1), &successor(), LONG)).await, Reply::Reserved);
    let extended = client.ask(extend(&resource, &owner(1), LONG, counted)).await;
    assert!(matches!(&extended, Reply::Held { owner: holder, .. } if *holder == successor()), "{extended:?}");
    let raised = client.ask(raise(&resource, &owner(1), counted + 5)).await;
    assert_eq!(raised, Reply::Refused(Refusal::NotOwner));
    assert_eq!(client.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    assert!(client.inspect(&resource).await.held_by(&successor()));
}

pub(super) async fn a_false_reservation_reserves_for_no_worker<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let hex = "00000000000000050000000000000005";
    // These values look like a reservation for `successor`, but none of them is one. A real reservation is the
    // worker's name, 32 hexadecimal digits and `:reserved`. The first value is the owner token of a worker with
    // an unusual name.
    let looks = [
        Owner::sign("successor:reserved", 5, 5),
        Owner::from_node(&format!("successor:{hex}0:reserved")),
        Owner::from_node("successor:reserved"),
        Owner::from_node(&format!("successor:{}:reserved", "g".repeat(32))),
        Owner::from_node(&format!("successor:{hex}:reserved ")),
        Owner::from_node(&format!("{hex}:reserved")),
    ];
    for (number, standing) in looks.into_iter().enumerate() {
        let resource = lock(&format!("r{number}"));
        client.must_acquire(&resource, &standing, LONG).await;
        let said = client.ask(client.acquire(&resource, &successor_attempt(), LONG)).await;
        assert!(matches!(said, Reply::Held { .. }), "{standing:?}: {said:?}");
    }
}
