use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    scheduler::{
        job::{RunCause, RunOutcome},
        store::{REASON_MAX, RecordError},
    },
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The history entry of one tick, or of several ticks in a row that were skipped together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The job.
    pub job: Arc<str>,
    /// The tick: the time at which the job was due, or the time of the request that triggered the run. In
    /// JSON, every time is in microseconds since the Unix epoch.
    pub tick: WallTime,
    /// The last tick, if the entry is for several skipped ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
    /// The cause of the run.
    pub cause: RunCause,
    /// The outcome.
    pub end: RunOutcome,
    /// The reason for the outcome, for people: the last error, why the run was skipped or cancelled, or a note. May
    /// be empty.
    pub reason: Arc<str>,
    /// The worker that executed the run, or the leader that decided on it.
    pub worker: Arc<str>,
    /// The term in which the run was started, or first opened to workers. For a tick that did not run, the
    /// term in which the leader decided on the tick.
    pub term: FencingToken,
    /// The time at which the first attempt began. `None` if no attempt began, or its time is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<WallTime>,
    /// The duration of the run, which includes all attempts and the pauses between them. In JSON, in
    /// microseconds, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::scheduler::wire::maybe_micros")]
    pub took: Option<Duration>,
    /// The number of attempts.
    pub attempts: u32,
    /// The error of the last failed attempt, if the run did not end with that error: a later attempt succeeded,
    /// or the run was cancelled. [`HistoryEntry::last_error`] returns the last error of any run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_error: Option<Arc<str>>,
    /// The last part of the run's output, if the job keeps output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
}

/// A start that is later than its tick by less than this is not late.
const LATE_FROM: Duration = Duration::from_secs(1);

impl HistoryEntry {
    /// Creates the entry of a tick that was not executed. If a run was executed, the caller adds the data of
    /// the run.
    pub(in crate::scheduler) fn new(
        job: &Arc<str>,
        tick: WallTime,
        cause: RunCause,
        end: RunOutcome,
        worker: &Arc<str>,
        term: FencingToken,
    ) -> Self {
        Self {
            job: Arc::clone(job),
            tick,
            until: None,
            cause,
            end,
            reason: "".into(),
            worker: Arc::clone(worker),
            term,
            started: None,
            took: None,
            attempts: 0,
            attempt_error: None,
            output: None,
        }
    }

    /// Returns the time from the tick to the begin of the first attempt, if it is a second or more. `None` also if
    /// the run was requested, or if the begin is not known.
    pub fn late(&self) -> Option<Duration> {
        let started = self.started.filter(|_| self.cause.request().is_none())?;
        Some(self.tick.until(started)).filter(|late| *late >= LATE_FROM)
    }

    /// Returns the error of the last attempt that failed. `None` if no attempt failed, or no error is known.
    pub fn last_error(&self) -> Option<&str> {
        let reason = match self.end {
            RunOutcome::Failed | RunOutcome::TimedOut => Some(&self.reason),
            _ => None,
        };
        self.attempt_error.as_ref().or(reason).map(|error| &**error).filter(|error| !error.is_empty())
    }

    /// Returns the name of the part of a group's ledger that stores a job's history.
    #[doc(hidden)]
    pub fn part(job: &str) -> String {
        format!("history:{job}")
    }

    /// Returns the key of the entry in the ledger. The key begins with the tick. All leaders that write an
    /// entry of the same run use the same key, so the run gets only one entry.
    #[doc(hidden)]
    pub fn key(&self) -> Arc<str> {
        let (tick, term) = (self.tick.as_micros(), self.term.get());
        match self.cause.request() {
            None => format!("{tick:020}/{term:016}").into(),
            Some(id) => format!("{tick:020}/{term:016}-{id}").into(),
        }
    }

    /// Returns the record of the entry, with the time `now`. If the reason or the error is longer than 512
    /// bytes, its end is cut off.
    ///
    /// All records of a history have the term 0, as in every part. The term of the entry is part of the record's
    /// value.
    #[doc(hidden)]
    pub fn into_record(mut self, now: WallTime) -> Record {
        for text in std::iter::once(&mut self.reason).chain(&mut self.attempt_error) {
            *text = crate::node::engine::cut(text, REASON_MAX).into();
        }
        let value = serde_json::to_string(&self).unwrap_or_default().into();
        Record { at: now.as_micros(), term: FencingToken::default(), last: true, value }
    }

    /// Reads an entry from the value of its record.
    ///
    /// # Errors
    /// [`RecordError`] if the value is not an entry.
    #[doc(hidden)]
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        serde_json::from_str(value)
            .map_err(|error| RecordError::new("history entry", value, &error.to_string()))
    }

    /// Merges the nodes' answers to a read of a job's history. Returns the entries, the oldest tick first, and
    /// an error for each record that cannot be read. If nodes have different entries of the same run, an entry
    /// with another outcome than *lost* counts.
    #[doc(hidden)]
    pub fn merge(answers: &[Answered]) -> (Vec<Self>, Vec<RecordError>) {
        let mut entries: BTreeMap<&str, Self> = BTreeMap::new();
        let mut unreadable = BTreeMap::new();
        for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
            match Self::parse(&record.value) {
                Ok(entry) => match entries.get(&**key) {
                    Some(known) if known.end != RunOutcome::Lost => {}
                    _ => drop(entries.insert(key, entry)),
                },
                Err(error) => drop(unreadable.insert(&**key, error)),
            }
        }
        (entries.into_values().collect(), unreadable.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::LedgerState, scheduler::job::RequestId};

    fn entry(tick: u64, end: RunOutcome) -> HistoryEntry {
        HistoryEntry {
            job: "j".into(),
            tick: WallTime::from_micros(tick),
            until: None,
            cause: RunCause::Scheduled,
            end,
            reason: "".into(),
            worker: "w".into(),
            term: FencingToken::new(4),
            started: Some(WallTime::from_micros(tick + 1)),
            took: Some(Duration::from_millis(12)),
            attempts: 1,
            attempt_error: None,
            output: None,
        }
    }

    #[test]
    fn entries_survive_a_round_trip() {
        let text = r#"{"job":"j","tick":7,"cause":"scheduled","end":"done","reason":"","worker":"w","term":4,"started":8,"took":12000,"attempts":1}"#;
        assert_eq!(serde_json::to_string(&entry(7, RunOutcome::Done)).unwrap(), text);
        assert_eq!(HistoryEntry::parse(text).unwrap(), entry(7, RunOutcome::Done));
        let id = RequestId::from_u128(9);
        for end in RunOutcome::ALL {
            assert_eq!(serde_json::to_string(&end).unwrap(), format!("\"{end}\""));
            let full = HistoryEntry {
                until: Some(WallTime::from_micros(9)),
                cause: RunCause::Backfilled { id },
                started: None,
                took: None,
                attempt_error: Some("refused".into()),
                output: Some("tail".into()),
                ..entry(7, end)
            };
            let record = full.clone().into_record(WallTime::from_micros(99));
            assert_eq!((record.at, record.last, record.term), (99, true, FencingToken::new(0)));
            assert_eq!(HistoryEntry::parse(&record.value).unwrap(), full);
        }
        assert!(HistoryEntry::parse("{}").unwrap_err().to_string().contains("history entry"));
    }

    #[test]
    fn a_long_reason_and_a_long_error_are_cut() {
        let text: Arc<str> = "x".repeat(2_000).into();
        let attempt_error = Some(Arc::clone(&text));
        let long = HistoryEntry { reason: text, attempt_error, ..entry(1, RunOutcome::Done) };
        let read = HistoryEntry::parse(&long.into_record(WallTime::from_micros(1)).value).unwrap();
        assert_eq!((read.reason.len(), read.last_error().unwrap().len()), (REASON_MAX, REASON_MAX));
    }

    #[test]
    fn the_last_error_is_the_reason_of_a_failed_run_and_an_earlier_attempt_s_of_another() {
        let of = |end, reason: &str, error: Option<&str>| {
            let attempt_error = error.map(Into::into);
            let entry = HistoryEntry { reason: reason.into(), attempt_error, ..entry(1, end) };
            entry.last_error().map(str::to_owned)
        };
        assert_eq!(of(RunOutcome::Failed, "exit 1", None).as_deref(), Some("exit 1"));
        assert_eq!(
            of(RunOutcome::TimedOut, "timed out after 1s", None).as_deref(),
            Some("timed out after 1s")
        );
        assert_eq!(of(RunOutcome::Done, "", Some("refused")).as_deref(), Some("refused"));
        assert_eq!(
            of(RunOutcome::Cancelled, "on request of me", Some("refused")).as_deref(),
            Some("refused")
        );
        assert_eq!(of(RunOutcome::Cancelled, "on request of me", None), None);
        assert_eq!(of(RunOutcome::Done, "", None), None);
    }

    #[test]
    fn merged_answers_prefer_an_entry_with_a_known_end() {
        let node = |entries: &[HistoryEntry]| {
            let record =
                |entry: &HistoryEntry| (entry.key(), entry.clone().into_record(WallTime::from_micros(99)));
            let mut records: Vec<_> = entries.iter().map(record).collect();
            records.sort_by(|a, b| a.0.cmp(&b.0));
            Answered { state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
        };
        let (done, lost, other) =
            (entry(5, RunOutcome::Done), entry(5, RunOutcome::Lost), entry(3, RunOutcome::Failed));
        for answers in [
            [node(std::slice::from_ref(&done)), node(&[lost.clone(), other.clone()])],
            [node(&[lost.clone(), other.clone()]), node(std::slice::from_ref(&done))],
        ] {
            assert_eq!(HistoryEntry::merge(&answers).0, [other.clone(), done.clone()]);
        }
        let mut damaged = node(std::slice::from_ref(&done));
        damaged
            .state
            .records
            .push(("9".into(), Record { value: "?".into(), ..done.clone().into_record(done.tick) }));
        let (read, unreadable) = HistoryEntry::merge(&[damaged]);
        assert_eq!((read.len(), unreadable.len()), (1, 1));
    }
}
