use super::{
    LedgerError,
    gather::gather,
    pages::Pages,
    tally::{WriteTally, WriteVerdict},
};
use crate::{
    config::SettingError,
    env::WallTime,
    node::{Cursor, Incarnation, LedgerState, Record, Reply, Request},
    quorum::Quorum,
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, VoteReceiver, vote_channel},
};
use std::{fmt, sync::Arc, time::Duration};

/// The largest number of records that one write overwrites, one after another. Other workers may write the same
/// key while this write is repeated.
const OVERWRITES_MAX: usize = 8;

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

    /// Notes whether each node's copy is complete, and how many records the leader still has to write to it.
    fn copies(&self, copies: &[(bool, usize)]);
}

/// The ledger as one node stores it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Answered {
    /// The index of the node in the node list.
    pub node: usize,
    /// The node's present memory.
    pub memory: Incarnation,
    /// The records that the node stores.
    pub state: LedgerState,
}

impl Answered {
    pub(crate) fn record(&self, key: &str) -> Option<&Record> {
        self.state.records.iter().find(|(found, _)| **found == *key).map(|(_, record)| record)
    }
}

impl Ledger {
    /// Returns the ledger of `group`.
    ///
    /// # Errors
    /// [`SettingError`] if the name cannot be used.
    pub fn new(quorum: &Quorum, group: &str) -> Result<Self, SettingError> {
        Self::named(quorum, "group", group)
    }

    /// Returns the ledger called `name`. `what` is the kind of the name, for the error.
    ///
    /// # Errors
    /// [`SettingError`] if the name cannot be used.
    pub(crate) fn named(quorum: &Quorum, what: &'static str, name: &str) -> Result<Self, SettingError> {
        crate::node::check_name(what, name)?;
        Ok(Self { quorum: quorum.clone(), group: name.into(), observer: None })
    }

    /// Returns a ledger that belongs to no group. Its name is that of a part of a group without a name, which no group can
    /// have.
    pub(crate) fn unnamed(quorum: &Quorum, part: &str) -> Self {
        Self { quorum: quorum.clone(), group: "".into(), observer: None }.part(part)
    }

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

    /// Returns the full name of the ledger.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.group
    }

    /// Informs the observer that a write is done.
    pub(super) fn note_written(&self) {
        if let Some(observer) = &self.observer {
            observer.written();
        }
    }

    /// Informs the observer of the outcomes of the nodes, if so many of them are unable that no majority is left.
    pub(super) fn note_not_written(&self, report: &NoMajority) {
        if let Some(observer) = self.observer.as_ref().filter(|_| report.is_inability()) {
            observer.not_written(report);
        }
    }

    /// Informs the observer of the copies, in the order of the nodes.
    pub(super) fn note_copies(&self, copies: &[(bool, usize)]) {
        if let Some(observer) = &self.observer {
            observer.copies(copies);
        }
    }

    fn observe<T>(&self, result: Result<T, LedgerError>) -> Result<T, LedgerError> {
        match &result {
            Ok(_) => self.note_written(),
            Err(LedgerError::NoMajority(report)) => self.note_not_written(report),
            Err(_) => {}
        }
        result
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
        let answered = |(node, pages): (usize, Pages)| {
            let (memory, state) = pages.into_state();
            Answered { node, memory: memory.incarnation, state }
        };
        Ok(read.into_iter().map(answered).collect())
    }

    /// Reads the records under `keys`, from every node that answers for each of them. Waits until every node has answered, or
    /// has timed out.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if fewer than a majority answered.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub(crate) async fn read_keys(&self, keys: &[Arc<str>]) -> Result<Vec<Answered>, LedgerError> {
        let pool = self.quorum.pool();
        let (sender, mut votes) = vote_channel();
        for node in 0..pool.len() {
            for key in keys {
                let (ledger, key) = (Arc::clone(&self.group), Some(Arc::clone(key)));
                let request = Request::Read { ledger, after: None, key };
                pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket: 0 });
            }
        }
        drop(sender);
        let mut found: Vec<(usize, Answered)> =
            (0..pool.len()).map(|node| (0, Answered { node, ..Answered::default() })).collect();
        let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
        while let Some(vote) = votes.recv().await {
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            // The node may have lost its memory since it was asked, so its answer does not count.
            if vote.memory.epoch != pool.epoch(vote.node) {
                continue;
            }
            if let Answer::Reply(Reply::Ledger(page)) = vote.answer {
                let (answers, of_node) = &mut found[vote.node];
                *answers += 1;
                of_node.memory = vote.memory.incarnation;
                of_node.state.records.extend(page.state.records);
            }
        }
        let answered = found.into_iter().filter(|(answers, _)| *answers == keys.len());
        let answered: Vec<Answered> = answered.map(|(_, of_node)| of_node).collect();
        if answered.len() < pool.majority() {
            return Err(LedgerError::NoMajority(pool.report(outcomes)));
        }
        Ok(answered)
    }

    /// Writes `record` under `key`. A node accepts the write only if it stores the record `seen` there, or, if
    /// `seen` is `None`, no record. The call succeeds once a majority of nodes has stored the record.
    ///
    /// # Errors
    /// [`LedgerError::Standing`] if nodes store another record; [`LedgerError::NoMajority`] if too few nodes
    /// answered. After an error, some nodes may store the record.
    ///
    /// # Cancel safety
    /// If the future is dropped, the record may be stored on all nodes, on some, or on none.
    pub async fn write(
        &self,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<(), LedgerError> {
        let pool = self.quorum.pool();
        let votes = pool.ask_all(Request::Write {
            ledger: Arc::clone(&self.group),
            key: Arc::clone(key),
            seen: seen.cloned(),
            record: record.clone(),
        });
        votes.wake_after(pool.majority());
        self.observe(self.settle(votes, WriteTally::new(pool.len())).await)
    }

    /// Writes `record`. If the write finds older records of other workers, it overwrites them. A later record stays.
    ///
    /// # Errors
    /// As for [`Ledger::write`].
    ///
    /// # Cancel safety
    /// As for [`Ledger::write`].
    pub(crate) async fn write_over(
        &self,
        key: &Arc<str>,
        seen: Option<&Record>,
        record: &Record,
    ) -> Result<(), LedgerError> {
        let mut seen = seen.cloned();
        for _ in 0..OVERWRITES_MAX {
            match self.write(key, seen.as_ref(), record).await {
                Err(LedgerError::Standing(other)) if !other.last && seen.as_ref() != Some(&other) => {
                    if other.at >= record.at {
                        return Ok(());
                    }
                    seen = Some(other);
                }
                // Another worker wrote a newer record at the same time. That record serves the same purpose.
                Err(LedgerError::Standing(_)) => return Ok(()),
                other => return other,
            }
        }
        Ok(())
    }

    /// Removes the records before the time `below`, in microseconds since the epoch. The records are removed at a
    /// majority, and on every other node that answers.
    ///
    /// # Errors
    /// [`LedgerError::NoMajority`] if too few nodes answered. After an error some records may be removed.
    ///
    /// # Cancel safety
    /// If the future is dropped, some nodes may be pruned completely or partly, which is harmless.
    pub async fn prune(&self, below: u64) -> Result<(), LedgerError> {
        self.pages(|ledger, after| Request::Prune { ledger, below, after }).await.map(drop)
    }

    async fn pages(
        &self,
        request: impl Fn(Arc<str>, Option<Cursor>) -> Request,
    ) -> Result<Vec<(usize, Pages)>, LedgerError> {
        gather(self.quorum.pool(), |after| request(Arc::clone(&self.group), after)).await
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
        while !tally.is_settled() {
            let Some(vote) = votes.recv().await else { break };
            outcomes[vote.node] = NodeOutcome::of(&vote.answer);
            tally.count(&vote.answer);
        }
        match tally.verdict() {
            WriteVerdict::Written => Ok(()),
            WriteVerdict::Conflict(record) => Err(LedgerError::Standing(record)),
            WriteVerdict::NoMajority => Err(LedgerError::NoMajority(pool.report(outcomes))),
        }
    }
}
