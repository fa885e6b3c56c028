use super::{PATIENCE, Program, until};
use quorate_testkit::redis::{RedisCluster, RedisConfig};
use std::ops::{Deref, DerefMut};

/// The Redis servers of one test.
#[derive(Debug)]
pub struct Nodes {
    cluster: RedisCluster,
}

impl Nodes {
    /// Starts servers that no worker has used before. They vote only after their quarantine.
    ///
    /// # Panics
    ///
    /// If `redis-server` cannot be started. The message says how to install it.
    pub fn new(size: usize) -> Self {
        Self { cluster: RedisCluster::start(size).unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Starts servers, each with a wall clock that the test can step.
    ///
    /// # Panics
    ///
    /// If `redis-server` cannot be started, or not with such a clock.
    pub fn with_own_clocks(size: usize) -> Self {
        let config = RedisConfig::new().own_clock();
        Self { cluster: RedisCluster::start_with(size, &config).unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Starts servers and trusts them. `args` are further arguments that every worker uses, besides `--nodes`.
    pub fn admitted(size: usize, program: &Program, args: &[&str]) -> Self {
        let nodes = Self::new(size);
        nodes.admit(program, args);
        nodes
    }

    /// Trusts the servers, which no worker has used before.
    ///
    /// # Panics
    ///
    /// If the program refuses, or if not every server can be trusted in time.
    pub fn admit(&self, program: &Program, args: &[&str]) {
        let list = self.list();
        let trust = [&["nodes", "trust", "--nodes", &list][..], args].concat();
        let mut again = trust.clone();
        until("majority of nodes that answer in time", PATIENCE, || {
            let trusted = program.run(&again);
            // On a busy machine, the first handshakes may take longer than the node timeout. So the command is
            // repeated. Some nodes may vote already, for which the command would refuse the others.
            again = [&trust[..], &["--force"]].concat();
            (trusted.code != Some(69)).then(|| trusted.expect(0))
        });
    }

    /// Returns the nodes as the value of the argument `--nodes`.
    pub fn list(&self) -> String {
        self.cluster.urls().join(",")
    }

    /// Returns the name that messages use for the node at `index`.
    pub fn name(&self, index: usize) -> String {
        format!("redis://127.0.0.1:{}", self.cluster[index].port())
    }
}

impl Deref for Nodes {
    type Target = RedisCluster;
    fn deref(&self) -> &RedisCluster {
        &self.cluster
    }
}

impl DerefMut for Nodes {
    fn deref_mut(&mut self) -> &mut RedisCluster {
        &mut self.cluster
    }
}
