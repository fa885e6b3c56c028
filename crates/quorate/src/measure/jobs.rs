use super::facade::{Counter, Gauge, Histogram, Metric};
use crate::env::WallTime;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const RUNS: Metric = Metric::number(
    "quorate_runs_total",
    "Number of ticks of the job that ended while this process led, by their outcome.",
);
const RUN: Metric = Metric::seconds(
    "quorate_run_seconds",
    "Duration of the job's runs that ended while this process led: all attempts, and the pauses between them.",
);
const LATENESS: Metric = Metric::seconds(
    "quorate_tick_lateness_seconds",
    "Time from the moment at which a run of the job was due to its start on the leader.",
);
const RUNNING: Metric = Metric::number(
    "quorate_job_running",
    "Number of active runs of the job, on any worker; 0 on a follower.",
);
const NEXT: Metric = Metric::seconds(
    "quorate_job_next_timestamp_seconds",
    "Time of the job's next tick since the Unix epoch; 0 if there is none, and on a follower.",
);
const LAST_SUCCESS: Metric = Metric::seconds(
    "quorate_job_last_success_timestamp_seconds",
    "Time since the Unix epoch at which the job last succeeded, as far as this process knows; 0 if it does not.",
);
const PAUSED: Metric = Metric::number(
    "quorate_job_paused",
    "1 if the job is paused or its group frozen, otherwise 0; 0 on a follower.",
);
const OVERDUE: Metric = Metric::number(
    "quorate_job_overdue",
    "1 if the job has not succeeded within its expect_within, otherwise 0; 0 on a follower.",
);
const WITHOUT_WORKER: Metric = Metric::number(
    "quorate_jobs_without_worker",
    "Number of jobs that do not run, because no live worker has their handler or their labels, or this leader does not have \
     them; 0 on a follower.",
);
const WORKERS: Metric = Metric::number(
    "quorate_workers",
    "Number of live workers that have the label, as this leader knows; without a label, of all; 0 on a follower.",
);
const HISTORY_LOST: Metric = Metric::number(
    "quorate_history_write_failures_total",
    "Number of history entries that were lost, because they could not be written to a majority of the nodes.",
);

/// The measures of a scheduler's jobs. Clones are the same measures.
#[derive(Clone, Debug)]
pub(crate) struct JobsMeasures(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    group: Arc<str>,
    outcomes: Vec<&'static str>,
    history_lost: Counter,
    no_handler: Gauge,
    no_labels: Gauge,
    not_led: Gauge,
    /// The number of live workers by label. The empty label stands for all workers.
    workers: Mutex<BTreeMap<Arc<str>, Gauge>>,
    jobs: Mutex<BTreeMap<Arc<str>, Arc<JobSeries>>>,
}

/// The series of one job. Whether an exporter still reports them after the job was removed, and for how long, is its
/// own decision.
#[derive(Debug)]
struct JobSeries {
    runs: BTreeMap<&'static str, Counter>,
    run: Histogram,
    lateness: Histogram,
    running: Gauge,
    next: Gauge,
    last_success: Gauge,
    paused: Gauge,
    overdue: Gauge,
}

/// The gauges of a job that this process leads. Dropping this value sets the gauges to zero.
#[derive(Debug, Default)]
pub(crate) struct JobGauges(Option<Arc<JobSeries>>);

impl JobsMeasures {
    /// Creates the measures of a group, whose ticks have one of these outcomes.
    pub(crate) fn new(group: &Arc<str>, outcomes: impl IntoIterator<Item = &'static str>) -> Self {
        let history_lost = HISTORY_LOST.counter(&[("group", group)]);
        let [no_handler, no_labels, not_led] = ["handler", "labels", "leader"]
            .map(|why| WITHOUT_WORKER.gauge(&[("group", group), ("why", why)]));
        let (group, outcomes) = (Arc::clone(group), outcomes.into_iter().collect());
        let (jobs, workers) = (Mutex::default(), Mutex::default());
        let inner = Inner { group, outcomes, history_lost, no_handler, no_labels, not_led, workers, jobs };
        let measures = Self(Arc::new(inner));
        measures.follows();
        measures
    }

    /// Reports that this process does not lead.
    pub(crate) fn follows(&self) {
        self.without_worker(0, 0);
        self.not_led(0);
        self.workers(&BTreeMap::from([("".into(), 0)]));
    }

    /// Reports the number of jobs whose due runs wait for a worker with their handler, or with their labels.
    pub(crate) fn without_worker(&self, of_handler: usize, of_labels: usize) {
        self.0.no_handler.set_count(of_handler);
        self.0.no_labels.set_count(of_labels);
    }

    /// Reports the number of live workers by label, and under the empty label of all.
    pub(crate) fn workers(&self, counts: &BTreeMap<Arc<str>, usize>) {
        let mut gauges = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
        for label in counts.keys() {
            let new = || WORKERS.gauge(&[("group", &self.0.group), ("label", label)]);
            gauges.entry(Arc::clone(label)).or_insert_with(new);
        }
        gauges
            .iter()
            .for_each(|(label, gauge)| gauge.set_count(counts.get(label).copied().unwrap_or_default()));
    }

    /// Reports the number of jobs of the group that the leader does not have.
    pub(crate) fn not_led(&self, jobs: usize) {
        self.0.not_led.set_count(jobs);
    }

    /// Makes the series of these jobs exist.
    pub(crate) fn add<'a>(&self, jobs: impl Iterator<Item = &'a Arc<str>>) {
        jobs.for_each(|job| drop(self.series(job)));
    }

    /// Drops the series of all jobs for which `is_present` returns false.
    pub(crate) fn forget_all_but(&self, is_present: impl Fn(&str) -> bool) {
        self.jobs().retain(|job, _| is_present(job));
    }

    /// Reports the end of a tick. `took` is the duration of its run, if it ran.
    pub(crate) fn ended(&self, job: &Arc<str>, outcome: &str, took: Option<Duration>) {
        let Some(series) = self.series(job) else { return };
        if let Some(counter) = series.runs.get(outcome) {
            counter.add_one();
        }
        if let Some(took) = took {
            series.run.record_duration(took);
        }
    }

    /// Reports that a run of the job succeeded at `at`.
    pub(crate) fn succeeded(&self, job: &Arc<str>, at: WallTime) {
        if let Some(series) = self.series(job) {
            series.last_success.set(seconds(at));
        }
    }

    /// Reports that a run started `by` after it was due.
    pub(crate) fn late(&self, job: &Arc<str>, by: Duration) {
        if let Some(series) = self.series(job) {
            series.lateness.record_duration(by);
        }
    }

    /// Reports the loss of a history entry.
    pub(crate) fn history_lost(&self) {
        self.0.history_lost.add_one();
    }

    /// Returns the gauges of a job that this process leads now.
    pub(crate) fn gauges(&self, job: &Arc<str>) -> JobGauges {
        JobGauges(self.series(job))
    }

    /// Returns the series of a job; `None` without the feature.
    fn series(&self, job: &Arc<str>) -> Option<Arc<JobSeries>> {
        if cfg!(not(feature = "metrics")) {
            return None;
        }
        let mut jobs = self.jobs();
        if let Some(series) = jobs.get(job) {
            return Some(Arc::clone(series));
        }
        let series = Arc::new(JobSeries::new(&self.0.group, job, &self.0.outcomes));
        jobs.insert(Arc::clone(job), Arc::clone(&series));
        Some(series)
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<JobSeries>>> {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobSeries {
    fn new(group: &str, job: &str, outcomes: &[&'static str]) -> Self {
        let labels = [("group", group), ("job", job)];
        let runs = |&outcome: &&'static str| {
            (outcome, RUNS.counter(&[("group", group), ("job", job), ("outcome", outcome)]))
        };
        Self {
            runs: outcomes.iter().map(runs).collect(),
            run: RUN.histogram(&labels),
            lateness: LATENESS.histogram(&labels),
            running: RUNNING.gauge(&labels),
            next: NEXT.gauge(&labels),
            last_success: LAST_SUCCESS.gauge(&labels),
            paused: PAUSED.gauge(&labels),
            overdue: OVERDUE.gauge(&labels),
        }
    }
}

impl JobGauges {
    /// Reports the job's active runs, its next tick, whether it is paused, and whether it is overdue.
    pub(crate) fn state(&self, running: usize, next: Option<WallTime>, is_paused: bool, is_overdue: bool) {
        if let Some(series) = &self.0 {
            series.running.set_count(running);
            series.next.set(next.map_or(0.0, seconds));
            series.paused.set_flag(is_paused);
            series.overdue.set_flag(is_overdue);
        }
    }
}

impl Drop for JobGauges {
    fn drop(&mut self) {
        self.state(0, None, false, false);
    }
}

fn seconds(at: WallTime) -> f64 {
    at.as_micros() as f64 / 1e6
}
