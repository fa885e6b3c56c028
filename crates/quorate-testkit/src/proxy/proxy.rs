use super::{
    connection,
    rules::{Directions, Latency, Rules},
};
use crate::redis::RedisServer;
use quorate::env::Env;
use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};
use tokio::{runtime, sync::watch};

/// A TCP proxy on a free loopback port, before one server. Dropping it breaks its connections and ends its
/// thread.
///
/// It runs on a thread of its own, whatever runtime the test has, and may be given orders from anywhere. The
/// server may die and come back on its port meanwhile.
pub struct Proxy {
    upstream: SocketAddr,
    url: Option<String>,
    port: u16,
    rules: watch::Sender<Rules>,
    accepted: Arc<AtomicU64>,
    env: Env,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy before whatever listens at `upstream`, or will.
    ///
    /// # Errors
    /// Where the system has no port or no thread left.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_seeded(upstream, 0)
    }

    /// As [`Proxy::start`], with the seed of its jitter.
    ///
    /// # Errors
    /// Where the system has no port or no thread left.
    pub fn start_seeded(upstream: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let env = Env::system();
        let rules = watch::Sender::new(Rules::default());
        let accepted = Arc::new(AtomicU64::new(0));
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let office = connection::Office {
            env: env.clone(),
            upstream,
            rules: rules.clone(),
            accepted: Arc::clone(&accepted),
            seed,
        };
        let thread = thread::Builder::new().name(format!("proxy-{port}")).spawn(move || {
            runtime.block_on(async {
                connection::accept(&office, listener).await;
                office.env.finish().await;
            });
        })?;
        Ok(Self { upstream, url: None, port, rules, accepted, env, thread: Some(thread) })
    }

    /// A proxy before a server that the test-kit started.
    ///
    /// # Errors
    /// Where the system has no port or no thread left.
    pub fn before(server: &RedisServer) -> io::Result<Self> {
        let mut proxy = Self::start((Ipv4Addr::LOCALHOST, server.port()).into())?;
        proxy.url = Some(server.url_at(proxy.port));
        Ok(proxy)
    }

    /// The loopback port on which clients are taken.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's URL with this proxy's port, and with the password where the server is ours and has one.
    pub fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("redis://127.0.0.1:{}/0", self.port))
    }

    /// From now on bytes are under way for as long as this. What is under way already keeps its time.
    pub fn set_latency(&self, latency: Latency) {
        self.rules.send_modify(|rules| rules.latency = latency);
    }

    /// From now on not one byte passes this way: what comes waits. In place of an earlier cut. Connections
    /// stay up, and the ends of them do not pass either.
    pub fn cut(&self, directions: Directions) {
        self.rules.send_modify(|rules| rules.cut = Some(directions));
    }

    /// Back to normal: what waited arrives, in order; no latency, no refusal, nothing about to be cut.
    pub fn heal(&self) {
        self.rules.send_modify(|rules| {
            *rules = Rules { severed: rules.severed, replies_cut: rules.replies_cut, ..Rules::default() };
        });
    }

    /// Breaks every connection there is (RST, both ways); what waited or was under way is lost. New ones are
    /// taken.
    pub fn sever(&self) {
        self.rules.send_modify(|rules| rules.severed += 1);
    }

    /// Closes the connection on which the server replies next, in the middle of that reply: after exactly
    /// this many bytes of it. Once. [`Proxy::replies_cut`] tells when it has happened.
    pub fn cut_reply_after(&self, bytes: usize) {
        self.rules.send_modify(|rules| rules.cut_reply_after = Some(bytes));
    }

    /// From now on whoever connects is thrown out at once (RST). Connections that there are stay.
    pub fn refuse(&self) {
        self.rules.send_modify(|rules| rules.refuses = true);
    }

    /// How many replies [`Proxy::cut_reply_after`] has cut so far.
    pub fn replies_cut(&self) -> u64 {
        self.rules.borrow().replies_cut
    }

    /// How many clients have connected so far, those thrown out included.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Breaks every connection, closes the port and ends the thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.env.stopped().cancel();
        if let Some(thread) = self.thread.take() {
            // Every task of it waits for the stop as well as for whatever else: this is soon.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("Proxy")
            .field("port", &self.port)
            .field("upstream", &self.upstream)
            .field("rules", &*self.rules.borrow())
            .finish_non_exhaustive()
    }
}
