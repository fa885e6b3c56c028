use super::{
    connection,
    rules::{Directions, Latency, Rules},
};
use crate::{machines::Machine, redis::RedisServer};
use quorate::env::Env;
use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};
use tokio::{runtime, sync::watch};

/// A TCP proxy on a free loopback port, in front of one server. Dropping the proxy breaks its connections and
/// ends its thread.
///
/// The proxy runs on a thread of its own, whatever runtime the test has. Any thread may call its methods. The
/// server may end and start again on its port while the proxy runs.
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
    /// Starts a proxy in front of the server that listens at `upstream`, now or later.
    ///
    /// # Errors
    /// If the system has no port or no thread left.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_on(None, upstream, 0)
    }

    /// Starts a proxy, on the loopback interface of this machine if there is one.
    fn start_on(machine: Option<&Machine>, upstream: SocketAddr, seed: u64) -> io::Result<Self> {
        let env = Env::system();
        let rules = watch::Sender::new(Rules::default());
        let accepted = Arc::new(AtomicU64::new(0));
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (tell, told) = mpsc::channel();
        let machine = machine.cloned();
        let proxy_state = connection::ProxyState {
            env: env.clone(),
            upstream,
            rules: rules.clone(),
            accepted: Arc::clone(&accepted),
            seed,
        };
        let thread = thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            // The proxy's thread makes all its sockets, so that they belong to the network of the machine.
            let listener = match listen(machine.as_ref()) {
                Ok((listener, port)) => {
                    let _ = tell.send(Ok(port));
                    listener
                }
                Err(error) => return drop(tell.send(Err(error))),
            };
            runtime.block_on(async {
                connection::accept(&proxy_state, listener).await;
                proxy_state.env.finish().await;
            });
        })?;
        let port = told.recv().map_err(io::Error::other)??;
        Ok(Self { upstream, url: None, port, rules, accepted, env, thread: Some(thread) })
    }

    /// Starts a proxy in front of a server that the test-kit started.
    ///
    /// # Errors
    /// If the system has no port or no thread left.
    pub fn before(server: &RedisServer) -> io::Result<Self> {
        let mut proxy = Self::start(server.address())?;
        proxy.url = Some(server.url_at(proxy.port));
        Ok(proxy)
    }

    /// Starts a proxy in front of a server that the test-kit started, for the clients on `machine`. It accepts them on the
    /// loopback interface of that machine, and reaches the server over that machine's network.
    ///
    /// # Errors
    /// If the system has no port or no thread left, or the network of the machine cannot be entered.
    pub fn on(machine: &Machine, server: &RedisServer, seed: u64) -> io::Result<Self> {
        let mut proxy = Self::start_on(Some(machine), server.address(), seed)?;
        proxy.url = Some(server.url_at(proxy.port));
        Ok(proxy)
    }

    /// Returns the loopback port on which the proxy accepts clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the server's URL with the proxy's port in place of the server's. For a server that the
    /// test-kit started, the URL contains the password, if the server has one.
    pub fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("redis://127.0.0.1:{}/0", self.port))
    }

    /// Sets the time that bytes take. Bytes that are already in transit arrive at the time that was set for
    /// them before.
    pub fn set_latency(&self, latency: Latency) {
        self.rules.send_modify(|rules| rules.latency = latency);
    }

    /// Stops all bytes in these directions, and replaces an earlier cut. The bytes wait. Connections stay
    /// open, and not even the closing of a connection passes through a cut direction.
    pub fn cut(&self, directions: Directions) {
        self.rules.send_modify(|rules| rules.cut = Some(directions));
    }

    /// Restores normal operation: the bytes that waited arrive, in order. Latency, refusal and a pending
    /// cut of a reply are cancelled.
    pub fn heal(&self) {
        self.rules.send_modify(|rules| {
            *rules = Rules { severed: rules.severed, replies_cut: rules.replies_cut, ..Rules::default() };
        });
    }

    /// Breaks every open connection (RST, in both directions). Bytes that waited or were in transit are lost.
    /// The proxy still accepts new connections.
    pub fn sever(&self) {
        self.rules.send_modify(|rules| rules.severed += 1);
    }

    /// Closes a connection after exactly this many further bytes from the server. The proxy counts the bytes
    /// of all replies on all its connections together, and closes the connection that carries the last of
    /// these bytes. This happens once, and [`Proxy::replies_cut`] counts it.
    pub fn cut_reply_after(&self, bytes: usize) {
        self.rules.send_modify(|rules| rules.cut_reply_after = Some(bytes));
    }

    /// Resets every new connection at once (RST) from now on. Open connections stay.
    pub fn refuse(&self) {
        self.rules.send_modify(|rules| rules.refuses = true);
    }

    /// Returns the number of replies that [`Proxy::cut_reply_after`] has cut so far.
    pub fn replies_cut(&self) -> u64 {
        self.rules.borrow().replies_cut
    }

    /// Returns the number of clients that have connected so far, including those that were reset.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Breaks every connection, closes the port and ends the thread.
    pub fn stop(self) {
        drop(self);
    }
}

/// Enters the network of the machine, and listens there on a free loopback port.
fn listen(machine: Option<&Machine>) -> io::Result<(TcpListener, u16)> {
    machine.map(Machine::enter_network).transpose()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.env.stopped().cancel();
        if let Some(thread) = self.thread.take() {
            // The stop signal ends every task of the proxy. The thread therefore ends soon, and this wait is
            // short.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password, so it is left out.
        f.debug_struct("Proxy")
            .field("port", &self.port)
            .field("upstream", &self.upstream)
            .field("rules", &*self.rules.borrow())
            .finish_non_exhaustive()
    }
}
