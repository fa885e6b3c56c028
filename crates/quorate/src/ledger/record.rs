use super::{LedgerError, Memory, WriteTally, WriteVerdict, gather::gather, pages::Pages};
use crate::{
    config::SettingError,
    env::WallTime,
    node::{Cursor, FencingToken, LedgerState, NodeTime, Record, Reply, Request},
    quorum::Quorum,
    sabotage::Sabotage,
    trust::NodeEpoch,
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, VoteReceiver, vote_channel},
};
use std::{fmt, sync::Arc, time::Duration};

/// A time that every memory of a node covers, for records that no earlier record can contradict.
pub(crate) const FOR_ANY_MEMORY: u64 = u64::MAX;

/// The ledger of one group, or a part of it.
#[derive(Clone, Debug)]
pub struct Ledger {
    quorum: Quorum,
    group: Arc<str>,
    observer: Option<Arc<dyn WriteObserver>>,
}

/// Observes the writes and seals of a [`Ledger`] and of its parts.
pub(crate) trait WriteObserver: fmt::Debug + Send + Sync {
    /// Notes that a majority has carried a write out.
    fn written(&self);

    /// Notes that so many nodes were not able to carry a write out that no majority was left.
    fn not_written(&self, report: &NoMajority);
}

/// The ledger as one node stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The memory of the node.
    pub memory: Memory,
    /// The records that the node stores.
    pub state: LedgerState,
}

impl Ledger {
    /// Returns the ledger of `group`.
    ///
    /// # Errors
    /// [`SettingError`] if the name cannot be used.
    pub fn new(quorum: &Quorum, group: &str) -> Result<Self, SettingError> {
        crate::node::check_name("group", group)?;
        Ok(Self { quorum: quorum.clone(), group: group.into(), observer: None })
    }

    /// Returns the ledger of the operators, which belongs to no group. Its name is that of a part of a group without a
    /// name, which no group can have.
    pub(super) fn operators(quorum: &Quorum) -> Self {
        Self { quorum: quorum.clone(), group: "".into(), observer: None }.part("operations")
    }

    /// Returns the quorum that stores the ledger.
    pub(crate) fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// Returns the quorum's clock.
    pub(crate) fn wall(&self) -> WallTime {
        self.quorum.wall()
    }

    /// Returns the part `name` of the group's ledger, such as `inbox`. A part is stored as a ledger of its own,
    /// and a seal of the group's ledger does not cover the part. The full name of a part contains braces, which
    /// no group's name may contain.
    pub(crate) fn part(&self, name: &str) -> Self {
        Self { group: format!("{}{{{name}}}", self.group).into(), ..self.clone() }
    }

    /// Returns this ledger, with an observer of its writes and seals, and of those of its parts.
    pub(crate) fn observed_by(self, observer: Arc<dyn WriteObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    fn observe<T>(&self, result: Result<T, LedgerError>) -> Result<T, LedgerError> {
        if let Some(observer) = &self.observer {
            match &result {
                Ok(_) => observer.written(),
                Err(LedgerError::NoMajority(report)) if report.is_inability() => observer.not_written(report),
                Err(_) => {}
            }
        }
        result
    }

    /// Seals the ledger with `term`: from now on a majority refuses writes of older terms. Returns the records
    /// of every node that answered.
    ///
    /// # Errors
    /// [`LedgerError::Superseded`] if a later term has sealed it; [`LedgerError::NoMajority`] if too few nodes
    /// answered.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may be sealed. This affects only older terms.
    pub async fn seal(&self, term: FencingToken) -> Result<Vec<Answered>, LedgerError> {
        let sealed = self.seal_pages(term).await?;
        Ok(sealed.into_iter().map(|pages| self.answered(pages.into_state())).collect())
    }

    /// Seals the ledger in the same way as [`Ledger::seal`], but returns the records of each node in the order in which
    /// they came. A record may occur twice; the later copy counts.
    pub(crate) async fn seal_unsorted(&self, term: FencingToken) -> Result<Vec<Answered>, LedgerError> {
        let sealed = self.seal_pages(term).await?;
        Ok(sealed.into_iter().map(|pages| self.answered(pages.into_unsorted())).collect())
    }

    async fn seal_pages(&self, term: FencingToken) -> Result<Vec<Pages>, LedgerError> {
        let reads_only = self.quorum.config().sabotaged(Sabotage::PlainRead);
        let request = |ledger, after| match reads_only {
            true => Request::Read { ledger, after, key: None },
            false => Request::Seal { ledger, term, after },
        };
        let read = self.observe(self.pages(request).await)?;
        let name = |(node, _): &(usize, Pages)| self.quorum.pool().name(*node);
        tracing::debug!(
            group = &*self.group,
            term = term.get(),
            nodes = ?read.iter().map(name).collect::<Vec<_>>(),
            "sealed the ledger"
        );
        Ok(read.into_iter().map(|(_, pages)| pages).collect())
    }

    /// Reads the records of every node that answers, without a seal. A leader may write at the same time, and a
    /// long ledger is read in pages. So the records of one node may be from different moments. A record that
    /// exists during the whole read is included.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if too few nodes answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn read(&self) -> Result<Vec<Answered>, LedgerError> {
        let read = self.pages(|ledger, after| Request::Read { ledger, after, key: None }).await?;
        Ok(read.into_iter().map(|(_, pages)| self.answered(pages.into_state())).collect())
    }

    /// Reads the records under `keys`: for each key the memory and the record of every node that answered. Waits until
    /// every node has answered for every key, or has timed out.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if fewer than a majority answered for some key.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub(crate) async fn read_keys(
        &self,
        keys: &[Arc<str>],
    ) -> Result<Vec<Vec<(Memory, Option<Record>)>>, LedgerError> {
        let pool = self.quorum.pool();
        let (sender, mut votes) = vote_channel();
        for node in 0..pool.len() {
            for (ticket, key) in (0..).zip(keys) {
                let (ledger, key) = (Arc::clone(&self.group), Some(Arc::clone(key)));
                let request = Request::Read { ledger, after: None, key };
                pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket });
            }
        }
        drop(sender);
        let mut found: Vec<Vec<(Memory, Option<Record>)>> = keys.iter().map(|_| Vec::new()).collect();
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        while let Some(vote) = votes.recv().await {
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            // The node may have lost its memory since it was asked, so its answer does not count.
            if vote.memory.epoch != pool.epoch(vote.node) {
                continue;
            }
            if let Answer::Reply(Reply::Ledger(page)) = vote.answer
                && let (Some(of_key), Some(key)) =
                    (found.get_mut(vote.ticket as usize), keys.get(vote.ticket as usize))
            {
                let record = page.state.records.into_iter().find(|(found, _)| found == key);
                of_key.push((self.memory(vote.memory.since), record.map(|(_, record)| record)));
            }
        }
        if found.iter().any(|of_key| of_key.len() < pool.majority()) {
            return Err(LedgerError::NoMajority(pool.report(outcomes)));
        }
        Ok(found)
    }

    /// Writes `record` under `key`. A node accepts the write only if it stores the record `seen` there, or, if
    /// `seen` is `None`, no record. The call succeeds once a majority of nodes has stored the record. A node
    /// counts only if its memory covers the record's time.
    ///
    /// # Errors
    /// One of the following. After an error a minority may store the record.
    ///
    /// * [`LedgerError::Superseded`] if a later term has sealed the ledger.
    /// * [`LedgerError::Standing`] if a node stores another record, and no majority has stored `record`.
    /// * [`LedgerError::Forgotten`] if no majority is left because so many nodes have pruned the record's time,
    ///   or lost their memory of it.
    /// * [`LedgerError::NoMajority`] if too few nodes answered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the record may have been written on all nodes, on some, or on none.
    pub async fn write(
        &self,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<(), LedgerError> {
        self.write_remembered(key, seen, record, record.at).await
    }

    /// Writes a record like [`Ledger::write`], with another memory rule: a node counts if its memory covers
    /// the time `remembered`, in microseconds since the epoch. The time of the record does not matter for
    /// this rule.
    pub(crate) async fn write_remembered(
        &self,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
        remembered: u64,
    ) -> Result<(), LedgerError> {
        let pool = self.quorum.pool();
        let votes = pool.ask_all(Request::Write {
            ledger: Arc::clone(&self.group),
            term: record.term,
            key: Arc::clone(key),
            seen: seen.cloned(),
            record: record.clone(),
        });
        votes.wake_after(pool.majority());
        self.observe(self.settle(votes, WriteTally::new(pool.len(), remembered)).await)
    }

    /// Removes the records before the time `below`, in microseconds since the epoch, as the leader of `term`.
    /// The records are removed at a majority, and on every other node that answers.
    ///
    /// # Errors
    /// [`LedgerError::Superseded`] if a later term has sealed the ledger; [`LedgerError::NoMajority`] if too
    /// few nodes answered. After an error some records may be removed.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may be pruned completely or partly, which is harmless.
    pub async fn prune(&self, term: FencingToken, below: u64) -> Result<(), LedgerError> {
        self.pages(|ledger, after| Request::Prune { ledger, term, below, after }).await.map(drop)
    }

    async fn pages(
        &self,
        request: impl Fn(Arc<str>, Option<Cursor>) -> Request,
    ) -> Result<Vec<(usize, Pages)>, LedgerError> {
        gather(self.quorum.pool(), |after| request(Arc::clone(&self.group), after)).await
    }

    fn answered(&self, (memory, state): (NodeEpoch, LedgerState)) -> Answered {
        Answered { memory: self.memory(memory.since), state }
    }

    /// Sets how long the ledger is kept after its last seal, write or prune, or after the last call of this
    /// method. The time starts again now. The setting is made at a majority, and on every other node that
    /// answers. A node without this setting uses 30 days. A node that does not have the ledger does not
    /// create it.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if too few nodes answered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lifetime may have been set on all nodes, on some, or on none.
    pub async fn keep(&self, life: Duration) -> Result<(), LedgerError> {
        let pool = self.quorum.pool();
        let mut votes = pool.ask_all(Request::Keep { ledger: Arc::clone(&self.group), life });
        votes.wake_after(pool.len());
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

    /// Waits until the write is decided: a majority has stored the record, or no majority can store it any
    /// more. Returns the result.
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
            WriteVerdict::Conflict(record) => Err(LedgerError::Standing(record)),
            WriteVerdict::Forgotten => Err(LedgerError::Forgotten(pool.report(outcomes))),
            WriteVerdict::NoMajority => Err(LedgerError::NoMajority(pool.report(outcomes))),
        }
    }

    fn memory(&self, since: NodeTime) -> Memory {
        let ignores_memory = self.quorum.config().sabotaged(Sabotage::NoMemoryRule);
        let since = if ignores_memory { NodeTime::default() } else { since };
        Memory { since, max_clock_offset: self.quorum.config().max_clock_offset }
    }
}
