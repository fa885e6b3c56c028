use super::Proxy;
use crate::redis::{RedisCluster, RedisConfig, StartError};
use std::ops::{Deref, DerefMut};

/// Several independent servers, each with a [`Proxy`] in front of it.
#[derive(Debug)]
pub struct ProxiedCluster {
    // Fields are dropped in order, so the proxies are dropped before the servers: no proxy outlives the server behind
    // it.
    proxies: Vec<Proxy>,
    cluster: RedisCluster,
}

impl ProxiedCluster {
    /// Starts `size` servers with no persistence, and their proxies.
    ///
    /// # Errors
    /// [`StartError`]. If `redis-server` is missing, the error says how to install it.
    pub fn start(size: usize) -> Result<Self, StartError> {
        Self::start_with(size, &RedisConfig::new())
    }

    /// Starts `size` servers with `config`, and their proxies.
    ///
    /// # Errors
    /// [`StartError`]. If `redis-server` is missing, the error says how to install it.
    pub fn start_with(size: usize, config: &RedisConfig) -> Result<Self, StartError> {
        let cluster = RedisCluster::start_with(size, config)?;
        Ok(Self { proxies: cluster.iter().map(Proxy::before).collect::<Result<_, _>>()?, cluster })
    }

    /// Returns the proxies' URLs, in the order of the servers. (The cluster's `urls` returns those of the
    /// servers.)
    pub fn proxied_urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// Returns the proxy in front of the server at `index`.
    pub fn proxy(&self, index: usize) -> &Proxy {
        &self.proxies[index]
    }

    /// Returns the proxies, in the order of the servers.
    pub fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.proxies.iter()
    }
}

impl Deref for ProxiedCluster {
    type Target = RedisCluster;
    fn deref(&self) -> &RedisCluster {
        &self.cluster
    }
}

impl DerefMut for ProxiedCluster {
    fn deref_mut(&mut self) -> &mut RedisCluster {
        &mut self.cluster
    }
}
