//! Nodes and dice for random histories. The nodes decide with the shipped code.

use crate::{
    node::{
        Refusal, Reply,
        copy::{AssignmentId, Entry, Header, NoRegister, Stamp},
    },
    scheduler::store::{AssignedTo, OpenRun, WorkEnd},
};
use std::{collections::BTreeMap, sync::Arc};

/// Random numbers with a seed: SplitMix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % sides as u64).unwrap()
    }

    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.roll(times) == 0
    }
}

/// The record of a run at a node. A closed run has no `open`.
#[derive(Clone)]
pub(super) struct Stored {
    pub(super) entry: Entry,
    pub(super) open: Option<OpenRun>,
    pub(super) end: Option<WorkEnd>,
}

/// A node's complete copy of the ledger.
pub(super) struct Copy {
    pub(super) header: Header,
    pub(super) runs: BTreeMap<Arc<str>, Stored>,
}

impl Copy {
    pub(super) fn put(&mut self, key: &Arc<str>, stamp: Stamp, open: Option<&OpenRun>) {
        let id = open.and_then(|open| open.to.as_ref()).map(AssignedTo::id);
        let stored = self.runs.get(key);
        let before = stored.map(|stored| stored.entry);
        let Ok(Some(entry)) = Entry::write(before, &self.header, stamp, id) else { return };
        let same = before.is_some_and(|before| before.assignment == id);
        let end = stored.filter(|_| same).and_then(|stored| stored.end.clone());
        self.runs.insert(Arc::clone(key), Stored { entry, open: open.cloned(), end });
    }

    pub(super) fn register(
        &mut self,
        key: &str,
        id: AssignmentId,
        what: impl FnOnce(&mut Entry, &Header, AssignmentId) -> Result<(), NoRegister>,
    ) -> Reply {
        let mut none = Entry::default();
        let entry = self.runs.get_mut(key).map_or(&mut none, |stored| &mut stored.entry);
        match what(entry, &self.header, id) {
            Ok(()) => Reply::Written,
            Err(NoRegister::Late(_)) => Reply::Refused(Refusal::TooLate),
            Err(_) => Reply::Refused(Refusal::NoPart),
        }
    }

    pub(super) fn end(&mut self, key: &str, id: AssignmentId, end: &WorkEnd) -> Reply {
        match self.runs.get_mut(key).filter(|stored| stored.entry.takes_end(&self.header, id)) {
            Some(stored) => stored.end = Some(end.clone()),
            None => return Reply::Refused(Refusal::NoPart),
        }
        Reply::Written
    }
}
