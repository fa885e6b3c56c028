use super::{RecordError, RequestId};
use crate::{env::WallTime, schedule::ScheduleSpec};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// How many requests a row remembers.
const ASKED_MAX: usize = 8;
/// And how many of those to cancel what runs.
const CANCELS_MAX: usize = 32;
/// For how long it remembers these: every worker has looked by then.
const CANCELS_KEPT: Duration = Duration::from_secs(600);

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
    /// Whether its ticks are spread over the workers.
    #[serde(default)]
    pub spread: bool,
    /// Where each tick hangs on the end of the run before it: that end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallTime>,
    /// How long after its time a tick may still be made up, where a leader runs it: so long the ledger remembers, also
    /// under leaders that do not know of the job. (Rows of older versions do not say.)
    #[serde(default, with = "super::wire::maybe_millis", skip_serializing_if = "Option::is_none")]
    pub window: Option<Duration>,
    /// The schedule, to be read back; `None` for a timetable of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ScheduleSpec>,
    /// The last requests that changed it, the newest last, at most eight: so that one that comes again, after its leader
    /// died before it answered, is known to have been carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<RequestId>,
    /// Which runs on workers are to stop, those of the last ten minutes, and ticks that were named: of a job that is spread the
    /// workers look here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancels: Vec<Cancelled>,
}

/// That what runs is to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// The request: each worker heeds it once.
    #[serde(default = "RequestId::none")]
    pub id: RequestId,
    /// Who asked for it.
    pub by: Arc<str>,
    /// When: what begins later than this, and than clocks are apart, is not meant, but for the tick that is named.
    pub at: WallTime,
    /// The run of this tick alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<WallTime>,
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
    pub(in crate::schedule) fn changed_by(&mut self, request: RequestId) {
        self.rev += 1;
        self.asked.push(request);
        let excess = self.asked.len().saturating_sub(ASKED_MAX);
        self.asked.drain(..excess);
    }

    /// That workers are to stop what they run. False where too many stand that some worker may not have seen. A tick that
    /// is named stays for as long as there is room: it may be due again hours later.
    #[must_use]
    pub(in crate::schedule) fn cancel(&mut self, cancelled: Cancelled) -> bool {
        let old = |one: &Cancelled| one.at + CANCELS_KEPT <= cancelled.at;
        self.cancels.retain(|one| !old(one) || one.tick.is_some_and(|tick| cancelled.tick != Some(tick)));
        if self.cancels.len() >= CANCELS_MAX
            && let Some(at) = self.cancels.iter().position(old)
        {
            self.cancels.remove(at);
        }
        let room = self.cancels.len() < CANCELS_MAX;
        if room {
            self.cancels.push(cancelled);
        }
        room
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
        assert_eq!((row.rev, row.asked.len(), row.asked.last()), (23, 8, Some(&RequestId::from_u128(20))));
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row);
        let id = RequestId::from_u128(7);
        let cancel = |at: u64| Cancelled { id, by: "me".into(), at: WallTime::from_micros(at), tick: None };
        assert!(row.cancel(cancel(9)));
        let id = "00000000000000000000000000000007";
        let text = format!(r#""cancels":[{{"id":"{id}","by":"me","at":9}}]}}"#);
        assert!(row.to_value().ends_with(&text), "{}", row.to_value());
        (1..32).for_each(|at| assert!(row.cancel(cancel(at))));
        assert!(!row.cancel(cancel(40)), "more than any worker may have missed");
        assert_eq!(row.cancels.len(), 32);
        assert!(
            row.cancel(cancel(600_000_009)) && row.cancels.len() == 23,
            "those of ten minutes ago are gone"
        );
        let named = |at| Cancelled { tick: Some(WallTime::from_micros(5)), ..cancel(at) };
        row.cancels = vec![named(1)];
        (0..31).for_each(|_| assert!(row.cancel(cancel(700_000_000))));
        assert_eq!(row.cancels[0], named(1), "a tick that is named stays");
        assert!(row.cancel(cancel(700_000_000)) && !row.cancels.contains(&named(1)), "while there is room");
        assert_eq!(JobRow::parse(&row.to_value()).unwrap(), row);
        let old = JobRow::parse("1700000000000000").unwrap();
        assert_eq!((old.since.as_micros(), old.rev, &*old.schedule), (1_700_000_000_000_000, 0, ""));
        assert!(JobRow::parse("{}").unwrap_err().to_string().contains("cannot be read"));
    }
}
