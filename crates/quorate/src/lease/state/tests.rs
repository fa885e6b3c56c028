use super::*;
use crate::{lease::mode::Mode, node::Cause, trust::NodeEpoch};

const fn at(ms: u64) -> BootTime {
    BootTime::from_nanos(ms * 1_000_000)
}

/// Returns a lease that is held on nodes 0 to 2 of 5 since 1,000 ms. Its TTL is ten seconds and its validity
/// 9,698 ms.
fn held() -> LeaseState {
    let second = Duration::from_secs(1);
    let params = LeaseParams {
        ttl: 10 * second,
        grace: 2 * second,
        min_validity: second,
        keep: 100 * second,
        extended: true,
        mode: Mode::Exclusive,
    };
    let resource = Resource::lock("x").unwrap();
    let mut held = LeaseState::new(
        resource,
        Owner::from_node("me"),
        FencingToken::new(7),
        params,
        &QuorumConfig::default(),
        5,
        at(1000),
    );
    (0..3).for_each(|node| held.granted(node, at(1000), 0));
    held
}

fn vote(node: usize, sent: u64, answer: Answer) -> Vote {
    Vote { node, ticket: 0, requests: 1, sent: Some(at(sent)), memory: NodeEpoch::default(), answer }
}

fn extended(node: usize, sent: u64) -> Vote {
    vote(node, sent, Answer::Reply(Reply::Extended))
}

fn late(node: usize, sent: u64) -> Vote {
    vote(node, sent, Answer::Failed(Cause::TimedOut))
}

#[test]
fn renewed_every_third_of_the_ttl_on_all_nodes() {
    let mut held = held();
    assert_eq!(held.valid_until(), Some(at(1000 + 9698)));
    let (third, tick) = (Duration::from_secs(10) / 3, Duration::from_secs(10) / 3 / TICKS);
    assert!(held.wake() <= at(1000) + third && held.wake() + tick > at(1000) + third);
    assert!(held.due(at(4000)).is_empty());
    assert_eq!(held.due(at(4400)), [0, 1, 2, 3, 4]);
    (2..5).for_each(|node| _ = held.count(at(4401), &extended(node, 4400)));
    assert_eq!(held.valid_until(), Some(at(4400 + 9698)));
    assert!(held.advance(at(4401)).is_empty(), "still held");
}

#[test]
fn an_extension_never_lowers_a_node_s_deadline() {
    let mut held = held();
    held.count(at(5000), &extended(0, 500));
    assert_eq!(held.valid_until(), Some(at(1000 + 9698)));
}

#[test]
fn failures_are_retried_until_the_step_down_and_the_events_keep_their_order() {
    let mut held = held();
    let mut events = Vec::new();
    let mut asked = 0;
    let mut now = at(1000);
    while held.stage() != LeaseEvent::Lost {
        now = held.wake().max(now);
        let sent = now.as_nanos() / 1_000_000;
        for node in held.due(now) {
            asked += 1;
            held.count(now, &late(node, sent));
        }
        events.extend(held.advance(now));
        assert!(asked < 1000);
    }
    assert_eq!(events, [LeaseEvent::AtRisk, LeaseEvent::StepDown, LeaseEvent::Lost]);
    assert_eq!(now, at(1000 + 9698), "lost exactly at the end of validity");
    assert!(asked > 30, "asked only {asked} times");
}

#[test]
fn recovery_from_at_risk_is_told() {
    let mut held = held();
    held.due(at(4400)).into_iter().for_each(|node| _ = held.count(at(4500), &late(node, 4400)));
    assert_eq!(held.advance(at(4500)), [LeaseEvent::AtRisk]);
    assert_eq!(held.due(at(5000)), [0, 1, 2, 3, 4]);
    (0..3).for_each(|node| _ = held.count(at(5001), &extended(node, 5000)));
    assert_eq!(held.advance(at(5001)), [LeaseEvent::Held]);
}

#[test]
fn a_node_that_forgot_stops_counting_at_once() {
    let mut held = held();
    held.forget_unless(at(2000), |node, _| node != 1);
    assert_eq!(held.valid_until(), None);
    assert_eq!(held.advance(at(2000)), [LeaseEvent::StepDown, LeaseEvent::Lost]);
    assert!(held.due(at(2000)).is_empty());
}

/// Regression: an answer that did not count was once ignored, and its node was never asked again. So a lease
/// that a flushed node had lost was not restored on that node.
#[test]
fn a_node_whose_answer_does_not_count_is_asked_again() {
    let mut held = held();
    assert_eq!(held.due(at(4400)), [0, 1, 2, 3, 4]);
    (0..4).for_each(|node| _ = held.count(at(4401), &extended(node, 4400)));
    held.discount(at(4401), 4);
    assert!(held.due(at(4402)).is_empty(), "the round is won without it");
    assert_eq!(held.due(at(4400) + Duration::from_secs(10) / 3), [0, 1, 2, 3, 4]);
    held.discount(at(8000), 4);
    (0..2).for_each(|node| _ = held.count(at(8000), &extended(node, 7800)));
    (2..4).for_each(|node| _ = held.count(at(8000), &late(node, 7800)));
    assert_eq!(held.round_since(at(7700)), Some(false), "no node is awaited");
    assert_eq!(held.due(at(8600)), [2, 3, 4], "and before the next round where this one needs it");
}

#[test]
fn after_the_step_down_nothing_is_extended() {
    let mut held = held();
    assert_eq!(held.advance(at(9000)), [LeaseEvent::StepDown]);
    assert!(held.due(at(9000)).is_empty());
    (0..3).for_each(|node| _ = held.count(at(9001), &extended(node, 8999)));
    assert!(held.advance(at(9001)).is_empty(), "a step-down is not taken back");
}

#[test]
fn what_may_be_held_for_so_long_ends_then_and_is_not_extended_beyond() {
    let mut held = held();
    held.limit(Some(at(15_000)));
    assert_eq!(held.due(at(4400)), [0, 1, 2, 3, 4]);
    (0..5).for_each(|node| _ = held.count(at(4401), &extended(node, 4400)));
    assert_eq!(held.valid_until(), Some(at(4400 + 9698)));
    let next = at(4400) + Duration::from_secs(10) / 3;
    assert_eq!(held.due(next), [0, 1, 2, 3, 4]);
    (0..5).for_each(|node| _ = held.count(at(7800), &extended(node, 7734)));
    assert_eq!(held.valid_until(), Some(at(15_000)), "not for the 9,698 ms that were granted");
    assert!(held.due(at(11_100)).is_empty(), "the keys stand for long enough");
    assert_eq!(held.wake(), at(13_000), "the grace before the end");
    assert_eq!(held.advance(at(13_000)), [LeaseEvent::StepDown]);
    assert_eq!(held.cause(at(13_000)), StepDownCause::MaxHold);
    assert_eq!(held.advance(at(15_000)), [LeaseEvent::Lost]);
}

#[test]
fn who_is_stuck_is_not_extended_until_it_says_that_it_gets_on() {
    let mut held = held();
    assert!(!held.wants_to_extend(at(4000)) && held.wants_to_extend(at(4400)));
    held.health_checked(at(4400), false);
    assert!(held.due(at(4400)).is_empty(), "nothing leaves");
    assert_eq!(held.advance(at(4400)), [LeaseEvent::AtRisk]);
    assert_eq!(held.wake(), at(4400) + Duration::from_millis(500), "and is looked at again");
    held.health_checked(at(4900), true);
    assert_eq!(held.due(at(4900)), [0, 1, 2, 3, 4]);
    (0..3).for_each(|node| _ = held.count(at(4901), &extended(node, 4900)));
    assert_eq!(held.advance(at(4901)), [LeaseEvent::Held]);
    let mut now = held.wake();
    let mut events = Vec::new();
    while held.stage() != LeaseEvent::Lost {
        if held.wants_to_extend(now) {
            held.health_checked(now, false);
        }
        assert!(held.due(now).is_empty());
        events.extend(held.advance(now));
        assert_eq!(held.cause(now), StepDownCause::Unhealthy);
        now = held.wake().max(now);
    }
    assert_eq!(events, [LeaseEvent::AtRisk, LeaseEvent::StepDown, LeaseEvent::Lost]);
    assert_eq!(now, at(4900 + 9698), "at the end of what was granted last");
}

/// Returns a lease like [`held`]. Its acquire asked only the nodes 0 to 2, so the nodes 3 and 4 are spared.
fn thrifty() -> LeaseState {
    let mut held = held();
    held.spare(at(1000), &[3, 4]);
    held
}

#[test]
fn a_lease_that_is_still_held_is_extended_to_the_nodes_that_were_spared() {
    let mut held = thrifty();
    assert_eq!(held.wake(), at(2000));
    assert!(held.due(at(1999)).is_empty());
    assert_eq!(held.unasked().collect::<Vec<_>>(), [3, 4]);
    assert_eq!(held.due(at(2000)), [3, 4]);
    assert_eq!(held.unasked().count(), 0, "from now on they may hold it");
    (3..5).for_each(|node| _ = held.count(at(2001), &extended(node, 2000)));
    assert_eq!(held.valid_until(), Some(at(1000 + 9698)), "it is no renewal");
    held.forget_unless(at(2100), |node, _| node != 1);
    assert_eq!(held.valid_until(), Some(at(1000 + 9698)), "and one of them may forget now");
}

#[test]
fn a_short_lease_is_spread_sooner() {
    let params = LeaseParams { ttl: Duration::from_millis(200), ..*held().params };
    let mut short = LeaseState { params: params.into(), ..held() };
    short.spare(at(1000), &[4]);
    assert_eq!(short.sends_at(), at(1020));
}

#[test]
fn the_spread_asks_no_health_check_and_ignores_a_limit_that_is_covered() {
    let mut held = thrifty();
    held.limit(Some(at(8000)));
    assert!(!held.wants_to_extend(at(2000)), "no health check is due");
    held.health_checked(at(1990), false);
    assert_eq!(held.due(at(2000)), [3, 4], "nor does a failed one prevent it");
    held.count(at(2010), &late(3, 2000));
    held.count(at(2010), &extended(4, 2000));
    assert!(!held.wants_to_extend(at(2490)), "a spread that failed is no renewal either");
    assert_eq!(held.due(at(2510)), [3], "and is repeated, although the grants last until the limit");
}

#[test]
fn a_failed_spread_is_left_to_the_first_round_of_extensions() {
    let mut held = thrifty();
    assert_eq!(held.due(at(2000)), [3, 4]);
    (3..5).for_each(|node| _ = held.count(at(2100), &late(node, 2000)));
    assert_eq!(held.wake(), at(2600));
    assert_eq!(held.due(at(2600)), [3, 4]);
    assert_eq!(held.due(at(4400)), [0, 1, 2], "two votes are pending");
    (3..5).for_each(|node| _ = held.count(at(4410), &late(node, 2600)));
    (0..3).for_each(|node| _ = held.count(at(4410), &extended(node, 4400)));
    assert!(held.due(at(6000)).is_empty(), "the round is won");
}

#[test]
fn a_bare_majority_ends_with_the_memory_of_one_node_and_the_work_is_told() {
    let mut held = thrifty();
    held.forget_unless(at(1020), |node, _| node != 2);
    assert_eq!(held.advance(at(1020)), [LeaseEvent::StepDown, LeaseEvent::Lost]);
    assert!(held.due(at(2000)).is_empty(), "nothing is spread any more");
    assert_eq!(held.unasked().collect::<Vec<_>>(), [3, 4]);
}

/// Regression: the bounds of the pause crossed one another, which panicked.
#[test]
fn a_node_that_did_not_extend_is_asked_again_after_a_while_under_all_accepted_timings() {
    for (ttl, timeout) in [(60, 5), (60, 1), (10_000, 100), (99, 9), (100, 200)] {
        let ms = Duration::from_millis;
        let params = LeaseParams { ttl: ms(ttl), ..*held().params };
        let config = QuorumConfig { node_timeout: ms(timeout), ..QuorumConfig::default() };
        let (owner, token) = (Owner::from_node("me"), FencingToken::new(7));
        let state = LeaseState::new(Resource::lock("x").unwrap(), owner, token, params, &config, 5, at(0));
        assert!(state.retry_every >= ms(10), "{:?}", state.retry_every);
        assert!(state.retry_every <= ms(10).max(ms(timeout)).max(ms(ttl / 10)), "{:?}", state.retry_every);
    }
}

fn held_by_another(node: usize, sent: u64) -> Vote {
    let remaining = Some(Duration::from_secs(3));
    vote(node, sent, Answer::Reply(Reply::Held { owner: Owner::from_node("b"), remaining }))
}

fn later_grants(node: usize, sent: u64, counter: u64) -> Vote {
    let counter = FencingToken::new(counter);
    vote(node, sent, Answer::Reply(Reply::Refused(Refusal::LaterGrants { counter })))
}

/// Regression: after a forced release, the holder ignored that all nodes named another owner.
#[test]
fn a_lease_that_too_few_nodes_still_store_ends_at_once() {
    for gone in [held_by_another, |node, sent| later_grants(node, sent, 9)] {
        let mut held = held();
        assert_eq!(held.due(at(4400)), [0, 1, 2, 3, 4]);
        (3..5).for_each(|node| _ = held.count(at(4401), &extended(node, 4400)));
        (0..2).for_each(|node| _ = held.count(at(4401), &gone(node, 4400)));
        assert_eq!(held.valid_until(), Some(at(1000 + 9698)), "three nodes store it");
        held.count(at(4402), &gone(2, 4400));
        assert_eq!(held.valid_until(), None);
        assert_eq!(held.advance(at(4402)), [LeaseEvent::StepDown, LeaseEvent::Lost]);
    }
}

#[test]
fn a_holder_vouches_for_later_grants_only_after_a_majority_has_extended_its_lease_since() {
    let mut held = thrifty();
    let token = FencingToken::new;
    assert_eq!(held.due(at(2000)), [3, 4]);
    held.count(at(2001), &extended(4, 2000));
    held.count(at(2001), &later_grants(3, 2000, 9));
    assert_eq!(held.token_for(3), token(7));
    assert_eq!(held.due(at(2001)), [0, 1, 2, 4], "a round of its own, at once");
    (0..2).for_each(|node| _ = held.count(at(2002), &extended(node, 2001)));
    assert_eq!((held.token_for(3), held.due(at(2002)).len()), (token(7), 0), "two are no majority");
    held.count(at(2003), &extended(2, 2001));
    assert_eq!((held.token_for(3), held.token_for(0)), (token(9), token(7)));
    assert_eq!(held.wake(), at(2003));
    assert_eq!(held.due(at(2003)), [3]);
    // Another attempt has been granted in the meantime. There is no second extra round.
    held.count(at(2004), &later_grants(3, 2003, 10));
    assert_eq!((held.token_for(3), held.due(at(2004)).len()), (token(7), 0));
    held.count(at(2005), &extended(4, 2001));
    let next = held.wake();
    assert!(next > at(4000), "{next:?}");
    assert_eq!(held.due(next), [0, 1, 2, 3, 4]);
    let sent = next.as_nanos() / 1_000_000 + 1;
    (0..3).for_each(|node| _ = held.count(at(sent), &extended(node, sent)));
    held.count(at(sent), &later_grants(3, sent, 10));
    assert_eq!((held.token_for(3), held.due(at(sent))), (token(10), vec![3]));
    held.count(at(sent + 1), &extended(3, sent));
    assert_eq!(held.token_for(3), token(7), "it stores the lease");
}

#[test]
fn the_outcomes_of_a_lease_keep_each_node_s_answer() {
    let mut held = held();
    held.due(at(4400));
    let full = Answer::Reply(Reply::Refused(Refusal::Failed("OOM".into())));
    held.count(at(4401), &vote(0, 4400, full));
    held.count(at(4401), &extended(1, 4400));
    let outcomes: Vec<String> = held.outcomes().map(|outcome| outcome.to_string()).collect();
    let pending = "had not answered yet";
    assert_eq!(outcomes, ["refused: the node failed: OOM", "agreed", pending, pending, pending]);
}

#[test]
fn a_vote_that_decides_nothing_says_so() {
    let mut held = held();
    assert_eq!(held.due(at(4400)).len(), 5);
    let decides: Vec<bool> = (0..5).map(|node| held.count(at(4401), &extended(node, 4400))).collect();
    assert_eq!(decides, [false, false, true, false, false], "the third one is a majority");
    assert_eq!(held.due(at(8000)).len(), 5);
    assert!(held.count(at(8001), &late(0, 8000)), "the node is asked again later");
    assert!(!held.count(at(8001), &extended(1, 8000)));
    assert!(
        held.count(at(8001), &extended(2, 4400)),
        "the node was not asked in this round, and is asked now"
    );
}
