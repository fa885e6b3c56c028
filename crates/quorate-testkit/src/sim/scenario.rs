use super::{Directions, Lie, Memory, SeedRng, SimClock, Weather};
use quorate::{env::WallTime, round::Setup};
use std::{ops::RangeInclusive, time::Duration};

/// How many servers there are.
pub const NODES: usize = 5;
/// How many workers there are.
pub const WORKERS: usize = 3;

/// Clock rates differ from true time by at most this, so that any two are within `drift_rate` of each other.
const RATE_PPM: i64 = 4_900;
/// Wall clocks start at most this far from true time.
const WALL_OFFSET_MS: i64 = 200;
/// The true wall time at the beginning.
const EPOCH_MS: i64 = 1_700_000_000_000;
/// What a clock that is right shows at the true time `at`.
pub(super) fn true_wall(at: Duration) -> WallTime {
    WallTime::from_micros(EPOCH_MS.unsigned_abs() * 1_000) + at
}

/// A node's clock steps at most this far at once, at most once in [`STEP_APART`].
const STEP_MS: i64 = 95;
const STEP_APART: Duration = Duration::from_secs(9);

/// What is simulated, whatever the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the workers agree on.
    pub setup: Setup,
    /// How the servers lie, to prove that it would be found out.
    pub lie: Option<Lie>,
    /// For how long faults happen.
    pub length: Duration,
    /// Whether servers' clocks step.
    pub steps: bool,
    /// Servers forget nothing; in place of it their clocks step by up to so many milliseconds, each at any
    /// moment. Nothing that rests on time holds then, and fencing tokens must be unique all the same.
    pub wild_steps: Option<i64>,
    /// How many of a thousand faults are crashes of one to three servers, beside those that happen anyway.
    pub crashes: u64,
    /// How often, of a thousand crashes, a server comes back with an old snapshot, and so with old counters.
    pub snapshots: u64,
    /// By how much a worker's timers may be late though its process runs: the shipped code's never are.
    pub oversleep: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        let setup = Setup {
            node_timeout: Duration::from_millis(100),
            max_ttl: Duration::from_secs(3),
            // The shortest TTL is a second, of which the allowance is a tenth at most.
            clock_step_allowance: Duration::from_millis(100),
            ..Setup::default()
        };
        Self {
            setup,
            lie: None,
            length: Duration::from_secs(20),
            steps: true,
            wild_steps: None,
            crashes: 0,
            snapshots: 300,
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
    /// Each server's wall clock.
    pub servers: Vec<SimClock>,
    /// How messages fare until the faults end.
    pub weather: Weather,
    /// What happens when, in order.
    pub faults: Vec<(Duration, Fault)>,
    /// When the faults end.
    pub length: Duration,
}

/// One thing that happens to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The road between a worker and a server opens or closes.
    Road(usize, usize, Directions),
    /// A server stops (SIGSTOP).
    StopServer(usize),
    /// A server goes on.
    ResumeServer(usize),
    /// A server is killed.
    CrashServer(usize),
    /// A server starts again.
    StartServer(usize, Memory),
    /// A server forgets everything and runs on.
    FlushServer(usize),
    /// A server's clock steps by this many milliseconds.
    StepServer(usize, i64),
    /// A worker's process stops.
    PauseWorker(usize),
    /// A worker's process goes on.
    ResumeWorker(usize),
    /// A worker's process is killed.
    CrashWorker(usize),
    /// A worker's process starts again.
    StartWorker(usize),
}

impl Fault {
    /// What it is counted as.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Road(_, _, Directions { there: true, back: true }) => "road mended",
            Self::Road(_, _, Directions { there: false, back: false }) => "road cut",
            Self::Road(_, _, Directions { there: false, .. }) => "road there cut",
            Self::Road(..) => "road back cut",
            Self::StopServer(_) => "server stopped",
            Self::ResumeServer(_) => "server resumed",
            Self::CrashServer(_) => "server crashed",
            Self::StartServer(_, Memory::Empty) => "server started empty",
            Self::StartServer(_, Memory::Snapshot) => "server started from a snapshot",
            Self::FlushServer(_) => "server flushed",
            Self::StepServer(..) => "server clock stepped",
            Self::PauseWorker(_) => "worker paused",
            Self::ResumeWorker(_) => "worker resumed",
            Self::CrashWorker(_) => "worker crashed",
            Self::StartWorker(_) => "worker started",
        }
    }
}

impl Scenario {
    /// What `seed` makes of `plan`.
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let mut rng = SeedRng::new(seed, "scenario");
        let workers = (0..WORKERS).map(|_| machine(&mut rng)).collect();
        let servers = (0..NODES).map(|_| machine(&mut rng).1).collect();
        let weather = weather(&mut rng);
        let mut faults = Faults { rng, plan, stepped: [None; NODES], made: Vec::new() };
        let mut at = Duration::from_millis(300);
        while at < plan.length {
            faults.draw(at);
            at += faults.rng.millis(50..=1_100);
        }
        faults.step_wildly();
        let mut faults = faults.made;
        faults.retain(|(at, _)| *at < plan.length);
        // A stable sort: what was drawn first happens first.
        faults.sort_by_key(|(at, _)| *at);
        Self { seed, workers, servers, weather, faults, length: plan.length }
    }
}

/// A boot clock and a wall clock that run at one rate.
fn machine(rng: &mut SeedRng) -> (SimClock, SimClock) {
    // The ends of the range are where the margins are.
    let rate = match rng.number(0..=3) {
        0 => -RATE_PPM,
        1 => RATE_PPM,
        _ => rng.signed(-RATE_PPM..=RATE_PPM),
    };
    let rate_ppm = i32::try_from(rate).unwrap_or_default();
    let boot = SimClock { start_nanos: rng.number(1_000_000_000..=9_000_000_000_000_000), rate_ppm };
    let wall_ms = (EPOCH_MS + rng.signed(-WALL_OFFSET_MS..=WALL_OFFSET_MS)).unsigned_abs();
    (boot, SimClock { start_nanos: wall_ms * 1_000_000, rate_ppm })
}

fn weather(rng: &mut SeedRng) -> Weather {
    let storm = rng.number(0..=3);
    Weather {
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
        match self.rng.number(0..=99) {
            52..=70 if self.plan.wild_steps.is_some() => {}
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
            58..=60 => {
                let some = self.some_nodes(1..=3);
                some.into_iter().for_each(|node| self.made.push((at, Fault::FlushServer(node))));
            }
            61..=70 if self.plan.steps => self.step(at),
            61..=70 => {}
            71..=87 => {
                self.lasting(at, Fault::PauseWorker(worker), Fault::ResumeWorker(worker), 5..=4_500);
            }
            _ => self.lasting(at, Fault::CrashWorker(worker), Fault::StartWorker(worker), 1..=2_000),
        }
    }

    fn crash_servers(&mut self, at: Duration) {
        for node in self.some_nodes(1..=3) {
            let snapshot = self.rng.chance(self.plan.snapshots);
            let memory = if snapshot { Memory::Snapshot } else { Memory::Empty };
            self.lasting(at, Fault::CrashServer(node), Fault::StartServer(node, memory), 1..=1_200);
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
        let by = [STEP_MS, -STEP_MS, self.rng.signed(-STEP_MS..=STEP_MS)][self.rng.index(3)];
        for node in self.some_nodes(1..=5) {
            if self.stepped[node].is_none_or(|last| at >= last + STEP_APART) {
                self.stepped[node] = Some(at);
                self.made.push((at, Fault::StepServer(node, by)));
            }
        }
    }

    fn step_wildly(&mut self) {
        let Some(most) = self.plan.wild_steps else { return };
        let mut at = Duration::from_millis(300);
        while at < self.plan.length {
            let by = [most, -most, self.rng.signed(-most..=most)][self.rng.index(3)];
            for node in self.some_nodes(1..=3) {
                self.made.push((at, Fault::StepServer(node, by)));
            }
            at += self.rng.millis(1..=400);
        }
    }

    fn lasting(&mut self, at: Duration, begin: Fault, end: Fault, millis: RangeInclusive<u64>) {
        self.made.push((at, begin));
        self.made.push((at + self.rng.millis(millis), end));
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
        let mut kinds = BTreeSet::new();
        for seed in 0..50 {
            let scenario = Scenario::new(seed, &plan);
            assert_eq!(scenario, Scenario::new(seed, &plan));
            assert!(scenario.faults.is_sorted_by_key(|(at, _)| *at));
            kinds.extend(scenario.faults.iter().map(|(_, fault)| fault.kind()));
            let rates = || scenario.servers.iter().chain(scenario.workers.iter().map(|(boot, _)| boot));
            let most = rates().map(|clock| clock.rate_ppm).max().unwrap();
            let least = rates().map(|clock| clock.rate_ppm).min().unwrap();
            let apart = f64::from(1_000_000 + most) / f64::from(1_000_000 + least) - 1.0;
            assert!(apart <= plan.setup.drift_rate, "{apart}");
        }
        assert_eq!(kinds.len(), 15, "{kinds:?}");
        assert_ne!(Scenario::new(1, &plan).faults, Scenario::new(2, &plan).faults);
    }
}
