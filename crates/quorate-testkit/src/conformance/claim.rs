use super::{Desk, desk::*};
use quorate::node::{DoneRecord, Node, Refusal, Reply, Request, engine::RESULT_MAX};
use std::time::Duration;

fn done(by: u64, result: &str) -> DoneRecord {
    DoneRecord { token: token(by), result: result.into() }
}

pub(super) async fn complete_frees_the_claim_and_answers_for_it<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = claim("1");
    let by = desk.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(desk.inspect(&resource).await.done, None);
    assert_eq!(desk.ask(complete(&resource, &owner(1), by, "paid")).await, Reply::Completed);
    let seen = desk.inspect(&resource).await;
    assert_eq!(seen, Seen { holder: None, counter: Some(by), done: Some(done(by, "paid")) });
    let again = desk.ask(desk.acquire(&resource, &owner(2), LONG)).await;
    assert_eq!(again, Reply::Done(done(by, "paid")));
    assert!(desk.inspect(&resource).await.is_free());
    desk.must_acquire(&claim("2"), &owner(2), LONG).await;
}

pub(super) async fn complete_is_refused_while_another_holds<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = claim("1");
    let by = desk.must_acquire(&resource, &owner(1), LONG).await;
    let stranger = desk.ask(complete(&resource, &owner(2), by + 1, "mine")).await;
    assert!(matches!(stranger, Reply::Held { owner: holder, .. } if holder == owner(1)));
    let seen = desk.inspect(&resource).await;
    assert!(seen.held_by(&owner(1)) && seen.done.is_none(), "{seen:?}");
    assert_eq!(seen.counter, Some(by));
}

pub(super) async fn complete_after_the_end_needs_the_newest_count<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let (alone, passed) = (claim("alone"), claim("passed"));
    let by = desk.must_acquire(&alone, &owner(1), Duration::from_millis(10)).await;
    let old = desk.must_acquire(&passed, &owner(1), Duration::from_millis(10)).await;
    desk.wait_until(&alone, Seen::is_free).await;
    desk.wait_until(&passed, Seen::is_free).await;
    assert_eq!(desk.ask(complete(&alone, &owner(1), by, "late")).await, Reply::Completed);
    assert_eq!(desk.inspect(&alone).await.done, Some(done(by, "late")));
    desk.must_acquire(&passed, &owner(2), LONG).await;
    assert_eq!(desk.ask(release(&passed, &owner(2))).await, Reply::Released(true));
    let superseded = desk.ask(complete(&passed, &owner(1), old, "late")).await;
    assert_eq!(superseded, Reply::Refused(Refusal::Superseded));
    assert_eq!(desk.inspect(&passed).await.done, None);
    // A node that missed the claim altogether.
    let unknown = claim("unknown");
    assert_eq!(desk.ask(complete(&unknown, &owner(1), 12, "x")).await, Reply::Completed);
    assert_eq!(
        desk.inspect(&unknown).await,
        Seen { holder: None, counter: Some(12), done: Some(done(12, "x")) }
    );
}

pub(super) async fn of_two_done_records_the_higher_stands<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = claim("1");
    assert_eq!(desk.ask(complete(&resource, &owner(1), 90, "ninety")).await, Reply::Completed);
    // 9 is the greater text and the lesser number.
    let lower = desk.ask(complete(&resource, &owner(2), 9, "nine")).await;
    assert_eq!(lower, Reply::Done(done(90, "ninety")));
    assert_eq!(desk.ask(complete(&resource, &owner(1), 90, "again")).await, Reply::Completed);
    assert_eq!(desk.ask(complete(&resource, &owner(3), 100, "hundred")).await, Reply::Completed);
    let seen = desk.inspect(&resource).await;
    assert_eq!((seen.counter, seen.done), (Some(100), Some(done(100, "hundred"))));
}

pub(super) async fn a_done_claim_is_not_extended<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = claim("1");
    let by = desk.must_acquire(&resource, &owner(1), LONG).await;
    assert_eq!(desk.ask(complete(&resource, &owner(1), by, "")).await, Reply::Completed);
    let extended = desk.ask(extend(&resource, &owner(1), LONG, by)).await;
    assert_eq!(extended, Reply::Done(done(by, "")));
    assert!(desk.inspect(&resource).await.is_free());
}

pub(super) async fn done_is_forgotten_at_its_time_with_its_counter<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let resource = claim("1");
    let by = desk.must_acquire(&resource, &owner(1), LONG).await;
    let mut brief = complete(&resource, &owner(1), by, "brief");
    if let Request::Complete { retention, .. } = &mut brief {
        *retention = Duration::from_millis(80);
    }
    let sent = desk.now();
    assert_eq!(desk.ask(brief).await, Reply::Completed);
    desk.wait_until(&resource, |seen| seen.done.is_none() && seen.counter.is_none()).await;
    assert!(sent.until(desk.now()) >= Duration::from_millis(80));
    desk.must_acquire(&resource, &owner(2), LONG).await;
}

pub(super) async fn results_may_hold_anything<N: Node>(node: N) {
    let mut desk = Desk::marked(node).await;
    let long = "r".repeat(RESULT_MAX);
    for result in ["", ":", "7:x", "a\nb\r\n", "{\"ü\": null}", "\0", &long] {
        let resource = claim(&format!("{}{}", result.len(), result.starts_with(':')));
        assert_eq!(desk.ask(complete(&resource, &owner(1), 3, result)).await, Reply::Completed);
        assert_eq!(desk.inspect(&resource).await.done, Some(done(3, result)), "{result:?}");
    }
}
