//! Writes the history of spread ticks, off their path.
//!
//! # What is not guaranteed
//!
//! An entry is written a little after the tick has ended: a crash loses those of the last moments. Of a tick that ended
//! elsewhere nobody but its worker writes. At a shutdown what waits is written for as long as a run has to end; what is
//! then not written is counted, and gone.
//!
//! A skip is told and counted by the worker whose entry is the first, and by each worker where the job keeps no history.

use crate::{
    env::Env,
    ledger::{Ledger, LedgerError},
    node::FencingToken,
    schedule::{Job, TickHistory, leader::tell, retention::Retention, roster::Roster},
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;

/// How many entries are on their way at once.
const AT_ONCE: usize = 128;
/// How often one is tried, and between what pauses.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// How many entries wait to be written at most.
pub(super) const QUEUE: usize = 16_384;

/// Entries are counted for so many jobs; beyond that the counts of removed jobs are dropped.
const WRITTEN_MAX: usize = 1_000;

/// An entry to write.
pub(super) struct Entry {
    pub(super) job: Arc<Job>,
    pub(super) history: TickHistory,
    /// Others may say the same: it is told and counted if it turns out to be the first.
    pub(super) shared: bool,
}

/// Writes entries until no more can come and all are written.
pub(super) async fn scribe(main: Ledger, env: Env, roster: Roster, mut entries: mpsc::Receiver<Entry>) {
    let retention = Retention::new(&main);
    let mut busy: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    let mut written: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let (mut open, mut room_for) = (true, WRITTEN_MAX);
    while open || !busy.is_empty() {
        let room = open && busy.len() < AT_ONCE;
        tokio::select! { biased;
            Some(()) = busy.next() => {}
            entry = entries.recv(), if room => match entry {
                Some(entry) if entry.job.history == 0 => entry.count(&roster),
                Some(entry) => {
                    let keep = entry.job.history;
                    // At first, since others may have left too many; then whenever there may be half too many.
                    let since = written.entry(Arc::clone(&entry.job.name)).or_insert(usize::MAX / 2);
                    *since += 1;
                    let tidy = *since > (keep / 2).max(8);
                    if tidy {
                        *since = 0;
                    }
                    if written.len() > room_for {
                        // Jobs that come and go must not add up.
                        let jobs = roster.jobs();
                        written.retain(|job, _| jobs.contains_key(job));
                        room_for = WRITTEN_MAX.max(written.len() * 2);
                    }
                    let tidy_to = tidy.then_some((keep, &retention));
                    busy.push(Box::pin(write(&main, &env, &roster, entry, tidy_to)));
                }
                None => open = false,
            },
        }
    }
}

impl Entry {
    /// Tells and counts what had to wait for the write of the entry.
    fn count(&self, roster: &Roster) {
        if self.shared {
            tell(&self.job, &self.history);
            roster.counts().ended(&self.history);
        }
    }
}

async fn write(
    main: &Ledger,
    env: &Env,
    roster: &Roster,
    entry: Entry,
    tidy_to: Option<(usize, &Retention)>,
) {
    let job = &entry.job.name;
    let part = main.part(&TickHistory::part(job));
    let (key, record) = (entry.history.key(), entry.history.clone().into_record(main.wall()));
    for tries in 1..=TRIES {
        match part.write(&key, None, &record).await {
            Err(LedgerError::NoMajority(_)) if tries < TRIES => env.sleep(TRY_AGAIN * tries).await,
            Ok(()) => {
                entry.count(roster);
                break;
            }
            // Another worker has said so before.
            Err(LedgerError::Standing(_)) => break,
            Err(error) => {
                entry.count(roster);
                roster.counts().not_written();
                tracing::debug!(job = &**job, "its history lacks an entry: {error}");
                break;
            }
        }
    }
    let Some((keep, retention)) = tidy_to else { return };
    // Until somebody says how long it lives, it has the nodes' default.
    let kept = retention.keep_history(job).await;
    if let Err(error) = kept.and(tidy(&part, keep).await) {
        tracing::debug!(job = &**job, "its history is not pruned: {error}");
    }
}

/// Has the nodes forget all but the newest `keep` entries.
async fn tidy(part: &Ledger, keep: usize) -> Result<(), LedgerError> {
    let answers = part.read().await?;
    let records = answers.iter().flat_map(|answer| &answer.state.records);
    let all: BTreeSet<(u64, &Arc<str>)> = records.map(|(key, record)| (record.at, key)).collect();
    let excess = all.len().saturating_sub(keep);
    match all.iter().nth(excess) {
        Some((below, _)) if excess > 0 => part.prune(FencingToken::default(), *below).await,
        _ => Ok(()),
    }
}
