use super::{Desk, inbox::*};
use quorate::node::{Node, Owner, Refusal, Reply};
use std::time::Duration;

fn heir() -> Owner {
    Owner::reserve("heir", 5, 5)
}

/// An attempt of the worker named `heir`, the successor.
fn of_the_heir() -> Owner {
    Owner::sign("heir", 6, 6)
}

pub(super) async fn a_reserved_resource_is_its_heirs_alone<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = lock("r");
    desk.must_acquire(&resource, &owner(1), LONG).await;
    let lasts = Duration::from_secs(30);
    assert_eq!(desk.ask(reserve(&resource, &owner(1), &heir(), lasts)).await, Reply::Reserved);
    let seen = desk.inspect(&resource).await;
    assert!(seen.held_by(&heir()) && seen.remaining() <= Duration::from_millis(30_001), "{seen:?}");
    // The holder that reserved it, an unrelated worker, and workers whose names begin with the same
    // letters.
    for other in [owner(2), Owner::sign("other", 6, 6), Owner::sign("heir2", 6, 6), Owner::from_node("heir")]
    {
        let said = desk.ask(desk.acquire(&resource, &other, LONG)).await;
        assert!(
            matches!(&said, Reply::Held { owner: holder, .. } if *holder == heir()),
            "{other:?}: {said:?}"
        );
    }
    let taken = desk.ask(desk.acquire(&resource, &of_the_heir(), LONG)).await;
    assert!(matches!(taken, Reply::Granted { .. }), "{taken:?}");
    let seen = desk.inspect(&resource).await;
    assert!(seen.held_by(&of_the_heir()) && seen.remaining() > Duration::from_secs(31), "{seen:?}");
    let second = desk.ask(desk.acquire(&resource, &Owner::sign("heir", 7, 7), LONG)).await;
    assert!(matches!(second, Reply::Held { .. }), "it is taken once: {second:?}");
}

pub(super) async fn an_heir_counts_one_more<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = lock("r");
    let counted = desk.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(desk.ask(reserve(&resource, &owner(1), &heir(), LONG)).await, Reply::Reserved);
    assert_eq!(desk.inspect(&resource).await.counter, Some(counted), "nobody was granted anything");
    assert_eq!(desk.must_acquire(&resource, &of_the_heir(), LONG).await, counted + 1);
}

pub(super) async fn reserve_is_for_the_holder<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = lock("r");
    let not_owner = Reply::Refused(Refusal::NotOwner);
    assert_eq!(desk.ask(reserve(&resource, &owner(1), &heir(), LONG)).await, not_owner);
    assert!(desk.inspect(&resource).await.is_free());
    desk.must_acquire(&resource, &owner(1), Duration::from_millis(60)).await;
    assert_eq!(desk.ask(reserve(&resource, &owner(2), &heir(), LONG)).await, not_owner);
    assert!(desk.inspect(&resource).await.held_by(&owner(1)));
    desk.wait_until(&resource, Seen::is_free).await;
    assert_eq!(desk.ask(reserve(&resource, &owner(1), &heir(), LONG)).await, not_owner);
    assert!(desk.inspect(&resource).await.is_free());
}

pub(super) async fn a_reservation_ends_by_itself<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = lock("r");
    let counted = desk.must_acquire(&resource, &owner(1), LONG).await;
    let brief = reserve(&resource, &owner(1), &heir(), Duration::from_millis(30));
    assert_eq!(desk.ask(brief).await, Reply::Reserved);
    desk.wait_until(&resource, Seen::is_free).await;
    assert_eq!(desk.must_acquire(&resource, &owner(2), LONG).await, counted + 1);
}

pub(super) async fn who_transferred_neither_extends_nor_releases_any_more<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = lock("r");
    let counted = desk.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(desk.ask(reserve(&resource, &owner(1), &heir(), LONG)).await, Reply::Reserved);
    let extended = desk.ask(extend(&resource, &owner(1), LONG, counted)).await;
    assert!(matches!(&extended, Reply::Held { owner: holder, .. } if *holder == heir()), "{extended:?}");
    let raised = desk.ask(raise(&resource, &owner(1), counted + 5)).await;
    assert_eq!(raised, Reply::Refused(Refusal::NotOwner));
    assert_eq!(desk.ask(release(&resource, &owner(1))).await, Reply::Released(false));
    assert!(desk.inspect(&resource).await.held_by(&heir()));
}

pub(super) async fn what_only_looks_like_a_reservation_is_nobodys<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let hex = "00000000000000050000000000000005";
    // A worker may have such a name. Random parts of another length, or that are no hexadecimal digits,
    // are not ours.
    let looks = [
        Owner::sign("heir:reserved", 5, 5),
        Owner::from_node(&format!("heir:{hex}0:reserved")),
        Owner::from_node("heir:reserved"),
        Owner::from_node(&format!("heir:{}:reserved", "g".repeat(32))),
        Owner::from_node(&format!("heir:{hex}:reserved ")),
        Owner::from_node(&format!("{hex}:reserved")),
    ];
    for (number, standing) in looks.into_iter().enumerate() {
        let resource = lock(&format!("r{number}"));
        desk.must_acquire(&resource, &standing, LONG).await;
        let said = desk.ask(desk.acquire(&resource, &of_the_heir(), LONG)).await;
        assert!(matches!(said, Reply::Held { .. }), "{standing:?}: {said:?}");
    }
}
