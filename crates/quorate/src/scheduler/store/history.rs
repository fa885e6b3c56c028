use crate::scheduler::{control::RequestId, store::RecordError};
use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// The longest reason that an entry keeps, in bytes.
const REASON_MAX: usize = 512;

/// One tick (or a span of ticks that were skipped together), as it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The job.
    pub job: Arc<str>,
    /// When it was due. In JSON microseconds since 1970, as every time here.
    pub tick: WallTime,
    /// The last of the span, where the entry stands for several skipped ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
    /// Why it was to run.
    pub cause: RunCause,
    /// How it ended.
    pub end: RunOutcome,
    /// For people: the error, why it was skipped, why it was cancelled. May be empty.
    pub reason: Arc<str>,
    /// Who ran it, or decided on it.
    pub worker: Arc<str>,
    /// The term in which it was started, or opened to workers first.
    pub term: FencingToken,
    /// When its first attempt began; `None` where it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<WallTime>,
    /// How long it took, all attempts and the waits between them. In JSON milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "super::wire::maybe_millis")]
    pub took: Option<Duration>,
    /// How many attempts there were.
    pub attempts: u32,
    /// The tail of its output, only where the job asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<str>>,
}

/// How a tick ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RunOutcome {
    /// It ran to its end.
    Done,
    /// Its last attempt failed.
    Failed,
    /// Its last attempt took longer than it may.
    TimedOut,
    /// It was told to stop: at a step-down, by a later tick, or on request; the reason says.
    Cancelled,
    /// An earlier run of the job went on.
    SkippedOverlap,
    /// Nobody ran it in time.
    SkippedMisfire,
    /// The job was paused.
    SkippedPaused,
    /// It was started, and nobody knows how it ended.
    Lost,
}

impl RunOutcome {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Done,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::SkippedOverlap,
        Self::SkippedMisfire,
        Self::SkippedPaused,
        Self::Lost,
    ];

    /// Its name in JSON, in events and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::SkippedOverlap => "skipped-overlap",
            Self::SkippedMisfire => "skipped-misfire",
            Self::SkippedPaused => "skipped-paused",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a tick was to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RunCause {
    /// It was due.
    Scheduled,
    /// It was missed or interrupted, and is made up.
    CatchUp,
    /// Somebody asked for a run now.
    Triggered {
        /// The request.
        id: RequestId,
    },
    /// Somebody asked for the runs of a span.
    Backfilled {
        /// The request.
        id: RequestId,
    },
}

impl RunCause {
    /// The request behind it.
    pub const fn request(self) -> Option<RequestId> {
        match self {
            Self::Scheduled | Self::CatchUp => None,
            Self::Triggered { id } | Self::Backfilled { id } => Some(id),
        }
    }
}

impl fmt::Display for RunCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Scheduled => "scheduled",
            Self::CatchUp => "made-up",
            Self::Triggered { .. } => "triggered",
            Self::Backfilled { .. } => "backfilled",
        })
    }
}

impl HistoryEntry {
    /// The name of the part of a group's ledger that holds a job's history.
    pub fn part(job: &str) -> String {
        format!("history:{job}")
    }

    /// The key of the entry: by tick, then by the run. One run has one entry, whoever writes it.
    pub fn key(&self) -> Arc<str> {
        let (tick, term) = (self.tick.as_micros(), self.term.get());
        match self.cause.request() {
            None => format!("{tick:020}/{term:016}").into(),
            Some(id) => format!("{tick:020}/{term:016}-{id}").into(),
        }
    }

    /// The record of the entry, written at `now`. A reason over 512 bytes is cut.
    ///
    /// The record's own term is 0, whatever term the entry tells of: nobody seals a history, and a node refuses
    /// records of older terms than the newest that wrote to a ledger.
    pub fn into_record(mut self, now: WallTime) -> Record {
        self.reason = crate::node::engine::cut(&self.reason, REASON_MAX).into();
        let value = serde_json::to_string(&self).unwrap_or_default().into();
        Record { at: now.as_micros(), term: FencingToken::default(), last: true, value }
    }

    /// Reads an entry's record.
    ///
    /// # Errors
    /// [`RecordError`] where it is none.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        serde_json::from_str(value)
            .map_err(|error| RecordError::new("history entry", value, &error.to_string()))
    }

    /// What the nodes together know of a job's history, oldest tick first: the union of their answers. Of two
    /// entries of one run the one that knows how it ended counts. What cannot be read is given beside.
    pub fn merge(answers: &[Answered]) -> (Vec<Self>, Vec<RecordError>) {
        let mut entries: BTreeMap<&str, Self> = BTreeMap::new();
        let mut unread = BTreeMap::new();
        for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
            match Self::parse(&record.value) {
                Ok(entry) => match entries.get(&**key) {
                    Some(known) if known.end != RunOutcome::Lost => {}
                    _ => drop(entries.insert(key, entry)),
                },
                Err(error) => drop(unread.insert(&**key, error)),
            }
        }
        (entries.into_values().collect(), unread.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::Memory, node::LedgerState};

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
            output: None,
        }
    }

    #[test]
    fn entries_go_both_ways() {
        let text = r#"{"job":"j","tick":7,"cause":"scheduled","end":"done","reason":"","worker":"w","term":4,"started":8,"took":12,"attempts":1}"#;
        assert_eq!(serde_json::to_string(&entry(7, RunOutcome::Done)).unwrap(), text);
        assert_eq!(HistoryEntry::parse(text).unwrap(), entry(7, RunOutcome::Done));
        let id = RequestId::from_u128(9);
        for end in RunOutcome::ALL {
            assert_eq!(serde_json::to_string(&end).unwrap(), format!("\"{end}\""));
            let whole = HistoryEntry {
                until: Some(WallTime::from_micros(9)),
                cause: RunCause::Backfilled { id },
                started: None,
                took: None,
                output: Some("tail".into()),
                ..entry(7, end)
            };
            let record = whole.clone().into_record(WallTime::from_micros(99));
            assert_eq!((record.at, record.last, record.term), (99, true, FencingToken::new(0)));
            assert_eq!(HistoryEntry::parse(&record.value).unwrap(), whole);
        }
        assert!(HistoryEntry::parse("{}").unwrap_err().to_string().contains("history entry"));
    }

    #[test]
    fn a_long_reason_is_cut() {
        let long = HistoryEntry { reason: "x".repeat(2_000).into(), ..entry(1, RunOutcome::Failed) };
        let record = long.into_record(WallTime::from_micros(1));
        assert_eq!(HistoryEntry::parse(&record.value).unwrap().reason.len(), REASON_MAX);
    }

    #[test]
    fn the_union_of_answers_prefers_what_knows_the_end() {
        let node = |entries: &[HistoryEntry]| {
            let record =
                |entry: &HistoryEntry| (entry.key(), entry.clone().into_record(WallTime::from_micros(99)));
            let mut records: Vec<_> = entries.iter().map(record).collect();
            records.sort_by(|a, b| a.0.cmp(&b.0));
            let memory = Memory { since: WallTime::default(), max_clock_offset: Duration::ZERO };
            Answered { memory, state: LedgerState { records, ..LedgerState::default() } }
        };
        let (done, lost, other) =
            (entry(5, RunOutcome::Done), entry(5, RunOutcome::Lost), entry(3, RunOutcome::Failed));
        for answers in [
            [node(std::slice::from_ref(&done)), node(&[lost.clone(), other.clone()])],
            [node(&[lost.clone(), other.clone()]), node(std::slice::from_ref(&done))],
        ] {
            assert_eq!(HistoryEntry::merge(&answers).0, [other.clone(), done.clone()]);
        }
        let mut torn = node(std::slice::from_ref(&done));
        torn.state
            .records
            .push(("9".into(), Record { value: "?".into(), ..done.clone().into_record(done.tick) }));
        let (read, unread) = HistoryEntry::merge(&[torn]);
        assert_eq!((read.len(), unread.len()), (1, 1));
    }
}
