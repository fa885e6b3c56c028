use crate::scheduler::{
    policy::Delivery,
    store::{RunCause, RunOutcome},
};
use crate::{
    env::WallTime,
    node::{FencingToken, Record},
    plain::plain,
};
use std::{sync::Arc, time::Duration};

/// The longest text that a record keeps of an outcome, in bytes.
const OUTCOME_MAX: usize = 512;

/// What tick keys begin with; other records of a ledger have other beginnings.
const PREFIX: &str = "tick/";

/// The value of the ledger's [`Record`] of a run.
///
/// No record of a run is written as [`Record::last`]: a leader must be able to write the same end again under its own term.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "state", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum RunRecord {
    /// The leader is about to execute the run itself.
    Started {
        /// The leader's worker.
        worker: Arc<str>,
    },
    /// Workers may take this generation of the run.
    Open(OpenRun),
    /// The run has ended.
    Closed {
        /// The worker that executed the run, or decided on it.
        worker: Arc<str>,
        /// In which way it ended.
        end: RunOutcome,
        /// The reason, for people; may be empty.
        outcome: Arc<str>,
        /// How long it took, in milliseconds, where it was executed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        took_ms: Option<u64>,
        /// Only nodes whose memory began before this count for the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory: Option<WallTime>,
        /// The term under which the history has the run, where that is not the record's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        term: Option<FencingToken>,
    },
}

/// A generation of a run that workers may take.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRun {
    /// Which execution of the run this is: 1, and for at-least-once more after one was lost.
    pub generation: u32,
    /// A node counts for this generation only if its memory began before this time.
    pub at: WallTime,
    /// No worker starts it before this time.
    pub not_before: WallTime,
    /// No worker should take it after this time.
    pub take_by: WallTime,
    /// No node lets it be taken after this time.
    pub horizon: WallTime,
    /// The job's delivery rule when the run was opened.
    pub delivery: Delivery,
    /// Why it runs.
    pub cause: RunCause,
    /// The term that opened the run first, under which the history has it.
    pub term: FencingToken,
    /// The state that earlier runs of the job have left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<str>>,
    /// Why the run is to be cancelled, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Arc<str>>,
}

/// The order in which a leader writes the records of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::scheduler) enum Stage {
    Started,
    /// The generation, and whether it is to be cancelled.
    Open(u32, bool),
    Closed,
}

impl RunRecord {
    /// *Started by* `worker`.
    pub fn started(worker: &str) -> Self {
        Self::Started { worker: worker.into() }
    }

    /// *Done by* `worker`; an `outcome` over 512 bytes is cut.
    pub fn done(worker: &str, took: Duration, outcome: &str) -> Self {
        Self::ended(worker, RunOutcome::Done, Some(took), outcome)
    }

    /// Closed with an `end` that no execution led to; an `outcome` over 512 bytes is cut.
    pub fn closed(worker: &str, end: RunOutcome, outcome: &str) -> Self {
        Self::ended(worker, end, None, outcome)
    }

    /// Closed with an `end` after the run `took` so long; an `outcome` over 512 bytes is cut.
    pub fn ended(worker: &str, end: RunOutcome, took: Option<Duration>, outcome: &str) -> Self {
        let (outcome, took_ms) = (cut(outcome), took.map(millis));
        Self::Closed { worker: worker.into(), end, outcome, took_ms, memory: None, term: None }
    }

    /// The same end, for which nodes count whose memory began before `memory`, and which the history has under `term`.
    pub(in crate::scheduler) fn remembered(mut self, since: WallTime, under: FencingToken) -> Self {
        if let Self::Closed { memory, term, .. } = &mut self {
            (*memory, *term) = (Some(since), Some(under));
        }
        self
    }

    /// The worker that wrote it, where the record names one.
    pub fn worker(&self) -> Option<&Arc<str>> {
        match self {
            Self::Started { worker } | Self::Closed { worker, .. } => Some(worker),
            Self::Open(_) => None,
        }
    }

    /// Returns whether the run has ended by this record.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    pub(in crate::scheduler) fn stage(&self) -> Stage {
        match self {
            Self::Started { .. } => Stage::Started,
            Self::Open(open) => Stage::Open(open.generation, open.cancel.is_some()),
            Self::Closed { .. } => Stage::Closed,
        }
    }

    /// The ledger record of a run of the time `at` under `term`.
    pub fn into_record(self, at: WallTime, term: FencingToken) -> Record {
        let value = serde_json::to_string(&self).unwrap_or_default().into();
        Record { at: at.as_micros(), term, last: false, value }
    }

    /// Reads a record's value.
    ///
    /// # Errors
    /// [`RecordError`] where it is not, to the letter, what [`RunRecord::into_record`] writes.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        serde_json::from_str(value).map_err(|error| RecordError::new("record", value, &error.to_string()))
    }
}

/// Under which key a tick stands in its group's ledger: keys of one job sort by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunKey {
    /// The job's name.
    pub job: Arc<str>,
    /// When the tick is due.
    pub tick: WallTime,
}

impl RunKey {
    /// The key of a job's tick.
    pub fn new(job: &str, tick: WallTime) -> Self {
        Self { job: job.into(), tick }
    }

    /// The text of the key.
    pub fn key(&self) -> Arc<str> {
        format!("{PREFIX}{}/{:020}", self.job, self.tick.as_micros()).into()
    }

    /// The tick that a key means; `None` where it is a key of something else.
    ///
    /// # Errors
    /// [`RecordError`] where it begins like a tick's key and is none.
    pub fn parse(key: &str) -> Result<Option<Self>, RecordError> {
        let Some(rest) = key.strip_prefix(PREFIX) else { return Ok(None) };
        let wrong = || RecordError::new("key", key, "expected tick/JOB/MICROSECONDS in twenty digits");
        let (job, micros) = rest.rsplit_once('/').filter(|(job, _)| !job.is_empty()).ok_or_else(wrong)?;
        if micros.len() != 20 || !micros.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let micros = micros.parse().map_err(|_| wrong())?;
        Ok(Some(Self::new(job, WallTime::from_micros(micros))))
    }
}

/// Something in the ledger that no worker of this version wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger's {what} `{text}` cannot be read: {why}; was it written by another version of Quorate?")]
pub struct RecordError {
    what: &'static str,
    text: String,
    why: String,
}

impl RecordError {
    pub(in crate::scheduler) fn new(what: &'static str, text: &str, why: &str) -> Self {
        Self { what, text: plain(text, 120), why: plain(why, 240) }
    }
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

fn cut(text: &str) -> Arc<str> {
    crate::node::engine::cut(text, OUTCOME_MAX).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: WallTime = WallTime::from_micros(1_741_503_600_000_000);
    const TERM: FencingToken = FencingToken::new(7);

    #[test]
    fn what_is_written_can_be_read() {
        let took = Duration::from_millis(1_250);
        for (record, text) in [
            (RunRecord::started("a"), r#"{"state":"started","worker":"a"}"#),
            (
                RunRecord::done("b \"c\"\n", took, "exit 0"),
                r#"{"state":"closed","worker":"b \"c\"\n","end":"done","outcome":"exit 0","took_ms":1250}"#,
            ),
            (
                RunRecord::closed("d", RunOutcome::Lost, "")
                    .remembered(WallTime::from_micros(5), FencingToken::new(3)),
                r#"{"state":"closed","worker":"d","end":"lost","outcome":"","memory":5,"term":3}"#,
            ),
            (
                RunRecord::Open(open()),
                r#"{"state":"open","generation":2,"at":5,"not_before":6,"take_by":7,"horizon":8,"delivery":"at-least-once","cause":"scheduled","term":9}"#,
            ),
            (
                RunRecord::closed("d", RunOutcome::TimedOut, "after 1s"),
                r#"{"state":"closed","worker":"d","end":"timed-out","outcome":"after 1s"}"#,
            ),
        ] {
            let stood = record.clone().into_record(TICK, TERM);
            assert_eq!(&*stood.value, text);
            assert_eq!((stood.at, stood.term), (TICK.as_micros(), TERM));
            assert_eq!(RunRecord::parse(&stood.value), Ok(record));
        }
    }

    fn open() -> OpenRun {
        let at = WallTime::from_micros;
        OpenRun {
            generation: 2,
            at: at(5),
            not_before: at(6),
            take_by: at(7),
            horizon: at(8),
            delivery: Delivery::AtLeastOnce,
            cause: RunCause::Scheduled,
            term: FencingToken::new(9),
            state: None,
            cancel: None,
        }
    }

    #[test]
    fn no_record_is_final_and_stages_only_go_forward() {
        let cancelled = OpenRun { cancel: Some("on request".into()), ..open() };
        let next = OpenRun { generation: 3, ..open() };
        let stages = [
            RunRecord::started("a"),
            RunRecord::Open(open()),
            RunRecord::Open(cancelled),
            RunRecord::Open(next),
            RunRecord::done("a", Duration::ZERO, ""),
        ];
        assert!(stages.iter().all(|record| !record.clone().into_record(TICK, TERM).last), "R11");
        assert!(stages.is_sorted_by_key(RunRecord::stage), "R14");
    }

    #[test]
    fn what_is_not_a_record_is_refused() {
        for text in [
            "",
            "started",
            r#"{"state":"started"}"#,
            r#"{"state":"Started","worker":"a"}"#,
            r#"{"state":"paused","worker":"a"}"#,
            r#"{"state":"started","worker":"a","since":3}"#,
            r#"{"state":"closed","worker":"a","end":"done","took_ms":-1,"outcome":""}"#,
            r#"{"state":"closed","worker":"a","end":"done","took_ms":1}"#,
            r#"{"state":"open","generation":1}"#,
            r#"{"state":"started","worker":"a"} x"#,
        ] {
            let error = RunRecord::parse(text).unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_outcome_is_cut_between_letters() {
        let long = "ї".repeat(600);
        let RunRecord::Closed { outcome, .. } = RunRecord::done("a", Duration::ZERO, &long) else {
            panic!("done is done")
        };
        assert_eq!(outcome.len(), 512);
        let odd = format!("x{long}");
        let RunRecord::Closed { outcome, .. } = RunRecord::closed("a", RunOutcome::Failed, &odd) else {
            panic!("failed is closed")
        };
        assert_eq!(outcome.len(), 511);
    }

    #[test]
    fn keys_go_both_ways_and_sort_by_time() {
        for job in ["nightly", "a/b", "tick/"] {
            let key = RunKey::new(job, TICK);
            assert_eq!(RunKey::parse(&key.key()), Ok(Some(key)));
        }
        assert_eq!(&*RunKey::new("nightly", TICK).key(), "tick/nightly/00001741503600000000");
        assert!(
            RunKey::new("a", WallTime::from_micros(9)).key()
                < RunKey::new("a", WallTime::from_micros(10)).key()
        );
        assert_eq!(RunKey::parse("pause/nightly"), Ok(None));
        for key in [
            "tick/",
            "tick/a",
            "tick/a/5",
            "tick//00001741503600000000",
            "tick/a/+0001741503600000000",
            "tick/a/99999999999999999999",
        ] {
            assert!(RunKey::parse(key).is_err(), "{key}");
        }
    }
}
