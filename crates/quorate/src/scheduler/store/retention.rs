//! How long what the nodes know of a job outlives the job.
//!
//! Every worker that runs a scheduler, whether it leads or not, *vouches* for its jobs now and then: a part of the group's
//! ledger, `jobs`, holds for each job when a worker that has the job last said so. The same moment renews the life of the
//! job's history, and of the group's ledgers. What nobody vouches for ends:
//!
//! * A history ends by the nodes' own clocks, [`QuorumConfig::ledger_retention`](crate::config::QuorumConfig::ledger_retention) after the
//!   job's last worker, whether or not a leader lives by then. So do all ledgers of a group without workers.
//! * The row, the state and the open requests of a job that the leader does not know end once nobody has vouched for the
//!   job for that time. The leader closes them, and the ledger's pruning then forgets them. A leader of another version
//!   leaves the jobs of the others alone as long as one of their workers runs.
//! * A job that comes back before is vouched for again, and nothing of it has ended.
//!
//! # What is not guaranteed
//!
//! A worker that cannot reach a majority for the whole of that time counts as gone. Where the nodes have forgotten when a
//! job was last vouched for, its time starts anew with the first leader that notices.

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

/// The part of a group's ledger that says when each job was last vouched for.
const PART: &str = "jobs";
/// The longest time between two rounds of vouching.
const EVERY_MAX: Duration = Duration::from_secs(3600);
/// After a round that too few nodes answered.
const AGAIN: Duration = Duration::from_secs(1);
/// After so many failed rounds in a row it is logged as a warning, once.
const LOUD: u32 = 5;
/// How many jobs are vouched for at a time.
const AT_ONCE: usize = 64;
/// How often a write is tried over what other nodes have.
const TRIES: usize = 8;
/// The shortest life of a group's ledger: what a leader needs of it after an outage must not have ended.
const GROUP_LIFE_MIN: Duration = Duration::from_secs(3600);

/// Who vouches for which jobs, and for how long that counts.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Retention {
    main: Ledger,
    env: Env,
    worker: Arc<str>,
    retention: Duration,
    max_clock_offset: Duration,
}

/// What the `jobs` part says.
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

    /// Between two rounds.
    pub(in crate::scheduler) fn every(&self) -> Duration {
        (self.retention / 8).min(EVERY_MAX)
    }

    /// How long a history outlives the round that last vouched for its job: never less than the retention after the job's
    /// last worker.
    pub(in crate::scheduler) fn history_life(&self) -> Duration {
        self.retention + self.every() * 2
    }

    /// Sets the life of a job's history, where the job has one.
    pub(in crate::scheduler) async fn keep_history(&self, job: &str) -> Result<(), LedgerError> {
        self.main.part(&HistoryEntry::part(job)).keep(self.history_life()).await
    }

    /// Vouches for the registry's jobs until it is dropped. Of several tasks of one registry one vouches at a time.
    pub(in crate::scheduler) async fn vouch(self, registry: JobRegistry) {
        let _turn = registry.vouching().lock().await;
        let (mut changed, _) = registry.watch();
        let mut failed: u32 = 0;
        loop {
            let round = self.round(&registry).await;
            let pause = match round {
                // Workers take turns: what one has vouched for the others need not.
                Ok(()) => {
                    failed = 0;
                    self.every() * 3 / 4 + self.env.random_below(self.every() / 2)
                }
                Err(error) => {
                    failed = failed.saturating_add(1);
                    match failed {
                        LOUD => tracing::warn!("cannot vouch for the jobs, after {LOUD} attempts: {error}"),
                        _ => tracing::debug!("cannot vouch for the jobs yet: {error}"),
                    }
                    AGAIN.saturating_mul(1 << (failed - 1).min(12)).min(self.every())
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
            if renewals.len() >= AT_ONCE
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
        let parts = [self.main.clone(), self.part(), self.main.part("inbox")];
        for part in parts {
            renewed = renewed.and(part.keep(life).await);
        }
        renewed
    }

    async fn renew(&self, job: &str, seen: Option<&Record>, now: WallTime) -> Result<(), LedgerError> {
        self.keep_history(job).await?;
        self.note(job, seen, now).await
    }

    /// Of the jobs that a leader does not have itself: which have ended. Starts the time of those that nobody is known to
    /// have vouched for.
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

    /// Writes that `job` was vouched for at `at`, unless a later time is stored.
    async fn note(&self, job: &str, seen: Option<&Record>, at: WallTime) -> Result<(), LedgerError> {
        let value = Arc::clone(&self.worker);
        let record = Record { at: at.as_micros(), term: FencingToken::default(), last: false, value };
        write_over(&self.part(), &JobRow::key(job), seen, &record).await
    }
}

impl Vouched {
    /// Of several nodes' records of one job the latest counts.
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

    /// Whether nobody has vouched for `job` for so long.
    fn is_stale(&self, job: &str, now: WallTime, time: Duration) -> bool {
        self.0.get(job).is_none_or(|(at, _)| *at + time < now)
    }
}

/// How long a group's ledgers outlive its last worker: longer than any record of them is of use.
fn group_life(retention: Duration, needed: Duration) -> Duration {
    (retention + retention / 4).max(needed.saturating_mul(2)).max(GROUP_LIFE_MIN)
}

/// Writes `record` over whatever other nodes have that is not newer.
async fn write_over(
    ledger: &Ledger,
    key: &Arc<str>,
    seen: Option<&Record>,
    record: &Record,
) -> Result<(), LedgerError> {
    let mut seen = seen.cloned();
    for _ in 0..TRIES {
        match ledger.write(key, seen.as_ref(), record).await {
            Err(LedgerError::Standing(other)) if !other.last && seen.as_ref() != Some(&other) => {
                if other.at >= record.at {
                    return Ok(());
                }
                seen = Some(other);
            }
            // Another worker writes it at this moment.
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
    fn the_latest_word_of_any_node_counts() {
        let vouched = Vouched::read(&[node(&[("a", at(5)), ("b", at(1))]), node(&[("a", at(3))])]);
        assert!(!vouched.is_stale("a", at(9), 4 * SECOND) && vouched.is_stale("a", at(10), 4 * SECOND));
        assert!(vouched.is_stale("b", at(9), 4 * SECOND));
        assert!(vouched.is_stale("c", at(9), 4 * SECOND) && vouched.record("c").is_none());
    }

    #[test]
    fn a_group_outlives_all_that_is_of_use_of_it() {
        let day = 24 * 3600 * SECOND;
        assert_eq!(group_life(SECOND, SECOND), GROUP_LIFE_MIN);
        assert_eq!(group_life(30 * day, day), 37 * day + day / 2);
        assert_eq!(group_life(30 * day, 40 * day), 80 * day);
    }
}
