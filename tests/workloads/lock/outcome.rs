//! Computes the outcome of a mode, as a pure function.
//!
//! *Lost* counts elements as Jepsen does: additions that were acknowledged but are not in the set at the end.
//!
//! The late write of a paused worker may leave out more elements than are lost in this sense. If another
//! holder read the set just before the late write, the next write of that holder restores these elements. It
//! leaves out the addition of the paused worker instead.

use super::Mode;
use crate::{
    harness::{Point, Set},
    histories,
};
use quorate_testkit::history::Findings;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// A pause, and the element that the paused worker was adding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// [`Point::Read`] for a pause before the check of the lease, or [`Point::Checked`] for a pause after it.
    pub(super) point: Point,
    pub(super) element: u64,
}

/// The outcome of one mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Outcome {
    mode: Mode,
    /// The number of additions that the store acknowledged, according to the workers' journals.
    acknowledged: usize,
    /// The number of acknowledged additions that are not in the set at the end.
    lost: usize,
    /// The number of writes that the store refused.
    refused: usize,
    /// The number of writes that a worker left out because the check of its lease failed.
    skipped: usize,
    /// The pauses between the read and the check.
    before_check: Pauses,
    /// The pauses between the check and the write.
    after_check: Pauses,
    /// The verdict of the linearizability checker about the calls to the store.
    linearizability: Value,
    /// The first reason why the calls are not linearizable. Empty if they are.
    not_linearizable: Option<String>,
    undecided: usize,
}

/// The pauses of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Pauses {
    pauses: usize,
    /// The number of these pauses that lost elements.
    losing: usize,
    /// The number of elements that the writes after these pauses left out.
    lost: usize,
}

impl Outcome {
    pub(super) fn of(
        mode: Mode,
        acknowledged: &BTreeSet<u64>,
        set: &Set,
        skipped: usize,
        made: &[Pause],
        found: &Findings,
    ) -> Self {
        let pauses = |point| {
            let lost = made.iter().filter(|pause| pause.point == point).map(|p| set.lost_by(p.element));
            lost.fold(Pauses::default(), |all, lost| Pauses {
                pauses: all.pauses + 1,
                losing: all.losing + usize::from(lost > 0),
                lost: all.lost + lost,
            })
        };
        Self {
            mode,
            acknowledged: acknowledged.len(),
            lost: acknowledged.difference(set.elements()).count(),
            refused: set.refused(),
            skipped,
            before_check: pauses(Point::Read),
            after_check: pauses(Point::Checked),
            linearizability: histories::figures(found),
            not_linearizable: found.violations.first().cloned(),
            undecided: found.undecided.len(),
        }
    }

    /// Returns a violation if the outcome is not the one that the mode must have.
    pub(super) fn violation(&self) -> Option<String> {
        let Pauses { pauses: before, lost: lost_before, .. } = self.before_check;
        let Pauses { pauses: after, lost: lost_after, .. } = self.after_check;
        let why = if self.acknowledged == 0 || before == 0 || after == 0 {
            "nothing was tested"
        } else {
            match self.mode {
                Mode::Naive if lost_before == 0 || lost_after == 0 || self.lost == 0 => {
                    "a pause in the critical section lost nothing: the workload cannot find a fault"
                }
                Mode::Check if lost_before > 0 => "a check after the pause let a write through",
                Mode::Check if lost_after == 0 => "a pause after the check lost nothing",
                Mode::Fenced if self.lost > 0 || lost_before + lost_after > 0 => {
                    "acknowledged additions were lost in spite of the fencing token"
                }
                Mode::Fenced if self.refused == 0 => "the fence had nothing to refuse",
                _ if self.undecided > 0 => "the history is too large for the linearizability checker",
                Mode::Fenced => match &self.not_linearizable {
                    Some(why) => why,
                    None => return None,
                },
                _ if self.not_linearizable.is_none() => {
                    "updates were lost, and the linearizability checker accepts the history"
                }
                _ => return None,
            }
        };
        Some(format!("lock: {:?}: {why}", self.mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(mode: Mode, lost_before: usize, lost_after: usize) -> Outcome {
        let pauses = |lost| Pauses { pauses: 2, losing: usize::from(lost > 0), lost };
        Outcome {
            mode,
            acknowledged: 100,
            lost: lost_before + lost_after,
            refused: if mode == Mode::Fenced { 4 } else { 0 },
            skipped: 0,
            before_check: pauses(lost_before),
            after_check: pauses(lost_after),
            linearizability: Value::Null,
            not_linearizable: (lost_before + lost_after > 0).then(|| "a lost update".to_owned()),
            undecided: 0,
        }
    }

    #[test]
    fn each_mode_must_lose_what_it_cannot_guard_and_nothing_else() {
        for good in [outcome(Mode::Naive, 5, 5), outcome(Mode::Check, 0, 5), outcome(Mode::Fenced, 0, 0)] {
            assert_eq!(good.violation(), None);
        }
        for bad in [
            outcome(Mode::Naive, 0, 5),
            outcome(Mode::Naive, 5, 0),
            outcome(Mode::Check, 1, 5),
            outcome(Mode::Check, 0, 0),
            outcome(Mode::Fenced, 0, 1),
            Outcome { lost: 1, ..outcome(Mode::Fenced, 0, 0) },
            Outcome { not_linearizable: Some(String::new()), ..outcome(Mode::Fenced, 0, 0) },
            Outcome { not_linearizable: None, ..outcome(Mode::Naive, 5, 5) },
            Outcome { undecided: 1, ..outcome(Mode::Fenced, 0, 0) },
            Outcome { refused: 0, ..outcome(Mode::Fenced, 0, 0) },
            Outcome { acknowledged: 0, ..outcome(Mode::Fenced, 0, 0) },
        ] {
            assert!(bad.violation().is_some(), "{bad:?}");
        }
    }

    #[test]
    fn losses_are_counted_by_acknowledgement_and_by_pause() {
        let mut set = Set::new(false);
        assert!(set.write(1, 1, BTreeSet::from([1])));
        assert!(set.write(2, 2, BTreeSet::from([1, 2])));
        assert!(set.write(1, 3, BTreeSet::from([3])), "by a worker that read nothing");
        let pauses = [Pause { point: Point::Read, element: 3 }];
        let outcome =
            Outcome::of(Mode::Naive, &BTreeSet::from([1, 2, 3]), &set, 0, &pauses, &Findings::default());
        assert_eq!(outcome.lost, 2);
        assert_eq!(outcome.before_check, Pauses { pauses: 1, losing: 1, lost: 2 });
        assert_eq!(outcome.after_check, Pauses::default());
    }
}
