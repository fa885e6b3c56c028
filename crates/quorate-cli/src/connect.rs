use crate::{
    config::{Config, NodeSpec, SecretUrl, TlsFiles},
    exit::{CONFIG, Failure},
};
use quorate::{
    admin::NodeSet,
    internals::majority,
    node::FileNode,
    quorum::{NodeState, NodeStatus, Quorum, QuorumConfig},
};
use quorate_redis::RedisNode;
use std::{fmt::Write, path::Path};

/// The quorum that the configuration describes.
pub(crate) fn quorum(config: &Config, setup: QuorumConfig) -> Result<Quorum, Failure> {
    let mut builder = Quorum::builder().config(setup);
    for node in &config.nodes {
        builder = match node {
            NodeSpec::File { dir } => builder.node(FileNode::new(dir.clone())),
            NodeSpec::Redis { url, password_file, tls } => {
                builder.node(redis(config, url, password_file.as_deref(), tls)?)
            }
        };
    }
    builder.build().map_err(|error| Failure::new(CONFIG, format!("{}: {error}", config.nodes_from)))
}

/// Nodes that are looked after one by one.
pub(crate) fn node_set(config: &Config, nodes: &[NodeSpec]) -> Result<NodeSet, Failure> {
    nodes.iter().try_fold(NodeSet::default(), |set, node| {
        Ok(match node {
            NodeSpec::File { dir } => set.node(FileNode::new(dir.clone())),
            NodeSpec::Redis { url, password_file, tls } => {
                set.node(redis(config, url, password_file.as_deref(), tls)?)
            }
        })
    })
}

/// One server of the configuration.
pub(crate) fn redis(
    config: &Config,
    url: &SecretUrl,
    password_file: Option<&Path>,
    own: &TlsFiles,
) -> Result<RedisNode, Failure> {
    let node = RedisNode::parse(url.expose()).map_err(|error| Failure::new(CONFIG, error))?;
    let mut node = node.prefix(&config.prefix);
    let TlsFiles { ca_file, client } = own.or(&config.tls);
    if let Some(file) = ca_file {
        node = node.ca_file(file);
    }
    if let Some((certificate, key)) = client {
        node = node.client_certificate(certificate, key);
    }
    Ok(match password_file {
        Some(file) => node.password_file(file),
        None => node,
    })
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
