use crate::{
    config::{Config, NodeSpec},
    exit::{CONFIG, Failure},
};
use quorate::{
    lease::Quorum,
    node::FileNode,
    round::{NodeState, NodeStatus, Setup},
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

/// What keeps a majority from voting, a line a node.
pub(crate) fn explain(nodes: &[NodeStatus]) -> String {
    let votes = nodes.iter().filter(|node| node.state == NodeState::Trusted).count();
    let mut text = format!("{votes} of {} nodes vote, {} needed", nodes.len(), nodes.len() / 2 + 1);
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
