//! Jobs in the form in which the commands show them. The names of the fields are also the names in the JSON
//! output, so programs that read this output break if a field is renamed.

use crate::time::rfc3339;
use quorate::{
    plain::plain,
    scheduler::{HistoryEntry, JobStatus, RunStatus},
};
use serde::Serialize;
use std::time::Duration;

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The longest reason, rule or schedule that is shown, in bytes.
const TEXT_MAX: usize = 1_000;

/// A job.
#[derive(Debug, Serialize)]
pub(super) struct JobPage {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) schedule: String,
    pub(super) rules: String,
    /// `leader` or `any-worker`.
    pub(super) placement: String,
    pub(super) registered: String,
    pub(super) paused: Option<PausedPage>,
    /// The next tick; `null` if the job is paused without an end or never due again, or if the tick is not known.
    pub(super) next: Option<String>,
    pub(super) running: Vec<ActiveRun>,
    pub(super) last: Vec<RunEnd>,
}

#[derive(Debug, Serialize)]
pub(super) struct PausedPage {
    pub(super) by: String,
    pub(super) at: String,
    /// The reason, in the words of the requester.
    pub(super) reason: Option<String>,
    /// The end of the pause; `null` if the job stays paused until it is resumed.
    pub(super) until: Option<String>,
}

/// A run that has started and not ended.
#[derive(Debug, Serialize)]
pub(super) struct ActiveRun {
    pub(super) tick: String,
    pub(super) request: Option<String>,
    pub(super) worker: String,
    pub(super) term: u64,
    /// True if the term under which the run was started has ended. The next leader runs the tick again, or
    /// records it as lost.
    pub(super) orphaned: bool,
}

/// The outcome of a tick.
#[derive(Debug, Serialize)]
pub(super) struct RunEnd {
    pub(super) tick: String,
    pub(super) until: Option<String>,
    pub(super) cause: String,
    pub(super) request: Option<String>,
    pub(super) outcome: String,
    pub(super) reason: String,
    pub(super) worker: String,
    pub(super) term: u64,
    pub(super) started: Option<String>,
    /// The duration in microseconds.
    pub(super) took_us: Option<u64>,
    pub(super) attempts: u32,
    /// The error of the last failed attempt, even if a later attempt succeeded.
    pub(super) last_error: Option<String>,
    pub(super) output: Option<String>,
}

impl JobPage {
    pub(super) fn new(group: &str, job: &JobStatus) -> Self {
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
            next: job.next.map(rfc3339),
            running: job.running.iter().map(ActiveRun::new).collect(),
            last: job.last.iter().map(RunEnd::new).collect(),
        }
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

impl RunEnd {
    pub(super) fn new(end: &HistoryEntry) -> Self {
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
            took_us: end.took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
            attempts: end.attempts,
            last_error: end.last_error().map(|error| plain(error, TEXT_MAX)),
            output: end.output.as_ref().map(|output| lines(output)),
        }
    }

    /// Returns the duration in a form that people can read.
    pub(super) fn duration(&self) -> Option<String> {
        self.took_us.map(|micros| format!("{:.1?}", Duration::from_micros(micros)))
    }

    /// Returns the reason, and also the error of a failed attempt if it differs from the reason.
    pub(super) fn explanation(&self) -> String {
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
        RunEnd::new(&HistoryEntry {
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
        })
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
    fn a_run_shorter_than_a_millisecond_shows_its_duration() {
        let page = page(RunOutcome::Done, "", None);
        assert_eq!(page.duration().as_deref(), Some("312.0µs"));
        assert_eq!(serde_json::to_value(&page).expect("JSON")["took_us"], 312);
    }
}
