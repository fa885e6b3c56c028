use super::TickEnd;
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

/// How a tick stands in the ledger: the value of its [`Record`].
///
/// Whether it is the last word is not said here but by [`Record::last`]: a *failed* tick may be tried again
/// or be given up.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "state", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum TickRecord {
    /// A worker was about to start it.
    Started {
        /// The worker.
        worker: Arc<str>,
    },
    /// It ran to its end.
    Done {
        /// The worker.
        worker: Arc<str>,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// What came of it, for people; may be empty.
        outcome: Arc<str>,
    },
    /// It ran and failed.
    Failed {
        /// The worker.
        worker: Arc<str>,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// The error, for people.
        outcome: Arc<str>,
    },
    /// It ended in another way: was skipped, cancelled or lost, or took too long.
    Closed {
        /// Who says so.
        worker: Arc<str>,
        /// In which way.
        end: TickEnd,
        /// Why, for people.
        outcome: Arc<str>,
    },
}

impl TickRecord {
    /// *Started by* `worker`.
    pub fn started(worker: &str) -> Self {
        Self::Started { worker: worker.into() }
    }

    /// *Done by* `worker`; an `outcome` over 512 bytes is cut.
    pub fn done(worker: &str, took: Duration, outcome: &str) -> Self {
        Self::Done { worker: worker.into(), took_ms: millis(took), outcome: cut(outcome) }
    }

    /// *Failed under* `worker`; an `outcome` over 512 bytes is cut.
    pub fn failed(worker: &str, took: Duration, outcome: &str) -> Self {
        Self::Failed { worker: worker.into(), took_ms: millis(took), outcome: cut(outcome) }
    }

    /// *Ended in another way*, as `worker` says; an `outcome` over 512 bytes is cut.
    pub fn closed(worker: &str, end: TickEnd, outcome: &str) -> Self {
        Self::Closed { worker: worker.into(), end, outcome: cut(outcome) }
    }

    /// Who wrote it.
    pub fn worker(&self) -> &Arc<str> {
        match self {
            Self::Started { worker }
            | Self::Done { worker, .. }
            | Self::Failed { worker, .. }
            | Self::Closed { worker, .. } => worker,
        }
    }

    /// The ledger record of `tick` under `term`. *Done* and *closed* are always the last word; of the others `last`
    /// says.
    pub fn into_record(self, tick: WallTime, term: FencingToken, last: bool) -> Record {
        let last = last || matches!(self, Self::Done { .. } | Self::Closed { .. });
        let value = serde_json::to_string(&self).unwrap_or_default().into();
        Record { at: tick.as_micros(), term, last, value }
    }

    /// Reads a record's value.
    ///
    /// # Errors
    /// [`RecordError`] where it is not, to the letter, what [`TickRecord::into_record`] writes.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        serde_json::from_str(value).map_err(|error| RecordError::new("record", value, &error.to_string()))
    }
}

/// Under which key a tick stands in its group's ledger: keys of one job sort by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TickKey {
    /// The job's name.
    pub job: Arc<str>,
    /// When the tick is due.
    pub tick: WallTime,
}

impl TickKey {
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
    pub(in crate::schedule) fn new(what: &'static str, text: &str, why: &str) -> Self {
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
            (TickRecord::started("a"), r#"{"state":"started","worker":"a"}"#),
            (
                TickRecord::done("b \"c\"\n", took, "exit 0"),
                r#"{"state":"done","worker":"b \"c\"\n","took_ms":1250,"outcome":"exit 0"}"#,
            ),
            (
                TickRecord::failed("d", took, "exit 1"),
                r#"{"state":"failed","worker":"d","took_ms":1250,"outcome":"exit 1"}"#,
            ),
            (
                TickRecord::closed("d", TickEnd::TimedOut, "after 1s"),
                r#"{"state":"closed","worker":"d","end":"timed-out","outcome":"after 1s"}"#,
            ),
        ] {
            let stood = record.clone().into_record(TICK, TERM, false);
            assert_eq!(&*stood.value, text);
            assert_eq!((stood.at, stood.term), (TICK.as_micros(), TERM));
            assert_eq!(TickRecord::parse(&stood.value), Ok(record));
        }
    }

    #[test]
    fn done_is_always_the_last_word() {
        assert!(TickRecord::done("a", Duration::ZERO, "").into_record(TICK, TERM, false).last);
        assert!(TickRecord::closed("a", TickEnd::Lost, "").into_record(TICK, TERM, false).last);
        assert!(!TickRecord::started("a").into_record(TICK, TERM, false).last);
        assert!(!TickRecord::failed("a", Duration::ZERO, "").into_record(TICK, TERM, false).last);
        assert!(TickRecord::failed("a", Duration::ZERO, "").into_record(TICK, TERM, true).last);
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
            r#"{"state":"done","worker":"a","took_ms":-1,"outcome":""}"#,
            r#"{"state":"done","worker":"a","took_ms":1}"#,
            r#"{"state":"started","worker":"a"} x"#,
        ] {
            let error = TickRecord::parse(text).unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_outcome_is_cut_between_letters() {
        let long = "ї".repeat(600);
        let TickRecord::Done { outcome, .. } = TickRecord::done("a", Duration::ZERO, &long) else {
            panic!("done is done")
        };
        assert_eq!(outcome.len(), 512);
        let odd = format!("x{long}");
        let TickRecord::Failed { outcome, .. } = TickRecord::failed("a", Duration::ZERO, &odd) else {
            panic!("failed is failed")
        };
        assert_eq!(outcome.len(), 511);
    }

    #[test]
    fn keys_go_both_ways_and_sort_by_time() {
        for job in ["nightly", "a/b", "tick/"] {
            let key = TickKey::new(job, TICK);
            assert_eq!(TickKey::parse(&key.key()), Ok(Some(key)));
        }
        assert_eq!(&*TickKey::new("nightly", TICK).key(), "tick/nightly/00001741503600000000");
        assert!(
            TickKey::new("a", WallTime::from_micros(9)).key()
                < TickKey::new("a", WallTime::from_micros(10)).key()
        );
        assert_eq!(TickKey::parse("pause/nightly"), Ok(None));
        for key in [
            "tick/",
            "tick/a",
            "tick/a/5",
            "tick//00001741503600000000",
            "tick/a/+0001741503600000000",
            "tick/a/99999999999999999999",
        ] {
            assert!(TickKey::parse(key).is_err(), "{key}");
        }
    }
}
