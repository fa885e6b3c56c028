use crate::{
    env::WallTime,
    scheduler::schedule::{
        after::AfterEnd,
        cron::Cron,
        days::Days,
        delay::Delay,
        dst::Dst,
        error::InvalidSchedule,
        every::Every,
        kinds::{Kind, Schedule},
    },
};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// A schedule as data, in the form that the ledger stores. [`Schedule::spec`] creates it, and
/// [`Schedule::from_spec`] converts it back to a schedule.
///
/// A spec can be read even if this version cannot use its schedule. A kind of schedule that a newer version has
/// added is read as [`ScheduleSpec::Unknown`]. If the line or the zone is invalid, only [`Schedule::from_spec`]
/// returns an error. A [`Timetable`](super::Timetable) has no spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ScheduleSpec {
    /// A schedule that [`Schedule::every`] returns.
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
    /// A schedule that [`Schedule::delay`] returns.
    Delay {
        /// The time between the end of a run and the next tick, in microseconds.
        micros: u64,
    },
    /// [`Schedule::at`].
    At {
        /// The time of the tick, in microseconds since the Unix epoch.
        micros: u64,
    },
    /// A schedule that [`Schedule::after`] returns.
    After {
        /// The job that it follows.
        job: Arc<str>,
        /// The ends that it follows.
        on: AfterEnd,
    },
    /// A schedule with ticks on some days only.
    Days {
        /// The schedule without these days.
        of: Box<ScheduleSpec>,
        /// The days without ticks, such as `2027-12-25`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        except: Vec<Arc<str>>,
        /// The first day.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Arc<str>>,
        /// The last day.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Arc<str>>,
    },
    /// A kind of schedule that this version does not know, because a later version added it.
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

impl Schedule {
    /// Returns the schedule as data, or `None` for a [`Timetable`](super::Timetable).
    #[doc(hidden)]
    pub fn spec(&self) -> Option<ScheduleSpec> {
        let of = self.spec_of_kind()?;
        let Some(days) = &self.days else { return Some(of) };
        let text = |day: Option<Date>| day.map(|day| day.to_string().into());
        Some(ScheduleSpec::Days {
            of: Box::new(of),
            except: Days::texts(days.except.iter().copied()),
            from: text(days.from),
            until: text(days.until),
        })
    }

    fn spec_of_kind(&self) -> Option<ScheduleSpec> {
        Some(match &self.kind {
            Kind::Every(every) => ScheduleSpec::Every { micros: micros(every.period()) },
            Kind::Cron(cron) => ScheduleSpec::Cron {
                line: cron.text().into(),
                zone: cron.zone_of().name().into(),
                dst: cron.dst_rule().name().into(),
            },
            Kind::Delay(delay) => ScheduleSpec::Delay { micros: micros(delay.time()) },
            Kind::At(at) => ScheduleSpec::At { micros: at.0.as_micros() },
            Kind::After(of) => ScheduleSpec::After { job: Arc::clone(&of.job), on: of.on },
            Kind::Custom(_) => return None,
        })
    }

    /// Converts a spec to a schedule.
    ///
    /// # Errors
    /// [`InvalidSchedule`].
    #[doc(hidden)]
    pub fn from_spec(spec: &ScheduleSpec) -> Result<Self, InvalidSchedule> {
        Ok(match spec {
            ScheduleSpec::Every { micros } => {
                Self::of(Kind::Every(Every::new(Duration::from_micros(*micros))?))
            }
            ScheduleSpec::Cron { line, zone, dst } => Cron::read(line)?.zone(zone)?.dst(dst.parse()?).into(),
            ScheduleSpec::Delay { micros } => {
                Self::of(Kind::Delay(Delay::new(Duration::from_micros(*micros))?))
            }
            ScheduleSpec::At { micros } => Schedule::at(WallTime::from_micros(*micros)),
            ScheduleSpec::After { job, on } => Schedule::after(job, *on),
            ScheduleSpec::Days { of, except, from, until } => {
                let mut schedule = Self::from_spec(of)?.except(except)?;
                if let Some(from) = from {
                    schedule = schedule.from_day(from)?;
                }
                if let Some(until) = until {
                    schedule = schedule.until_day(until)?;
                }
                schedule
            }
            ScheduleSpec::Unknown => return Err(InvalidSchedule::UnknownKind),
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::schedule::Schedule;

    fn json(schedule: &Schedule) -> String {
        serde_json::to_string(&schedule.spec().unwrap()).unwrap()
    }

    fn read(json: &str) -> Result<Schedule, InvalidSchedule> {
        Schedule::from_spec(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_schedule_is_read_back_as_it_was_written() {
        let second = Duration::from_secs(1);
        let cron = |line: &str| Cron::parse(line).unwrap();
        let table: [(Schedule, &str); 6] = [
            (Schedule::every(second).unwrap(), r#"{"kind":"every","micros":1000000}"#),
            (Schedule::delay(second).unwrap(), r#"{"kind":"delay","micros":1000000}"#),
            (Schedule::at(WallTime::from_micros(5)), r#"{"kind":"at","micros":5}"#),
            (cron("0  3 * * *").into(), r#"{"kind":"cron","line":"0 3 * * *"}"#),
            (cron("@daily").into(), r#"{"kind":"cron","line":"@daily"}"#),
            (
                cron("0 0 3 L * *").zone("Europe/Kyiv").unwrap().dst(Dst::Both).into(),
                r#"{"kind":"cron","line":"0 0 3 L * *","zone":"Europe/Kyiv","dst":"both"}"#,
            ),
        ];
        for (schedule, text) in table {
            assert_eq!(json(&schedule), text);
            assert_eq!(read(text).unwrap(), schedule, "{text}");
        }
    }

    #[cfg(feature = "cron-crate")]
    #[test]
    fn a_schedule_of_the_cron_crate_is_read_back_as_a_line() {
        let never: ::cron::Schedule = "0 0 0 30 2 *".parse().unwrap();
        let (schedule, text) = (Cron::from(never).into(), r#"{"kind":"cron","line":"0 0 0 30 2 *"}"#);
        assert_eq!(json(&schedule), text);
        assert_eq!(read(text).unwrap(), schedule);
    }

    #[test]
    fn an_invalid_spec_gives_the_reason() {
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
