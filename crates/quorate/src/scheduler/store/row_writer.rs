//! What the leader keeps of its jobs in the ledger beside their ticks: rows that are written until a majority has
//! them, for as long as the term lasts.
//!
//! # What is not guaranteed
//!
//! A row that a majority of the nodes forget between two terms is lost, and with it from when on its job is
//! due, whether it is paused, its state, or what somebody asked for.
//!
//! Without rows a leader could not tell a tick that nobody ran from one before the job existed. So each is written
//! until a majority has it, and every leader brings it back to nodes that forgot it; else one node's restart
//! after the other would wear it down. All rows go through one task, which writes many at once, and those under
//! one key in order.

use crate::scheduler::store::snapshot::LedgerSnapshot;
use crate::{
    election::Term,
    env::{ScopedTask, WallTime},
    ledger::{Ledger, LedgerError},
    node::Record,
    scheduler::store::FOR_EVER,
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// Between attempts to write without a majority.
const WRITE_AGAIN: Duration = Duration::from_millis(50);
/// And after many: a node that is out of memory stays so for a while.
const WRITE_AGAIN_MAX: Duration = Duration::from_secs(2);
/// How many rows are on their way at once.
const AT_ONCE: usize = 256;

/// A row to write.
#[derive(Debug)]
pub(in crate::scheduler) struct Put {
    pub(in crate::scheduler) key: Arc<str>,
    pub(in crate::scheduler) value: Arc<str>,
    /// [`FOR_EVER`], or until when pruning leaves it.
    pub(in crate::scheduler) at: WallTime,
    pub(in crate::scheduler) last: bool,
    pub(in crate::scheduler) told: Vec<Told>,
}

/// Who is to be told that a row stands, or that it never will.
#[derive(Debug)]
pub(in crate::scheduler) struct Told {
    to: oneshot::Sender<Result<(), Arc<str>>>,
    /// Not told either that there is no majority yet.
    patient: bool,
}

/// The way to the task that writes rows.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct RowWriter(mpsc::UnboundedSender<Put>);

impl RowWriter {
    /// Starts the task, which ends once every clone of this is dropped and all is written, or the term is over.
    pub(in crate::scheduler) fn start(
        ledger: &Ledger,
        term: &Term,
        sealed: &LedgerSnapshot,
    ) -> (Self, ScopedTask<()>) {
        let (puts, inbox) = mpsc::unbounded_channel();
        let found = sealed.rows("").map(|(key, records)| (Arc::clone(key), Slot::found(records)));
        let slots = found.filter(|(_, slot)| !slot.is_closed() || !slot.stale.is_empty()).collect();
        let writer =
            Writer { ledger: ledger.clone(), term: term.clone(), slots, queue: VecDeque::new(), open: true };
        (Self(puts), term.spawn_scoped(writer.serve(inbox)))
    }

    /// Has a row written that pruning never reaches.
    pub(in crate::scheduler) fn put(&self, key: &Arc<str>, value: Arc<str>) {
        let (key, at) = (Arc::clone(key), FOR_EVER);
        // Where the task has ended, so has the term.
        let _ = self.0.send(Put { key, value, at, last: false, told: Vec::new() });
    }

    /// Has a row written that pruning never reaches, and says when it stands. An error says that there is no
    /// majority yet (it is still tried), or that the term has ended.
    pub(in crate::scheduler) fn write(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        self.send(key, value, false)
    }

    /// As [`RowWriter::write`], and waits for as long as it takes: an error says that this term will not write it.
    pub(in crate::scheduler) fn insist(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        self.send(key, value, true)
    }

    /// Has a row written for the last time, so that pruning will reach it.
    pub(in crate::scheduler) fn close(&self, key: &Arc<str>, value: Arc<str>, at: WallTime, last: bool) {
        let _ = self.0.send(Put { key: Arc::clone(key), value, at, last, told: Vec::new() });
    }

    fn send(
        &self,
        key: &Arc<str>,
        value: Arc<str>,
        patient: bool,
    ) -> impl Future<Output = Result<(), Arc<str>>> + Send + use<> {
        let (to, answer) = oneshot::channel();
        let told = vec![Told { to, patient }];
        let _ = self.0.send(Put { key: Arc::clone(key), value, at: FOR_EVER, last: false, told });
        answer.map(|told| told.unwrap_or_else(|_| Err("the term has ended".into())))
    }
}

/// What stands under one key, and what is to.
#[derive(Debug, Default)]
struct Slot {
    seen: Option<Record>,
    /// What other nodes have under it.
    stale: Vec<Record>,
    next: Option<Put>,
    writing: bool,
}

impl Slot {
    /// The record of the highest term is the one that most nodes are likely to have.
    fn found(records: &[Option<Record>]) -> Self {
        let mut all: Vec<Record> = records.iter().flatten().cloned().collect();
        all.sort_by_key(|record| record.term);
        all.dedup();
        let seen = all.pop();
        Self { seen, stale: all, ..Self::default() }
    }

    /// What is newer takes the place of what has not left yet: it says all that the older said, so that whoever waits
    /// for that is told once this stands.
    fn take(&mut self, mut put: Put) {
        let older = self.next.take().map(|older| older.told).unwrap_or_default();
        put.told.extend(older);
        self.next = Some(put);
    }

    /// Whether pruning will reach what stands: then nobody is likely to ask for it again. (Where somebody does, the
    /// write finds out what stands.)
    fn is_closed(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.last || seen.at != FOR_EVER.as_micros())
    }
}

struct Writer {
    ledger: Ledger,
    term: Term,
    slots: BTreeMap<Arc<str>, Slot>,
    queue: VecDeque<Arc<str>>,
    /// Whether more may come.
    open: bool,
}

type Writing = BoxFuture<'static, (Arc<str>, Option<Record>)>;

impl Writer {
    async fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<Put>) {
        let mut writing: FuturesUnordered<Writing> = FuturesUnordered::new();
        let lost = self.term.lost_token().clone();
        while self.open || !writing.is_empty() || !self.queue.is_empty() {
            while writing.len() < AT_ONCE
                && let Some(next) = self.queue.pop_front().and_then(|key| self.begin(key))
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
        let slot = self.slots.entry(Arc::clone(&key)).or_default();
        let waits = slot.next.is_some();
        slot.take(put);
        if !waits && !slot.writing {
            self.queue.push_back(key);
        }
    }

    fn begin(&mut self, key: Arc<str>) -> Option<Writing> {
        let slot = self.slots.get_mut(&key)?;
        let put = slot.next.take()?;
        slot.writing = true;
        let (seen, stale) = (slot.seen.clone(), std::mem::take(&mut slot.stale));
        let record =
            Record { at: put.at.as_micros(), term: self.term.token(), last: put.last, value: put.value };
        let (ledger, term) = (self.ledger.clone(), self.term.clone());
        let writing = write(ledger, term, Arc::clone(&key), seen, stale, record, put.told);
        Some(writing.map(move |seen| (key, seen)).boxed())
    }

    fn written(&mut self, key: Arc<str>, seen: Option<Record>) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        slot.writing = false;
        slot.seen = seen;
        if slot.next.is_some() {
            self.queue.push_back(key);
        } else if slot.is_closed() {
            self.slots.remove(&key);
        }
    }
}

/// Writes it until a majority has it, for as long as the term lasts; gives what stands then.
async fn write(
    ledger: Ledger,
    term: Term,
    key: Arc<str>,
    mut seen: Option<Record>,
    stale: Vec<Record>,
    record: Record,
    mut told: Vec<Told>,
) -> Option<Record> {
    let mut pause = WRITE_AGAIN;
    loop {
        match ledger.write(&key, seen.as_ref(), &record).await {
            Ok(()) => break,
            Err(LedgerError::Standing(other))
                if !other.last && seen.as_ref() != Some(&other) && term.is_valid() =>
            {
                seen = Some(other);
            }
            // It is final: no attempt will ever be granted.
            Err(LedgerError::Standing(other)) if other.last => {
                tracing::debug!(group = &**term.group(), key = &*key, "not written: another record is final");
                tell(&mut told, &Err("another record is final".into()), true);
                return Some(other);
            }
            Err(error @ (LedgerError::NoMajority(_) | LedgerError::Standing(_))) if term.is_valid() => {
                tell(&mut told, &Err(error.to_string().into()), false);
            }
            Err(error) => {
                tracing::warn!(group = &**term.group(), key = &*key, "not written: {error}");
                tell(&mut told, &Err(error.to_string().into()), true);
                if matches!(error, LedgerError::Superseded { .. }) {
                    // A later term has sealed the ledger: this one can neither write nor start anything.
                    term.resign();
                }
                return seen;
            }
        }
        term.env().sleep(pause).await;
        pause = (pause * 2).min(WRITE_AGAIN_MAX);
    }
    tell(&mut told, &Ok(()), true);
    // Nodes that have something else under the key refused it: each is told by what it has.
    for old in stale.iter().filter(|old| seen.as_ref() != Some(old) && !old.last) {
        if let Err(error) = ledger.write(&key, Some(old), &record).await {
            tracing::trace!(key = &*key, "of a majority that has it already: {error}");
        }
    }
    Some(record)
}

/// Tells all who wait, or only those who are not patient.
fn tell(told: &mut Vec<Told>, result: &Result<(), Arc<str>>, all: bool) {
    for one in std::mem::take(told) {
        if all || !one.patient {
            // Where nobody waits any more, nobody is told.
            let _ = one.to.send(result.clone());
        } else {
            told.push(one);
        }
    }
}

/// Of the values that nodes have under a key the one that `rank` puts highest, and whether all who answered have
/// just that.
pub(in crate::scheduler) fn highest<'a, T, K: Ord>(
    records: &'a [Option<Record>],
    read: impl Fn(&'a Record) -> Option<T>,
    rank: impl Fn(&T) -> K,
) -> Option<(T, bool)> {
    let all = records.iter().flatten().filter_map(|record| Some((read(record)?, record)));
    let (highest, standing) = all.max_by_key(|(value, record)| (record.term, rank(value)))?;
    let everywhere =
        records.iter().all(|record| record.as_ref().is_some_and(|record| record.value == standing.value));
    Some((highest, everywhere))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FencingToken;

    fn put(value: &str, patient: bool) -> (Put, oneshot::Receiver<Result<(), Arc<str>>>) {
        let (to, answer) = oneshot::channel();
        let told = vec![Told { to, patient }];
        (Put { key: "k".into(), value: value.into(), at: FOR_EVER, last: false, told }, answer)
    }

    #[test]
    fn whoever_waits_for_an_older_row_is_told_once_the_newer_one_stands() {
        let mut slot = Slot::default();
        let ((first, mut one), (second, mut two)) = (put("1", true), put("2", false));
        slot.take(first);
        slot.take(second);
        let mut next = slot.next.take().unwrap();
        assert_eq!((&*next.value, next.told.len()), ("2", 2));
        assert!(one.try_recv().is_err() && two.try_recv().is_err(), "neither stands");
        tell(&mut next.told, &Err("no majority yet".into()), false);
        assert!(two.try_recv().unwrap().is_err(), "who is not patient is told");
        assert!(one.try_recv().is_err(), "who is waits on");
        tell(&mut next.told, &Ok(()), true);
        assert_eq!(one.try_recv().unwrap(), Ok(()));
    }

    #[test]
    fn what_is_closed_is_not_kept() {
        let seen = |at, last| {
            let seen = Some(Record { at, term: FencingToken::new(1), last, value: "v".into() });
            Slot { seen, ..Slot::default() }.is_closed()
        };
        assert!(seen(7, true) && seen(7, false) && seen(FOR_EVER.as_micros(), true));
        assert!(!seen(FOR_EVER.as_micros(), false) && !Slot::default().is_closed());
    }
}
