//! The shell around the plans: seals, sleeps, starts runs, and ends with the term.

use super::{
    plan::{JobPlan, LATE_AFTER, NotRun, Sealed, low_water},
    registration::Registration,
    run::{Outcome, Run},
};
use crate::{
    election::Term,
    env::{BootTime, Env, ScopedTask, WallTime},
    ledger::{Ledger, LedgerError},
    schedule::{Job, SkipReason},
};
use futures_util::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use std::{any::Any, sync::Arc, time::Duration};

/// The wall clock may step: it is looked at again at least this often.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// Between attempts to seal without a majority.
const SEAL_AGAIN: Duration = Duration::from_millis(50);
/// Between prunings of the ledger.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Runs `jobs` under `term` until it is told to stop and every run has ended.
pub(in crate::schedule) async fn lead(jobs: &[Job], ledger: &Ledger, term: &Term) {
    let env = term.env().clone();
    let Some(sealed) = seal(ledger, term, &env).await else { return };
    let mut leader = Leader {
        env: &env,
        ledger,
        term,
        plans: Vec::new(),
        sealed,
        runs: FuturesUnordered::new(),
        prune_at: env.now(),
        pruning: None,
        registering: Vec::new(),
        superseded: false,
    };
    for job in jobs {
        leader.register(job).await;
    }
    leader.serve().await;
}

/// Seals the ledger; `None` if the term is told to stop before it could.
async fn seal(ledger: &Ledger, term: &Term, env: &Env) -> Option<Sealed> {
    let setup = term.quorum().setup();
    let mut told = false;
    loop {
        let sealed = tokio::select! { biased;
            () = term.step_down().cancelled() => return None,
            sealed = ledger.seal(term.number()) => sealed,
        };
        match sealed {
            Ok(answers) => {
                let quorum = term.quorum().fleet().majority();
                return Some(Sealed { answers, quorum, max_clock_offset: setup.max_clock_offset });
            }
            // A later leader has been here. If this term is over, it will hear of it; if it is not, tokens went
            // backwards, and only a new term can help.
            Err(error @ LedgerError::Superseded { .. }) => {
                tracing::error!(group = &**term.group(), term = term.number().get(), "resigning: {error}");
                return None;
            }
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(group = &**term.group(), "cannot seal the ledger yet: {error}");
                }
                env.sleep(SEAL_AGAIN).await;
            }
        }
    }
}

/// A run of one job's tick: which job, and what came of it.
type Running = ScopedTask<Outcome>;

struct Leader<'a> {
    env: &'a Env,
    ledger: &'a Ledger,
    term: &'a Term,
    plans: Vec<JobPlan>,
    sealed: Sealed,
    runs: FuturesUnordered<futures_util::future::BoxFuture<'static, Ended>>,
    prune_at: BootTime,
    pruning: Option<ScopedTask<()>>,
    /// Jobs whose registration is on its way to a majority, or back to nodes that forgot it.
    registering: Vec<ScopedTask<()>>,
    /// A later term has sealed the ledger: nothing can be started any more.
    superseded: bool,
}

struct Ended {
    job: usize,
    tick: WallTime,
    outcome: Result<Outcome, Box<dyn Any + Send>>,
}

impl Leader<'_> {
    /// By which every tick is due: the quorum's clock, whatever this worker's own wall clock shows. Where it steps
    /// back nothing is repeated, for each plan knows how far it has looked.
    fn now(&self) -> WallTime {
        self.term.quorum().wall()
    }

    /// Finds from when on a job's ticks are due, and sees to it that the ledger knows.
    async fn register(&mut self, job: &Job) {
        let now = self.now();
        let window = job.misfire.within();
        let mut registration = Registration::find(&self.sealed, &job.name, now);
        if registration.is_new()
            && let Err(error) = registration.write(self.ledger, self.term.number()).await
        {
            tracing::warn!(job = &*job.name, "not registered in the ledger yet: {error}");
        }
        let since = registration.since();
        if !registration.is_everywhere() {
            let (ledger, term) = (self.ledger.clone(), self.term.clone());
            self.registering.push(self.term.spawn(registration.keep(ledger, term)));
        }
        // A tick within the allowance is on time under every rule.
        let plan = JobPlan::new(job.clone(), since.max(now - window.max(LATE_AFTER)));
        tracing::debug!(job = &*job.name, next = ?plan.next.map(|at| job.schedule.show(at)), "registered");
        self.plans.push(plan);
    }

    async fn serve(&mut self) {
        let step_down = self.term.step_down().clone();
        while !step_down.is_cancelled() && !self.superseded {
            self.look();
            let wake = self.wake();
            self.prune();
            tokio::select! { biased;
                () = step_down.cancelled() => break,
                Some(ended) = self.runs.next() => self.ended(ended),
                Some(_) = OptionFuture::from(self.pruning.as_mut()) => self.pruning = None,
                () = self.env.sleep_until(wake) => {}
            }
        }
        // They have been told to stop; what is still here when validity ends is dropped with this future.
        while let Some(ended) = self.runs.next().await {
            self.ended(ended);
        }
    }

    /// Decides on what has come due and starts what may start.
    fn look(&mut self) {
        let now = self.now();
        for index in 0..self.plans.len() {
            let plan = &mut self.plans[index];
            let due = plan.next.is_some_and(|next| next <= now);
            let not_run = if due { plan.look(&self.sealed, now) } else { Vec::new() };
            let (start, too_late) = plan.start(now);
            let job = plan.job.clone();
            for not in not_run {
                tell_not_run(&job, &not);
            }
            for tick in too_late {
                tracing::warn!(
                    job = &*job.name,
                    tick = job.schedule.show(tick),
                    "misfired: it waited too long"
                );
            }
            if let Some(start) = start {
                let tick = start.tick;
                let run = Run::new(job, start, self.ledger.clone(), self.term.clone());
                let running: Running = self.term.spawn(run.run());
                self.runs.push(Box::pin(async move { Ended { job: index, tick, outcome: running.await } }));
            }
        }
    }

    fn ended(&mut self, ended: Ended) {
        let plan = &mut self.plans[ended.job];
        plan.running = None;
        let (name, tick) = (Arc::clone(&plan.job.name), plan.job.schedule.show(ended.tick));
        match ended.outcome {
            Ok(Outcome::Interrupted(again)) if !self.term.step_down().is_cancelled() => {
                tracing::warn!(job = &*name, tick, "interrupted, though the term goes on: it runs again");
                plan.again(*again);
            }
            Ok(Outcome::NotStarted(error @ LedgerError::Superseded { .. })) => {
                tracing::error!(job = &*name, tick, "resigning: {error}");
                self.superseded = true;
            }
            Ok(outcome @ Outcome::Done(_)) => tracing::info!(job = &*name, tick, "{outcome}"),
            Ok(outcome) => tracing::warn!(job = &*name, tick, "{outcome}"),
            Err(_) => tracing::error!(job = &*name, tick, "its run was torn down by a panic"),
        }
    }

    /// Has the ledger forget what is of no more use, now and then.
    fn prune(&mut self) {
        if self.pruning.is_some() || self.env.now() < self.prune_at {
            return;
        }
        self.prune_at = self.env.now() + PRUNE_EVERY;
        let below = low_water(&self.plans, self.now(), self.sealed.max_clock_offset);
        let (ledger, term) = (self.ledger.clone(), self.term.clone());
        self.pruning = Some(self.term.spawn(async move {
            if let Err(error) = ledger.prune(term.number(), below).await {
                tracing::debug!(group = &**term.group(), "not pruned: {error}");
            }
        }));
    }

    fn wake(&self) -> BootTime {
        let now = self.now();
        let next = self.plans.iter().filter_map(|plan| plan.next).min();
        let pause = next.map_or(LOOK_AT_LEAST_EVERY, |next| now.until(next));
        self.env.now() + pause.min(LOOK_AT_LEAST_EVERY)
    }
}

fn tell_not_run(job: &Job, not: &NotRun) {
    let name = &*job.name;
    match not {
        NotRun::Missed(missed) => {
            let (first, last) = (job.schedule.show(missed.first), job.schedule.show(missed.last));
            tracing::warn!(job = name, first, last, "ticks not run: {}", missed.why);
        }
        NotRun::Overtaken(tick) => {
            let tick = job.schedule.show(*tick);
            tracing::warn!(
                job = name,
                tick,
                "tick not run: it came due while the job ran, and a later one did too"
            );
        }
        // Done by an earlier leader: nothing to tell.
        NotRun::Decided(_, SkipReason::Final) => {}
        NotRun::Decided(tick, why) => {
            tracing::warn!(job = name, tick = job.schedule.show(*tick), "tick not run: {why}");
        }
    }
}
