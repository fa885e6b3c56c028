//! What came of the runs: pure.
//!
//! *Lost* counts as Jepsen does: acknowledged, and not in the set at the end. What a paused worker's write leaves
//! out is more than that, since the write of a holder that had read the set just before brings some of it back,
//! and loses the paused worker's own addition.

use super::{
    Args, Mode,
    nemesis::{Pause, Point},
    store::Set,
};
use serde::Serialize;
use std::{collections::BTreeSet, fmt::Write};

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) mode: String,
    /// Additions that the store acknowledged and the worker said so.
    pub(crate) acknowledged: usize,
    /// Of these, how many are not in the set at the end.
    pub(crate) lost: usize,
    /// Writes that the store refused.
    pub(crate) refused: usize,
    /// Writes that were left because the look said no.
    pub(crate) skipped: usize,
    /// Pauses between the read and the look.
    pub(crate) before_look: Hits,
    /// Pauses between the look and the write.
    pub(crate) after_look: Hits,
}

/// Pauses of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Hits {
    pub(crate) pauses: usize,
    /// How many of these lost something.
    pub(crate) losing: usize,
    /// How many elements the writes after them left out.
    pub(crate) lost: usize,
}

impl Outcome {
    pub(crate) fn of(
        mode: Mode,
        acknowledged: &BTreeSet<u64>,
        set: &Set,
        skipped: usize,
        pauses: &[Pause],
    ) -> Self {
        let hits = |point| {
            let lost = pauses.iter().filter(|pause| pause.point == point).map(|p| set.lost_by(p.element));
            lost.fold(Hits::default(), |hits, lost| Hits {
                pauses: hits.pauses + 1,
                losing: hits.losing + usize::from(lost > 0),
                lost: hits.lost + lost,
            })
        };
        Self {
            mode: mode.to_string(),
            acknowledged: acknowledged.len(),
            lost: acknowledged.difference(set.elements()).count(),
            refused: set.refused(),
            skipped,
            before_look: hits(Point::BeforeLook),
            after_look: hits(Point::AfterLook),
        }
    }

    /// What is not as it must be.
    fn wrong(&self) -> Option<String> {
        let Hits { pauses: before, lost: lost_before, .. } = self.before_look;
        let Hits { pauses: after, lost: lost_after, .. } = self.after_look;
        let why = if self.acknowledged == 0 || before == 0 || after == 0 {
            "nothing was tried"
        } else {
            match self.mode.parse() {
                Ok(Mode::Naive) if lost_before == 0 || lost_after == 0 || self.lost == 0 => {
                    "a pause in the critical section lost nothing: the workload cannot find a fault"
                }
                Ok(Mode::Look) if lost_before > 0 => "a look after the pause let a write through",
                Ok(Mode::Look) if lost_after == 0 => "a pause after the look lost nothing",
                Ok(Mode::Fenced) if self.lost > 0 || lost_before + lost_after > 0 => {
                    "acknowledged additions were lost in spite of the fencing token"
                }
                Ok(Mode::Fenced) if self.refused == 0 => "the fence had nothing to refuse",
                Err(_) => "no such mode",
                Ok(_) => return None,
            }
        };
        Some(format!("{}: {why}", self.mode))
    }
}

/// What is not as it must be, over all runs.
pub(crate) fn wrong(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().filter_map(Outcome::wrong).collect()
}

/// One JSON object.
pub(crate) fn json(args: &Args, outcomes: &[Outcome]) -> String {
    serde_json::json!({
        "ttl_ms": args.ttl.as_millis(),
        "pause_every_ms": args.pause_every.as_millis(),
        "for_ms": args.time.as_millis(),
        "runs": outcomes,
    })
    .to_string()
}

/// For people.
pub(crate) fn table(args: &Args, outcomes: &[Outcome]) -> String {
    let Args { ttl, pause_every, time, .. } = args;
    let mut text = format!(
        "Jepsen's lock workload: 5 processes a run, 5 Redis servers, a lease of {ttl:?}, pauses every \
         {pause_every:?}, for {time:?}\n\n\
         run      acknowledged    lost  refused  skipped   pauses before the look: lost   after it: lost\n"
    );
    for o in outcomes {
        let (b, a) = (o.before_look, o.after_look);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:7} {:13} {:7} {:8} {:8} {:>24}: {:>4} {:>10}: {:>4}",
            o.mode, o.acknowledged, o.lost, o.refused, o.skipped, b.pauses, b.lost, a.pauses, a.lost
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(mode: Mode, lost_before: usize, lost_after: usize) -> Outcome {
        let hits = |lost| Hits { pauses: 2, losing: usize::from(lost > 0), lost };
        Outcome {
            mode: mode.to_string(),
            acknowledged: 100,
            lost: lost_before + lost_after,
            refused: if mode == Mode::Fenced { 4 } else { 0 },
            skipped: 0,
            before_look: hits(lost_before),
            after_look: hits(lost_after),
        }
    }

    #[test]
    fn what_must_be_lost_is_lost_and_nothing_else() {
        let good = [outcome(Mode::Naive, 5, 5), outcome(Mode::Look, 0, 5), outcome(Mode::Fenced, 0, 0)];
        assert_eq!(wrong(&good), Vec::<String>::new());
        let bad = [
            outcome(Mode::Naive, 0, 5),
            outcome(Mode::Naive, 5, 0),
            outcome(Mode::Look, 1, 5),
            outcome(Mode::Look, 0, 0),
            outcome(Mode::Fenced, 0, 1),
            Outcome { lost: 1, ..outcome(Mode::Fenced, 0, 0) },
            Outcome { refused: 0, ..outcome(Mode::Fenced, 0, 0) },
            Outcome { acknowledged: 0, ..outcome(Mode::Fenced, 0, 0) },
        ];
        assert_eq!(wrong(&bad).len(), bad.len(), "{:?}", wrong(&bad));
    }

    #[test]
    fn losses_are_told_from_what_was_acknowledged_and_from_each_pause() {
        let mut set = Set::new(false);
        assert!(set.write(1, 1, BTreeSet::from([1])));
        assert!(set.write(2, 2, BTreeSet::from([1, 2])));
        assert!(set.write(1, 3, BTreeSet::from([3])), "by one that read nothing");
        let pauses = [Pause { point: Point::BeforeLook, element: 3 }];
        let outcome = Outcome::of(Mode::Naive, &BTreeSet::from([1, 2, 3]), &set, 0, &pauses);
        assert_eq!(outcome.lost, 2);
        assert_eq!(outcome.before_look, Hits { pauses: 1, losing: 1, lost: 2 });
        assert_eq!(outcome.after_look, Hits::default());
    }
}
