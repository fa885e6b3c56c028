//! Writes the leader's rows: the records of the ledger that are not runs, such as a job's row and its state.
//!
//! A leader learns from a job's row since when the job exists. Without the row, the leader could not
//! distinguish a tick that no worker ran from a tick before the job existed. So the writer sends each row until
//! a majority stores it, while the term lasts. Every leader also writes the row again to nodes that have lost
//! it. Otherwise the row would be lost after every node has lost its memory once. One task writes all rows. It
//! writes rows of different keys at the same time, and the values of one key in order.
//!
//! # What is not guaranteed
//!
//! If a majority of the nodes loses a row between two terms, the row is lost. The lost data may be the time
//! since which a job's ticks count, the pause of a job, its state, or an open request.

use crate::{
    election::Term,
    env::{ScopedTask, WallTime},
    ledger::{Ledger, LedgerError},
    node::Record,
    scheduler::store::{
        FOR_EVER, WRITE_RETRY,
        row_queue::{NextRow, Put, RowQueue, Waiter, report},
        snapshot::LedgerSnapshot,
    },
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// The longest pause before a write is sent again. The pause is long, because a node that has no memory for a
/// write usually has none for a while.
const WRITE_RETRY_MAX: Duration = Duration::from_secs(2);
/// The largest number of rows that are written at the same time.
const ROW_WRITES_MAX: usize = 256;
/// The rows of new jobs that are due within this time are written as fast as possible.
const SOON: Duration = Duration::from_secs(10);
/// A leader that ends still writes the queued rows of those new jobs that are due within this time. The next leader
/// takes over sooner, and registers all other new jobs itself.
const LAST_REGISTERED: Duration = Duration::from_secs(5);

/// A handle to the task that writes the leader's rows.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct RowWriter(mpsc::UnboundedSender<Put>);

impl RowWriter {
    /// Starts the task. The task ends when the term ends, or when every clone of the handle is dropped and
    /// every row is written.
    pub(in crate::scheduler) fn start(
        ledger: &Ledger,
        term: &Term,
        sealed: &LedgerSnapshot,
    ) -> (Self, ScopedTask<()>) {
        let (puts, inbox) = mpsc::unbounded_channel();
        let rows = RowQueue::new(Arc::clone(sealed.sealed_rows()));
        let task = RowTask { ledger: ledger.clone(), term: term.clone(), rows, open: true };
        (Self(puts), term.spawn_scoped(task.serve(inbox)))
    }

    /// Queues a write of a row that pruning never removes.
    pub(in crate::scheduler) fn put(&self, key: &Arc<str>, value: Arc<str>) {
        let (key, at) = (Arc::clone(key), FOR_EVER);
        // The send fails only if the task has ended, and then the term has ended too.
        let _ =
            self.0.send(Put { key, value, at, last: false, due: WallTime::default(), waiters: Vec::new() });
    }

    /// Queues a write of a row that pruning never removes. The returned future completes with `Ok` when a
    /// majority stores the row. It completes with an error if the first attempt did not reach a majority, or if
    /// this term cannot write the row any more. In the first case, the task continues to send the row.
    pub(in crate::scheduler) fn write(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        self.send(key, value, WallTime::default(), false)
    }

    /// Queues a write of the row of a new job in the same way as [`RowWriter::write`]. Of many new jobs, those that
    /// are due first are written first: `due` is the time of the job's first tick.
    pub(in crate::scheduler) fn register(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
        due: WallTime,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        self.send(key, value, due, false)
    }

    /// Queues a write in the same way as [`RowWriter::write`]. The returned future completes with `Ok` when a
    /// majority stores the row, however long that takes. It completes with an error if this term cannot write
    /// the row any more.
    pub(in crate::scheduler) fn insist(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        self.send(key, value, WallTime::default(), true)
    }

    /// Queues a write of a row with the time `at`, so that pruning removes the row later. If `last` is true, no
    /// later write can replace the row.
    pub(in crate::scheduler) fn close(&self, key: &Arc<str>, value: Arc<str>, at: WallTime, last: bool) {
        let due = WallTime::default();
        let _ = self.0.send(Put { key: Arc::clone(key), value, at, last, due, waiters: Vec::new() });
    }

    fn send(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
        due: WallTime,
        until_stored: bool,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        let (to, answer) = oneshot::channel();
        let waiters = vec![Waiter { to, until_stored }];
        let _ = self.0.send(Put { key: Arc::clone(key), value, at: FOR_EVER, last: false, due, waiters });
        answer.map(|result| result.unwrap_or_else(|_| Err("the term has ended".into())))
    }
}

struct RowTask {
    ledger: Ledger,
    term: Term,
    rows: RowQueue,
    /// True while a handle exists. New rows may then still arrive.
    open: bool,
}

type Writing = BoxFuture<'static, (Arc<str>, Option<Record>)>;

impl RowTask {
    async fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<Put>) {
        let mut writing: FuturesUnordered<Writing> = FuturesUnordered::new();
        let lost = self.term.lost_token().clone();
        let env = self.term.env().clone();
        while self.open || !writing.is_empty() || !self.rows.is_empty() {
            let mut waits = None;
            while writing.len() < ROW_WRITES_MAX {
                waits = self.rows.pause(env.now(), self.term.quorum().wall() + SOON);
                let next = if waits.is_none() { self.rows.pop() } else { None };
                let Some(next) = next else { break };
                writing.push(self.write(next));
            }
            tokio::select! { biased;
                () = lost.cancelled() => return,
                Some((key, seen)) = writing.next() => self.rows.written(key, seen),
                put = inbox.recv(), if self.open => match put {
                    Some(put) => self.rows.take(put),
                    None => {
                        self.open = false;
                        self.leave_out_new_jobs();
                    }
                },
                Some(()) = OptionFuture::from(waits.map(|until| env.sleep_until(until))) => {}
            }
        }
    }

    fn write(&self, row: NextRow) -> Writing {
        let NextRow { put: Put { key, value, at, last, waiters, .. }, seen, stale } = row;
        let record = Record { at: at.as_micros(), term: self.term.token(), last, value };
        let (ledger, term) = (self.ledger.clone(), self.term.clone());
        let writing = write(ledger, term, Arc::clone(&key), seen, stale, record, waiters);
        writing.map(move |seen| (key, seen)).boxed()
    }

    /// Drops the rows of new jobs that are not due soon. The leader has started no run of these jobs, so the next leader
    /// finds no record of them, and registers them.
    fn leave_out_new_jobs(&mut self) {
        let jobs = self.rows.leave_out_after(self.term.quorum().wall() + LAST_REGISTERED);
        if jobs > 0 {
            tracing::debug!(group = &**self.term.group(), jobs, "the next leader registers these new jobs");
        }
    }
}

/// Writes a record until a majority stores it, while the term lasts. Returns the record that the nodes then
/// store.
async fn write(
    ledger: Ledger,
    term: Term,
    key: Arc<str>,
    mut seen: Option<Record>,
    stale: Vec<Record>,
    record: Record,
    mut waiters: Vec<Waiter>,
) -> Option<Record> {
    let mut pause = WRITE_RETRY;
    loop {
        match ledger.write(&key, seen.as_ref(), &record).await {
            Ok(()) => break,
            Err(LedgerError::Standing(other))
                if !other.last && seen.as_ref() != Some(&other) && term.is_valid() =>
            {
                seen = Some(other);
            }
            // The stored record is final, so no node will ever accept `record`.
            Err(LedgerError::Standing(other)) if other.last => {
                tracing::debug!(group = &**term.group(), key = &*key, "not written: another record is final");
                report(&mut waiters, &Err("another record is final".into()), true);
                return Some(other);
            }
            Err(error @ (LedgerError::NoMajority(_) | LedgerError::Standing(_))) if term.is_valid() => {
                report(&mut waiters, &Err(error.to_string().into()), false);
            }
            Err(error) => {
                tracing::warn!(group = &**term.group(), key = &*key, "not written: {error}");
                report(&mut waiters, &Err(error.to_string().into()), true);
                if matches!(error, LedgerError::Superseded { .. }) {
                    // A later term has sealed the ledger. So this term can neither write records nor start
                    // runs.
                    term.resign();
                }
                return seen;
            }
        }
        term.env().sleep(pause).await;
        pause = (pause * 2).min(WRITE_RETRY_MAX);
    }
    report(&mut waiters, &Ok(()), true);
    // Some nodes refused the write, because they store another record than `seen`. The write is sent again, and
    // now names that other record as the one to overwrite.
    for old in stale.iter().filter(|old| seen.as_ref() != Some(old) && !old.last) {
        if let Err(error) = ledger.write(&key, Some(old), &record).await {
            tracing::trace!(key = &*key, "a majority has the row, other nodes do not yet: {error}");
        }
    }
    Some(record)
}

/// Returns the highest value that the nodes have under a key, by term and then by `rank`. The flag is true if
/// all nodes that answered store that value.
pub(in crate::scheduler) fn highest<'a, T, K: Ord>(
    records: &'a [Option<Record>],
    read: impl Fn(&'a Record) -> Option<T>,
    rank: impl Fn(&T) -> K,
) -> Option<(T, bool)> {
    let all = records.iter().flatten().filter_map(|record| Some((read(record)?, record)));
    let (highest, stored) = all.max_by_key(|(value, record)| (record.term, rank(value)))?;
    let everywhere =
        records.iter().all(|record| record.as_ref().is_some_and(|record| record.value == stored.value));
    Some((highest, everywhere))
}
