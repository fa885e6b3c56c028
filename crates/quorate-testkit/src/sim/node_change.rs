//! The replacement of the node set, in the seeds that have one.
//!
//! Such a seed has servers beside the first five: those that join. Its workers only compete for leases. No server
//! forgets, except for one that joins. [`NodeSets`](super::invariant) says why.

use super::{
    Directions, Fault, Memory, NodeList, Plan, SeedRng, SimClock,
    scenario::{NODES, OPERATOR, WORKERS, machine},
};
use std::{ops::RangeInclusive, time::Duration};

/// The draws of a seed in which the node set is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// The node list before the replacement.
    pub old: NodeList,
    /// The node list after it.
    pub new: NodeList,
    /// The time at which the operator starts the command.
    pub begins: Duration,
    /// The crashes of the command, in their order. After each of them the operator runs the command again.
    pub crashes: Vec<CommandCrash>,
}

/// A crash of the command that replaces the node set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCrash {
    /// The moment of the crash.
    pub at: CrashPoint,
    /// The time until the operator runs the command again.
    pub pause: Duration,
}

/// The moment at which the command crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// After the command has reported this many steps.
    Steps(usize),
    /// This long after its start.
    Time(Duration),
}

impl NodeChange {
    /// Draws the replacement of `seed`. Returns `None` if the seed has none.
    pub(super) fn of(seed: u64, plan: &Plan) -> Option<Self> {
        // A random stream of its own keeps this draw from changing the other draws of a seed.
        let mut rng = SeedRng::new(seed, "node change");
        if !rng.chance(plan.replaces) {
            return None;
        }
        let (old, new) = lists(&mut rng);
        let begins = rng.millis(2_500..=9_000);
        let crashes = (0..rng.index(4)).map(|_| CommandCrash {
            at: match rng.number(0..=2) {
                0 => CrashPoint::Time(rng.millis(0..=5_000)),
                1 => CrashPoint::Time(rng.millis(0..=300)),
                _ => CrashPoint::Steps(rng.index(18)),
            },
            pause: rng.millis_up_to(&[50, 1_500]),
        });
        Some(Self {
            crashes: crashes.collect(),
            begins,
            old: NodeList::new(false, old),
            new: NodeList::new(true, new),
        })
    }

    /// Returns the servers that are in the new list only.
    pub fn joining(&self) -> Vec<usize> {
        self.new.servers().iter().copied().filter(|server| !self.old.has(*server)).collect()
    }

    /// Returns `true` if every majority of the new list has a server of the old set. Then a worker with the new list
    /// that starts too early always meets a marker of the old set, or reaches no majority.
    pub fn meets_the_old_set(&self) -> bool {
        self.joining().len() < self.new.majority()
    }

    /// Draws the clocks of the servers that exist in seeds with this replacement only.
    pub(super) fn clocks(&self, seed: u64, edge: bool) -> Vec<SimClock> {
        let mut rng = SeedRng::new(seed, "clocks of joining servers");
        let count = self.new.servers().iter().max().map_or(0, |most| (most + 1).saturating_sub(NODES));
        (0..count).map(|_| machine(&mut rng, edge).1).collect()
    }

    /// Draws the faults that only seeds with this replacement have: those of the joining servers and of the operator's
    /// links, and the restarts of workers with the new list.
    pub(super) fn faults(&self, seed: u64, plan: &Plan) -> Vec<(Duration, Fault)> {
        let rng = SeedRng::new(seed, "faults of the node change");
        let mut faults = Faults { rng, made: Vec::new(), length: plan.length };
        let joining: Vec<usize> = self.joining().into_iter().filter(|server| *server >= NODES).collect();
        let forgets = (!joining.is_empty()).then(|| joining[faults.rng.index(joining.len())]);
        for &server in &joining {
            for _ in 0..faults.rng.index(4) {
                faults.disturb(server, forgets == Some(server));
            }
        }
        for _ in 0..faults.rng.index(5) {
            let all = self.old.servers().iter().chain(&joining).copied().collect::<Vec<_>>();
            let server = all[faults.rng.index(all.len())];
            faults.cut(OPERATOR, server);
        }
        for worker in 0..WORKERS {
            for _ in 0..2 {
                faults.switch(worker, self.begins);
            }
        }
        faults.made
    }
}

/// Draws the servers of the old and of the new list.
fn lists(rng: &mut SeedRng) -> (Vec<usize>, Vec<usize>) {
    let five: Vec<usize> = (0..NODES).collect();
    let mut some = five.clone();
    let rest: Vec<usize> = (0..2).map(|_| some.swap_remove(rng.index(some.len()))).collect();
    match rng.number(0..=9) {
        // The three that stay can be a majority that knows nothing of the old set's last grants.
        0..=3 => (five, some),
        4 => (five, vec![some[0], some[1], NODES]),
        5 => (some.clone(), some.into_iter().chain(rest).collect()),
        6 => (some.clone(), vec![some[0], some[1], NODES]),
        7 => (five, (1..=NODES).collect()),
        8 => (five, (2..NODES + 2).collect()),
        _ => (five, (NODES..2 * NODES).collect()),
    }
}

struct Faults {
    rng: SeedRng,
    made: Vec<(Duration, Fault)>,
    length: Duration,
}

impl Faults {
    /// Draws a fault of a joining server.
    fn disturb(&mut self, server: usize, forgets: bool) {
        let at = self.moment();
        match self.rng.number(0..=4) {
            0 | 1 => {
                let worker = self.rng.index(WORKERS);
                self.cut(worker, server);
            }
            2 => self.lasting(at, Fault::StopServer(server), Fault::ResumeServer(server), 20..=1_500),
            3 => {
                let memory = if forgets { Memory::Empty } else { Memory::Kept };
                self.lasting(at, Fault::CrashServer(server), Fault::StartServer(server, memory), 1..=1_200);
            }
            _ => self.made.push((at, Fault::Tear(server))),
        }
    }

    fn cut(&mut self, process: usize, server: usize) {
        let (there, back) = [(false, false), (false, true), (true, false)][self.rng.index(3)];
        let (cut, open) = (Directions { there, back }, Directions { there: true, back: true });
        let at = self.moment();
        self.lasting(at, Fault::Road(process, server, cut), Fault::Road(process, server, open), 10..=3_500);
    }

    /// Draws a restart of a worker with the new list: before the replacement, during it, or at any time.
    fn switch(&mut self, worker: usize, begins: Duration) {
        let at = match self.rng.number(0..=3) {
            0 => begins.saturating_sub(self.rng.millis(0..=3_000)),
            1 | 2 => begins + self.rng.millis(0..=9_000),
            _ => self.moment(),
        };
        self.made.push((at, Fault::GiveNewList(worker)));
        self.lasting(at, Fault::CrashWorker(worker), Fault::StartWorker(worker, None), 1..=800);
    }

    fn moment(&mut self) -> Duration {
        self.rng.millis(300..=self.length.as_millis() as u64)
    }

    fn lasting(&mut self, at: Duration, begin: Fault, end: Fault, millis: RangeInclusive<u64>) {
        self.made.push((at, begin));
        self.made.push((at + self.rng.millis(millis), end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every shape of a replacement is drawn, and that of all servers only one that joins forgets.
    #[test]
    fn every_shape_is_drawn_and_one_joining_server_forgets() {
        let plan = Plan { replaces: 1_000, ..Plan::default() };
        let (mut sizes, mut early, mut forgetful) = (Vec::new(), 0, 0);
        for seed in 0..200 {
            let change = NodeChange::of(seed, &plan).unwrap();
            assert_ne!(change.old.servers(), change.new.servers());
            sizes.push((change.old.servers().len(), change.new.servers().len(), change.joining().len()));
            early += u32::from(change.meets_the_old_set());
            let forgets = change.faults(seed, &plan).into_iter().filter_map(|(_, fault)| match fault {
                Fault::StartServer(server, Memory::Empty) => Some(server),
                _ => None,
            });
            let mut forgets: Vec<usize> = forgets.collect();
            forgets.dedup();
            assert!(forgets.len() <= 1 && forgets.iter().all(|server| change.joining().contains(server)));
            forgetful += forgets.len();
        }
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes, [(3, 3, 1), (3, 5, 2), (5, 3, 0), (5, 3, 1), (5, 5, 1), (5, 5, 2), (5, 5, 5)]);
        assert!((120..200).contains(&early) && forgetful > 10, "{early} {forgetful}");
        assert!((0..200).all(|seed| NodeChange::of(seed, &Plan::default()).is_none()));
    }
}
