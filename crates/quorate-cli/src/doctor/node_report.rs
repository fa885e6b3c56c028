use quorate::{
    env::WallTime,
    node::Cause,
    quorum::{NodeState, QuorumConfig},
};
use quorate_redis::{Examination, Look};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// Everything that was found out, for the checks to judge.
#[derive(Debug)]
pub(super) struct NodeReport {
    pub(super) settings: QuorumConfig,
    /// The TTL of the leadership's lease.
    pub(super) ttl: Duration,
    pub(super) prefix: Arc<str>,
    pub(super) nodes: Vec<ExaminedNode>,
    /// The files with the nodes' passwords and keys.
    pub(super) secrets: BTreeMap<PathBuf, SecretFile>,
}

/// A file that others should not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretFile {
    /// The key of the configuration that names it.
    pub(super) key: &'static str,
    /// Its permissions.
    pub(super) mode: u32,
}

/// One node.
#[derive(Debug)]
pub(super) struct ExaminedNode {
    pub(super) name: String,
    /// How it stands with a worker of this configuration.
    pub(super) state: NodeState,
    pub(super) kind: NodeKind,
}

/// What kind of node, and what it examination.
#[derive(Debug)]
pub(super) enum NodeKind {
    /// A Redis server; our wall clock beside its own, where it answered.
    Redis(Result<Box<Examined>, Cause>),
    /// A directory.
    Directory,
}

/// A server's answers.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) examination: Examination,
    /// (Node time − our wall clock), in microseconds, and by how much that may be wrong.
    pub(super) offset: Option<(i128, i128)>,
}

impl Examined {
    /// `wall` is what our wall clock showed when our boot clock showed the time of `boot_nanos`.
    pub(super) fn new(examination: Examination, wall: WallTime, boot_nanos: u64) -> Self {
        let wall = i128::from(wall.as_micros());
        let micros = |nanos: u64| i128::from(nanos) / 1_000;
        let offset = quickest(&examination.looks).map(|look| {
            let half = micros(look.sent.until(look.received).as_nanos() as u64) / 2;
            // Our wall clock in the middle of the question.
            let ours = wall + micros(look.sent.as_nanos()) + half - micros(boot_nanos);
            (i128::from(look.node_time.as_micros()) - ours, half)
        });
        Self { examination, offset }
    }

    /// The quickest round trip.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        quickest(&self.examination.looks).map(|look| look.sent.until(look.received))
    }

    /// The slowest.
    pub(super) fn slowest(&self) -> Option<Duration> {
        self.examination.looks.iter().map(|look| look.sent.until(look.received)).max()
    }

    /// A field of INFO.
    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.examination.info.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A field of INFO that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    /// A setting, as CONFIG GET tells it.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.examination.settings.get(name).map(String::as_str)
    }
}

fn quickest(looks: &[Look]) -> Option<Look> {
    looks.iter().copied().min_by_key(|look| look.sent.until(look.received))
}
