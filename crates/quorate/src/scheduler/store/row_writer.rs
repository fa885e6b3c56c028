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
        snapshot::{LedgerSnapshot, SealedRows},
    },
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// The longest pause before a write is sent again. The pause is long, because a node that has no memory for a
/// write usually has none for a while.
const WRITE_RETRY_MAX: Duration = Duration::from_secs(2);
/// The largest number of rows that are written at the same time.
const ROW_WRITES_MAX: usize = 256;

/// A row to write.
#[derive(Debug)]
struct Put {
    key: Arc<str>,
    value: Arc<str>,
    /// The time of the record. With [`FOR_EVER`], pruning never removes the record. With any other time,
    /// pruning removes it later.
    at: WallTime,
    last: bool,
    /// The time before which the row should be stored. The rows of new jobs have one: no run of such a job starts
    /// before. Other rows have the time 0, and are written first.
    due: WallTime,
    waiters: Vec<Waiter>,
}

/// A caller that waits until a row is stored, or until it is certain that this term cannot store it.
#[derive(Debug)]
struct Waiter {
    to: oneshot::Sender<Result<(), Arc<str>>>,
    /// True if the caller waits until a majority stores the row. False if the caller waits only for the first
    /// result, which may be a failure.
    until_stored: bool,
}

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
        let task = RowTask {
            ledger: ledger.clone(),
            term: term.clone(),
            sealed: Arc::clone(sealed.sealed_rows()),
            slots: BTreeMap::new(),
            queue: BTreeMap::new(),
            queued: 0,
            open: true,
        };
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

/// The task's data for one key: the stored record, and the next value to write.
#[derive(Debug, Default)]
struct RowSlot {
    /// The record that most nodes are likely to store.
    seen: Option<Record>,
    /// Other records that nodes stored under this key at the seal. A write must overwrite these records too.
    stale: Vec<Record>,
    next: Option<Put>,
    writing: bool,
}

impl RowSlot {
    /// Creates the data of a key from the records that the nodes stored at the seal. Most nodes probably store
    /// the record of the highest term.
    fn found(records: &[Option<Record>]) -> Self {
        let mut all: Vec<Record> = records.iter().flatten().cloned().collect();
        all.sort_by_key(|record| record.term);
        all.dedup();
        let seen = all.pop();
        Self { seen, stale: all, ..Self::default() }
    }

    /// Sets the next value to write. If an earlier value was not sent yet, the new value replaces it. The new
    /// value contains all data of the earlier one, so callers that wait for the earlier value now wait for the
    /// new one.
    fn take(&mut self, mut put: Put) {
        let older = self.next.take().map(|older| older.waiters).unwrap_or_default();
        put.waiters.extend(older);
        self.next = Some(put);
    }

    /// Returns whether the stored record is final, or has a time at which pruning removes it. The leader
    /// probably does not write such a key again, so the task drops the data of the key to save memory. If the
    /// leader does write the key again, the write finds the stored record on the nodes and overwrites it.
    fn is_closed(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.last || seen.at != FOR_EVER.as_micros())
    }
}

struct RowTask {
    ledger: Ledger,
    term: Term,
    /// The rows that the seal found. The task looks a row up when the leader first writes it: a leader of many jobs
    /// writes few of their rows.
    sealed: SealedRows,
    slots: BTreeMap<Arc<str>, RowSlot>,
    /// The keys with a value to write, in the order in which they are written: by the time `due` of the value, and
    /// then in the order in which the values came.
    queue: BTreeMap<(WallTime, u64), Arc<str>>,
    /// The number of keys that were queued so far.
    queued: u64,
    /// True while a handle exists. New rows may then still arrive.
    open: bool,
}

type Writing = BoxFuture<'static, (Arc<str>, Option<Record>)>;

impl RowTask {
    async fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<Put>) {
        let mut writing: FuturesUnordered<Writing> = FuturesUnordered::new();
        let lost = self.term.lost_token().clone();
        while self.open || !writing.is_empty() || !self.queue.is_empty() {
            while writing.len() < ROW_WRITES_MAX
                && let Some(next) = self.queue.pop_first().and_then(|(_, key)| self.begin(key))
            {
                writing.push(next);
            }
            tokio::select! { biased;
                () = lost.cancelled() => return,
                Some((key, seen)) = writing.next() => self.written(key, seen),
                put = inbox.recv(), if self.open => match put {
                    Some(put) => self.take(put),
                    None => self.open = false,
                }
            }
        }
    }

    fn take(&mut self, put: Put) {
        let key = Arc::clone(&put.key);
        let found = || self.sealed.get(&key).map_or_else(RowSlot::default, |records| RowSlot::found(records));
        let slot = self.slots.entry(Arc::clone(&key)).or_insert_with(found);
        let (waits, due) = (slot.next.is_some(), put.due);
        slot.take(put);
        if !waits && !slot.writing {
            self.enqueue(key, due);
        }
    }

    fn enqueue(&mut self, key: Arc<str>, due: WallTime) {
        self.queued += 1;
        self.queue.insert((due, self.queued), key);
    }

    fn begin(&mut self, key: Arc<str>) -> Option<Writing> {
        let slot = self.slots.get_mut(&key)?;
        let put = slot.next.take()?;
        slot.writing = true;
        let (seen, stale) = (slot.seen.clone(), std::mem::take(&mut slot.stale));
        let record =
            Record { at: put.at.as_micros(), term: self.term.token(), last: put.last, value: put.value };
        let (ledger, term) = (self.ledger.clone(), self.term.clone());
        let writing = write(ledger, term, Arc::clone(&key), seen, stale, record, put.waiters);
        Some(writing.map(move |seen| (key, seen)).boxed())
    }

    fn written(&mut self, key: Arc<str>, seen: Option<Record>) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        slot.writing = false;
        slot.seen = seen;
        if let Some(due) = slot.next.as_ref().map(|next| next.due) {
            self.enqueue(key, due);
        } else if slot.is_closed() {
            self.slots.remove(&key);
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

/// Sends a result to the waiting callers. If `all` is false, the callers that wait until a majority stores the
/// row get no result yet.
fn report(waiters: &mut Vec<Waiter>, result: &Result<(), Arc<str>>, all: bool) {
    for waiter in std::mem::take(waiters) {
        if all || !waiter.until_stored {
            // The send fails if the caller has dropped its future. This is not an error.
            let _ = waiter.to.send(result.clone());
        } else {
            waiters.push(waiter);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FencingToken;

    fn put(value: &str, until_stored: bool) -> (Put, oneshot::Receiver<Result<(), Arc<str>>>) {
        let (to, answer) = oneshot::channel();
        let waiters = vec![Waiter { to, until_stored }];
        (
            Put {
                key: "k".into(),
                value: value.into(),
                at: FOR_EVER,
                last: false,
                due: WallTime::default(),
                waiters,
            },
            answer,
        )
    }

    #[test]
    fn waiters_for_an_older_value_wait_for_the_newer_one() {
        let mut slot = RowSlot::default();
        let ((first, mut one), (second, mut two)) = (put("1", true), put("2", false));
        slot.take(first);
        slot.take(second);
        let mut next = slot.next.take().unwrap();
        assert_eq!((&*next.value, next.waiters.len()), ("2", 2));
        assert!(one.try_recv().is_err() && two.try_recv().is_err(), "neither is stored");
        report(&mut next.waiters, &Err("no majority yet".into()), false);
        assert!(two.try_recv().unwrap().is_err(), "a caller of `write` gets the error");
        assert!(one.try_recv().is_err(), "a caller of `insist` goes on waiting");
        report(&mut next.waiters, &Ok(()), true);
        assert_eq!(one.try_recv().unwrap(), Ok(()));
    }

    #[test]
    fn a_closed_row_is_not_kept() {
        let seen = |at, last| {
            let seen = Some(Record { at, term: FencingToken::new(1), last, value: "v".into() });
            RowSlot { seen, ..RowSlot::default() }.is_closed()
        };
        assert!(seen(7, true) && seen(7, false) && seen(FOR_EVER.as_micros(), true));
        assert!(!seen(FOR_EVER.as_micros(), false) && !RowSlot::default().is_closed());
    }
}
