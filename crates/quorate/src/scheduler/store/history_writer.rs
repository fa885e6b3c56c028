//! The history of ticks: told at once (an event, a count), and written off the path of the ticks.
//!
//! # What is not guaranteed
//!
//! An entry is written a little after the tick has ended. Where a crash comes in between, the next leader makes it from
//! the tick's own record, which says how it ended and how long it took, and not when it began, how often it was tried,
//! or what it put out. Of runs that somebody asked for it does not; nor of a tick that the ledger has been let forget.
//! A queue that overflows because no majority answers loses entries.

use crate::scheduler::store::{
    run_writer::{RunId, RunWriter},
    snapshot::LedgerSnapshot,
};
use crate::{
    election::Term,
    env::{ScopedTask, WallTime},
    ledger::{Ledger, LedgerError},
    node::{FencingToken, Record},
    scheduler::{
        HistoryEntry, Job, RunCause, RunOutcome, RunRecord, counts::Counts, store::retention::Retention,
    },
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;

/// How many entries wait to be written at most.
const QUEUE: usize = 65_536;
/// How many are on their way at once.
const AT_ONCE: usize = 128;
/// How often one is tried, and between what pauses.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// The pause before a history that could not be read, or not be completed, is looked at again.
const TIDY_AGAIN: Duration = Duration::from_millis(500);

/// The way into the history.
#[derive(Debug)]
pub(in crate::scheduler) struct HistoryWriter {
    counts: Counts,
    queue: mpsc::Sender<Order>,
}

/// The closed record of a run that no execution writes.
#[derive(Debug)]
pub(in crate::scheduler) struct Close {
    pub(in crate::scheduler) run: RunId,
    pub(in crate::scheduler) seen: Option<Record>,
    pub(in crate::scheduler) record: Record,
}

/// What the ledger knows of the ends of one job's ticks, of which the history may lack the last.
#[derive(Debug)]
pub(in crate::scheduler) struct Ends {
    pub(in crate::scheduler) job: Arc<str>,
    pub(in crate::scheduler) keep: usize,
    pub(in crate::scheduler) entries: Vec<HistoryEntry>,
}

impl Ends {
    /// The newest of what the seal found, as far as the job's history goes back.
    pub(in crate::scheduler) fn find(job: &Job, sealed: &LedgerSnapshot) -> Option<Self> {
        let ended = sealed.ended(&job.name).take(job.history);
        let entries: Vec<_> = ended.filter_map(|(tick, record)| made_of(&job.name, tick, record)).collect();
        (!entries.is_empty()).then(|| Self { job: Arc::clone(&job.name), keep: job.history, entries })
    }

    /// Those that a history with these keys lacks. What is older than all that a full one holds was let go of.
    fn lacking(self, keys: &BTreeSet<Arc<str>>) -> impl Iterator<Item = HistoryEntry> {
        let oldest = keys.first().filter(|_| keys.len() >= self.keep).cloned();
        self.entries.into_iter().filter(move |entry| {
            let key = entry.key();
            oldest.as_ref().is_none_or(|oldest| key > *oldest) && !keys.contains(&key)
        })
    }
}

/// The entry of a tick, made of its own last record.
fn made_of(job: &Arc<str>, tick: WallTime, record: &Record) -> Option<HistoryEntry> {
    let RunRecord::Closed { worker, end, outcome: why, took_ms: took, term, .. } =
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
        took: took.map(Duration::from_millis),
        attempts: u32::from(took.is_some()),
        output: None,
    })
}

/// What the task that writes is asked for.
#[derive(Debug)]
enum Order {
    Enter(Box<PendingEntry>),
    /// Nothing more comes of a job.
    Close(Arc<str>),
}

#[derive(Debug)]
struct PendingEntry {
    history: HistoryEntry,
    close: Option<Close>,
    keep: usize,
}

impl HistoryWriter {
    /// Starts the task that writes, first what the history lacks of these `ends`. It ends once this is dropped and all
    /// is written, or the term is over.
    pub(in crate::scheduler) fn start(
        ledger: &Ledger,
        term: &Term,
        counts: Counts,
        ends: Vec<Ends>,
    ) -> (Self, ScopedTask<()>) {
        let (queue, entries) = mpsc::channel(QUEUE);
        let to_tidy = ends.iter().map(|ends| Arc::clone(&ends.job)).collect();
        let shelf = |ends: Ends| {
            let (job, keep) = (Arc::clone(&ends.job), ends.keep);
            (job, Shelf { keep, ends: Some(ends), ..Shelf::default() })
        };
        let scribe = Scribe {
            retention: Retention::new(ledger),
            ledger: ledger.clone(),
            term: term.clone(),
            shelves: ends.into_iter().map(shelf).collect(),
            to_tidy,
        };
        (Self { counts, queue }, term.spawn_scoped(scribe.serve(entries)))
    }

    /// Nothing more comes of a job: what is known here of its history goes.
    pub(in crate::scheduler) fn close(&self, job: &Arc<str>) {
        // Where there is no room, what is known of it stays until the term ends.
        let _ = self.queue.try_send(Order::Close(Arc::clone(job)));
    }

    /// How a tick has ended: told now, written soon.
    pub(in crate::scheduler) fn enter(&self, job: &Job, history: HistoryEntry, close: Option<Close>) {
        tell(job, &history);
        self.counts.ended(&history);
        let entry = PendingEntry { history, close, keep: job.history };
        if let Err(error) = self.queue.try_send(Order::Enter(Box::new(entry))) {
            self.counts.not_written();
            tracing::warn!(job = &*job.name, "its history lacks an entry: {error}");
        }
    }
}

/// One event an end. The fields with a prefix are what `tracing-opentelemetry` makes metrics of.
pub(in crate::scheduler) fn tell(job: &Job, history: &HistoryEntry) {
    let HistoryEntry { worker, attempts, reason, cause, .. } = history;
    let (name, end, term) = (&*job.name, history.end.as_str(), history.term.get());
    let took = history.took.unwrap_or_default().as_secs_f64();
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    macro_rules! event {
        ($level:ident) => {
            tracing::$level!(
                target: "quorate::scheduler::tick",
                job = name,
                tick = %job.schedule.format(history.tick),
                until = history.until.map(|until| job.schedule.format(until)),
                end,
                cause = %cause,
                worker = &**worker,
                term,
                attempts,
                took,
                monotonic_counter.quorate_ticks = 1_u64,
                histogram.quorate_tick_seconds = took,
                "{end}{why}"
            )
        };
    }
    match history.end {
        RunOutcome::Done | RunOutcome::SkippedPaused => event!(info),
        _ => event!(warn),
    }
}

/// The task that writes.
struct Scribe {
    ledger: Ledger,
    retention: Retention,
    term: Term,
    shelves: BTreeMap<Arc<str>, Shelf>,
    /// Jobs whose history may hold more than is to be kept.
    to_tidy: BTreeSet<Arc<str>>,
}

/// What is known of one job's history: when its entries were written, oldest first.
#[derive(Debug, Default)]
struct Shelf {
    keep: usize,
    written: VecDeque<u64>,
    read: bool,
    /// Whether its life has been set in this term.
    lives: bool,
    /// How many entries of it are being written.
    writing: usize,
    /// The job was removed: it goes once nothing is being written.
    closed: bool,
    /// What the history may lack, until it has been read.
    ends: Option<Ends>,
}

enum Finished {
    Written(Arc<str>, usize, Option<u64>),
    /// The times of the entries that are there, none where they could not be read; and the ends that the history may
    /// still lack.
    Tidied(Arc<str>, Vec<u64>, Option<Ends>),
    Closed,
}

impl Scribe {
    async fn serve(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut busy: FuturesUnordered<BoxFuture<'static, Finished>> = FuturesUnordered::new();
        let mut tidying = false;
        let lost = self.term.lost_token().clone();
        loop {
            let open = !orders.is_closed() || !orders.is_empty();
            if !tidying
                && open
                && let Some(tidy) = self.tidy()
            {
                tidying = true;
                busy.push(tidy);
            }
            let room = busy.len() < AT_ONCE;
            tokio::select! { biased;
                () = lost.cancelled() => return,
                Some(finished) = busy.next() => match finished {
                    Finished::Written(job, keep, at) => {
                        self.written(Arc::clone(&job), keep, at);
                        busy.extend(self.clear(&job));
                    }
                    Finished::Closed => {}
                    Finished::Tidied(job, there, ends) => {
                        tidying = false;
                        self.tidied(&job, there, ends);
                    }
                },
                order = orders.recv(), if room => match order {
                    Some(Order::Enter(entry)) => busy.push(self.write(*entry)),
                    Some(Order::Close(job)) => {
                        if let Some(shelf) = self.shelves.get_mut(&job) {
                            shelf.closed = true;
                        }
                        busy.extend(self.clear(&job));
                    }
                    None if busy.is_empty() => return,
                    // No more to come: wait for what is on its way.
                    None => while let Some(finished) = busy.next().await {
                        drop(finished);
                    },
                }
            }
        }
    }

    fn write(&mut self, entry: PendingEntry) -> BoxFuture<'static, Finished> {
        let shelf = self.shelves.entry(Arc::clone(&entry.history.job)).or_default();
        (shelf.writing, shelf.closed) = (shelf.writing + 1, false);
        // With the first entry of a term: until somebody sets it, the history has the nodes' default life.
        let lives = std::mem::replace(&mut shelf.lives, true);
        let (part, term, retention) = (
            self.ledger.part(&HistoryEntry::part(&entry.history.job)),
            self.term.clone(),
            self.retention.clone(),
        );
        let main = RunWriter::new(&self.ledger, &self.term);
        async move {
            let PendingEntry { history, close, keep } = entry;
            let job = Arc::clone(&history.job);
            if let Some(Close { run, seen, record }) = close
                && let Err(error) = main.write(&run, seen, &record, false).await
            {
                // Whoever leads next decides on it.
                tracing::debug!(job = &*job, "not closed: {error}");
                return Finished::Written(job, keep, None);
            }
            if keep == 0 {
                return Finished::Written(job, keep, None);
            }
            let (key, record) = (history.key(), history.into_record(term.quorum().wall()));
            let written = insist(&term, || part.write(&key, None, &record)).await;
            if let Err(error) = &written {
                tracing::debug!(job = &*job, "its history lacks an entry: {error}");
            }
            if !lives {
                set_life(&retention, &job).await;
            }
            Finished::Written(job, keep, written.is_ok().then_some(record.at))
        }
        .boxed()
    }

    /// Forgets a job that was removed, once all its entries are written. Its history lives for the retention from here on.
    fn clear(&mut self, job: &Arc<str>) -> Option<BoxFuture<'static, Finished>> {
        self.shelves.get(job).filter(|shelf| shelf.closed && shelf.writing == 0)?;
        self.shelves.remove(job);
        self.to_tidy.remove(job);
        let (retention, job) = (self.retention.clone(), Arc::clone(job));
        Some(async move { set_life(&retention, &job).map(|()| Finished::Closed).await }.boxed())
    }

    fn written(&mut self, job: Arc<str>, keep: usize, at: Option<u64>) {
        let shelf = self.shelves.entry(Arc::clone(&job)).or_default();
        shelf.keep = keep;
        shelf.writing = shelf.writing.saturating_sub(1);
        if let Some(at) = at {
            shelf.written.push_back(at);
            // Once a term what earlier ones left is counted as well.
            if !shelf.read || shelf.written.len() > keep.saturating_mul(2).max(16) {
                self.to_tidy.insert(job);
            }
        }
    }

    /// Looks what there is of one job's history, and has the nodes forget what is too much.
    fn tidy(&mut self) -> Option<BoxFuture<'static, Finished>> {
        let job = self.to_tidy.pop_first()?;
        let shelf = self.shelves.get_mut(&job)?;
        let part = self.ledger.part(&HistoryEntry::part(&job));
        let (keep, read, mut there) = (shelf.keep, shelf.read, Vec::from(shelf.written.clone()));
        let (ends, term, retention) = (shelf.ends.take(), self.term.clone(), self.retention.clone());
        Some(
            async move {
                let mut lacking = None;
                if !read || ends.is_some() {
                    let Ok(answers) = part.read().await else {
                        term.env().sleep(TIDY_AGAIN).await;
                        return Finished::Tidied(job, Vec::new(), ends);
                    };
                    let all: BTreeMap<_, _> = answers
                        .iter()
                        .flat_map(|answer| &answer.state.records)
                        .map(|(key, record)| (Arc::clone(key), record.at))
                        .collect();
                    there = all.values().copied().collect();
                    let keys = all.into_keys().collect();
                    let mut unwritten = Vec::new();
                    for entry in ends.into_iter().flat_map(|ends| ends.lacking(&keys)) {
                        let (key, record) = (entry.key(), entry.clone().into_record(term.quorum().wall()));
                        match insist(&term, || part.write(&key, None, &record)).await {
                            Ok(()) => there.push(record.at),
                            Err(LedgerError::NoMajority(_)) => unwritten.push(entry),
                            Err(_) => {}
                        }
                    }
                    if !unwritten.is_empty() {
                        term.env().sleep(TIDY_AGAIN).await;
                        lacking = Some(Ends { job: Arc::clone(&job), keep, entries: unwritten });
                    }
                    set_life(&retention, &job).await;
                }
                there.sort_unstable();
                let excess = there.len().saturating_sub(keep);
                if let Some(&below) = there.get(excess).filter(|_| excess > 0)
                    && let Err(error) = part.prune(FencingToken::default(), below).await
                {
                    tracing::debug!(job = &*job, "its history is not pruned: {error}");
                    return Finished::Tidied(job, Vec::new(), lacking);
                }
                there.drain(..excess);
                Finished::Tidied(job, there, lacking)
            }
            .boxed(),
        )
    }

    /// Takes in what a look at a history has found. What was written while it was tidied is counted twice at worst, until
    /// the next time. A history that still lacks ends is looked at again.
    fn tidied(&mut self, job: &Arc<str>, there: Vec<u64>, ends: Option<Ends>) {
        if let (Some(shelf), true) = (self.shelves.get_mut(job), ends.is_some()) {
            shelf.ends = ends;
            self.to_tidy.insert(Arc::clone(job));
        }
        if let Some(shelf) = self.shelves.get_mut(job).filter(|_| !there.is_empty()) {
            let newest = there.last().copied().unwrap_or_default();
            let later = shelf.written.iter().copied().filter(|at| *at > newest);
            shelf.written = there.iter().copied().chain(later).collect();
            shelf.read = true;
        }
    }
}

/// Sets the life of a job's history: until somebody does, it has the nodes' default.
async fn set_life(retention: &Retention, job: &str) {
    if let Err(error) = retention.keep_history(job).await {
        tracing::debug!(job, "the life of its history is not set yet: {error}");
    }
}

/// Tries a write a few times, while the term lasts. A record that stands already is what was to be written.
async fn insist<F>(term: &Term, write: impl Fn() -> F) -> Result<(), LedgerError>
where
    F: Future<Output = Result<(), LedgerError>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        match write().await {
            Err(LedgerError::NoMajority(_)) if tries < TRIES && term.is_valid() => {
                term.env().sleep(TRY_AGAIN * tries).await;
            }
            other => return other,
        }
    }
}
