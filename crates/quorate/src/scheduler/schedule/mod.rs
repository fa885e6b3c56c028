//! Points on the wall clock: when a job is due. Pure.

mod at;
mod cron;
#[cfg(feature = "cron-crate")]
mod cron_crate;
mod crontab;
mod delay;
mod dst;
mod every;
mod kinds;
mod line;
mod local;
mod spec;
mod timetable;
mod zone;

pub use at::{At, at};
pub use cron::Cron;
pub use crontab::CronError;
pub use delay::{Delay, delay};
pub use dst::{Dst, DstError};
pub use every::{Every, EveryError, every};
pub use kinds::Schedule;
pub use spec::{ScheduleSpec, SpecError};
pub use timetable::{CustomSchedule, Timetable};
pub use zone::{Zone, ZoneError};
