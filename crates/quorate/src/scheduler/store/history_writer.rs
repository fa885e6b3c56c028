//! Writes the history of runs. An end is logged and counted at once; a task writes its entry to the ledger.
//!
//! # What is not guaranteed
//!
//! An entry is written a little after its run has ended. If the leader crashes in between, the next leader makes the entry
//! from the run's own record. The record has the outcome and the duration, but not the beginning, the number of attempts or
//! the output. The next leader makes no entry for a requested run, nor for a tick whose record has been pruned. Entries
//! are lost if the queue overflows because no majority answers.

use crate::{
    election::Term,
    env::{ScopedTask, WallTime},
    ledger::{Ledger, LedgerError},
    node::{FencingToken, Record},
    scheduler::{
        HistoryEntry, Job, Overlap, RunCause, RunOutcome, RunRecord,
        counts::Counts,
        store::{
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
use tracing::Level;

/// The largest number of entries that wait to be written.
const QUEUE_MAX: usize = 65_536;
/// The largest number of entries that are written at the same time.
const ENTRY_WRITES_MAX: usize = 128;
/// The number of times that an entry is sent, and the first pause between them. The pause grows with each attempt.
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

/// The closed record of a run that no execution writes.
#[derive(Debug)]
pub(in crate::scheduler) struct Close {
    pub(in crate::scheduler) run: RunId,
    pub(in crate::scheduler) seen: Option<Record>,
    pub(in crate::scheduler) record: Record,
}

/// The ends of one job's ticks that the seal found. The history may lack the last of them.
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

    /// Returns the entries that a history with these keys lacks. An entry older than all keys of a full history was pruned.
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

/// A command to the task that writes.
#[derive(Debug)]
enum Order {
    Enter(Box<PendingEntry>),
    /// The job was removed: no more entries follow.
    Close(Arc<str>),
}

#[derive(Debug)]
struct PendingEntry {
    history: HistoryEntry,
    close: Option<Close>,
    keep: usize,
}

impl HistoryWriter {
    /// Starts the task, which first writes the entries of `ends` that the history lacks. The task ends once the handle is
    /// dropped and every entry is written, or the term is over.
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

    /// Drops what the task knows of a removed job's history.
    pub(in crate::scheduler) fn close(&self, job: &Arc<str>) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
        // If the queue is full, the task keeps it until the term ends.
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

/// The ends of one job that were logged in this term. A skipped tick that repeats is logged once.
#[derive(Debug, Default)]
struct LoggedEnds {
    /// The last end that can repeat.
    last: Option<RunOutcome>,
    /// The number of runs that have ended since.
    runs_since: u32,
}

impl LoggedEnds {
    /// Returns the level at which an end is logged.
    ///
    /// Every end of a run is logged. An end that the job's overlap rule brings about is logged once, also if the job's runs
    /// and skipped ticks alternate; it is logged again after two runs without one. A misfire is logged again after any run.
    fn level(&mut self, end: RunOutcome, overlap: Overlap) -> Level {
        let level = match end {
            RunOutcome::SkippedMisfire => Level::WARN,
            RunOutcome::SkippedOverlap | RunOutcome::SkippedPaused => Level::INFO,
            RunOutcome::Cancelled if overlap == Overlap::CancelOld => Level::INFO,
            RunOutcome::Done
            | RunOutcome::Failed
            | RunOutcome::TimedOut
            | RunOutcome::Cancelled
            | RunOutcome::Lost => {
                self.runs_since = self.runs_since.saturating_add(1);
                return if end == RunOutcome::Done { Level::INFO } else { Level::WARN };
            }
        };
        let runs_between = if end == RunOutcome::SkippedMisfire { 0 } else { 1 };
        let repeated = self.last == Some(end) && self.runs_since <= runs_between;
        (self.last, self.runs_since) = (Some(end), 0);
        if repeated { Level::DEBUG } else { level }
    }
}

/// Logs the end of a run, or of a tick without a run, as one event. The message is the outcome and the reason.
fn log_end(level: Level, job: &Job, history: &HistoryEntry) {
    let HistoryEntry { worker, reason, cause, .. } = history;
    let (name, outcome, term) = (&*job.name, history.end.as_str(), history.term.get());
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    macro_rules! event {
        ($level:ident) => {
            tracing::$level!(
                target: "quorate::scheduler::tick",
                job = name,
                tick = %job.schedule.format(history.tick),
                until = history.until.map(|until| tracing::field::display(job.schedule.format(until))),
                outcome,
                cause = (*cause != RunCause::Scheduled).then(|| tracing::field::display(cause)),
                worker = &**worker,
                term,
                took = history.took.map(|took| tracing::field::display(format!("{took:.1?}"))),
                attempts = (history.attempts > 1).then_some(history.attempts),
                error = history.attempt_error.as_deref(),
                "{outcome}{why}"
            )
        };
    }
    match level {
        Level::DEBUG => event!(debug),
        Level::INFO => event!(info),
        _ => event!(warn),
    }
}

/// The task that writes.
struct HistoryTask {
    ledger: Ledger,
    retention: Retention,
    term: Term,
    histories: BTreeMap<Arc<str>, JobHistory>,
    /// Jobs whose history may have more entries than the job keeps, or lack some.
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
    /// True once its lifetime was set in this term.
    has_lifetime: bool,
    /// The number of entries that are being written.
    writing: usize,
    /// True if the job was removed. This value is dropped once no entry is being written.
    closed: bool,
    /// The entries that the history may lack, until it has been read.
    ends: Option<Ends>,
}

enum Finished {
    Written(Arc<str>, usize, Option<u64>),
    /// The times of the stored entries, none if they could not be read; and the ends that the history may still lack.
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
                    // No more orders: wait for the writes that are under way.
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
        // The lifetime is set with the first entry of a term. Until then, the history has the nodes' default lifetime.
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
                // The next leader decides on the run.
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

    /// Drops the state of a removed job, once all its entries are written. Its history has the retention left from then on.
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
            // The entries of earlier terms are counted once a term.
            if !history.read || history.written.len() > keep.saturating_mul(2).max(16) {
                self.to_prune.insert(job);
            }
        }
    }

    /// Reads one job's history if it was not read in this term, writes the entries that it lacks, and prunes those that are
    /// too many.
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

    /// Takes the result of [`HistoryTask::prune`]. An entry that was written meanwhile may be counted twice until the next time. A
    /// history that still lacks ends is read again.
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

/// Sets the lifetime of a job's history, which otherwise has the nodes' default.
async fn set_lifetime(retention: &Retention, job: &str) {
    if let Err(error) = retention.keep_history(job).await {
        tracing::debug!(job, "the lifetime of its history is not set yet: {error}");
    }
}

/// Sends a write a few times, while the term lasts. A record that is stored under the key already is that of the same run.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::subscriber::with_default;

    #[test]
    fn a_tick_that_the_overlap_rule_skips_is_logged_once_until_runs_follow_without_a_skip() {
        use RunOutcome::{Done, Failed, SkippedOverlap};
        let mut logged = LoggedEnds::default();
        let mut level = |end| logged.level(end, Overlap::Skip);
        assert_eq!(level(SkippedOverlap), Level::INFO);
        assert_eq!([level(SkippedOverlap), level(SkippedOverlap)], [Level::DEBUG; 2]);
        assert_eq!([level(Done), level(SkippedOverlap)], [Level::INFO, Level::DEBUG], "they alternate");
        assert_eq!([level(Failed), level(SkippedOverlap)], [Level::WARN, Level::DEBUG]);
        assert_eq!([level(Done), level(Done), level(SkippedOverlap)], [Level::INFO; 3], "it begins again");
    }

    #[test]
    fn every_failed_or_lost_run_is_a_warning_and_a_misfire_one_until_a_run_ends() {
        use RunOutcome::{Cancelled, Done, Failed, Lost, SkippedMisfire, TimedOut};
        let mut logged = LoggedEnds::default();
        let mut level = |end| logged.level(end, Overlap::Queue);
        for end in [Failed, Failed, TimedOut, TimedOut, Lost, Lost, Cancelled, Cancelled, SkippedMisfire] {
            assert_eq!(level(end), Level::WARN, "{end}");
        }
        assert_eq!(level(SkippedMisfire), Level::DEBUG);
        assert_eq!([level(Done), level(SkippedMisfire)], [Level::INFO, Level::WARN]);
        let replaced = |logged: &mut LoggedEnds| logged.level(Cancelled, Overlap::CancelOld);
        assert_eq!([replaced(&mut logged), replaced(&mut logged)], [Level::INFO, Level::DEBUG]);
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_of_a_run_is_short_and_shows_its_real_duration() {
        let job = Job::new("beat", crate::scheduler::every(Duration::from_secs(1)).unwrap(), |_| async {
            Ok::<(), String>(())
        });
        let entry = HistoryEntry {
            job: Arc::clone(&job.name),
            tick: WallTime::from_micros(1_700_000_000_000_000),
            until: None,
            cause: RunCause::Scheduled,
            end: RunOutcome::Done,
            reason: "".into(),
            worker: "host-7".into(),
            term: FencingToken::new(7),
            started: None,
            took: Some(Duration::from_micros(312)),
            attempts: 1,
            attempt_error: None,
            output: None,
        };
        let line = |entry: &HistoryEntry| {
            let log = Log::default();
            let writer = log.clone();
            let lines = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
            let lines = lines.with_writer(move || writer.clone()).finish();
            with_default(lines, || log_end(Level::INFO, &job, entry));
            let text = log.0.lock().unwrap().clone();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(
            line(&entry).trim(),
            r#"INFO done job="beat" tick=2023-11-14 22:13:20 +00:00 (UTC) outcome="done" worker="host-7" term=7 took=312.0µs"#
        );
        let retried = HistoryEntry { attempts: 3, attempt_error: Some("refused".into()), ..entry };
        assert!(line(&retried).trim().ends_with(r#"attempts=3 error="refused""#), "{}", line(&retried));
    }
}
