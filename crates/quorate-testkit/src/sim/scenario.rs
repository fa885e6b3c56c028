use super::{
    Directions, Fault, Halves, Memory, Mistake, NAP, NetworkConditions, NodeChange, NodeFault, Parted,
    SeedRng, SimClock,
};
use quorate::{env::WallTime, quorum::QuorumConfig};
use std::{ops::RangeInclusive, time::Duration};

/// The number of servers.
pub const NODES: usize = 5;
/// The number of workers.
pub const WORKERS: usize = 3;
/// The index of the operator's machine, after those of the workers.
pub const OPERATOR: usize = WORKERS;

/// The largest rate error of a clock, in millionths. If no clock exceeds it, the rates of any two clocks
/// differ by less than `drift_rate`.
const RATE_PPM: i64 = 4_900;
/// The largest offset of a wall clock from the true time when a run begins, in three seeds of four.
const WALL_OFFSET_MS: i64 = 200;
/// The largest offset of a wall clock from the true time at any moment, in one seed of four. In these seeds,
/// many clocks reach this offset. No clock exceeds it, unless a fault steps the clock far. All other wall
/// clocks are therefore at most `max_clock_offset` apart.
const EDGE_MS: i64 = 500;
/// The upper limit of the length of a run.
const LONGEST_RUN: Duration = Duration::from_secs(60);
/// The true wall time when a run begins, in milliseconds since the epoch.
const EPOCH_MS: i64 = 1_700_000_000_000;
/// Returns the time that a wall clock without error shows at the true time `at`.
pub(super) fn true_wall(at: Duration) -> WallTime {
    WallTime::from_micros(EPOCH_MS.unsigned_abs() * 1_000) + at
}

/// The largest step of a server's clock, in milliseconds. A server's clock steps at most once in
/// [`STEP_APART`].
const STEP_MS: i64 = 95;
/// The shortest time between two steps of one server's clock.
const STEP_APART: Duration = Duration::from_secs(9);
/// The largest step of a wall clock, in milliseconds, in plans and seeds in which steps may exceed every
/// tolerance.
const FAR_STEP_MS: i64 = 3 * 3_600_000;
/// In plans with [`Plan::far_steps`], the earliest time at which a server's clock steps far ahead. By then
/// every worker has observed the servers for `max_ttl`, and therefore detects the step.
const FAR_STEPS_FROM: Duration = Duration::from_millis(3_500);

/// The properties of a simulation that are the same for all seeds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration that all workers share.
    pub setup: QuorumConfig,
    /// The way in which servers violate their contract. `None` if all servers are honest.
    pub node_fault: Option<NodeFault>,
    /// Lets servers serve most acquires of locks as plain commands do, as they do for the module `redis`. Otherwise every
    /// acquire is served as by a script.
    pub plain_commands: bool,
    /// The length of the phase in which faults happen.
    pub length: Duration,
    /// Lets servers' clocks step, but no further than `clock_step_allowance` permits.
    pub steps: bool,
    /// Lets servers' clocks step by hours and stand still. In such a plan no invariant that depends on time is judged,
    /// and no server forgets.
    pub wild_clocks: bool,
    /// Lets the clocks of one or two servers step far ahead. During a run, only the clocks of these servers
    /// do so.
    ///
    /// Every worker receives replies from these servers again and again. For that, the links to these servers
    /// stay open, the servers forget nothing, and the workers keep running and are never paused for long.
    pub far_steps: bool,
    /// Makes no exception for a boot clock that stood still. With this, tests show that the invariants detect
    /// the effects of such a clock.
    pub excuse_no_clock: bool,
    /// Lets workers start by mistake with another node list, or another `max_ttl`.
    pub mistakes: bool,
    /// Lets only one server lose data, chosen by the seed. The other servers keep their data.
    pub one_forgets: bool,
    /// The number of faults in a thousand that are crashes of one to three servers. These are in addition to
    /// the crashes that every plan draws.
    pub crashes: u64,
    /// The number of data losses in a thousand after which the server comes back with an old snapshot, and
    /// therefore with old counters. After the other data losses, the server comes back empty.
    pub snapshots: u64,
    /// The number of seeds in a thousand in which the node set is replaced. The other seeds have the same history as
    /// without replacements.
    pub replaces: u64,
    /// Lets an operator release held locks by force.
    pub forces: bool,
    /// Lets an operator store jobs of the second group on the nodes, and remove them.
    pub stores: bool,
    /// The longest time for which a worker sleeps before it reads the clock again.
    pub naps: Duration,
    /// The time by which a worker's timers fire late although its process runs. It is zero, except in a test
    /// that shows that the invariants detect late timers.
    pub oversleep: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        let setup = QuorumConfig {
            node_timeout: Duration::from_millis(100),
            max_ttl: Duration::from_secs(3),
            // The allowance may be at most a tenth of a TTL, and the shortest TTL is one second.
            clock_step_allowance: Duration::from_millis(100),
            ..QuorumConfig::default()
        };
        Self {
            setup,
            node_fault: None,
            plain_commands: false,
            length: Duration::from_secs(20),
            steps: true,
            wild_clocks: false,
            far_steps: false,
            excuse_no_clock: false,
            mistakes: false,
            one_forgets: false,
            crashes: 0,
            snapshots: 300,
            replaces: 0,
            forces: false,
            stores: false,
            naps: NAP,
            oversleep: Duration::ZERO,
        }
    }
}

/// The decisions that a seed makes before the run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// For each worker's machine, the boot clock and the wall clock.
    pub workers: Vec<(SimClock, SimClock)>,
    /// The boot clock and the wall clock of the operator's machine.
    pub operator: (SimClock, SimClock),
    /// Each server's wall clock.
    pub servers: Vec<SimClock>,
    /// The replacement of the node set, in some seeds. Then there are further servers, which join.
    pub change: Option<NodeChange>,
    /// The network conditions until the faults end.
    pub weather: NetworkConditions,
    /// The faults and the times at which they happen, in order.
    pub faults: Vec<(Duration, Fault)>,
    /// The time when the faults end.
    pub length: Duration,
}

impl Scenario {
    /// Derives the scenario of `plan` for `seed`.
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let mut rng = SeedRng::new(seed, "scenario");
        // A random stream of its own keeps this draw from changing the other draws of a seed.
        let edge = SeedRng::new(seed, "wall clocks").chance(250);
        let workers = (0..WORKERS).map(|_| machine(&mut rng, edge)).collect();
        let mut servers: Vec<_> = (0..NODES).map(|_| machine(&mut rng, edge).1).collect();
        let weather = weather(&mut rng);
        let change = NodeChange::of(seed, plan);
        let forgetful = rng.index(NODES);
        let workers_step_far = rng.chance(250);
        let walls = servers.clone();
        let stepped = [None; NODES];
        let all_keep = change.is_some();
        let mut faults = Faults {
            rng,
            plan,
            forgetful,
            workers_step_far,
            edge,
            walls,
            stepped,
            made: Vec::new(),
            all_keep,
        };
        let mut at = Duration::from_millis(300);
        while at < plan.length {
            faults.draw(at);
            at += faults.rng.millis(50..=900);
        }
        faults.step_far();
        let mut faults = faults.made;
        if let Some(change) = &change {
            faults.extend(change.faults(seed, plan));
            servers.extend(change.clocks(seed, edge));
        }
        faults.retain(|(at, _)| *at < plan.length);
        // The sort is stable: of two faults at the same time, the one that was drawn first happens first.
        faults.sort_by_key(|(at, _)| *at);
        // A random stream of its own keeps this draw from changing the clocks of the workers.
        let operator = machine(&mut SeedRng::new(seed, "operator's machine"), edge);
        Self { seed, workers, operator, servers, change, weather, faults, length: plan.length }
    }
}

/// Draws a boot clock and a wall clock that run at the same rate.
pub(super) fn machine(rng: &mut SeedRng, edge: bool) -> (SimClock, SimClock) {
    // The extreme rates are drawn often, because safety margins are tested best at the limits.
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

/// Returns the offsets, in milliseconds, with which a clock of this rate may start without exceeding
/// [`EDGE_MS`] during the run.
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
    /// The index of the only server that may lose data, in plans with [`Plan::one_forgets`].
    forgetful: usize,
    /// Lets workers' wall clocks step by any amount, in one seed of four. In the other seeds these clocks
    /// stay within `max_clock_offset`.
    workers_step_far: bool,
    /// Lets wall clocks differ by as much as `max_clock_offset` permits.
    edge: bool,
    /// The servers' wall clocks, after the replacements so far. Steps are applied to them only in seeds with
    /// `edge`.
    walls: Vec<SimClock>,
    /// The time of each server's latest clock step.
    stepped: [Option<Duration>; NODES],
    made: Vec<(Duration, Fault)>,
    /// True if no server may lose data.
    all_keep: bool,
}

impl Faults<'_> {
    /// Draws one fault that begins at `at`, and the end of this fault.
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
            118..=122 if self.workers_step_far => self.step_worker(at, worker),
            118..=122 => {}
            _ => self.stand_worker(at, worker),
        }
    }

    /// Draws a crash of one to three servers. When they start again, they have the data that the plan lets them
    /// keep.
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
                // A durable server loses data only with its disk. After a crash it has all its data, or a new disk that
                // is empty or holds a backup.
                dice if self.plan.setup.durable && dice < 900 => Memory::Empty,
                _ if self.plan.setup.durable => Memory::Snapshot,
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

    /// Returns the longest time for which this plan may pause a worker, in milliseconds.
    fn away_ms(&self) -> u64 {
        if self.plan.far_steps { 900 } else { 4_500 }
    }

    fn may_forget(&self, node: usize) -> bool {
        !self.all_keep
            && !self.plan.wild_clocks
            && !self.plan.far_steps
            && (!self.plan.one_forgets || node == self.forgetful)
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
            // After a while, an operator corrects the mistake and starts the worker again.
            let found = at + self.rng.millis(2_500..=9_000);
            self.lasting(found, Fault::CrashWorker(worker), Fault::StartWorker(worker, None), 1..=1_000);
        }
    }

    /// Draws a partition of the network into halves. One half has a majority of the servers, and possibly no
    /// worker.
    fn part(&mut self, at: Duration) {
        let mut draw = |_| self.rng.chance(500);
        let halves = Halves { workers: [(); WORKERS].map(&mut draw), nodes: [(); NODES].map(draw) };
        let parted = if self.rng.chance(500) { Parted::Torn } else { Parted::Cut };
        let (begin, end) = (Fault::Partition(halves, parted), Fault::Partition(halves, Parted::Healed));
        self.lasting(at, begin, end, 50..=4_000);
    }

    /// Draws a step of a worker's wall clock, by seconds or by hours.
    fn step_worker(&mut self, at: Duration, worker: usize) {
        let far = [1_500, 60_000, FAR_STEP_MS][self.rng.index(3)];
        let by = self.rng.signed(-far..=far);
        self.made.push((at, Fault::StepWorker(worker, by)));
    }

    fn stand_worker(&mut self, at: Duration, worker: usize) {
        let frozen = self.rng.chance(500);
        let millis = if self.rng.chance(700) { 20..=1_000 } else { 1_000..=6_000 };
        let begin = if frozen { Fault::FreezeWorker(worker) } else { Fault::StandWorker(worker) };
        self.lasting(at, begin, Fault::UnfreezeWorker(worker), millis);
    }

    fn cut(&mut self, at: Duration, workers: &[usize], nodes: &[usize]) {
        let (there, back) = [(false, false), (false, true), (true, false)][self.rng.index(3)];
        let healed = at + self.rng.millis(10..=3_500);
        for (&worker, &node) in workers.iter().flat_map(|w| nodes.iter().map(move |n| (w, n))) {
            self.made.push((at, Fault::Road(worker, node, Directions { there, back })));
            self.made.push((healed, Fault::Road(worker, node, Directions { there: true, back: true })));
        }
    }

    /// Draws a step of the clocks of some servers at one moment. A time source that several servers share would
    /// cause such a step.
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

    /// Draws far steps ahead for the clocks of one or two servers, several times. If there are two servers,
    /// their clocks step at one moment, or within 400 ms of each other. Removes the faults that would keep a
    /// worker from receiving replies of these servers: a worker must observe a step to reject the server's
    /// votes.
    fn step_far(&mut self) {
        if !self.plan.far_steps {
            return;
        }
        let stepping = self.some_nodes(1..=2);
        self.made.retain(|(_, fault)| !fault.parts_from(&stepping));
        let mut at = FAR_STEPS_FROM + self.rng.millis(0..=3_000);
        while at < self.plan.length {
            let far = [1_500, 60_000, 3_600_000][self.rng.index(3)];
            let apart = [0, 400][self.rng.index(2)];
            for &node in &stepping {
                let by = self.rng.signed(1_000..=far);
                self.made.push((at + self.rng.millis(0..=apart), Fault::StepServer(node, by)));
            }
            // The next step follows only after the servers may vote again.
            at += self.plan.setup.quarantine() + self.rng.millis(1_500..=6_000);
        }
    }

    fn lasting(&mut self, at: Duration, begin: Fault, end: Fault, millis: RangeInclusive<u64>) {
        self.made.push((at, begin));
        self.made.push((at + self.rng.millis(millis), end));
    }

    /// Returns `true` if a server's clock would stay within [`EDGE_MS`] after this step, and adds the step to
    /// `walls`. If it returns `false`, the clock must not step.
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

    /// Draws some servers, none of them twice.
    fn some_nodes(&mut self, count: RangeInclusive<u64>) -> Vec<usize> {
        let mut all: Vec<usize> = (0..NODES).collect();
        let count = self.rng.number(count) as usize;
        (0..count).map(|_| all.swap_remove(self.rng.index(all.len()))).collect()
    }
}

#[cfg(test)]
mod tests;
