use crate::{config::SettingError, redis::RedisNode};
use crate::{
    env::Env,
    node::{Cause, Node},
    plain::plain,
};
use std::{sync::Arc, time::Duration};

/// The longest time for which a read of new entries blocks. If the connection breaks without an error, the
/// source notices this after about this time.
pub(super) const BLOCK_MAX: Duration = Duration::from_secs(5);

/// A consumer of one group of one Redis stream.
#[derive(Clone, Debug)]
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

/// The position at which a new group begins to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// The stream's first entry.
    #[default]
    First,
    /// The first entry that is added after the group is created.
    New,
}

/// An error while reading or acknowledging entries. After an error, the stream of messages tries again when
/// the next message is requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream {stream:?} at {server}: {cause}")]
pub struct StreamError {
    stream: String,
    server: Arc<str>,
    cause: Cause,
}

impl StreamSource {
    /// Returns a source that reads `stream` as a consumer of `group`. `url` names the server, in the form
    /// that [`RedisNode::parse`] accepts. The stream and the group are created if they do not exist.
    ///
    /// # Errors
    /// [`SettingError`] with the reason and the fix. The error contains no password.
    pub fn new(url: &str, stream: &str, group: &str) -> Result<Self, SettingError> {
        Ok(Self::on(RedisNode::parse(url)?, stream, group))
    }

    /// Returns the same source as [`new`](Self::new), for a server with a password file or certificates of
    /// its own. The source does not use the prefix of `server`.
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

    /// Sets the consumer's name in the group. The name should stay the same across restarts, and no other
    /// process may use it. The group remembers every name forever, so use a fixed name. By default each start
    /// uses a new name.
    #[must_use]
    pub fn consumer(mut self, name: &str) -> Self {
        self.consumer = name.into();
        self
    }

    /// Makes the value of this field the message id by which a message is claimed, for producers that may add
    /// one message twice. By default the message id is the stream's name and the entry's id.
    #[must_use]
    pub fn id_field(mut self, name: &str) -> Self {
        self.id_field = Some(name.into());
        self
    }

    /// Stores a fingerprint of all fields with the claim. If another entry has the same message id and other
    /// fields, that entry goes to the dead-letter hook. Meant for use with [`StreamSource::id_field`]. The
    /// fingerprint costs one more round trip for each claim.
    #[must_use]
    pub fn check_payload(mut self) -> Self {
        self.check_payload = true;
        self
    }

    /// Sets the start position of the group if it does not exist yet. If the group is lost while the source
    /// runs, the new group begins at the stream's first entry.
    #[must_use]
    pub fn begin(mut self, begin: Begin) -> Self {
        self.begin = begin;
        self
    }

    /// Sets the idle time after which a pending entry is taken over. The time should be at least the claims'
    /// TTL. Otherwise other consumers take over entries that a slow handler still handles, and find their
    /// messages claimed. Default 30 s, at least 10 ms.
    #[must_use]
    pub fn min_idle(mut self, time: Duration) -> Self {
        self.min_idle = time.max(Duration::from_millis(10));
        self
    }

    /// Sets the maximum number of entries of one read, at least one. Entries that were read are pending for
    /// this consumer, even before a caller has requested them. Default 32.
    #[must_use]
    pub fn batch(mut self, most: usize) -> Self {
        self.batch = most.max(1);
        self
    }

    pub(super) fn env(&self) -> &Env {
        self.node.env()
    }

    pub(super) fn failed(&self, cause: Cause) -> StreamError {
        let (stream, server) = (plain(&self.stream, 80), self.node.name().into());
        StreamError { stream, server, cause }
    }
}

impl StreamError {
    /// Returns the reason of the server or of the connection, without the names of the stream and the server.
    #[doc(hidden)]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }
}
