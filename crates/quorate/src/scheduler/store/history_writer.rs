//! Writes the history of runs. An end is logged and counted at once. A task then writes its entry to the
//! ledger.
//!
//! # What is not guaranteed
//!
//! An entry is written a little after its run has ended. If the leader crashes in between, the next leader
//! makes the entry from the closed record of the run. That record has the outcome and the duration, but not
//! the start time, the number of attempts or the output. The next leader makes no entry for a requested run,
//! nor for a tick without a closed record: most skipped ticks have none, and old records are pruned. While no
//! majority answers, an entry is not written if all attempts to send it fail, or if the queue is full.

use crate::{
    election::Term,
    env::{ScopedTask, WallTime},
    ledger::{Ledger, LedgerError},
    node::{FencingToken, Record},
    scheduler::{
        HistoryEntry, Job, RunCause, RunRecord,
        counts::Counts,
        store::{
            end_log::{LoggedEnds, log_end},
            retention::Retention,
            run_writer::{RunId, RunWriter},
            snapshot::LedgerSnapshot,
        },
    },
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc;

/// The largest number of entries that wait to be written.
const QUEUE_MAX: usize = 65_536;
/// The largest number of entries that are written at the same time.
const ENTRY_WRITES_MAX: usize = 128;
/// The number of times that an entry is sent, and the first pause between two attempts. The pause grows with
/// each attempt.
const ENTRY_ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(100));
/// The pause before a history that could not be read or completed is read again.
const READ_RETRY: Duration = Duration::from_millis(500);

/// A handle to the task that writes the history.
#[derive(Debug)]
pub(in crate::scheduler) struct HistoryWriter {
    counts: Counts,
    queue: mpsc::Sender<Order>,
    logged: Mutex<BTreeMap<Arc<str>, LoggedEnds>>,
}

/// The closed record of a run that was dropped, or not executed in this term. The history's task writes it
/// before the run's entry.
#[derive(Debug)]
pub(in crate::scheduler) struct Close {
    pub(in crate::scheduler) run: RunId,
    pub(in crate::scheduler) seen: Option<Record>,
    pub(in crate::scheduler) record: Record,
}

/// The ends of one job's ticks that the seal found. The history may lack entries of the latest ends.
#[derive(Debug)]
pub(in crate::scheduler) struct Ends {
    pub(in crate::scheduler) job: Arc<str>,
    pub(in crate::scheduler) keep: usize,
    pub(in crate::scheduler) entries: Vec<HistoryEntry>,
}

impl Ends {
    /// Returns the newest ends that the seal found, at most as many as the job's history keeps.
    pub(in crate::scheduler) fn find(job: &Job, sealed: &LedgerSnapshot) -> Option<Self> {
        let ended = sealed.ended(&job.name).take(job.history);
        let entries: Vec<_> =
            ended.filter_map(|(tick, record)| entry_from(&job.name, tick, record)).collect();
        (!entries.is_empty()).then(|| Self { job: Arc::clone(&job.name), keep: job.history, entries })
    }

    /// Returns the entries that a history with these keys lacks. If the history is full, an entry older than
    /// all its keys is left out, because it was pruned before.
    fn lacking(self, keys: &BTreeSet<Arc<str>>) -> impl Iterator<Item = HistoryEntry> {
        let oldest = keys.first().filter(|_| keys.len() >= self.keep).cloned();
        self.entries.into_iter().filter(move |entry| {
            let key = entry.key();
            oldest.as_ref().is_none_or(|oldest| key > *oldest) && !keys.contains(&key)
        })
    }
}

/// Makes the entry of a tick from the closed record of its run.
fn entry_from(job: &Arc<str>, tick: WallTime, record: &Record) -> Option<HistoryEntry> {
    let RunRecord::Closed { worker, end, outcome: why, took, term, .. } =
        RunRecord::parse(&record.value).ok()?
    else {
        return None;
    };
    let between = if why.is_empty() { "" } else { "; " };
    Some(HistoryEntry {
        job: Arc::clone(job),
        tick,
        until: None,
        cause: RunCause::Scheduled,
        end,
        reason: format!("{why}{between}entered by the next leader").into(),
        worker,
        term: term.unwrap_or(record.term),
        started: None,
        took,
        attempts: u32::from(took.is_some()),
        attempt_error: None,
        output: None,
    })
}

/// A command to the task that writes the history.
#[derive(Debug)]
enum Order {
    Enter(Box<PendingEntry>),
    /// The job was removed: no more entries of the job follow.
    Close(Arc<str>),
}

#[derive(Debug)]
struct PendingEntry {
    history: HistoryEntry,
    close: Option<Close>,
    keep: usize,
}

impl HistoryWriter {
    /// Starts the task that writes the history. It first writes the entries of `ends` that the history lacks.
    /// The task ends once the handle is dropped and every entry is written, or the term is over.
    pub(in crate::scheduler) fn start(
        ledger: &Ledger,
        term: &Term,
        counts: Counts,
        ends: Vec<Ends>,
    ) -> (Self, ScopedTask<()>) {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        let to_prune = ends.iter().map(|ends| Arc::clone(&ends.job)).collect();
        let history = |ends: Ends| {
            let (job, keep) = (Arc::clone(&ends.job), ends.keep);
            (job, JobHistory { keep, ends: Some(ends), ..JobHistory::default() })
        };
        let task = HistoryTask {
            retention: Retention::new(ledger),
            ledger: ledger.clone(),
            term: term.clone(),
            histories: ends.into_iter().map(history).collect(),
            to_prune,
        };
        let handle = Self { counts, queue, logged: Mutex::default() };
        (handle, term.spawn_scoped(task.serve(entries)))
    }

    /// Lets the task drop its state of a removed job's history.
    pub(in crate::scheduler) fn close(&self, job: &Arc<str>) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
        // If the queue is full, the task keeps the state of the removed job until the term ends.
        let _ = self.queue.try_send(Order::Close(Arc::clone(job)));
    }

    /// Logs and counts the end of a run, and queues its entry.
    pub(in crate::scheduler) fn enter(&self, job: &Job, history: HistoryEntry, close: Option<Close>) {
        let level = {
            let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
            logged.entry(Arc::clone(&job.name)).or_default().level(history.end, job.overlap)
        };
        log_end(level, job, &history);
        self.counts.ended(&history);
        let entry = PendingEntry { history, close, keep: job.history };
        if let Err(error) = self.queue.try_send(Order::Enter(Box::new(entry))) {
            self.counts.not_written();
            tracing::warn!(job = &*job.name, "its history lacks an entry: {error}");
        }
    }
}

/// The task that writes the history.
struct HistoryTask {
    ledger: Ledger,
    retention: Retention,
    term: Term,
    histories: BTreeMap<Arc<str>, JobHistory>,
    /// Jobs whose history may have too many entries, or may lack entries.
    to_prune: BTreeSet<Arc<str>>,
}

/// The task's knowledge of one job's history.
#[derive(Debug, Default)]
struct JobHistory {
    keep: usize,
    /// The times at which its entries were written, the oldest first.
    written: VecDeque<u64>,
    /// True once the stored history was read in this term.
    read: bool,
    /// True once the lifetime of the history was set in this term.
    has_lifetime: bool,
    /// The number of entries that are being written.
    writing: usize,
    /// True if the job was removed. This `JobHistory` is dropped once no entry of the job is being written.
    closed: bool,
    /// The entries that the history may lack, until it has been read.
    ends: Option<Ends>,
}

enum Finished {
    Written(Arc<str>, usize, Option<u64>),
    /// A read and pruned history: the times of its stored entries (empty if they could not be read), and the
    /// ends that the history may still lack.
    Pruned(Arc<str>, Vec<u64>, Option<Ends>),
    Closed,
}

impl HistoryTask {
    async fn serve(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut busy: FuturesUnordered<BoxFuture<'static, Finished>> = FuturesUnordered::new();
        let mut pruning = false;
        let lost = self.term.lost_token().clone();
        loop {
            let open = !orders.is_closed() || !orders.is_empty();
            if !pruning
                && open
                && let Some(prune) = self.prune()
            {
                pruning = true;
                busy.push(prune);
            }
            let room = busy.len() < ENTRY_WRITES_MAX;
            tokio::select! { biased;
                () = lost.cancelled() => return,
                Some(finished) = busy.next() => match finished {
                    Finished::Written(job, keep, at) => {
                        self.written(Arc::clone(&job), keep, at);
                        busy.extend(self.forget(&job));
                    }
                    Finished::Closed => {}
                    Finished::Pruned(job, stored, ends) => {
                        pruning = false;
                        self.pruned(&job, stored, ends);
                    }
                },
                order = orders.recv(), if room => match order {
                    Some(Order::Enter(entry)) => busy.push(self.write(*entry)),
                    Some(Order::Close(job)) => {
                        if let Some(history) = self.histories.get_mut(&job) {
                            history.closed = true;
                        }
                        busy.extend(self.forget(&job));
                    }
                    None if busy.is_empty() => return,
                    // The queue is closed: wait for the writes in progress.
                    None => while let Some(finished) = busy.next().await {
                        drop(finished);
                    },
                }
            }
        }
    }

    fn write(&mut self, entry: PendingEntry) -> BoxFuture<'static, Finished> {
        let of_job = self.histories.entry(Arc::clone(&entry.history.job)).or_default();
        (of_job.writing, of_job.closed) = (of_job.writing + 1, false);
        // The lifetime is set with the first entry of a term. Until then, the history has the nodes' default
        // lifetime.
        let has_lifetime = std::mem::replace(&mut of_job.has_lifetime, true);
        let (part, term, retention) = (
            self.ledger.part(&HistoryEntry::part(&entry.history.job)),
            self.term.clone(),
            self.retention.clone(),
        );
        let run_writer = RunWriter::new(&self.ledger, &self.term);
        async move {
            let PendingEntry { history, close, keep } = entry;
            let job = Arc::clone(&history.job);
            if let Some(Close { run, seen, record }) = close
                && let Err(error) = run_writer.write(&run, seen, &record, false).await
            {
                // The run stays unclosed. The next leader decides on it.
                tracing::debug!(job = &*job, "not closed: {error}");
                return Finished::Written(job, keep, None);
            }
            if keep == 0 {
                return Finished::Written(job, keep, None);
            }
            let (key, record) = (history.key(), history.into_record(term.quorum().wall()));
            let written = write_entry(&term, || part.write(&key, None, &record)).await;
            if let Err(error) = &written {
                tracing::debug!(job = &*job, "its history lacks an entry: {error}");
            }
            if !has_lifetime {
                set_lifetime(&retention, &job).await;
            }
            Finished::Written(job, keep, written.is_ok().then_some(record.at))
        }
        .boxed()
    }

    /// Drops the state of a removed job, once all its entries are written. The nodes keep the history for the
    /// ledger's retention from then on.
    fn forget(&mut self, job: &Arc<str>) -> Option<BoxFuture<'static, Finished>> {
        self.histories.get(job).filter(|history| history.closed && history.writing == 0)?;
        self.histories.remove(job);
        self.to_prune.remove(job);
        let (retention, job) = (self.retention.clone(), Arc::clone(job));
        Some(async move { set_lifetime(&retention, &job).map(|()| Finished::Closed).await }.boxed())
    }

    fn written(&mut self, job: Arc<str>, keep: usize, at: Option<u64>) {
        let history = self.histories.entry(Arc::clone(&job)).or_default();
        history.keep = keep;
        history.writing = history.writing.saturating_sub(1);
        if let Some(at) = at {
            history.written.push_back(at);
            // The stored entries of earlier terms are counted once in each term.
            if !history.read || history.written.len() > keep.saturating_mul(2).max(16) {
                self.to_prune.insert(job);
            }
        }
    }

    /// Reads one job's history if it was not read in this term, writes the entries that it lacks, and prunes
    /// those that are too many.
    fn prune(&mut self) -> Option<BoxFuture<'static, Finished>> {
        let job = self.to_prune.pop_first()?;
        let history = self.histories.get_mut(&job)?;
        let part = self.ledger.part(&HistoryEntry::part(&job));
        let (keep, read, mut stored) = (history.keep, history.read, Vec::from(history.written.clone()));
        let (ends, term, retention) = (history.ends.take(), self.term.clone(), self.retention.clone());
        Some(
            async move {
                let mut lacking = None;
                if !read || ends.is_some() {
                    let Ok(answers) = part.read().await else {
                        term.env().sleep(READ_RETRY).await;
                        return Finished::Pruned(job, Vec::new(), ends);
                    };
                    let all: BTreeMap<_, _> = answers
                        .iter()
                        .flat_map(|answer| &answer.state.records)
                        .map(|(key, record)| (Arc::clone(key), record.at))
                        .collect();
                    stored = all.values().copied().collect();
                    let keys = all.into_keys().collect();
                    let mut unwritten = Vec::new();
                    for entry in ends.into_iter().flat_map(|ends| ends.lacking(&keys)) {
                        let (key, record) = (entry.key(), entry.clone().into_record(term.quorum().wall()));
                        match write_entry(&term, || part.write(&key, None, &record)).await {
                            Ok(()) => stored.push(record.at),
                            Err(LedgerError::NoMajority(_)) => unwritten.push(entry),
                            Err(_) => {}
                        }
                    }
                    if !unwritten.is_empty() {
                        term.env().sleep(READ_RETRY).await;
                        lacking = Some(Ends { job: Arc::clone(&job), keep, entries: unwritten });
                    }
                    set_lifetime(&retention, &job).await;
                }
                stored.sort_unstable();
                let excess = stored.len().saturating_sub(keep);
                if let Some(&below) = stored.get(excess).filter(|_| excess > 0)
                    && let Err(error) = part.prune(FencingToken::default(), below).await
                {
                    tracing::debug!(job = &*job, "its history is not pruned: {error}");
                    return Finished::Pruned(job, Vec::new(), lacking);
                }
                stored.drain(..excess);
                Finished::Pruned(job, stored, lacking)
            }
            .boxed(),
        )
    }

    /// Handles the result of [`HistoryTask::prune`]. An entry that was written during the pruning may be
    /// counted twice until the next pruning. A history that still lacks ends is read again.
    fn pruned(&mut self, job: &Arc<str>, stored: Vec<u64>, ends: Option<Ends>) {
        let Some(history) = self.histories.get_mut(job) else { return };
        if ends.is_some() {
            history.ends = ends;
            self.to_prune.insert(Arc::clone(job));
        }
        if let Some(&newest) = stored.last() {
            let later = history.written.iter().copied().filter(|at| *at > newest);
            history.written = stored.iter().copied().chain(later).collect();
            history.read = true;
        }
    }
}

/// Sets the lifetime of a job's history. Without this, the history has the nodes' default lifetime.
async fn set_lifetime(retention: &Retention, job: &str) {
    if let Err(error) = retention.keep_history(job).await {
        tracing::debug!(job, "the lifetime of its history is not set yet: {error}");
    }
}

/// Sends a write a few times, while the term lasts. If a record is already stored under the key, it is an
/// entry of the same run, so the write is not sent again.
async fn write_entry<F>(term: &Term, write: impl Fn() -> F) -> Result<(), LedgerError>
where
    F: Future<Output = Result<(), LedgerError>>,
{
    let (most, pause) = ENTRY_ATTEMPTS;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match write().await {
            Err(LedgerError::NoMajority(_)) if attempts < most && term.is_valid() => {
                term.env().sleep(pause * attempts).await;
            }
            other => return other,
        }
    }
}
