//! The open runs of unknown jobs: jobs that the leader does not have.
//!
//! An unknown job may belong to another version of the program, or may have been removed. Workers that have the
//! job can still take its open runs. The leader watches these runs in the same way as runs of its own jobs, so
//! that each end is written to the history:
//!
//! * If a worker executes the run, the leader closes the run with its outcome.
//! * If no worker takes the run in time, the leader closes the run: as skipped in its first generation, and as
//!   cancelled in a later generation.
//! * If the run is at-least-once and is lost, only a leader that has the job opens another generation. So the
//!   run waits for such a leader. The leader ends the waiting run once the job has ended, which means that no
//!   worker has refreshed the job's data during the ledger's retention.

use crate::{
    env::WallTime,
    scheduler::{
        job::Job,
        plan::{
            active_run::Withdrawal,
            effect::{Effect, RunStart},
        },
        run::pending_run::PendingRun,
        schedule::Schedule,
        store::{RunRecord, job_and_tick, snapshot::LedgerSnapshot},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The watched runs, by key. Each run has a [stand-in](stand_in) for its job, because the leader does not have
/// the job, and its concurrency key.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct UnknownRuns {
    runs: BTreeMap<Arc<str>, Watched>,
}

/// A watched run: the stand-in for its job, and its concurrency key.
type Watched = (Arc<Job>, Option<Arc<str>>);

impl UnknownRuns {
    /// Starts to watch the open runs of all jobs that the leader does not have. Returns their concurrency keys.
    pub(in crate::scheduler) fn watch(
        &mut self,
        sealed: &LedgerSnapshot,
        is_known: impl Fn(&str) -> bool,
        out: &mut Vec<Effect>,
    ) -> Vec<Arc<str>> {
        let mut used = Vec::new();
        for (key, record) in sealed.open_runs() {
            let Some((name, tick)) = job_and_tick(key).filter(|(name, _)| !is_known(name)) else { continue };
            let run = PendingRun::recorded(Arc::clone(key), tick, record.clone());
            let RunRecord::Open(open) = record else { continue };
            let job = stand_in(name, tick);
            used.extend(open.uses.clone());
            self.runs.insert(Arc::clone(key), (Arc::clone(&job), open.uses.clone()));
            let state = sealed.state(name);
            out.push(Effect::Open(RunStart {
                owner: None,
                job,
                state,
                run,
                payload: None,
                end_needed_at: None,
            }));
        }
        used
    }

    /// Returns the names of the jobs of the watched runs.
    pub(in crate::scheduler) fn jobs(&self) -> BTreeSet<Arc<str>> {
        self.runs.values().map(|(job, _)| Arc::clone(&job.name)).collect()
    }

    /// Stops watching the runs of a job that was just added to the leader. Returns whether any such run was
    /// watched. If so, the leader must not take the job over before the tasks that watch these runs have ended.
    pub(in crate::scheduler) fn release(&self, job: &str, out: &mut Vec<Effect>) -> bool {
        let before = out.len();
        out.extend(self.of_job(job).map(|key| Effect::Release { key: Arc::clone(key) }));
        out.len() > before
    }

    /// Ends the watched runs of a job that has ended, unless a worker has started them.
    pub(in crate::scheduler) fn end_job(&self, job: &str, out: &mut Vec<Effect>) {
        let end = |key: &Arc<str>| Effect::Withdraw { key: Arc::clone(key), why: Withdrawal::Ended };
        out.extend(self.of_job(job).map(end));
    }

    /// Handles the end of the task that watches the run under `key`. Returns the stand-in for the run's job, and the
    /// concurrency key.
    pub(in crate::scheduler) fn end(&mut self, key: &str) -> Option<Watched> {
        self.runs.remove(key)
    }

    fn of_job(&self, job: &str) -> impl Iterator<Item = &Arc<str>> {
        self.runs.iter().filter(move |(_, (other, _))| *other.name == *job).map(|(key, _)| key)
    }
}

/// Returns a stand-in for a job that the leader does not have. The stand-in is never due, and its handler never
/// runs. It keeps all history entries, because the leader does not know how many entries the job keeps. A
/// leader that has the job prunes the history later.
fn stand_in(name: &str, tick: WallTime) -> Arc<Job> {
    let job = Job::new(name, Schedule::at(tick), |_| async {
        Err::<(), _>("a leader without the job cannot execute it")
    });
    Arc::new(job.history(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::FencingToken,
        scheduler::{
            job::RunCause,
            policy::Delivery,
            store::{
                OpenRun, RunKey,
                snapshot::tests::{at, snapshot, tick_record},
            },
        },
    };

    fn opened(job: &str, tick: u64) -> (Arc<str>, Arc<str>) {
        let open = OpenRun {
            generation: 1,
            at: at(tick),
            not_before: at(tick + 1),
            take_by: at(tick + 5),
            delivery: Delivery::AtLeastOnce,
            cause: RunCause::Scheduled,
            term: FencingToken::new(3),
            labels: Default::default(),
            uses: None,
            state: None,
            cancel: None,
            payload: None,
            job: None,
            token: FencingToken::new(1),
            to: None,
        };
        (RunKey::new(job, at(tick)).key(), RunRecord::Open(open).to_value())
    }

    fn watched(is_known: impl Fn(&str) -> bool) -> (UnknownRuns, Vec<Effect>) {
        let records = [opened("a", 5), opened("b", 6), tick_record(7, 1, false), tick_record(8, 1, true)];
        let sealed = snapshot(records);
        let (mut runs, mut out) = (UnknownRuns::default(), Vec::new());
        runs.watch(&sealed, is_known, &mut out);
        (runs, out)
    }

    #[test]
    fn the_open_runs_of_jobs_that_the_leader_does_not_know_are_watched() {
        let (runs, out) = watched(|job| job == "b");
        let [Effect::Open(start)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((start.owner, &*start.job.name, start.run.tick), (None, "a", at(5)));
        assert_eq!(start.run.not_before, at(6));
        assert!(start.run.seen.is_some() && start.run.is_for_workers(&start.job));
        assert_eq!(runs.jobs().into_iter().collect::<Vec<_>>(), [Arc::<str>::from("a")]);
        assert_eq!(start.job.schedule.next_after(at(5)), None, "the stand-in is never due");
    }

    #[test]
    fn a_watch_is_released_for_a_job_that_comes_and_ended_with_a_job_that_ends() {
        let (mut runs, _) = watched(|_| false);
        let mut out = Vec::new();
        assert!(runs.release("a", &mut out));
        assert!(matches!(&out[..], [Effect::Release { key }] if *key == opened("a", 5).0), "{out:?}");
        out.clear();
        runs.end_job("b", &mut out);
        assert!(
            matches!(&out[..], [Effect::Withdraw { why: Withdrawal::Ended, key }] if *key == opened("b", 6).0)
        );
        assert_eq!(runs.end(&opened("a", 5).0).map(|(job, _)| job.name.to_string()).as_deref(), Some("a"));
        assert!(runs.end(&opened("a", 5).0).is_none() && !runs.release("a", &mut out));
    }
}
