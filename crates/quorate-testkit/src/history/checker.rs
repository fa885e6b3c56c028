//! The only file that calls the linearizability checker.

use super::{Operation, Specification};
use porcupine_rs::{CheckResult, Model, check_operations, check_operations_info, check_operations_timeout};
use std::{marker::PhantomData, time::Duration};

/// The verdict about one part of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Some order of the operations is accepted.
    Linearizable,
    /// No order is accepted. The text says how far the longest accepted order goes.
    Violation(String),
    /// The search did not end in time.
    Undecided,
}

/// A [`Specification`] as a model of the checker.
#[derive(Clone, Debug)]
struct Judged<S>(PhantomData<S>);

/// A call, or the state with which a part of a history begins. The checker's own first state cannot be passed to it,
/// so it is the first operation.
#[derive(Clone, Debug)]
enum Step<S: Specification> {
    Begin(S::State),
    Call(S::Call),
}

impl<S: Specification> Model for Judged<S> {
    type State = Option<S::State>;
    type Op = Step<S>;
    type Metadata = ();

    fn init() -> Option<S::State> {
        None
    }

    fn step(state: &Option<S::State>, step: &Step<S>) -> (bool, Option<S::State>) {
        let next = match (state, step) {
            (None, Step::Begin(first)) => Some(first.clone()),
            (Some(state), Step::Call(call)) => S::apply(state, call),
            _ => None,
        };
        (next.is_some(), next)
    }
}

/// Searches an order of `operations` that the specification accepts from `first` on. `limit` bounds the time of the
/// search, which is then made on a thread of its own.
pub(super) fn search<S: Specification>(
    first: &S::State,
    operations: &[&Operation<S::Call>],
    limit: Option<Duration>,
) -> Verdict {
    let begin = Step::<S>::Begin(first.clone());
    let begin = porcupine_rs::Operation {
        client_id: None,
        call_time: -2,
        return_time: -1,
        op: begin,
        metadata: None,
    };
    let calls = operations.iter().map(|operation| porcupine_rs::Operation {
        client_id: None,
        call_time: operation.begin.as_time(),
        return_time: operation.end.map_or(i64::MAX, super::Moment::as_time),
        op: Step::Call(operation.call.clone()),
        metadata: None,
    });
    let history: Vec<porcupine_rs::Operation<Judged<S>>> = std::iter::once(begin).chain(calls).collect();
    let result = match limit {
        Some(limit) => check_operations_timeout(&history, limit),
        None if check_operations(&history) => CheckResult::Ok,
        None => CheckResult::Illegal,
    };
    match result {
        CheckResult::Ok => Verdict::Linearizable,
        CheckResult::Unknown => Verdict::Undecided,
        CheckResult::Illegal => Verdict::Violation(explain::<S>(first, operations, &history)),
    }
}

/// Describes the longest order that is accepted, the state after it, and the operations of which none can be next.
/// The search is made again to learn this order.
fn explain<S: Specification>(
    first: &S::State,
    operations: &[&Operation<S::Call>],
    history: &[porcupine_rs::Operation<Judged<S>>],
) -> String {
    let (_, info) = check_operations_info(history);
    let longest = info.partial_linearizations.into_iter().flatten().max_by_key(Vec::len).unwrap_or_default();
    let mut state = first.clone();
    // The operation 0 of the checker's history is the beginning.
    let ordered: Vec<usize> = longest.into_iter().filter_map(|at| at.checked_sub(1)).collect();
    for at in &ordered {
        state = S::apply(&state, &operations[*at].call).unwrap_or(state);
    }
    let left =
        || operations.iter().enumerate().filter(|(at, _)| !ordered.contains(at)).map(|(_, left)| *left);
    let first_end = left().filter_map(|operation| operation.end).min();
    let mut next: Vec<&Operation<S::Call>> =
        left().filter(|operation| first_end.is_none_or(|end| operation.begin <= end)).collect();
    next.sort_by_key(|operation| (operation.end.is_none(), operation.end));
    let shown: Vec<String> = next.iter().take(SHOWN).map(ToString::to_string).collect();
    format!(
        "no order is right: after {} of {} operations the state is {state:?}, and none of {} can be next: {}",
        ordered.len(),
        operations.len(),
        next.len(),
        shown.join("; ")
    )
}

/// The number of operations that a violation shows.
const SHOWN: usize = 4;
