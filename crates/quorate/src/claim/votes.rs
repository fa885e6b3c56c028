use crate::{
    config::QuorumConfig,
    node::{AttemptCount, DoneRecord, Reply},
    sabotage::Sabotage,
    vote::{RoundData, Tally},
};

/// The tally of the votes in a round that acquires a claim.
pub type ClaimTally = Tally<ClaimData>;

/// The data that a round collects when it acquires a claim: the attempts that the nodes have counted, and their
/// done records.
#[derive(Clone, Debug, Default)]
pub struct ClaimData {
    done: Option<DoneRecord>,
    begun: Vec<(usize, AttemptCount)>,
    done_ignored: bool,
}

impl ClaimData {
    pub(crate) fn new(config: &QuorumConfig) -> Self {
        Self { done_ignored: config.sabotaged(Sabotage::DoneOverruled), ..Self::default() }
    }

    fn is_latest(&self, done: &DoneRecord) -> bool {
        self.done.as_ref().is_none_or(|known| known.token < done.token)
    }
}

impl RoundData for ClaimData {
    fn collect(&mut self, node: usize, reply: &Reply) {
        match reply {
            Reply::Granted { begun, .. } => {
                self.begun.retain(|(other, _)| *other != node);
                self.begun.extend(begun.clone().map(|begun| (node, begun)));
            }
            Reply::Done(done) if !self.done_ignored && self.is_latest(done) => self.done = Some(done.clone()),
            _ => {}
        }
    }

    /// Returns whether a node reported a done record. A single one is enough to end the round, because it
    /// proves that the message was completed or given up.
    fn ends_round(&self) -> bool {
        self.done.is_some()
    }
}

impl Tally<ClaimData> {
    /// Creates the tally of a round that acquires a claim on `nodes` nodes.
    pub fn of_claim(nodes: usize) -> Self {
        Self::with_data(nodes, ClaimData::default())
    }

    /// Returns the done record that the nodes reported, if any. If there are several, returns the one with
    /// the highest token.
    pub fn done(&self) -> Option<&DoneRecord> {
        self.data().done.as_ref()
    }

    /// Iterates over the counts of the granting nodes that have counted attempts.
    pub fn begun(&self) -> impl Iterator<Item = &AttemptCount> {
        let granted = |node: usize| self.granted().any(|(other, _)| other == node);
        self.data().begun.iter().filter(move |(node, _)| granted(*node)).map(|(_, begun)| begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        env::BootTime,
        node::FencingToken,
        trust::NodeEpoch,
        vote::{Answer, Verdict, Vote},
    };

    fn vote(node: usize, reply: Reply) -> Vote {
        let (sent, memory) = (Some(BootTime::from_nanos(1)), NodeEpoch::default());
        Vote { node, ticket: 0, requests: 1, sent, memory, answer: Answer::Reply(reply) }
    }

    fn grant(node: usize, begun: Option<u32>) -> Vote {
        let begun = begun.map(|attempts| AttemptCount { attempts, payload: None });
        vote(node, Reply::Granted { counter: FencingToken::new(7), begun })
    }

    fn done(node: usize, token: u64) -> Vote {
        let token = FencingToken::new(token);
        vote(node, Reply::Done(DoneRecord { token, result: "r".into(), ..DoneRecord::default() }))
    }

    #[test]
    fn one_done_record_ends_the_round_and_the_highest_token_counts() {
        let mut lost = ClaimTally::of_claim(5);
        [grant(0, None), done(1, 3), done(2, 5), grant(3, None), grant(4, None)]
            .iter()
            .for_each(|vote| lost.count(vote));
        assert_eq!(lost.verdict(), Verdict::Lost);
        assert_eq!(lost.done().map(|done| done.token.get()), Some(5));
    }

    #[test]
    fn attempts_count_only_by_the_grants_that_are_left() {
        let mut tally = ClaimTally::of_claim(3);
        [grant(0, Some(2)), grant(1, None), grant(2, Some(4)), grant(0, Some(3))]
            .iter()
            .for_each(|vote| tally.count(vote));
        tally.forget_unless(|node, _| node != 2);
        assert_eq!(tally.begun().map(|begun| begun.attempts).collect::<Vec<_>>(), [3]);
    }
}
