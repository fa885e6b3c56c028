//! The parts of which the kinds of faults are made.

use crate::harness::{NodeFault, Split};
use quorate_testkit::sim::SeedRng;
use std::time::Duration;

/// The worker that a fault is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Leader,
    Member(usize),
}

/// An action of the director, by which it causes or ends a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
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
    /// Begins a fault of links between machines.
    Split(Split),
    /// Ends a fault of links between machines.
    Join(Split),
    /// Replaces a server by a new one on a new machine. Workers are started again with the new list, one after the other.
    Replace(usize),
    /// Ends or starts one of the workers that have an old list of servers.
    Update,
}

impl Action {
    /// Returns whether the action causes a fault, and does not end one.
    pub(crate) fn begins_fault(self) -> bool {
        match self {
            Self::ResumeWorkers | Self::StartWorkers | Self::Join(_) | Self::Update => false,
            Self::Node(_, fault) => !matches!(
                fault,
                NodeFault::Restart
                    | NodeFault::RestartEmpty
                    | NodeFault::Resume
                    | NodeFault::Empty
                    | NodeFault::SetClock(0)
                    | NodeFault::Heal
            ),
            _ => true,
        }
    }
}

/// The choices that were drawn for one fault.
pub(crate) struct Choice<'a> {
    /// The time at which the fault begins.
    pub(crate) at: Duration,
    /// The time at which the fault ends.
    pub(crate) until: Duration,
    pub(crate) worker: Target,
    pub(crate) workers: usize,
    pub(crate) node: usize,
    pub(crate) nodes: usize,
    pub(crate) rng: &'a mut SeedRng,
}

pub(crate) type Actions = Vec<(Duration, Action)>;

impl Choice<'_> {
    /// Returns the two actions that begin and end a fault of a worker or a server.
    pub(crate) fn then(self, hit: Action, end: Action) -> Actions {
        vec![(self.at, hit), (self.until, end)]
    }

    /// Returns the actions for a fault of the chosen server.
    pub(crate) fn one(self, fault: NodeFault, end: NodeFault) -> Actions {
        let node = self.node;
        self.then(Action::Node(node, fault), Action::Node(node, end))
    }

    /// Returns the actions for the same fault on `count` neighbouring servers, from the chosen one on.
    pub(crate) fn each(self, count: usize, fault: NodeFault, end: Option<NodeFault>) -> Actions {
        let nodes = (0..count).map(|n| (self.node + n) % self.nodes);
        let of = |node| {
            let end = end.map(|end| (self.until, Action::Node(node, end)));
            [Some((self.at, Action::Node(node, fault))), end]
        };
        nodes.flat_map(of).flatten().collect()
    }

    pub(crate) fn majority(self, fault: NodeFault, end: NodeFault) -> Actions {
        let majority = self.nodes / 2 + 1;
        self.each(majority, fault, Some(end))
    }

    pub(crate) fn all(self, fault: NodeFault, end: Option<NodeFault>) -> Actions {
        let nodes = self.nodes;
        self.each(nodes, fault, end)
    }

    pub(crate) fn all_workers_stopped(self) -> Actions {
        let stops = (0..self.workers).map(|worker| (self.at, Action::Stop(Target::Member(worker))));
        stops.chain([(self.until, Action::ResumeWorkers)]).collect()
    }

    /// Stops two workers, and flushes all nodes. The leases of the stopped workers remain valid for more than a
    /// second, although no node stores them.
    pub(crate) fn holders_stopped_all_flushed(self) -> Actions {
        let stops = [(self.at, Action::Stop(Target::Leader)), (self.at, Action::Stop(self.worker))];
        let at = self.at + Duration::from_millis(50);
        let flushes = (0..self.nodes).map(|node| (at, Action::Node(node, NodeFault::Flush)));
        let resumed = (self.at + self.rng.millis(1000..=2500), Action::ResumeWorkers);
        stops.into_iter().chain(flushes).chain([resumed]).collect()
    }

    pub(crate) fn slow(self) -> Actions {
        let slow = NodeFault::Slow(self.rng.millis(1..=20), self.rng.millis(0..=20));
        self.all(slow, Some(NodeFault::Heal))
    }

    pub(crate) fn reply_cut(self) -> Actions {
        let bytes = self.rng.index(60);
        self.one(NodeFault::CutReply(bytes), NodeFault::Heal)
    }
}

/// A kind of fault: its name, and the function that returns its actions.
pub(crate) type Kind = (&'static str, fn(Choice<'_>) -> Actions);
