use crate::env::WallTime;
use crate::scheduler::schedule::{Cron, CronError, Delay, Dst, DstError, Every, EveryError, Schedule, at};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// A schedule as it is written down, in the ledger for one: [`Schedule::spec`] makes it,
/// [`Schedule::from_spec`] reads it.
///
/// It is plain data, so that whoever reads a row need not understand it: a kind that a newer version has added
/// reads as [`ScheduleSpec::Unknown`], and what is wrong with a line or a zone is found by
/// [`Schedule::from_spec`]. A [`Timetable`](super::Timetable) of one's own has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ScheduleSpec {
    /// [`Every`].
    Every {
        /// The period, in microseconds.
        micros: u64,
    },
    /// [`Cron`].
    Cron {
        /// The line.
        line: Arc<str>,
        /// The zone's IANA name.
        #[serde(default = "utc", skip_serializing_if = "is_utc")]
        zone: Arc<str>,
        /// The name of the [`Dst`] rule.
        #[serde(default = "vixie", skip_serializing_if = "is_vixie")]
        dst: Arc<str>,
    },
    /// [`Delay`].
    Delay {
        /// How long after the last end, in microseconds.
        micros: u64,
    },
    /// [`At`](super::At).
    At {
        /// When, in microseconds since the Unix epoch.
        micros: u64,
    },
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

fn utc() -> Arc<str> {
    "UTC".into()
}

fn is_utc(zone: &Arc<str>) -> bool {
    **zone == *"UTC"
}

fn vixie() -> Arc<str> {
    Dst::Vixie.name().into()
}

fn is_vixie(dst: &Arc<str>) -> bool {
    **dst == *Dst::Vixie.name()
}

/// A schedule that was written down and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The line or the zone.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The rule for skipped and repeated hours.
    #[error(transparent)]
    Dst(#[from] DstError),
    /// The period or the delay.
    #[error(transparent)]
    Period(#[from] EveryError),
    /// Its kind.
    #[error("the schedule is of a kind that this version does not know; update this program")]
    Unknown,
}

impl Schedule {
    /// The schedule as data; `None` for a timetable of one's own.
    pub fn spec(&self) -> Option<ScheduleSpec> {
        Some(match self {
            Self::Every(every) => ScheduleSpec::Every { micros: micros(every.period()) },
            Self::Cron(cron) => ScheduleSpec::Cron {
                line: cron.text().into(),
                zone: cron.zone_of().name().into(),
                dst: cron.dst_rule().name().into(),
            },
            Self::Delay(delay) => ScheduleSpec::Delay { micros: micros(delay.time()) },
            Self::At(at) => ScheduleSpec::At { micros: at.moment().as_micros() },
            Self::Custom(_) => return None,
        })
    }

    /// The schedule that was written down as `spec`.
    ///
    /// # Errors
    /// [`SpecError`], which names what cannot be read.
    pub fn from_spec(spec: &ScheduleSpec) -> Result<Self, SpecError> {
        Ok(match spec {
            ScheduleSpec::Every { micros } => Every::new(Duration::from_micros(*micros))?.into(),
            ScheduleSpec::Cron { line, zone, dst } => {
                Cron::written(line)?.zone(zone)?.dst(dst.parse()?).into()
            }
            ScheduleSpec::Delay { micros } => Delay::new(Duration::from_micros(*micros))?.into(),
            ScheduleSpec::At { micros } => at(WallTime::from_micros(*micros)).into(),
            ScheduleSpec::Unknown => return Err(SpecError::Unknown),
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::scheduler::{delay, every},
    };

    fn json(schedule: &Schedule) -> String {
        serde_json::to_string(&schedule.spec().unwrap()).unwrap()
    }

    fn read(json: &str) -> Result<Schedule, SpecError> {
        Schedule::from_spec(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn every_schedule_comes_back_as_it_was() {
        let second = Duration::from_secs(1);
        let cron = |line: &str| Cron::parse(line).unwrap();
        let never: ::cron::Schedule = "0 0 0 30 2 *".parse().unwrap();
        let table: [(Schedule, &str); 7] = [
            (every(second).unwrap().into(), r#"{"kind":"every","micros":1000000}"#),
            (delay(second).unwrap().into(), r#"{"kind":"delay","micros":1000000}"#),
            (at(WallTime::from_micros(5)).into(), r#"{"kind":"at","micros":5}"#),
            (cron("0  3 * * *").into(), r#"{"kind":"cron","line":"0 3 * * *"}"#),
            (cron("@daily").into(), r#"{"kind":"cron","line":"@daily"}"#),
            (
                cron("0 0 3 L * *").zone("Europe/Kyiv").unwrap().dst(Dst::Both).into(),
                r#"{"kind":"cron","line":"0 0 3 L * *","zone":"Europe/Kyiv","dst":"both"}"#,
            ),
            (Cron::from(never).into(), r#"{"kind":"cron","line":"0 0 0 30 2 *"}"#),
        ];
        for (schedule, text) in table {
            assert_eq!(json(&schedule), text);
            assert_eq!(read(text).unwrap(), schedule, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let table = [
            (r#"{"kind":"cron","line":"61 3 * * *"}"#, "minute `61` is not within 0-59"),
            (r#"{"kind":"cron","line":"0 3 * * *","zone":"Mars/Utopia"}"#, "unknown zone `Mars/Utopia`"),
            (r#"{"kind":"cron","line":"0 3 * * *","dst":"quartz"}"#, "unknown rule `quartz`"),
            (r#"{"kind":"every","micros":10}"#, "the period 10µs cannot be kept"),
            (r#"{"kind":"delay","micros":0}"#, "the delay 0ns cannot be kept"),
            (r#"{"kind":"moon","phase":"full"}"#, "update this program"),
        ];
        for (text, part) in table {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
