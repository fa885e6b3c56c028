use super::Kind;
use futures_util::future::BoxFuture;
use quorate::{
    env::Env,
    node::{Batch, BatchReply, Cause, Hello, Node, NodeTime, PushSender, Resource, Session},
};
use std::time::Duration;

/// The longest time that a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A [`Kind`] with its session, as a trait object.
pub trait DynTarget {
    /// Returns the name of the kind.
    fn name(&self) -> &'static str;
    /// Returns the node's wall clock.
    fn wall(&self) -> NodeTime;
    /// Opens a new session in place of the open one.
    fn open(&mut self) -> BoxFuture<'_, Result<Hello, Cause>>;
    /// Returns the node's reply to `batch`.
    fn ask(&mut self, batch: Batch) -> BoxFuture<'_, Result<BatchReply, Cause>>;
    /// Lets `time` pass.
    fn pass(&mut self, time: Duration);
    /// Makes the node forget everything.
    fn flush(&mut self);
    /// Restarts the node with its data.
    fn restart(&mut self);
    /// Takes back one count of an acquire that was not granted: see [`Kind::take_back_count`].
    fn take_back_count(&mut self, resource: &Resource);
    /// Keeps a counter after a grant: see [`Kind::keep_count`].
    fn keep_count(&mut self, resource: &Resource, keep: Duration);
}

/// A [`Kind`] with its open session.
pub struct Target<K: Kind> {
    kind: K,
    session: Option<<K::Node as Node>::Session>,
}

impl<K: Kind> Target<K> {
    /// Creates a target without a session.
    pub fn new(kind: K) -> Self {
        Self { kind, session: None }
    }
}

impl<K: Kind> std::fmt::Debug for Target<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("kind", &self.kind.name()).finish_non_exhaustive()
    }
}

impl<K: Kind + Send> DynTarget for Target<K> {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn wall(&self) -> NodeTime {
        self.kind.wall()
    }

    fn open(&mut self) -> BoxFuture<'_, Result<Hello, Cause>> {
        let node = self.kind.node();
        Box::pin(async move {
            self.session = None;
            let env = Env::system();
            let opened = env.before(env.now() + PATIENCE, node.open(PushSender::channel().0)).await;
            let (session, hello) = opened.unwrap_or(Err(Cause::TimedOut))?;
            self.session = Some(session);
            Ok(hello)
        })
    }

    fn ask(&mut self, batch: Batch) -> BoxFuture<'_, Result<BatchReply, Cause>> {
        let answer = self.session.as_mut().map(|session| session.send(batch));
        Box::pin(async move {
            let env = Env::system();
            let Some(answer) = answer else { return Err(Cause::Closed) };
            env.before(env.now() + PATIENCE, answer).await.unwrap_or(Err(Cause::TimedOut))
        })
    }

    fn pass(&mut self, time: Duration) {
        self.kind.pass(time);
    }

    fn flush(&mut self) {
        self.kind.flush();
    }

    fn restart(&mut self) {
        self.session = None;
        self.kind.restart();
    }

    fn take_back_count(&mut self, resource: &Resource) {
        self.kind.take_back_count(resource);
    }

    fn keep_count(&mut self, resource: &Resource, keep: Duration) {
        self.kind.keep_count(resource, keep);
    }
}
