use crate::{
    config::{Config, NodeSpec},
    exit::{CONFIG, Failure},
};
use quorate::{
    lease::Quorum,
    node::FileNode,
    round::{NodeState, NodeStatus, Setup, majority},
};
use quorate_redis::RedisNode;
use std::fmt::Write;

/// The quorum that the configuration describes.
pub(crate) fn quorum(config: &Config, setup: Setup) -> Result<Quorum, Failure> {
    let mut builder = Quorum::builder().setup(setup);
    for node in &config.nodes {
        builder = match node {
            NodeSpec::File { dir } => builder.node(FileNode::new(dir.clone())),
            NodeSpec::Redis { url, password_file } => {
                let redis = RedisNode::parse(url.expose()).map_err(|error| Failure::new(CONFIG, error))?;
                let redis = redis.prefix(&config.prefix);
                builder.node(match password_file {
                    Some(file) => redis.password_file(file),
                    None => redis,
                })
            }
        };
    }
    builder.build().map_err(|error| Failure::new(CONFIG, format!("{}: {error}", config.nodes_from)))
}

/// How many nodes vote.
pub(crate) fn votes(nodes: &[NodeStatus]) -> usize {
    nodes.iter().filter(|node| node.state == NodeState::Trusted).count()
}

/// What keeps a majority from voting, a line a node.
pub(crate) fn explain(nodes: &[NodeStatus]) -> String {
    let mut text =
        format!("{} of {} nodes vote, {} needed", votes(nodes), nodes.len(), majority(nodes.len()));
    for node in nodes {
        let why = match &node.state {
            NodeState::Trusted => continue,
            NodeState::Connecting => "no handshake yet".to_owned(),
            NodeState::Quarantined { why, .. } | NodeState::Refused(why) => why.to_string(),
            NodeState::Unreachable(cause) => cause.to_string(),
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {}: {why}", node.name);
    }
    text
}
