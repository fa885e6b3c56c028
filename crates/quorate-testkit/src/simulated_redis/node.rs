use super::{
    Database, Facts, ServerProcess,
    stream::{Hub, Stream, lock},
};
use quorate::{
    env::{Env, World},
    node::{Cause, Hello, Node, NodeTime, PushSender},
};
use quorate_redis::{RedisSession, probe};
use std::{
    fmt,
    sync::{Arc, Mutex},
};

/// A simulated Redis server with connections, on the clock of a [`World`].
#[derive(Clone)]
pub struct SimulatedRedis {
    hub: Arc<Mutex<Hub>>,
    world: Arc<dyn World>,
}

impl SimulatedRedis {
    /// Starts an empty server.
    pub fn new(world: Arc<dyn World>) -> Self {
        let clock = Arc::clone(&world);
        let facts = Facts { run_id: "simulated-0".into(), uptime_seconds: 0, durable: false };
        let micros = move || clock.wall().as_micros();
        let hub = Hub::new(ServerProcess::default(), Database::default(), facts, micros);
        Self { hub: Arc::new(Mutex::new(hub)), world }
    }

    /// Returns the server as a node. Its keys have the prefix `prefix`.
    pub fn node(&self, prefix: &str) -> SimulatedRedisNode {
        SimulatedRedisNode { server: self.clone(), prefix: prefix.to_owned(), env: Env::system() }
    }

    /// Opens a connection, which a client uses as it would use a socket.
    pub fn connect(&self) -> impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static {
        Stream::open(&self.hub)
    }

    /// Returns the server's clock.
    pub fn wall(&self) -> NodeTime {
        self.world.wall()
    }

    /// Deletes every key, as FLUSHALL does.
    pub fn flush(&self) {
        lock(&self.hub).database.keys.clear();
    }

    /// Starts the process again, with its keys. All connections break.
    pub fn restart(&self) {
        let mut hub = lock(&self.hub);
        hub.server.restart();
        hub.close_all();
        let number = hub.facts.run_id.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
        hub.facts.run_id = format!("simulated-{}", number.unwrap_or_default() + 1).into();
    }
}

impl fmt::Debug for SimulatedRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRedis").finish_non_exhaustive()
    }
}

/// A simulated Redis server as a node, with the sessions that ship.
#[derive(Clone, Debug)]
pub struct SimulatedRedisNode {
    server: SimulatedRedis,
    prefix: String,
    env: Env,
}

impl Node for SimulatedRedisNode {
    type Session = RedisSession;

    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn open(&self, push_sender: PushSender) -> Result<(RedisSession, Hello), Cause> {
        probe::session(&self.env, self.server.connect(), &self.prefix, push_sender).await
    }
}
