use crate::{
    env::WallTime,
    node::{FencingToken, copy::AssignmentId},
    scheduler::{
        job::{JobDefinition, Payload, RequestId, RunCause, RunOutcome},
        policy::{Delivery, Labels},
        store::{REASON_MAX, RecordError},
    },
};
use std::{sync::Arc, time::Duration};

/// The prefix of the keys of ticks.
pub(in crate::scheduler) const TICK_PREFIX: &str = "tick/";
/// The prefix of the keys of requested runs: `run/REQUEST/JOB/TIME`.
pub(in crate::scheduler) const REQUESTED_PREFIX: &str = "run/";

/// A worker may start a run within this time, unless the run belongs to a tick with a misfire window.
pub(in crate::scheduler) const TAKE_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// The value of a run's record in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "state", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum RunRecord {
    /// The leader is about to execute the run itself.
    Started {
        /// The worker that was the leader when it started the run.
        worker: Arc<str>,
        /// The term of that leader.
        term: FencingToken,
        /// The earliest time at which a record of the run may have existed.
        at: WallTime,
    },
    /// Workers may take this generation of the run.
    Open(OpenRun),
    /// The run has ended.
    Closed {
        /// The worker that executed the run, or the leader that decided on it.
        worker: Arc<str>,
        /// The outcome.
        end: RunOutcome,
        /// The reason, for people; may be empty.
        outcome: Arc<str>,
        /// The duration of the run, if it was executed. In JSON, in microseconds, rounded up.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "crate::scheduler::wire::maybe_micros"
        )]
        took: Option<Duration>,
        /// The term of the run's history entry.
        term: FencingToken,
        /// The earliest time at which a record of the run may have existed.
        at: WallTime,
        /// The first of several ticks in a row that this record closes: those from this tick to the tick of the
        /// record's key that have no record of their own. `None` if the record closes one tick.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<WallTime>,
    },
}

/// One generation of a run, which a worker may take.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRun {
    /// The number of this generation of the run, from 1. If the job is at-least-once, another generation
    /// follows a lost one.
    pub generation: u32,
    /// The earliest time at which a record of the run may have existed.
    pub at: WallTime,
    /// No worker starts the generation before this time.
    pub not_before: WallTime,
    /// The time after which no worker starts the generation.
    pub take_by: WallTime,
    /// The delivery rule that the job had when the run was opened.
    pub delivery: Delivery,
    /// The cause of the run: a due tick, a catch-up, or a request.
    pub cause: RunCause,
    /// The term that first opened the run. The history entry of the run has the same term.
    pub term: FencingToken,
    /// The labels that the worker must have.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The concurrency key that the run has until it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<Arc<str>>,
    /// The state that earlier runs of the job have saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<str>>,
    /// The reason for which the worker must cancel the run. `None` if the run is not cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Arc<str>>,
    /// The fencing token of the run. It is larger than those of earlier assignments of the run.
    #[serde(default)]
    pub token: FencingToken,
    /// The payload of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// The definition of the job, without its payload, if the job is stored on the nodes. So a worker needs nothing
    /// else of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<JobDefinition>>,
    /// The worker to which the generation is assigned. `None` while it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<AssignedTo>,
}

/// The assignment of a run to a worker.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssignedTo {
    /// The name of the worker.
    pub worker: Arc<str>,
    /// The session of the worker. The run may continue while the worker holds it.
    pub session: Arc<str>,
    /// The term of the leader that made the assignment.
    pub term: FencingToken,
    /// The number of the assignment in that term.
    pub seq: u64,
}

impl OpenRun {
    /// Returns the generation that follows this one. It may start at `now`, but not before the run is due: a run is assigned
    /// ahead of that time, and its worker may be gone before.
    pub(in crate::scheduler) fn next_generation(&self, now: WallTime) -> Self {
        let cause = if self.cause == RunCause::Scheduled { RunCause::CatchUp } else { self.cause };
        let not_before = now.max(self.not_before);
        let (generation, take_by) = (self.generation + 1, not_before + TAKE_WITHIN);
        Self { generation, not_before, take_by, cause, cancel: None, to: None, ..self.clone() }
    }
}

impl AssignedTo {
    pub(in crate::scheduler) fn id(&self) -> AssignmentId {
        AssignmentId { term: self.term, seq: self.seq }
    }
}

impl RunRecord {
    /// Returns the record of a run that the leader `worker` is about to execute.
    pub fn started(worker: &str, (term, at): (FencingToken, WallTime)) -> Self {
        Self::Started { worker: worker.into(), term, at }
    }

    /// Returns the record of a run that did not go through a handler, or whose handler returned after the time `took`. If
    /// `outcome` is longer than 512 bytes, its end is cut off.
    pub fn closed(
        worker: &str,
        (end, outcome): (RunOutcome, &str),
        took: Option<Duration>,
        (term, at): (FencingToken, WallTime),
    ) -> Self {
        let outcome = crate::node::engine::cut(outcome, REASON_MAX).into();
        Self::Closed { worker: worker.into(), end, outcome, took, term, at, from: None }
    }

    /// Sets the first of the ticks that this closed record closes, and returns the record.
    pub(in crate::scheduler) fn closing_from(mut self, first: Option<WallTime>) -> Self {
        if let Self::Closed { from, .. } = &mut self {
            *from = first;
        }
        self
    }

    /// Returns the worker that executed the run, or the leader that decided on it, if the record has this
    /// worker.
    pub fn worker(&self) -> Option<&Arc<str>> {
        match self {
            Self::Started { worker, .. } | Self::Closed { worker, .. } => Some(worker),
            Self::Open(_) => None,
        }
    }

    /// Returns the term of the run's history entry, or of the leader that started the run.
    pub fn term(&self) -> FencingToken {
        match self {
            Self::Started { term, .. } | Self::Closed { term, .. } => *term,
            Self::Open(open) => open.term,
        }
    }

    /// Returns the earliest time at which a record of the run may have existed.
    pub fn at(&self) -> WallTime {
        match self {
            Self::Started { at, .. } | Self::Closed { at, .. } => *at,
            Self::Open(open) => open.at,
        }
    }

    /// Returns whether the record contains the end of its run.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Returns the text that the ledger stores.
    pub fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Reads a [`RunRecord`] from the value of a record.
    ///
    /// # Errors
    /// [`RecordError`] if [`RunRecord::to_value`] could not have written the value.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        serde_json::from_str(value).map_err(|error| RecordError::new("record", value, &error.to_string()))
    }
}

/// The key of a tick's record in its group's ledger. The keys of a job are sorted by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunKey {
    /// The job's name.
    pub job: Arc<str>,
    /// The time at which the tick is due.
    pub tick: WallTime,
}

impl RunKey {
    /// Returns the key of a job's tick.
    pub fn new(job: &str, tick: WallTime) -> Self {
        Self { job: job.into(), tick }
    }

    /// Returns the text of the key.
    pub fn key(&self) -> Arc<str> {
        format!("{TICK_PREFIX}{}/{:020}", self.job, self.tick.as_micros()).into()
    }

    /// Reads a key of the ledger. Returns `None` if the key is not that of a tick.
    ///
    /// # Errors
    ///
    /// [`RecordError`] if the key has the prefix of a tick's key, but not its form.
    pub fn parse(key: &str) -> Result<Option<Self>, RecordError> {
        let Some(rest) = key.strip_prefix(TICK_PREFIX) else { return Ok(None) };
        let wrong = || RecordError::new("key", key, "expected tick/JOB/MICROSECONDS in twenty digits");
        let (job, tick) = split(rest).ok_or_else(wrong)?;
        Ok(Some(Self::new(job, tick)))
    }
}

pub(in crate::scheduler) fn requested_key(request: RequestId, job: &str, tick: WallTime) -> Arc<str> {
    format!("{REQUESTED_PREFIX}{request}/{job}/{:020}", tick.as_micros()).into()
}

/// Returns the job and the tick from the key of a run, which is `tick/JOB/TIME` or `run/REQUEST/JOB/TIME`.
/// Returns `None` for any other key.
pub(in crate::scheduler) fn job_and_tick(key: &str) -> Option<(&str, WallTime)> {
    let requested = || Some(key.strip_prefix(REQUESTED_PREFIX)?.split_once('/')?.1);
    split(key.strip_prefix(TICK_PREFIX).or_else(requested)?)
}

/// Returns the request from the key of a requested run. Returns `None` for any other key.
pub(in crate::scheduler) fn request_of(key: &str) -> Option<RequestId> {
    key.strip_prefix(REQUESTED_PREFIX)?.split_once('/')?.0.parse().ok()
}

/// Splits `JOB/TIME`. The time is in microseconds, written with twenty digits.
fn split(rest: &str) -> Option<(&str, WallTime)> {
    let (job, micros) = rest.rsplit_once('/').filter(|(job, _)| !job.is_empty())?;
    let is_time = micros.len() == 20 && micros.bytes().all(|b| b.is_ascii_digit());
    let micros = is_time.then(|| micros.parse().ok()).flatten()?;
    Some((job, WallTime::from_micros(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: WallTime = WallTime::from_micros(1_741_503_600_000_000);
    const TERM: FencingToken = FencingToken::new(7);

    #[test]
    fn a_later_generation_does_not_start_before_the_run_is_due() {
        let (open, at) = (open(), WallTime::from_micros);
        let next = |now| {
            let next = open.next_generation(at(now));
            (next.generation, next.cause, next.not_before, next.take_by)
        };
        assert_eq!(open.not_before, at(6));
        assert_eq!(next(5), (3, RunCause::CatchUp, at(6), at(6) + TAKE_WITHIN), "its worker was gone before");
        assert_eq!(next(9), (3, RunCause::CatchUp, at(9), at(9) + TAKE_WITHIN));
    }

    #[test]
    fn records_survive_a_round_trip() {
        let (took, under) = (Duration::from_micros(250), (TERM, WallTime::from_micros(5)));
        let closed = |end| RunRecord::closed("d", (end, ""), None, under);
        for (record, text) in [
            (RunRecord::started("a", under), r#"{"state":"started","worker":"a","term":7,"at":5}"#),
            (
                RunRecord::closed("b \"c\"\n", (RunOutcome::Done, "exit 0"), Some(took), under),
                r#"{"state":"closed","worker":"b \"c\"\n","end":"done","outcome":"exit 0","took":250,"term":7,"at":5}"#,
            ),
            (
                closed(RunOutcome::Lost),
                r#"{"state":"closed","worker":"d","end":"lost","outcome":"","term":7,"at":5}"#,
            ),
            (
                closed(RunOutcome::SkippedMisfire).closing_from(Some(WallTime::from_micros(3))),
                r#"{"state":"closed","worker":"d","end":"skipped-misfire","outcome":"","term":7,"at":5,"from":3}"#,
            ),
            (
                RunRecord::Open(open()),
                r#"{"state":"open","generation":2,"at":5,"not_before":6,"take_by":7,"delivery":"at-least-once","cause":"scheduled","term":7,"token":7}"#,
            ),
        ] {
            assert_eq!(&*record.to_value(), text);
            assert_eq!((record.term(), record.at()), under);
            assert_eq!(RunRecord::parse(text), Ok(record));
        }
    }

    fn open() -> OpenRun {
        let at = WallTime::from_micros;
        OpenRun {
            generation: 2,
            at: at(5),
            not_before: at(6),
            take_by: at(7),
            delivery: Delivery::AtLeastOnce,
            cause: RunCause::Scheduled,
            term: TERM,
            labels: Default::default(),
            uses: None,
            state: None,
            cancel: None,
            payload: None,
            job: None,
            token: TERM,
            to: None,
        }
    }

    #[test]
    fn the_key_of_a_run_names_its_job_and_its_tick() {
        let id = RequestId::from_u128(0xab);
        assert_eq!(job_and_tick(&requested_key(id, "a/b", TICK)), Some(("a/b", TICK)));
        assert_eq!(job_and_tick(&RunKey::new("a/b", TICK).key()), Some(("a/b", TICK)));
        assert_eq!(request_of(&requested_key(id, "a/b", TICK)), Some(id));
        assert_eq!(request_of(&RunKey::new("a/b", TICK).key()), None);
        let tick = WallTime::from_micros(5);
        assert_eq!(job_and_tick(&RunKey::new("nightly", tick).key()), Some(("nightly", tick)));
        assert_eq!(job_and_tick("run/00ab/nightly/00000000000000000005"), Some(("nightly", tick)));
        assert_eq!(["open", "job/j", "run/x", "tick/j"].map(job_and_tick), [None, None, None, None]);
    }

    #[test]
    fn a_value_that_is_not_a_record_is_refused() {
        for text in [
            "",
            "started",
            r#"{"state":"started","worker":"a"}"#,
            r#"{"state":"Started","worker":"a","term":7,"at":5}"#,
            r#"{"state":"paused","worker":"a","term":7,"at":5}"#,
            r#"{"state":"started","worker":"a","term":7,"at":5,"since":3}"#,
            r#"{"state":"closed","worker":"a","end":"done","took":-1,"outcome":"","term":7,"at":5}"#,
            r#"{"state":"closed","worker":"a","end":"done","took":1,"term":7,"at":5}"#,
            r#"{"state":"open","generation":1}"#,
            r#"{"state":"started","worker":"a","term":7,"at":5} x"#,
        ] {
            let error = RunRecord::parse(text).unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_outcome_is_cut_between_two_characters() {
        let length = |outcome: &str| {
            let record = RunRecord::closed("a", (RunOutcome::Failed, outcome), None, (TERM, TICK));
            let RunRecord::Closed { outcome, .. } = record else { panic!("not closed") };
            outcome.len()
        };
        let long = "ї".repeat(600);
        assert_eq!((length(&long), length(&format!("x{long}"))), (512, 511));
    }

    #[test]
    fn keys_survive_a_round_trip_and_sort_by_time() {
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
