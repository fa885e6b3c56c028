//! The rows that wait to be written. This module performs no I/O.

use crate::{
    env::{BootTime, WallTime},
    node::Record,
    scheduler::store::{FOR_EVER, snapshot::SealedRows},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// If more rows than this wait, those of new jobs that are not due soon are written at a pace. So the start of a group of
/// very many jobs delays no runs.
const PACED_ABOVE: usize = 1_000;
/// The pace: a number of rows, and the time after which as many follow. It is 2,000 rows a second.
const PACE: (usize, Duration) = (100, Duration::from_millis(50));

/// A row to write.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) key: Arc<str>,
    pub(super) value: Arc<str>,
    /// The time of the record. With [`FOR_EVER`], pruning never removes the record. With any other time,
    /// pruning removes it later.
    pub(super) at: WallTime,
    pub(super) last: bool,
    /// The time before which the row should be stored. The rows of new jobs have one: no run of such a job starts
    /// before. Other rows have the time 0, and are written first.
    pub(super) due: WallTime,
    pub(super) waiters: Vec<Waiter>,
}

/// A caller that waits until a row is stored, or until it is certain that this term cannot store it.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) to: oneshot::Sender<Result<(), Arc<str>>>,
    /// True if the caller waits until a majority stores the row. False if the caller waits only for the first
    /// result, which may be a failure.
    pub(super) until_stored: bool,
}

/// A row to write now.
#[derive(Debug)]
pub(super) struct NextRow {
    pub(super) put: Put,
    /// The record that most nodes are likely to store.
    pub(super) seen: Option<Record>,
    /// Other records that nodes stored under the key at the seal. The write must overwrite these records too.
    pub(super) stale: Vec<Record>,
}

/// The rows that wait to be written, in the order in which they are written.
#[derive(Debug)]
pub(super) struct RowQueue {
    /// The rows that the seal found. A row is looked up when the leader first writes it: a leader of many jobs writes
    /// few of their rows.
    sealed: SealedRows,
    slots: BTreeMap<Arc<str>, RowSlot>,
    /// The keys with a value to write: by the time `due` of the value, and then in the order in which they were queued.
    queue: BTreeMap<Place, Arc<str>>,
    /// The number of keys that were queued so far.
    queued: u64,
    /// The number of rows that may be written until `paced_until`, if rows are written at a pace.
    paced: usize,
    paced_until: Option<BootTime>,
}

/// A place in the queue: the time `due` of the value, and the number of the keys that were queued so far.
type Place = (WallTime, u64);

impl RowQueue {
    pub(super) fn new(sealed: SealedRows) -> Self {
        let (slots, queue) = (BTreeMap::new(), BTreeMap::new());
        Self { sealed, slots, queue, queued: 0, paced: 0, paced_until: None }
    }

    /// Returns whether no row waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a row. If another value of the same key is being written, the row waits for the end of that write.
    pub(super) fn take(&mut self, put: Put) {
        let key = Arc::clone(&put.key);
        let found = || self.sealed.get(&key).map_or_else(RowSlot::default, |records| RowSlot::found(records));
        let slot = self.slots.entry(Arc::clone(&key)).or_insert_with(found);
        slot.take(put);
        if !slot.writing {
            self.enqueue(key);
        }
    }

    /// Returns the time before which the next row must not be written, if there is such a time. Rows that are due until
    /// `soon` may be written at once. Otherwise the caller must write the row now.
    pub(super) fn pause(&mut self, now: BootTime, soon: WallTime) -> Option<BootTime> {
        let (due, _) = self.queue.first_key_value().map(|(place, _)| *place)?;
        if due <= soon || self.queue.len() <= PACED_ABOVE {
            return None;
        }
        let (count, time) = PACE;
        let until = *self.paced_until.get_or_insert(now);
        if until <= now {
            (self.paced, self.paced_until) = (count, Some(now + time));
        }
        match self.paced.checked_sub(1) {
            Some(left) => {
                self.paced = left;
                None
            }
            None => self.paced_until,
        }
    }

    /// Removes the first row, so that the caller writes it. The caller then calls [`RowQueue::written`].
    pub(super) fn pop(&mut self) -> Option<NextRow> {
        let (_, key) = self.queue.pop_first()?;
        let slot = self.slots.get_mut(&key)?;
        (slot.writing, slot.queued) = (true, None);
        let (seen, stale) = (slot.seen.clone(), std::mem::take(&mut slot.stale));
        Some(NextRow { put: slot.next.take()?, seen, stale })
    }

    /// Notes that the row under `key` was written, and that the nodes now store `seen`.
    pub(super) fn written(&mut self, key: Arc<str>, seen: Option<Record>) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        slot.writing = false;
        slot.seen = seen;
        if slot.next.is_some() {
            self.enqueue(key);
        } else if slot.is_closed() {
            self.slots.remove(&key);
        }
    }

    /// Drops the rows that wait and are due later than `time`. Only the rows of new jobs are due at a time. Returns the
    /// number of dropped rows.
    pub(super) fn leave_out_after(&mut self, time: WallTime) -> usize {
        let left_out = self.queue.split_off(&(time, u64::MAX));
        for key in left_out.values() {
            self.slots.remove(key);
        }
        left_out.len()
    }

    /// Queues the next value of a key. A key that is queued already moves to an earlier place if its new value is due
    /// before the old one.
    fn enqueue(&mut self, key: Arc<str>) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        let Some(due) = slot.next.as_ref().map(|next| next.due) else { return };
        match slot.queued {
            Some((before, _)) if before <= due => return,
            Some(place) => drop(self.queue.remove(&place)),
            None => {}
        }
        self.queued += 1;
        slot.queued = Some((due, self.queued));
        self.queue.insert((due, self.queued), key);
    }
}

/// The data of one key: the stored record, and the next value to write.
#[derive(Debug, Default)]
struct RowSlot {
    /// The record that most nodes are likely to store.
    seen: Option<Record>,
    /// Other records that nodes stored under this key at the seal. A write must overwrite these records too.
    stale: Vec<Record>,
    next: Option<Put>,
    /// The place of the key in the queue.
    queued: Option<Place>,
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
        if let Some(older) = self.next.take() {
            put.due = put.due.min(older.due);
            put.waiters.extend(older.waiters);
        }
        self.next = Some(put);
    }

    /// Returns whether the stored record is final, or has a time at which pruning removes it. The leader
    /// probably does not write such a key again, so the task drops the data of the key to save memory. If the
    /// leader does write the key again, the write finds the stored record on the nodes and overwrites it.
    fn is_closed(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.last || seen.at != FOR_EVER.as_micros())
    }
}

/// Sends a result to the waiting callers. If `all` is false, the callers that wait until a majority stores the
/// row get no result yet.
pub(super) fn report(waiters: &mut Vec<Waiter>, result: &Result<(), Arc<str>>, all: bool) {
    for waiter in std::mem::take(waiters) {
        if all || !waiter.until_stored {
            // The send fails if the caller has dropped its future. This is not an error.
            let _ = waiter.to.send(result.clone());
        } else {
            waiters.push(waiter);
        }
    }
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

    fn due(key: &str, due: u64) -> Put {
        let (put, _) = put("v", false);
        Put { key: key.into(), due: WallTime::from_micros(due), ..put }
    }

    fn keys(rows: &mut RowQueue) -> Vec<String> {
        std::iter::from_fn(|| Some(rows.pop()?.put.key.to_string())).collect()
    }

    #[test]
    fn new_jobs_follow_other_rows_and_those_that_are_due_first_come_first() {
        let mut rows = RowQueue::new(SealedRows::default());
        [("late", 9), ("soon", 5), ("row", 0), ("other", 0)]
            .into_iter()
            .for_each(|(key, at)| rows.take(due(key, at)));
        assert_eq!(keys(&mut rows), ["row", "other", "soon", "late"]);
    }

    #[test]
    fn a_new_job_whose_row_changes_is_written_at_once_and_one_that_is_being_written_waits() {
        let mut rows = RowQueue::new(SealedRows::default());
        [("a", 5), ("b", 7), ("b", 0), ("b", 8)].into_iter().for_each(|(key, at)| rows.take(due(key, at)));
        let next = rows.pop().unwrap();
        assert_eq!((&*next.put.key, next.put.waiters.len()), ("b", 3));
        rows.take(due("b", 0));
        assert_eq!(keys(&mut rows), ["a"], "the other value of b is being written");
        rows.written("b".into(), None);
        assert_eq!(keys(&mut rows), ["b"]);
    }

    #[test]
    fn very_many_new_jobs_that_are_not_due_soon_are_written_at_a_pace() {
        let mut rows = RowQueue::new(SealedRows::default());
        let (soon, (count, time)) = (WallTime::from_micros(5), PACE);
        let (now, later) = (BootTime::from_nanos(7), BootTime::from_nanos(7) + time);
        (0..PACED_ABOVE).for_each(|number| rows.take(due(&number.to_string(), 9)));
        assert_eq!(rows.pause(now, soon), None, "not very many");
        (0..=2 * count).for_each(|number| rows.take(due(&format!("more-{number}"), 9)));
        let mut at_once = |now| {
            let some = std::iter::from_fn(|| if rows.pause(now, soon).is_none() { rows.pop() } else { None });
            some.count()
        };
        assert_eq!((at_once(now), at_once(now), at_once(later)), (count, 0, count));
        assert_eq!(rows.pause(later, soon), Some(later + time));
        rows.take(due("soon", 5));
        assert_eq!(rows.pause(later, soon), None, "a job that is due soon");
    }

    #[test]
    fn only_the_rows_of_new_jobs_that_are_due_later_are_left_out() {
        let mut rows = RowQueue::new(SealedRows::default());
        [("row", 0), ("soon", 5), ("late", 6), ("later", 9), ("changed", 9), ("changed", 0)]
            .into_iter()
            .for_each(|(key, at)| rows.take(due(key, at)));
        assert_eq!(rows.leave_out_after(WallTime::from_micros(5)), 2);
        assert_eq!(keys(&mut rows), ["row", "changed", "soon"]);
    }
}
