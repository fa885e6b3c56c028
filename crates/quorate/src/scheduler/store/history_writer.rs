//! Writes the history of runs. The end of a run is logged and counted at once. A task then writes the history
//! entry of the run to the ledger.
//!
//! # What is not guaranteed
//!
//! An entry is written a little after the end of its run. If the leader crashes in between, the next leader
//! creates the entry from the run's record in the ledger. The record has the outcome and the duration, but not
//! the beginning, the number of attempts or the output. The entry gets the earliest time at which the run can
//! have ended, so that entries of later runs are not pruned before it. The next leader creates no entry for a
//! requested run, nor for a tick whose record has been pruned. If no majority answers for a long time, the
//! queue of entries becomes full, and further entries are lost.

use crate::{
    election::Term,
    env::{ScopedTask, WallTime},
    ledger::{Answered, Ledger, LedgerError},
    node::{FencingToken, Record},
    scheduler::{
        HistoryEntry, Job, RunCause, RunOutcome, RunRecord,
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
/// The number of attempts to write an entry, and the pause after the first failed attempt. The pause grows with
/// each further attempt.
const ENTRY_ATTEMPTS: (u32, Duration) = (5, Duration::from_millis(100));
/// The pause before a history is read again, if it could not be read, or if an entry that it lacks could not be
/// written.
const READ_RETRY: Duration = Duration::from_millis(500);

/// A handle to the task that writes history entries.
#[derive(Debug)]
pub(in crate::scheduler) struct HistoryWriter {
    counts: Counts,
    term: Term,
    queue: mpsc::Sender<Order>,
    logged: Mutex<BTreeMap<Arc<str>, LoggedEnds>>,
}

/// A closed record that this leader must write before the history entry of the run. The leader dropped the run,
/// or did not execute it in this term.
#[derive(Debug)]
pub(in crate::scheduler) struct Close {
    pub(in crate::scheduler) run: RunId,
    pub(in crate::scheduler) seen: Option<Record>,
    pub(in crate::scheduler) record: Record,
}

/// A history entry, and the closed record that must be written before the entry, if there is one.
#[derive(Debug)]
pub(in crate::scheduler) struct RunReport {
    pub(in crate::scheduler) job: Arc<Job>,
    pub(in crate::scheduler) entry: HistoryEntry,
    pub(in crate::scheduler) close: Option<Close>,
    /// The time of the run's end, if an earlier leader recorded that end. `None` if the run ended in this
    /// leader's term.
    pub(in crate::scheduler) ended: Option<WallTime>,
}

/// The recorded ends of one job's runs, as the seal found them. If the previous leader crashed, the history may
/// lack entries for the latest of these ends.
#[derive(Debug)]
pub(in crate::scheduler) struct Ends {
    job: Arc<str>,
    keep: usize,
    entries: Vec<RecordedEnd>,
}

/// The entry of a run that ended in an earlier term, and the time of the run's end.
#[derive(Debug)]
struct RecordedEnd {
    entry: HistoryEntry,
    /// The time of the entry's record, which is the end of the run. With the present time, pruning would keep
    /// this entry and delete entries of later runs.
    at: WallTime,
}

impl Ends {
    /// Returns the newest recorded ends of a job, at most as many as the job's history keeps. Returns `None` if
    /// the seal found no end.
    pub(in crate::scheduler) fn find(job: &Job, sealed: &LedgerSnapshot) -> Option<Self> {
        let ended = sealed.ended(&job.name).take(job.history);
        let entries: Vec<_> =
            ended.filter_map(|(tick, record)| entry_from(&job.name, tick, record)).collect();
        (!entries.is_empty()).then(|| Self { job: Arc::clone(&job.name), keep: job.history, entries })
    }

    /// Returns the end of the job's last successful run, if the seal found one.
    fn last_success(&self) -> Option<WallTime> {
        let done = self.entries.iter().filter(|end| end.entry.end == RunOutcome::Done);
        done.map(|end| end.at).max()
    }

    /// Returns the entries that the history lacks. `keys` are the keys of its entries. If the history is full,
    /// an entry that is older than all of these was pruned, and is not lacking.
    fn lacking(self, keys: &BTreeSet<Arc<str>>) -> impl Iterator<Item = RecordedEnd> {
        let oldest = keys.first().filter(|_| keys.len() >= self.keep).cloned();
        self.entries.into_iter().filter(move |end| {
            let key = end.entry.key();
            oldest.as_ref().is_none_or(|oldest| key > *oldest) && !keys.contains(&key)
        })
    }
}

/// Creates the entry of a tick from the closed record of its run. Returns `None` if the record cannot be read,
/// or is not closed.
fn entry_from(job: &Arc<str>, tick: WallTime, record: &Record) -> Option<RecordedEnd> {
    let RunRecord::Closed { worker, end, outcome: why, took, term, .. } =
        RunRecord::parse(&record.value).ok()?
    else {
        return None;
    };
    let between = if why.is_empty() { "" } else { "; " };
    let term = term.unwrap_or(record.term);
    let entry = HistoryEntry {
        reason: format!("{why}{between}entered by the next leader").into(),
        took,
        attempts: u32::from(took.is_some()),
        ..HistoryEntry::new(job, tick, RunCause::Scheduled, end, &worker, term)
    };
    Some(RecordedEnd { entry, at: recorded_end(record, took) })
}

/// Returns the entries of the job's ends that the seal found, the oldest tick first, each with the time of the
/// end.
pub(in crate::scheduler) fn recorded_entries(
    job: &Arc<str>,
    sealed: &LedgerSnapshot,
) -> Vec<(HistoryEntry, WallTime)> {
    let ends = sealed.ended(job).filter_map(|(tick, record)| entry_from(job, tick, record));
    let mut ends: Vec<_> = ends.map(|RecordedEnd { entry, at }| (entry, at)).collect();
    ends.reverse();
    ends
}

/// Returns the earliest time at which the run of this record can have ended. It is the time of the record plus
/// `took`, the duration of the run.
pub(in crate::scheduler) fn recorded_end(record: &Record, took: Option<Duration>) -> WallTime {
    WallTime::from_micros(record.at) + took.unwrap_or_default()
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
        term: &Term,
        counts: Counts,
        ends: Vec<Ends>,
    ) -> (Self, ScopedTask<()>) {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        for ends in &ends {
            if let Some(at) = ends.last_success() {
                counts.measures().succeeded(&ends.job, at);
            }
        }
        let to_prune = ends.iter().map(|ends| Arc::clone(&ends.job)).collect();
        let history = |ends: Ends| {
            let (job, keep) = (Arc::clone(&ends.job), ends.keep);
            (job, JobHistory { keep, ends: Some(ends), ..JobHistory::default() })
        };
        let task = HistoryTask {
            retention: Retention::new(ledger),
            ledger: ledger.clone(),
            counts: counts.clone(),
            term: term.clone(),
            histories: ends.into_iter().map(history).collect(),
            to_prune,
        };
        let handle = Self { counts, term: term.clone(), queue, logged: Mutex::default() };
        (handle, term.spawn_scoped(task.serve(entries)))
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
            logged.entry(Arc::clone(&job.name)).or_default().level(report.entry.end, job.overlap)
        };
        log_end(level, &job, &report.entry);
        self.counts.ended(&report.entry, report.ended.unwrap_or_else(|| self.term.quorum().wall()));
        if let Err(error) = self.queue.try_send(Order::Enter(Box::new(report))) {
            self.counts.not_written();
            tracing::warn!(job = &*job.name, "its history lacks an entry: {error}");
        }
    }
}

/// The state of the task that writes the history.
struct HistoryTask {
    ledger: Ledger,
    retention: Retention,
    counts: Counts,
    term: Term,
    histories: BTreeMap<Arc<str>, JobHistory>,
    /// The jobs whose histories must be read and pruned. Such a history may have too many entries, or may lack
    /// some.
    to_prune: BTreeSet<Arc<str>>,
}

/// The task's data about one job's history.
#[derive(Debug, Default)]
struct JobHistory {
    keep: usize,
    /// The times at which the stored entries were written, the oldest first.
    written: VecDeque<u64>,
    /// True once the task has read the stored entries in this term.
    read: bool,
    /// True once the task has set the lifetime of the history on the nodes in this term.
    has_lifetime: bool,
    /// The number of entries that are being written.
    writing: usize,
    /// True if the job was removed. The task drops this data when no entry of the job is being written any
    /// more.
    closed: bool,
    /// The recorded ends for which the history may lack entries. `None` once the task has compared them with
    /// the stored entries.
    ends: Option<Ends>,
}

enum Finished {
    Written(Arc<str>, usize, Option<u64>),
    /// The result of reading and pruning a history. The second value has the times of the stored entries, and
    /// is empty if they could not be read. The third value has the ends for which the history may still lack
    /// entries.
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
                    Some(Order::Enter(report)) => busy.push(self.write(*report)),
                    Some(Order::Close(job)) => {
                        if let Some(history) = self.histories.get_mut(&job) {
                            history.closed = true;
                        }
                        busy.extend(self.forget(&job));
                    }
                    None if busy.is_empty() => return,
                    // The handle was dropped, so the task only waits for the writes in progress.
                    None => while let Some(finished) = busy.next().await {
                        drop(finished);
                    },
                }
            }
        }
    }

    fn write(&mut self, report: RunReport) -> BoxFuture<'static, Finished> {
        let RunReport { job, entry, close, ended } = report;
        let (job, keep) = (Arc::clone(&job.name), job.history);
        let of_job = self.histories.entry(Arc::clone(&job)).or_default();
        (of_job.writing, of_job.closed) = (of_job.writing + 1, false);
        // The first entry of a term also sets the lifetime of the history. Otherwise the nodes would delete the
        // history after their default lifetime.
        let has_lifetime = std::mem::replace(&mut of_job.has_lifetime, true);
        let part = self.ledger.part(&HistoryEntry::part(&job));
        let (term, retention, counts) = (self.term.clone(), self.retention.clone(), self.counts.clone());
        let run_writer = RunWriter::new(&self.ledger, &self.term);
        async move {
            if let Some(Close { run, seen, record }) = close
                && let Err(error) = run_writer.write(&run, seen, &record, false).await
            {
                // The closed record of the run could not be written, so no entry is written either. The next
                // leader decides on the run.
                tracing::debug!(job = &*job, "not closed: {error}");
                return Finished::Written(job, keep, None);
            }
            if keep == 0 {
                return Finished::Written(job, keep, None);
            }
            let written = write_entry(&term, &part, entry, ended).await;
            if let Err(error) = &written {
                if matches!(error, LedgerError::NoMajority(_)) {
                    counts.measures().history_lost();
                }
                tracing::debug!(job = &*job, "its history lacks an entry: {error}");
            }
            if !has_lifetime {
                set_lifetime(&retention, &job).await;
            }
            Finished::Written(job, keep, written.ok())
        }
        .boxed()
    }

    /// Drops the data of a removed job, if all its entries are written. Also renews the lifetime of the
    /// history, so that from now on the nodes keep it for the ledger's retention.
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
            // Until the history has been read in this term, `written` lacks the entries of earlier terms.
            if !history.read || history.written.len() > keep.saturating_mul(2).max(16) {
                self.to_prune.insert(job);
            }
        }
    }

    /// Starts to read and prune one job's history. If the history was not read in this term yet, first writes
    /// the entries that the history lacks.
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
                    let all = first_written(&answers);
                    stored = all.values().copied().collect();
                    let keys = all.into_keys().collect();
                    let mut unwritten = Vec::new();
                    for end in ends.into_iter().flat_map(|ends| ends.lacking(&keys)) {
                        match write_entry(&term, &part, end.entry.clone(), Some(end.at)).await {
                            Ok(at) => stored.push(at),
                            Err(LedgerError::NoMajority(_)) => unwritten.push(end),
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

    /// Handles the result of [`HistoryTask::prune`]. If the history still lacks entries, it will be read again.
    /// An entry that was written during the pruning may be counted twice until the next pruning.
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

/// Writes an entry, with a few attempts while the term lasts. Returns the time of the written record. This time
/// is `ended`, or the present time if the run ended in this term. If the nodes already have a record under the
/// key, the run already has an entry, and the write fails with [`LedgerError::Standing`].
async fn write_entry(
    term: &Term,
    part: &Ledger,
    entry: HistoryEntry,
    ended: Option<WallTime>,
) -> Result<u64, LedgerError> {
    let now = term.quorum().wall();
    // The record is new, so a node counts for this write if it remembers the present time. The node need not
    // remember the time of the run.
    let (key, record, remembered) =
        (entry.key(), entry.into_record(ended.unwrap_or(now).min(now)), now.as_micros());
    let (most, pause) = ENTRY_ATTEMPTS;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match part.write_remembered(&key, None, &record, remembered).await {
            Err(LedgerError::NoMajority(_)) if attempts < most && term.is_valid() => {
                term.env().sleep(pause * attempts).await;
            }
            other => return other.map(|()| record.at),
        }
    }
}
