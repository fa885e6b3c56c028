//! The worker processes. Each does the work of its plan, and writes a journal.

pub(crate) mod lead;
pub(crate) mod leadership;
pub(crate) mod locks;
pub(crate) mod messages;
pub(crate) mod shards;

pub(crate) use lead::TERM;

use crate::{
    any_worker, effects, failover, guarantees, handover,
    harness::{Assignment, Event, Journal, LeaseLog},
    lock,
};
use quorate::{
    env::{BootTime, Env},
    quorum::Quorum,
};
use quorate_testkit::sim::SeedRng;
use quorate_tests::support::told_to_end;
use serde::{Deserialize, Serialize};
use std::{error::Error, net::SocketAddr, process::ExitCode, time::Duration};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

/// The longest time from the sudden loss of a lease until its work gets the notice to step down.
pub(crate) const NOTIFIED: Duration = Duration::from_secs(1);
/// The grace period of work after the notice to step down.
pub(crate) const GRACE: Duration = Duration::from_millis(400);
/// The time between two checks of a lease by its holder.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(50);
/// The time between two beats of [`pulse`].
const BEAT: Duration = Duration::from_millis(20);
/// A beat that is late by this much shows that the process was not scheduled.
const STALLED: Duration = Duration::from_millis(100);

pub(crate) type Failure = Box<dyn Error>;

/// The work of a plan, with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// For the plans `soak` and `weather`: competes for locks and writes to the stores that they protect, runs jobs while
    /// it leads, owns shards, and handles messages. The first message was sent at `epoch`. There is one store for each lock.
    Soak { epoch: u64, stores: Vec<SocketAddr> },
    /// For the plan `guarantees`: runs jobs while it leads.
    Jobs,
    /// For the plan `any-worker`: runs jobs that are placed on any worker.
    AnyWorker(any_worker::Settings),
    /// For the plan `load`: runs many jobs that do nothing.
    Load(guarantees::load::Settings),
    /// For the plan `lock`: reads a set under a lock, adds an element, and writes the set back.
    Lock(lock::worker::Task),
    /// For the plan `effects`: claims messages and commits their effects.
    Effects(effects::worker::Task),
    /// For the plan `handover`: acquires and releases one lease, again and again.
    Handover(handover::contender::Task),
    /// For the plan `failover`: campaigns in a group.
    Failover(failover::candidate::Task),
}

/// Runs a worker process.
pub(crate) fn main(assignment: &Assignment) -> ExitCode {
    // If a worker is paused, all of it must be paused. So a worker has a single thread, unless the plan
    // measures times. In that case the worker has several threads, like a real service.
    let measured = matches!(assignment.work, Work::Load(_) | Work::Handover(_));
    let mut builder = if measured { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let runtime = builder.enable_all().build().expect("a runtime");
    match runtime.block_on(work(assignment)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workload: {}: {error}", assignment.name());
            ExitCode::FAILURE
        }
    }
}

async fn work(assignment: &Assignment) -> Result<(), Failure> {
    let quorum = assignment.quorum()?;
    let journal = Journal::new(quorum.env());
    journal.write(Event::Ready);
    match &assignment.work {
        Work::Soak { epoch, stores } => {
            soak(assignment, BootTime::from_nanos(*epoch), stores, &quorum, &journal).await?;
        }
        Work::Jobs => jobs(assignment, &quorum, &journal).await?,
        Work::AnyWorker(settings) => any_worker::work(settings, assignment.ttl, &quorum, &journal).await?,
        Work::Load(settings) => guarantees::load::work(settings, &quorum, &journal).await?,
        Work::Lock(task) => lock::worker::work(task, assignment, &quorum, &journal).await?,
        Work::Effects(task) => effects::worker::work(task, assignment, &quorum, &journal).await?,
        Work::Handover(task) => handover::contender::work(task, assignment, &quorum, &journal).await?,
        Work::Failover(task) => failover::candidate::work(task, assignment, &quorum, &journal).await?,
    }
    quorum.close().await;
    Ok(())
}

async fn soak(
    assignment: &Assignment,
    epoch: BootTime,
    stores: &[SocketAddr],
    quorum: &Quorum,
    journal: &Journal,
) -> Result<(), Failure> {
    let Assignment { seed, ttl, .. } = *assignment;
    let stop = CancellationToken::new();
    let rng = |label: &str| SeedRng::new(seed, &format!("{label}-{}", assignment.name()));
    // An element is written only once: each run of each worker has numbers of its own.
    let elements = (u64::from(assignment.run) * 1000 + assignment.member as u64) * 1_000_000;
    let (led, locked, owned, handled, ended, ()) = tokio::join!(
        lead::lead(quorum, journal, lead::SOAK, ttl, &stop),
        locks::compete(quorum, journal, rng("locks"), ttl, (stores, elements), &stop),
        shards::own(quorum, journal, ttl, &stop),
        messages::handle(quorum, journal, rng("messages"), ttl, epoch, &stop),
        until_told_to_end(&stop),
        pulse(journal, &stop),
    );
    led.and(locked).and(owned).and(handled).and(ended)
}

async fn jobs(assignment: &Assignment, quorum: &Quorum, journal: &Journal) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let lead = lead::lead(quorum, journal, lead::GUARANTEES, assignment.ttl, &stop);
    let (led, ended, ()) = tokio::join!(lead, until_told_to_end(&stop), pulse(journal, &stop));
    led.and(ended)
}

/// After a lease has ended, waits until its work gets the notice to step down, and writes the step-down to the
/// journal. Writes nothing if the notice does not come within [`NOTIFIED`].
async fn await_step_down(env: &Env, log: &LeaseLog, step_down: &CancellationToken) {
    if env.before(env.now() + NOTIFIED, step_down.cancelled()).await.is_some() {
        log.step_down();
    }
}

/// Cancels `stop` at SIGTERM, or when the director ends.
pub(crate) async fn until_told_to_end(stop: &CancellationToken) -> Result<(), Failure> {
    let _stop = stop.clone().drop_guard();
    let told = told_to_end()?;
    tokio::select! { biased;
        () = stop.cancelled() => {}
        () = told => {}
    }
    Ok(())
}

/// Writes to the journal each time that this process was not scheduled.
async fn pulse(journal: &Journal, stop: &CancellationToken) {
    let mut last = journal.now();
    while !stop.is_cancelled() {
        journal.env().sleep(BEAT).await;
        let now = journal.now();
        if last.until(now) > BEAT + STALLED {
            journal.write_at(now, Event::Stalled { from: last.as_nanos() });
        }
        last = now;
    }
}
