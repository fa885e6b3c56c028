use crate::{RedisNode, UrlError};
use quorate::{
    env::Env,
    node::Node,
    quorum::{Quorum, QuorumBuilder, QuorumConfig, SettingError},
};
use std::time::Duration;

/// The longest time for which `connect` waits for the first handshakes.
const FIRST_HANDSHAKE: Duration = Duration::from_secs(1);

/// Returns a builder of a quorum of the Redis servers at `urls`. The builder has every setting of
/// [`QuorumBuilder`], and the prefix of the keys.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let servers = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
/// // An empty prefix: this quorum and other Redlock clients exclude each other on one name.
/// let quorum = quorate_redis::builder(servers)?.prefix("").worker("billing-1").connect().await?;
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`UrlError`] for a URL that cannot be used. The error contains no password.
pub fn builder<I>(urls: I) -> Result<RedisQuorumBuilder, UrlError>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let servers: Result<Vec<_>, _> = urls.into_iter().map(|url| RedisNode::parse(url.as_ref())).collect();
    Ok(RedisQuorumBuilder { servers: servers?, quorum: Quorum::builder() })
}

/// A builder of a quorum of Redis servers, which [`builder`] returns.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisQuorumBuilder {
    servers: Vec<RedisNode>,
    quorum: QuorumBuilder,
}

/// A macro that defines setters with the names of setters of [`QuorumBuilder`]. Each defined setter calls the
/// setter of the same name.
macro_rules! settings {
    ($($setter:ident($value:ty);)*) => {
        $(
            #[doc = concat!("As [`QuorumBuilder::", stringify!($setter), "`].")]
            pub fn $setter(mut self, value: $value) -> Self {
                self.quorum = self.quorum.$setter(value);
                self
            }
        )*
    };
}

impl RedisQuorumBuilder {
    /// Sets the prefix of every key on these servers, as [`RedisNode::prefix`] does. Default `quorate:`. With an empty
    /// prefix a lock's key is its name, so that this quorum and other Redlock clients exclude each other.
    pub fn prefix(self, prefix: &str) -> Self {
        self.servers(|server| server.prefix(prefix))
    }

    /// Applies `change` to each server, for instance to set a password file or the files of TLS.
    pub fn servers(mut self, change: impl FnMut(RedisNode) -> RedisNode) -> Self {
        self.servers = self.servers.into_iter().map(change).collect();
        self
    }

    /// Adds a node of another kind, for instance a file node.
    pub fn node<N: Node>(mut self, node: N) -> Self {
        self.quorum = self.quorum.node(node);
        self
    }

    settings! {
        env(Env);
        config(QuorumConfig);
        worker(impl AsRef<str>);
        node_timeout(Duration);
        ask_all_nodes(bool);
        max_ttl(Duration);
        drift_rate(f64);
        clock_step_allowance(Duration);
        max_clock_offset(Duration);
        fence_retention(Duration);
        ledger_retention(Duration);
        durable(bool);
        trust_new_nodes(bool);
        read_only(bool);
    }

    /// Checks the settings and starts the quorum, as [`QuorumBuilder::build`] does. The quorum connects in
    /// the background.
    ///
    /// # Errors
    /// [`SettingError`], which names the field, its value, the reason and the fix.
    pub fn build(self) -> Result<Quorum, SettingError> {
        QuorumBuilder::from(self).build()
    }

    /// Builds the quorum, and waits until each server has been reached or found unreachable. The wait lasts
    /// for one second at most. An unreachable server is not an error: it may become reachable later.
    ///
    /// # Errors
    /// The same as for [`RedisQuorumBuilder::build`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the quorum.
    pub async fn connect(self) -> Result<Quorum, SettingError> {
        let quorum = self.build()?;
        quorum.met(FIRST_HANDSHAKE).await;
        Ok(quorum)
    }
}

/// Converts the builder for code that accepts a builder of a quorum with any nodes.
impl From<RedisQuorumBuilder> for QuorumBuilder {
    fn from(builder: RedisQuorumBuilder) -> Self {
        builder.quorum.nodes(builder.servers)
    }
}

/// Makes a [`Quorum`] of Redis servers from their URLs. Bring this trait into scope, and call
/// `Quorum::connect(["redis://a", "redis://b", "redis://c"])`.
pub trait Connect: Sized {
    /// Returns a quorum with every setting at its default. Waits until each server has been reached or found
    /// unreachable, for one second at most. An unreachable server is not an error: it may become reachable
    /// later. New servers do not vote until their quarantine (30 s) has passed, or until
    /// [`Quorum::trust_nodes`] or `quorate nodes trust` ends their quarantine.
    ///
    /// # Errors
    /// [`ConnectError`] for URLs that cannot be used. The error contains no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the quorum.
    fn connect<I>(urls: I) -> impl Future<Output = Result<Self, ConnectError>> + Send
    where
        I: IntoIterator + Send,
        I::Item: AsRef<str>;

    /// Returns a builder, for instance to set a worker's name, timings or a prefix. Does the same as the
    /// function [`builder`].
    ///
    /// # Errors
    /// [`UrlError`] for a URL that cannot be used. The error contains no password.
    fn redis<I>(urls: I) -> Result<RedisQuorumBuilder, UrlError>
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
        let builder = builder(urls);
        async move { Ok(builder?.connect().await?) }
    }

    fn redis<I>(urls: I) -> Result<RedisQuorumBuilder, UrlError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        builder(urls)
    }
}

/// The reason why no quorum can be made from a list of URLs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// One URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The URLs together, or a setting, cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn prefix_and_settings_are_reachable_from_the_urls() {
        let servers = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"];
        let built = Quorum::redis(servers).expect("URLs").prefix("").worker("w").trust_new_nodes(true);
        assert!(built.servers.iter().all(|server| server.keys().prefix().is_empty()));
        let quorum = built.build().expect("settings");
        assert_eq!((&*quorum.config().worker, quorum.config().trust_new_nodes), ("w", true));
        assert_eq!(quorum.nodes().len(), 2);
        quorum.close().await;
        let error = builder(["redis://a", "redis://a"]).expect("URLs").build().unwrap_err();
        assert_eq!(error.field(), "nodes");
    }
}
