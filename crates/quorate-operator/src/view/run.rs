use super::{MaybeMicros, MaybeRfc3339, Rfc3339, lines, name, text};
use quorate::{
    env::WallTime,
    scheduler::{HistoryEntry, RunOutcome, RunStatus, Zone},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// A run that has started and not ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ActiveRun {
    /// The tick.
    #[serde(with = "Rfc3339")]
    pub tick: WallTime,
    /// The id of the request that started it.
    pub request: Option<String>,
    /// The worker.
    pub worker: String,
    /// The term under which it was started.
    pub term: u64,
    /// True if that term has ended. The next leader runs the tick again, or records it as lost.
    pub orphaned: bool,
}

/// The outcome of a tick.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunEnd {
    /// The tick.
    #[serde(with = "Rfc3339")]
    pub tick: WallTime,
    /// The last tick, if the entry is about several ticks.
    #[serde(with = "MaybeRfc3339")]
    pub until: Option<WallTime>,
    /// The cause of the run.
    pub cause: String,
    /// The id of the request that started it.
    pub request: Option<String>,
    /// The outcome.
    #[schemars(with = "String")]
    pub outcome: RunOutcome,
    /// The reason, or the error. May be empty.
    pub reason: String,
    /// The worker.
    pub worker: String,
    /// The term in which it ended.
    pub term: u64,
    /// The time of its start.
    #[serde(with = "MaybeRfc3339")]
    pub started: Option<WallTime>,
    /// The time from the tick to the start, if it is a second or more. For people: JSON has both times.
    #[serde(skip)]
    pub late: Option<Duration>,
    /// The duration, in microseconds.
    #[serde(rename = "took_us", with = "MaybeMicros")]
    pub took: Option<Duration>,
    /// The number of attempts.
    pub attempts: u32,
    /// The error of the last failed attempt, even if a later attempt succeeded.
    pub last_error: Option<String>,
    /// The end of the output.
    pub output: Option<String>,
}

impl ActiveRun {
    pub(super) fn new(run: &RunStatus) -> Self {
        Self {
            tick: run.tick,
            request: run.request.map(|id| id.to_string()),
            worker: name(&run.worker),
            term: run.term.get(),
            orphaned: run.orphaned,
        }
    }

    pub(super) fn line(&self, zone: &Zone) -> String {
        let request = self.request.as_ref().map_or_else(String::new, |id| format!(", request {id}"));
        format!("{} on {} (term {}){request}", zone.rfc3339(self.tick), self.worker, self.term)
    }
}

impl RunEnd {
    /// Returns the view of an entry of a history.
    pub fn new(end: &HistoryEntry) -> Self {
        Self {
            tick: end.tick,
            until: end.until,
            cause: end.cause.to_string(),
            request: end.cause.request().map(|id| id.to_string()),
            outcome: end.end,
            reason: text(&end.reason),
            worker: name(&end.worker),
            term: end.term.get(),
            started: end.started,
            late: end.late(),
            took: end.took,
            attempts: end.attempts,
            last_error: end.last_error().map(text),
            output: end.output.as_deref().map(lines),
        }
    }

    /// Returns whether the tick was skipped.
    pub fn is_skipped(&self) -> bool {
        matches!(
            self.outcome,
            RunOutcome::SkippedMisfire
                | RunOutcome::SkippedOverlap
                | RunOutcome::SkippedPaused
                | RunOutcome::SkippedFrozen
        )
    }

    /// Returns the time at which the run ended, as far as it is known.
    pub fn ended(&self) -> WallTime {
        self.started.unwrap_or(self.tick) + self.took.unwrap_or_default()
    }

    /// Returns the time from the tick to the start.
    pub fn delay(&self) -> Option<Duration> {
        self.started.map(|started| self.tick.until(started))
    }

    /// Returns the duration in a form that people can read.
    pub fn duration(&self) -> Option<String> {
        self.took.map(|took| {
            format!("{:.1?}", Duration::from_micros(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)))
        })
    }

    /// Returns the reason, and also the error of a failed attempt if it differs from the reason.
    pub fn explanation(&self) -> String {
        match &self.last_error {
            Some(error) if *error != self.reason => {
                let between = if self.reason.is_empty() { "" } else { "; " };
                format!("{}{between}last error: {error}", self.reason)
            }
            _ => self.reason.clone(),
        }
    }

    /// Returns the outcome in one line, with the tick in `zone`.
    pub fn line(&self, zone: &Zone) -> String {
        let took = self.duration().map_or_else(String::new, |took| format!(" in {took}"));
        let attempts =
            if self.attempts > 1 { format!(" after {} attempts", self.attempts) } else { String::new() };
        let why = Some(self.explanation()).filter(|why| !why.is_empty());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        format!("{} {}{took}{attempts}{why}", zone.rfc3339(self.tick), self.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::{node::FencingToken, scheduler::RunCause};

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
            done.line(&Zone::UTC),
            "2023-11-14T22:13:20Z done in 312.0µs after 3 attempts: last error: refused"
        );
        let failed = page(RunOutcome::Failed, "exit 1", None);
        let tokyo = Zone::named("Asia/Tokyo").expect("a zone");
        assert_eq!(
            failed.line(&tokyo),
            "2023-11-15T07:13:20+09:00 failed in 312.0µs after 3 attempts: exit 1"
        );
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
