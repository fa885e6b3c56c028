use super::{RedisConfig, RedisServer, StartError};
use std::ops::{Index, IndexMut};

/// Several independent servers. They are not a Redis Cluster: Quorate's nodes do not know each other.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts `size` servers with no persistence.
    ///
    /// # Errors
    /// [`StartError`]. If `redis-server` is missing, the error says how to install it.
    pub fn start(size: usize) -> Result<Self, StartError> {
        Self::start_with(size, &RedisConfig::new())
    }

    /// Starts `size` servers with `config`.
    ///
    /// # Errors
    /// [`StartError`]. If `redis-server` is missing, the error says how to install it.
    pub fn start_with(size: usize, config: &RedisConfig) -> Result<Self, StartError> {
        let servers = (0..size).map(|_| config.clone().start()).collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// Returns the servers' URLs, in order.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// Returns the number of servers, running or not.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns `true` if there are no servers.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the servers, in order.
    pub fn iter(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter()
    }

    /// Returns the servers, in order, so that the caller can kill and restart them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut RedisServer> {
        self.servers.iter_mut()
    }
}

impl Index<usize> for RedisCluster {
    type Output = RedisServer;
    fn index(&self, at: usize) -> &RedisServer {
        &self.servers[at]
    }
}

impl IndexMut<usize> for RedisCluster {
    fn index_mut(&mut self, at: usize) -> &mut RedisServer {
        &mut self.servers[at]
    }
}
