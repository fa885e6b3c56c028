//! The servers, and before them a road of its own for each worker.

use super::settings::{NODES, WORKERS};
use quorate_testkit::{
    proxy::{Directions, Proxy},
    redis::{RedisConfig, RedisServer},
};

/// Dropping it ends all.
#[derive(Debug)]
pub(crate) struct Arena {
    // Before the servers, so that they go first.
    roads: Vec<Vec<Proxy>>,
    servers: Vec<RedisServer>,
}

impl Arena {
    /// Starts them.
    ///
    /// # Panics
    /// Where `redis-server` cannot be started, with how to install it.
    pub(crate) fn start() -> Self {
        // A Ctrl-C is for us: we end them in our way.
        let server =
            |_| RedisConfig::new().own_process_group().start().unwrap_or_else(|error| panic!("{error}"));
        let servers: Vec<RedisServer> = (0..NODES).map(server).collect();
        let road = |server| Proxy::before(server).expect("a port and a thread");
        let roads = (0..WORKERS).map(|_| servers.iter().map(road).collect()).collect();
        Self { roads, servers }
    }

    /// The servers as a member of the crew reaches them.
    pub(crate) fn roads(&self, member: usize) -> Vec<(String, String)> {
        let urls = self.roads[member].iter().map(Proxy::url);
        self.servers.iter().map(RedisServer::url).zip(urls).collect()
    }

    /// The servers themselves.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// Cuts one worker off from all servers.
    pub(crate) fn cut_off(&self, member: usize) {
        self.roads[member].iter().for_each(|road| road.cut(Directions::Both));
    }

    /// Puts its roads in order: what waited arrives.
    pub(crate) fn heal(&self, member: usize) {
        self.roads[member].iter().for_each(Proxy::heal);
    }
}
