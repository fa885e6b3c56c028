use super::NODES;
use crate::{
    connect,
    exit::{FAILURE, Failure, NO_QUORUM},
};
use quorate::{
    node::FileNode,
    quorum::{NodeState, Quorum, QuorumConfig},
};
use quorate_redis::RedisNode;
use std::{ffi::OsString, path::Path, time::Duration};

/// How long the nodes may take to be met.
const PATIENCE: Duration = Duration::from_secs(5);

/// The demo's five nodes.
#[derive(Clone, Debug)]
pub(crate) enum Nodes {
    /// Directories beside each other.
    Files,
    /// Redis servers on these loopback ports.
    Redis(Vec<u16>),
}

impl Nodes {
    /// A quorum on the nodes, for the worker of this name.
    pub(crate) fn quorum(&self, dir: &Path, worker: &str) -> Result<Quorum, Failure> {
        let setup = QuorumConfig { worker: worker.into(), ..QuorumConfig::default() };
        let builder = Quorum::builder().config(setup);
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

    /// The demo's own quorum, once every node has been met. The nodes are new and nobody has used them, so
    /// the wait for what they might have forgotten serves nothing: they are admitted.
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
        Err(Failure::new(NO_QUORUM, format!("the nodes cannot be used: {}", connect::explain(&nodes))))
    }

    /// The ports, as a worker's last arguments; none for files.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        match self {
            Self::Files => Vec::new(),
            Self::Redis(ports) => ports.iter().map(|port| port.to_string().into()).collect(),
        }
    }

    /// What [`Nodes::to_args`] gave.
    pub(crate) fn from_args(args: impl Iterator<Item = OsString>) -> Option<Self> {
        let ports: Option<Vec<u16>> = args.map(|port| port.to_str()?.parse().ok()).collect();
        let ports = ports?;
        Some(if ports.is_empty() { Self::Files } else { Self::Redis(ports) })
    }

    /// As the summary has it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Files => "file",
            Self::Redis(_) => "redis",
        }
    }
}
