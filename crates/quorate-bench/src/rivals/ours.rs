use super::shared::TTL;
use quorate::redis::RedisNode;
use quorate::{
    lease::{Lease, TryAcquire},
    quorum::{Quorum, QuorumBuilder},
};
use std::time::Duration;

/// The longest wait for the first handshakes.
const FIRST: Duration = Duration::from_secs(5);

/// Quorate with its default settings.
pub(crate) struct Ours(Quorum);

impl Ours {
    pub(crate) async fn start(urls: &[String]) -> Result<Self, String> {
        quorum(urls, "bench").await.map(Self)
    }

    /// Starts a quorum that asks all nodes at once, not a majority first.
    pub(crate) async fn asking_all(urls: &[String]) -> Result<Self, String> {
        let builder = Quorum::redis(urls).map_err(|error| error.to_string())?;
        met(builder.ask_all_nodes(true), "bench-all").await.map(Self)
    }

    pub(crate) async fn acquire(&self, resource: &str) -> Option<Lease> {
        match self.0.lock(resource).ttl(TTL).try_acquire().await {
            Ok(TryAcquire::Acquired(lease)) => Some(lease),
            _ => None,
        }
    }
}

/// Returns a quorum with default settings, except that new nodes are trusted.
pub(crate) async fn quorum(urls: &[String], worker: &str) -> Result<Quorum, String> {
    met(Quorum::redis(urls).map_err(|error| error.to_string())?, worker).await
}

/// Returns a quorum of one server, with a key prefix of its own. With this prefix, the same server may also be
/// a node of a larger quorum.
pub(crate) async fn quorum_of_one(url: &str, worker: &str) -> Result<Quorum, String> {
    let node = RedisNode::parse(url).map_err(|error| error.to_string())?.prefix("bench-alone:");
    met(Quorum::builder().nodes([node]), worker).await
}

async fn met(builder: QuorumBuilder, worker: &str) -> Result<Quorum, String> {
    let quorum = builder.worker(worker).trust_new_nodes(true).build().map_err(|error| error.to_string())?;
    quorum.ready(FIRST).await.map_err(|error| error.to_string())?;
    quorum.met(FIRST).await;
    Ok(quorum)
}
