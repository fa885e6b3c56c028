use super::Proxy;
use crate::redis::{RedisCluster, RedisConfig, StartError};
use std::ops::{Deref, DerefMut};

/// Several independent servers, each with a [`Proxy`] before it.
#[derive(Debug)]
pub struct ProxiedCluster {
    // First, so that it goes first: a proxy outlives no server that it carries to.
    proxies: Vec<Proxy>,
    cluster: RedisCluster,
}

impl ProxiedCluster {
    /// Starts `size` servers with no persistence, and their proxies.
    ///
    /// # Errors
    /// [`StartError`], which says how to install `redis-server` where it is missing.
    pub fn start(size: usize) -> Result<Self, StartError> {
        Self::start_with(size, &RedisConfig::new())
    }

    /// Starts `size` servers that run as `config` says, and their proxies.
    ///
    /// # Errors
    /// [`StartError`], which says how to install `redis-server` where it is missing.
    pub fn start_with(size: usize, config: &RedisConfig) -> Result<Self, StartError> {
        let cluster = RedisCluster::start_with(size, config)?;
        Ok(Self { proxies: cluster.iter().map(Proxy::before).collect::<Result<_, _>>()?, cluster })
    }

    /// The proxies' URLs, in the order of the servers. (The servers' own are `urls` of the cluster.)
    pub fn proxied_urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// The proxy before the server at `index`.
    pub fn proxy(&self, index: usize) -> &Proxy {
        &self.proxies[index]
    }

    /// The proxies, in the order of the servers.
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
