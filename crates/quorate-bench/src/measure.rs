//! Clocks, processor time, memory, and statistics of many measurements.

use nix::sys::resource::{UsageWho, getrusage};
use quorate::env::{BootTime, SystemWorld, World};
use std::{fs, time::Duration};

pub(crate) fn now() -> BootTime {
    SystemWorld.now()
}

/// Returns the processor time of this process so far, in user mode and in the kernel.
pub(crate) fn cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |at: nix::sys::time::TimeVal| {
        let (seconds, micros) = (at.tv_sec().unsigned_abs(), at.tv_usec().unsigned_abs());
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The measured durations of one kind of operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a quantile: the fraction `share` of the samples is no longer than the returned duration.
    /// Returns zero if there are no samples.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * share) as usize;
        sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.quantile(1.0)
    }
}

/// The median of figures, and the smallest and the largest figure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or_default();
        let last = figures.len().saturating_sub(1);
        let median = (at(last / 2) + at(last.div_ceil(2))) / 2.0;
        Self { median, least: at(0), most: at(last) }
    }
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
