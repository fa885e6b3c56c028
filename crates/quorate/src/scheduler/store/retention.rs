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

use crate::scheduler::{HistoryEntry, JobRow, registry::JobRegistry};
use crate::{
    env::{Env, WallTime},
    ledger::{Answered, Ledger, LedgerError},
    node::{FencingToken, Record},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

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
/// The largest number of records that one write overwrites, one after another. Other workers may write the same
/// key while this write is repeated.
const VOUCH_OVERWRITES_MAX: usize = 8;
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

/// The content of the `jobs` part of the ledger: for each job, the last time at which a worker vouched for the
/// job, and the record.
#[derive(Debug, Default)]
struct Vouched(BTreeMap<Arc<str>, (WallTime, Record)>);

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
        let mut failed: u32 = 0;
        loop {
            let round = self.round(&registry).await;
            let pause = match round {
                // The pause is partly random, so that workers usually vouch at different times. A worker that
                // vouches later finds the times that another worker has stored, and skips those jobs.
                Ok(()) => {
                    failed = 0;
                    self.every() * 3 / 4 + self.env.random_below(self.every() / 2)
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

    async fn round(&self, registry: &JobRegistry) -> Result<(), LedgerError> {
        let jobs = registry.jobs();
        let vouched = Vouched::read(&self.part().read().await?);
        let now = self.main.wall();
        let mut renewals: FuturesUnordered<BoxFuture<'_, Result<(), LedgerError>>> = FuturesUnordered::new();
        let mut renewed = Ok(());
        for job in jobs.keys() {
            if !vouched.is_stale(job, now, self.every() / 2) {
                continue;
            }
            if renewals.len() >= RENEWALS_MAX
                && let Some(result) = renewals.next().await
            {
                renewed = renewed.and(result);
            }
            renewals.push(self.renew(job, vouched.record(job), now).boxed());
        }
        while let Some(result) = renewals.next().await {
            renewed = renewed.and(result);
        }
        let longest =
            jobs.values().map(|job| crate::scheduler::plan::needed(job, self.max_clock_offset)).max();
        let life = group_life(self.retention, longest.unwrap_or_default());
        let parts = [self.main.clone(), self.part(), self.main.part("inbox"), self.main.part("audit")];
        for part in parts {
            renewed = renewed.and(part.keep(life).await);
        }
        renewed
    }

    async fn renew(&self, job: &str, seen: Option<&Record>, now: WallTime) -> Result<(), LedgerError> {
        self.keep_history(job).await?;
        self.note(job, seen, now).await
    }

    /// Returns those jobs of `unknown` that have ended. `unknown` are the jobs that the leader does not have.
    /// If the ledger does not have the time at which a worker last vouched for a job, the present time is
    /// stored, and the job's retention starts now.
    pub(in crate::scheduler) async fn ended(
        &self,
        unknown: BTreeSet<Arc<str>>,
    ) -> Result<Vec<Arc<str>>, LedgerError> {
        let part = self.part();
        let vouched = Vouched::read(&part.read().await?);
        let now = self.main.wall();
        let mut ended = Vec::new();
        for job in unknown {
            if vouched.record(&job).is_none() {
                self.note(&job, None, now).await?;
            } else if vouched.is_stale(&job, now, self.retention) {
                ended.push(job);
            }
        }
        let below = (now - self.retention * 2).as_micros();
        if vouched.0.values().any(|(at, _)| at.as_micros() < below) {
            part.prune(FencingToken::default(), below).await?;
        }
        Ok(ended)
    }

    fn part(&self) -> Ledger {
        self.main.part(PART)
    }

    /// Stores that a worker vouched for `job` at the time `at`. Does nothing if the ledger already has a later
    /// time.
    async fn note(&self, job: &str, seen: Option<&Record>, at: WallTime) -> Result<(), LedgerError> {
        let value = Arc::clone(&self.worker);
        let record = Record { at: at.as_micros(), term: FencingToken::default(), last: false, value };
        write_over(&self.part(), &JobRow::key(job), seen, &record).await
    }
}

impl Vouched {
    /// Reads the `jobs` part from the nodes' answers. If the nodes have several records of a job, the latest
    /// counts.
    fn read(answers: &[Answered]) -> Self {
        let mut all: BTreeMap<Arc<str>, (WallTime, Record)> = BTreeMap::new();
        for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
            let Some(job) = key.strip_prefix(JobRow::PREFIX) else { continue };
            let at = WallTime::from_micros(record.at);
            if all.get(job).is_none_or(|(known, _)| *known < at) {
                all.insert(job.into(), (at, record.clone()));
            }
        }
        Self(all)
    }

    fn record(&self, job: &str) -> Option<&Record> {
        self.0.get(job).map(|(_, record)| record)
    }

    /// Returns whether more than `time` has passed since a worker last vouched for `job`.
    fn is_stale(&self, job: &str, now: WallTime, time: Duration) -> bool {
        self.0.get(job).is_none_or(|(at, _)| *at + time < now)
    }
}

/// Returns the time for which the nodes keep a group's ledgers after the group's last worker has stopped. The
/// returned time is longer than the time for which a leader needs the records.
fn group_life(retention: Duration, needed: Duration) -> Duration {
    (retention + retention / 4).max(needed.saturating_mul(2)).max(GROUP_LIFE_MIN)
}

/// Writes `record`. If the write finds older records of other workers, it overwrites them.
async fn write_over(
    ledger: &Ledger,
    key: &Arc<str>,
    seen: Option<&Record>,
    record: &Record,
) -> Result<(), LedgerError> {
    let mut seen = seen.cloned();
    for _ in 0..VOUCH_OVERWRITES_MAX {
        match ledger.write(key, seen.as_ref(), record).await {
            Err(LedgerError::Standing(other)) if !other.last && seen.as_ref() != Some(&other) => {
                if other.at >= record.at {
                    return Ok(());
                }
                seen = Some(other);
            }
            // Another worker wrote a newer record at the same time. That record serves the same purpose.
            Err(LedgerError::Standing(_)) => return Ok(()),
            other => return other,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::Memory, node::LedgerState};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn node(records: &[(&str, WallTime)]) -> Answered {
        let record = |at: &WallTime| Record {
            at: at.as_micros(),
            term: FencingToken::default(),
            last: false,
            value: "w".into(),
        };
        let records = records.iter().map(|(job, at)| (JobRow::key(job), record(at))).collect();
        let memory = Memory { since: at(0), max_clock_offset: SECOND };
        Answered { memory, state: LedgerState { records, ..LedgerState::default() } }
    }

    #[test]
    fn the_latest_record_of_any_node_counts() {
        let vouched = Vouched::read(&[node(&[("a", at(5)), ("b", at(1))]), node(&[("a", at(3))])]);
        assert!(!vouched.is_stale("a", at(9), 4 * SECOND) && vouched.is_stale("a", at(10), 4 * SECOND));
        assert!(vouched.is_stale("b", at(9), 4 * SECOND));
        assert!(vouched.is_stale("c", at(9), 4 * SECOND) && vouched.record("c").is_none());
    }

    #[test]
    fn a_group_s_ledgers_outlive_every_record_that_a_leader_needs() {
        let day = 24 * 3600 * SECOND;
        assert_eq!(group_life(SECOND, SECOND), GROUP_LIFE_MIN);
        assert_eq!(group_life(30 * day, day), 37 * day + day / 2);
        assert_eq!(group_life(30 * day, 40 * day), 80 * day);
    }
}
