//! Tests of Quorate and other people's Redlock clients on the same five servers: node's `redlock`
//! (5.0.0-beta.2, and 4.2.0, which is the released one) and Python's `pottery`.
//!
//! Quorate stores a lock `R` under the key `<prefix>R`. `redlock` gets that whole key as its name. `pottery`
//! puts `redlock:` before the name. So Quorate uses the prefix `redlock:` in all these tests.
//!
//! # What is not guaranteed
//!
//! These tests need packages of two registries. `bash tests/run.sh` installs them under `target/` before it
//! runs the tests, and `bash tests/run.sh --interop` runs these tests alone. If the packages are missing,
//! each test reports on standard error that it did not run. Under `CI=true` it fails instead.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod client;

use client::{Client, Kind, installed};
use quorate::redis::RedisNode;
use quorate::{
    env::{BootTime, Env},
    lease::{Lease, TryAcquire},
    quorum::Quorum,
};
use quorate_testkit::redis::{RedisCluster, RedisServer};
use quorate_tests::support::{PATIENCE, Program, until};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The prefix that pottery adds to a name.
const PREFIX: &str = "redlock:";
const NAME: &str = "job";

/// The names of the contenders that use Quorate.
const OURS: [&str; 2] = ["ours", "also ours"];
/// The number of times that each contender must acquire the lock before the contest ends.
const WINS: u64 = 8;
/// The longest time that the contenders have for these wins.
const CONTEST: Duration = Duration::from_secs(25);

/// Five servers that all clients use, and one server on which the judge counts.
struct Bench {
    servers: RedisCluster,
    judge: RedisServer,
}

impl Bench {
    fn new() -> Self {
        let servers = RedisCluster::start(5).unwrap_or_else(|error| panic!("{error}"));
        let judge = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
        Self { servers, judge }
    }

    fn client(&self, kind: Kind) -> Client {
        Client::start(kind, NAME, &self.judge.url(), &self.servers.urls())
    }

    /// Returns whether each contender has acquired the lock often enough, by the counters of the judge.
    fn everybody_won(&self) -> bool {
        let wins = self.judge.command(&["HVALS", "wins"]);
        let enough = |wins: &&str| wins.trim().parse().is_ok_and(|wins: u64| wins >= WINS);
        wins.lines().filter(enough).count() == Kind::ALL.len() + OURS.len()
    }

    /// Returns a worker of Quorate. It trusts the servers although they are new.
    async fn quorum(&self, name: &str) -> Quorum {
        let nodes = self.servers.urls();
        let nodes = nodes.iter().map(|url| RedisNode::parse(url).expect("a URL").prefix(PREFIX));
        let quorum = Quorum::builder().worker(name).nodes(nodes).trust_new_nodes(true).build();
        let quorum = quorum.expect("a sound setup");
        // On a busy machine the first handshakes may time out.
        let env = quorum.env().clone();
        let ready = async {
            while quorum.ready(PATIENCE).await.is_err() {
                env.sleep(Duration::from_millis(20)).await;
            }
        };
        env.before(env.now() + PATIENCE, ready).await.expect("a majority votes");
        quorum
    }
}

/// Tries to acquire the lock. Returns `None` if another client holds it.
async fn tried(quorum: &Quorum, ttl: Duration) -> Option<Lease> {
    match quorum.lock(NAME).ttl(ttl).try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(lease) => Some(lease),
        TryAcquire::Contended { .. } => None,
    }
}

/// Checks that Quorate and the other client exclude each other. As soon as one of them has released the lock,
/// the other one must be able to acquire it.
async fn both_ways(kind: Kind) {
    let bench = Bench::new();
    let mut client = bench.client(kind);
    let quorum = bench.quorum("ours").await;
    let ttl = Duration::from_millis(1200);

    // The other client holds the lock. Quorate waits, and acquires it as soon as the other client has released
    // it.
    assert_eq!(client.ask("try 30000"), "got", "{kind:?}");
    assert!(tried(&quorum, ttl).await.is_none(), "{kind:?}: two holders");
    let status = quorum.inspect(&quorate::node::Resource::lock(NAME).expect("a name")).await;
    assert!(status.expect("a majority").holder.is_some(), "we see that it is held");
    assert_eq!(client.ask("release"), "released", "{kind:?}: ours broke theirs");
    let lease = quorum.lock(NAME).ttl(ttl).wait(PATIENCE).acquire().await.expect("theirs was released");

    // Quorate holds the lock for longer than its TTL, because it extends the lease. The other client cannot
    // acquire it during this time.
    let held_until = quorum.env().now() + ttl * 2;
    let mut tries = 0;
    while quorum.env().now() < held_until {
        assert_eq!(client.ask("try 30000"), "no", "{kind:?}: two holders");
        tries += 1;
        quorum.env().sleep(Duration::from_millis(40)).await;
    }
    lease.fencing_token().expect("their attempts took nothing from ours");
    assert!(tries > 5, "they tried {tries} times only");
    lease.release().await.expect("released");
    until("lock for them", PATIENCE, || (client.ask("try 30000") == "got").then_some(()));
    assert_eq!(client.ask("release"), "released");
    quorum.close().await;
}

/// Checks that a killed client holds the lock until its TTL ends, and no longer.
async fn killed(kind: Kind) {
    let bench = Bench::new();
    let mut client = bench.client(kind);
    let quorum = bench.quorum("ours").await;
    let ttl = Duration::from_millis(2500);

    // The other client holds the lock, and is killed.
    let asked = quorum.env().now();
    assert_eq!(client.ask("try 2500"), "got");
    client.kill();
    let lease = quorum.lock(NAME).ttl(ttl).wait(PATIENCE).acquire().await.expect("it expires");
    let waited = asked.until(quorum.env().now());
    assert!(waited >= ttl, "{kind:?}: theirs lasted {waited:?} of {ttl:?}");
    assert!(waited < ttl + Duration::from_secs(3), "{kind:?}: ours came {waited:?} after");
    lease.release().await.expect("released");
    quorum.close().await;

    // Quorate holds the lock in a process of its own, which is killed.
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let held = program.file("held");
    // All workers of a node set must have the same settings. So the command trusts new nodes, as the worker in
    // this process does.
    let settings =
        format!("nodes = {:?}\nprefix = \"{PREFIX}\"\ntrust_new_nodes = true\n", bench.servers.urls());
    let config = program.write("quorate.toml", &settings);
    let script = format!("touch {}; sleep 60", held.display());
    let options = ["exec", "--config", &config, "--lock", NAME, "--ttl", "2500ms"];
    let holder = program.start([&options[..], &["--", "sh", "-c", &script]].concat());
    until("command under the lock", PATIENCE, || held.exists().then_some(()));
    let mut client = bench.client(kind);
    assert_eq!(client.ask("try 30000"), "no", "{kind:?}: two holders");
    holder.kill();
    until("lock for them", PATIENCE, || (client.ask("try 30000") == "got").then_some(()));
    assert_eq!(client.ask("release"), "released");
}

/// Acquires and releases the lock again and again, until `stop` is set. Returns the number of times.
async fn contends(bench: &Bench, name: &str, stop: &AtomicBool) -> u64 {
    let quorum = bench.quorum(name).await;
    let env = quorum.env().clone();
    let mut wins = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(lease) = tried(&quorum, Duration::from_secs(5)).await else {
            env.sleep(Duration::from_millis(10) + env.random_below(Duration::from_millis(20))).await;
            continue;
        };
        let inside = bench.judge.command(&["INCR", "inside"]);
        env.sleep(Duration::from_millis(5) + env.random_below(Duration::from_millis(10))).await;
        let still = bench.judge.command(&["GET", "inside"]);
        assert_eq!((&*inside, &*still), ("1", "1"), "two holders, one of them {name}");
        lease.fencing_token().expect("five seconds are enough");
        bench.judge.command(&["HINCRBY", "wins", name, "1"]);
        bench.judge.command(&["DECR", "inside"]);
        wins += 1;
        lease.release().await.expect("all servers are there");
        env.sleep(env.random_below(Duration::from_millis(40))).await;
    }
    quorum.close().await;
    wins
}

/// Runs `work` on a thread and a runtime of its own, as if it were a separate process.
fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> std::thread::JoinHandle<T> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work)
    })
}

#[test]
fn all_contend_for_one_lock_and_one_at_a_time_has_it() {
    if !installed("all_contend_for_one_lock_and_one_at_a_time_has_it") {
        return;
    }
    let bench = Arc::new(Bench::new());
    bench.judge.command(&["SET", "inside", "0"]);
    let mut clients: Vec<Client> = Kind::ALL.iter().map(|kind| bench.client(*kind)).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let ours: Vec<_> = OURS
        .into_iter()
        .map(|name| {
            let (bench, stop) = (Arc::clone(&bench), Arc::clone(&stop));
            apart(async move { contends(&bench, name, &stop).await })
        })
        .collect();
    for client in &mut clients {
        assert_eq!(client.ask("contend"), "contending");
    }
    // The contest lasts until every contender has acquired the lock often enough. How long that takes depends
    // on the pauses of the clients.
    let env = Env::system();
    let (begun, least): (BootTime, Duration) = (env.now(), Duration::from_secs(4));
    while env.now() < begun + CONTEST && (env.now() < begun + least || !bench.everybody_won()) {
        std::thread::sleep(Duration::from_millis(50));
    }
    stop.store(true, Ordering::Relaxed);
    let mut wins: Vec<(String, u64)> = Vec::new();
    for client in clients {
        let kind = client.kind();
        let said = client.stop();
        assert!(!said.iter().any(|line| line == "overlap"), "two holders, one of them {kind:?}: {said:?}");
        let won = said.iter().find_map(|line| line.strip_prefix("wins ")).expect("it reports at the end");
        wins.push((format!("{kind:?}"), won.parse().expect("a number")));
    }
    for (number, ours) in ours.into_iter().enumerate() {
        wins.push((format!("Quorate {number}"), ours.join().expect("no overlap")));
    }
    println!("in {:?}: {wins:?}", begun.until(env.now()));
    assert!(
        wins.iter().all(|(_, wins)| *wins >= WINS),
        "each must acquire it {WINS} times at least: {wins:?}"
    );
}

macro_rules! each_client {
    ($($name:ident: $work:ident, $kind:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if installed(stringify!($name)) {
                    $work(Kind::$kind).await;
                }
            }
        )*
    };
}

each_client! {
    node_redlock_5_and_quorate_keep_each_other_out: both_ways, Redlock5;
    node_redlock_4_and_quorate_keep_each_other_out: both_ways, Redlock4;
    pottery_and_quorate_keep_each_other_out: both_ways, Pottery;
    a_killed_holder_frees_the_other_node_redlock_5: killed, Redlock5;
    a_killed_holder_frees_the_other_node_redlock_4: killed, Redlock4;
    a_killed_holder_frees_the_other_pottery: killed, Pottery;
}
