use super::{LedgerError, Memory};
use crate::{
    lease::Quorum,
    node::{FencingToken, LedgerState, NameError, NodeTime, Record, Refusal, Reply, Request},
    round::{Answer, Ballots, NodeOutcome, Sabotage},
};
use std::sync::Arc;

/// The ledger of one group.
#[derive(Clone, Debug)]
pub struct Ledger {
    quorum: Quorum,
    group: Arc<str>,
}

/// What one node said of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// From when on it can know.
    pub memory: Memory,
    /// What stands there.
    pub state: LedgerState,
}

impl Ledger {
    /// The ledger of `group`.
    ///
    /// # Errors
    /// [`NameError`] where the name cannot be used.
    pub fn new(quorum: &Quorum, group: &str) -> Result<Self, NameError> {
        crate::node::check_name("group", group)?;
        Ok(Self { quorum: quorum.clone(), group: group.into() })
    }

    /// A ledger of its own beside this one, which is not sealed with it: what is called `name` of this group. (No
    /// group's name holds a brace.)
    #[allow(dead_code, reason = "for the inbox, the histories and the spread ticks")]
    pub(crate) fn part(&self, name: &str) -> Self {
        Self { quorum: self.quorum.clone(), group: format!("{}{{{name}}}", self.group).into() }
    }

    /// Seals the ledger with `term`: from now on a majority refuses older terms. Gives what stood there,
    /// from every node that answered.
    ///
    /// # Errors
    /// [`LedgerError::Superseded`] where a later term has sealed it; [`LedgerError::NoMajority`].
    ///
    /// # Cancel safety
    /// Dropping it leaves some nodes sealed, which hurts no one but older terms.
    pub async fn seal(&self, term: FencingToken) -> Result<Vec<Answered>, LedgerError> {
        if self.quorum.setup().sabotaged(Sabotage::PlainRead) {
            return self.read().await;
        }
        let ledger = || Arc::clone(&self.group);
        self.gather(self.quorum.fleet().ask_all(|_| Request::Seal { ledger: ledger(), term })).await
    }

    /// What stands in the ledger, from every node that answered. Seals nothing: a leader may be writing.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn read(&self) -> Result<Vec<Answered>, LedgerError> {
        self.gather(self.quorum.fleet().ask_all(|_| Request::Read { ledger: Arc::clone(&self.group) })).await
    }

    /// Writes `record` under `key` where nothing but `seen` stands, at a majority of the nodes that can
    /// remember it.
    ///
    /// # Errors
    /// [`LedgerError::Superseded`] where a later term has sealed the ledger; [`LedgerError::Standing`] where
    /// another record stands on so many nodes that no majority is left; [`LedgerError::Forgotten`] where so
    /// many have forgotten that time; [`LedgerError::NoMajority`]. After
    /// an error the record may stand on a minority.
    ///
    /// # Cancel safety
    /// Dropping it leaves the record written on some nodes or on none.
    pub async fn write(
        &self,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<(), LedgerError> {
        let fleet = self.quorum.fleet();
        let votes = fleet.ask_all(|_| Request::Write {
            ledger: Arc::clone(&self.group),
            term: record.term,
            key: Arc::clone(key),
            seen: seen.cloned(),
            record: record.clone(),
        });
        self.settle(votes, |memory| memory.covers(record.at)).await
    }

    /// Forgets the records before `below`, at a majority.
    ///
    /// # Errors
    /// As for [`Ledger::write`].
    ///
    /// # Cancel safety
    /// Dropping it leaves some nodes pruned, which is harmless.
    pub async fn prune(&self, term: FencingToken, below: u64) -> Result<(), LedgerError> {
        let ledger = || Arc::clone(&self.group);
        let votes = self.quorum.fleet().ask_all(|_| Request::Prune { ledger: ledger(), term, below });
        self.settle(votes, |_| true).await
    }

    /// Waits for every node, since the more answer the fewer records are unknown.
    async fn gather(&self, mut votes: Ballots) -> Result<Vec<Answered>, LedgerError> {
        let fleet = self.quorum.fleet();
        let mut outcomes = vec![NodeOutcome::Pending; fleet.len()];
        let mut answered = Vec::new();
        let mut superseded = None;
        while let Some(vote) = votes.recv().await {
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            match vote.answer {
                // A node that may have forgotten since its answer has not answered.
                Answer::Reply(Reply::Ledger(state)) if vote.memory.epoch == fleet.epoch(vote.node) => {
                    answered.push(Answered { memory: self.memory(vote.memory.since), state });
                }
                Answer::Reply(Reply::Refused(Refusal::Sealed { by })) => {
                    superseded = superseded.max(Some(by));
                }
                _ => {}
            }
        }
        match superseded {
            Some(by) => Err(LedgerError::Superseded { by }),
            None if answered.len() < fleet.majority() => Err(LedgerError::NoMajority(fleet.report(outcomes))),
            None => Ok(answered),
        }
    }

    /// Waits until a majority has written, or can no longer.
    async fn settle(&self, mut votes: Ballots, counts: impl Fn(Memory) -> bool) -> Result<(), LedgerError> {
        let fleet = self.quorum.fleet();
        let mut outcomes = vec![NodeOutcome::Pending; fleet.len()];
        let (mut written, mut against, mut forgotten) = (0, 0, 0);
        let (mut superseded, mut standing) = (None, None);
        while written < fleet.majority() && fleet.len() - against >= fleet.majority() {
            let Some(vote) = votes.recv().await else { break };
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            match vote.answer {
                Answer::Reply(Reply::Written) if counts(self.memory(vote.memory.since)) => written += 1,
                Answer::Reply(Reply::Written | Reply::Refused(Refusal::Pruned)) => {
                    forgotten += 1;
                    against += 1;
                }
                Answer::Reply(Reply::Refused(Refusal::Sealed { by })) => {
                    superseded = superseded.max(Some(by));
                    against += 1;
                }
                Answer::Reply(Reply::Standing(record)) => {
                    standing = Some(record);
                    against += 1;
                }
                _ => against += 1,
            }
        }
        match (superseded, standing) {
            _ if written >= fleet.majority() => Ok(()),
            (Some(by), _) => Err(LedgerError::Superseded { by }),
            (None, Some(record)) => Err(LedgerError::Standing(record)),
            (None, None) if fleet.len() - forgotten < fleet.majority() => {
                Err(LedgerError::Forgotten(fleet.report(outcomes)))
            }
            (None, None) => Err(LedgerError::NoMajority(fleet.report(outcomes))),
        }
    }

    fn memory(&self, since: NodeTime) -> Memory {
        let forgets_nothing = self.quorum.setup().sabotaged(Sabotage::NoMemoryRule);
        let since = if forgets_nothing { NodeTime::default() } else { since };
        Memory { since, max_clock_offset: self.quorum.setup().max_clock_offset }
    }
}
