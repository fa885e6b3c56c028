//! The faults of the soak test. A list of all kinds of faults, the *deck*, is shuffled by the seed. The deck is
//! used up before it is shuffled again, so every kind occurs.

use crate::harness::NodeFault;
use quorate_testkit::{proxy::Directions, sim::SeedRng};
use std::time::Duration;

/// The worker that a fault is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Leader,
    Member(usize),
}

/// An action of the director, by which it causes or ends a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Kill(Target),
    Terminate(Target),
    Stop(Target),
    /// Waits until the leader begins to run a job, and kills it. The worker is started again a second later.
    KillLeaderInRun,
    /// Waits until the leader begins to run a job, and stops it for this time.
    StopLeaderInRun(Duration),
    ResumeWorkers,
    StartWorkers,
    Node(usize, NodeFault),
}

/// A fault, with its kind and its actions. The time of each action counts from the beginning of the episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: &'static str,
    pub(super) actions: Vec<(Duration, Action)>,
}

/// A number of faults, which may overlap, and the time without faults that follows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Episode {
    pub(super) faults: Vec<Fault>,
    pub(super) calm: Duration,
}

/// The choices that were drawn for one fault.
struct Choice<'a> {
    /// The time at which the fault begins.
    at: Duration,
    /// The time at which the fault ends.
    until: Duration,
    worker: Target,
    workers: usize,
    node: usize,
    nodes: usize,
    rng: &'a mut SeedRng,
}

type Actions = Vec<(Duration, Action)>;

impl Choice<'_> {
    /// Returns the two actions that begin and end a fault of a worker or a server.
    fn then(self, hit: Action, end: Action) -> Actions {
        vec![(self.at, hit), (self.until, end)]
    }

    /// Returns the actions for a fault of the chosen server.
    fn one(self, fault: NodeFault, end: NodeFault) -> Actions {
        let node = self.node;
        self.then(Action::Node(node, fault), Action::Node(node, end))
    }

    /// Returns the actions for the same fault on `count` neighbouring servers, from the chosen one on.
    fn each(self, count: usize, fault: NodeFault, end: Option<NodeFault>) -> Actions {
        let nodes = (0..count).map(|n| (self.node + n) % self.nodes);
        let of = |node| {
            let end = end.map(|end| (self.until, Action::Node(node, end)));
            [Some((self.at, Action::Node(node, fault))), end]
        };
        nodes.flat_map(of).flatten().collect()
    }

    fn majority(self, fault: NodeFault, end: NodeFault) -> Actions {
        let majority = self.nodes / 2 + 1;
        self.each(majority, fault, Some(end))
    }

    fn all(self, fault: NodeFault, end: Option<NodeFault>) -> Actions {
        let nodes = self.nodes;
        self.each(nodes, fault, end)
    }

    fn all_workers_stopped(self) -> Actions {
        let stops = (0..self.workers).map(|worker| (self.at, Action::Stop(Target::Member(worker))));
        stops.chain([(self.until, Action::ResumeWorkers)]).collect()
    }

    /// Stops two workers, and flushes all nodes. The leases of the stopped workers remain valid for more than a
    /// second, although no node stores them.
    fn holders_stopped_all_flushed(self) -> Actions {
        let stops = [(self.at, Action::Stop(Target::Leader)), (self.at, Action::Stop(self.worker))];
        let at = self.at + Duration::from_millis(50);
        let flushes = (0..self.nodes).map(|node| (at, Action::Node(node, NodeFault::Flush)));
        let resumed = (self.at + self.rng.millis(1000..=2500), Action::ResumeWorkers);
        stops.into_iter().chain(flushes).chain([resumed]).collect()
    }

    fn slow(self) -> Actions {
        let slow = NodeFault::Slow(self.rng.millis(1..=20), self.rng.millis(0..=20));
        self.all(slow, Some(NodeFault::Heal))
    }

    fn reply_cut(self) -> Actions {
        let bytes = self.rng.index(60);
        self.one(NodeFault::CutReply(bytes), NodeFault::Heal)
    }
}

/// A kind of fault: its name, and the function that returns its actions.
type Kind = (&'static str, fn(Choice<'_>) -> Actions);

const KINDS: [Kind; 23] = [
    ("leader killed", |c| c.then(Action::Kill(Target::Leader), Action::StartWorkers)),
    ("leader terminated", |c| c.then(Action::Terminate(Target::Leader), Action::StartWorkers)),
    ("leader stopped", |c| c.then(Action::Stop(Target::Leader), Action::ResumeWorkers)),
    ("leader killed in a run", |c| vec![(c.at, Action::KillLeaderInRun)]),
    ("leader stopped in a run", |c| vec![(c.at, Action::StopLeaderInRun(c.until - c.at))]),
    ("holders stopped, then all servers flushed", |c| c.holders_stopped_all_flushed()),
    ("worker killed", |c| {
        let worker = c.worker;
        c.then(Action::Kill(worker), Action::StartWorkers)
    }),
    ("worker terminated", |c| {
        let worker = c.worker;
        c.then(Action::Terminate(worker), Action::StartWorkers)
    }),
    ("worker stopped", |c| {
        let worker = c.worker;
        c.then(Action::Stop(worker), Action::ResumeWorkers)
    }),
    ("all workers stopped", |c| c.all_workers_stopped()),
    ("server killed and restarted", |c| c.one(NodeFault::Kill, NodeFault::Restart)),
    ("server stopped", |c| c.one(NodeFault::Stop, NodeFault::Resume)),
    ("server flushed", |c| c.each(1, NodeFault::Flush, None)),
    ("all servers flushed", |c| c.all(NodeFault::Flush, None)),
    ("majority of servers stopped", |c| c.majority(NodeFault::Stop, NodeFault::Resume)),
    ("majority of servers killed", |c| c.majority(NodeFault::Kill, NodeFault::Restart)),
    ("requests cut off", |c| c.one(NodeFault::Cut(Directions::There), NodeFault::Heal)),
    ("replies cut off", |c| c.one(NodeFault::Cut(Directions::Back), NodeFault::Heal)),
    ("server cut off", |c| c.one(NodeFault::Cut(Directions::Both), NodeFault::Heal)),
    ("majority of servers cut off", |c| c.majority(NodeFault::Cut(Directions::Both), NodeFault::Heal)),
    ("slow network", |c| c.slow()),
    ("connections severed", |c| c.each(1, NodeFault::Sever, None)),
    ("connection severed within a reply", |c| c.reply_cut()),
];

/// The indices of the kinds that are in the deck twice. These kinds kill the leader, and most checks are about
/// the end of a leader.
const TWICE: [usize; 2] = [0, 3];

/// The source of the faults. It returns one episode after the other.
#[derive(Debug)]
pub(super) struct Deck {
    rng: SeedRng,
    cards: Vec<usize>,
    workers: usize,
    nodes: usize,
}

impl Deck {
    pub(super) fn new(seed: u64, workers: usize, nodes: usize) -> Self {
        Self { rng: SeedRng::new(seed, "faults"), cards: Vec::new(), workers, nodes }
    }

    /// Returns the next episode.
    pub(super) fn episode(&mut self) -> Episode {
        let count = self.rng.number(1..=4);
        let faults = (0..count).map(|_| {
            let kind = self.draw();
            Fault { kind: KINDS[kind].0, actions: self.actions(kind) }
        });
        let faults = faults.collect();
        // The time without faults is either long enough for a quarantine and for every limit of the liveness
        // check, or very short.
        let calm =
            if self.rng.chance(350) { self.rng.millis(11_500..=14_000) } else { self.rng.millis(500..=3000) };
        Episode { faults, calm }
    }

    fn draw(&mut self) -> usize {
        if self.cards.is_empty() {
            self.cards = (0..KINDS.len()).chain(TWICE).collect();
            for last in (1..self.cards.len()).rev() {
                let other = self.rng.index(last + 1);
                self.cards.swap(last, other);
            }
        }
        self.cards.pop().unwrap_or_default()
    }

    fn actions(&mut self, kind: usize) -> Actions {
        let at = self.rng.millis(0..=2000);
        let lasts = self.rng.millis_up_to(&[500, 2000, 5000]) + Duration::from_millis(50);
        let (workers, nodes) = (self.workers, self.nodes);
        let (worker, node) = (Target::Member(self.rng.index(workers)), self.rng.index(nodes));
        let choice = Choice { at, until: at + lasts, worker, workers, node, nodes, rng: &mut self.rng };
        KINDS[kind].1(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_fixes_the_faults_and_a_deck_holds_every_kind() {
        let deal = |seed| {
            let mut deck = Deck::new(seed, 4, 5);
            (0..30).map(|_| deck.episode()).collect::<Vec<_>>()
        };
        assert_eq!(deal(1), deal(1));
        assert_ne!(deal(1), deal(2));
        let kinds: BTreeSet<&str> =
            deal(1).iter().flat_map(|episode| episode.faults.iter().map(|fault| fault.kind)).collect();
        assert_eq!(kinds.len(), KINDS.len());
    }

    #[test]
    fn every_fault_that_lasts_is_ended() {
        let mut deck = Deck::new(3, 4, 5);
        for (kind, (name, _)) in KINDS.iter().enumerate() {
            let actions = deck.actions(kind);
            for (at, action) in &actions {
                let end = match action {
                    Action::Node(node, fault) => Action::Node(
                        *node,
                        match fault {
                            NodeFault::Kill => NodeFault::Restart,
                            NodeFault::Stop => NodeFault::Resume,
                            NodeFault::Cut(_) | NodeFault::Slow(..) | NodeFault::CutReply(_) => {
                                NodeFault::Heal
                            }
                            _ => continue,
                        },
                    ),
                    Action::Kill(_) | Action::Terminate(_) => Action::StartWorkers,
                    Action::Stop(_) => Action::ResumeWorkers,
                    _ => continue,
                };
                assert!(actions.iter().any(|(when, other)| *other == end && when > at), "{name}");
            }
        }
    }
}
