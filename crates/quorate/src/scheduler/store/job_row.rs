use crate::scheduler::{control::RequestId, store::RecordError};
use crate::{env::WallTime, node::FencingToken, scheduler::schedule::ScheduleSpec};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The time of records that pruning never reaches: the largest that a node's Lua can compare.
pub(in crate::scheduler) const FOR_EVER: WallTime = WallTime::from_micros(FencingToken::MAX.get());
/// How many requests a row remembers.
const ASKED_MAX: usize = 8;

/// A job's row in its group's ledger, under `job/NAME`: written by the leader, read by whoever wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// No tick before this is due: when the job, or its present schedule, was first seen.
    pub since: WallTime,
    /// How often the row has been changed: of several rows the one of the highest term and revision counts.
    pub rev: u64,
    /// The schedule, as people write it.
    pub schedule: Arc<str>,
    /// That it is paused, by whom, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// The misfire, overlap, delivery and placement rules, for people.
    #[serde(default)]
    pub rules: Arc<str>,
    /// True if its ticks run on any worker.
    #[serde(default, rename = "spread")]
    pub any_worker: bool,
    /// Where each tick hangs on the end of the run before it: that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallTime>,
    /// How long after its time a tick may still be made up, where a leader runs it: so long the ledger remembers, also
    /// under leaders that do not know of the job. (RowWriter of older versions do not say.)
    #[serde(default, with = "super::wire::maybe_millis", skip_serializing_if = "Option::is_none")]
    pub window: Option<Duration>,
    /// The schedule, to be read back; `None` for a timetable of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ScheduleSpec>,
    /// The last requests that changed it, the newest last, at most eight: so that one that comes again, after its leader
    /// died before it answered, is known to have been carried out.
    #[serde(default, rename = "asked", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestId>,
}

/// That a job is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Who asked for it.
    pub by: Arc<str>,
    /// Since when.
    pub at: WallTime,
}

impl JobRow {
    /// What the keys of rows begin with.
    pub const PREFIX: &str = "job/";

    /// The key of a job's row.
    pub fn key(job: &str) -> Arc<str> {
        format!("{}{job}", Self::PREFIX).into()
    }

    /// That a request has changed it.
    pub(in crate::scheduler) fn changed_by(&mut self, request: RequestId) {
        self.rev += 1;
        self.requests.push(request);
        let excess = self.requests.len().saturating_sub(ASKED_MAX);
        self.requests.drain(..excess);
    }

    /// The value of its record.
    pub fn to_value(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Reads a record's value: a row, or what versions before 0.2 wrote, the bare microseconds of `since`.
    ///
    /// # Errors
    /// [`RecordError`] where it is neither.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        if let Ok(micros) = value.parse() {
            let since = WallTime::from_micros(micros);
            return Ok(Self { since, ..Self::default() });
        }
        serde_json::from_str(value).map_err(|error| RecordError::new("job row", value, &error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_both_ways_and_old_ones_are_read() {
        let mut row = JobRow {
            since: WallTime::from_micros(7),
            rev: 3,
            schedule: "every 1s".into(),
            rules: "skip".into(),
            ..JobRow::default()
        };
        let text = r#"{"since":7,"rev":3,"schedule":"every 1s","rules":"skip","spread":false}"#;
        assert_eq!(&*row.to_value(), text);
        assert_eq!(JobRow::parse(text).unwrap(), row);
        row.paused = Some(Paused { by: "me".into(), at: WallTime::from_micros(9) });
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row);
        row.window = Some(Duration::from_millis(1_500));
        assert!(row.to_value().contains(r#""window":1500"#));
        (1..=20).for_each(|id| row.changed_by(RequestId::from_u128(id)));
        assert_eq!(
            (row.rev, row.requests.len(), row.requests.last()),
            (23, 8, Some(&RequestId::from_u128(20)))
        );
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row);
        let old = JobRow::parse("1700000000000000").unwrap();
        assert_eq!((old.since.as_micros(), old.rev, &*old.schedule), (1_700_000_000_000_000, 0, ""));
        assert!(JobRow::parse("{}").unwrap_err().to_string().contains("cannot be read"));
    }
}
