//! Tests of the check itself: splitting, limits, and a second opinion by another checker.

use super::{
    testing::{accepted, during, open},
    *,
};
use proptest::prelude::*;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::{sync::Arc, time::Duration};

fn history<S: Specification>(operations: &[Operation<S::Call>]) -> History<S> {
    let mut history = History::default();
    let name: Arc<str> = "x".into();
    operations.iter().for_each(|operation| history.push(&name, operation.clone()));
    history
}

/// Returns a lock that is held `count` times, one holder after the other.
fn holders(count: u64) -> Vec<Operation<LockCall>> {
    let of = |token| {
        let at = token * 10;
        [
            during(at, at + 1, LockCall::Acquired { token }),
            during(at + 5, at + 6, LockCall::Released { token }),
        ]
    };
    (1..=count).flat_map(of).collect()
}

#[test]
fn a_long_history_is_split_where_nothing_is_open() {
    let mut operations = holders(1_000);
    let found = history::<Lock>(&operations).check(&Limits::default());
    assert_eq!((found.operations, found.objects, found.parts), (2_000, 1, 32));
    assert_eq!((found.largest, found.violations.len(), found.undecided.len()), (64, 0, 0));
    // A second holder in the middle: the state at the beginning of its part must be known.
    operations.push(during(5_003, 5_004, LockCall::Acquired { token: 5_000 }));
    let found = history::<Lock>(&operations).check(&Limits::default());
    assert_eq!(found.violations.len(), 1, "{found:?}");
    assert!(found.violations[0].starts_with("x: no order is right"), "{found:?}");
    assert!(found.violations[0].contains("token: 5000"), "{found:?}");
}

/// A store that has lost an update has no state that every order leads to, so its history is not split any more.
#[test]
fn a_violation_is_found_before_its_part_is_too_large() {
    let update = |at: u64, base| {
        let written = RegisterCall::Written { fence: (0, 0), base, value: at };
        during(at * 10, at * 10 + 1, written)
    };
    let mut operations: Vec<_> = (1..=1_000).map(|at| update(at, at - 1)).collect();
    let limits = Limits { operations: 500, ..Limits::default() };
    let found = history::<Register>(&operations).check(&limits);
    assert_eq!((found.parts, found.violations.len(), found.undecided.len()), (16, 0, 0), "{found:?}");
    operations[300] = update(301, 299);
    let found = history::<Register>(&operations).check(&limits);
    assert_eq!((found.violations.len(), found.undecided.len()), (1, 0), "{found:?}");
    assert!(found.largest <= 128, "{found:?}");
}

#[test]
fn a_lock_that_is_held_across_a_split_is_still_held() {
    let mut operations = holders(40);
    operations.remove(63);
    // The token 32 is not released, and the part ends there.
    assert_eq!(operations[62].call, LockCall::Acquired { token: 32 });
    assert!(!accepted::<Lock>(&operations));
    assert!(accepted::<Lock>(&operations[..63]));
}

#[test]
fn what_exceeds_the_limits_is_reported_and_not_judged() {
    let tight = Limits { operations: 50, ..Limits::default() };
    let found = history::<Lock>(&holders(30)).check(&tight);
    assert_eq!((found.undecided.len(), found.violations.len()), (1, 0));
    assert!(found.undecided[0].contains("60 operations"), "{found:?}");
    let wide: Vec<_> = (1..=30).map(|token| open(token, LockCall::Released { token })).collect();
    let found = history::<Lock>(&wide).check(&Limits::default());
    assert!(found.undecided[0].contains("30 of them open at once"), "{found:?}");
}

/// A register whose values all differ makes the search try very many orders.
#[test]
fn a_search_that_takes_too_long_is_undecided() {
    let write = |value| RegisterCall::WriteUnanswered { fence: (1, 0), base: value % 7, value };
    let mut operations: Vec<_> = (1..=23).map(|value| open(value, write(value * 31 % 24))).collect();
    operations.push(during(90, 91, RegisterCall::Read { fence: (1, 0), value: 999 }));
    let found = history::<Register>(&operations)
        .check(&Limits { time: Duration::from_millis(50), ..Limits::default() });
    assert_eq!((found.undecided.len(), found.violations.len()), (1, 0), "{found:?}");
}

#[test]
fn objects_are_judged_one_by_one() {
    let mut history = History::<Lock>::default();
    for name in ["a", "b", "c"] {
        history.push(&name.into(), during(1, 2, LockCall::Acquired { token: 7 }));
    }
    history.push(&"b".into(), during(3, 4, LockCall::Acquired { token: 8 }));
    let found = history.check(&Limits::default());
    assert_eq!((found.objects, found.operations, found.violations.len()), (3, 4, 1));
    assert!(found.violations[0].starts_with("b: "), "{found:?}");
}

/// A register for the other checker, which computes each result itself.
#[derive(Clone)]
struct Plain(RegisterState);

impl SequentialSpec for Plain {
    type Op = RegisterCall;
    type Ret = bool;

    /// Every call is accepted, or the step is not valid.
    fn invoke(&mut self, call: &RegisterCall) -> bool {
        match Register::apply(&self.0, call) {
            Some(next) => {
                self.0 = next;
                true
            }
            None => false,
        }
    }
}

/// The events of a history, in order: a process calls, or its call returns.
fn events() -> impl Strategy<Value = Vec<(u8, RegisterCall)>> {
    let fence = || (1_u64..3, Just(0_u64));
    let call = prop_oneof![
        (fence(), 0_u64..3).prop_map(|(fence, value)| RegisterCall::Read { fence, value }),
        (fence(), 0_u64..3, 0_u64..3).prop_map(|(fence, base, value)| RegisterCall::Written {
            fence,
            base,
            value
        }),
        fence().prop_map(|fence| RegisterCall::Refused { fence }),
    ];
    prop::collection::vec((0_u8..3, call), 1..14)
}

/// Gives the same history to both checkers: each event of a process is a call or, if one is open, its return. The last
/// event of a process is left out if it is a call.
fn both(events: &[(u8, RegisterCall)]) -> (bool, bool) {
    let mut other = LinearizabilityTester::new(Plain(Register::initial()));
    let mut calls: Vec<Option<(u64, RegisterCall)>> = vec![None; 3];
    let mut operations = Vec::new();
    for (at, (process, call)) in (0_u64..).zip(events) {
        let later = &events[usize::try_from(at).unwrap() + 1..];
        match calls[usize::from(*process)].take() {
            None if later.iter().any(|(later, _)| later == process) => {
                calls[usize::from(*process)] = Some((at, *call));
                other.on_invoke(*process, *call).unwrap();
            }
            None => {}
            Some((begin, call)) => {
                operations.push(during(begin, at, call));
                other.on_return(*process, true).unwrap();
            }
        }
    }
    (accepted::<Register>(&operations), other.is_consistent())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn another_checker_gives_the_same_verdict(events in events()) {
        let (ours, other) = both(&events);
        prop_assert_eq!(ours, other);
    }

    /// If an order is accepted, it ends in the state that `settled` returns.
    #[test]
    fn every_accepted_order_of_updates_ends_in_the_settled_state(calls in prop::collection::vec(call(), 1..6)) {
        let last = calls.iter().try_fold(Register::initial(), |state, call| Register::apply(&state, call));
        let settled = Register::settled(&Register::initial(), &calls.iter().collect::<Vec<_>>());
        if last.is_some() {
            prop_assert_eq!(settled, last);
        }
    }

    #[test]
    fn every_accepted_order_of_holders_ends_in_the_settled_state(calls in prop::collection::vec(lock_call(), 1..6)) {
        let last = calls.iter().try_fold(Lock::initial(), |state, call| Lock::apply(&state, call));
        let settled = Lock::settled(&Lock::initial(), &calls.iter().collect::<Vec<_>>());
        if last.is_some() {
            prop_assert_eq!(settled, last);
        }
    }
}

fn call() -> impl Strategy<Value = RegisterCall> {
    let fence = || (1_u64..4, Just(0_u64));
    prop_oneof![
        (fence(), 0_u64..2).prop_map(|(fence, value)| RegisterCall::Read { fence, value }),
        (fence(), 0_u64..3, 0_u64..3).prop_map(|(fence, base, value)| RegisterCall::Written {
            fence,
            base,
            value
        }),
        fence().prop_map(|fence| RegisterCall::Refused { fence }),
    ]
}

fn lock_call() -> impl Strategy<Value = LockCall> {
    prop_oneof![
        (1_u64..6).prop_map(|token| LockCall::Acquired { token }),
        (1_u64..6).prop_map(|token| LockCall::Released { token }),
        (1_u64..6).prop_map(|token| LockCall::Expired { token }),
    ]
}

#[test]
fn both_verdicts_occur_in_the_comparison() {
    let written = |token, base, value| RegisterCall::Written { fence: (token, 0), base, value };
    let right = [(0, written(1, 0, 1)), (1, written(1, 1, 2)), (0, written(1, 0, 1)), (1, written(1, 1, 2))];
    assert_eq!(both(&right), (true, true), "concurrent");
    let wrong = [(0, written(1, 0, 1)), (0, written(1, 0, 1)), (1, written(1, 0, 2)), (1, written(1, 0, 2))];
    assert_eq!(both(&wrong), (false, false), "a lost update");
}
