use super::{PATIENCE, Program, until};
use quorate_testkit::redis::RedisCluster;
use std::ops::{Deref, DerefMut};

/// Redis servers of one test, and how a worker names them.
#[derive(Debug)]
pub struct Nodes {
    cluster: RedisCluster,
}

impl Nodes {
    /// Starts servers that nobody has used yet: they do not vote before `max_ttl` is over.
    ///
    /// # Panics
    /// Where `redis-server` cannot be started, with how to install it.
    pub fn new(size: usize) -> Self {
        Self { cluster: RedisCluster::start(size).unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Starts servers and admits them, with the arguments that all workers use besides `--nodes`.
    pub fn admitted(size: usize, program: &Program, args: &[&str]) -> Self {
        let nodes = Self::new(size);
        let list = nodes.list();
        until("majority of nodes that answer in time", PATIENCE, || {
            let admitted = program.run([&["nodes", "admit", "--nodes", &list][..], args].concat());
            // On a busy machine the first handshakes may take longer than a node has for them.
            (admitted.code != Some(69)).then(|| admitted.expect(0))
        });
        nodes
    }

    /// What stands behind `--nodes`.
    pub fn list(&self) -> String {
        self.cluster.urls().join(",")
    }

    /// What the node at `index` is called in messages.
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
