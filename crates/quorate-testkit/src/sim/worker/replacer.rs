//! The operator who replaces the node set ([`NodeChange`]).

use crate::sim::{
    Event, Host, Link, Machine, NodeChange, NodeList, Referee, SeedRng, Server, SimNode, SimWorld, Trace,
    Truth,
    node_change::{CommandCrash, CrashPoint},
};
use quorate::{
    admin::{Found, NodePart, NodeSet, Part, Progress, ReplaceError, Replacement},
    env::Env,
    internals::Marker,
    quorum::QuorumConfig,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// The time after which the operator runs a command again that has failed, or that has left servers closed.
const AGAIN_AFTER: Duration = Duration::from_millis(400);

/// The progress of the replacement, as far as the rest of the simulation must know it.
#[derive(Debug, Default)]
pub(in super::super) struct ChangeState {
    are_joining_closed: AtomicBool,
    is_over: AtomicBool,
}

impl ChangeState {
    /// Returns `true` if the command has reported that every joining server is closed, or that a later step is done.
    pub(in super::super) fn are_joining_closed(&self) -> bool {
        self.are_joining_closed.load(Ordering::Relaxed)
    }

    /// Returns `true` if every server of the new set is open.
    pub(in super::super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The operator. Runs the command until the node set is replaced.
#[derive(Debug)]
pub(in super::super) struct Replacer {
    pub(in super::super) truth: Truth,
    pub(in super::super) trace: Trace,
    pub(in super::super) referee: Arc<Referee>,
    pub(in super::super) machine: Arc<Machine>,
    /// The links of the operator's machine.
    pub(in super::super) links: Vec<Arc<Link>>,
    pub(in super::super) servers: Vec<Arc<Server>>,
    pub(in super::super) setup: QuorumConfig,
    pub(in super::super) seed: u64,
    pub(in super::super) change: NodeChange,
    pub(in super::super) state: Arc<ChangeState>,
}

/// The result of the command, and the number of steps that it has reported.
#[derive(Debug, Default)]
struct CommandState {
    steps: AtomicUsize,
    closed: Mutex<BTreeSet<Arc<str>>>,
    result: Mutex<Option<Result<Vec<NodePart>, ReplaceError>>>,
    changed: Notify,
}

impl Replacer {
    /// Runs the command, lets it crash as the seed decides, and runs it again until every server of the new set is
    /// open.
    pub(in super::super) async fn work(self) {
        self.truth.reach(self.change.begins).await;
        let mut crashes = self.change.crashes.iter();
        let mut runs = 0;
        while !self.state.is_over() {
            runs += 1;
            let crash = if self.referee.is_calm() { None } else { crashes.next() };
            self.run_command(runs, crash).await;
        }
    }

    async fn run_command(&self, run: u64, crash: Option<&CommandCrash>) {
        let host = Host::start("operator", self.truth, Arc::clone(&self.machine));
        let rng = SeedRng::new(self.seed, &format!("replacement {run}"));
        let env = Env::new(Arc::new(SimWorld::new(Arc::clone(&host), rng)));
        let (old, new) = (self.set(&host, &self.change.old), self.set(&host, &self.change.new));
        let command = match Replacement::new(env.clone(), self.setup.clone(), old, new) {
            Ok(command) => command,
            Err(error) => return self.referee.fail(&format!("the replacement cannot be prepared: {error}")),
        };
        let state = Arc::<CommandState>::default();
        let (theirs, joining, ours) = (Arc::clone(&state), self.joining(), Arc::clone(&self.state));
        env.spawn(async move {
            let result = command.run(|progress| theirs.report(&progress, &joining, &ours)).await;
            theirs.result.lock().unwrap_or_else(PoisonError::into_inner).replace(result);
            theirs.changed.notify_one();
        });
        let crashed = self.wait(&state, crash).await;
        if let Some(crash) = crashed {
            self.referee.count("replacement crashed");
            host.crash();
            // The runtime drops the task of the process only when it polls the task next.
            self.truth.pass(Duration::from_millis(1)).await;
            self.gone(&host, &env);
            self.truth.pass(crash.pause).await;
            return;
        }
        env.finish().await;
        self.gone(&host, &env);
        let result = state.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        match result {
            Some(Ok(parts)) => self.replaced(&parts),
            Some(Err(error)) => self.refused(&error),
            None => self.referee.fail("the replacement ended without a result"),
        }
        if !self.state.is_over() {
            self.truth.pass(AGAIN_AFTER).await;
        }
    }

    /// Waits until the command has ended, or until the moment of its crash. Returns the crash in the second case.
    async fn wait<'a>(
        &self,
        state: &CommandState,
        crash: Option<&'a CommandCrash>,
    ) -> Option<&'a CommandCrash> {
        let time = match crash {
            Some(CommandCrash { at: CrashPoint::Time(time), .. }) => *time,
            _ => Duration::MAX,
        };
        let steps = match crash {
            Some(CommandCrash { at: CrashPoint::Steps(steps), .. }) => *steps,
            _ => usize::MAX,
        };
        let until = self.truth.now().saturating_add(time);
        loop {
            if state.steps.load(Ordering::Relaxed) >= steps {
                return crash;
            }
            if state.result.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return None;
            }
            tokio::select! { biased;
                () = state.changed.notified() => {}
                () = self.truth.reach(until), if time < Duration::MAX => return crash,
            }
        }
    }

    fn replaced(&self, parts: &[NodePart]) {
        let new = || self.change.new.servers().iter().map(|server| &self.servers[*server]);
        let markers: Vec<_> = new().map(|server| server.marker()).collect();
        let has_lost = |server: &&Arc<Server>| {
            let lost_at = server.view().forgot_at();
            server.marker().is_none() && lost_at.is_some_and(|at| at > self.change.begins)
        };
        let lost = new().filter(has_lost).count();
        let nodes = Marker::node_set(&self.change.new.names().collect::<Vec<_>>());
        self.referee.judge(&Event::Replaced { markers: &markers, lost, nodes: &nodes });
        let is_open = |part: &NodePart| part.part == Part::Leaves || matches!(part.found, Ok(Found::New));
        let all = parts.iter().all(is_open);
        self.referee.count(if all { "node set replaced" } else { "node set replaced in part" });
        self.state.is_over.store(all, Ordering::Relaxed);
    }

    fn refused(&self, error: &ReplaceError) {
        self.referee.note(format_args!("the replacement has failed: {error}"));
        self.referee.count(match error {
            ReplaceError::NewNodeAway { .. } => "replacement: a new node is away",
            ReplaceError::NotClosed { .. } => "replacement: not closed",
            ReplaceError::NotOpened { .. } => "replacement: not opened",
            _ => return self.referee.fail(&format!("the replacement is refused: {error}")),
        });
    }

    fn gone(&self, host: &Host, env: &Env) {
        let (tasks, panics) = (host.tasks_alive() + env.tasks_alive(), host.take_panics());
        self.referee.tell(&Event::Ended { worker: host.name(), tasks, panics: &panics });
    }

    fn joining(&self) -> BTreeSet<Arc<str>> {
        NodeList::new(true, self.change.joining()).names().collect()
    }

    fn set(&self, host: &Arc<Host>, list: &NodeList) -> NodeSet {
        list.servers().iter().fold(NodeSet::default(), |set, &server| {
            let (link, server) = (Arc::clone(&self.links[server]), Arc::clone(&self.servers[server]));
            set.node(SimNode::new(self.truth, Arc::clone(host), link, server, self.trace.clone()))
        })
    }
}

impl CommandState {
    fn report(&self, progress: &Progress, joining: &BTreeSet<Arc<str>>, change: &ChangeState) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = match progress {
            Progress::Closed(node) => {
                closed.insert(Arc::clone(node));
                joining.is_subset(&closed)
            }
            Progress::Waiting(_) | Progress::Opened(_) => true,
            _ => false,
        };
        if passed {
            change.are_joining_closed.store(true, Ordering::Relaxed);
        }
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }
}
