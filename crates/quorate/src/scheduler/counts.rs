use crate::{
    env::WallTime,
    measure::{CopyMeasures, JobsMeasures},
    scheduler::job::RunOutcome,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The number of buckets for the durations between one power of two of microseconds and the next.
const PARTS: u32 = 8;

/// The counts of ticks by outcome, since the scheduler was made. A worker counts the ticks that end while it
/// leads. The code that counts a tick here also updates the metrics.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    all: Arc<Mutex<All>>,
    measures: JobsMeasures,
    copies: CopyMeasures,
}

#[derive(Debug, Default)]
struct All {
    jobs: BTreeMap<Arc<str>, JobCounts>,
    lateness: Lateness,
    not_written: u64,
}

/// The number of ticks of all jobs by outcome, for ticks that ended while this worker led: see
/// [`SchedulerHandle::counts`](crate::scheduler::SchedulerHandle::counts).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunCounts {
    /// The counts of each present job. The counts of a removed job are dropped.
    pub jobs: BTreeMap<Arc<str>, JobCounts>,
    /// The lateness of the runs of all jobs. Lateness is the time from the moment at which a run is due (the
    /// tick plus its jitter) to the start of the run. A run is counted only if this worker executed it, and if
    /// its tick was planned in time.
    pub lateness: Lateness,
    /// The number of history entries that were lost, because no majority could be reached and the queue was
    /// full.
    pub not_written: u64,
}

/// The number of ticks of one job by outcome, for ticks that ended while this worker led. Ticks that are
/// skipped together share one history entry, and count as one.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JobCounts {
    /// The number of ticks by outcome.
    pub ends: BTreeMap<RunOutcome, u64>,
    /// The lateness of the job's runs that this worker executed.
    pub lateness: Lateness,
}

/// A distribution of durations. Each duration is stored with an error of at most an eighth of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    buckets: BTreeMap<u32, u64>,
    count: u64,
    max: Duration,
}

impl Lateness {
    /// Returns the number of durations.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the longest duration.
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// Returns a duration that is at least as long as the share `part` (between 0 and 1) of all durations. For
    /// 0.5, this is the median. The result is at most an eighth too large. It is zero if there are no
    /// durations.
    pub fn quantile(&self, part: f64) -> Duration {
        let mut below = 0;
        let target = part.clamp(0.0, 1.0) * self.count as f64;
        for (bucket, count) in &self.buckets {
            below += count;
            if below as f64 >= target {
                return upper(*bucket).min(self.max);
            }
        }
        self.max
    }

    pub(super) fn add(&mut self, time: Duration) {
        *self.buckets.entry(bucket(time)).or_default() += 1;
        self.count += 1;
        self.max = self.max.max(time);
    }
}

/// Returns the number of the bucket that counts `time`. The durations between one power of two of microseconds
/// and the next have eight buckets.
fn bucket(time: Duration) -> u32 {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let doublings = micros.ilog2();
    let part = (u128::from(micros) << 3 >> doublings) & u128::from(PARTS - 1);
    doublings * PARTS + u32::try_from(part).unwrap_or_default()
}

/// Returns the longest duration that a bucket counts.
fn upper(bucket: u32) -> Duration {
    let (doublings, part) = (bucket / PARTS, bucket % PARTS + 1);
    let micros = (u128::from(PARTS + part) << doublings) / u128::from(PARTS);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

impl Counts {
    pub(super) fn new(group: &Arc<str>, nodes: &[Arc<str>]) -> Self {
        let outcomes = RunOutcome::ALL.map(RunOutcome::as_str);
        let (measures, copies) = (JobsMeasures::new(group, outcomes), CopyMeasures::new(group, nodes));
        Self { all: Arc::default(), measures, copies }
    }

    /// Returns the measurements of these jobs for the metrics.
    pub(super) fn measures(&self) -> &JobsMeasures {
        &self.measures
    }

    /// Returns the gauges of the copies of the ledger.
    pub(super) fn copies(&self) -> &CopyMeasures {
        &self.copies
    }

    /// Counts a tick of `job` that has ended at `now`. `took` is the duration of its run, if it has run.
    pub(super) fn ended(&self, job: &Arc<str>, end: RunOutcome, took: Option<Duration>, now: WallTime) {
        self.measures.ended(job, end.as_str(), took);
        if end == RunOutcome::Done {
            self.measures.succeeded(job, now);
        }
        let mut all = self.all();
        let counts = all.jobs.entry(Arc::clone(job)).or_default();
        *counts.ends.entry(end).or_default() += 1;
    }

    pub(super) fn late(&self, job: &Arc<str>, by: Duration) {
        self.measures.late(job, by);
        let mut all = self.all();
        all.lateness.add(by);
        all.jobs.entry(Arc::clone(job)).or_default().lateness.add(by);
    }

    /// Drops the counts and series of all jobs for which `is_present` returns false. Without this, the counts of removed
    /// jobs would accumulate.
    pub(super) fn forget_all_but(&self, is_present: impl Fn(&str) -> bool) {
        self.all().jobs.retain(|job, _| is_present(job));
        self.measures.forget_all_but(is_present);
    }

    pub(super) fn not_written(&self) {
        self.measures.history_lost();
        self.all().not_written += 1;
    }

    pub(super) fn snapshot(&self) -> RunCounts {
        let all = self.all();
        RunCounts { jobs: all.jobs.clone(), lateness: all.lateness.clone(), not_written: all.not_written }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_an_eighth() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.99), Duration::ZERO);
        (1..=1_000).for_each(|micros| lateness.add(Duration::from_micros(micros * 10)));
        for (part, micros) in [(0.5, 5_000), (0.99, 9_900), (0.001, 10)] {
            let found = u64::try_from(lateness.quantile(part).as_micros()).unwrap();
            assert!(found >= micros && found <= micros + micros / 8 + 1, "{part}: {found}");
        }
        assert_eq!(lateness.quantile(1.0), Duration::from_millis(10));
        assert_eq!((lateness.count(), lateness.max()), (1_000, Duration::from_millis(10)));
    }

    #[test]
    fn every_time_is_within_its_bucket() {
        for micros in [1, 2, 7, 8, 9, 15, 16, 1_000, 1_023, 1_024, 987_654_321, u64::MAX] {
            let time = Duration::from_micros(micros);
            assert!(upper(bucket(time)) >= time || micros == u64::MAX, "{micros}");
            assert!(bucket(time) == 0 || upper(bucket(time) - 1) <= time || micros < 8, "{micros}");
        }
        assert_eq!(bucket(Duration::ZERO), 0);
    }
}
