//! The jobs that the leader has. Each job has a timer and a position in the ready queue.

use crate::{
    env::WallTime,
    measure::{JobGauges, JobsMeasures},
    scheduler::{
        job::{Job, part_name, whole_of},
        plan::{
            active_run::ActiveRun,
            job_id::JobId,
            key_gate::KeyGate,
            led_job::LedJob,
            ready_queue::{ReadyOrder, ReadyQueue, Turn},
            timer_queue::TimerQueue,
        },
        policy::Placement,
        run::pending_run::PendingRun,
    },
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

/// The leader's jobs. A job stays in the table until it is removed and its last run has ended.
#[derive(Debug)]
pub(in crate::scheduler) struct JobTable {
    /// Each slot is in a box, so that the list is short and grows without a copy of the jobs.
    slots: Vec<Option<Box<Slot>>>,
    vacant: Vec<usize>,
    /// The number of jobs that were added.
    added: u64,
    names: BTreeMap<Arc<str>, JobId>,
    timers: TimerQueue,
    ready: ReadyQueue,
    keys: KeyGate,
    ignores_keys: bool,
    /// True while no job for every worker hands out a tick.
    holds_wholes: bool,
    /// For each job, the jobs that run after it.
    followers: BTreeMap<Arc<str>, BTreeSet<JobId>>,
    /// Removed jobs whose last run has ended since the last call of [`JobTable::take_ended`].
    ended: Vec<LedJob>,
    measures: JobsMeasures,
}

#[derive(Debug)]
struct Slot {
    id: JobId,
    job: LedJob,
    phase: Phase,
    timer: Option<WallTime>,
    place: Option<ReadyOrder>,
    /// The concurrency key of the next run, if that must wait for its turn.
    waits_for: Option<Arc<str>>,
    gauges: JobGauges,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first write of the job's row, or of its definition, is in progress. No run of the job starts before this write has
    /// ended.
    Registering,
    Open,
    /// The job was removed. Active runs continue, and no further run of the job starts.
    Removed,
}

impl JobTable {
    /// Creates an empty table for a leader that executes at most `max_executing` runs at once. With `ignores_keys` the limits of
    /// concurrency keys do not hold, for a test.
    pub(in crate::scheduler) fn new(
        max_executing: usize,
        ignores_keys: bool,
        measures: JobsMeasures,
    ) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            added: 0,
            names: BTreeMap::new(),
            timers: TimerQueue::default(),
            ready: ReadyQueue::new(max_executing),
            keys: KeyGate::default(),
            ignores_keys,
            holds_wholes: true,
            followers: BTreeMap::new(),
            ended: Vec::new(),
            measures,
        }
    }

    /// Returns the id of a job that is not removed.
    pub(in crate::scheduler) fn id(&self, name: &str) -> Option<JobId> {
        self.names.get(name).copied()
    }

    /// Returns the jobs that are not removed, with their ids.
    pub(in crate::scheduler) fn names(&self) -> impl Iterator<Item = (&Arc<str>, JobId)> {
        self.names.iter().map(|(name, id)| (name, *id))
    }

    /// Returns the parts of a job for every worker that are not removed.
    pub(in crate::scheduler) fn parts_of(&self, whole: &str) -> impl Iterator<Item = JobId> {
        let first = part_name(whole, "");
        let names = self.names.range(Arc::clone(&first)..);
        names.take_while(move |(name, _)| name.starts_with(&*first)).map(|(_, id)| *id)
    }

    /// Returns all jobs, including removed jobs that have active runs.
    pub(in crate::scheduler) fn jobs(&self) -> impl Iterator<Item = &LedJob> + Clone {
        self.slots.iter().flatten().map(|slot| &slot.job)
    }

    pub(in crate::scheduler) fn get(&self, id: JobId) -> Option<&LedJob> {
        let slot = self.slots.get(id.place)?.as_ref();
        slot.filter(|slot| slot.id == id).map(|slot| &slot.job)
    }

    fn slot_mut(&mut self, id: JobId) -> Option<&mut Slot> {
        self.slots.get_mut(id.place)?.as_deref_mut().filter(|slot| slot.id == id)
    }

    /// Returns a job that is not removed, and its id.
    pub(in crate::scheduler) fn find(&self, name: &str) -> Option<(JobId, &LedJob)> {
        let id = self.id(name)?;
        Some((id, self.get(id)?))
    }

    /// Returns the leader's timers. A job is due at the time of its timer.
    pub(in crate::scheduler) fn timers(&self) -> &TimerQueue {
        &self.timers
    }

    /// Returns the queue of the jobs with runs to start, which counts the runs that the leader executes.
    pub(in crate::scheduler) fn ready(&self) -> &ReadyQueue {
        &self.ready
    }

    /// Adds a job, and returns its id. If `registering` is true, no run of the job starts until the job's
    /// row is written and [`JobTable::registered`] is called.
    pub(in crate::scheduler) fn add(&mut self, job: LedJob, registering: bool) -> JobId {
        let id = JobId { place: self.vacant.pop().unwrap_or(self.slots.len()), seq: self.added };
        self.added += 1;
        self.names.insert(Arc::clone(&job.job().name), id);
        self.note_follower(id, None, Some(job.job()));
        // Single runs are too many for series of their own.
        let gauges = match job.job().is_single_run() {
            true => JobGauges::default(),
            false => self.measures.gauges(&job.job().name),
        };
        let phase = if registering { Phase::Registering } else { Phase::Open };
        let slot = Some(Box::new(Slot { id, job, phase, timer: None, place: None, waits_for: None, gauges }));
        match self.slots.get_mut(id.place) {
            Some(vacant) => *vacant = slot,
            None => self.slots.push(slot),
        }
        self.reschedule(id);
        id
    }

    /// Lets `change` modify a job, then updates the job's timer and its position in the ready queue. Returns `None` if
    /// there is no such job.
    pub(in crate::scheduler) fn change<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut LedJob) -> T,
    ) -> Option<T> {
        let changed = change(&mut self.slot_mut(id)?.job);
        self.reschedule(id);
        Some(changed)
    }

    /// Handles the end of the write of a new job's row.
    pub(in crate::scheduler) fn registered(&mut self, id: JobId) {
        if let Some(slot) = self.slot_mut(id).filter(|slot| slot.phase == Phase::Registering) {
            slot.phase = Phase::Open;
            self.reschedule(id);
        }
    }

    /// Marks a job as removed. Another job can then get the same name. The removed job stays in the table until
    /// its last run has ended.
    pub(in crate::scheduler) fn remove(&mut self, id: JobId) {
        let Some(slot) = self.slot_mut(id) else { return };
        slot.phase = Phase::Removed;
        let job = Arc::clone(slot.job.job());
        self.names.remove(&job.name);
        self.note_follower(id, Some(&job), None);
        self.reschedule(id);
    }

    /// Removes and returns the removed jobs whose last run has ended.
    pub(in crate::scheduler) fn take_ended(&mut self) -> Vec<LedJob> {
        mem::take(&mut self.ended)
    }

    /// Finds the job whose timer is the earliest. If this job is due at `now`, removes its timer and returns
    /// its id. The next [`JobTable::change`] of the job sets the timer again.
    pub(in crate::scheduler) fn pop_due(&mut self, now: WallTime) -> Option<JobId> {
        let id = self.timers.pop(now)?;
        if let Some(slot) = self.slot_mut(id) {
            slot.timer = None;
        }
        Some(id)
    }

    /// Removes the first job with a run that may start now from the ready queue, and returns the job's id.
    /// The next [`JobTable::change`] of the job puts it back.
    ///
    /// A job whose concurrency key is in use by as many runs as it permits waits until one of them has ended. Then the job
    /// with the highest priority, and of these the one whose run is due first, gets its turn. A run that an earlier leader
    /// has opened does not wait, and comes before all others: a worker may already execute it.
    pub(in crate::scheduler) fn pop_ready(&mut self) -> Option<JobId> {
        loop {
            let id = self.ready.pop()?;
            let Some(slot) = self.slot_mut(id) else { continue };
            slot.place = None;
            let of = slot.waits_for.clone().zip(slot.job.job().rules.concurrency.as_ref().map(|of| of.limit));
            let Some((key, limit)) = of.filter(|_| !self.ignores_keys) else { return Some(id) };
            if self.keys.is_full(&key, limit) {
                continue;
            }
            if let Some(next) = self.next_of_key(&key) {
                let place = self.slot_mut(next).and_then(|slot| slot.place.take());
                self.ready.set(place, None);
                return Some(next);
            }
        }
    }

    /// Returns the job that waits for the key and whose turn is next.
    fn next_of_key(&self, key: &str) -> Option<JobId> {
        let order = |id: JobId| {
            let led = self.get(id)?;
            Some((Reverse(led.job().rules.priority), led.head()?.not_before, id))
        };
        self.keys.waiting(key).filter_map(order).min().map(|(.., id)| id)
    }

    /// While `is_held`, no run with a key starts that is not open yet.
    pub(in crate::scheduler) fn hold_keys(&mut self, is_held: bool) {
        self.keys.set_closed(is_held).iter().for_each(|key| self.wake_key(key));
    }

    /// While `is_held`, none of the jobs for every worker, which are `wholes`, hands out a tick.
    pub(in crate::scheduler) fn hold_wholes<'a>(
        &mut self,
        is_held: bool,
        wholes: impl Iterator<Item = &'a Arc<str>>,
    ) {
        if mem::replace(&mut self.holds_wholes, is_held) != is_held {
            wholes.for_each(|name| self.reschedule_named(name));
        }
    }

    fn reschedule_named(&mut self, name: &str) {
        if let Some(id) = self.id(name) {
            self.reschedule(id);
        }
    }

    /// Notes that a run has the key, which may be a run of a job that the leader does not have.
    pub(in crate::scheduler) fn use_key(&mut self, key: &Arc<str>) {
        self.keys.begin(key);
    }

    /// Notes that a run does not have the key any more.
    pub(in crate::scheduler) fn free_key(&mut self, key: &Arc<str>) {
        self.keys.end(key);
        self.wake_key(key);
    }

    /// Lets all jobs that wait for a key try again, because a limit has changed.
    pub(in crate::scheduler) fn wake_keys(&mut self) {
        let waiting: Vec<JobId> =
            self.keys.waited_for().iter().flat_map(|key| self.keys.waiting(key)).collect();
        waiting.into_iter().for_each(|id| self.reschedule(id));
    }

    /// Lets the next job of a key have its turn, if one waits.
    fn wake_key(&mut self, key: &Arc<str>) {
        if let Some(id) = self.next_of_key(key) {
            self.reschedule(id);
        }
    }

    /// Returns whether a run waits for the end of another one, because of a limit.
    pub(in crate::scheduler) fn has_blocked(&self) -> bool {
        self.ready.is_full() || self.keys.has_waiting()
    }

    /// Returns the jobs that run after `job`.
    pub(in crate::scheduler) fn followers(&self, job: &str) -> Vec<JobId> {
        self.followers.get(job).into_iter().flatten().copied().collect()
    }

    /// Notes that the job `before` became the job `now`.
    pub(in crate::scheduler) fn note_follower(&mut self, id: JobId, before: Option<&Job>, now: Option<&Job>) {
        if let Some(of) = before.and_then(|job| job.schedule.follows())
            && let Some(ids) = self.followers.get_mut(&of.job)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.followers.remove(&of.job);
            }
        }
        if let Some(of) = now.and_then(|job| job.schedule.follows()) {
            self.followers.entry(Arc::clone(&of.job)).or_default().insert(id);
        }
        let part = now.or(before).and_then(|job| whole_of(&job.name));
        part.into_iter().for_each(|whole| self.reschedule_named(whole));
    }

    /// Adds a started run to the active runs of its job.
    pub(in crate::scheduler) fn begin(&mut self, id: JobId, run: ActiveRun) {
        if run.here {
            self.ready.on_start();
        }
        if let Some(key) = &run.uses {
            self.use_key(key);
        }
        self.change(id, |job| job.begin(run));
    }

    /// Removes a run that has ended from the active runs, and returns it. Then updates the job's timer and its position
    /// in the ready queue.
    pub(in crate::scheduler) fn end(&mut self, id: JobId, key: &str) -> Option<ActiveRun> {
        let run = self.slot_mut(id)?.job.end(key)?;
        if run.here {
            self.ready.on_end();
        }
        self.reschedule(id);
        if let Some(key) = &run.uses {
            self.free_key(key);
        }
        Some(run)
    }

    /// Updates a job's timer and its position in the ready queue after a change of the job.
    fn reschedule(&mut self, id: JobId) {
        let is_whole = |led: &LedJob| led.job().rules.placement == Placement::EveryWorker;
        let whole = self.get(id).filter(|led| is_whole(led)).map(|led| Arc::clone(&led.job().name));
        let is_held = whole.is_some_and(|name| self.holds_wholes || self.parts_of(&name).next().is_none());
        let slot = self.slots.get_mut(id.place).and_then(Option::as_deref_mut);
        let Some(slot) = slot.filter(|slot| slot.id == id) else { return };
        let (led, asleep) = (&slot.job, slot.phase != Phase::Open);
        let removed = slot.phase == Phase::Removed;
        let timer = led.wake().filter(|_| !asleep);
        let job = led.job();
        // Without the handler, the runs wait for a leader that has it, or for a worker.
        let is_able = |run: &&PendingRun| !is_held && (run.is_for_workers(job) || job.handler().is_some());
        let head = led.head().filter(|_| !asleep).filter(is_able);
        let turn = |run: &PendingRun| match run.is_for_workers(job) {
            _ if run.is_open() => Turn::Open,
            true => Turn::OnWorkers,
            false => Turn::OnLeader,
        };
        let ready = head.map(|run| ReadyOrder::new(turn(run), job.rules.priority, run.not_before, id));
        let waits_for = head.filter(|run| !run.is_open()).and_then(|run| run.uses(job));
        let next = led.next().filter(|_| !removed);
        slot.gauges.state(led.active().len(), next, led.is_paused(), led.is_overdue() && !removed);
        let has_ended = removed && led.active().is_empty();
        // The job that waited has had its turn, or does not need it any more.
        let left = mem::replace(&mut slot.waits_for, waits_for.clone())
            .filter(|key| waits_for.as_ref() != Some(key));
        waits_for.iter().for_each(|key| self.keys.wait(key, id));
        left.iter().for_each(|key| self.keys.stop_waiting(key, id));
        self.timers.set(id, mem::replace(&mut slot.timer, timer), timer);
        self.ready.set(mem::replace(&mut slot.place, ready), ready);
        if has_ended {
            self.ended.extend(self.slots[id.place].take().map(|slot| slot.job));
            self.vacant.push(id.place);
            // The gauges of this job name are zero now. If a job of the same name was added meanwhile, its
            // gauges must be set again.
            if let Some(same) = self.ended.last().and_then(|ended| self.id(&ended.job().name)) {
                self.reschedule(same);
            }
        }
        if let Some(key) = left {
            self.wake_key(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{
        Schedule,
        job::{Job, RequestId, RunCause},
        plan::led_job::find,
        policy::Misfire,
        run::pending_run::PendingRun,
        store::snapshot::tests::{SECOND, at, sealed},
    };

    fn entry(name: &str, period: u32) -> LedJob {
        let job =
            Job::new(name, Schedule::every(period * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        let job = job.misfire(Misfire::run_once(10 * SECOND));
        find(Arc::new(job), &sealed(&[], &[]), None, None, at(10)).led
    }

    /// Starts the first waiting run of a job at the time `now`, and returns the run's key.
    fn start(jobs: &mut JobTable, id: JobId, now: u64) -> Arc<str> {
        let run = jobs.change(id, |led| led.start(at(now)).0).flatten().unwrap();
        let job = Arc::clone(jobs.get(id).unwrap().job());
        jobs.begin(id, ActiveRun::new(&run, &job));
        run.key
    }

    fn plan_due(jobs: &mut JobTable, now: u64) -> Vec<JobId> {
        let mut due = Vec::new();
        while let Some(id) = jobs.pop_due(at(now)) {
            jobs.change(id, |led| led.plan_due(&sealed(&[], &[]), at(now)));
            due.push(id);
        }
        due
    }

    #[test]
    fn a_run_of_a_back_fill_starts_after_the_ticks_that_were_due_before_its_turn() {
        let mut jobs = JobTable::new(1, false, JobsMeasures::new(&"g".into(), []));
        let (filled, due) = (jobs.add(entry("filled", 1_000), false), jobs.add(entry("due", 1), false));
        let run = PendingRun {
            tick: at(1),
            cause: RunCause::Backfilled { id: RequestId::from_u128(7) },
            key: "run/7/filled/1".into(),
            at: at(12),
            not_before: at(12),
            seen: None,
            unknown: false,
            interruptions: 0,
            payload: None,
        };
        jobs.change(filled, |led| led.add_requested(run));
        assert_eq!(plan_due(&mut jobs, 11), [due]);
        assert_eq!(jobs.pop_ready(), Some(due), "due at 11, before the turn of the back-fill at 12");
        assert_eq!(jobs.pop_ready(), Some(filled));
    }

    #[test]
    fn a_job_that_is_due_becomes_ready_and_gets_its_next_timer() {
        let mut jobs = JobTable::new(1, false, JobsMeasures::new(&"g".into(), []));
        let (slow, quick) = (jobs.add(entry("slow", 5), false), jobs.add(entry("quick", 1), false));
        let first = jobs.timers().next().unwrap();
        assert!(first > at(10) && first <= at(11), "{first:?}");
        assert_eq!(plan_due(&mut jobs, 11), [quick]);
        assert!(jobs.timers().next() > Some(at(11)));
        assert_eq!((jobs.pop_ready(), jobs.pop_ready()), (Some(quick), None));
        let key = start(&mut jobs, quick, 11);
        plan_due(&mut jobs, 15);
        assert_eq!((jobs.ready().executing(), jobs.pop_ready()), (1, None), "one run at once");
        assert!(jobs.end(quick, &key).is_some() && jobs.end(quick, &key).is_none());
        assert_eq!(jobs.ready().executing(), 0);
        assert_eq!(jobs.pop_ready().into_iter().chain(jobs.pop_ready()).count(), 2, "{slow:?} and {quick:?}");
    }

    #[test]
    fn nothing_of_a_job_starts_before_it_is_registered_or_after_it_is_removed() {
        let mut jobs = JobTable::new(1, false, JobsMeasures::new(&"g".into(), []));
        let id = jobs.add(entry("j", 1), true);
        assert_eq!(jobs.timers().next(), None);
        jobs.registered(id);
        assert_eq!(plan_due(&mut jobs, 11), [id]);
        jobs.remove(id);
        assert_eq!((jobs.pop_ready(), jobs.timers().next(), jobs.id("j")), (None, None, None));
        assert_eq!(jobs.take_ended().len(), 1);
        assert_eq!(jobs.take_ended().len(), 0);
    }

    #[test]
    fn a_removed_job_stays_until_its_last_run_has_ended_also_beside_another_of_its_name() {
        let mut jobs = JobTable::new(1, false, JobsMeasures::new(&"g".into(), []));
        let first = jobs.add(entry("runs", 1), false);
        plan_due(&mut jobs, 11);
        let key = start(&mut jobs, first, 11);
        jobs.remove(first);
        let again = jobs.add(entry("runs", 1), true);
        assert_ne!(first, again);
        assert_eq!(jobs.id("runs"), Some(again));
        assert!(jobs.take_ended().is_empty());
        jobs.end(first, &key);
        assert_eq!(jobs.take_ended().len(), 1);
        jobs.remove(again);
        assert_eq!(jobs.take_ended().len(), 1, "without runs it ends at once");
        let next = jobs.add(entry("next", 1), true);
        assert!(next.place == again.place && next != again);
        jobs.registered(again);
        assert_eq!((jobs.timers().next(), jobs.jobs().count()), (None, 1), "that write was not of this job");
        jobs.registered(next);
        assert!(jobs.timers().next().is_some());
    }
}
