use super::{acks::Acks, message::Shared, read::Read};
use crate::{RedisNode, UrlError};
use futures_util::{Stream, StreamExt, stream};
use quorate::{
    env::Env,
    node::{Cause, Node},
    plain::plain,
};
use std::{fmt, sync::Arc, time::Duration};

use super::StreamMessage;

/// The longest wait for new entries in one read: a connection that is broken and does not say so is found out
/// a little later.
const BLOCK_MAX: Duration = Duration::from_secs(5);

/// A consumer of one group of one Redis stream.
#[derive(Clone)]
pub struct StreamSource {
    pub(super) node: RedisNode,
    pub(super) stream: Arc<str>,
    pub(super) group: Arc<str>,
    pub(super) consumer: Arc<str>,
    pub(super) id_field: Option<Arc<str>>,
    pub(super) check_payload: bool,
    pub(super) begin: Begin,
    pub(super) min_idle: Duration,
    pub(super) batch: usize,
}

/// Where a group that does not exist yet begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// With the stream's first entry.
    #[default]
    First,
    /// With what is added from now on.
    New,
}

/// What keeps entries from coming. The stream goes on, and tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream {stream:?} at {server}: {cause}")]
pub struct StreamError {
    stream: String,
    server: Arc<str>,
    cause: Cause,
}

impl StreamSource {
    /// Reads `stream` on the server at `url` (as for [`RedisNode::parse`]) as a consumer of `group`. Stream and
    /// group are created where they do not exist.
    ///
    /// # Errors
    /// [`UrlError`], which names what is wrong and the mend, and no password.
    pub fn new(url: &str, stream: &str, group: &str) -> Result<Self, UrlError> {
        Ok(Self::on(RedisNode::parse(url)?, stream, group))
    }

    /// The same, on a server with a password file or certificates of its own. The node's prefix has no meaning here.
    pub fn on(server: RedisNode, stream: &str, group: &str) -> Self {
        Self {
            consumer: format!("quorate-{:08x}", server.env().random() >> 32).into(),
            node: server,
            stream: stream.into(),
            group: group.into(),
            id_field: None,
            check_payload: false,
            begin: Begin::First,
            min_idle: Duration::from_secs(30),
            batch: 32,
        }
    }

    /// Who we are in the group: a name that outlives a restart, and that no other process has. The group remembers
    /// every name for ever, so a name should not be new each time, as the default is.
    #[must_use]
    pub fn consumer(mut self, name: &str) -> Self {
        self.consumer = name.into();
        self
    }

    /// Claims messages by the value of this field: where a producer may add one message twice. By default the id is
    /// the stream's name and the entry's own id.
    #[must_use]
    pub fn id_field(mut self, name: &str) -> Self {
        self.id_field = Some(name.into());
        self
    }

    /// Keeps a fingerprint of all fields with the claim: another entry with the same id and other fields goes to the
    /// dead-letter hook. For use with [`StreamSource::id_field`]; it costs a round trip more a claim.
    #[must_use]
    pub fn check_payload(mut self) -> Self {
        self.check_payload = true;
        self
    }

    /// Where the group begins if it does not exist yet. One that was lost after that begins with the stream's first
    /// entry.
    #[must_use]
    pub fn begin(mut self, begin: Begin) -> Self {
        self.begin = begin;
        self
    }

    /// For how long nobody must have touched a pending entry before it is taken over: the claims' TTL at least, or
    /// others look in vain at what a slow handler still has. Default 30 s, at least 10 ms.
    #[must_use]
    pub fn min_idle(mut self, time: Duration) -> Self {
        self.min_idle = time.max(Duration::from_millis(10));
        self
    }

    /// How many entries are read at once, at least one. What has been read and not been asked for is pending with us.
    /// Default 32.
    #[must_use]
    pub fn batch(mut self, most: usize) -> Self {
        self.batch = most.max(1);
        self
    }

    /// The entries, for ever, and what goes wrong in between. Nothing is read that is not asked for, and nothing before
    /// the first is asked for; reading and acking have a connection each. No two of one consumer's name should run.
    pub fn messages(&self) -> impl Stream<Item = Result<StreamMessage, StreamError>> + Send + use<> {
        let shared = Arc::new(Shared::new(Acks::new(self.clone()), self));
        let read = Read::new(self.clone(), shared);
        stream::unfold(read, |mut read| async move { Some((read.next().await, read)) }).boxed()
    }

    pub(super) fn env(&self) -> &Env {
        self.node.env()
    }

    /// How long one read waits for new entries.
    pub(super) fn block(&self) -> Duration {
        BLOCK_MAX
    }

    pub(super) fn failed(&self, cause: Cause) -> StreamError {
        let (stream, server) = (plain(&self.stream, 80), self.node.name().into());
        StreamError { stream, server, cause }
    }
}

impl StreamError {
    /// What went wrong.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource")
            .field("server", &self.node.name())
            .field("stream", &self.stream)
            .field("group", &self.group)
            .field("consumer", &self.consumer)
            .field("id_field", &self.id_field)
            .field("check_payload", &self.check_payload)
            .field("begin", &self.begin)
            .field("min_idle", &self.min_idle)
            .field("batch", &self.batch)
            .finish()
    }
}
