//! The operator of the second group ([`POOL`]): a client of the quorum that sends requests to the group and has
//! no jobs of its own.

use super::pool::{POOL, PoolSpec, pool_specs};
use crate::sim::{Asked, Event, Referee, SeedRng, Told, scenario::true_wall};
use quorate::{
    env::{Env, WallTime},
    internals::JobAction,
    quorum::Quorum,
    scheduler::{Accepted, HistoryEntry, Jobs, JobsError, RunOutcome},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The time for which a leader may accept a request of the operator.
pub(in super::super) const VALID_FOR: Duration = Duration::from_secs(3);
/// The largest difference between the wall clocks of two servers.
pub(super) const CLOCKS_APART: Duration = Duration::from_secs(1);
/// The number of entries in the first page of a history.
const PAGE: usize = 3;
/// The time for which the operator waits for an answer in the fault-free phase.
pub(super) const CALM_WAIT: Duration = Duration::from_secs(2);

/// The number of tasks that send the operator's requests: this one, and [`Freezer`](super::Freezer).
const TASKS: usize = 2;

/// A client that sends requests about the jobs of the second group.
#[derive(Clone, Debug)]
pub(in super::super) struct Operator {
    pub(in super::super) env: Env,
    pub(in super::super) quorum: Quorum,
    pub(in super::super) referee: Arc<Referee>,
    pub(in super::super) seed: u64,
    /// The number of the operator's tasks that have finished: after the faults, one task lifts every pause, and the
    /// other one ends every freeze.
    pub(in super::super) finished: Arc<AtomicUsize>,
    /// The jobs that were stored on the nodes for a single run.
    pub(in super::super) singles: Arc<Mutex<Vec<String>>>,
}

impl Operator {
    /// Returns `true` once the operator has lifted every pause and ended every freeze after the faults.
    pub(in super::super) fn has_resumed(&self) -> bool {
        self.finished.load(Ordering::Relaxed) == TASKS
    }

    /// Records that one of the operator's tasks has finished.
    pub(super) fn has_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a handle to the jobs of the second group.
    pub(super) fn jobs(&self) -> Option<Jobs> {
        Jobs::new(&self.quorum, POOL).ok()
    }

    /// Sends requests until the faults end, then lifts all pauses.
    pub(in super::super) async fn work(self) {
        let mut rng = SeedRng::new(self.seed, "operator");
        let Some(jobs) = self.jobs() else { return };
        let specs = pool_specs();
        let mut paused: BTreeSet<&'static str> = BTreeSet::new();
        while !self.referee.is_calm() {
            let pause = rng.millis_up_to(&[300, 1_500, 4_000]);
            self.env.sleep(pause).await;
            if self.referee.is_calm() {
                break;
            }
            let spec = &specs[rng.index(specs.len())];
            let ask = draw(spec, &mut paused, &mut rng, self.quorum.wall());
            let patience = rng.millis(500..=3_500);
            let jobs = jobs.clone().wait(patience).valid_for(rng.millis(500..=VALID_FOR.as_millis() as u64));
            let drops_after = rng.chance(120).then(|| rng.millis(0..=60));
            self.ask(&jobs, ask, drops_after).await;
        }
        self.lift_pauses(&jobs, specs).await;
    }

    /// Resumes every job that the operator may have paused. First waits until every earlier request has
    /// expired, so that no earlier pause takes effect afterwards.
    async fn lift_pauses(&self, jobs: &Jobs, specs: &[PoolSpec]) {
        self.env.sleep(VALID_FOR + CLOCKS_APART).await;
        let jobs = jobs.clone().wait(CALM_WAIT).valid_for(VALID_FOR);
        for spec in specs.iter().filter(|spec| spec.pausable) {
            while !self.env.stopped().is_cancelled() {
                let told = self.ask(&jobs, JobAction::Resume { job: spec.name.into() }, None).await;
                if matches!(told, Told::Accepted { .. }) {
                    break;
                }
                self.env.sleep(Duration::from_millis(50)).await;
            }
        }
        self.has_finished();
    }

    /// Sends one request, and reports its result to the referee. If `drops_after` is given, stops waiting for
    /// the answer after this time.
    pub(super) async fn ask(&self, jobs: &Jobs, ask: JobAction, drops_after: Option<Duration>) -> Told {
        let number = self.referee.next_number();
        let now = true_wall(self.referee.truth().now());
        self.referee.judge(&Event::Asked(&Asked { number, ask: ask.clone(), at: now }));
        self.referee.note(format_args!("the operator sends {number}: {ask:?}"));
        let sent = send(jobs, &ask);
        let reply = match drops_after {
            None => told(sent.await),
            Some(time) => tokio::select! { biased;
                answer = sent => told(answer),
                () = self.env.sleep(time) => Told::Unknown { id: None },
            },
        };
        self.referee.note(format_args!("the operator hears of {number}: {reply:?}"));
        let kind = kind(&ask);
        self.referee.count(&format!("asked {kind}: {}", reply.as_str()));
        self.referee.judge(&Event::Answered { number, told: &reply });
        reply
    }

    /// Reads every history and reports it to the referee.
    pub(in super::super) async fn read_histories(&self) {
        let Some(jobs) = self.jobs() else { return };
        for spec in pool_specs() {
            let whole = jobs.history(spec.name, usize::MAX).await;
            let page = jobs.history(spec.name, PAGE).await;
            match (whole, page) {
                (Ok(entries), Ok(page)) => {
                    self.count(&entries);
                    self.referee.judge(&Event::HistoryRead {
                        job: spec.name,
                        entries: &entries,
                        page: &page,
                    });
                }
                (Err(error), _) | (_, Err(error)) => {
                    self.referee
                        .fail(&format!("the history of {} cannot be read in the calm: {error}", spec.name));
                }
            }
        }
        let singles = self.singles.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for job in singles {
            match jobs.history(&job, usize::MAX).await {
                // It was never stored, or the nodes have forgotten it.
                Err(JobsError::UnknownJob { .. }) => {}
                Ok(entries) if entries.iter().any(is_of_freeze) => {
                    self.referee.judge(&Event::StoredFrozen { job: &job });
                }
                Ok(_) => {}
                Err(error) => {
                    self.referee.fail(&format!("the history of {job} cannot be read in the calm: {error}"));
                }
            }
        }
    }

    fn count(&self, entries: &[HistoryEntry]) {
        entries.iter().for_each(|entry| self.referee.count(&format!("history entry {}", entry.end)));
    }
}

/// Draws a request for a job. If an earlier request paused the job, draws a request to resume it in place of
/// another pause.
fn draw(spec: &PoolSpec, paused: &mut BTreeSet<&'static str>, rng: &mut SeedRng, now: WallTime) -> JobAction {
    let job: Arc<str> = spec.name.into();
    match rng.number(0..=9) {
        0..=3 => JobAction::trigger(job),
        4 => {
            let from = now - rng.millis(1_000..=9_000);
            JobAction::Backfill { job, from, until: from + rng.millis(1..=4_000) }
        }
        5 => JobAction::Cancel { job, tick: None },
        _ if !spec.pausable => JobAction::trigger(job),
        _ if paused.remove(spec.name) => JobAction::Resume { job },
        _ => {
            paused.insert(spec.name);
            let ends = rng.chance(400).then(|| now + rng.millis(500..=6_000));
            JobAction::Pause { job, reason: None, until: ends }
        }
    }
}

async fn send(jobs: &Jobs, ask: &JobAction) -> Result<Accepted, JobsError> {
    let name = ask.job();
    match ask {
        JobAction::Pause { until: Some(until), .. } => jobs.pause_until(name, None, Some(*until)).await,
        JobAction::Pause { .. } => jobs.pause(name).await,
        JobAction::Resume { .. } => jobs.resume(name).await,
        JobAction::Backfill { from, until, .. } => jobs.backfill(name, *from, *until).await,
        JobAction::Cancel { tick, .. } => jobs.cancel(name, *tick).await,
        JobAction::Freeze { reason, until } => jobs.freeze(reason.as_deref(), *until).await,
        JobAction::Unfreeze => jobs.unfreeze().await,
        // `JobAction` is non-exhaustive, so the match needs this arm. The only other action that `draw`
        // returns is `JobAction::Trigger`.
        _ => jobs.trigger(name).await,
    }
}

fn told(answer: Result<Accepted, JobsError>) -> Told {
    match answer {
        Ok(Accepted { id, count, .. }) => Told::Accepted { id, count },
        Err(JobsError::Refused { id, .. }) => Told::Refused { id },
        Err(
            JobsError::PerhapsPosted { id, .. }
            | JobsError::Unanswered { id, .. }
            | JobsError::AnswerUnread { id, .. },
        ) => Told::Unknown { id: Some(id) },
        // All other errors occur before a request is sent.
        Err(_) => Told::NotSent,
    }
}

/// Returns `true` if a freeze left the run out. A run that an earlier leader had opened is cancelled.
fn is_of_freeze(entry: &HistoryEntry) -> bool {
    entry.end == RunOutcome::SkippedFrozen
        || entry.end == RunOutcome::Cancelled && entry.reason.starts_with("the group was frozen")
}

fn kind(ask: &JobAction) -> &'static str {
    match ask {
        JobAction::Pause { .. } => "pause",
        JobAction::Resume { .. } => "resume",
        JobAction::Backfill { .. } => "backfill",
        JobAction::Cancel { .. } => "cancel",
        JobAction::Freeze { .. } => "freeze",
        JobAction::Unfreeze => "unfreeze",
        _ => "trigger",
    }
}
