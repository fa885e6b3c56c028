//! Schedules: the points on the wall clock at which a job is due. All functions are pure.

mod after;
mod at;
mod cron;
#[cfg(feature = "cron-crate")]
mod cron_crate;
mod crontab;
mod days;
mod delay;
mod dst;
mod error;
mod every;
mod kinds;
mod line;
mod local;
mod offset_change;
mod spec;
mod timetable;
mod words;
mod zone;

pub use after::AfterEnd;
pub use cron::Cron;
pub use dst::Dst;
pub use error::InvalidSchedule;
pub use kinds::Schedule;
pub use offset_change::{OffsetChange, OffsetEffect};
pub use spec::ScheduleSpec;
pub use timetable::Timetable;
pub use zone::Zone;
