//! The rounds that ask the nodes for their registers of an assignment: *start* and *end* of its worker, and *void* of the
//! leader.

use super::TermLedger;
use crate::{
    config::majority,
    ledger::Ledger,
    node::{
        Refusal, Reply, Request,
        copy::{AssignmentId, LeadAct, WorkAct},
    },
    vote::{Answer, ReplyTo, VoteReceiver, vote_channel},
};
use std::sync::Arc;

/// The answers of the nodes to one request for their registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registered {
    nodes: usize,
    /// The number of nodes that carried the request out, or had done so before.
    pub(crate) done: usize,
    /// The number of nodes on which the other of *start* and *void* came first.
    pub(crate) too_late: usize,
    /// The number of nodes whose record is not this assignment, or that take no part in it.
    pub(crate) no_part: usize,
}

impl Registered {
    /// Returns whether a majority of all nodes carried the request out.
    pub(crate) fn by_majority(&self) -> bool {
        self.done >= majority(self.nodes)
    }

    /// Returns whether no majority can carry the request out any more: too many nodes take no part.
    pub(crate) fn is_over(&self) -> bool {
        self.no_part >= majority(self.nodes)
    }

    fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::Reply(Reply::Written) => self.done += 1,
            Answer::Reply(Reply::Refused(Refusal::TooLate)) => self.too_late += 1,
            Answer::Reply(Reply::Refused(Refusal::NoPart)) => self.no_part += 1,
            _ => {}
        }
    }

    /// Counts the answers until a majority has carried the request out, or all nodes have answered or failed.
    async fn of(nodes: usize, mut votes: VoteReceiver) -> Self {
        let mut registered = Self { nodes, ..Self::default() };
        while !registered.by_majority()
            && let Some(vote) = votes.recv().await
        {
            registered.count(&vote.answer);
        }
        registered
    }
}

impl Ledger {
    /// Sends a worker's request about the assignment `id` of the run `key` to all nodes.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may have carried the request out.
    pub(crate) async fn work(&self, key: &Arc<str>, id: AssignmentId, act: WorkAct) -> Registered {
        let (ledger, key) = (Arc::clone(self.name()), Arc::clone(key));
        let votes = self.quorum().pool().ask_all(Request::Work { ledger, key, id, act });
        Registered::of(self.quorum().pool().len(), votes).await
    }
}

impl TermLedger {
    /// Asks each node that this leader has sealed to register that the assignment `id` of the run `key` does not start.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may have registered it.
    pub(crate) async fn void(&self, key: &Arc<str>, id: AssignmentId) -> Registered {
        let (ledger, seal) = (self.ledger(), self.seal());
        let pool = ledger.quorum().pool();
        let (sender, votes) = vote_channel();
        for (node, memory) in self.memories().await.into_iter().enumerate() {
            let Some(memory) = memory else { continue };
            let act = LeadAct::Void { key: Arc::clone(key), id };
            let request = Request::Lead { ledger: Arc::clone(ledger.name()), seal, memory, act };
            pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket: 0 });
        }
        drop(sender);
        Registered::of(pool.len(), votes).await
    }
}

#[cfg(test)]
impl Registered {
    /// Returns the answers of `nodes` nodes, of which the nodes with `replies` have replied.
    pub(crate) fn counted<'a>(nodes: usize, replies: impl IntoIterator<Item = &'a Reply>) -> Self {
        let mut registered = Self { nodes, ..Self::default() };
        replies.into_iter().for_each(|reply| registered.count(&Answer::Reply(reply.clone())));
        registered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Reply = Reply::Refused(Refusal::TooLate);
    const NO_PART: Reply = Reply::Refused(Refusal::NoPart);

    #[test]
    fn only_a_majority_of_all_nodes_registers_and_only_one_without_part_ends_the_request() {
        for (replies, by_majority, is_over) in [
            (&[Reply::Written, Reply::Written, Reply::Written][..], true, false),
            (&[Reply::Written, Reply::Written], false, false),
            (&[Reply::Written, Reply::Written, LATE, NO_PART], false, false),
            (&[Reply::Written, NO_PART, NO_PART, NO_PART], false, true),
            (&[LATE, LATE, LATE, Reply::Refused(Refusal::Incomplete)], false, false),
        ] {
            let counted = Registered::counted(5, replies);
            assert_eq!((counted.by_majority(), counted.is_over()), (by_majority, is_over), "{replies:?}");
        }
        let mixed = Registered::counted(5, &[Reply::Written, LATE, LATE, NO_PART, Reply::Kept]);
        assert_eq!((mixed.done, mixed.too_late, mixed.no_part), (1, 2, 1));
    }
}
