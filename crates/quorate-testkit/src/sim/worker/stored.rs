//! Jobs of the second group that are stored on the nodes, in plans with [`Plan::stores`](crate::sim::Plan::stores). Each
//! job has a name that is used once.

use super::operator::{Operator, VALID_FOR};
use crate::sim::{Event, Referee, SeedRng, StoredStep};
use quorate::{
    env::WallTime,
    scheduler::{Job, Jobs, JobsError, Misfire, Payload, RunContext, Schedule},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

/// The name of the handler that all workers of the group have.
pub(super) const HANDLER: &str = "stored";
/// The largest number of jobs that repeat.
const REPEATING_MAX: usize = 3;

/// The client that stores and removes jobs.
#[derive(Debug)]
pub(in super::super) struct Storer {
    operator: Operator,
    rng: SeedRng,
    /// The repeating jobs that may be stored.
    repeating: BTreeMap<u64, String>,
}

/// Reports a run of a stored job, whose payload must be its name.
pub(super) fn ran(referee: &Referee, tick: &RunContext) {
    let is_own_payload = tick.payload() == tick.job().as_bytes();
    referee.judge(&Event::StoredRun { job: tick.job(), tick: tick.scheduled_at(), is_own_payload });
}

impl Storer {
    pub(in super::super) fn new(operator: Operator) -> Self {
        let rng = SeedRng::new(operator.seed, "jobs on the nodes");
        Self { operator, rng, repeating: BTreeMap::new() }
    }

    /// Stores and removes jobs until the faults end.
    pub(in super::super) async fn work(mut self) {
        let Some(jobs) = self.operator.jobs() else { return };
        let mut number = 0;
        while !self.operator.referee.is_calm() {
            let pause = self.rng.millis_up_to(&[300, 1_500, 3_000]);
            self.operator.env.sleep(pause).await;
            if self.operator.referee.is_calm() {
                break;
            }
            let jobs = jobs.clone().wait(self.rng.millis(1_000..=3_500)).valid_for(VALID_FOR);
            number += 1;
            let has_room = self.repeating.len() < REPEATING_MAX;
            match self.rng.number(0..=9) {
                0..=3 if has_room => self.put_repeating(&jobs, number).await,
                4..=6 => self.put_single(&jobs, number).await,
                _ => self.remove(&jobs).await,
            }
        }
    }

    async fn put_repeating(&mut self, jobs: &Jobs, number: u64) {
        let period = Duration::from_millis([900, 1_400][self.rng.index(2)]);
        let Ok(schedule) = Schedule::every(period) else { return };
        let name = format!("stored-{number}");
        self.repeating.insert(number, name.clone());
        let job = Job::named(&name, schedule, HANDLER).misfire(Misfire::Skip);
        self.put(jobs, &name, job, None).await;
    }

    async fn put_single(&mut self, jobs: &Jobs, number: u64) {
        let due = self.operator.quorum.wall() + self.rng.millis(1_500..=5_000);
        let name = format!("single-{number}");
        let job = Job::named(&name, Schedule::at(due), HANDLER)
            .misfire(Misfire::run_once(Duration::from_secs(300)));
        let singles = Arc::clone(&self.operator.singles);
        singles.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        self.put(jobs, &name, job, Some(due)).await;
    }

    async fn put(&self, jobs: &Jobs, name: &str, job: Job, due: Option<WallTime>) {
        let Ok(payload) = Payload::new(name) else { return };
        self.note(name, StoredStep::Putting { due });
        let answer = jobs.put(&job.payload(payload)).await;
        self.report(name, StoredStep::Put, &answer.map(drop));
    }

    async fn remove(&mut self, jobs: &Jobs) {
        let Some((_, name)) = self.repeating.pop_first() else { return };
        self.note(&name, StoredStep::Removing);
        let answer = jobs.remove(&name).await;
        self.report(&name, StoredStep::Removed, &answer.map(drop));
    }

    /// Reports a step that was confirmed.
    fn report(&self, name: &str, step: StoredStep, answer: &Result<(), JobsError>) {
        let referee = &self.operator.referee;
        referee.count(match (step, answer) {
            (StoredStep::Put, Ok(())) => "job stored",
            (_, Ok(())) => "stored job removed",
            (StoredStep::Put, Err(_)) => "job perhaps stored",
            (_, Err(_)) => "stored job perhaps removed",
        });
        if answer.is_ok() {
            self.note(name, step);
        }
    }

    fn note(&self, name: &str, step: StoredStep) {
        let referee: &Arc<Referee> = &self.operator.referee;
        referee.note(format_args!("{name}: {step:?}"));
        referee.judge(&Event::JobStep { job: name, step });
    }
}
