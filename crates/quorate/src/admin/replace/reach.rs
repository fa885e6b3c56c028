use crate::{
    env::Env,
    node::{Batch, Cause, Hello, Node, PushSender, Refusal, Reply, Request, Session},
    trust::Marker,
};
use futures_util::future::{BoxFuture, join_all};
use std::{fmt, sync::Arc, time::Duration};

/// A list of nodes for administration. The list needs no quorum: each visit to a node opens a connection of
/// its own.
#[derive(Clone, Default)]
pub struct NodeSet(Vec<Arc<dyn NodeAccess>>);

/// The result of a handshake with a node during a visit for administration.
#[derive(Clone, Debug)]
pub struct NodeVisit {
    /// The node's answer to the handshake: its clock, its marker and its settings.
    pub hello: Hello,
    /// The duration of the handshake, including the connection.
    pub took: Duration,
    /// The time by which the node's wall clock is ahead of this worker's, in microseconds, with an error of
    /// up to [`NodeVisit::took`].
    pub ahead_micros: i64,
}

impl NodeSet {
    /// Adds a node. The nodes of a set may be of different kinds.
    #[must_use]
    pub fn node<N: Node>(mut self, node: N) -> Self {
        self.0.push(Arc::new(At { name: node.name().into(), node }));
        self
    }

    /// Returns the names of the nodes, in their order.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.0.iter().map(|node| Arc::clone(node.name())).collect()
    }

    /// Connects to every node at the same time, for at most `patience`, and returns the handshakes in the
    /// order of the nodes.
    ///
    /// # Cancel safety
    /// Safe: the call only reads.
    pub async fn look(&self, env: &Env, patience: Duration) -> Vec<Result<NodeVisit, Cause>> {
        join_all((0..self.0.len()).map(|at| self.visit(at, env, patience, &|_| None))).await
    }

    pub(super) fn name(&self, at: usize) -> Arc<str> {
        Arc::clone(self.0[at].name())
    }

    pub(super) fn without(self, names: &[Arc<str>]) -> Self {
        Self(self.0.into_iter().filter(|node| !names.contains(node.name())).collect())
    }

    pub(super) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Connects to one node and makes the handshake. If `decide` returns a marker, writes it, unless the
    /// node's marker has changed since the handshake.
    pub(super) fn visit<'a>(
        &'a self,
        at: usize,
        env: &'a Env,
        patience: Duration,
        decide: &'a Decide<'a>,
    ) -> BoxFuture<'a, Result<NodeVisit, Cause>> {
        self.0[at].visit(env, patience, decide)
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

type Decide<'a> = dyn Fn(&NodeVisit) -> Option<Marker> + Sync + 'a;

/// A node of any kind that can be visited.
trait NodeAccess: Send + Sync {
    fn name(&self) -> &Arc<str>;
    fn visit<'a>(
        &'a self,
        env: &'a Env,
        patience: Duration,
        decide: &'a Decide<'a>,
    ) -> BoxFuture<'a, Result<NodeVisit, Cause>>;
}

struct At<N> {
    name: Arc<str>,
    node: N,
}

impl<N: Node> NodeAccess for At<N> {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn visit<'a>(
        &'a self,
        env: &'a Env,
        patience: Duration,
        decide: &'a Decide<'a>,
    ) -> BoxFuture<'a, Result<NodeVisit, Cause>> {
        Box::pin(async move {
            let (began, wall) = (env.now(), env.wall());
            let (push_sender, _pushes) = PushSender::channel();
            let opened = env.before(began + patience, self.node.open(push_sender)).await;
            let (mut session, hello) = opened.unwrap_or(Err(Cause::TimedOut))?;
            let took = began.until(env.now());
            let ours = i64::try_from((wall + took / 2).as_micros()).unwrap_or(i64::MAX);
            let theirs = i64::try_from(hello.node_time.as_micros()).unwrap_or(i64::MAX);
            let mut sight = NodeVisit { hello, took, ahead_micros: theirs.saturating_sub(ours) };
            if let Some(marker) = decide(&sight) {
                let marker = marker.to_text();
                let request =
                    Request::Mark { expect: sight.hello.marker.clone(), marker: Arc::clone(&marker) };
                let batch = Batch {
                    requests: vec![request],
                    not_after: sight.hello.node_time + patience * 2,
                    stamp: sight.hello.marker.clone().unwrap_or_default(),
                };
                let sent = env.before(env.now() + patience, session.send(batch)).await;
                written(sent.unwrap_or(Err(Cause::TimedOut))?.replies.pop())?;
                sight.hello.marker = Some(marker);
            }
            Ok(sight)
        })
    }
}

/// Returns an error if the reply does not say that the marker was written.
fn written(reply: Option<Reply>) -> Result<(), Cause> {
    match reply {
        Some(Reply::Marked) => Ok(()),
        Some(Reply::Refused(Refusal::Stale)) => Err(Cause::TimedOut),
        Some(Reply::Refused(Refusal::Marker(_))) => {
            Err(Cause::Protocol("another worker wrote its marker meanwhile".into()))
        }
        Some(Reply::Refused(why)) => {
            Err(Cause::Protocol(format!("its marker could not be written: {why}").into()))
        }
        _ => Err(Cause::Protocol("the reply to the write of its marker does not fit it".into())),
    }
}
