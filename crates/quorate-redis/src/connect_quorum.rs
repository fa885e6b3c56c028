use crate::{RedisNode, UrlError};
use quorate::quorum::{Quorum, QuorumBuilder, SettingError};
use std::time::Duration;

/// How long the first handshakes are waited for.
const FIRST_HANDSHAKE: Duration = Duration::from_secs(1);

/// Makes a [`Quorum`] of Redis servers by their URLs. Bring it into scope, and call
/// `Quorum::connect(["redis://a", "redis://b", "redis://c"])`.
pub trait Connect: Sized {
    /// A quorum with every setting at its default, once each server has been met or found away. An
    /// unreachable server is no error: it may come back. A new cluster's nodes do not vote before `max_ttl`
    /// (30 s) has passed, or until `quorate nodes trust`.
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

    /// The same, before it is built: for a worker's name, timings, a mixture of nodes.
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

/// Why a list of URLs makes no quorum.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The URLs together cannot.
    #[error(transparent)]
    QuorumConfig(#[from] SettingError),
}
