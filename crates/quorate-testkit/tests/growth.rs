//! Checks that nothing grows without limit. The test uses thousands of short-lived locks, messages, groups and
//! jobs on real servers. Afterwards the servers and this process must store as little data as before. The test
//! is a program of its own, because it counts the bytes of its process.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use futures_util::{StreamExt, future::BoxFuture, stream};
use peak_alloc::PeakAlloc;
use quorate::{
    claim::{
        Claim, ClaimOutcome, Claims,
        stream::{Message, Received},
    },
    election::{Election, Term},
    env::Env,
    lease::TryAcquire,
    quorum::{Quorum, QuorumConfig},
    scheduler::{Job, Placement, RunOutcome, Schedule, Scheduler, SchedulerHandle},
};
use quorate_testkit::redis::{RedisCluster, RedisConfig};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write,
    future::{pending, ready},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The number of items of each kind (locks, messages, groups, jobs) in a round. The first round has `FEW`, so
/// that tables reach their full size, and the second has `MANY`.
const MANY: usize = 1_000;
const FEW: usize = 400;
/// The number of items that are in use at the same time, in both rounds.
const AT_ONCE: usize = 40;
/// The number of jobs that exist at the same time. With the period of these jobs, a ledger has room for the
/// ticks of about 175 jobs.
const JOBS_AT_ONCE: usize = 160;
/// The longest wait for an event that must happen, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The longest lifetime of a key under these settings. It is the lifetime of a group's ledger, which is twice
/// the time for which its records are useful.
const LIVES_MAX: Duration = Duration::from_secs(3 * 24 * 3600);
/// The largest growth of this process between the two rounds: about 100 bytes for each of the 4,000 items.
/// Buffers that keep their largest size change the total by up to 300 KiB in any round.
const SLACK: usize = 400 << 10;
/// The largest growth of a server over the whole test. It allows for the buffers of clients, and for tables
/// that shrink late.
const SERVER_SLACK: u64 = 1 << 20;

fn setup() -> QuorumConfig {
    QuorumConfig {
        worker: "worker".into(),
        node_timeout: SECOND / 2,
        max_ttl: 4 * SECOND,
        max_clock_offset: SECOND / 5,
        fence_retention: 4 * SECOND,
        ledger_retention: 2 * SECOND,
        trust_new_nodes: true,
        ..QuorumConfig::default()
    }
}

async fn each<'a>(many: usize, work: impl Fn(usize) -> BoxFuture<'a, ()>) {
    stream::iter(0..many).for_each_concurrent(AT_ONCE, work).await;
}

/// Acquires locks of each kind: exclusive locks, read and write locks, slots, several locks together, and
/// fair locks.
async fn locks(quorum: &Quorum, many: usize, round: &str) {
    each(many, |number| {
        let name = format!("lock-{round}-{number}");
        Box::pin(async move {
            match number % 5 {
                0 => quorum.lock(&name).acquire().await.expect("free").release().await.expect("ours"),
                1 => {
                    quorum.read_lock(&name).acquire().await.expect("free").release().await.expect("ours");
                    quorum.lock(&name).acquire().await.expect("free").release().await.expect("ours");
                }
                2 => {
                    let (_, lease) = quorum.slots(&name, 3).acquire_any().await.expect("free");
                    lease.release().await.expect("ours");
                }
                3 => {
                    let names = ["a", "b"].map(|end| format!("{name}-{end}"));
                    let leases =
                        quorum.locks(names.iter().map(String::as_str)).acquire_all().await.expect("free");
                    leases.release().await.expect("ours");
                }
                _ => {
                    let fair = quorum.lock(&name).fair(Duration::from_millis(5));
                    let TryAcquire::Acquired(lease) = fair.try_acquire().await.expect("a quorum") else {
                        panic!("{name} is held");
                    };
                    let (second, ()) = tokio::join!(fair.acquire(), async {
                        Env::system().sleep(Duration::from_millis(20)).await;
                        // Dropping the lease releases it, and does not wait for the release.
                        drop(lease);
                    });
                    second.expect("it is free by now").release().await.expect("ours");
                }
            }
        })
    })
    .await;
}

struct Letter(String);

impl Message for Letter {
    type Error = Infallible;

    fn id(&self) -> Result<&str, Box<dyn std::error::Error + Send + Sync>> {
        Ok(&self.0)
    }

    async fn ack(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Handles messages in every way: completed, failed with a counted attempt, dead-lettered, completed in a
/// batch, and received from a stream.
async fn messages(quorum: &Quorum, many: usize, round: &str) {
    let claims = Claims::new(quorum, "messages").ttl(3 * SECOND).retention(4 * SECOND);
    let counted = claims.clone().max_attempts(1).dead_letter_retention(4 * SECOND);
    each(many / 5 * 3, |number| {
        let (id, claims, counted) = (format!("{round}-{number}"), &claims, &counted);
        Box::pin(async move {
            let done = async |_| Ok::<_, Infallible>("a result");
            match number % 3 {
                0 => drop(claims.process(&*id, done).await.expect("it is handled")),
                1 => drop(claims.process(&*id, async |_| Err::<(), _>("broken")).await),
                _ => {
                    drop(counted.process(&*id, async |_| Err::<(), _>("broken")).await);
                    let again = counted.claim(&*id).await.expect("a quorum");
                    assert!(matches!(again, ClaimOutcome::DeadLettered(_)), "{again:?}");
                }
            }
        })
    })
    .await;
    let ids: Vec<String> = (0..many / 5).map(|number| format!("{round}-together-{number}")).collect();
    for ids in ids.chunks(AT_ONCE) {
        let outcomes = claims.claim_many(ids.iter().map(String::as_str)).await.expect("names");
        let won = outcomes.into_iter().filter_map(|outcome| match outcome {
            (_, Ok(ClaimOutcome::Claimed(claim))) => Some((claim, "done")),
            _ => None,
        });
        for (_, completed) in Claim::complete_many(won.collect::<Vec<_>>()).await {
            completed.expect("it is completed");
        }
    }
    let letters = (0..many / 5).map(|number| Letter(format!("{round}-letter-{number}")));
    let handler = |_: Received<Letter>| async { Ok::<_, Infallible>(()) };
    claims.consume(stream::iter(letters), handler).until(pending::<()>()).await.expect("it ends");
}

/// Runs groups that each elect a leader once. Every twentieth group also runs a job.
async fn groups(quorum: &Quorum, many: usize, round: &str) {
    each(many, |number| {
        let election = Election::new(quorum, format!("group-{round}-{number}")).ttl(3 * SECOND);
        Box::pin(async move {
            if number % 20 != 0 {
                let led = CancellationToken::new();
                let work = |_: Term| {
                    led.cancel();
                    ready(Ok::<_, Infallible>(()))
                };
                election.run(work).until(led.cancelled()).await.expect("it leads");
                return;
            }
            let stop = CancellationToken::new();
            let scheduler = Scheduler::on(&election).job(job("j", Placement::Leader));
            let handle = scheduler.handle();
            let watch = async {
                until("a run in a group", || ready(nothing(&unrun(&handle)))).await;
                stop.cancel();
            };
            let (ran, ()) = tokio::join!(scheduler.run().until(stop.clone().cancelled_owned()), watch);
            ran.expect("a sound scheduler");
        })
    })
    .await;
}

fn job(name: &str, placement: Placement) -> Job {
    let often = Schedule::every(SECOND / 4).expect("a period");
    Job::new(name, often, |_| async { Ok::<(), Infallible>(()) }).placement(placement)
}

/// Returns the names of the jobs that have not run yet.
fn unrun(handle: &SchedulerHandle) -> Vec<String> {
    let counts = handle.counts();
    let ran = |job: &Job| {
        counts.jobs.get(job.name()).is_some_and(|counts| counts.ends.contains_key(&RunOutcome::Done))
    };
    handle.jobs().iter().filter(|job| !ran(job)).map(|job| job.name().to_string()).collect()
}

/// Adds jobs to one group, runs them, and removes them. Every fifth job has any-worker placement.
async fn jobs(quorum: &Quorum, many: usize, round: &str) {
    let scheduler = Scheduler::on(&Election::new(quorum, "jobs").ttl(4 * SECOND));
    let (handle, stop) = (scheduler.handle(), CancellationToken::new());
    let run = scheduler.run().until(stop.clone().cancelled_owned());
    let work = async {
        for first in (0..many).step_by(JOBS_AT_ONCE) {
            let new = (first..many.min(first + JOBS_AT_ONCE)).map(|number| {
                let placement = if number % 5 == 0 { Placement::AnyWorker } else { Placement::Leader };
                job(&format!("job-{round}-{number}"), placement)
            });
            handle.set_jobs(new.collect()).expect("sound jobs");
            until("a run of each job", || ready(nothing(&unrun(&handle)))).await;
        }
        handle.set_jobs(Vec::new()).expect("none");
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(run, work);
    ran.expect("a sound scheduler");
}

fn nothing(left: &[String]) -> Result<(), String> {
    if left.is_empty() { Ok(()) } else { Err(format!("{} left: {:.400}", left.len(), left.join(", "))) }
}

async fn until<F: Future<Output = Result<(), String>>>(what: &str, holds: impl Fn() -> F) {
    let env = Env::system();
    let give_up = env.now() + PATIENCE;
    while let Err(why) = holds().await {
        assert!(env.now() < give_up, "no {what}: {why}");
        env.sleep(Duration::from_millis(100)).await;
    }
}

/// Returns one line for each kind of key that the servers store. Keys that differ only in their digits are of
/// one kind. The line has the number of keys of this kind, and one of the keys with its remaining time.
/// Markers are left out, and so are keys for which `of_interest` returns `false`.
fn left_on(cluster: &RedisCluster, of_interest: impl Fn(&str, i64) -> bool) -> Vec<String> {
    let script = "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                  all[#all + 1] = redis.call('PTTL', key) .. ' ' .. key end return all";
    let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for server in cluster.iter() {
        for line in server.command(&["EVAL", script, "0"]).lines() {
            let Some((ttl, key)) = line.split_once(' ') else { continue };
            let ttl = ttl.parse().expect("milliseconds");
            if key == "quorate:node" || !of_interest(key, ttl) {
                continue;
            }
            let kind: String =
                key.chars().map(|letter| if letter.is_ascii_digit() { '#' } else { letter }).collect();
            kinds.entry(kind).or_insert_with(|| (0, format!("{key}, {ttl} ms"))).0 += 1;
        }
    }
    kinds.into_iter().map(|(kind, (count, one))| format!("{count} of {kind} ({one})")).collect()
}

fn memory_of(cluster: &RedisCluster) -> Vec<u64> {
    let used = |info: String| {
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:").map(str::to_owned));
        line.and_then(|bytes| bytes.trim().parse().ok()).expect("bytes")
    };
    cluster.iter().map(|server| used(server.command(&["INFO", "memory"]))).collect()
}

async fn round(quorum: &Quorum, many: usize, name: &str) {
    let began = Env::system().now();
    let told = |what: &str| println!("{name}: {many} {what} after {:.1?}", began.until(Env::system().now()));
    locks(quorum, many, name).await;
    told("locks");
    messages(quorum, many, name).await;
    told("messages");
    groups(quorum, many, name).await;
    told("groups");
    jobs(quorum, many, name).await;
    told("jobs");
}

/// Returns the number of bytes that this process uses when it has nothing to do: the smallest of several
/// readings. Fails if this number is more than `bound`, or if more than `tasks` tasks are alive.
async fn at_rest(quorum: &Quorum, tasks: usize, bound: usize) -> Result<usize, String> {
    let mut least = usize::MAX;
    for _ in 0..10 {
        Env::system().sleep(Duration::from_millis(100)).await;
        least = least.min(ALLOCATOR.current_usage());
    }
    match quorum.env().tasks_alive() {
        alive if alive > tasks => Err(format!("{alive} tasks, {tasks} before")),
        _ if least > bound => Err(format!("{least} bytes, {} more than the bound", least - bound)),
        _ => Ok(least),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_of_each_kind_leave_nothing_behind() {
    let config = RedisConfig::new().own_clock();
    let cluster = RedisCluster::start_with(3, &config).unwrap_or_else(|error| panic!("{error}"));
    let quorum = Quorum::redis(cluster.urls()).expect("URLs").config(setup()).build().expect("a sound setup");
    let _ = quorum.ready(PATIENCE).await;
    let (tasks, empty) = (quorum.env().tasks_alive(), memory_of(&cluster));

    round(&quorum, FEW, "first").await;
    let mut before = 0;
    for _ in 0..5 {
        before = at_rest(&quorum, tasks, usize::MAX).await.unwrap_or_default().max(before);
    }
    assert!(before > 0, "tasks of the first round go on: {}", quorum.env().tasks_alive());
    round(&quorum, MANY, "second").await;
    until("rest of this process", || async { at_rest(&quorum, tasks, before + SLACK).await.map(drop) }).await;

    // The keys of locks, messages, leaders, sessions and removed jobs expire within seconds under these settings. Ledgers
    // live longer.
    let soon = |key: &str, _: i64| !key.starts_with("quorate:ledger/") || key.contains("{history:");
    until("end of keys", || ready(nothing(&left_on(&cluster, soon)))).await;
    // All other keys must expire too. The last keys to expire are the ledgers of groups without a worker.
    let endless = |_: &str, ttl: i64| !(0..i64::try_from(LIVES_MAX.as_millis()).unwrap_or(0)).contains(&ttl);
    let endless = left_on(&cluster, endless);
    let mut text = String::new();
    endless.iter().for_each(|one| writeln!(text, "  {one}").expect("a string"));
    assert!(endless.is_empty(), "these do not end, or too late:\n{text}");

    quorum.close().await;
    cluster.iter().for_each(|server| server.step_clock(LIVES_MAX + DAY, true));
    until("end of ledgers", || ready(nothing(&left_on(&cluster, |_, _| true)))).await;
    until("rest of the servers", || {
        let (now, bound) = (memory_of(&cluster), |before: &u64| before + SERVER_SLACK);
        match now.iter().zip(&empty).all(|(now, empty)| *now <= bound(empty)) {
            true => ready(Ok(())),
            false => ready(Err(format!("{now:?} bytes, {empty:?} before"))),
        }
    })
    .await;
    // DBSIZE counts an expired key until the server itself has removed the key. The test waits for this
    // removal.
    until("the markers alone", || {
        let keys: Vec<String> = cluster.iter().map(|server| server.command(&["DBSIZE"])).collect();
        ready(if keys == ["1", "1", "1"] { Ok(()) } else { Err(format!("{keys:?} keys")) })
    })
    .await;
}
