use crate::{RedisNode, UrlError};
use quorate::quorum::{Quorum, QuorumBuilder, SettingError};
use std::time::Duration;

/// The longest wait for the first handshakes.
const FIRST_HANDSHAKE: Duration = Duration::from_secs(1);

/// Creates a [`Quorum`] of Redis servers from their URLs. Bring it into scope, and call
/// `Quorum::connect(["redis://a", "redis://b", "redis://c"])`.
pub trait Connect: Sized {
    /// Returns a quorum with default settings, once each server has been connected or found unreachable. An
    /// unreachable server is not an error: it may return. The nodes of a new cluster do not vote before
    /// `max_ttl` (30 s) has passed, or until `quorate nodes trust`.
    ///
    /// # Errors
    /// [`ConnectError`] for URLs that cannot be used. It holds no password.
    ///
    /// # Cancel safety
    /// Dropping it drops the quorum.
    fn connect<I>(urls: I) -> impl Future<Output = Result<Self, ConnectError>> + Send
    where
        I: IntoIterator + Send,
        I::Item: AsRef<str>;

    /// Returns the builder of such a quorum, to set a worker's name, timings, or a mixture of nodes.
    ///
    /// # Errors
    /// [`UrlError`] for a URL that cannot be used. It holds no password.
    fn redis<I>(urls: I) -> Result<QuorumBuilder, UrlError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>;
}

impl Connect for Quorum {
    fn connect<I>(urls: I) -> impl Future<Output = Result<Self, ConnectError>> + Send
    where
        I: IntoIterator + Send,
        I::Item: AsRef<str>,
    {
        let builder = Self::redis(urls);
        async move {
            let quorum = builder?.build()?;
            quorum.met(FIRST_HANDSHAKE).await;
            Ok(quorum)
        }
    }

    fn redis<I>(urls: I) -> Result<QuorumBuilder, UrlError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let nodes: Result<Vec<_>, _> = urls.into_iter().map(|url| RedisNode::parse(url.as_ref())).collect();
        Ok(Self::builder().nodes(nodes?))
    }
}

/// The reason why a list of URLs does not form a quorum.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// One URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The URLs cannot be used together.
    #[error(transparent)]
    QuorumConfig(#[from] SettingError),
}
