//! What a worker learns of spread jobs from the ledgers, now and then: which are due from when, which are paused or the
//! leader's, what is cancelled, what nobody ran.

use super::{
    super::{
        plan::{LATE_AFTER, Plan, dark, kept, low_water, unrun},
        rows::{self, Registration},
    },
    PAUSED, Running, Worker,
};
use crate::{
    env::{Env, WallTime},
    ledger::{Answered, Ledger, LedgerError},
    node::FencingToken,
    schedule::{Job, TickEnd, work::on_request},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Between two looks at which jobs are paused, at least.
const SURVEY_EVERY: Duration = Duration::from_secs(1);
/// And so many times as long as a look takes: a long ledger is read less often.
const SURVEY_SHARE: u32 = 20;
/// Between two looks at what stands in the ledger of spread ticks, which bring back the rows that nodes forgot.
const READ_EVERY: Duration = Duration::from_secs(60);
/// Between prunings of that ledger, at least; each worker draws its own up to twice as long.
pub(super) const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// Between attempts to write a row.
const WRITE_AGAIN: Duration = Duration::from_millis(200);
/// The reason of what came due before any worker was there.
const DARK: &str = "no worker was there";

/// What the ledgers say.
pub(super) struct Survey {
    main: Result<Vec<Answered>, LedgerError>,
    spread: Option<Result<Vec<Answered>, LedgerError>>,
    took: Duration,
}

/// A span of ticks that nobody ran: of which job, how it ended, and why.
type Unrun = (Arc<Job>, (WallTime, WallTime), TickEnd, String);

impl Worker {
    /// Looks at the ledgers, now and then, and when there is something to be known.
    pub(super) fn survey(&mut self) {
        // A job that has gone may have left a run.
        let idle = self.jobs.is_empty() && self.running.is_empty();
        if idle || self.surveying.is_some() || self.env.now() < self.survey_at {
            return;
        }
        let reads = self.env.now() >= self.read_at;
        if reads {
            self.read_at = self.env.now() + READ_EVERY;
        }
        self.look_at_ledgers(reads);
    }

    /// The same of a worker that begins nothing any more: what it runs may be cancelled yet.
    pub(super) fn survey_at_the_end(&mut self) {
        if self.surveying.is_none() && self.env.now() >= self.survey_at {
            self.look_at_ledgers(false);
        }
    }

    fn look_at_ledgers(&mut self, reads: bool) {
        let (main, spread, env) = (self.with.main.clone(), self.ledger.clone(), self.env.clone());
        self.surveying = Some(self.env.spawn_scoped(async move {
            let began = env.now();
            let main = main.read().await;
            let spread = if reads { Some(spread.read().await) } else { None };
            Survey { main, spread, took: began.until(env.now()) }
        }));
    }

    pub(super) fn surveyed(&mut self, survey: Survey) {
        self.survey_at = self.env.now() + SURVEY_EVERY.max(survey.took * SURVEY_SHARE);
        match survey.main {
            Ok(answers) => {
                self.hear(&answers);
                self.hold();
            }
            Err(error) => {
                tracing::debug!(group = &*self.with.group, "which jobs are paused is not known: {error}");
            }
        }
        match survey.spread {
            // The rows of jobs that are to begin are not used before it is known which are paused, or the leader's.
            Some(Ok(answers)) if self.told.is_some() => self.read(&answers),
            Some(Ok(_)) => self.read_at = self.env.now(),
            Some(Err(error)) => {
                self.read_at = self.env.now();
                tracing::debug!(group = &*self.with.group, "its spread ticks cannot be read yet: {error}");
            }
            None => {}
        }
        let told = self.told.iter().flatten().filter(|(_, told)| told.spread);
        if told.filter_map(|(name, _)| self.jobs.get(name)).any(|entry| !entry.plan.is_awake()) {
            self.read_at = self.env.now();
        }
    }

    /// What comes of [`Worker::survey_at_the_end`].
    pub(super) fn surveyed_at_the_end(&mut self, survey: Survey) {
        self.survey_at = self.env.now() + SURVEY_EVERY.max(survey.took * SURVEY_SHARE);
        if let Ok(answers) = survey.main {
            self.hear(&answers);
        }
    }

    /// Takes in what the group's own ledger says, and stops what somebody has asked the leader to cancel: once for each
    /// request, since clocks may step back.
    fn hear(&mut self, answers: &[Answered]) {
        let told = rows::told(answers);
        // Nothing has run here before the first look.
        let first = self.told.is_none();
        let mut heeded = BTreeSet::new();
        for (name, told) in &told {
            for cancelled in &told.cancels {
                heeded.insert(cancelled.id);
                if first || self.heeded.contains(&cancelled.id) {
                    continue;
                }
                let apart = self.max_clock_offset;
                let meant =
                    |run: &&Running| run.job == *name && rows::means(cancelled, run.tick, run.began, apart);
                let why = on_request(&cancelled.by);
                self.running.values().filter(meant).for_each(|run| run.cancel.cancel(&why));
            }
        }
        (self.told, self.heeded) = (Some(told), heeded);
    }

    /// Lets be the ticks of jobs that are the leader's, by its row.
    fn hold(&mut self) {
        let told = self.told.iter().flatten();
        let mut changed = Vec::new();
        for (name, told) in told {
            let Some(entry) = self.jobs.get_mut(name) else { continue };
            match (told.spread, entry.plan.is_awake()) {
                (false, true) => {
                    tracing::info!(
                        job = &**name,
                        "it is not spread any more, says its row: the leader runs it"
                    );
                    entry.plan.hold(told.since);
                    self.missed.remove(name);
                    changed.push(Arc::clone(name));
                }
                (true, false) => self.read_at = self.env.now(),
                _ => {}
            }
        }
        changed.iter().for_each(|name| self.arrange(name));
    }

    /// Begins the jobs that wait for it, and enters what nobody ran.
    fn read(&mut self, answers: &[Answered]) {
        let now = self.now();
        let quorum = self.with.quorum.pool().majority();
        let mut ticks = rows::ticks(answers, quorum);
        self.kept = rows::kept(answers);
        self.registering.clear();
        let mut unruns: Vec<Unrun> = Vec::new();
        for (name, entry) in &mut self.jobs {
            let told = self.told.as_ref().and_then(|told| told.get(name));
            let stands = ticks.remove(name).unwrap_or_default();
            if !entry.plan.is_awake() && told.is_some_and(|told| !told.spread) {
                tracing::info!(job = &**name, "its ticks are not spread, says its row: the leader runs them");
                continue;
            }
            let kept = kept(&entry.job, self.max_clock_offset);
            let found = Registration::find(answers, &entry.job, kept, quorum, self.max_clock_offset, now);
            if entry.plan.is_awake() {
                entry.ended.clear();
            } else {
                // What was due before the leader gave it up is the leader's.
                let since = found.row.job.since.max(told.map_or(WallTime::default(), |told| told.since));
                let from = Plan::from(&entry.job, since, now);
                tracing::debug!(job = &**name, since = entry.job.schedule.show(from), "spread");
                entry.plan.begin(from);
                entry.ended = stands.iter().filter(|(_, last)| **last).map(|(tick, _)| *tick).collect();
                let known = rows::complete(answers, quorum, self.max_clock_offset).map(|at| at.max(since));
                let span = known.and_then(|known| dark(&entry.job, &stands, known, from));
                let (end, why) = match told {
                    Some(told) if told.paused => (TickEnd::SkippedPaused, PAUSED),
                    _ => (TickEnd::SkippedMisfire, DARK),
                };
                unruns.extend(span.map(|span| (Arc::clone(&entry.job), span, end, why.to_owned())));
            }
            let open = stands.iter().filter(|(_, last)| !**last);
            open.for_each(|(tick, _)| entry.plan.owe(*tick, now));
            if found.write {
                self.registering.push(self.env.spawn_scoped(register(
                    found,
                    self.ledger.clone(),
                    self.env.clone(),
                )));
            }
            if let Some(skipped) = self.missed.remove(name) {
                let stands: BTreeSet<WallTime> = stands.into_keys().collect();
                let spans = unrun(&entry.job, &skipped, &stands).into_iter().map(|(first, last, why)| {
                    (Arc::clone(&entry.job), (first, last), TickEnd::SkippedMisfire, why.to_string())
                });
                unruns.extend(spans);
            }
        }
        let names: Vec<Arc<str>> = self.jobs.keys().cloned().collect();
        names.iter().for_each(|name| self.arrange(name));
        for (job, (first, last), end, why) in unruns {
            self.skipped(&job, first, last, end, &why);
        }
    }

    /// Has the nodes forget what is of no more use, now and then.
    pub(super) fn prune(&mut self) {
        let plans = self.jobs.values().map(|entry| &entry.plan).filter(|plan| plan.is_awake());
        if self.pruning.is_some() || self.env.now() < self.prune_at || plans.clone().next().is_none() {
            return;
        }
        self.prune_at = self.env.now() + PRUNE_EVERY + self.env.random_below(PRUNE_EVERY);
        let below = low_water(plans, self.now(), self.kept, self.max_clock_offset);
        let (ledger, group) = (self.ledger.clone(), Arc::clone(&self.with.group));
        self.pruning = Some(self.env.spawn_scoped(async move {
            if let Err(error) = ledger.prune(FencingToken::default(), below).await {
                tracing::debug!(group = &*group, "its spread ticks are not pruned: {error}");
            }
        }));
    }
}

/// Writes a job's row until a majority has it.
async fn register(mut found: Registration, ledger: Ledger, env: Env) {
    loop {
        let key = Arc::clone(&found.key);
        match ledger.write(&key, found.seen.as_ref(), &found.record()).await {
            Ok(()) => return,
            Err(LedgerError::Standing(other)) => found.meet(other),
            Err(error) => tracing::debug!(key = &*key, "not registered yet: {error}"),
        }
        env.sleep(WRITE_AGAIN + env.random_below(LATE_AFTER)).await;
    }
}
