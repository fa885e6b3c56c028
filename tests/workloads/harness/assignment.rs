use super::LeftOut;
use crate::work::Work;
use quorate::redis::{RedisNode, RedisSession};
use quorate::{
    QuorumConfig,
    node::{Cause, Hello, PushSender},
    quorum::Quorum,
};
use serde::{Deserialize, Serialize};
use std::{error::Error, process::Command, time::Duration};

/// The first argument of this program when it is started as a worker.
const ARGUMENT: &str = "__worker";

/// A server, with the name that all workers use for it and the URL over which this worker reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) url: String,
}

/// The settings with which a worker process is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// The worker's number.
    pub(crate) member: usize,
    /// The number of times that the worker has been started.
    pub(crate) run: u32,
    /// The seed of the worker's random choices.
    pub(crate) seed: u64,
    pub(crate) nodes: Vec<Node>,
    /// The TTL of every lease, term and claim.
    pub(crate) ttl: Duration,
    /// The longest TTL of the deployment.
    pub(crate) max_ttl: Duration,
    /// True if the servers keep their data across a restart.
    pub(crate) durable: bool,
    /// True if new nodes vote at once. This is safe only if no node ever loses its data.
    pub(crate) trust_new_nodes: bool,
    /// The safety mechanism that the worker leaves out, if any.
    pub(crate) left_out: Option<LeftOut>,
    pub(crate) work: Work,
}

impl Assignment {
    /// Returns the assignment of worker 0 in a plan whose nodes never lose their data.
    pub(crate) fn new(nodes: Vec<Node>, ttl: Duration, work: Work) -> Self {
        let (max_ttl, durable, trust_new_nodes) = (ttl, false, true);
        let left_out = None;
        Self { member: 0, run: 0, seed: 0, nodes, ttl, max_ttl, durable, trust_new_nodes, left_out, work }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.arg(ARGUMENT).arg(serde_json::to_string(self).expect("plain fields"));
        command
    }

    /// Reads the assignment from the arguments of this process. Returns `None` if this process is not a worker.
    ///
    /// # Panics
    ///
    /// If the argument cannot be parsed.
    pub(crate) fn from_arguments() -> Option<Self> {
        let mut arguments = std::env::args().skip(1);
        (arguments.next()? == ARGUMENT).then(|| {
            let text = arguments.next().unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{ARGUMENT} {text:?}: {error}"))
        })
    }

    /// Returns the name of this run of the worker.
    pub(crate) fn name(&self) -> String {
        format!("worker-{}.{}", self.member, self.run)
    }

    /// Returns the quorum of these nodes. Requires a runtime.
    ///
    /// # Errors
    /// If a URL or a duration is invalid.
    pub(crate) fn quorum(&self) -> Result<Quorum, Box<dyn Error>> {
        let nodes: Result<Vec<_>, _> = self.nodes.iter().map(RoutedNode::new).collect();
        let (max_ttl, durable, trust_new_nodes) = (self.max_ttl, self.durable, self.trust_new_nodes);
        let mut config = QuorumConfig {
            worker: self.name().into(),
            max_ttl,
            durable,
            trust_new_nodes,
            ..QuorumConfig::default()
        };
        if let Some(left_out) = self.left_out {
            left_out.leave_out(&mut config);
        }
        Ok(Quorum::builder().config(config).nodes(nodes?).build()?)
    }
}

/// A node that has the name that all workers use, but its own URL. That URL may lead to a proxy for this worker
/// only.
struct RoutedNode {
    name: String,
    node: RedisNode,
}

impl RoutedNode {
    fn new(Node { name, url }: &Node) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            name: quorate::node::Node::name(&RedisNode::parse(name)?).to_owned(),
            node: RedisNode::parse(url)?,
        })
    }
}

impl quorate::node::Node for RoutedNode {
    type Session = RedisSession;

    fn name(&self) -> &str {
        &self.name
    }

    async fn open(&self, push_sender: PushSender) -> Result<(RedisSession, Hello), Cause> {
        self.node.open(push_sender).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_parses_what_the_director_passes() {
        let node = |n: u16| Node {
            name: format!("redis://127.0.0.1:{n}"),
            url: format!("redis://127.0.0.1:{}", n + 1),
        };
        let assignment = Assignment::new(
            vec![node(1), node(7)],
            Duration::from_millis(1500),
            Work::Soak { epoch: 5, stores: Vec::new() },
        );
        let command = assignment.command();
        let text = command.get_args().nth(1).and_then(|text| text.to_str()).unwrap();
        assert_eq!(serde_json::from_str::<Assignment>(text).unwrap(), assignment);
    }
}
