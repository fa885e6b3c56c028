//! The changes of a job's condition: failures, recoveries, and overdue jobs. All functions are pure.

use crate::{
    env::WallTime,
    scheduler::{
        alert::{AlertKind, JobAlert},
        job::{RunCause, RunOutcome},
        store::{HistoryEntry, JobRow},
    },
};
use std::sync::Arc;

impl JobRow {
    /// Returns the time at which the job becomes overdue if it does not succeed before. Returns `None` if it is
    /// paused, or has no `expect_within`.
    pub(in crate::scheduler) fn deadline(&self) -> Option<WallTime> {
        let within = self.expect_within.filter(|_| self.paused.is_none())?;
        let from = self.since.max(self.expected_from.unwrap_or_default());
        Some(from.max(self.succeeded.unwrap_or_default()) + within)
    }

    pub(in crate::scheduler) fn overdue_since(&self, now: WallTime) -> Option<WallTime> {
        self.deadline().filter(|deadline| *deadline <= now)
    }

    /// Notes an end of a tick, `at`. If `alerts` is true, the change of the condition is added to the alerts.
    /// Returns whether the row has changed.
    pub(in crate::scheduler) fn note_end(&mut self, end: &HistoryEntry, at: WallTime, alerts: bool) -> bool {
        match end.end {
            // A run of a back-fill is for a time in the past.
            _ if matches!(end.cause, RunCause::Backfilled { .. }) => false,
            RunOutcome::Done => self.note_success(end, at, alerts),
            RunOutcome::Failed | RunOutcome::TimedOut | RunOutcome::Lost => self.note_failure(end, alerts),
            // These ends say nothing about whether the job works.
            _ => false,
        }
    }

    fn note_success(&mut self, end: &HistoryEntry, at: WallTime, alerts: bool) -> bool {
        let later = self.note_time_of_success(at);
        let Some(health) = &mut self.health else { return later };
        let failed = health.failing.take().is_some();
        let overdue = health.overdue.take().is_some();
        if !failed && !overdue {
            return later;
        }
        health.changed = health.changed.max(end.tick);
        if alerts {
            health.push(&end.job, AlertKind::Recovered, end.tick, &end.reason);
        }
        true
    }

    /// Notes only the time of a success. Returns whether the row has changed.
    pub(in crate::scheduler) fn note_time_of_success(&mut self, at: WallTime) -> bool {
        let later = self.expect_within.is_some() && self.succeeded.is_none_or(|before| before < at);
        if later {
            self.succeeded = Some(at);
        }
        later
    }

    fn note_failure(&mut self, end: &HistoryEntry, alerts: bool) -> bool {
        if self.health.is_none() && !alerts {
            return false;
        }
        let health = self.health.get_or_insert_default();
        if health.failing.is_some() {
            return false;
        }
        health.failing = Some(end.tick);
        health.changed = health.changed.max(end.tick);
        if alerts {
            let what = if end.reason.is_empty() { end.end.as_str() } else { &end.reason };
            health.push(&end.job, AlertKind::Failed, end.tick, what);
        }
        true
    }

    /// Adds an alert if the job called `name` is overdue at `now` and no alert says so yet. Returns whether the
    /// row has changed.
    pub(in crate::scheduler) fn note_overdue(&mut self, name: &Arc<str>, now: WallTime) -> bool {
        let Some(since) = self.overdue_since(now) else { return false };
        if self.health.as_ref().is_some_and(|health| health.overdue == Some(since)) {
            return false;
        }
        let within = self.expect_within.unwrap_or_default();
        let last = self
            .succeeded
            .map_or("it has not succeeded yet".to_owned(), |at| format!("its last success was at {at}"));
        let health = self.health.get_or_insert_default();
        health.overdue = Some(since);
        // A success of an earlier tick is no recovery.
        health.changed = health.changed.max(since);
        health.push(
            name,
            AlertKind::Overdue,
            since,
            &format!("{last}; a success is expected within {within:?}"),
        );
        true
    }

    /// Removes an alert that was reported. Returns whether the row has changed.
    pub(in crate::scheduler) fn alert_reported(&mut self, alert: &JobAlert) -> bool {
        let Some(health) = &mut self.health else { return false };
        let before = health.alerts.len();
        health.alerts.retain(|waiting| waiting != alert);
        health.alerts.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::FencingToken,
        scheduler::{
            job::RequestId,
            store::{Paused, health::ALERTS_MAX},
        },
    };
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minutes: u32) -> WallTime {
        WallTime::default() + MINUTE * minutes
    }

    fn end(tick: u32, end: RunOutcome) -> HistoryEntry {
        let (job, worker) = ("j".into(), "w".into());
        let entry =
            HistoryEntry::new(&job, at(tick), RunCause::Scheduled, end, &worker, FencingToken::new(1));
        HistoryEntry { reason: "exit status 1".into(), ..entry }
    }

    fn kinds(row: &JobRow) -> Vec<(AlertKind, WallTime)> {
        let alerts = row.health.iter().flat_map(|health| &health.alerts);
        alerts.map(|alert| (alert.kind, alert.at)).collect()
    }

    fn expected(since: u32, within: u32) -> JobRow {
        JobRow { since: at(since), expect_within: Some(MINUTE * within), ..JobRow::default() }
    }

    #[test]
    fn one_alert_for_the_first_failure_and_one_for_the_success_after_it() {
        use RunOutcome::{Cancelled, Done, Failed, Lost, SkippedOverlap, TimedOut};
        let mut row = JobRow::default();
        for (tick, outcome, changes) in [
            (1, Done, false),
            (2, Failed, true),
            (3, TimedOut, false),
            (4, Cancelled, false),
            (5, Lost, false),
            (6, SkippedOverlap, false),
            (7, Done, true),
            (8, Done, false),
            (9, Lost, true),
        ] {
            assert_eq!(row.note_end(&end(tick, outcome), at(tick), true), changes, "tick {tick}");
        }
        let told = [(AlertKind::Failed, at(2)), (AlertKind::Recovered, at(7)), (AlertKind::Failed, at(9))];
        assert_eq!(kinds(&row), told);
        assert_eq!(row.health.as_ref().unwrap().failing, Some(at(9)));
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row, "the next leader reads the same");
        let first = row.health.as_ref().unwrap().alerts[0].clone();
        assert!(row.alert_reported(&first) && !row.alert_reported(&first));
        assert_eq!(kinds(&row), told[1..]);
    }

    #[test]
    fn without_a_function_for_alerts_nothing_is_stored() {
        let mut row = JobRow::default();
        assert!(!row.note_end(&end(1, RunOutcome::Failed), at(1), false) && row == JobRow::default());
        // Another worker, with such a function, was the leader before. Its condition is kept up to date.
        row.note_end(&end(2, RunOutcome::Failed), at(2), true);
        assert!(row.note_end(&end(3, RunOutcome::Done), at(3), false));
        assert_eq!((row.health.as_ref().unwrap().failing, kinds(&row).len()), (None, 1));
    }

    #[test]
    fn runs_of_a_back_fill_do_not_count() {
        let cause = RunCause::Backfilled { id: RequestId::from_u128(1) };
        let mut row = expected(0, 5);
        for outcome in [RunOutcome::Failed, RunOutcome::Done] {
            assert!(!row.note_end(&HistoryEntry { cause, ..end(1, outcome) }, at(9), true));
        }
        assert_eq!(row.deadline(), Some(at(5)));
    }

    #[test]
    fn the_time_counts_from_the_last_of_registration_expectation_resume_and_success() {
        let mut row = expected(10, 60);
        assert_eq!((row.overdue_since(at(69)), row.overdue_since(at(70))), (None, Some(at(70))));
        row.expected_from = Some(at(20));
        assert_eq!(row.deadline(), Some(at(80)), "an old job that gets an expectation");
        assert!(row.note_end(&end(30, RunOutcome::Done), at(31), false));
        assert_eq!(row.deadline(), Some(at(91)), "from the end of the run");
        assert!(!row.note_end(&end(5, RunOutcome::Done), at(6), false), "an older end is no news");
        row.since = at(50);
        assert_eq!(row.deadline(), Some(at(110)), "resumed, or another schedule");
        row.paused = Some(Paused::default());
        assert_eq!(row.overdue_since(at(9_999)), None, "a paused job is not overdue");
        assert_eq!(JobRow { expect_within: None, ..row }.deadline(), None);
        let never = JobRow { since: WallTime::from_micros(u64::MAX), ..expected(0, 1) };
        assert_eq!(never.overdue_since(at(1)), None, "no overflow");
    }

    #[test]
    fn overdue_is_reported_once_and_ends_with_a_success() {
        let (mut row, name) = (expected(0, 10), "j".into());
        assert!(!row.note_overdue(&name, at(9)));
        assert!(row.note_overdue(&name, at(10)) && !row.note_overdue(&name, at(11)));
        assert!(!row.note_end(&end(3, RunOutcome::Cancelled), at(12), true));
        assert!(row.note_end(&end(13, RunOutcome::Done), at(14), true));
        assert_eq!(kinds(&row), [(AlertKind::Overdue, at(10)), (AlertKind::Recovered, at(13))]);
        assert!(
            !row.note_overdue(&name, at(23)) && row.note_overdue(&name, at(24)),
            "again, after another success"
        );
        let text = &row.health.as_ref().unwrap().alerts[0].reason;
        assert_eq!(&**text, "it has not succeeded yet; a success is expected within 600s");
    }

    #[test]
    fn the_number_of_unreported_alerts_is_limited() {
        let mut row = JobRow::default();
        for tick in 0..20 {
            let outcome = if tick % 2 == 0 { RunOutcome::Failed } else { RunOutcome::Done };
            row.note_end(&end(tick, outcome), at(tick), true);
        }
        let kept = kinds(&row);
        assert_eq!((kept.len(), kept[0].1, kept[7].1), (ALERTS_MAX, at(12), at(19)), "the newest ones");
    }
}
