//! Proposed client behaviour: the decisions that the library does not make yet. The later code is compared with this file.
//!
//! No request of the engine changes. New are these decisions of clients:
//!
//! * [`SlotTally`]: a count makes its sender the owner of a slot at a majority of nodes that are older than the slot's `at`.
//!   (Today's claims count any node, and take a count back.)
//! * [`CloseTally`]: a leader that holds the claim of an orphaned slot has the count at a majority. *Superseded* means that
//!   a count is there already.
//! * [`latest`]: of the records that a seal finds, the one of the highest term decides, closed or not. (Today's
//!   [`verdict`](quorate::schedule::verdict) prefers a closed one.) So a closed record is not written as
//!   [`last`](quorate::node::Record::last): the next leader must be able to write it again under its own term.
//! * [`is_open`]: the evidence on which a worker takes a run.
//! * Slots: acquire and count travel in a batch whose `not_after` is at most the slot's horizon; extend and complete do not.
//!   `keep` and `retention` last until the horizon. A count is never sent with `back`, and a slot is never forgiven.

use super::record::{End, Mark, Stage};
use quorate::{
    internals::{Answer, majority},
    ledger::Memory,
    node::{Refusal, Reply},
};

/// Counts the answers to the one count of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotTally {
    nodes: usize,
    at: u64,
    counted: usize,
}

impl SlotTally {
    /// Returns the tally of a slot whose generation was opened with this `at`.
    pub(super) fn new(nodes: usize, at: u64) -> Self {
        Self { nodes, at, counted: 0 }
    }

    /// Counts one node's answer, and the memory that it was given under. One a node.
    pub(super) fn count(&mut self, memory: Memory, answer: &Answer) {
        if matches!(answer, Answer::Reply(Reply::Counted)) && memory.covers(self.at) {
            self.counted += 1;
        }
    }

    /// Returns `true` if the sender owns the slot from now on.
    pub(super) fn is_taken(self) -> bool {
        self.counted >= majority(self.nodes)
    }
}

/// Counts the answers to the count by which a leader closes an orphaned slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloseTally {
    nodes: usize,
    counted: usize,
}

impl CloseTally {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, counted: 0 }
    }

    /// Counts one node's answer. One a node.
    pub(super) fn count(&mut self, answer: &Answer) {
        // The node looks at the owner first: *superseded* comes from a node where the leader holds the claim.
        let there = matches!(answer, Answer::Reply(Reply::Counted | Reply::Refused(Refusal::Superseded)));
        self.counted += usize::from(there);
    }

    /// Returns `true` if no worker can own the slot any more.
    pub(super) fn is_closed(self) -> bool {
        self.counted >= majority(self.nodes)
    }
}

/// Returns the record that decides, of those that a seal found: the one of the highest term and, within one
/// term, the one that its leader wrote last.
pub(super) fn latest(found: impl IntoIterator<Item = Mark>) -> Mark {
    found.into_iter().max().unwrap_or(Mark::NONE)
}

/// Returns `true` if a leader may overwrite `met`, a record of an earlier term on a node, with `target`. A
/// seal with a majority of nodes that are older than the tick has found every record that ever had a
/// majority. After any other seal, a record later than the `seen` one may have had a majority: then it
/// decides instead.
pub(super) fn overwrites(target: Mark, seen: Mark, met: Mark, remembering: bool) -> bool {
    remembering || met <= seen || target.end().is_some()
}

/// Returns `true` if a leader that has written `before` may write `next`: within a term, its records only
/// go forward.
pub(super) fn goes_forward(before: Mark, next: Mark) -> bool {
    next > before
}

/// The generation that a worker may take, and its `at`: a majority of nodes that are older than `at` shows the very same
/// record, term and all. `shown`: the record of each node that answered, and whether the node is older than the record's `at`.
pub(super) fn is_open(shown: &[(Mark, bool)], nodes: usize) -> Option<(u8, u8)> {
    let counts = |mark: Mark| shown.iter().filter(|(other, older)| *other == mark && *older).count();
    let mut open = shown.iter().filter(|(mark, _)| counts(*mark) >= majority(nodes));
    match open.next()?.0.stage() {
        Some(Stage::Open { generation, at }) => Some((generation, at)),
        _ => None,
    }
}

/// The end that a leader makes of the end in a record that decides. *Skipped* was perhaps never at a majority: where the
/// seal had no majority of nodes that are older than the tick, a later record that was may be forgotten.
pub(super) fn inherited(end: End, remembering: bool) -> End {
    if end == End::Skipped && !remembering { End::Lost } else { end }
}

/// The end of a generation that a leader ended through its slot: a later one was never a misfire, for an earlier one may
/// have been started.
pub(super) fn voided(generation: u8) -> End {
    if generation == 1 { End::Skipped } else { End::Lost }
}

/// The generation that a leader opens of a run of which it finds no record. Without a majority of nodes that are older than
/// the tick, another may have been started: so this one is not the first, and is never skipped.
pub(super) fn first_opened(remembering: bool) -> u8 {
    if remembering { 1 } else { 2 }
}

/// The time before which a node's memory must have begun to count for a leader's writes, and for the generations that it
/// opens: the tick's time or the beginning of the leader's term, whichever is later. It does not move within a term.
pub(super) fn memory_needed(tick: u64, term_began: u64) -> u64 {
    tick.max(term_began)
}
