use super::{
    Directions, Fault, Halves, Memory, Mistake, NAP, NetworkConditions, NodeFault, Parted, Promises, SeedRng,
    SimClock,
};
use quorate::{env::WallTime, quorum::QuorumConfig};
use std::{ops::RangeInclusive, time::Duration};

/// How many servers there are.
pub const NODES: usize = 5;
/// How many workers there are.
pub const WORKERS: usize = 3;

/// Clock rates differ from true time by at most this, so that any two are within `drift_rate` of each other.
const RATE_PPM: i64 = 4_900;
/// Wall clocks start at most this far from true time, but for one seed of four.
const WALL_OFFSET_MS: i64 = 200;
/// In that one they are anywhere up to this far from it, often as far as that, and never further: two of them are
/// `max_clock_offset` apart at most.
const EDGE_MS: i64 = 500;
/// At least as long as any run.
const LONGEST_RUN: Duration = Duration::from_secs(60);
/// The true wall time at the beginning.
const EPOCH_MS: i64 = 1_700_000_000_000;
/// What a clock that is right shows at the true time `at`.
pub(super) fn true_wall(at: Duration) -> WallTime {
    WallTime::from_micros(EPOCH_MS.unsigned_abs() * 1_000) + at
}

/// A node's clock steps at most this far at once, at most once in [`STEP_APART`].
const STEP_MS: i64 = 95;
const STEP_APART: Duration = Duration::from_secs(9);
/// How far a wall clock steps whose steps are outside of every promise.
const FAR_STEP_MS: i64 = 3 * 3_600_000;
/// Before this no clock steps far: every worker has to have watched for `max_ttl`.
const FAR_STEPS_FROM: Duration = Duration::from_millis(3_500);

/// What is simulated, whatever the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the workers agree on.
    pub setup: QuorumConfig,
    /// How the servers lie, to prove that it would be found out.
    pub node_fault: Option<NodeFault>,
    /// For how long faults happen.
    pub length: Duration,
    /// Whether servers' clocks step, by what is allowed.
    pub steps: bool,
    /// Whether servers' clocks step by hours and stand still as well. Then what rests on time is not judged,
    /// and no server forgets.
    pub wild_clocks: bool,
    /// The clocks of one or two servers, the same ones throughout, step far ahead. All else is such that every
    /// worker hears from them again and again: the roads to them are open, they forget nothing, and workers stay
    /// and are never away for long.
    pub far_steps: bool,
    /// Whether workers' boot clocks stand still.
    pub stands: bool,
    /// Whether it is held against a worker that its boot clock stood still, to prove that it would be noticed.
    pub excuse_no_clock: bool,
    /// Whether workers come up with another node list, or another `max_ttl`.
    pub mistakes: bool,
    /// Whether it is one server, whichever the seed says, that forgets, and the others keep what they have.
    pub one_forgets: bool,
    /// How many of a thousand faults are crashes of one to three servers, beside those that happen anyway.
    pub crashes: u64,
    /// How often, of a thousand crashes, a server comes back with an old snapshot, and so with old counters.
    pub snapshots: u64,
    /// What is held beyond what is promised today.
    pub promises: Promises,
    /// How long workers' timers sleep before they look at the clock again.
    pub naps: Duration,
    /// By how much a worker's timers may be late though its process runs: the shipped code's never are.
    pub oversleep: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        let setup = QuorumConfig {
            node_timeout: Duration::from_millis(100),
            max_ttl: Duration::from_secs(3),
            // The shortest TTL is a second, of which the allowance is a tenth at most.
            clock_step_allowance: Duration::from_millis(100),
            ..QuorumConfig::default()
        };
        Self {
            setup,
            node_fault: None,
            length: Duration::from_secs(20),
            steps: true,
            wild_clocks: false,
            far_steps: false,
            stands: true,
            excuse_no_clock: false,
            mistakes: false,
            one_forgets: false,
            crashes: 0,
            snapshots: 300,
            promises: Promises::default(),
            naps: NAP,
            oversleep: Duration::ZERO,
        }
    }
}

/// Everything that a seed decides before the run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Each worker's machine: boot clock and wall clock.
    pub workers: Vec<(SimClock, SimClock)>,
    /// The operator's machine.
    pub operator: (SimClock, SimClock),
    /// Each server's wall clock.
    pub servers: Vec<SimClock>,
    /// How messages fare until the faults end.
    pub weather: NetworkConditions,
    /// What happens when, in order.
    pub faults: Vec<(Duration, Fault)>,
    /// When the faults end.
    pub length: Duration,
}

impl Scenario {
    /// What `seed` makes of `plan`.
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let mut rng = SeedRng::new(seed, "scenario");
        // A stream of its own: the other seeds are what they would be without.
        let edge = SeedRng::new(seed, "wall clocks").chance(250);
        let workers = (0..WORKERS).map(|_| machine(&mut rng, edge)).collect();
        let servers: Vec<_> = (0..NODES).map(|_| machine(&mut rng, edge).1).collect();
        let weather = weather(&mut rng);
        let forgetful = rng.index(NODES);
        let astray = rng.chance(250);
        let walls = servers.clone();
        let stepped = [None; NODES];
        let mut faults = Faults { rng, plan, forgetful, astray, edge, walls, stepped, made: Vec::new() };
        let mut at = Duration::from_millis(300);
        while at < plan.length {
            faults.draw(at);
            at += faults.rng.millis(50..=900);
        }
        faults.step_far();
        let mut faults = faults.made;
        faults.retain(|(at, _)| *at < plan.length);
        // A stable sort: what was drawn first happens first.
        faults.sort_by_key(|(at, _)| *at);
        // A stream of its own: the other clocks are what they would be without.
        let operator = machine(&mut SeedRng::new(seed, "operator's machine"), edge);
        Self { seed, workers, operator, servers, weather, faults, length: plan.length }
    }
}

/// A boot clock and a wall clock that run at one rate.
fn machine(rng: &mut SeedRng, edge: bool) -> (SimClock, SimClock) {
    // The ends of the range are where the margins are.
    let rate = match rng.number(0..=3) {
        0 => -RATE_PPM,
        1 => RATE_PPM,
        _ => rng.signed(-RATE_PPM..=RATE_PPM),
    };
    let rate_ppm = i32::try_from(rate).unwrap_or_default();
    let boot = SimClock { start_nanos: rng.number(1_000_000_000..=9_000_000_000_000_000), rate_ppm };
    let room = room(rate_ppm);
    let offset = if edge {
        rng.signed(-2 * EDGE_MS..=2 * EDGE_MS).clamp(*room.start(), *room.end())
    } else {
        rng.signed(-WALL_OFFSET_MS..=WALL_OFFSET_MS)
    };
    let wall_ms = (EPOCH_MS + offset).unsigned_abs();
    (boot, SimClock { start_nanos: wall_ms * 1_000_000, rate_ppm })
}

/// How far from the truth a clock may start that runs at this rate and never leaves the edge.
fn room(rate_ppm: i32) -> RangeInclusive<i64> {
    let drifts = i64::from(rate_ppm) * i64::try_from(LONGEST_RUN.as_millis()).unwrap_or(i64::MAX) / 1_000_000;
    -EDGE_MS - drifts.min(0)..=EDGE_MS - drifts.max(0)
}

fn weather(rng: &mut SeedRng) -> NetworkConditions {
    let storm = rng.number(0..=3);
    NetworkConditions {
        delay: 0..=[2, 8, 30, 60][rng.index(4)],
        stall: storm * 6,
        stalled: 90..=600,
        lose_request: storm * 4,
        lose_reply: storm * 4,
        break_off: storm * 4,
    }
}

struct Faults<'a> {
    rng: SeedRng,
    plan: &'a Plan,
    /// The server that may forget, where only one does.
    forgetful: usize,
    /// Whether workers' wall clocks are set: in a seed of four, since what is due then is nobody's promise.
    astray: bool,
    /// Whether wall clocks are as far apart as they may be.
    edge: bool,
    /// The servers' wall clocks, with all their steps so far.
    walls: Vec<SimClock>,
    stepped: [Option<Duration>; NODES],
    made: Vec<(Duration, Fault)>,
}

impl Faults<'_> {
    /// One fault at `at`, and its end.
    fn draw(&mut self, at: Duration) {
        let (node, worker) = (self.rng.index(NODES), self.rng.index(WORKERS));
        if self.rng.chance(self.plan.crashes) {
            return self.crash_servers(at);
        }
        match self.rng.number(0..=129) {
            0..=27 => self.cut(at, [worker].as_slice(), &[node]),
            28..=39 => {
                let some = self.some_nodes(1..=4);
                self.cut(at, &[worker], &some);
            }
            40..=51 => {
                let some = self.some_nodes(1..=2);
                for node in some {
                    self.lasting(at, Fault::StopServer(node), Fault::ResumeServer(node), 20..=1_500);
                }
            }
            52..=57 => self.crash_servers(at),
            58..=60 => self.flush_servers(at),
            61..=70 => self.step(at),
            71..=87 => {
                let (begin, end) = (Fault::PauseWorker(worker), Fault::ResumeWorker(worker));
                self.lasting(at, begin, end, 5..=self.away_ms());
            }
            88..=99 => self.crash_worker(at, worker),
            100..=104 => self.part(at),
            105..=109 => {
                let some = self.some_nodes(1..=5);
                some.into_iter().for_each(|node| self.made.push((at, Fault::Tear(node))));
            }
            110..=117 => {
                let (begin, end) = (Fault::SleepWorker(worker), Fault::WakeWorker(worker));
                self.lasting(at, begin, end, 5..=self.away_ms());
            }
            118..=122 if self.astray => self.step_worker(at, worker),
            118..=122 => {}
            _ => self.stand_worker(at, worker),
        }
    }

    /// Some servers crash, and come back with what the plan lets them keep.
    fn crash_servers(&mut self, at: Duration) {
        for node in self.some_nodes(1..=3) {
            if self.rng.chance(100) && self.may_forget(node) {
                let clock = machine(&mut self.rng, self.edge).1;
                self.walls[node] = clock;
                self.made.push((at, Fault::ReplaceServer(node, clock)));
                continue;
            }
            let kept = if self.plan.setup.durable { 800 } else { 200 };
            let memory = match self.rng.number(0..=999) {
                _ if !self.may_forget(node) => Memory::Kept,
                dice if dice < kept => Memory::Kept,
                // What says that it is durable comes back with all it had, or with a new disk.
                _ if self.plan.setup.durable => Memory::Empty,
                _ if self.rng.chance(self.plan.snapshots) => Memory::Snapshot,
                _ => Memory::Empty,
            };
            self.lasting(at, Fault::CrashServer(node), Fault::StartServer(node, memory), 1..=1_200);
        }
    }

    fn flush_servers(&mut self, at: Duration) {
        for node in self.some_nodes(1..=3) {
            if self.may_forget(node) {
                self.made.push((at, Fault::FlushServer(node)));
            }
        }
    }

    /// For how long a worker may be away.
    fn away_ms(&self) -> u64 {
        if self.plan.far_steps { 900 } else { 4_500 }
    }

    fn may_forget(&self, node: usize) -> bool {
        !self.plan.wild_clocks && !self.plan.far_steps && (!self.plan.one_forgets || node == self.forgetful)
    }

    fn crash_worker(&mut self, at: Duration, worker: usize) {
        let mistake = match self.rng.number(0..=3) {
            _ if !self.plan.mistakes => None,
            0 | 1 => Some(Mistake::FewerNodes(self.rng.index(NODES))),
            2 => Some(Mistake::OtherMaxTtl),
            _ => None,
        };
        self.lasting(at, Fault::CrashWorker(worker), Fault::StartWorker(worker, mistake), 1..=2_000);
        if mistake.is_some() {
            // Somebody finds the mistake.
            let found = at + self.rng.millis(2_500..=9_000);
            self.lasting(found, Fault::CrashWorker(worker), Fault::StartWorker(worker, None), 1..=1_000);
        }
    }

    /// The network falls in halves, of which none need have a majority of anything.
    fn part(&mut self, at: Duration) {
        let mut draw = |_| self.rng.chance(500);
        let halves = Halves { workers: [(); WORKERS].map(&mut draw), nodes: [(); NODES].map(draw) };
        let parted = if self.rng.chance(500) { Parted::Torn } else { Parted::Cut };
        let (begin, end) = (Fault::Partition(halves, parted), Fault::Partition(halves, Parted::Mended));
        self.lasting(at, begin, end, 50..=4_000);
    }

    /// A worker's wall clock may be set to anything: by seconds, or by hours.
    fn step_worker(&mut self, at: Duration, worker: usize) {
        let far = [1_500, 60_000, FAR_STEP_MS][self.rng.index(3)];
        let by = self.rng.signed(-far..=far);
        self.made.push((at, Fault::StepWorker(worker, by)));
    }

    fn stand_worker(&mut self, at: Duration, worker: usize) {
        let frozen = self.rng.chance(500);
        let millis = if self.rng.chance(700) { 20..=1_000 } else { 1_000..=6_000 };
        if self.plan.stands {
            let begin = if frozen { Fault::FreezeWorker(worker) } else { Fault::StandWorker(worker) };
            self.lasting(at, begin, Fault::UnfreezeWorker(worker), millis);
        }
    }

    fn cut(&mut self, at: Duration, workers: &[usize], nodes: &[usize]) {
        let (there, back) = [(false, false), (false, true), (true, false)][self.rng.index(3)];
        let mended = at + self.rng.millis(10..=3_500);
        for (&worker, &node) in workers.iter().flat_map(|w| nodes.iter().map(move |n| (w, n))) {
            self.made.push((at, Fault::Road(worker, node, Directions { there, back })));
            self.made.push((mended, Fault::Road(worker, node, Directions { there: true, back: true })));
        }
    }

    /// Some servers' clocks step, together: what sets one may set all.
    fn step(&mut self, at: Duration) {
        let wild = self.plan.wild_clocks && self.rng.chance(700);
        let far = if wild { [1_500, 60_000, FAR_STEP_MS][self.rng.index(3)] } else { STEP_MS };
        let by = [far, -far, self.rng.signed(-far..=far)][self.rng.index(3)];
        for node in self.some_nodes(1..=5) {
            if wild && self.rng.chance(300) {
                self.lasting(at, Fault::StandServer(node), Fault::UnstandServer(node), 20..=6_000);
            } else if wild {
                self.made.push((at, Fault::StepServer(node, by)));
            } else if self.plan.steps && self.stepped[node].is_none_or(|last| at >= last + STEP_APART) {
                if self.edge && !self.may_step(node, by) {
                    continue;
                }
                self.stepped[node] = Some(at);
                self.made.push((at, Fault::StepServer(node, by)));
            }
        }
    }

    /// The clocks of a few servers step ahead, at one moment or at two. What would keep a worker from hearing of
    /// it is taken out.
    fn step_far(&mut self) {
        if !self.plan.far_steps {
            return;
        }
        let astray = self.some_nodes(1..=2);
        self.made.retain(|(_, fault)| !fault.parts_from(&astray));
        let mut at = FAR_STEPS_FROM + self.rng.millis(0..=3_000);
        while at < self.plan.length {
            let far = [1_500, 60_000, 3_600_000][self.rng.index(3)];
            let apart = [0, 400][self.rng.index(2)];
            for &node in &astray {
                let by = self.rng.signed(1_000..=far);
                self.made.push((at + self.rng.millis(0..=apart), Fault::StepServer(node, by)));
            }
            // Once it votes again.
            at += self.plan.setup.quarantine() + self.rng.millis(1_500..=6_000);
        }
    }

    fn lasting(&mut self, at: Duration, begin: Fault, end: Fault, millis: RangeInclusive<u64>) {
        self.made.push((at, begin));
        self.made.push((at + self.rng.millis(millis), end));
    }

    /// Whether a server's clock is within the edge after a step, which it then takes.
    fn may_step(&mut self, node: usize, by: i64) -> bool {
        let wall = &mut self.walls[node];
        let start = wall.start_nanos.saturating_add_signed(by * 1_000_000);
        let offset = i64::try_from(start / 1_000_000).unwrap_or(i64::MAX) - EPOCH_MS;
        let may = room(wall.rate_ppm).contains(&offset);
        if may {
            wall.start_nanos = start;
        }
        may
    }

    /// Some servers, each once.
    fn some_nodes(&mut self, count: RangeInclusive<u64>) -> Vec<usize> {
        let mut all: Vec<usize> = (0..NODES).collect();
        let count = self.rng.number(count) as usize;
        (0..count).map(|_| all.swap_remove(self.rng.index(all.len()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_fixes_everything_and_the_clocks_keep_the_promises() {
        let plan = Plan::default();
        for seed in 0..50 {
            let scenario = Scenario::new(seed, &plan);
            assert_eq!(scenario, Scenario::new(seed, &plan));
            assert!(scenario.faults.is_sorted_by_key(|(at, _)| *at));
            let replaced = scenario.faults.iter().filter_map(|(_, fault)| match fault {
                Fault::ReplaceServer(_, clock) => Some(clock),
                _ => None,
            });
            let workers = scenario.workers.iter().map(|(boot, _)| boot);
            let clocks: Vec<_> = scenario.servers.iter().chain(workers).chain(replaced).collect();
            let most = clocks.iter().map(|clock| clock.rate_ppm).max().unwrap();
            let least = clocks.iter().map(|clock| clock.rate_ppm).min().unwrap();
            let apart = f64::from(1_000_000 + most) / f64::from(1_000_000 + least) - 1.0;
            assert!(apart <= plan.setup.drift_rate, "{apart}");
            let far = |fault: &Fault| matches!(fault, Fault::StepServer(_, by) if by.abs() > STEP_MS);
            assert!(!scenario.faults.iter().any(|(_, fault)| far(fault)));
        }
        assert_ne!(Scenario::new(1, &plan).faults, Scenario::new(2, &plan).faults);
    }

    /// Where wall clocks go to the edge of `max_clock_offset`, they reach it and keep within.
    #[test]
    fn wall_clocks_reach_the_edge_and_stay_within_it() {
        let plan = Plan::default();
        let (mut edges, mut widest) = (0_u64, 0);
        for seed in (0..200).filter(|seed| SeedRng::new(*seed, "wall clocks").chance(250)) {
            edges += 1;
            let scenario = Scenario::new(seed, &plan);
            let mut servers = scenario.servers.clone();
            let mut see = |clock: &SimClock| {
                for at in [Duration::ZERO, LONGEST_RUN] {
                    let apart = clock.shows(at).abs_diff(true_wall(at).as_micros() * 1_000) / 1_000_000;
                    assert!(apart <= EDGE_MS.unsigned_abs(), "{seed}: {apart} ms");
                    widest = widest.max(apart);
                }
            };
            scenario.workers.iter().for_each(|(_, wall)| see(wall));
            servers.iter().for_each(&mut see);
            for (_, fault) in &scenario.faults {
                match *fault {
                    Fault::ReplaceServer(node, clock) => servers[node] = clock,
                    Fault::StepServer(node, by) => {
                        let start = servers[node].start_nanos.checked_add_signed(by * 1_000_000);
                        servers[node].start_nanos = start.unwrap();
                    }
                    _ => continue,
                }
                servers.iter().for_each(&mut see);
            }
        }
        assert!((30..=70).contains(&edges), "{edges} of 200 seeds");
        assert!(widest >= 499, "{widest}");
    }

    #[test]
    fn clocks_that_step_far_are_a_minority_that_every_worker_hears() {
        let plan = Plan::named("far-steps").unwrap();
        for seed in 0..50 {
            let faults = Scenario::new(seed, &plan).faults;
            let far = faults.iter().filter_map(|(at, fault)| match fault {
                Fault::StepServer(node, by) if *by > STEP_MS => Some((*at, *node)),
                _ => None,
            });
            let far: Vec<_> = far.collect();
            let astray: Vec<usize> =
                BTreeSet::from_iter(far.iter().map(|(_, node)| *node)).into_iter().collect();
            assert!((1..=2).contains(&astray.len()), "{seed}: {astray:?}");
            assert!(far.len() >= 3 && far.iter().all(|(at, _)| *at >= FAR_STEPS_FROM), "{seed}: {far:?}");
            assert!(!faults.iter().any(|(_, fault)| fault.parts_from(&astray)), "{seed}");
        }
    }

    #[test]
    fn every_kind_of_fault_is_drawn_and_named() {
        let mut kinds = BTreeSet::new();
        let wild = Plan { wild_clocks: true, ..Plan::default() };
        let mistaken = Plan { mistakes: true, ..Plan::default() };
        for seed in 0..50 {
            for plan in [&Plan::default(), &wild, &mistaken] {
                let faults = Scenario::new(seed, plan).faults;
                kinds.extend(faults.iter().map(|(_, fault)| fault.kind()));
                let forgets = |fault: &Fault| {
                    matches!(
                        fault,
                        Fault::FlushServer(_)
                            | Fault::ReplaceServer(..)
                            | Fault::StartServer(_, Memory::Empty | Memory::Snapshot)
                    )
                };
                assert!(!plan.wild_clocks || !faults.iter().any(|(_, fault)| forgets(fault)), "{seed}");
            }
        }
        let ends = [
            "road restored",
            "network whole",
            "server resumed",
            "server clock went on",
            "worker resumed",
            "worker woke",
            "worker clock went on",
            "worker started",
        ];
        let faults: Vec<_> = kinds.iter().filter(|kind| !ends.contains(kind)).collect();
        assert!(faults.iter().all(|kind| Fault::is_kind(kind)), "{faults:?}");
        assert_eq!((faults.len(), kinds.len()), (23, 23 + ends.len()), "{kinds:?}");
    }
}
