use super::{
    LedgerError, Memory,
    pages::{Pages, Turn},
};
use crate::{
    lease::Quorum,
    node::{Cause, Cursor, FencingToken, LedgerState, NameError, NodeTime, Record, Refusal, Reply, Request},
    round::{Answer, Ballots, NodeOutcome, ReplyTo, Sabotage, ballots},
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
        let told = self.pages(|ledger, after| Request::Seal { ledger, term, after }).await?;
        Ok(told.into_iter().map(|pages| self.answered(pages)).collect())
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
        Ok(told.into_iter().map(|pages| self.answered(pages)).collect())
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

    /// Asks every node page by page, all at once, each page within the node timeout, and gives what those have told that
    /// came to the end. Waits for every node, since the more answer the fewer records are unknown; but once a majority
    /// has told all, the others have only as long again, and the node timeout.
    async fn pages(
        &self,
        request: impl Fn(Arc<str>, Option<Cursor>) -> Request,
    ) -> Result<Vec<Pages>, LedgerError> {
        let fleet = self.quorum.fleet();
        let (ballots, mut votes) = ballots();
        let ask = |node: usize, after| {
            fleet.ask(
                node,
                request(Arc::clone(&self.group), after),
                ReplyTo { ballots: ballots.clone(), ticket: 0 },
            );
        };
        let mut told: Vec<_> = (0..fleet.len()).map(|_| Pages::default()).collect();
        let mut outcomes = vec![NodeOutcome::Pending; fleet.len()];
        (0..fleet.len()).for_each(|node| ask(node, None));
        let (began, mut until) = (fleet.env().now(), None);
        let (mut reading, mut whole, mut superseded) = (fleet.len(), 0, None);
        while reading > 0 {
            let vote = match until {
                None => votes.recv().await,
                Some(until) => fleet.env().before(until, votes.recv()).await.flatten(),
            };
            let Some(vote) = vote else { break };
            let node = vote.node;
            let outcome = match told[node].take(vote.memory, fleet.epoch(node), vote.answer) {
                Turn::Ask(next) => {
                    ask(node, Some(next));
                    continue;
                }
                Turn::Whole => {
                    whole += 1;
                    NodeOutcome::Granted
                }
                Turn::Superseded(by) => {
                    superseded = superseded.max(Some(by));
                    NodeOutcome::Refused(Refusal::Sealed { by })
                }
                Turn::Failed(outcome) => outcome,
            };
            outcomes[node] = outcome;
            reading -= 1;
            if whole == fleet.majority() && until.is_none() {
                let now = fleet.env().now();
                until = Some(now + began.until(now) + self.quorum.setup().node_timeout);
            }
        }
        if let Some(by) = superseded {
            return Err(LedgerError::Superseded { by });
        }
        // A node that has forgotten since it told all has told nothing.
        let all =
            told.into_iter().zip(&mut outcomes).enumerate().filter(|(_, (_, outcome))| is_granted(outcome));
        let mut remembered = Vec::new();
        for (node, (pages, outcome)) in all {
            if pages.is_of(fleet.epoch(node)) {
                remembered.push(pages);
            } else {
                *outcome = NodeOutcome::Unreachable(Cause::Closed);
            }
        }
        if remembered.len() < fleet.majority() {
            return Err(LedgerError::NoMajority(fleet.report(outcomes)));
        }
        Ok(remembered)
    }

    fn answered(&self, pages: Pages) -> Answered {
        let (memory, state) = pages.told();
        Answered { memory: self.memory(memory.since), state }
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

fn is_granted(outcome: &NodeOutcome) -> bool {
    matches!(outcome, NodeOutcome::Granted)
}
