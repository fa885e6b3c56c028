use super::settings::NODES;
use crate::{
    connect,
    exit::{FAILURE, Failure, NO_QUORUM},
};
use quorate::redis::RedisNode;
use quorate::{
    node::FileNode,
    quorum::{NodeState, Quorum, QuorumConfig},
};
use std::{ffi::OsString, path::Path, time::Duration};

/// The longest wait for the handshakes with the nodes.
const PATIENCE: Duration = Duration::from_secs(5);

/// The five nodes of the demo.
#[derive(Clone, Debug)]
pub(crate) enum Nodes {
    /// Directories next to each other.
    Files,
    /// Redis servers on these loopback ports.
    Redis(Vec<u16>),
}

impl Nodes {
    /// Returns a quorum on the nodes, for the worker with this name.
    pub(crate) fn quorum(&self, dir: &Path, worker: &str) -> Result<Quorum, Failure> {
        let settings = QuorumConfig { worker: worker.into(), ..QuorumConfig::default() };
        let builder = Quorum::builder().config(settings);
        let builder = match self {
            Self::Files => builder.nodes((1..=NODES).map(|n| FileNode::new(dir.join(format!("node-{n}"))))),
            Self::Redis(ports) => {
                let parse = |port| RedisNode::parse(&format!("redis://127.0.0.1:{port}"));
                let nodes: Result<Vec<_>, _> = ports.iter().map(parse).collect();
                builder.nodes(nodes.map_err(|error| Failure::new(FAILURE, error))?)
            }
        };
        builder.build().map_err(|error| Failure::new(FAILURE, error))
    }

    /// Returns the demo's own quorum, after a handshake with every node. The nodes are new, so they cannot have
    /// lost leases. Therefore they are trusted at once, without a quarantine.
    pub(crate) async fn admitted(&self, dir: &Path) -> Result<Quorum, Failure> {
        let quorum = self.quorum(dir, "demo")?;
        let met = quorum.met(PATIENCE).await;
        let admitted = quorum.trust_nodes().await;
        let nodes = quorum.nodes();
        if admitted.is_ok() && nodes.iter().all(|node| node.state == NodeState::Trusted) {
            return Ok(quorum);
        }
        quorum.close().await;
        let nodes = if admitted.is_ok() { nodes } else { met };
        Err(Failure::new(NO_QUORUM, format!("cannot use the nodes: {}", connect::explain(&nodes))))
    }

    /// Returns the ports as the last arguments of a worker. Returns no arguments for directories.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        match self {
            Self::Files => Vec::new(),
            Self::Redis(ports) => ports.iter().map(|port| port.to_string().into()).collect(),
        }
    }

    /// Parses the arguments from [`Nodes::to_args`].
    pub(crate) fn from_args(args: impl Iterator<Item = OsString>) -> Option<Self> {
        let ports: Option<Vec<u16>> = args.map(|port| port.to_str()?.parse().ok()).collect();
        let ports = ports?;
        Some(if ports.is_empty() { Self::Files } else { Self::Redis(ports) })
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Files => "file",
            Self::Redis(_) => "redis",
        }
    }
}
