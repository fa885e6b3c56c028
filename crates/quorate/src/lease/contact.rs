use crate::{
    env::BootTime,
    lease::{inner::QuorumInner, mode::Mode},
    node::{Resource, ResourceKind},
    vote::{RoundData, Tally},
};

/// The number of repetitions after split votes that ask one node first.
const REPETITIONS_BY_ONE: u32 = 2;

/// The nodes that a round asks at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskOrder {
    /// A majority. The others are asked only if they are needed.
    MajorityFirst,
    /// One node, the same for all workers, and the others of a majority once it has granted. This is for an
    /// attempt that competes with others: all of them meet at one node, so they do not split the votes.
    OneThenMajority(IfHeld),
    /// All nodes.
    All,
}

/// The continuation of an attempt whose first node names a holder. One node proves nothing: the holder may be
/// an attempt that is about to fail, or one that its worker has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfHeld {
    /// The attempt ends. Its caller waits, and makes an attempt of another kind later.
    End,
    /// The attempt asks the others after a pause, in which the holder can acquire the resource at a majority.
    AskLater,
}

/// The order in which one attempt asks the nodes. This type decides, and sends nothing.
#[derive(Debug)]
pub(super) struct AskPlan {
    stage: Stage,
    if_held: IfHeld,
    /// The nodes that are asked after the first one. Empty in a plan that does not begin with one node.
    middle: Vec<usize>,
    /// The time at which the attempt goes on without the nodes that have not answered, or at which its pause ends.
    pub(super) next_at: BootTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Only the first node has been asked.
    First,
    /// The first node has named a holder. The others are asked later.
    Paused,
    /// The others of the majority have been asked. They are expected to name the same holder.
    Checking,
    /// A majority has been asked, and is expected to grant.
    Majority,
}

/// The decision of an [`AskPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for more answers.
    Wait,
    /// Ask these nodes.
    Ask(Vec<usize>),
    /// Ask all nodes that have not been asked.
    AskRest,
    /// Ask no node before the end of a pause.
    Pause,
    /// The attempt is lost.
    End,
}

impl AskOrder {
    /// Returns the plan for an attempt at `resource`, and the nodes that it does not ask at first.
    pub(super) fn plan(self, inner: &QuorumInner, resource: &Resource, mode: Mode) -> (AskPlan, Vec<usize>) {
        let mut spared = self.spared(inner, resource, mode);
        let mut plan = AskPlan {
            stage: Stage::Majority,
            if_held: IfHeld::AskLater,
            middle: Vec::new(),
            next_at: BootTime::default(),
        };
        if spared.is_empty() {
            return (plan, spared);
        }
        if let Self::OneThenMajority(if_held) = self {
            let order = inner.pool().order(resource);
            (plan.stage, plan.if_held) = (Stage::First, if_held);
            plan.middle = order[1..inner.pool().majority()].to_vec();
            spared = order[1..].to_vec();
        }
        (plan, spared)
    }

    /// Returns whether an attempt at `resource` need not ask all nodes at first.
    pub(super) fn spares(self, inner: &QuorumInner, resource: &Resource, mode: Mode) -> bool {
        !self.spared(inner, resource, mode).is_empty()
    }

    /// Returns the nodes that do not belong to the majority that is asked first.
    fn spared(self, inner: &QuorumInner, resource: &Resource, mode: Mode) -> Vec<usize> {
        // Readers ask all nodes. When the last of several readers releases the lock, a majority of the nodes must
        // report the release to the waiters. If the readers had different majorities, too few nodes might report it.
        let is_possible = self != Self::All
            && !inner.config().ask_all_nodes
            && mode == Mode::Exclusive
            && matches!(resource.kind(), ResourceKind::Lock | ResourceKind::Claim);
        if is_possible { inner.pool().spared(resource) } else { Vec::new() }
    }

    /// Returns the contact of an attempt that is repeated because the votes were split.
    pub(super) fn of_repetition(self, times: u32) -> Self {
        // The last repetitions do not depend on one node.
        match self {
            Self::MajorityFirst if times <= REPETITIONS_BY_ONE => Self::OneThenMajority(IfHeld::AskLater),
            Self::OneThenMajority(_) if times > REPETITIONS_BY_ONE => Self::MajorityFirst,
            other => other,
        }
    }
}

impl AskPlan {
    /// Returns whether only one node has been asked. If it is late, that proves nothing about the node: this
    /// worker itself may have been stopped.
    pub(super) fn asked_one(&self) -> bool {
        self.stage == Stage::First
    }

    /// Decides after a vote that has left the round open.
    pub(super) fn after_vote<D: RoundData>(&mut self, tally: &Tally<D>) -> Next {
        match self.stage {
            Stage::First if tally.granted().next().is_some() => self.ask_middle(Stage::Majority),
            Stage::First if tally.awaited().next().is_some() => Next::Wait,
            Stage::First if tally.names_one_holder() => match self.if_held {
                IfHeld::End => Next::End,
                IfHeld::AskLater => {
                    self.stage = Stage::Paused;
                    Next::Pause
                }
            },
            Stage::Paused => Next::Wait,
            Stage::Checking if tally.names_one_holder() && tally.awaited().next().is_some() => Next::Wait,
            Stage::Majority if !tally.needs_spared() => Next::Wait,
            _ => self.ask_rest(),
        }
    }

    /// Decides at `next_at`.
    pub(super) fn on_time(&mut self) -> Next {
        if self.stage == Stage::Paused { self.ask_middle(Stage::Checking) } else { self.ask_rest() }
    }

    fn ask_middle(&mut self, stage: Stage) -> Next {
        self.stage = stage;
        Next::Ask(std::mem::take(&mut self.middle))
    }

    fn ask_rest(&mut self) -> Next {
        self.stage = Stage::Majority;
        Next::AskRest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::{Cause, FencingToken, Owner, Reply},
        trust::NodeEpoch,
        vote::{Answer, Verdict, Vote},
    };

    const ONE_OF_FIVE: [usize; 4] = [1, 2, 3, 4];

    fn vote(node: usize, answer: Answer) -> Vote {
        Vote {
            node,
            ticket: 0,
            requests: 1,
            sent: Some(BootTime::default()),
            memory: NodeEpoch::default(),
            answer,
        }
    }

    fn grant(node: usize) -> Vote {
        vote(node, Answer::Reply(Reply::Granted { counter: FencingToken::new(7), begun: None }))
    }

    fn held(node: usize, owner: &str) -> Vote {
        vote(node, Answer::Reply(Reply::Held { owner: Owner::from_node(owner), remaining: None }))
    }

    fn one_first(if_held: IfHeld) -> (AskPlan, Tally) {
        let mut tally = Tally::new(5);
        tally.spare(&ONE_OF_FIVE);
        let plan = AskPlan { stage: Stage::First, if_held, middle: vec![1, 2], next_at: BootTime::default() };
        (plan, tally)
    }

    /// Counts a vote, and carries out the decision in the tally.
    fn next(plan: &mut AskPlan, tally: &mut Tally, vote: &Vote) -> Next {
        tally.count(vote);
        let next = plan.after_vote(tally);
        if let Next::Ask(nodes) = &next {
            tally.ask(nodes);
        }
        next
    }

    #[test]
    fn the_first_node_s_grant_leads_to_a_majority_and_a_refusal_there_to_the_rest() {
        let (mut plan, mut tally) = one_first(IfHeld::End);
        assert_eq!(next(&mut plan, &mut tally, &grant(0)), Next::Ask(vec![1, 2]));
        assert!(!plan.asked_one());
        assert_eq!(next(&mut plan, &mut tally, &grant(1)), Next::Wait);
        assert_eq!(next(&mut plan, &mut tally, &held(2, "b")), Next::AskRest);
    }

    #[test]
    fn a_holder_at_the_first_node_ends_a_waiter_s_attempt_and_pauses_another() {
        let (mut plan, mut tally) = one_first(IfHeld::End);
        assert_eq!(next(&mut plan, &mut tally, &held(0, "a")), Next::End);
        let (mut plan, mut tally) = one_first(IfHeld::AskLater);
        assert_eq!(next(&mut plan, &mut tally, &held(0, "a")), Next::Pause);
        assert_eq!(plan.on_time(), Next::Ask(vec![1, 2]));
        tally.ask(&[1, 2]);
        assert_eq!(next(&mut plan, &mut tally, &held(1, "a")), Next::Wait);
        tally.count(&held(2, "a"));
        assert_eq!(tally.verdict(), Verdict::Lost);
        assert_eq!(tally.holder().map(Owner::as_str), Some("a"), "a majority names it");
    }

    /// Regression guard: one node proves nothing. So a holder that only the first node names must not keep others
    /// from the resource.
    #[test]
    fn a_holder_that_only_the_first_node_names_does_not_block_the_resource() {
        for second in [grant(1), held(1, "b"), vote(1, Answer::Failed(Cause::TimedOut))] {
            let (mut plan, mut tally) = one_first(IfHeld::AskLater);
            assert_eq!(next(&mut plan, &mut tally, &held(0, "a")), Next::Pause);
            assert_eq!(plan.on_time(), Next::Ask(vec![1, 2]));
            tally.ask(&[1, 2]);
            assert_eq!(next(&mut plan, &mut tally, &second), Next::AskRest);
        }
    }

    #[test]
    fn a_first_node_that_fails_or_is_late_is_no_reason_to_wait() {
        let (mut plan, mut tally) = one_first(IfHeld::End);
        let failed = vote(0, Answer::Failed(Cause::TimedOut));
        assert_eq!(next(&mut plan, &mut tally, &failed), Next::AskRest);
        let (mut plan, _) = one_first(IfHeld::End);
        assert!(plan.asked_one());
        assert_eq!(plan.on_time(), Next::AskRest);
    }

    #[test]
    fn the_last_repetitions_do_not_depend_on_one_node() {
        let of = |contact: AskOrder| [1, 2, 3].map(|times| contact.of_repetition(times));
        let one = AskOrder::OneThenMajority(IfHeld::AskLater);
        assert_eq!(of(AskOrder::MajorityFirst), [one, one, AskOrder::MajorityFirst]);
        assert_eq!(of(one), [one, one, AskOrder::MajorityFirst]);
        assert_eq!(of(AskOrder::All), [AskOrder::All; 3]);
    }
}
