mod fault_free;
mod faults;
mod locks;
mod node_change;

use super::{
    Directions, Event, Excuse, Fault, Host, Link, Machine, Memory, Mistake, NetworkConditions, NodeList,
    Plan, Referee, Scenario, SeedRng, Server, SimNode, SimWorld, Trace, Truth,
    judged_server::JudgedHooks,
    log_capture::capture_log,
    node_list,
    scenario::{NODES, OPERATOR, WORKERS},
    worker::{
        ChangeState, Duties, Freezer, Inbox, Operator, Outside, PACE, RESOURCES, RuleBook, ShardBook, Sinks,
        Storer, Worker, forcer,
    },
};
use futures_util::future::join_all;
use quorate::{
    env::Env,
    lease::{Lease, TryAcquire},
    node::Owner,
    quorum::{Quorum, QuorumConfig},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Three limits for the end of a run: the time within which the workers must have ended their work, the time
/// within which they have sent releases to servers that were unreachable, and the time within which a quorum
/// must have closed.
const WORK_ENDS_IN: Duration = Duration::from_secs(10);
const RELEASED_IN: Duration = Duration::from_millis(1_700);
const CLOSES_IN: Duration = Duration::from_millis(400);
/// The longest times that a worker may take to acquire a lease in the fault-free phase: the first time, and
/// each later time. The first time is longer. During its first attempt, the worker may learn that nodes lost
/// their data. It then tries again after 100 ms.
const FIRST_ACQUIRE: Duration = Duration::from_millis(350);
const NEXT_ACQUIRE: Duration = Duration::from_millis(30);
/// The number of nodes in the list of a worker with the mistake [`Mistake::FewerNodes`].
const FEWER_NODES: usize = 3;
/// Three workers try to acquire a lock at the same time. This is the longest time until one of them has
/// acquired the lock and the others have noticed it.
const RUSH: Duration = Duration::from_millis(300);

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The events, line by line.
    pub trace: Vec<String>,
    /// For each counted event, the number of times that it happened.
    pub coverage: BTreeMap<String, u64>,
    /// For each excuse that an invariant used, the number of times.
    pub excuses: BTreeMap<Excuse, u64>,
    /// The violations of invariants, each with its time and the name of the invariant.
    pub violations: Vec<String>,
    /// The duration of the run in the true time of the simulation, not in real time.
    pub simulated: Duration,
}

/// Runs the shipped code through the scenario that `seed` draws from `plan`. The run has a runtime of its own,
/// in which time is simulated.
///
/// # Panics
///
/// If no runtime can be created.
pub fn simulate(seed: u64, plan: &Plan) -> Outcome {
    simulate_scenario(Scenario::new(seed, plan), plan, true)
}

/// Runs like [`simulate`], but records no trace. This is faster, and meant for sweeps over many seeds.
///
/// # Panics
///
/// If no runtime can be created.
pub fn simulate_untraced(seed: u64, plan: &Plan) -> Outcome {
    simulate_scenario(Scenario::new(seed, plan), plan, false)
}

/// Runs the shipped code through `scenario`, which need not be the one that its seed draws from `plan`. Records a trace
/// if `traced` is true.
///
/// # Panics
///
/// If no runtime can be created.
pub fn simulate_scenario(scenario: Scenario, plan: &Plan, traced: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    #[expect(clippy::expect_used, reason = "a test-kit that cannot start its runtime has nothing to report")]
    let runtime = runtime.expect("a runtime on this thread");
    runtime.block_on(async move {
        let seed = scenario.seed;
        // A run that panicked on this thread has left its counts.
        Excuse::take_used();
        let truth = Truth::begin();
        let trace = if traced { Trace::new(truth) } else { Trace::none(truth) };
        let referee = Referee::new(truth, trace.clone(), plan.setup.clone());
        if plan.wild_clocks {
            referee.judge_only_what_needs_no_time();
        }
        if plan.far_steps {
            referee.judge_nothing_that_far_steps_change();
        }
        let _capture = capture_log(&trace, &referee);
        if plan.excuse_no_clock {
            referee.excuse_no_clock();
        }
        let mut run = Run::new(scenario, plan.clone(), truth, trace.clone(), Arc::clone(&referee));
        run.start_workers().await;
        run.inject_faults().await;
        run.end_faults();
        if plan.wild_clocks {
            run.stop_work().await;
        } else {
            run.finish_change().await;
            let settled = run.run_fault_free_phase().await;
            run.stop_work().await;
            run.read_histories(settled).await;
            run.prove_liveness().await;
        }
        run.end().await;
        referee.judge(&Event::Over);
        let (violations, coverage) = referee.verdict();
        let excuses = Excuse::take_used();
        Outcome { seed, trace: trace.take(), coverage, excuses, violations, simulated: truth.now() }
    })
}

/// One process of a worker or of the operator.
#[derive(Debug)]
struct Process {
    mistake: Option<Mistake>,
    host: Arc<Host>,
    env: Env,
    quorum: Quorum,
}

struct Run {
    scenario: Scenario,
    plan: Plan,
    truth: Truth,
    trace: Trace,
    referee: Arc<Referee>,
    servers: Vec<Arc<Server>>,
    links: Vec<Vec<Arc<Link>>>,
    machines: Vec<Arc<Machine>>,
    down: Vec<bool>,
    workers: Vec<Option<Process>>,
    /// The node list of each worker's present process, or of its last one.
    lists: [NodeList; WORKERS],
    given_new_list: [bool; WORKERS],
    change_state: Option<Arc<ChangeState>>,
    crashed: Vec<Option<Duration>>,
    started: u64,
    duties: [Duties; WORKERS],
    outside: Arc<Outside>,
    operator: Option<(Process, Operator)>,
}

impl Run {
    fn new(scenario: Scenario, plan: Plan, truth: Truth, trace: Trace, referee: Arc<Referee>) -> Self {
        let server = |(at, clock): (usize, &_)| {
            let name = node_list::name(at);
            let hooks = JudgedHooks::new(Arc::clone(&referee), &plan);
            Server::start(&name, truth, *clock, plan.setup.durable, Arc::new(hooks), None)
        };
        let servers: Vec<_> = scenario.servers.iter().enumerate().map(server).collect();
        referee.watch_servers(&servers);
        let link = |worker: usize, node: usize| {
            let rng = SeedRng::new(scenario.seed, &format!("road {worker} {node}"));
            Arc::new(Link::new(truth, rng, NetworkConditions::CALM))
        };
        let links = (0..=OPERATOR)
            .map(|worker| (0..servers.len()).map(|node| link(worker, node)).collect())
            .collect();
        let machine = |&(boot, wall): &_| Machine::new(truth, boot, wall, plan.naps);
        let machines = scenario.workers.iter().chain([&scenario.operator]).map(machine).collect();
        let workers = (0..WORKERS).map(|_| None).collect();
        let inbox = |pace| Inbox::new(truth, scenario.length, pace);
        let outside = Outside {
            sinks: Arc::<Sinks>::default(),
            inbox: inbox(PACE),
            limited: inbox(PACE * 2),
            shards: ShardBook::default(),
            rules: RuleBook::default(),
        };
        // In seeds in which the node set is replaced, the workers only compete for leases.
        let duties = match scenario.change {
            Some(_) => Default::default(),
            None => Duties::of(scenario.seed, plan.stores),
        };
        Self {
            duties,
            outside: Arc::new(outside),
            down: vec![false; scenario.servers.len()],
            scenario,
            plan,
            truth,
            trace,
            referee,
            servers,
            links,
            machines,
            workers,
            lists: Default::default(),
            given_new_list: [false; WORKERS],
            change_state: None,
            crashed: vec![None; WORKERS],
            started: 0,
            operator: None,
        }
    }

    /// Marks the new servers as trusted, as an operator does with `quorate nodes trust`. After that, starts
    /// the workers.
    async fn start_workers(&mut self) {
        let operator = self.process(0, None);
        operator.quorum.met(Duration::from_secs(1)).await;
        if let Err(error) = operator.quorum.trust_nodes().await {
            self.referee.fail(&format!("cannot trust the new servers: {error}"));
        }
        operator.quorum.close().await;
        for worker in 0..WORKERS {
            self.start_worker(worker, None);
        }
        if self.has_pool() || self.plan.forces {
            self.start_operator();
        }
        self.start_replacer();
    }

    /// Carries out the scenario's faults, one after the other.
    async fn inject_faults(&mut self) {
        self.set_conditions(&self.scenario.weather.clone());
        for (at, fault) in std::mem::take(&mut self.scenario.faults) {
            self.truth.reach(at).await;
            self.inject(fault);
        }
        self.truth.reach(self.scenario.length).await;
    }

    /// Ends every fault that is still active.
    fn end_faults(&mut self) {
        self.trace.note(format_args!("the faults end"));
        self.set_conditions(&NetworkConditions::CALM);
        for link in self.links.iter().flatten() {
            link.set_open(Directions { there: true, back: true });
        }
        for node in 0..self.servers.len() {
            self.inject(Fault::ResumeServer(node));
            let keeps = self.plan.wild_clocks || self.plan.far_steps || self.scenario.change.is_some();
            let memory = if keeps { Memory::Kept } else { Memory::Empty };
            self.inject(Fault::StartServer(node, memory));
            self.inject(Fault::UnstandServer(node));
        }
        for worker in 0..WORKERS {
            self.inject(Fault::UnfreezeWorker(worker));
            self.inject(Fault::WakeWorker(worker));
            self.machines[worker].set_wall_right();
            self.inject(Fault::ResumeWorker(worker));
            if self.workers[worker].as_ref().is_some_and(|process| process.mistake.is_some()) {
                self.inject(Fault::CrashWorker(worker));
            }
            self.inject(Fault::StartWorker(worker, None));
        }
        self.delete_foreign_markers();
        self.referee.end_faults();
    }

    /// Asks the workers and the operator to end their work, and waits until they have done so.
    async fn stop_work(&mut self) {
        let limit = self.truth.now() + WORK_ENDS_IN;
        let operator = self.operator.as_ref().map(|(process, _)| process);
        for process in self.workers.iter().flatten().chain(operator) {
            process.env.stopped().cancel();
        }
        while self.workers.iter().flatten().chain(operator).any(|process| process.env.tasks_alive() > 0) {
            if self.truth.now() > limit {
                self.referee.fail("a worker's code hangs");
                return;
            }
            self.truth.pass(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the quarantines are over and the longest TTL has passed. After that, lets every worker
    /// acquire the lease in turn.
    async fn prove_liveness(&mut self) {
        // Workers may still have releases for servers that were unreachable. A worker sends such a release
        // after its back-off and a handshake. The check for leftover keys must come after that.
        self.truth.pass(RELEASED_IN).await;
        let keys_end_in = keys_of_a_crashed_worker_end_in(&self.plan.setup);
        let long_ago = self.truth.now().saturating_sub(keys_end_in);
        let lives = |worker: usize| self.crashed[worker].is_none_or(|crashed| crashed < long_ago);
        self.check_for_leftover_keys(|owner| {
            let ours = (0..WORKERS).any(|worker| lives(worker) && owner == format!("w{worker}"));
            !Excuse::LeftoversCrashed.excuses(!ours)
        });
        let served = self.plan.setup.quarantine().mul_f64(1.0 + self.plan.setup.drift_rate);
        // A driver may have been in back-off for up to a second before it reached its server again. The
        // server's quarantine began only then.
        self.truth.pass(served + Duration::from_millis(1_500)).await;
        self.check_for_leftover_keys(|_| true);
        for turn in 0..2 * WORKERS {
            let Some(process) = &self.workers[turn % WORKERS] else { continue };
            let bound = if turn < WORKERS { FIRST_ACQUIRE } else { NEXT_ACQUIRE };
            let lock = process.quorum.lock(RESOURCES[0]).ttl(Duration::from_secs(2)).wait(bound * 10);
            if turn >= WORKERS {
                self.give_up(turn).await;
            }
            let began = self.truth.now();
            let got = lock.acquire().await;
            let took = self.truth.now() - began;
            let token = got.as_ref().map(|lease| lease.unchecked_token().get()).map_err(ToString::to_string);
            let worker = process.host.name();
            self.referee.tell(&Event::Calm { worker, took, bound, got: token });
            let Ok(lease) = got else { continue };
            let held = self.referee.granted(&process.host, lease);
            self.truth.pass(Duration::from_millis(50)).await;
            self.referee.look();
            if let Some(lease) = held.take().and_then(Arc::into_inner)
                && let Err(error) = lease.release().await
            {
                self.referee.fail(&format!("a release in the fault-free phase: {error}"));
            }
        }
        self.contend().await;
        self.prove_locks().await;
    }

    /// Lets all workers try to acquire a lock at the same moment. If the votes are split between the workers,
    /// they try again. One of them must acquire the lock.
    async fn contend(&self) {
        let began = self.truth.now();
        let attempts = self.workers.iter().flatten().map(|process| async move {
            let lock = process.quorum.lock(RESOURCES[1]).ttl(Duration::from_secs(2));
            match lock.try_acquire().await {
                Ok(TryAcquire::Acquired(lease)) => Some(lease),
                _ => None,
            }
        });
        let got: Vec<Lease> = join_all(attempts).await.into_iter().flatten().collect();
        let (took, bound) = (self.truth.now() - began, RUSH);
        let got = got.first().map(|lease| lease.unchecked_token().get());
        let got = got.ok_or_else(|| "all tried at once, and no worker acquired".to_owned());
        self.referee.tell(&Event::Calm { worker: "one of all", took, bound, got });
        self.truth.pass(Duration::from_millis(20)).await;
    }

    /// Lets the next worker drop an attempt to acquire at a random moment. The keys that the attempt has set
    /// must soon be gone.
    async fn give_up(&self, turn: usize) {
        let Some(process) = &self.workers[(turn + 1) % WORKERS] else { return };
        let lock = process.quorum.lock(RESOURCES[0]).ttl(Duration::from_secs(2));
        let moment = Duration::from_millis(turn as u64 % 5);
        tokio::select! { biased;
            // If the attempt succeeds before `moment`, its lease is dropped.
            _ = lock.try_acquire() => {}
            () = self.truth.pass(moment) => {}
        }
        self.truth.pass(Duration::from_millis(20)).await;
    }

    /// Closes all quorums, and checks that no task and no key is left.
    async fn end(&mut self) {
        let operator = self.operator.take().map(|(process, _)| process);
        for process in std::mem::take(&mut self.workers).into_iter().flatten().chain(operator) {
            let began = self.truth.now();
            process.quorum.close().await;
            let took = self.truth.now() - began;
            if took > CLOSES_IN {
                self.referee.fail(&format!("{} took {took:?} to close", process.host.name()));
            }
            process.env.finish().await;
            self.retire(&process);
        }
        if !self.plan.wild_clocks {
            self.check_for_leftover_keys(|_| true);
        }
    }

    // --- helpers ----------------------------------------------------------------------------------------

    fn process(&mut self, worker: usize, mistake: Option<Mistake>) -> Process {
        let seed = self.scenario.seed;
        self.started += 1;
        let host = Host::start(&format!("w{worker}"), self.truth, Arc::clone(&self.machines[worker]));
        let rng = SeedRng::new(seed, &format!("random {worker} {}", self.started));
        let world = SimWorld::new(Arc::clone(&host), rng).oversleeping(self.plan.oversleep);
        let env = Env::new(Arc::new(world));
        let node = |node: usize| {
            let (link, server) = (Arc::clone(&self.links[worker][node]), Arc::clone(&self.servers[node]));
            SimNode::new(self.truth, Arc::clone(&host), link, server, self.trace.clone())
        };
        let mut setup =
            quorate::quorum::QuorumConfig { worker: Arc::clone(host.name()), ..self.plan.setup.clone() };
        let list = self.list_of(worker);
        let mut nodes = list.servers().to_vec();
        match mistake {
            Some(Mistake::FewerNodes(first)) => {
                nodes = (first..first + FEWER_NODES).map(|at| at % NODES).collect();
            }
            Some(Mistake::OtherMaxTtl) => setup.max_ttl += Duration::from_secs(1),
            None => {}
        }
        if self.scenario.change.is_some() {
            self.referee.has_list(&host, list.clone());
            self.referee.count(if list.is_new {
                "started with the new list"
            } else {
                "started with the old list"
            });
        }
        if let Some(known) = self.lists.get_mut(worker) {
            *known = list;
        }
        let nodes = nodes.into_iter().map(node);
        let quorum = Quorum::builder().env(env.clone()).config(setup).nodes(nodes).build();
        #[expect(clippy::expect_used, reason = "the plan is written by hand: a wrong one must stop the test")]
        let quorum = quorum.expect("the plan's setup can be used");
        Process { mistake, host, env, quorum }
    }

    fn start_worker(&mut self, worker: usize, mistake: Option<Mistake>) {
        let process = self.process(worker, mistake);
        if mistake.is_some() {
            process.env.spawn(faults::watch_mistake(
                process.env.clone(),
                process.quorum.clone(),
                Arc::clone(&self.referee),
            ));
        }
        let (seed, label) = (self.scenario.seed, format!("{worker} {}", self.started));
        let code = Worker {
            env: process.env.clone(),
            quorum: process.quorum.clone(),
            host: Arc::clone(&process.host),
            referee: Arc::clone(&self.referee),
            outside: Arc::clone(&self.outside),
            rng: SeedRng::new(seed, &label),
            seed,
            label,
        };
        code.start(self.duties[worker]);
        self.workers[worker] = Some(process);
    }

    /// Returns `true` if some workers run jobs of the second group, to which an operator sends requests.
    fn has_pool(&self) -> bool {
        self.duties.iter().any(|duties| duties.pool)
    }

    fn start_operator(&mut self) {
        let process = self.process(OPERATOR, None);
        let operator = Operator {
            env: process.env.clone(),
            quorum: process.quorum.clone(),
            referee: Arc::clone(&self.referee),
            seed: self.scenario.seed,
            finished: Arc::default(),
            singles: Arc::default(),
        };
        if self.has_pool() {
            process.env.spawn(Freezer::new(operator.clone()).work());
            if self.plan.stores {
                process.env.spawn(Storer::new(operator.clone()).work());
            }
            process.env.spawn(operator.clone().work());
        }
        if self.plan.forces {
            process.env.spawn(forcer::work(operator.clone()));
        }
        self.operator = Some((process, operator));
    }

    fn crash_worker(&mut self, worker: usize) {
        let Some(process) = self.workers[worker].take() else { return };
        self.crashed[worker] = Some(self.truth.now());
        process.host.crash();
        self.referee.process_gone(&process.host);
        // The runtime drops the tasks of the process only when it polls these tasks next. The remaining tasks
        // are therefore counted a millisecond later.
        let (truth, referee) = (self.truth, Arc::clone(&self.referee));
        #[expect(
            clippy::disallowed_methods,
            reason = "who counts the dead is no part of the simulated worker"
        )]
        tokio::spawn(async move {
            truth.pass(Duration::from_millis(1)).await;
            process_gone(&referee, &process);
        });
    }

    fn retire(&self, process: &Process) {
        process_gone(&self.referee, process);
    }

    /// Reports leftover leases to the referee, for each server. `of` receives the resource of a stored lease
    /// and the name of its worker. It returns `true` if the server must no longer store this lease.
    fn check_for_leftover_keys(&self, of: impl Fn(&str) -> bool) {
        for server in &self.servers {
            let mut leases = server.live_leases();
            leases.retain(|(_, owner, _)| of(Owner::from_node(owner).worker()));
            self.referee.tell(&Event::LeftoverLeases { node: server.name(), leases: &leases });
        }
    }

    fn set_conditions(&self, conditions: &NetworkConditions) {
        self.links.iter().flatten().for_each(|link| link.set_conditions(conditions.clone()));
    }

    fn with(&self, worker: usize, act: impl FnOnce(&Process)) {
        if let Some(process) = &self.workers[worker] {
            act(process);
        }
    }
}

/// Returns the longest time for which a server may store a key of a crashed worker. The server runs the
/// worker's last request within the node timeout or not at all. The server measures this timeout by its own
/// clock, which may drift, and step once. The key that the request sets then lasts for the longest TTL.
fn keys_of_a_crashed_worker_end_in(setup: &QuorumConfig) -> Duration {
    (setup.node_timeout + setup.max_ttl).mul_f64(1.0 + setup.drift_rate) + setup.clock_step_allowance
}

fn process_gone(referee: &Referee, process: &Process) {
    referee.process_gone(&process.host);
    let tasks = process.host.tasks_alive() + process.env.tasks_alive() + process.quorum.env().tasks_alive();
    let panics = process.host.take_panics();
    referee.tell(&Event::Ended { worker: process.host.name(), tasks, panics: &panics });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the time for which a server may store a key of a crashed worker. The time must be long enough
    /// for a key that the worker's last request set, and not much longer.
    #[test]
    fn a_crash_excuses_a_key_only_as_long_as_the_last_request_can_have_set_it() {
        let setup = Plan::default().setup;
        let ends_in = keys_of_a_crashed_worker_end_in(&setup);
        assert!(ends_in > setup.max_ttl + setup.node_timeout, "{ends_in:?}");
        assert!(ends_in < setup.max_ttl + Duration::from_millis(300), "{ends_in:?}");
    }
}
