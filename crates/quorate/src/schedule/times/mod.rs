//! Points on the wall clock: when a job is due. Pure.

mod cron;
mod crontab;
mod every;
mod local;
mod schedule;
mod zone;

pub use cron::Cron;
pub use crontab::CronError;
pub use every::{Every, EveryError, every};
pub use schedule::Schedule;
pub use zone::{Zone, ZoneError};
