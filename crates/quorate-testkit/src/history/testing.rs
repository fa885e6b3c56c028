//! Helpers for hand-written histories.

use super::{History, Limits, Moment, Operation, Specification};
use std::sync::Arc;

/// Returns an operation of one of many processes, from `begin` to `end`.
pub(super) fn during<C>(begin: u64, end: u64, call: C) -> Operation<C> {
    Operation::during(&"p".into(), call, Moment::from_nanos(begin), Moment::from_nanos(end))
}

/// Returns an operation of unknown result.
pub(super) fn open<C>(begin: u64, call: C) -> Operation<C> {
    Operation::open(&"p".into(), call, Moment::from_nanos(begin))
}

/// Returns whether the history of one object is linearizable.
pub(super) fn accepted<S: Specification>(operations: &[Operation<S::Call>]) -> bool {
    let mut history = History::<S>::default();
    let name: Arc<str> = "x".into();
    operations.iter().for_each(|operation| history.push(&name, operation.clone()));
    let findings = history.check(&Limits::default());
    assert!(findings.undecided.is_empty(), "{findings:?}");
    findings.violations.is_empty()
}
