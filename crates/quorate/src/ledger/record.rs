use super::{LedgerError, Memory, WriteTally, WriteVerdict, gather::gather, pages::Pages};
use crate::{
    env::WallTime,
    node::{Cursor, FencingToken, LedgerState, NameError, NodeTime, Record, Request},
    quorum::Quorum,
    sabotage::Sabotage,
    vote::{NodeOutcome, VoteReceiver},
};
use std::{sync::Arc, time::Duration};

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

    /// The quorum that keeps it.
    pub(crate) fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// What time it is by the nodes that keep it.
    pub(crate) fn wall(&self) -> WallTime {
        self.quorum.wall()
    }

    /// A ledger of its own beside this one, which is not sealed with it: what is called `name` of this group. (No
    /// group's name holds a brace.)
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
        if self.quorum.config().sabotaged(Sabotage::PlainRead) {
            return self.read().await;
        }
        let told = self.pages(|ledger, after| Request::Seal { ledger, term, after }).await?;
        let name = |(node, _): &(usize, Pages)| self.quorum.pool().name(*node);
        tracing::debug!(
            group = &*self.group,
            term = term.get(),
            nodes = ?told.iter().map(name).collect::<Vec<_>>(),
            "sealed the ledger"
        );
        Ok(told.into_iter().map(|(_, pages)| self.answered(pages)).collect())
    }

    /// What stands in the ledger, from every node that answered. Seals nothing: a leader may be writing, and a long
    /// ledger is told in pages, so that what a node says may be of several moments. What stood all the while is there.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`].
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn read(&self) -> Result<Vec<Answered>, LedgerError> {
        let told = self.pages(|ledger, after| Request::Read { ledger, after }).await?;
        Ok(told.into_iter().map(|(_, pages)| self.answered(pages)).collect())
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
        let pool = self.quorum.pool();
        let votes = pool.ask_all(|_| Request::Write {
            ledger: Arc::clone(&self.group),
            term: record.term,
            key: Arc::clone(key),
            seen: seen.cloned(),
            record: record.clone(),
        });
        self.settle(votes, WriteTally::new(pool.len(), record.at)).await
    }

    /// Forgets the records before `below`, at a majority and wherever else it can.
    ///
    /// # Errors
    /// [`LedgerError::Superseded`] where a later term has sealed the ledger; [`LedgerError::NoMajority`]. After an error
    /// some may be forgotten.
    ///
    /// # Cancel safety
    /// Dropping it leaves some nodes pruned, or half pruned, which is harmless.
    pub async fn prune(&self, term: FencingToken, below: u64) -> Result<(), LedgerError> {
        self.pages(|ledger, after| Request::Prune { ledger, term, below, after }).await.map(drop)
    }

    async fn pages(
        &self,
        request: impl Fn(Arc<str>, Option<Cursor>) -> Request,
    ) -> Result<Vec<(usize, Pages)>, LedgerError> {
        gather(self.quorum.pool(), |after| request(Arc::clone(&self.group), after)).await
    }

    fn answered(&self, pages: Pages) -> Answered {
        let (memory, state) = pages.told();
        Answered { memory: self.memory(memory.since), state }
    }

    /// Sets how long the ledger outlives its last seal, write, prune or keep, at a majority and wherever else it can; it
    /// lives for as long from now. A ledger that was never told lives for 30 days. A node that has none creates none.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`].
    ///
    /// # Cancel safety
    /// Dropping it leaves the life set on some nodes or on none.
    pub async fn keep(&self, life: Duration) -> Result<(), LedgerError> {
        let pool = self.quorum.pool();
        let mut votes = pool.ask_all(|_| Request::Keep { ledger: Arc::clone(&self.group), life });
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        while let Some(vote) = votes.recv().await {
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
        }
        let kept = outcomes.iter().filter(|outcome| matches!(outcome, NodeOutcome::Granted)).count();
        if kept < pool.majority() {
            return Err(LedgerError::NoMajority(pool.report(outcomes)));
        }
        Ok(())
    }

    /// Waits until a majority has written, or can no longer.
    async fn settle(&self, mut votes: VoteReceiver, mut tally: WriteTally) -> Result<(), LedgerError> {
        let pool = self.quorum.pool();
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        while tally.settled().is_none() {
            let Some(vote) = votes.recv().await else { break };
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            tally.count(self.memory(vote.memory.since), &vote.answer);
        }
        match tally.verdict() {
            WriteVerdict::Written => Ok(()),
            WriteVerdict::Superseded(by) => Err(LedgerError::Superseded { by }),
            WriteVerdict::Standing(record) => Err(LedgerError::Standing(record)),
            WriteVerdict::Forgotten => Err(LedgerError::Forgotten(pool.report(outcomes))),
            WriteVerdict::NoMajority => Err(LedgerError::NoMajority(pool.report(outcomes))),
        }
    }

    fn memory(&self, since: NodeTime) -> Memory {
        let forgets_nothing = self.quorum.config().sabotaged(Sabotage::NoMemoryRule);
        let since = if forgets_nothing { NodeTime::default() } else { since };
        Memory { since, max_clock_offset: self.quorum.config().max_clock_offset }
    }
}
