//! Determines how long the nodes keep the data of a job after its last worker has stopped.
//!
//! Every worker that runs a scheduler, leader or not, *vouches* for its jobs from time to time. This means that
//! the worker stores the present time for each of its jobs in `jobs`, a part of the group's ledger. So this
//! part has, for each job, the last time at which a worker vouched for the job. At the same time, the worker
//! renews the lifetimes of the job's history and of the group's ledgers. If no worker vouches for a job any
//! more, the data of the job ends:
//!
//! * The nodes remove a history by their own clocks, with or without a leader,
//!   [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention) after the job's last
//!   worker has stopped. They remove all ledgers of a group without workers in the same way.
//! * If no worker has vouched for a job during `ledger_retention`, the leader closes the job's row, state and
//!   open requests, unless the leader has the job itself. Pruning then removes them from the ledger. So a
//!   leader of another version does not remove the data of a job while a worker with the job runs.
//! * If a worker with the job starts within that time, it vouches for the job, and no data is lost.
//!
//! # What is not guaranteed
//!
//! A worker that cannot reach a majority for as long as the retention is treated as stopped. If the nodes have
//! lost the time at which a worker last vouched for a job, the retention of the job starts again when a leader
//! notices the loss.

use crate::{
    env::{Env, WallTime},
    ledger::{Answered, Ledger, LedgerError},
    node::{FencingToken, Record},
    scheduler::{
        registry::{JobMap, JobRegistry},
        store::{HistoryEntry, JobRow, WorkRow, record_life::needed},
    },
};
use futures_util::future::join_all;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;

/// The part of a group's ledger that stores when each job was last vouched for.
const PART: &str = "jobs";
/// The longest time between two rounds in which a worker vouches for its jobs.
const EVERY_MAX: Duration = Duration::from_secs(3600);
/// The pause after the first failed round, which too few nodes answered. The pause doubles with each further
/// failed round.
const ROUND_RETRY: Duration = Duration::from_secs(1);
/// The number of failed rounds in a row after which a warning is logged, once.
const FAILED_ROUNDS_WARN: u32 = 5;
/// The largest number of jobs for which a worker vouches at the same time.
const RENEWALS_MAX: usize = 64;
/// The longest pause between two turns of a round.
const TURN_PAUSE_MAX: Duration = Duration::from_secs(1);
/// The shortest lifetime of a group's ledger. A leader thus finds the data that it needs after an outage.
const GROUP_LIFE_MIN: Duration = Duration::from_secs(3600);

/// Vouches for the jobs of a worker: stores in the ledger, from time to time, that a worker has them. Also
/// finds the jobs for which no worker vouches any more.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Retention {
    main: Ledger,
    env: Env,
    worker: Arc<str>,
    retention: Duration,
    max_clock_offset: Duration,
}

/// The last time at which a worker vouched for each job, as far as this worker has read or written it.
#[derive(Debug, Default)]
struct LastVouched(BTreeMap<Arc<str>, WallTime>);

impl Retention {
    pub(in crate::scheduler) fn new(main: &Ledger) -> Self {
        let quorum = main.quorum();
        let config = quorum.config();
        Self {
            main: main.clone(),
            env: quorum.env().clone(),
            worker: Arc::clone(&config.worker),
            retention: config.ledger_retention,
            max_clock_offset: config.max_clock_offset,
        }
    }

    /// Returns the pause between two rounds of vouching.
    pub(in crate::scheduler) fn every(&self) -> Duration {
        (self.retention / 8).min(EVERY_MAX)
    }

    /// Returns the lifetime of a history. It is the retention plus two rounds of vouching. So the nodes keep
    /// the history for at least the retention after the job's last worker has stopped.
    pub(in crate::scheduler) fn history_life(&self) -> Duration {
        self.retention + self.every() * 2
    }

    /// Renews the lifetime of a job's history on the nodes, if the job has a history.
    pub(in crate::scheduler) async fn keep_history(&self, job: &str) -> Result<(), LedgerError> {
        self.main.part(&HistoryEntry::part(job)).keep(self.history_life()).await
    }

    /// Vouches for the registry's jobs until the future is dropped. If several tasks call this function for the
    /// same registry, only one of them vouches at a time.
    pub(in crate::scheduler) async fn vouch(self, registry: JobRegistry) {
        let _turn = registry.vouching().lock().await;
        let (mut changed, _) = registry.watch();
        let mut vouched = LastVouched::default();
        let mut failed: u32 = 0;
        loop {
            changed.borrow_and_update();
            let pause = match self.round(&registry, &mut vouched, &mut changed).await {
                // The pause is partly random, so that workers usually vouch at different times. A worker that
                // vouches later finds the times that another worker has stored, and skips those jobs.
                Ok(()) => {
                    failed = 0;
                    self.every() / 2 + self.env.random_below(self.every() / 2)
                }
                Err(error) => {
                    failed = failed.saturating_add(1);
                    match failed {
                        FAILED_ROUNDS_WARN => tracing::warn!(
                            "cannot renew the retention of the jobs' data, after {failed} attempts: {error}"
                        ),
                        _ => tracing::debug!("cannot renew the retention of the jobs' data yet: {error}"),
                    }
                    ROUND_RETRY.saturating_mul(1 << (failed - 1).min(12)).min(self.every())
                }
            };
            tokio::select! { biased;
                _ = changed.changed() => {}
                () = self.env.sleep(pause) => {}
            }
        }
    }

    /// Vouches for the jobs for which no worker has vouched recently, a few at a time, and renews the lifetimes
    /// of the group's ledgers. Returns early if the jobs change.
    async fn round(
        &self,
        registry: &JobRegistry,
        vouched: &mut LastVouched,
        changed: &mut watch::Receiver<u64>,
    ) -> Result<(), LedgerError> {
        let jobs = registry.jobs();
        let names = registry.names();
        vouched.0.retain(|job, _| names.contains(job));
        let now = self.main.wall();
        let stale = names.iter().filter(|job| vouched.is_stale(job, now, self.every() / 2));
        let stale: Vec<Arc<str>> = stale.cloned().collect();
        let (mut turns, pause) = (stale.chunks(RENEWALS_MAX), self.turn_pause(stale.len()));
        let mut renewed = match turns.next() {
            Some(turn) => self.renew_all(turn, vouched).await,
            None => Ok(()),
        };
        // The part `jobs` exists from the first turn on. A lifetime that is set before has no effect.
        renewed = renewed.and(self.keep_ledgers(&jobs).await);
        for turn in turns {
            tokio::select! { biased;
                Ok(()) = changed.changed() => {
                    changed.mark_changed();
                    return renewed;
                }
                () = self.env.sleep(pause) => {}
            }
            renewed = renewed.and(self.renew_all(turn, vouched).await);
        }
        renewed
    }

    /// Returns the pause between two turns of a round that vouches for so many jobs. The round then lasts for
    /// about a quarter of the time between two rounds, so that very many jobs do not delay the runs that are due.
    fn turn_pause(&self, jobs: usize) -> Duration {
        let turns = u32::try_from(jobs.div_ceil(RENEWALS_MAX)).unwrap_or(u32::MAX).max(1);
        (self.every() / 4 / turns).min(TURN_PAUSE_MAX)
    }

    /// Vouches for those of `jobs` for which no worker has vouched recently. First renews the lifetimes of all their
    /// histories, and then stores the time for each job whose history has its lifetime. So requests of one kind follow
    /// one another, and share their calls.
    async fn renew_all(&self, jobs: &[Arc<str>], vouched: &mut LastVouched) -> Result<(), LedgerError> {
        let found = self.stored(jobs).await?;
        let now = self.main.wall();
        let mut stale = Vec::new();
        for (job, seen) in jobs.iter().zip(found) {
            vouched.0.extend(seen.as_ref().map(|seen| (Arc::clone(job), WallTime::from_micros(seen.at))));
            if vouched.is_stale(job, now, self.every() / 2) {
                stale.push((job, seen));
            }
        }
        let kept = join_all(stale.iter().map(|(job, _)| self.keep_history(job))).await;
        let mut renewed = Ok(());
        let mut to_note = Vec::new();
        for ((job, seen), kept) in stale.into_iter().zip(kept) {
            match kept {
                Ok(()) => to_note.push((job, seen)),
                Err(error) => renewed = Err(error),
            }
        }
        let noted = join_all(to_note.iter().map(|(job, seen)| self.note(job, seen.as_ref(), now))).await;
        for ((job, _), noted) in to_note.into_iter().zip(noted) {
            if noted.is_ok() {
                vouched.0.insert(Arc::clone(job), now);
            }
            renewed = renewed.and(noted);
        }
        renewed
    }

    /// Renews the lifetimes of the group's ledgers.
    async fn keep_ledgers(&self, jobs: &JobMap) -> Result<(), LedgerError> {
        let mut kept = self.keep_main(jobs).await;
        for part in
            [self.part(), self.main.part("inbox"), self.main.part("audit"), self.main.part(WorkRow::PART)]
        {
            kept = kept.and(part.keep(self.group_life(jobs)).await);
        }
        kept
    }

    /// Renews the lifetime of the group's main ledger.
    pub(in crate::scheduler) async fn keep_main(&self, jobs: &JobMap) -> Result<(), LedgerError> {
        self.main.keep(self.group_life(jobs)).await
    }

    fn group_life(&self, jobs: &JobMap) -> Duration {
        let longest = jobs.values().map(|job| needed(job, self.max_clock_offset)).max();
        group_life(self.retention, longest.unwrap_or_default())
    }

    /// Returns those jobs of `unknown` that have ended. `unknown` are the jobs that the leader does not have.
    /// If the ledger does not have the time at which a worker last vouched for a job, the present time is
    /// stored, and the job's retention starts now.
    pub(in crate::scheduler) async fn ended(
        &self,
        unknown: Vec<Arc<str>>,
    ) -> Result<Vec<Arc<str>>, LedgerError> {
        let mut ended = Vec::new();
        for jobs in unknown.chunks(RENEWALS_MAX) {
            let now = self.main.wall();
            for (job, seen) in jobs.iter().zip(self.stored(jobs).await?) {
                match seen.map(|seen| WallTime::from_micros(seen.at)) {
                    None => self.note(job, None, now).await?,
                    Some(at) if at + self.retention < now => ended.push(Arc::clone(job)),
                    Some(_) => {}
                }
            }
        }
        Ok(ended)
    }

    /// Removes the times of jobs for which no worker has vouched for twice the retention.
    pub(in crate::scheduler) async fn prune(&self) -> Result<(), LedgerError> {
        let below = (self.main.wall() - self.retention * 2).as_micros();
        self.part().prune(below).await
    }

    /// Returns, for each of `jobs`, the latest record of a worker that vouched for the job.
    async fn stored(&self, jobs: &[Arc<str>]) -> Result<Vec<Option<Record>>, LedgerError> {
        let keys: Vec<Arc<str>> = jobs.iter().map(|job| JobRow::key(job)).collect();
        let found = self.part().read_keys(&keys).await?;
        Ok(keys.iter().map(|key| latest(&found, key)).collect())
    }

    fn part(&self) -> Ledger {
        self.main.part(PART)
    }

    /// Stores that a worker vouched for `job` at the time `at`. Does nothing if the ledger already has a later
    /// time.
    async fn note(&self, job: &str, seen: Option<&Record>, at: WallTime) -> Result<(), LedgerError> {
        let value = Arc::clone(&self.worker);
        let record = Record { at: at.as_micros(), term: FencingToken::default(), last: false, value };
        self.part().write_over(&JobRow::key(job), seen, &record).await
    }
}

impl LastVouched {
    /// Returns whether more than `time` has passed since a worker last vouched for `job`, as far as this worker
    /// knows.
    fn is_stale(&self, job: &str, now: WallTime, time: Duration) -> bool {
        self.0.get(job).is_none_or(|at| *at + time < now)
    }
}

fn latest(answers: &[Answered], job: &str) -> Option<Record> {
    answers.iter().filter_map(|answer| answer.record(job)).max_by_key(|record| record.at).cloned()
}

/// Returns the time for which the nodes keep a group's ledgers after the group's last worker has stopped. The
/// returned time is longer than the time for which a leader needs the records.
fn group_life(retention: Duration, needed: Duration) -> Duration {
    (retention + retention / 4).max(needed.saturating_mul(2)).max(GROUP_LIFE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::LedgerState;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    /// Returns the answer of a node that has records of these times of the job `j`.
    fn answer(found: &[WallTime]) -> Answered {
        let record = |at: &WallTime| {
            let (at, term) = (at.as_micros(), FencingToken::default());
            ("j".into(), Record { at, term, last: false, value: "w".into() })
        };
        let records = found.iter().map(record).collect();
        Answered { state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
    }

    #[test]
    fn the_latest_record_of_any_node_counts() {
        let answers = [answer(&[at(3)]), answer(&[]), answer(&[at(5)]), answer(&[at(1)])];
        assert_eq!(latest(&answers, "j").map(|seen| seen.at), Some(at(5).as_micros()));
        assert_eq!(latest(&answers[1..2], "j"), None);
        assert_eq!(latest(&answers, "other"), None);
        let vouched = LastVouched([("a".into(), at(5))].into());
        assert!(!vouched.is_stale("a", at(9), 4 * SECOND) && vouched.is_stale("a", at(10), 4 * SECOND));
        assert!(vouched.is_stale("b", at(9), 4 * SECOND));
    }

    #[test]
    fn a_group_s_ledgers_outlive_every_record_that_a_leader_needs() {
        let day = 24 * 3600 * SECOND;
        assert_eq!(group_life(SECOND, SECOND), GROUP_LIFE_MIN);
        assert_eq!(group_life(30 * day, day), 37 * day + day / 2);
        assert_eq!(group_life(30 * day, 40 * day), 80 * day);
    }
}
