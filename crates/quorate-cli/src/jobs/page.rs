//! Jobs in the form in which the commands show them. The names of the fields are also the names in the JSON
//! output, so programs that read this output break if a field is renamed.

use crate::{terminal::Tone, time::rfc3339};
use quorate::{
    plain::plain,
    scheduler::{HistoryEntry, JobAlert, JobStatus, RunStatus},
};
use serde::Serialize;
use std::time::Duration;

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The longest reason, rule or schedule that is shown, in bytes.
const TEXT_MAX: usize = 1_000;

/// A job.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobPage {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) schedule: String,
    pub(crate) rules: String,
    /// `leader` or `any-worker`.
    pub(crate) placement: String,
    pub(crate) registered: String,
    pub(crate) paused: Option<PausedPage>,
    /// True if the group is frozen. If the job is not paused itself, `paused` describes the freeze.
    pub(crate) frozen: bool,
    /// The next tick; `null` if the job is paused without an end or never due again, or if the tick is not known.
    pub(crate) next: Option<String>,
    /// The time within which the job is expected to succeed again, in microseconds.
    pub(crate) expect_within_us: Option<u64>,
    /// The time since which the job is overdue; `null` if it is not.
    pub(crate) overdue_since: Option<String>,
    /// The tick of the first run that failed since the last success, if `[[notify]]` watches the job.
    pub(crate) failing_since: Option<String>,
    /// The notifications that the leader has not sent yet, the oldest first.
    pub(crate) unsent: Vec<UnsentPage>,
    pub(crate) running: Vec<ActiveRun>,
    pub(crate) last: Vec<RunEnd>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PausedPage {
    pub(crate) by: String,
    pub(crate) at: String,
    /// The reason, in the words of the requester.
    pub(crate) reason: Option<String>,
    /// The end of the pause; `null` if the job stays paused until it is resumed.
    pub(crate) until: Option<String>,
}

/// A notification that was not sent yet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnsentPage {
    pub(crate) event: String,
    pub(crate) at: String,
    pub(crate) reason: String,
}

/// A run that has started and not ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ActiveRun {
    pub(crate) tick: String,
    pub(crate) request: Option<String>,
    pub(crate) worker: String,
    pub(crate) term: u64,
    /// True if the term under which the run was started has ended. The next leader runs the tick again, or
    /// records it as lost.
    pub(crate) orphaned: bool,
}

/// The outcome of a tick.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunEnd {
    pub(crate) tick: String,
    pub(crate) until: Option<String>,
    pub(crate) cause: String,
    pub(crate) request: Option<String>,
    pub(crate) outcome: String,
    pub(crate) reason: String,
    pub(crate) worker: String,
    pub(crate) term: u64,
    pub(crate) started: Option<String>,
    /// The time from the tick to the start, if it is a second or more. For people: JSON has both times.
    #[serde(skip)]
    pub(crate) late: Option<Duration>,
    /// The duration in microseconds.
    pub(crate) took_us: Option<u64>,
    pub(crate) attempts: u32,
    /// The error of the last failed attempt, even if a later attempt succeeded.
    pub(crate) last_error: Option<String>,
    pub(crate) output: Option<String>,
}

impl JobPage {
    pub(crate) fn new(group: &str, job: &JobStatus) -> Self {
        let paused = job.paused_at.map(|at| PausedPage {
            by: plain(job.paused_by.as_deref().unwrap_or_default(), NAME_MAX),
            at: rfc3339(at),
            reason: job.pause_reason.as_ref().map(|reason| plain(reason, TEXT_MAX)),
            until: job.paused_until.map(rfc3339),
        });
        Self {
            group: plain(group, NAME_MAX),
            name: plain(&job.name, NAME_MAX),
            schedule: plain(&job.schedule, TEXT_MAX),
            rules: plain(&job.rules, TEXT_MAX),
            placement: job.placement.to_string(),
            registered: rfc3339(job.registered),
            paused,
            frozen: job.frozen,
            next: job.next.map(rfc3339),
            expect_within_us: job.expect_within.map(micros),
            overdue_since: job.overdue_since.map(rfc3339),
            failing_since: job.failing_since.map(rfc3339),
            unsent: job.alerts.iter().map(UnsentPage::new).collect(),
            running: job.running.iter().map(ActiveRun::new).collect(),
            last: job.last.iter().map(RunEnd::new).collect(),
        }
    }
}

impl UnsentPage {
    fn new(alert: &JobAlert) -> Self {
        Self { event: alert.kind.to_string(), at: rfc3339(alert.at), reason: plain(&alert.reason, TEXT_MAX) }
    }
}

impl ActiveRun {
    fn new(run: &RunStatus) -> Self {
        Self {
            tick: rfc3339(run.tick),
            request: run.request.map(|id| id.to_string()),
            worker: plain(&run.worker, NAME_MAX),
            term: run.term.get(),
            orphaned: run.orphaned,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl RunEnd {
    pub(crate) fn new(end: &HistoryEntry) -> Self {
        Self {
            tick: rfc3339(end.tick),
            until: end.until.map(rfc3339),
            cause: end.cause.to_string(),
            request: end.cause.request().map(|id| id.to_string()),
            outcome: end.end.to_string(),
            reason: plain(&end.reason, TEXT_MAX),
            worker: plain(&end.worker, NAME_MAX),
            term: end.term.get(),
            started: end.started.map(rfc3339),
            late: end.late(),
            took_us: end.took.map(micros),
            attempts: end.attempts,
            last_error: end.last_error().map(|error| plain(error, TEXT_MAX)),
            output: end.output.as_ref().map(|output| lines(output)),
        }
    }

    /// Returns the importance of the outcome.
    pub(crate) fn tone(&self) -> Tone {
        match self.outcome.as_str() {
            "done" => Tone::Plain,
            "failed" | "lost" | "timed-out" => Tone::Trouble,
            _ => Tone::Caution,
        }
    }

    /// Returns the duration in a form that people can read.
    pub(crate) fn duration(&self) -> Option<String> {
        self.took_us.map(|micros| format!("{:.1?}", Duration::from_micros(micros)))
    }

    /// Returns the reason, and also the error of a failed attempt if it differs from the reason.
    pub(crate) fn explanation(&self) -> String {
        match &self.last_error {
            Some(error) if *error != self.reason => {
                let between = if self.reason.is_empty() { "" } else { "; " };
                format!("{}{between}last error: {error}", self.reason)
            }
            _ => self.reason.clone(),
        }
    }
}

/// Returns `text` without the characters that control a terminal, except line ends.
fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| plain(line, usize::MAX)).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::env::WallTime;
    use quorate::{
        node::FencingToken,
        scheduler::{RunCause, RunOutcome},
    };

    fn page(end: RunOutcome, reason: &str, attempt_error: Option<&str>) -> RunEnd {
        RunEnd::new(&entry(end, reason, attempt_error))
    }

    fn entry(end: RunOutcome, reason: &str, attempt_error: Option<&str>) -> HistoryEntry {
        HistoryEntry {
            job: "beat".into(),
            tick: WallTime::from_micros(1_700_000_000_000_000),
            until: None,
            cause: RunCause::Scheduled,
            end,
            reason: reason.into(),
            worker: "w".into(),
            term: FencingToken::new(7),
            started: None,
            took: Some(Duration::from_micros(312)),
            attempts: 3,
            attempt_error: attempt_error.map(Into::into),
            output: None,
        }
    }

    #[test]
    fn the_error_of_an_attempt_is_shown_whatever_the_outcome_is() {
        let done = page(RunOutcome::Done, "", Some("refused"));
        assert_eq!(
            done.short(),
            "2023-11-14T22:13:20Z done in 312.0µs after 3 attempts: last error: refused"
        );
        let failed = page(RunOutcome::Failed, "exit 1", None);
        assert_eq!(failed.short(), "2023-11-14T22:13:20Z failed in 312.0µs after 3 attempts: exit 1");
        let cancelled = page(RunOutcome::Cancelled, "on request of me", Some("refused"));
        assert_eq!(cancelled.explanation(), "on request of me; last error: refused");
        let json = |page: &RunEnd| serde_json::to_value(page).expect("JSON");
        assert_eq!(json(&done)["last_error"], "refused");
        assert_eq!(json(&failed)["last_error"], "exit 1");
        assert!(json(&page(RunOutcome::Done, "", None))["last_error"].is_null());
    }

    #[test]
    fn a_late_start_is_shown_from_a_second() {
        let tick = WallTime::from_micros(1_700_000_000_000_000);
        let late = |cause, millis| {
            let (job, worker) = ("beat".into(), "w".into());
            let started = Some(tick + Duration::from_millis(millis));
            let mut end = entry(RunOutcome::Done, "", None);
            (end.job, end.worker, end.cause, end.started) = (job, worker, cause, started);
            RunEnd::new(&end).late
        };
        assert_eq!(late(RunCause::CatchUp, 38_000), Some(Duration::from_secs(38)));
        assert_eq!(late(RunCause::Scheduled, 999), None);
        let id = quorate::scheduler::RequestId::from_u128(1);
        assert_eq!(late(RunCause::Backfilled { id }, 38_000), None, "its tick is long ago on purpose");
    }

    #[test]
    fn a_run_shorter_than_a_millisecond_shows_its_duration() {
        let page = page(RunOutcome::Done, "", None);
        assert_eq!(page.duration().as_deref(), Some("312.0µs"));
        assert_eq!(serde_json::to_value(&page).expect("JSON")["took_us"], 312);
    }
}
