//! The failed runs of a job in a row, after which the leader pauses the job. All functions are pure.

use crate::{
    env::WallTime,
    node::engine::cut,
    scheduler::{
        job::{RunCause, RunOutcome},
        store::{HistoryEntry, JobRow, health::FailedRuns},
    },
};
/// The largest number of bytes of the last reason that the row keeps.
const WHY_MAX: usize = 200;

impl JobRow {
    /// Counts the end of a run. Returns whether the row has changed.
    pub(in crate::scheduler) fn count_end(&mut self, end: &HistoryEntry) -> bool {
        if matches!(end.cause, RunCause::Backfilled { .. }) {
            return false;
        }
        match end.end {
            RunOutcome::Done => {
                let Some(failed) = self.failed.as_mut().filter(|failed| failed.count > 0) else {
                    return false;
                };
                *failed = FailedRuns { last: failed.last.max(end.tick), ..FailedRuns::default() };
            }
            RunOutcome::Failed | RunOutcome::TimedOut | RunOutcome::Lost => {
                let failed = self.failed.get_or_insert_default();
                failed.count = failed.count.saturating_add(1);
                failed.last = failed.last.max(end.tick);
                let why = if end.reason.is_empty() { end.end.as_str() } else { &end.reason };
                failed.why = cut(why, WHY_MAX).into();
            }
            // These ends say nothing about whether the job works.
            _ => return false,
        }
        true
    }

    /// Counts an end that the ledger has, unless the row includes it.
    pub(in crate::scheduler) fn count_recorded(&mut self, end: &HistoryEntry) -> bool {
        let is_new = self.failed.as_ref().is_none_or(|failed| end.tick > failed.last);
        is_new && self.count_end(end)
    }

    /// Begins the count again, because the job is resumed at `now`.
    pub(in crate::scheduler) fn forget_failures(&mut self, now: WallTime) {
        if let Some(failed) = &mut self.failed {
            *failed = FailedRuns { last: failed.last.max(now), ..FailedRuns::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::FencingToken,
        scheduler::{job::RequestId, store::snapshot::tests::at},
    };

    fn end(tick: u64, end: RunOutcome, cause: RunCause) -> HistoryEntry {
        let entry = HistoryEntry::new(&"j".into(), at(tick), cause, end, &"w".into(), FencingToken::new(1));
        HistoryEntry { reason: format!("why {tick}").into(), ..entry }
    }

    fn count(row: &JobRow) -> u32 {
        row.failed.as_ref().map_or(0, |failed| failed.count)
    }

    #[test]
    fn failures_in_a_row_count_until_a_success_or_a_resumption() {
        use RunOutcome::{Cancelled, Done, Failed, Lost, TimedOut};
        let mut row = JobRow::default();
        let scheduled = |tick, outcome| end(tick, outcome, RunCause::Scheduled);
        assert!(!row.count_end(&scheduled(1, Done)) && row.failed.is_none(), "nothing to write");
        for (tick, outcome, counted) in [(2, Failed, 1), (3, TimedOut, 2), (4, Cancelled, 2), (5, Lost, 3)] {
            row.count_end(&scheduled(tick, outcome));
            assert_eq!(count(&row), counted, "{tick}");
        }
        assert_eq!(&*row.failed.clone().unwrap().why, "why 5");
        let id = RequestId::from_u128(7);
        assert!(!row.count_end(&end(6, Failed, RunCause::Backfilled { id })), "it is for a time in the past");
        assert!(row.count_end(&scheduled(7, Done)) && count(&row) == 0);
        assert!(!row.count_end(&scheduled(8, Done)), "nothing to write");
    }

    #[test]
    fn a_new_leader_counts_only_what_the_row_does_not_include() {
        let failed = |tick| end(tick, RunOutcome::Failed, RunCause::Scheduled);
        let mut row = JobRow::default();
        row.count_end(&failed(2));
        row.count_end(&failed(3));
        for tick in [2, 3, 4] {
            row.count_recorded(&failed(tick));
        }
        assert_eq!(count(&row), 3);
        row.forget_failures(at(9));
        for tick in [2, 3, 4, 9] {
            assert!(!row.count_recorded(&failed(tick)), "{tick} is of before the resumption");
        }
        assert!(row.count_recorded(&failed(10)) && count(&row) == 1);
    }
}
