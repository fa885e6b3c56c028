use crate::{
    config::SettingError,
    quorum::{Quorum, QuorumBuilder},
    redis::RedisNode,
};
use std::time::Duration;

/// The longest time for which `connect` waits for the first handshakes.
const FIRST_HANDSHAKE: Duration = Duration::from_secs(1);

impl Quorum {
    /// Returns a quorum of the Redis servers at `urls`, with every setting at its default. Waits until each server has been
    /// reached or found unreachable, for one second at most. An unreachable server is not an error: it may become reachable
    /// later. New servers do not vote until their quarantine (30 s) has passed, or until [`Quorum::trust_nodes`] or
    /// `quorate nodes trust` ends their quarantine.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorate::Quorum;
    ///
    /// let quorum = Quorum::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?;
    /// quorum.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SettingError`] for URLs that cannot be used, alone or together. The error contains no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the quorum.
    pub async fn connect<I>(urls: I) -> Result<Self, SettingError>
    where
        I: IntoIterator + Send,
        I::Item: AsRef<str>,
    {
        connected(Self::redis(urls)).await
    }

    /// Returns a builder of a quorum of the Redis servers at `urls`, for instance to set a worker's name or timings. For
    /// settings of the servers themselves, such as the prefix of their keys, pass each [`RedisNode`] to [`Quorum::builder`].
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorate::{Quorum, redis::RedisNode};
    ///
    /// let servers = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let quorum = Quorum::redis(servers)?.worker("billing-1").connect().await?;
    /// quorum.close().await;
    ///
    /// // An empty prefix: this quorum and other Redlock clients exclude each other on one name.
    /// let nodes = servers.map(|url| RedisNode::parse(url).map(|node| node.prefix("")));
    /// let quorum = Quorum::builder().nodes(nodes.into_iter().collect::<Result<Vec<_>, _>>()?).connect().await?;
    /// quorum.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SettingError`] for a URL that cannot be used. The error contains no password.
    pub fn redis<I>(urls: I) -> Result<QuorumBuilder, SettingError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let nodes: Result<Vec<_>, _> = urls.into_iter().map(|url| RedisNode::parse(url.as_ref())).collect();
        Ok(Self::builder().nodes(nodes?))
    }
}

/// The builder is given as a result, so that the future does not contain the iterator of the URLs.
async fn connected(builder: Result<QuorumBuilder, SettingError>) -> Result<Quorum, SettingError> {
    builder?.connect().await
}

impl QuorumBuilder {
    /// Builds the quorum, and waits until each node has been reached or found unreachable. The wait lasts for one second at
    /// most. An unreachable node is not an error: it may become reachable later.
    ///
    /// # Errors
    /// The same as for [`QuorumBuilder::build`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the quorum.
    pub async fn connect(self) -> Result<Quorum, SettingError> {
        let quorum = self.build()?;
        quorum.met(FIRST_HANDSHAKE).await;
        Ok(quorum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn settings_are_reachable_from_the_urls() {
        let servers = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"];
        let built = Quorum::redis(servers).expect("URLs").worker("w").trust_new_nodes(true);
        let quorum = built.build().expect("settings");
        assert_eq!((&*quorum.config().worker, quorum.config().trust_new_nodes), ("w", true));
        assert_eq!(quorum.nodes().len(), 2);
        quorum.close().await;
        let error = Quorum::redis(["redis://a", "redis://a"]).expect("URLs").build().unwrap_err();
        assert_eq!(error.field(), "nodes");
        assert_eq!(Quorum::redis(["cache:1"]).unwrap_err().field(), "the node's URL");
    }
}
