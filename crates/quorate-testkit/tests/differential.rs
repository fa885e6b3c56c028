//! Checks that random histories get the same replies from every kind of node.
//!
//! `QUORATE_CASES=20000` runs more histories than CI does, and `QUORATE_SEED=7` runs other histories. If a
//! history has a difference, it is shortened, and its steps are printed as Rust code. Add that code as a new
//! test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use quorate::redis::RedisNode;
use quorate::{
    env::{SystemWorld, World},
    node::{NodeTime, Resource},
};
use quorate_testkit::{
    differential::{
        Ask, Count, DynTarget, Fault, FileKind, Kind, Late, Life, MemoryKind, ShiftedWorld, Stamp, Step,
        Target, WrongNode, asks_in, compare, history,
    },
    redis::{RedisConfig, RedisServer},
};
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The name of a user that has no permission to run MGET.
const WITHOUT_MGET: &str = "long";

/// The number of random histories in an ordinary run.
const CASES: u32 = 250;

/// The number of acquires that plain commands have counted, but not granted.
static TAKEN_BACK: AtomicU64 = AtomicU64::new(0);

/// The length of the longest history.
const STEPS: usize = 24;

#[test]
fn random_histories_get_the_same_replies() {
    let (cases, seed) = (from_env("QUORATE_CASES", CASES), from_env("QUORATE_SEED", 1));
    let nodes = Nodes::new();
    let found = runner(cases, seed).run(&history(STEPS), |steps| {
        nodes.differ(&steps).map_or(Ok(()), |difference| Err(TestCaseError::fail(difference)))
    });
    if let Err(TestError::Fail(difference, steps)) = &found {
        panic!("{difference}\nafter these steps: {steps:?}");
    }
    found.unwrap();
    let taken_back = TAKEN_BACK.load(Ordering::Relaxed);
    println!("plain commands have refused {taken_back} acquires");
    // Redis before 7.0 has no plain acquires.
    let has_commands = !nodes.server.lock().unwrap().version().is_redis_before(7, 0);
    assert!(taken_back > 20 || !has_commands, "no history has drawn a plain acquire");
}

/// Checks that the remaining time of a very long lease is an integer. For a lease of thousands of years, a
/// server's script once returned `4.5035996273705e+15`. Every batch that read the key then failed.
#[test]
fn the_remaining_time_of_a_very_long_lease_is_an_integer() {
    let held = Ask::Extend {
        resource: 0,
        owner: 0,
        ttl: Life::Endless,
        token: Count::Standing(0),
        keep: Life::Long,
    };
    let steps = [Step::Batch(vec![held, Ask::Inspect { resource: 0 }], Late::InTime, Stamp::Right)];
    assert_eq!(Nodes::new().differ(&steps), None);
}

/// The number of requests by which a shortened history may be longer than necessary. The length of a
/// shortened history depends on the order in which steps are left out.
const STOPS_EARLY: usize = 2;

/// Checks that random histories detect each fault of a faulty node, and that a short history is found.
#[test]
fn a_wrong_node_is_found_in_few_steps() {
    // Returns the number of requests that are enough to show a fault. These are a request that prepares the
    // fault, the faulty request, and a read if the reply to the faulty request does not show the fault.
    let shortest = |fault: Fault| match fault {
        Fault::CountsTwice | Fault::CountsNothing | Fault::IgnoresNotAfter => 1,
        // A single request with a wrong marker shows this fault. Two requests also show it, if the first one
        // changes the marker.
        Fault::IgnoresTheMarker => 2,
        Fault::ReleasesForAnyone | Fault::RaisesForAnyone | Fault::CutsResults => 2,
        Fault::SharesBesideAWriter => 2,
        Fault::GrantsWhatIsReserved | Fault::GrantsWhatIsDone => 3,
        Fault::GoesPastTheQueue | Fault::QueuesByArrival => 5,
        Fault::FreesAllReaders => 5,
        Fault::CountsTheSameAgain => 4,
        Fault::ResetsWhatIsDone => 3,
        Fault::KeepsWhatHasEnded | Fault::ShortensByExtending => 3,
        Fault::OverwritesWhatIsFinal => 3,
        Fault::ServesAnyLeader => 2,
        Fault::StartsWhatIsVoid => 5,
    };
    for fault in Fault::ALL {
        let runtime = runtime();
        let found = runner(4_000, 1).run(&history(STEPS), |steps| {
            let (mut memory, mut wrong) =
                (Target::new(MemoryKind::new()), Target::new(WrongKind::new(fault)));
            let compared = runtime.block_on(compare(&steps, &mut [&mut memory, &mut wrong]));
            compared.map_err(|difference| TestCaseError::fail(difference.to_string()))
        });
        let Err(TestError::Fail(difference, steps)) = found else { panic!("{fault:?} is not found out") };
        println!("{fault:?}: {steps:?}\n{difference}");
        let most = shortest(fault) + STOPS_EARLY;
        assert!(asks_in(&steps) <= most, "{fault:?} should show in {most}: {steps:?}");
    }
}

/// Returns a runner of `cases` histories. The same seed always gives the same histories.
fn runner(cases: u32, seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn from_env<T: std::str::FromStr>(name: &str, default: T) -> T {
    let parsed = |text: String| text.parse().ok().unwrap_or_else(|| panic!("{name} is a number"));
    std::env::var(name).map_or(default, parsed)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The nodes of all kinds on which histories run.
struct Nodes {
    runtime: tokio::runtime::Runtime,
    server: Arc<Mutex<RedisServer>>,
    /// A server whose user has no permission for MGET, so that the scripts take the long path for every
    /// request.
    without_mget: Arc<Mutex<RedisServer>>,
}

impl Nodes {
    fn new() -> Self {
        // If a process is killed, the kernel still writes the data of that process. The server need not wait
        // for the disk.
        let config = || RedisConfig::new().append_only().line("appendfsync no");
        let server = |config: RedisConfig| Arc::new(Mutex::new(config.start().unwrap()));
        let without_mget = config().user(WITHOUT_MGET, "on >sesame ~* &* +@all -mget -hmget -exists");
        Self { runtime: runtime(), server: server(config()), without_mget: server(without_mget) }
    }

    /// Runs `steps` on all nodes, and returns the first difference between their replies.
    fn differ(&self, steps: &[Step]) -> Option<String> {
        let home = scratch();
        let mut redis = RedisKind { server: Arc::clone(&self.server), user: None };
        let mut long = RedisKind { server: Arc::clone(&self.without_mget), user: Some(WITHOUT_MGET) };
        redis.flush();
        long.flush();
        let mut nodes = (Target::new(MemoryKind::new()), Target::new(FileKind::new(home.path())));
        let mut servers = (Target::new(redis), Target::new(long));
        let table: &mut [&mut dyn DynTarget] =
            &mut [&mut nodes.0, &mut nodes.1, &mut servers.0, &mut servers.1];
        self.runtime.block_on(compare(steps, table)).err().map(|difference| difference.to_string())
    }
}

/// Returns a directory in memory, if the machine has one. File nodes are faster there, because they sync every
/// write. The data need not outlive the test.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let home = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("quorate-alike-").tempdir_in(home).unwrap()
}

/// The kind of a Redis server that restarts with its data. The test lets time pass by moving the expiry times
/// of the keys, because the server's clock cannot be moved.
struct RedisKind {
    server: Arc<Mutex<RedisServer>>,
    /// The name of a user with the password `sesame`. `None` for the default user.
    user: Option<&'static str>,
}

impl RedisKind {
    fn command(&self, args: &[&str]) {
        let said = self.server.lock().unwrap().command(args);
        assert!(!said.starts_with("(error)"), "{args:?}: {said}");
    }
}

impl Kind for RedisKind {
    type Node = RedisNode;

    fn name(&self) -> &'static str {
        self.user.map_or("RedisNode", |_| "RedisNode without MGET")
    }

    fn node(&self) -> RedisNode {
        let server = self.server.lock().unwrap();
        let url = match self.user {
            Some(user) => format!("redis://{user}:sesame@127.0.0.1:{}", server.port()),
            None => server.url(),
        };
        RedisNode::parse(&url).unwrap()
    }

    fn wall(&self) -> NodeTime {
        SystemWorld.wall()
    }

    fn pass(&mut self, time: Duration) {
        let script = "for _, key in ipairs(redis.call('KEYS', '*')) do
                        if redis.call('TYPE', key).ok == 'zset' then
                          for _, reader in ipairs(redis.call('ZRANGE', key, 0, -1)) do
                            redis.call('ZINCRBY', key, -ARGV[1], reader)
                          end
                        elseif string.find(key, '}:queue$') then
                          local places = redis.call('HGETALL', key)
                          for i = 1, #places, 2 do
                            local at, ends, kind = string.match(places[i + 1], '^(%d+):(%d+):([rw])$')
                            ends = string.format('%.0f', ends - ARGV[1])
                            redis.call('HSET', key, places[i], at .. ':' .. ends .. ':' .. kind)
                          end
                        end
                        local value = redis.call('TYPE', key).ok == 'string' and redis.call('GET', key) or ''
                        local held, count, kept, attempts, counted, rest =
                          string.match(value, '^c:(%d+):(%d+):(%d+):(%d+):(%d+)(:.*)$')
                        if held then
                          local function sooner(ends)
                            return string.format('%.0f', math.max(ends - ARGV[1], 0))
                          end
                          value = table.concat({ 'c', sooner(held), count, sooner(kept), attempts, sooner(counted) }, ':')
                          redis.call('SET', key, value .. rest, 'KEEPTTL')
                        end
                        local left = redis.call('PTTL', key)
                        if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
                      end";
        self.command(&["EVAL", script, "0", &time.as_millis().to_string()]);
    }

    fn flush(&mut self) {
        self.command(&["FLUSHALL"]);
    }

    fn restart(&mut self) {
        self.server.lock().unwrap().restart().unwrap();
    }

    fn keep_count(&mut self, resource: &Resource, keep: Duration) {
        let (key, keep) = (format!("{{quorate:{}}}:fence", resource.key()), keep.as_millis().min(1 << 52));
        self.command(&["PEXPIRE", &key, &keep.to_string()]);
    }

    fn take_back_count(&mut self, resource: &Resource) {
        TAKEN_BACK.fetch_add(1, Ordering::Relaxed);
        if resource.is_claim() {
            self.command(&["DEL", &format!("quorate:{}", resource.key())]);
            return;
        }
        let script = "if redis.call('PTTL', KEYS[1]) < 0 then return redis.call('DEL', KEYS[1]) end
                      return redis.call('DECR', KEYS[1])";
        self.command(&["EVAL", script, "1", &format!("{{quorate:{}}}:fence", resource.key())]);
    }
}

struct WrongKind {
    world: Arc<ShiftedWorld>,
    fault: Fault,
    node: WrongNode,
}

impl WrongKind {
    fn new(fault: Fault) -> Self {
        let world = Arc::<ShiftedWorld>::default();
        Self { node: WrongNode::new(fault, world.clone()), world, fault }
    }
}

impl Kind for WrongKind {
    type Node = WrongNode;

    fn name(&self) -> &'static str {
        "WrongNode"
    }

    fn node(&self) -> WrongNode {
        self.node.clone()
    }

    fn wall(&self) -> NodeTime {
        self.world.wall()
    }

    fn pass(&mut self, time: Duration) {
        self.world.pass(time);
    }

    fn flush(&mut self) {
        self.node = WrongNode::new(self.fault, self.world.clone());
    }

    fn restart(&mut self) {}
}
