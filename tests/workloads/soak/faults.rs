//! Which faults come when: a deck of all kinds, shuffled by the seed and dealt to its end, so that none is left
//! out.

use super::settings::NODES;
use quorate_testkit::sim::SeedRng;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    LeaderKilled,
    LeaderTold,
    LeaderStopped,
    LeaderKilledAtWork,
    LeaderStoppedAtWork,
    HoldersStoppedAllFlushed,
    WorkerKilled,
    WorkerTold,
    WorkerStopped,
    AllWorkersStopped,
    ServerKilled,
    ServerStopped,
    ServerFlushed,
    AllFlushed,
    MajorityStopped,
    MajorityKilled,
    CutThere,
    CutBack,
    CutBoth,
    MajorityCut,
    Slow,
    Severed,
    ReplyCut,
}

impl Kind {
    pub(crate) const ALL: [Self; 23] = [
        Self::LeaderKilled,
        Self::LeaderTold,
        Self::LeaderStopped,
        Self::LeaderKilledAtWork,
        Self::LeaderStoppedAtWork,
        Self::HoldersStoppedAllFlushed,
        Self::WorkerKilled,
        Self::WorkerTold,
        Self::WorkerStopped,
        Self::AllWorkersStopped,
        Self::ServerKilled,
        Self::ServerStopped,
        Self::ServerFlushed,
        Self::AllFlushed,
        Self::MajorityStopped,
        Self::MajorityKilled,
        Self::CutThere,
        Self::CutBack,
        Self::CutBoth,
        Self::MajorityCut,
        Self::Slow,
        Self::Severed,
        Self::ReplyCut,
    ];

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeaderKilled => "leader killed (SIGKILL)",
            Self::LeaderKilledAtWork => "leader killed in a job's run",
            Self::LeaderStoppedAtWork => "leader stopped in a job's run",
            Self::HoldersStoppedAllFlushed => "holders stopped, then all flushed",
            Self::WorkerKilled => "worker killed (SIGKILL)",
            Self::WorkerTold => "worker told to end (SIGTERM)",
            Self::LeaderTold => "leader told to end (SIGTERM)",
            Self::LeaderStopped => "leader stopped (SIGSTOP)",
            Self::WorkerStopped => "worker stopped (SIGSTOP)",
            Self::AllWorkersStopped => "all workers stopped",
            Self::ServerKilled => "server killed and restarted",
            Self::ServerStopped => "server stopped (SIGSTOP)",
            Self::ServerFlushed => "server flushed",
            Self::AllFlushed => "all servers flushed",
            Self::MajorityStopped => "majority of servers stopped",
            Self::MajorityKilled => "majority of servers killed",
            Self::CutThere => "requests cut off",
            Self::CutBack => "replies cut off",
            Self::CutBoth => "server cut off",
            Self::MajorityCut => "majority of servers cut off",
            Self::Slow => "slow network",
            Self::Severed => "connections severed",
            Self::ReplyCut => "severed in mid-reply",
        }
    }
}

/// What the parent does to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    KillWorker(usize),
    KillLeader,
    TellLeader,
    /// As soon as it begins to run a job; it starts again after a second.
    KillLeaderAtWork,
    /// As soon as it begins to run a job, for so long.
    StopLeaderAtWork(Duration),
    TellWorker(usize),
    StopWorker(usize),
    StopLeader,
    ResumeWorkers,
    StartWorkers,
    KillServer(usize),
    StartServer(usize),
    StopServer(usize),
    ResumeServer(usize),
    Flush(usize),
    CutThere(usize),
    CutBack(usize),
    CutBoth(usize),
    Slow(usize, Duration, Duration),
    HealProxy(usize),
    Sever(usize),
    CutReply(usize, usize),
}

/// A fault, and when what of it is done, from the beginning of its episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) actions: Vec<(Duration, Action)>,
}

/// Some faults at once, and how long nothing is done after the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Episode {
    pub(crate) faults: Vec<Fault>,
    pub(crate) calm: Duration,
}

/// Deals faults.
#[derive(Debug)]
pub(crate) struct Deck {
    rng: SeedRng,
    cards: Vec<Kind>,
    workers: usize,
}

impl Deck {
    pub(crate) fn new(seed: u64, workers: usize) -> Self {
        Self { rng: SeedRng::new(seed, "faults"), cards: Vec::new(), workers }
    }

    /// The next episode.
    pub(crate) fn episode(&mut self) -> Episode {
        let faults = (0..self.rng.number(1..=4)).map(|_| {
            let kind = self.draw();
            Fault { kind, actions: self.actions(kind) }
        });
        let faults = faults.collect();
        // Long enough for a quarantine to end and for every bound of liveness; or hardly any time.
        let calm =
            if self.rng.chance(350) { self.rng.millis(11_500..=14_000) } else { self.rng.millis(500..=3000) };
        Episode { faults, calm }
    }

    fn draw(&mut self) -> Kind {
        if self.cards.is_empty() {
            // The leader's end is what most of this is about.
            self.cards = [&Kind::ALL[..], &[Kind::LeaderKilled, Kind::LeaderKilledAtWork]].concat();
            for last in (1..self.cards.len()).rev() {
                let other = self.rng.index(last + 1);
                self.cards.swap(last, other);
            }
        }
        self.cards.pop().unwrap_or(Kind::Severed)
    }

    fn actions(&mut self, kind: Kind) -> Vec<(Duration, Action)> {
        let at = self.rng.millis(0..=2000);
        let last = self.rng.millis_up_to(&[500, 2000, 5000]) + Duration::from_millis(50);
        let (worker, server) = (self.rng.index(self.workers), self.rng.index(NODES));
        // Three that follow each other, from any on.
        let majority: Vec<usize> = (0..NODES / 2 + 1).map(|n| (server + n) % NODES).collect();
        let each = |does: fn(usize) -> Action, undoes: fn(usize) -> Action| {
            let of = |node: &usize| [(at, does(*node)), (at + last, undoes(*node))];
            majority.iter().flat_map(of).collect::<Vec<_>>()
        };
        match kind {
            Kind::LeaderKilled => vec![(at, Action::KillLeader), (at + last, Action::StartWorkers)],
            Kind::LeaderTold => vec![(at, Action::TellLeader), (at + last, Action::StartWorkers)],
            Kind::LeaderKilledAtWork => vec![(at, Action::KillLeaderAtWork)],
            Kind::LeaderStoppedAtWork => vec![(at, Action::StopLeaderAtWork(last))],
            Kind::HoldersStoppedAllFlushed => {
                // What they hold has more than a second to go, which nobody on the nodes remembers.
                let stops = [(at, Action::StopLeader), (at, Action::StopWorker(worker))];
                let flushes = (0..NODES).map(|node| (at + Duration::from_millis(50), Action::Flush(node)));
                let resumed = (at + self.rng.millis(1000..=2500), Action::ResumeWorkers);
                stops.into_iter().chain(flushes).chain([resumed]).collect()
            }
            Kind::WorkerKilled => vec![(at, Action::KillWorker(worker)), (at + last, Action::StartWorkers)],
            Kind::WorkerTold => vec![(at, Action::TellWorker(worker)), (at + last, Action::StartWorkers)],
            Kind::LeaderStopped => vec![(at, Action::StopLeader), (at + last, Action::ResumeWorkers)],
            Kind::WorkerStopped => vec![(at, Action::StopWorker(worker)), (at + last, Action::ResumeWorkers)],
            Kind::AllWorkersStopped => {
                let all = (0..self.workers).map(|worker| (at, Action::StopWorker(worker)));
                all.chain([(at + last, Action::ResumeWorkers)]).collect()
            }
            Kind::ServerKilled => {
                vec![(at, Action::KillServer(server)), (at + last, Action::StartServer(server))]
            }
            Kind::ServerStopped => {
                vec![(at, Action::StopServer(server)), (at + last, Action::ResumeServer(server))]
            }
            Kind::ServerFlushed => vec![(at, Action::Flush(server))],
            Kind::AllFlushed => (0..NODES).map(|node| (at, Action::Flush(node))).collect(),
            Kind::MajorityStopped => each(Action::StopServer, Action::ResumeServer),
            Kind::MajorityKilled => each(Action::KillServer, Action::StartServer),
            Kind::CutThere => vec![(at, Action::CutThere(server)), (at + last, Action::HealProxy(server))],
            Kind::CutBack => vec![(at, Action::CutBack(server)), (at + last, Action::HealProxy(server))],
            Kind::CutBoth => vec![(at, Action::CutBoth(server)), (at + last, Action::HealProxy(server))],
            Kind::MajorityCut => each(Action::CutBoth, Action::HealProxy),
            Kind::Slow => {
                let (each_way, jitter) = (self.rng.millis(1..=20), self.rng.millis(0..=20));
                let slow = (0..NODES).map(|node| (at, Action::Slow(node, each_way, jitter)));
                let healed = (0..NODES).map(|node| (at + last, Action::HealProxy(node)));
                slow.chain(healed).collect()
            }
            Kind::Severed => vec![(at, Action::Sever(server))],
            Kind::ReplyCut => {
                let bytes = self.rng.index(60);
                vec![(at, Action::CutReply(server, bytes)), (at + last, Action::HealProxy(server))]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_fixes_the_faults_and_a_deck_holds_every_kind() {
        let deal = |seed| {
            let mut deck = Deck::new(seed, 4);
            (0..30).map(|_| deck.episode()).collect::<Vec<_>>()
        };
        assert_eq!(deal(1), deal(1));
        assert_ne!(deal(1), deal(2));
        let kinds: BTreeSet<Kind> =
            deal(1).iter().flat_map(|episode| episode.faults.iter().map(|fault| fault.kind)).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
    }

    #[test]
    fn whatever_is_done_is_undone() {
        let mut deck = Deck::new(3, 4);
        for kind in Kind::ALL {
            let actions = deck.actions(kind);
            for (at, action) in &actions {
                let undo = match action {
                    Action::KillServer(node) => Action::StartServer(*node),
                    Action::StopServer(node) => Action::ResumeServer(*node),
                    Action::CutThere(node)
                    | Action::CutBack(node)
                    | Action::CutBoth(node)
                    | Action::CutReply(node, _)
                    | Action::Slow(node, ..) => Action::HealProxy(*node),
                    Action::KillLeader
                    | Action::TellLeader
                    | Action::KillWorker(_)
                    | Action::TellWorker(_) => Action::StartWorkers,
                    Action::StopLeader | Action::StopWorker(_) => Action::ResumeWorkers,
                    _ => continue,
                };
                assert!(actions.iter().any(|(when, other)| *other == undo && when > at), "{kind:?}");
            }
        }
    }
}
