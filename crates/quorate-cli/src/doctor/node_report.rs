use quorate::redis::{Examination, Look};
use quorate::{
    env::WallTime,
    ledger::LedgerCopies,
    node::Cause,
    quorum::{NodeState, QuorumConfig},
};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// The facts about all nodes, which the checks judge.
#[derive(Debug)]
pub(super) struct NodeReport {
    pub(super) settings: QuorumConfig,
    /// The TTL of the leader's lease.
    pub(super) ttl: Duration,
    pub(super) prefix: Arc<str>,
    pub(super) nodes: Vec<ExaminedNode>,
    /// The copies of the records of the group's jobs, if there are any.
    pub(super) copies: Option<LedgerCopies>,
    /// The jobs that no live worker can run, each with the reason.
    pub(super) waiting: Vec<(Arc<str>, Arc<str>)>,
    /// The files with passwords and keys of the nodes.
    pub(super) secrets: BTreeMap<PathBuf, SecretFile>,
}

/// A file that other users should not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretFile {
    /// The configuration key that names the file.
    pub(super) key: &'static str,
    /// The permissions of the file.
    pub(super) mode: u32,
}

/// One node.
#[derive(Debug)]
pub(super) struct ExaminedNode {
    pub(super) name: String,
    /// The state of the node for a worker with this configuration.
    pub(super) state: NodeState,
    pub(super) kind: NodeKind,
}

/// The kind of a node, and the facts about it.
#[derive(Debug)]
pub(super) enum NodeKind {
    /// A Redis server, with its answers, or with the reason why it did not answer.
    Redis(Result<Box<Examined>, Cause>),
    /// A directory.
    Directory,
}

/// The answers of a server.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) examination: Examination,
    /// The node's time minus the wall clock of this machine, in microseconds, and the possible
    /// error of that value.
    pub(super) offset: Option<(i128, i128)>,
}

impl Examined {
    /// Returns the answers of a server. `wall` is the time of this machine's wall clock when its
    /// boot clock showed `boot_nanos`.
    pub(super) fn new(examination: Examination, wall: WallTime, boot_nanos: u64) -> Self {
        let wall = i128::from(wall.as_micros());
        let micros = |nanos: u64| i128::from(nanos) / 1_000;
        let offset = quickest(&examination.looks).map(|look| {
            let half = micros(look.sent.until(look.received).as_nanos() as u64) / 2;
            // The time that this machine's wall clock showed in the middle of the round trip. The node's time
            // is compared with it.
            let ours = wall + micros(look.sent.as_nanos()) + half - micros(boot_nanos);
            (i128::from(look.node_time.as_micros()) - ours, half)
        });
        Self { examination, offset }
    }

    /// Returns the shortest round trip.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        quickest(&self.examination.looks).map(|look| look.sent.until(look.received))
    }

    /// Returns the longest round trip.
    pub(super) fn slowest(&self) -> Option<Duration> {
        self.examination.looks.iter().map(|look| look.sent.until(look.received)).max()
    }

    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.examination.info.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a field of INFO that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.examination.settings.get(name).map(String::as_str)
    }
}

fn quickest(looks: &[Look]) -> Option<Look> {
    looks.iter().copied().min_by_key(|look| look.sent.until(look.received))
}
