//! The jobs that the leader has, by name and by place. A place is an index in the table. Each job has a timer
//! and a position in the ready queue.

use crate::{
    env::WallTime,
    measure::{JobGauges, JobsMeasures},
    scheduler::plan::{
        active_run::ActiveRun,
        job_entry::JobEntry,
        ready_queue::{ReadyOrder, ReadyQueue},
        timer_queue::TimerQueue,
    },
};
use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

/// The leader's jobs. A job keeps its place until the job is removed and its last run has ended. After that,
/// another job may get the place.
#[derive(Debug)]
pub(in crate::scheduler) struct JobTable {
    /// Each slot is in a box, so that the list is short and grows without a copy of the jobs.
    slots: Vec<Option<Box<Slot>>>,
    vacant: Vec<usize>,
    names: BTreeMap<Arc<str>, usize>,
    timers: TimerQueue,
    ready: ReadyQueue,
    /// Removed jobs whose last run has ended since the last call of [`JobTable::take_ended`].
    ended: Vec<JobEntry>,
    measures: JobsMeasures,
}

#[derive(Debug)]
struct Slot {
    entry: JobEntry,
    /// True while the first write of the job's row is in progress. No run of the job starts before this write
    /// has ended.
    registering: bool,
    /// True if the job was removed. Active runs continue, and no further run of the job starts.
    removed: bool,
    timer: Option<WallTime>,
    place: Option<ReadyOrder>,
    gauges: JobGauges,
}

impl JobTable {
    /// Creates an empty table for a leader that executes at most `max_executing` runs at once.
    pub(in crate::scheduler) fn new(max_executing: usize, measures: JobsMeasures) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            names: BTreeMap::new(),
            timers: TimerQueue::default(),
            ready: ReadyQueue::new(max_executing),
            ended: Vec::new(),
            measures,
        }
    }

    /// Returns the place of a job that is not removed.
    pub(in crate::scheduler) fn place(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Returns the jobs that are not removed, with their places.
    pub(in crate::scheduler) fn names(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.names.iter().map(|(name, place)| (name, *place))
    }

    /// Returns all jobs, including removed jobs that have active runs.
    pub(in crate::scheduler) fn entries(&self) -> impl Iterator<Item = &JobEntry> + Clone {
        self.slots.iter().flatten().map(|slot| &slot.entry)
    }

    pub(in crate::scheduler) fn get(&self, place: usize) -> Option<&JobEntry> {
        self.slots.get(place)?.as_ref().map(|slot| &slot.entry)
    }

    /// Adds a job, and returns its place. If `registering` is true, no run of the job starts until the job's
    /// row is written and [`JobTable::registered`] is called.
    pub(in crate::scheduler) fn add(&mut self, entry: JobEntry, registering: bool) -> usize {
        let place = self.vacant.pop().unwrap_or(self.slots.len());
        self.names.insert(Arc::clone(&entry.job().name), place);
        let gauges = self.measures.gauges(&entry.job().name);
        let slot = Slot { entry, registering, removed: false, timer: None, place: None, gauges };
        let slot = Some(Box::new(slot));
        match self.slots.get_mut(place) {
            Some(vacant) => *vacant = slot,
            None => self.slots.push(slot),
        }
        self.reschedule(place);
        place
    }

    /// Lets `change` modify the job at `place`, then updates the job's timer and its position in the ready
    /// queue. Returns `None` if there is no job at `place`.
    pub(in crate::scheduler) fn change<T>(
        &mut self,
        place: usize,
        change: impl FnOnce(&mut JobEntry) -> T,
    ) -> Option<T> {
        let changed = change(&mut self.slots.get_mut(place)?.as_mut()?.entry);
        self.reschedule(place);
        Some(changed)
    }

    /// Handles the end of the write of a new job's row. `place` is the place of the job.
    pub(in crate::scheduler) fn registered(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) {
            slot.registering = false;
        }
        self.reschedule(place);
    }

    /// Marks a job as removed. Another job can then get the same name. The removed job keeps its place until
    /// its last run has ended.
    pub(in crate::scheduler) fn remove(&mut self, place: usize) {
        let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) else { return };
        slot.removed = true;
        self.names.remove(&slot.entry.job().name);
        self.reschedule(place);
    }

    /// Removes and returns the removed jobs whose last run has ended.
    pub(in crate::scheduler) fn take_ended(&mut self) -> Vec<JobEntry> {
        mem::take(&mut self.ended)
    }

    /// Returns the time when the next job is due.
    pub(in crate::scheduler) fn next_due(&self) -> Option<WallTime> {
        self.timers.next()
    }

    /// Returns the time when the next jobs are handled: see [`TimerQueue::next_group`].
    pub(in crate::scheduler) fn next_group(&self, within: Duration) -> Option<WallTime> {
        self.timers.next_group(within)
    }

    /// Finds the job whose timer is the earliest. If this job is due at `now`, removes its timer and returns
    /// its place. The next [`JobTable::change`] of the job sets the timer again.
    pub(in crate::scheduler) fn pop_due(&mut self, now: WallTime) -> Option<usize> {
        let place = self.timers.pop(now)?;
        if let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) {
            slot.timer = None;
        }
        Some(place)
    }

    /// Removes the first job with a run that may start now from the ready queue, and returns the job's place.
    /// The next [`JobTable::change`] of the job puts it back.
    pub(in crate::scheduler) fn pop_ready(&mut self) -> Option<usize> {
        let place = self.ready.pop()?;
        if let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) {
            slot.place = None;
        }
        Some(place)
    }

    /// Adds a started run to the active runs of its job.
    pub(in crate::scheduler) fn begin(&mut self, place: usize, run: ActiveRun) {
        if run.here {
            self.ready.on_start();
        }
        self.change(place, |entry| entry.plan_mut().begin(run));
    }

    /// Removes a run that has ended from the active runs, and lets `change` modify the run's job. Then updates
    /// the job's timer and its position in the ready queue.
    pub(in crate::scheduler) fn end<T>(
        &mut self,
        place: usize,
        key: &str,
        change: impl FnOnce(&mut JobEntry, &ActiveRun) -> T,
    ) -> Option<T> {
        let slot = self.slots.get_mut(place)?.as_mut()?;
        let run = slot.entry.plan_mut().end(key)?;
        if run.here {
            self.ready.on_end();
        }
        let changed = change(&mut slot.entry, &run);
        self.reschedule(place);
        Some(changed)
    }

    /// Returns the number of runs that the leader executes.
    pub(in crate::scheduler) fn executing(&self) -> usize {
        self.ready.executing()
    }

    /// Returns whether the leader executes as many runs as it may.
    pub(in crate::scheduler) fn is_full(&self) -> bool {
        self.ready.is_full()
    }

    /// Updates a job's timer and its position in the ready queue after a change of the job.
    fn reschedule(&mut self, place: usize) {
        let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) else { return };
        let (plan, asleep) = (slot.entry.plan(), slot.registering || slot.removed);
        let timer = slot.entry.wake().filter(|_| !asleep);
        let head = plan.head().filter(|_| !asleep);
        let job = plan.job();
        let ready =
            head.map(|run| ReadyOrder::new(!run.is_for_workers(job), job.priority, run.not_before, place));
        // A removed job also keeps its place until the write of its row has ended. The event loop reports that
        // end only with the number of the place. If another job had got the place by then, it would receive
        // this report.
        let has_ended = slot.removed && plan.active().is_empty() && !slot.registering;
        let next = plan.next().filter(|_| !slot.removed);
        let overdue = slot.entry.is_overdue() && !slot.removed;
        slot.gauges.state(plan.active().len(), next, slot.entry.is_paused(), overdue);
        self.timers.set(place, mem::replace(&mut slot.timer, timer), timer);
        self.ready.set(mem::replace(&mut slot.place, ready), ready);
        if has_ended {
            self.ended.extend(self.slots[place].take().map(|slot| slot.entry));
            self.vacant.push(place);
            // The gauges of this job name are zero now. If a job of the same name was added meanwhile, its
            // gauges must be set again.
            if let Some(same) = self.ended.last().and_then(|entry| self.place(&entry.job().name)) {
                self.reschedule(same);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{
        job::{Job, RequestId, RunCause},
        plan::job_entry::find,
        policy::Misfire,
        run::pending_run::PendingRun,
        schedule::every,
        store::snapshot::tests::{SECOND, at, sealed},
    };

    fn entry(name: &str, period: u32) -> JobEntry {
        let job = Job::new(name, every(period * SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        let job = job.misfire(Misfire::run_once(10 * SECOND));
        find(Arc::new(job), &sealed(&[], &[]), None, None, at(10)).entry
    }

    /// Starts the first waiting run of the job at `place` at the time `now`, and returns the run's key.
    fn start(jobs: &mut JobTable, place: usize, now: u64) -> Arc<str> {
        let run = jobs.change(place, |entry| entry.plan_mut().start(at(now)).0).flatten().unwrap();
        let job = Arc::clone(jobs.get(place).unwrap().job());
        jobs.begin(place, ActiveRun::new(&run, &job));
        run.key
    }

    fn plan_due(jobs: &mut JobTable, now: u64) -> Vec<usize> {
        let mut due = Vec::new();
        while let Some(place) = jobs.pop_due(at(now)) {
            jobs.change(place, |entry| entry.plan_mut().plan_due(&sealed(&[], &[]), at(now)));
            due.push(place);
        }
        due
    }

    #[test]
    fn a_run_of_a_back_fill_starts_after_the_ticks_that_were_due_before_its_turn() {
        let mut jobs = JobTable::new(1, JobsMeasures::new(&"g".into(), []));
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
        };
        jobs.change(filled, |entry| entry.plan_mut().add_requested(run));
        assert_eq!(plan_due(&mut jobs, 11), [due]);
        assert_eq!(jobs.pop_ready(), Some(due), "due at 11, before the turn of the back-fill at 12");
        assert_eq!(jobs.pop_ready(), Some(filled));
    }

    #[test]
    fn a_job_that_is_due_becomes_ready_and_gets_its_next_timer() {
        let mut jobs = JobTable::new(1, JobsMeasures::new(&"g".into(), []));
        let (slow, quick) = (jobs.add(entry("slow", 5), false), jobs.add(entry("quick", 1), false));
        let first = jobs.next_due().unwrap();
        assert!(first > at(10) && first <= at(11), "{first:?}");
        assert_eq!(plan_due(&mut jobs, 11), [quick]);
        assert!(jobs.next_due() > Some(at(11)));
        assert_eq!((jobs.pop_ready(), jobs.pop_ready()), (Some(quick), None));
        let key = start(&mut jobs, quick, 11);
        plan_due(&mut jobs, 15);
        assert_eq!((jobs.executing(), jobs.pop_ready()), (1, None), "one run at once");
        assert!(jobs.end(quick, &key, |_, _| ()).is_some() && jobs.end(quick, &key, |_, _| ()).is_none());
        assert_eq!(jobs.executing(), 0);
        assert_eq!(jobs.pop_ready().into_iter().chain(jobs.pop_ready()).count(), 2, "{slow} and {quick}");
    }

    #[test]
    fn nothing_of_a_job_starts_before_it_is_registered_or_after_it_is_removed() {
        let mut jobs = JobTable::new(1, JobsMeasures::new(&"g".into(), []));
        let place = jobs.add(entry("j", 1), true);
        assert_eq!(jobs.next_due(), None);
        jobs.registered(place);
        assert_eq!(plan_due(&mut jobs, 11), [place]);
        jobs.remove(place);
        assert_eq!((jobs.pop_ready(), jobs.next_due(), jobs.place("j")), (None, None, None));
        assert_eq!(jobs.take_ended().len(), 1);
        assert_eq!(jobs.take_ended().len(), 0);
    }

    #[test]
    fn a_place_is_given_to_another_job_only_after_the_last_run_and_the_registration() {
        let mut jobs = JobTable::new(1, JobsMeasures::new(&"g".into(), []));
        let place = jobs.add(entry("runs", 1), false);
        plan_due(&mut jobs, 11);
        let key = start(&mut jobs, place, 11);
        jobs.remove(place);
        let again = jobs.add(entry("runs", 1), true);
        assert_ne!(place, again);
        assert_eq!(jobs.place("runs"), Some(again));
        assert!(jobs.take_ended().is_empty());
        jobs.end(place, &key, |_, _| ());
        assert_eq!(jobs.take_ended().len(), 1);
        jobs.remove(again);
        assert!(jobs.take_ended().is_empty(), "the write that registers it is in flight");
        assert_eq!(jobs.add(entry("next", 1), false), place);
        jobs.registered(again);
        assert_eq!(jobs.take_ended().len(), 1);
        assert_eq!(jobs.entries().count(), 1);
    }
}
