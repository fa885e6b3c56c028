//! Writes the history of runs. The end of a run is logged and counted at once. A task then writes the history
//! entry of the run to the ledger.
//!
//! # What is not guaranteed
//!
//! An entry is written a little after the end of its run. If the leader crashes in between, the next leader
//! creates the entry from the run's record in the ledger. The record has the outcome and the duration, but not
//! the beginning, the number of attempts or the output. The entry gets the earliest time at which the run can
//! have ended, so that entries of later runs are not pruned before it. The next leader creates no entry for a run
//! whose record has been pruned, or whose job it removes shortly before its own term ends. If no majority answers for a long time, the queue of entries becomes full, and
//! further entries are lost.

use crate::{
    election::Term,
    env::{BootTime, ScopedTask, WallTime},
    ledger::{Answered, Ledger, LedgerError, TermLedger},
    scheduler::{
        counts::Counts,
        leader::end_log::{LoggedEnds, log_end},
        run::next_start::Starts,
        store::{
            HistoryEntry,
            recorded_ends::Ends,
            retention::Retention,
            run_report::{Close, RunReport},
        },
    },
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture, join},
    stream::FuturesUnordered,
};
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
/// The pause after the first failed attempt to write an entry, and the longest pause. The pause grows with each further
/// attempt.
const ENTRY_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The longest time for which an entry waits for others. Entries that are written together cost the nodes and this
/// worker much less than single ones. Only an entry that the next leader can create from the run's record waits.
const GATHERING: Duration = Duration::from_millis(20);
/// The time after which gathered entries are written with the runs that the leader starts next, in the same calls.
const GATHERED: Duration = Duration::from_millis(10);
/// The number of histories that are read together for the first time in a term, and the pause before the next ones. So
/// the histories of very many jobs do not delay the runs that are due.
const FIRST_READS: (usize, Duration) = (8, Duration::from_millis(100));
/// The pause before a history that could not be read is read again.
const READ_RETRY: Duration = Duration::from_millis(500);

/// A handle to the task that writes history entries.
#[derive(Debug)]
pub(in crate::scheduler) struct HistoryWriter {
    counts: Counts,
    term: Term,
    queue: mpsc::Sender<Order>,
    logged: Mutex<BTreeMap<Arc<str>, LoggedEnds>>,
}

/// A command from a [`HistoryWriter`] to the task that writes the history.
#[derive(Debug)]
enum Order {
    Enter(Box<RunReport>),
    /// The job was removed, so no more entries of the job follow.
    Close(Arc<str>),
}

impl HistoryWriter {
    /// Starts the task. First, the task writes those entries of `ends` that the histories lack. The task ends
    /// when the term ends, or when the handle is dropped and every entry is written.
    pub(in crate::scheduler) fn start(
        ledger: &Ledger,
        led: &TermLedger,
        term: &Term,
        counts: Counts,
        ends: Vec<Ends>,
        starts: Starts,
    ) -> (Self, ScopedTask<()>) {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        for ends in &ends {
            if let Some(at) = ends.last_success() {
                counts.measures().succeeded(ends.job(), at);
            }
        }
        // The newest ends are those that the histories are most likely to lack.
        let mut to_read: Vec<_> = ends.iter().map(|ends| (ends.newest(), Arc::clone(ends.job()))).collect();
        to_read.sort_unstable_by(|a, b| b.cmp(a));
        let history = |ends: Ends| {
            let (job, keep) = (Arc::clone(ends.job()), ends.keep());
            (job, JobHistory { keep, is_queued: true, ends: Some(Arc::new(ends)), ..JobHistory::default() })
        };
        let task = HistoryTask {
            retention: Retention::new(ledger),
            ledger: ledger.clone(),
            led: led.clone(),
            counts: counts.clone(),
            term: term.clone(),
            histories: ends.into_iter().map(history).collect(),
            to_read: to_read.into_iter().map(|(_, job)| job).collect(),
            read_at: term.env().now(),
            to_prune: BTreeSet::new(),
            gathered: Vec::new(),
            write_at: None,
        };
        let handle = Self { counts, term: term.clone(), queue, logged: Mutex::default() };
        (handle, term.spawn_scoped(task.serve(entries, starts)))
    }

    /// Asks the task to drop its data about a removed job's history.
    pub(in crate::scheduler) fn close(&self, job: &Arc<str>) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
        // If the queue is full, this command is dropped. The task then keeps its data about the removed job
        // until the term ends, which does no harm.
        let _ = self.queue.try_send(Order::Close(Arc::clone(job)));
    }

    /// Logs the end of a run, counts it, and queues its history entry.
    pub(in crate::scheduler) fn enter(&self, report: RunReport) {
        let job = Arc::clone(&report.job);
        let level = {
            let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
            logged.entry(Arc::clone(&job.name)).or_default().level(report.entry.end, job.rules.overlap)
        };
        log_end(level, &job, &report.entry);
        let now = self.term.quorum().wall();
        self.counts.ended(job.series(), report.entry.end, report.entry.took, now);
        if let Err(error) = self.queue.try_send(Order::Enter(Box::new(report))) {
            self.counts.not_written();
            tracing::warn!(job = &*job.name, "its history lacks an entry: {error}");
        }
    }
}

/// The state of the task that writes the history.
struct HistoryTask {
    /// The ledger of the leader.
    led: TermLedger,
    ledger: Ledger,
    retention: Retention,
    counts: Counts,
    term: Term,
    histories: BTreeMap<Arc<str>, JobHistory>,
    /// The jobs whose histories must be read for the first time in this term, because they may have too many entries
    /// or may lack some, in the order in which they are read. `read_at` is the time of the next reads.
    to_read: VecDeque<Arc<str>>,
    read_at: BootTime,
    /// The jobs whose histories must be pruned soon: they have too many entries, or could not be read before.
    to_prune: BTreeSet<Arc<str>>,
    /// The reports whose entries wait to be written together, and the time at which they are written.
    gathered: Vec<RunReport>,
    write_at: Option<BootTime>,
}

/// The task's data about one job's history.
#[derive(Debug, Default)]
struct JobHistory {
    keep: usize,
    /// The times at which the stored entries were written, the oldest first.
    written: VecDeque<u64>,
    /// True once the task has read the stored entries in this term.
    read: bool,
    /// True once the history waits to be read, or is read, for the first time in this term.
    is_queued: bool,
    /// True once the task has set the lifetime of the history on the nodes in this term.
    has_lifetime: bool,
    /// The number of entries that are being written.
    writing: usize,
    /// True if the job was removed. The task drops this data when every entry of the job is written.
    closed: bool,
    /// The recorded ends for which the history may lack entries. `None` once the history has an entry for each of
    /// them.
    ends: Option<Arc<Ends>>,
}

enum Finished {
    Written(Arc<str>, usize, Option<u64>),
    /// The result of reading and pruning a history.
    Pruned(Arc<str>, Pruning),
    Closed,
}

/// The result of reading and pruning a history.
enum Pruning {
    /// The history could not be read.
    NotRead,
    /// The history has an entry for every recorded end, but could not be pruned.
    NotPruned,
    /// The times of the stored entries, the oldest first.
    Pruned(Vec<u64>),
}

impl RunReport {
    /// Returns whether the entry may wait for others. If this leader crashes meanwhile, the next leader must be able
    /// to create the entry from the closed record of the run. The entry of a requested run does not wait, because the
    /// sender of the request may look for it.
    fn may_wait(&self) -> bool {
        self.close.is_none() && self.entry.started.is_some() && self.entry.cause.request().is_none()
    }
}

impl HistoryTask {
    async fn serve(mut self, mut orders: mpsc::Receiver<Order>, mut starts: Starts) {
        let mut busy: FuturesUnordered<BoxFuture<'static, Finished>> = FuturesUnordered::new();
        let mut pruning = 0_usize;
        let lost = self.term.lost_token().clone();
        let env = self.term.env().clone();
        loop {
            let open = !orders.is_closed() || !orders.is_empty();
            if pruning == 0 && open {
                let prunings = self.prune_some(env.now());
                pruning = prunings.len();
                busy.extend(prunings);
            }
            let is_full = self.gathered.len() >= ENTRY_WRITES_MAX / 2;
            if !open || is_full || self.write_at.is_some_and(|at| at <= env.now()) {
                self.write_at = None;
                let gathered = std::mem::take(&mut self.gathered);
                busy.extend(gathered.into_iter().map(|report| self.write(report)));
            }
            if !open && busy.is_empty() {
                return;
            }
            let room = busy.len() + self.gathered.len() < ENTRY_WRITES_MAX;
            let read_at = (pruning == 0 && open && !self.to_read.is_empty()).then_some(self.read_at);
            let wake = read_at.into_iter().chain(self.write_at).min();
            tokio::select! { biased;
                () = lost.cancelled() => return,
                Some(finished) = busy.next() => match finished {
                    Finished::Written(job, keep, at) => {
                        self.written(Arc::clone(&job), keep, at);
                        busy.extend(self.forget(&job));
                    }
                    Finished::Closed => {}
                    Finished::Pruned(job, result) => {
                        pruning -= 1;
                        self.pruned(&job, result);
                        busy.extend(self.forget(&job));
                    }
                },
                order = orders.recv(), if room && open => match order {
                    Some(Order::Enter(report)) if report.may_wait() => {
                        self.write_at.get_or_insert(env.now() + GATHERING);
                        self.gather(*report);
                    }
                    Some(Order::Enter(report)) => {
                        self.begin(&report);
                        busy.push(self.write(*report));
                    }
                    Some(Order::Close(job)) => {
                        if let Some(history) = self.histories.get_mut(&job) {
                            history.closed = true;
                        }
                        busy.extend(self.forget(&job));
                    }
                    None => {}
                },
                Some(()) = starts.next(), if self.write_at.is_some() => {
                    let is_gathered = |at: BootTime| at <= env.now() + (GATHERING - GATHERED);
                    if self.write_at.is_some_and(is_gathered) {
                        self.write_at = Some(env.now());
                    }
                }
                Some(()) = OptionFuture::from(wake.map(|at| env.sleep_until(at))) => {}
            }
        }
    }

    /// Keeps a report until its entry is written together with others.
    fn gather(&mut self, report: RunReport) {
        self.begin(&report);
        self.gathered.push(report);
    }

    /// Notes that an entry of the report's job will be written.
    fn begin(&mut self, report: &RunReport) {
        let of_job = self.histories.entry(Arc::clone(&report.job.name)).or_default();
        (of_job.writing, of_job.closed) = (of_job.writing + 1, false);
    }

    fn write(&mut self, report: RunReport) -> BoxFuture<'static, Finished> {
        let RunReport { job, entry, close } = report;
        let (job, keep) = (Arc::clone(&job.name), job.rules.history);
        let of_job = self.histories.entry(Arc::clone(&job)).or_default();
        // The first entry of a term also sets the lifetime of the history. Otherwise the nodes would delete the
        // history after their default lifetime.
        let has_lifetime = std::mem::replace(&mut of_job.has_lifetime, true);
        let part = self.ledger.part(&HistoryEntry::part(&job));
        let (term, retention, counts) = (self.term.clone(), self.retention.clone(), self.counts.clone());
        let closed = close.map(|Close { key, record }| self.led.write(&key, record.to_value()));
        async move {
            if let Some(closed) = closed
                && let Err(error) = closed.await
            {
                // The closed record of the run could not be written, so no entry is written either. The next
                // leader decides on the run.
                tracing::debug!(job = &*job, "not closed: {error}");
                return Finished::Written(job, keep, None);
            }
            if keep == 0 {
                return Finished::Written(job, keep, None);
            }
            // The nodes carry requests out in their order, so the lifetime is set after the entry is stored. The pause lets
            // the entries of other jobs be asked for first: requests of one kind that follow one another share a call.
            let lifetime = async {
                if !has_lifetime {
                    tokio::task::yield_now().await;
                    set_lifetime(&retention, &job).await;
                }
            };
            let ((written, attempts), ()) = join(write_entry(&term, &part, entry, None), lifetime).await;
            if !has_lifetime && attempts > 1 {
                set_lifetime(&retention, &job).await;
            }
            if let Err(error) = &written {
                if matches!(error, LedgerError::NoMajority(_)) {
                    counts.not_written();
                    tracing::warn!(job = &*job, "its history lacks an entry: {error}");
                } else {
                    tracing::debug!(job = &*job, "its history has the entry already: {error}");
                }
            }
            Finished::Written(job, keep, written.ok())
        }
        .boxed()
    }

    /// Drops the data of a removed job, if all its entries are written, also those of recorded ends. Also renews the
    /// lifetime of the history, so that from now on the nodes keep it for the ledger's retention.
    fn forget(&mut self, job: &Arc<str>) -> Option<BoxFuture<'static, Finished>> {
        self.histories
            .get(job)
            .filter(|of_job| of_job.closed && of_job.writing == 0 && of_job.ends.is_none())?;
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
            // Until the history has been read in this term, `written` lacks the entries of earlier terms.
            if history.written.len() > keep.saturating_mul(2).max(16) {
                self.to_prune.insert(job);
            } else if !std::mem::replace(&mut history.is_queued, true) {
                self.to_read.push_back(job);
            }
        }
    }

    /// Starts to prune a history that must be pruned soon, or to read some histories for the first time in this
    /// term, if that is due.
    fn prune_some(&mut self, now: BootTime) -> Vec<BoxFuture<'static, Finished>> {
        while let Some(job) = self.to_prune.pop_first() {
            if let Some(prune) = self.prune(job) {
                return vec![prune];
            }
        }
        if self.to_read.is_empty() || now < self.read_at {
            return Vec::new();
        }
        let (count, pause) = FIRST_READS;
        self.read_at = now + pause;
        let jobs: Vec<_> = self.to_read.drain(..count.min(self.to_read.len())).collect();
        jobs.into_iter().filter_map(|job| self.prune(job)).collect()
    }

    /// Starts to read and prune one job's history. If the history was not read in this term yet, first writes
    /// the entries that the history lacks.
    fn prune(&mut self, job: Arc<str>) -> Option<BoxFuture<'static, Finished>> {
        let history = self.histories.get_mut(&job)?;
        let has_lifetime = std::mem::replace(&mut history.has_lifetime, true);
        let part = self.ledger.part(&HistoryEntry::part(&job));
        let (keep, read, mut stored) = (history.keep, history.read, Vec::from(history.written.clone()));
        let (ends, term, retention) = (history.ends.clone(), self.term.clone(), self.retention.clone());
        Some(
            async move {
                if !read || ends.is_some() {
                    let Ok(answers) = part.read().await else {
                        term.env().sleep(READ_RETRY).await;
                        return Finished::Pruned(job, Pruning::NotRead);
                    };
                    let all = first_written(&answers);
                    stored = all.values().copied().collect();
                    let keys = all.into_keys().collect();
                    for end in ends.iter().flat_map(|ends| ends.lacking(&keys)) {
                        stored.extend(write_entry(&term, &part, end.entry, Some(end.at)).await.0.ok());
                    }
                    if !has_lifetime {
                        set_lifetime(&retention, &job).await;
                    }
                }
                stored.sort_unstable();
                let excess = stored.len().saturating_sub(keep);
                if let Some(&below) = stored.get(excess).filter(|_| excess > 0)
                    && let Err(error) = part.prune(below).await
                {
                    tracing::debug!(job = &*job, "its history is not pruned: {error}");
                    return Finished::Pruned(job, Pruning::NotPruned);
                }
                stored.drain(..excess);
                Finished::Pruned(job, Pruning::Pruned(stored))
            }
            .boxed(),
        )
    }

    /// Handles the result of [`HistoryTask::prune`]. If the history may still lack entries, it will be read again.
    /// An entry that was written during the pruning may be counted twice until the next pruning.
    fn pruned(&mut self, job: &Arc<str>, result: Pruning) {
        let Some(history) = self.histories.get_mut(job) else { return };
        if !matches!(result, Pruning::NotRead) {
            history.ends = None;
        } else if history.ends.is_some() {
            self.to_prune.insert(Arc::clone(job));
        }
        let stored = if let Pruning::Pruned(stored) = result { stored } else { Vec::new() };
        if let Some(&newest) = stored.last() {
            let later = history.written.iter().copied().filter(|at| *at > newest);
            history.written = stored.iter().copied().chain(later).collect();
            history.read = true;
        } else if !history.read {
            // The history could not be read, or is empty. It is read again after its next entry.
            (history.is_queued, history.has_lifetime) = (false, false);
        }
    }
}

/// Sets the lifetime of a job's history on the nodes. Otherwise the nodes would delete the history after their
/// default lifetime.
async fn set_lifetime(retention: &Retention, job: &str) {
    if let Err(error) = retention.keep_history(job).await {
        tracing::debug!(job, "the lifetime of its history is not set yet: {error}");
    }
}

/// Returns the key of each stored entry, with the time of its record. If an entry was written twice, nodes may
/// have different times, and the earliest of them counts.
fn first_written(answers: &[Answered]) -> BTreeMap<Arc<str>, u64> {
    let mut first = BTreeMap::new();
    for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
        let at = first.entry(Arc::clone(key)).or_insert(record.at);
        *at = record.at.min(*at);
    }
    first
}

/// Writes an entry, with further attempts while the term lasts. Returns the time of the written record, and the number of
/// attempts. This time is `ended`, or the present time if the run ended in this term. If the nodes already have a record under the
/// key, the run already has an entry, and the write fails with [`LedgerError::Standing`].
async fn write_entry(
    term: &Term,
    part: &Ledger,
    entry: HistoryEntry,
    ended: Option<WallTime>,
) -> (Result<u64, LedgerError>, u32) {
    let now = term.quorum().wall();
    let (key, record) = (entry.key(), entry.into_record(ended.unwrap_or(now).min(now)));
    let (pause, longest) = ENTRY_RETRY;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match part.write(&key, None, &record).await {
            Err(LedgerError::NoMajority(_)) if term.is_valid() => {
                term.env().sleep(pause.saturating_mul(attempts).min(longest)).await;
            }
            other => return (other.map(|()| record.at), attempts),
        }
    }
}
