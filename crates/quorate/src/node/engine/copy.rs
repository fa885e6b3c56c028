//! Requests on a node's copy of a led ledger. The decisions are those of [`crate::node::copy`].

use super::{RequestHandler, Store};
use crate::node::{
    Cursor, FencingToken, Incarnation, Record, Refusal, Reply,
    copy::{
        AssignmentId, Entry, HEADER_KEY, Header, HeaderRefusal, LeadAct, MaybeRemoved, NoRegister, Put,
        RegisterRow, Seal, Stamp, WorkAct, end_key, end_row, register_key,
    },
};
use std::sync::Arc;

/// A record of a copy that is to be set, or removed.
type Change = (Arc<str>, Option<Record>);

impl<S: Store> RequestHandler<'_, S> {
    /// Seals the copy for a leader, and returns one page of it. A request for a later page needs the seal.
    pub(super) fn seal_copy(
        &mut self,
        ledger: &Arc<str>,
        seal: Seal,
        after: Option<&Cursor>,
    ) -> Result<Reply, S::Error> {
        let present = self.memory()?;
        let Some(stored) = self.header(ledger, present)? else { return Ok(no_copy(ledger, HEADER_KEY)) };
        let mut header = stored;
        let sealed = if after.is_none() { header.seal(seal) } else { header.admit(seal, present) };
        if let Err(refusal) = sealed {
            return Ok(refused(refusal));
        }
        if header != stored {
            self.set_header(ledger, &header)?;
        }
        Ok(Reply::Ledger(self.page(ledger, after)?))
    }

    /// Serves a request of the leader that sealed the copy in the memory `memory`.
    pub(super) fn lead(
        &mut self,
        ledger: &Arc<str>,
        (seal, memory): (Seal, Incarnation),
        act: &LeadAct,
    ) -> Result<Reply, S::Error> {
        let present = self.memory()?;
        let Some(mut header) = self.header(ledger, present)? else { return Ok(no_copy(ledger, HEADER_KEY)) };
        if let Err(refusal) = header.admit(seal, memory) {
            return Ok(refused(refusal));
        }
        match act {
            LeadAct::Confirm => {}
            LeadAct::Put { writes } => return self.put_all(ledger, header, seal.term, writes),
            LeadAct::Mark { founded } => {
                header.mark(seal.term, *founded);
                self.set_header(ledger, &header)?;
            }
            LeadAct::Void { key, id } => return self.register(ledger, &header, (key, *id), Entry::void),
        }
        Ok(Reply::Written)
    }

    /// Serves a request of the worker to which the run under `key` is assigned.
    pub(super) fn work(
        &mut self,
        ledger: &Arc<str>,
        (key, id): (&Arc<str>, AssignmentId),
        act: &WorkAct,
    ) -> Result<Reply, S::Error> {
        let present = self.memory()?;
        let Some(header) = self.header(ledger, present)? else { return Ok(no_copy(ledger, HEADER_KEY)) };
        match act {
            WorkAct::Start => self.register(ledger, &header, (key, id), Entry::start),
            WorkAct::End { value } => {
                let Some(entry) = self.entry(ledger, key, present)? else { return Ok(no_copy(ledger, key)) };
                if !header.is_complete() {
                    return Ok(Reply::Refused(Refusal::Incomplete));
                }
                if !entry.is_some_and(|entry| entry.takes_end(&header, id)) {
                    return Ok(Reply::Refused(Refusal::NoPart));
                }
                self.change(ledger, vec![(end_key(key), Some(end_row(id, Arc::clone(value))))])?;
                Ok(Reply::Written)
            }
        }
    }

    fn put_all(
        &mut self,
        ledger: &Arc<str>,
        mut header: Header,
        term: FencingToken,
        writes: &[Put],
    ) -> Result<Reply, S::Error> {
        let before = header;
        let (mut changes, mut is_late) = (Vec::new(), false);
        for put in writes {
            let Some(stored) = self.entry(ledger, &put.key, header.incarnation)? else {
                return Ok(no_copy(ledger, &put.key));
            };
            let assignment = put.assignment.filter(|_| put.value.is_some());
            match Entry::write(stored, &before, Stamp { term, seq: put.seq }, assignment) {
                Ok(Some(entry)) => changes.extend(changes_of(put, stored, &entry, header.incarnation)),
                Ok(None) => continue,
                Err(MaybeRemoved) => is_late = true,
            }
            if put.value.is_none() {
                header.remove(put.seq);
            }
        }
        if header != before {
            changes.push((HEADER_KEY.into(), header.to_record()));
        }
        self.change(ledger, changes)?;
        Ok(if is_late { Reply::Refused(Refusal::TooLate) } else { Reply::Written })
    }

    fn register(
        &mut self,
        ledger: &Arc<str>,
        header: &Header,
        (key, id): (&Arc<str>, AssignmentId),
        what: impl FnOnce(&mut Entry, &Header, AssignmentId) -> Result<(), NoRegister>,
    ) -> Result<Reply, S::Error> {
        let Some(stored) = self.entry(ledger, key, header.incarnation)? else {
            return Ok(no_copy(ledger, key));
        };
        let mut entry = stored.unwrap_or_default();
        if let Err(why) = what(&mut entry, header, id) {
            return Ok(Reply::Refused(match why {
                NoRegister::Incomplete => Refusal::Incomplete,
                NoRegister::OtherRecord | NoRegister::NoPart => Refusal::NoPart,
                NoRegister::Late(_) => Refusal::TooLate,
            }));
        }
        if Some(entry) != stored {
            let row = RegisterRow::of(&entry, header.incarnation);
            self.change(ledger, vec![(register_key(key), row.map(RegisterRow::to_record))])?;
        }
        Ok(Reply::Written)
    }

    /// Returns what the node stores of a record. The outer `None` says that its register cannot be read.
    fn entry(
        &self,
        ledger: &str,
        key: &str,
        present: Incarnation,
    ) -> Result<Option<Option<Entry>>, S::Error> {
        let Some(record) = self.record(ledger, key)? else { return Ok(Some(None)) };
        let Some(register) = self.record(ledger, &register_key(key))? else {
            return Ok(Some(Some(Entry { stamp: Stamp::of(&record), ..Entry::default() })));
        };
        Ok(RegisterRow::of_record(&register).map(|row| {
            let register = row.in_memory(present);
            Some(Entry { stamp: Stamp::of(&record), assignment: Some(row.id), register })
        }))
    }

    /// Returns the header as it counts in the node's present memory. `None` if it cannot be read.
    fn header(&self, ledger: &str, present: Incarnation) -> Result<Option<Header>, S::Error> {
        Ok(match self.record(ledger, HEADER_KEY)? {
            None => Some(Header::empty(present)),
            Some(record) => Header::of_record(&record).map(|header| header.in_memory(present)),
        })
    }

    fn set_header(&mut self, ledger: &Arc<str>, header: &Header) -> Result<(), S::Error> {
        self.change(ledger, vec![(HEADER_KEY.into(), header.to_record())])
    }

    fn record(&self, ledger: &str, key: &str) -> Result<Option<Record>, S::Error> {
        Ok(self.store.ledger_at(ledger, key)?.records.into_iter().next().map(|(_, record)| record))
    }

    fn change(&mut self, ledger: &Arc<str>, changes: Vec<Change>) -> Result<(), S::Error> {
        self.store.amend_ledger(ledger, 0, changes)
    }

    /// Returns the id of the node's present memory, which its marker shows.
    fn memory(&self) -> Result<Incarnation, S::Error> {
        Ok(self.store.marker()?.map(|marker| Incarnation::of_marker(&marker)).unwrap_or_default())
    }
}

/// Returns the changes of a record, its register and its end that follow from a write. `stored` is what the node stores of
/// the record, and `entry` what it is to store.
fn changes_of(
    put: &Put,
    stored: Option<Entry>,
    entry: &Entry,
    present: Incarnation,
) -> impl Iterator<Item = Change> {
    let Stamp { term, seq } = entry.stamp;
    let record = |value: &Arc<str>| Record { at: seq, term, last: false, value: value.clone() };
    let record = (Arc::clone(&put.key), put.value.as_ref().map(record));
    let register = (stored.and_then(|stored| stored.assignment) != entry.assignment).then(|| {
        let row = RegisterRow::of(entry, present);
        [(register_key(&put.key), row.map(RegisterRow::to_record)), (end_key(&put.key), None)]
    });
    [record].into_iter().chain(register.into_iter().flatten())
}

fn refused(why: HeaderRefusal) -> Reply {
    Reply::Refused(match why {
        HeaderRefusal::Sealed { by } => Refusal::Sealed { by: by.term },
        HeaderRefusal::NotSealed => Refusal::NotSealed,
    })
}

fn no_copy(ledger: &str, key: &str) -> Reply {
    Reply::Refused(Refusal::WrongType(format!("the record {key:?} of the ledger {ledger:?}").into()))
}
