//! The log events of ended runs and skipped ticks. There is one event for each end. An event that repeats an
//! earlier one is logged at a lower level.

use crate::scheduler::{
    job::{Job, RunCause, RunOutcome},
    policy::Overlap,
    store::HistoryEntry,
};
use tracing::Level;

/// The log messages so far about the ends of one job in this term. If many ticks in a row are skipped, the first is
/// logged at its normal level, and the others at DEBUG.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct LoggedEnds {
    /// The outcome that was logged last for a skipped tick, or for a run that the overlap rule cancelled.
    last: Option<RunOutcome>,
    /// The number of runs with another outcome that have ended since `last`.
    runs_since: u32,
}

impl LoggedEnds {
    /// Returns the level at which an end is logged.
    ///
    /// A run that is done is logged at INFO. A run with another end is logged at WARN, or at INFO if the
    /// overlap rule cancelled the run. A skipped tick is logged at INFO, or at WARN if it is a misfire.
    ///
    /// A skipped tick, or a run that the overlap rule cancelled, is logged at DEBUG if it repeats the previous
    /// such outcome. A misfire repeats the previous misfire if no run has ended in between. Any other such
    /// outcome repeats the previous one if at most one run has ended in between. So if runs and skipped ticks
    /// alternate, only the first skipped tick is logged at INFO.
    pub(in crate::scheduler) fn level(&mut self, end: RunOutcome, overlap: Overlap) -> Level {
        let level = match end {
            RunOutcome::SkippedMisfire => Level::WARN,
            RunOutcome::SkippedOverlap | RunOutcome::SkippedPaused | RunOutcome::SkippedFrozen => Level::INFO,
            RunOutcome::Cancelled if overlap == Overlap::CancelOld => Level::INFO,
            RunOutcome::Done
            | RunOutcome::Failed
            | RunOutcome::TimedOut
            | RunOutcome::Cancelled
            | RunOutcome::Lost => {
                self.runs_since = self.runs_since.saturating_add(1);
                return if end == RunOutcome::Done { Level::INFO } else { Level::WARN };
            }
        };
        let runs_between = if end == RunOutcome::SkippedMisfire { 0 } else { 1 };
        let repeated = self.last == Some(end) && self.runs_since <= runs_between;
        (self.last, self.runs_since) = (Some(end), 0);
        if repeated { Level::DEBUG } else { level }
    }
}

/// Logs one event for the end of a run, or for a tick without a run. The message has the outcome and the
/// reason.
pub(in crate::scheduler) fn log_end(level: Level, job: &Job, history: &HistoryEntry) {
    let HistoryEntry { worker, reason, cause, .. } = history;
    let (name, outcome, term) = (&*job.name, history.end.as_str(), history.term.get());
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    macro_rules! event {
        ($level:ident) => {
            tracing::$level!(
                target: "quorate::scheduler::tick",
                job = name,
                tick = %job.schedule.format(history.tick),
                until = history.until.map(|until| tracing::field::display(job.schedule.format(until))),
                outcome,
                cause = (*cause != RunCause::Scheduled).then(|| tracing::field::display(cause)),
                worker = &**worker,
                term,
                took = history.took.map(|took| tracing::field::display(format!("{took:.1?}"))),
                attempts = (history.attempts > 1).then_some(history.attempts),
                error = history.attempt_error.as_deref(),
                "{outcome}{why}"
            )
        };
    }
    match level {
        Level::DEBUG => event!(debug),
        Level::INFO => event!(info),
        _ => event!(warn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{env::WallTime, node::FencingToken};
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };
    use tracing::subscriber::with_default;

    #[test]
    fn a_tick_that_the_overlap_rule_skips_is_logged_once_until_runs_follow_without_a_skip() {
        use RunOutcome::{Done, Failed, SkippedOverlap};
        let mut logged = LoggedEnds::default();
        let mut level = |end| logged.level(end, Overlap::Skip);
        assert_eq!(level(SkippedOverlap), Level::INFO);
        assert_eq!([level(SkippedOverlap), level(SkippedOverlap)], [Level::DEBUG; 2]);
        assert_eq!([level(Done), level(SkippedOverlap)], [Level::INFO, Level::DEBUG], "they alternate");
        assert_eq!([level(Failed), level(SkippedOverlap)], [Level::WARN, Level::DEBUG]);
        assert_eq!([level(Done), level(Done), level(SkippedOverlap)], [Level::INFO; 3], "it begins again");
    }

    #[test]
    fn every_failed_or_lost_run_is_a_warning_and_a_misfire_one_until_a_run_ends() {
        use RunOutcome::{Cancelled, Done, Failed, Lost, SkippedMisfire, TimedOut};
        let mut logged = LoggedEnds::default();
        let mut level = |end| logged.level(end, Overlap::Queue);
        for end in [Failed, Failed, TimedOut, TimedOut, Lost, Lost, Cancelled, Cancelled, SkippedMisfire] {
            assert_eq!(level(end), Level::WARN, "{end}");
        }
        assert_eq!(level(SkippedMisfire), Level::DEBUG);
        assert_eq!([level(Done), level(SkippedMisfire)], [Level::INFO, Level::WARN]);
        let replaced = |logged: &mut LoggedEnds| logged.level(Cancelled, Overlap::CancelOld);
        assert_eq!([replaced(&mut logged), replaced(&mut logged)], [Level::INFO, Level::DEBUG]);
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_of_a_run_is_short_and_shows_its_real_duration() {
        let job = Job::new(
            "beat",
            crate::scheduler::schedule::Schedule::every(Duration::from_secs(1)).unwrap(),
            |_| async { Ok::<(), String>(()) },
        );
        let entry = HistoryEntry {
            job: Arc::clone(&job.name),
            tick: WallTime::from_micros(1_700_000_000_000_000),
            until: None,
            cause: RunCause::Scheduled,
            end: RunOutcome::Done,
            reason: "".into(),
            worker: "host-7".into(),
            term: FencingToken::new(7),
            started: None,
            took: Some(Duration::from_micros(312)),
            attempts: 1,
            attempt_error: None,
            output: None,
        };
        let line = |entry: &HistoryEntry| {
            let log = Log::default();
            let writer = log.clone();
            let lines = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
            let lines = lines.with_writer(move || writer.clone()).finish();
            with_default(lines, || log_end(Level::INFO, &job, entry));
            let text = log.0.lock().unwrap().clone();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(
            line(&entry).trim(),
            r#"INFO done job="beat" tick=2023-11-14 22:13:20 +00:00 (UTC) outcome="done" worker="host-7" term=7 took=312.0µs"#
        );
        let retried = HistoryEntry { attempts: 3, attempt_error: Some("refused".into()), ..entry };
        assert!(line(&retried).trim().ends_with(r#"attempts=3 error="refused""#), "{}", line(&retried));
    }
}
