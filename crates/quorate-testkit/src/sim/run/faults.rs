//! Carries out the faults of a scenario on the simulated workers, servers and links.

use super::{Process, Run};
use crate::sim::{
    Directions, Fault, Halves, Memory, Parted, Referee, Server,
    scenario::{NODES, WORKERS},
};
use quorate::{
    env::Env,
    internals::Marker,
    quorum::{NodeState, Quorum, SettingMismatch, SharedSettings, VoteRejection},
};
use std::{sync::Arc, time::Duration};

impl Run {
    /// Carries out `fault`. Does nothing if the fault is not possible in the present state, for example if
    /// the server to crash is already down.
    pub(super) fn inject(&mut self, fault: Fault) {
        if !self.apply(fault) {
            return;
        }
        self.trace.note(format_args!("FAULT {fault:?}"));
        self.referee.count(fault.kind());
        self.referee.look();
    }

    fn apply(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Road(worker, node, open) => self.links[worker][node].set_open(open),
            Fault::Partition(halves, parted) => self.part(halves, parted),
            Fault::Tear(node) => self.servers[node].tear(|_| true),
            Fault::StopServer(node) => self.servers[node].set_awake(false),
            Fault::ResumeServer(node) => self.servers[node].set_awake(true),
            Fault::CrashServer(node) if !self.down[node] => {
                self.down[node] = true;
                self.servers[node].crash();
            }
            Fault::StartServer(node, memory) if self.down[node] => {
                self.down[node] = false;
                let is_unnoticed = memory == Memory::Snapshot && !self.would_notice_rollback(node);
                if memory == Memory::Snapshot && self.plan.setup.durable && !is_unnoticed {
                    self.referee.count("durable server rolled back");
                }
                self.servers[node].restart(if is_unnoticed { Memory::Kept } else { memory });
            }
            Fault::ReplaceServer(node, clock) if !self.down[node] => self.servers[node].replace(clock),
            Fault::FlushServer(node) if !self.down[node] => self.servers[node].flush(),
            Fault::StepServer(node, by) => self.servers[node].step(by),
            Fault::StandServer(node) => self.servers[node].set_clock_running(false),
            Fault::UnstandServer(node) => self.servers[node].set_clock_running(true),
            other => return self.apply_to_worker(other),
        }
        true
    }

    /// Returns `true` if a majority of the servers, without this one, knows that its latest snapshot is not its latest
    /// data. So every worker that reaches a majority asks one of them. If the server is durable, a snapshot that is
    /// younger than the last stamps may remain unnoticed, and that is no error.
    fn would_notice_rollback(&self, node: usize) -> bool {
        let server = &self.servers[node];
        let knows = |other: &&Arc<Server>| other.stamp_of(server.name()) > server.stamp_in_snapshot();
        let others = self.servers.iter().filter(|other| other.name() != server.name());
        !self.plan.setup.durable || others.filter(knows).count() > NODES / 2
    }

    fn apply_to_worker(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::PauseWorker(worker) => self.with(worker, |process| process.host.pause()),
            Fault::ResumeWorker(worker) => self.with(worker, |process| process.host.resume()),
            Fault::StepWorker(worker, by) => self.machines[worker].step_wall(by),
            Fault::StandWorker(worker) => self.machines[worker].stand(),
            Fault::FreezeWorker(worker) => {
                self.machines[worker].freeze();
                self.with(worker, |process| process.host.freeze());
            }
            Fault::UnfreezeWorker(worker) => {
                self.machines[worker].go_on();
                self.with(worker, |process| process.host.unfreeze());
            }
            Fault::SleepWorker(worker) => {
                self.machines[worker].fall_asleep();
                self.with(worker, |process| process.host.fall_asleep());
            }
            Fault::WakeWorker(worker) => {
                self.machines[worker].wake();
                self.with(worker, |process| process.host.wake());
            }
            Fault::CrashWorker(worker) if self.workers[worker].is_some() => self.crash_worker(worker),
            Fault::StartWorker(worker, mistake) if self.workers[worker].is_none() => {
                // The machine may be frozen or asleep. A process can start only on a machine that runs.
                self.machines[worker].go_on();
                self.machines[worker].wake();
                self.start_worker(worker, mistake);
            }
            Fault::GiveNewList(worker) => self.given_new_list[worker] = true,
            _ => return false,
        }
        true
    }

    /// Deletes the markers that a mistaken worker set on servers that had lost their own marker. Other
    /// workers would not count the votes of a server with such a marker. In practice an operator deletes the
    /// marker. A worker must not delete it.
    pub(super) fn delete_foreign_markers(&mut self) {
        if self.scenario.change.is_some() {
            // In such a seed no server forgets on which a worker could write such a marker.
            return;
        }
        let names: Vec<Arc<str>> = self.servers.iter().map(|server| server.name().into()).collect();
        let (nodes, settings) = (Marker::node_set(&names), SharedSettings::of(&self.plan.setup));
        for node in 0..NODES {
            let marker = self.servers[node].marker().and_then(|text| Marker::parse(&text).ok());
            if marker.is_some_and(|marker| marker.nodes != nodes || marker.settings != settings) {
                self.referee.count("foreign marker deleted");
                self.inject(Fault::CrashServer(node));
                self.inject(Fault::StartServer(node, Memory::Empty));
            }
        }
    }

    /// Cuts, breaks or restores every link between the halves.
    fn part(&self, halves: Halves, parted: Parted) {
        let open = parted == Parted::Healed;
        for node in 0..self.servers.len() {
            let apart = |worker: usize| halves.workers[worker] != halves.nodes[node % NODES];
            for worker in (0..WORKERS).filter(|&worker| apart(worker)) {
                self.links[worker][node].set_open(Directions { there: open, back: open });
            }
            if parted == Parted::Torn {
                let names: Vec<_> =
                    self.workers.iter().enumerate().filter(|(worker, _)| apart(*worker)).collect();
                let names = names.into_iter().filter_map(|(_, process)| process.as_ref());
                let names: Vec<_> = names.map(|process: &Process| Arc::clone(process.host.name())).collect();
                self.servers[node].tear(|worker| names.iter().any(|name| **name == *worker));
            }
        }
    }
}

/// The time between two checks for the refusal of a mistaken worker.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until the nodes refuse a process that was started with a [`Mistake`](crate::sim::Mistake), and counts
/// the refusal. Checks that the error names both the stored value and the value of the process.
pub(super) async fn watch_mistake(env: Env, quorum: Quorum, referee: Arc<Referee>) {
    while !env.stopped().is_cancelled() {
        let refused = quorum.nodes().into_iter().find_map(|node| match node.state {
            // A node is rejected in one of these two ways only because of the rejections of other nodes. The
            // rejections of the other nodes have the reason that this check looks for.
            NodeState::Refused(VoteRejection::Contradicted { .. } | VoteRejection::TooFewMet { .. }) => None,
            // The clocks are a fault of the simulation, and no mistake of the process.
            NodeState::Refused(VoteRejection::Clock { .. }) => None,
            NodeState::Refused(why) => Some(why),
            _ => None,
        });
        if let Some(why) = refused {
            let (theirs, ours) = match &why {
                VoteRejection::OtherNodeSet { theirs, ours } => (theirs.to_string(), ours.to_string()),
                VoteRejection::OtherSetting(SettingMismatch { theirs, ours, .. }) => {
                    (theirs.to_string(), ours.to_string())
                }
                other => return referee.fail(&format!("a mistaken worker is refused with: {other}")),
            };
            let text = why.to_string();
            if theirs == ours || !text.contains(&theirs) || !text.contains(&ours) {
                return referee.fail(&format!("{text:?} does not name {theirs} and {ours}"));
            }
            return referee.count("mistake refused");
        }
        env.sleep(LOOK_EVERY).await;
    }
}
