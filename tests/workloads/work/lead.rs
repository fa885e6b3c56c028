//! The part of a worker that campaigns for the leadership, and runs jobs while it leads.

use super::{CHECK_EVERY, Failure, GRACE, leadership::Leadership};
use crate::harness::{Event, Journal};
use quorate::{
    election::{Election, Term},
    quorum::Quorum,
    scheduler::{Delivery, Job, Misfire, RunContext, Schedule, Scheduler},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The group whose leader runs the jobs.
pub(crate) const GROUP: &str = "workload";
/// The name of the election in journals.
pub(crate) const TERM: &str = "election/workload";
/// The job of the soak test with at-most-once delivery. Each of its ticks starts at most once.
pub(crate) const AT_MOST_ONCE: &str = "at-most-once";
/// The job of the soak test with at-least-once delivery. Each of its ticks starts again until it is done.
pub(crate) const AT_LEAST_ONCE: &str = "at-least-once";
/// The time between two ticks of a job.
pub(crate) const TICK_EVERY: Duration = Duration::from_secs(1);
/// The age of the oldest tick that gets a catch-up run.
pub(crate) const CATCH_UP: Duration = Duration::from_secs(60);
/// The number of newest entries of a job's history that are checked.
pub(crate) const HISTORY: usize = 100;

/// A kind of job that every worker registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobKind {
    pub(crate) name: &'static str,
    pub(crate) delivery: Delivery,
    /// The usual duration of a run, and the duration of every eighth run, which is longer.
    pub(crate) takes: [Duration; 2],
}

/// The jobs of the soak test. Their runs take so long that faults often hit active runs.
pub(crate) const SOAK: &[JobKind] = &[
    job(AT_MOST_ONCE, Delivery::AtMostOnce, [30, 700]),
    job(AT_LEAST_ONCE, Delivery::AtLeastOnce, [30, 700]),
];

/// Returns the delivery rule of a job of the soak test.
pub(crate) fn soak_delivery(job: &str) -> Delivery {
    SOAK.iter().find(|kind| kind.name == job).map_or(Delivery::AtMostOnce, |kind| kind.delivery)
}

/// The jobs of the plan `guarantees`: two for each delivery rule. One has runs that end at once. The other one
/// has runs that take so long that faults often hit them while they are active.
pub(crate) const GUARANTEES: &[JobKind] = &[
    job("most-quick", Delivery::AtMostOnce, [5, 5]),
    job("most-long", Delivery::AtMostOnce, [450, 450]),
    job("least-quick", Delivery::AtLeastOnce, [5, 5]),
    job("least-long", Delivery::AtLeastOnce, [450, 450]),
];

const fn job(name: &'static str, delivery: Delivery, [takes, eighth]: [u64; 2]) -> JobKind {
    JobKind { name, delivery, takes: [Duration::from_millis(takes), Duration::from_millis(eighth)] }
}

pub(super) async fn lead(
    quorum: &Quorum,
    journal: &Journal,
    jobs: &[JobKind],
    ttl: Duration,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let election = Election::new(quorum, GROUP).ttl(ttl).step_down_grace(GRACE.min(ttl / 5)).end_on_error();
    let mut scheduler = Scheduler::on(&election);
    for kind in jobs {
        scheduler = scheduler.job(start_job(*kind, journal)?);
    }
    let campaign = election.run(|term: Term| {
        let (journal, scheduler) = (journal.clone(), scheduler.clone());
        async move {
            // If the term has already ended, no work is started, and the worker campaigns again.
            let Some(leadership) = Leadership::begin(&journal, TERM, term, CHECK_EVERY) else {
                return Ok(());
            };
            let led = tokio::select! { biased;
                led = scheduler.lead(leadership.term.clone()) => led,
                () = leadership.watch() => return Ok(()),
            };
            if !leadership.term.is_valid() {
                leadership.await_step_down().await;
            }
            led.map_err(|error| error.to_string())
        }
    });
    Ok(campaign.until(stop.cancelled()).await?)
}

/// A run. If this value is dropped before the run is done, the journal shows the run as interrupted.
pub(crate) struct Run {
    journal: Journal,
    job: Arc<str>,
    tick: u64,
    term: u64,
    done: bool,
}

impl Run {
    pub(crate) fn begin(journal: &Journal, tick: &RunContext) -> Self {
        let (job, at, term) =
            (Arc::clone(tick.job()), tick.scheduled_at().as_micros(), tick.unchecked_token().get());
        journal.write(Event::RunStarted { job: Arc::clone(&job), tick: at, term });
        Self { journal: journal.clone(), job, tick: at, term, done: false }
    }

    /// Ends the run as done.
    pub(crate) fn complete(mut self) {
        self.done = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let (job, tick, term) = (Arc::clone(&self.job), self.tick, self.term);
        let interrupted = Event::RunInterrupted { job: Arc::clone(&job), tick, term };
        self.journal.write(if self.done { Event::RunDone { job, tick, term } } else { interrupted });
    }
}

fn start_job(kind: JobKind, journal: &Journal) -> Result<Job, Failure> {
    let journal = journal.clone();
    let handler = move |tick: RunContext| {
        let journal = journal.clone();
        async move {
            let run = Run::begin(&journal, &tick);
            let eighth = (run.tick / TICK_EVERY.as_micros() as u64).is_multiple_of(8);
            journal.env().sleep(kind.takes[usize::from(eighth)]).await;
            run.complete();
            Ok::<(), Infallible>(())
        }
    };
    let job = Job::new(kind.name, Schedule::every(TICK_EVERY)?, handler).delivery(kind.delivery);
    // The history must keep more entries than are checked, because pruning deletes many at once.
    Ok(job.misfire(Misfire::run_all(CATCH_UP)).history(HISTORY * 2))
}
