//! The simulated world of these tests. Time is paused, and the servers are behind a slow network.

use quorate::{
    env::{BootTime, Env, WallTime, World},
    node::{
        Batch, BatchReply, Cause, Hello, MemoryStore, Node, PushSender, Session,
        engine::{self, Clocks, LeaseRow, Store},
    },
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::task::TaskTracker;

use futures_util::future::BoxFuture;

/// The time of the wall clock when a test begins.
const EPOCH: WallTime = WallTime::from_micros(1_700_000_000_000_000);

/// The clocks and tasks of a runtime with paused time, and random numbers from a seed.
#[derive(Debug)]
pub(crate) struct PausedWorld {
    began: Instant,
    random: AtomicU64,
}

impl PausedWorld {
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), random: AtomicU64::new(7) })
    }
}

impl World for PausedWorld {
    fn now(&self) -> BootTime {
        BootTime::default() + Duration::from_secs(100) + self.began.elapsed()
    }

    fn wall(&self) -> WallTime {
        EPOCH + self.began.elapsed()
    }

    /// Returns the next number of a SplitMix64 generator.
    fn random(&self) -> u64 {
        let mut bits = self
            .random
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
            .wrapping_add(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn sleep_until(&self, at: BootTime) -> BoxFuture<'static, ()> {
        // No test takes an hour, so a timer for a later time may be set to an hour.
        let wait = self.now().until(at).min(Duration::from_secs(3600));
        Box::pin(tokio::time::sleep(wait))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn spawn(&self, tasks: &TaskTracker, work: BoxFuture<'static, ()>) {
        tokio::spawn(tasks.track_future(work));
    }
}

/// A server, which is the engine of the library over a store in memory. Each message to or from the server
/// takes some time.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    env: Env,
    store: Mutex<MemoryStore>,
    up: AtomicBool,
    there: Duration,
    back: Duration,
}

impl Server {
    /// Creates a server. The tasks that simulate its network belong to `env`.
    pub(crate) fn new(name: &str, env: &Env, there: Duration, back: Duration) -> Arc<Self> {
        let (store, up) = (Mutex::default(), AtomicBool::new(true));
        Arc::new(Self { name: name.to_owned(), env: env.clone(), store, up, there, back })
    }

    /// Sets whether messages arrive, in both directions. If not, they are lost silently.
    pub(crate) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Returns the leases that the server stores, with their remaining times.
    pub(crate) fn leases(&self) -> Vec<(String, Arc<str>, Duration)> {
        let clocks = self.clocks();
        let left = |row: &LeaseRow| Duration::from_nanos(row.until_nanos - clocks.lease_nanos);
        let live = self.store().live_leases(clocks).into_iter();
        live.map(|(resource, row)| (resource.key().to_owned(), Arc::clone(&row.owner), left(&row))).collect()
    }

    fn clocks(&self) -> Clocks {
        Clocks { wall: self.env.wall(), lease_nanos: self.env.now().as_nanos() }
    }

    fn store(&self) -> MutexGuard<'_, MemoryStore> {
        self.store.lock().unwrap()
    }

    /// Waits until a message arrives, at the time `until`. If messages are lost, waits forever.
    async fn travel(&self, until: BootTime) {
        self.env.sleep_until(until).await;
        if !self.is_up() {
            std::future::pending::<()>().await;
        }
    }
}

/// The connection of one worker to a server.
#[derive(Clone, Debug)]
pub(crate) struct Road(pub(crate) Arc<Server>);

impl Node for Road {
    type Session = RoadSession;

    fn name(&self) -> &str {
        &self.0.name
    }

    async fn open(&self, _nudge: PushSender) -> Result<(RoadSession, Hello), Cause> {
        let server = &self.0;
        server.travel(server.env.now() + server.there).await;
        let hello = Hello {
            node_time: server.env.wall(),
            run_id: format!("run of {}", server.name).into(),
            marker: server.store().marker().unwrap_or_else(|never| match never {}),
            data: None,
            stamps: BTreeMap::new(),
            uptime: Duration::from_secs(100),
            version: "cancel".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: Some(false),
            volatile: None,
            unable: None,
        };
        server.travel(server.env.now() + server.back).await;
        Ok((RoadSession::start(Arc::clone(server)), hello))
    }
}

type Parcel = (BootTime, Batch, oneshot::Sender<Result<BatchReply, Cause>>);

/// A session. Its batches arrive in order, even if their replies are dropped.
#[derive(Debug)]
pub(crate) struct RoadSession {
    server: Arc<Server>,
    parcels: mpsc::UnboundedSender<Parcel>,
}

impl RoadSession {
    fn start(server: Arc<Server>) -> Self {
        let (parcels, mut arriving) = mpsc::unbounded_channel::<Parcel>();
        let (here, env) = (Arc::clone(&server), server.env.clone());
        env.clone().spawn(async move {
            let mut lost = Vec::new();
            while let Some((at, batch, reply)) = arriving.recv().await {
                here.env.sleep_until(at).await;
                if !here.is_up() {
                    lost.push(reply); // The loss is silent.
                    continue;
                }
                let ran = engine::run(&mut *here.store(), &batch, here.clocks());
                let (back, env) = (here.env.now() + here.back, here.env.clone());
                env.clone().spawn(async move {
                    env.sleep_until(back).await;
                    // The send fails if the receiver of the reply was dropped.
                    let _ = reply.send(Ok(ran));
                });
            }
        });
        Self { server, parcels }
    }
}

impl Session for RoadSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let (reply, replied) = oneshot::channel();
        let at = self.server.env.now() + self.server.there;
        // The network outlives the quorums, so the send cannot fail.
        let _ = self.parcels.send((at, batch, reply));
        async move { replied.await.unwrap_or(Err(Cause::Closed)) }
    }
}
