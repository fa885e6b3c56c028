//! Tests of waiters on real servers. A release wakes them. If they are not notified, they acquire the lock by
//! polling.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use quorate::quorum::Quorum;
use quorate::redis::RedisNode;
use quorate_testkit::redis::{RedisCluster, RedisConfig, RedisServer};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);
/// A time limit that a healthy run never reaches, even on a slow machine.
const BOUND: Duration = Duration::from_secs(20);
/// The shortest time after which a waiter polls for the first time. A waiter first polls between 80 and 100
/// ms after the beginning of its wait.
const FIRST_POLL: Duration = Duration::from_millis(80);

fn servers() -> RedisCluster {
    RedisCluster::start(5).unwrap_or_else(|error| panic!("{error}"))
}

fn quorum(urls: &[String]) -> Quorum {
    Quorum::redis(urls).unwrap().trust_new_nodes(true).build().unwrap()
}

async fn soon<T>(quorum: &Quorum, work: impl Future<Output = T>) -> T {
    let env = quorum.env();
    env.before(env.now() + BOUND, work).await.unwrap_or_else(|| panic!("timed out after {BOUND:?}"))
}

/// Waits until `count` connections are subscribed to `r` on every server.
async fn subscribed(cluster: &RedisCluster, quorum: &Quorum, prefix: &str, count: usize) {
    subscribed_to(cluster, quorum, &format!("{prefix}r:freed"), count).await;
}

/// Waits until `count` connections are subscribed to `channel` on every server.
async fn subscribed_to(cluster: &RedisCluster, quorum: &Quorum, channel: &str, count: usize) {
    let all = || {
        cluster.iter().all(|server| {
            let reply = server.command(&["PUBSUB", "NUMSUB", channel]);
            reply.split_whitespace().last() == Some(&count.to_string())
        })
    };
    soon(quorum, async {
        while !all() {
            quorum.env().sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Lets `b` wait for the lock that `a` holds, and lets `a` release it as soon as `b` is subscribed. Returns the
/// time until `b` holds the lock.
async fn hand_over(cluster: &RedisCluster, a: &Quorum, b: &Quorum) -> Duration {
    let env = a.env().clone();
    let lease = soon(a, a.lock("r").ttl(TTL).acquire()).await.unwrap();
    let lock = b.lock("r").ttl(TTL);
    let acquiring = async {
        let lease = lock.acquire().await.unwrap();
        (env.now(), lease)
    };
    let releasing = async {
        subscribed(cluster, a, "quorate:", 1).await;
        subscribed_to(cluster, a, "quorate:node:waiters", 1).await;
        let began = env.now();
        lease.release().await.unwrap();
        began
    };
    let (began, (acquired, lease)) = soon(a, async { tokio::join!(releasing, acquiring) }).await;
    soon(b, lease.release()).await.unwrap();
    began.until(acquired)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter_long_before_it_polls() {
    let cluster = servers();
    let (a, b) = (quorum(&cluster.urls()), quorum(&cluster.urls()));
    let mut times = Vec::new();
    for _ in 0..30 {
        times.push(hand_over(&cluster, &a, &b).await);
    }
    // If waiters were not notified, most handovers would take until the first poll.
    assert!(median(times.clone()) < FIRST_POLL / 3, "{times:?}");
    // While no worker waits, there are no subscriptions. A release then only asks for the number of
    // subscribers.
    subscribed(&cluster, &a, "quorate:", 0).await;
    subscribed_to(&cluster, &a, "quorate:node:waiters", 0).await;
    a.close().await;
    b.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_subscribes_again_after_its_connections_were_killed() {
    let cluster = servers();
    let (a, b) = (quorum(&cluster.urls()), quorum(&cluster.urls()));
    let env = a.env().clone();
    let mut times = Vec::new();
    for _ in 0..5 {
        let lease = soon(&a, a.lock("r").ttl(TTL).acquire()).await.unwrap();
        let lock = b.lock("r").ttl(TTL);
        let acquiring = async {
            let lease = lock.acquire().await.unwrap();
            (env.now(), lease)
        };
        let releasing = async {
            subscribed(&cluster, &a, "quorate:", 1).await;
            for server in cluster.iter() {
                let killed = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                assert_eq!(killed, "1", "the waiter's");
            }
            subscribed(&cluster, &a, "quorate:", 1).await;
            let began = env.now();
            lease.release().await.unwrap();
            began
        };
        let (began, (acquired, lease)) = soon(&a, async { tokio::join!(releasing, acquiring) }).await;
        times.push(began.until(acquired));
        soon(&b, lease.release()).await.unwrap();
    }
    assert!(median(times.clone()) < FIRST_POLL / 3, "{times:?}");
    a.close().await;
    b.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_is_unsubscribed() {
    let cluster = servers();
    let (a, b) = (quorum(&cluster.urls()), quorum(&cluster.urls()));
    let lease = soon(&a, a.lock("r").ttl(TTL).acquire()).await.unwrap();
    let tasks = b.env().tasks_alive();
    for _ in 0..3 {
        let waiting = b.lock("r").ttl(TTL);
        let waiting = waiting.acquire();
        tokio::select! { biased;
            _ = waiting => panic!("two holders"),
            () = subscribed(&cluster, &a, "quorate:", 1) => {}
        }
        subscribed(&cluster, &a, "quorate:", 0).await;
    }
    assert_eq!(b.env().tasks_alive(), tasks);
    assert!(lease.fencing_token().is_ok());
    a.close().await;
    b.close().await;
}

/// Checks users that lack one of the permissions that notifications need. Waiters must then acquire the lock by
/// polling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_poll_if_notifications_are_not_permitted() {
    let least = RedisNode::least_acl("quorate:");
    let mut config = RedisConfig::new();
    let denied = [
        "-hello",
        "-subscribe",
        "-unsubscribe",
        "-publish",
        "-pubsub",
        "resetchannels",
        "resetchannels &quorate:*:freed",
        "resetchannels &quorate:node:waiters",
    ];
    for (number, less) in denied.iter().enumerate() {
        config = config.user(&format!("u{number}"), &format!("on >sesame {least} {less}"));
    }
    let server = RedisServer::start_with(config).unwrap();
    for number in 0..denied.len() {
        let url = [format!("redis://u{number}:sesame@127.0.0.1:{}", server.port())];
        let (a, b) = (quorum(&url), quorum(&url));
        for _ in 0..2 {
            let lease = soon(&a, a.lock("r").ttl(TTL).acquire()).await.unwrap();
            let lock = b.lock("r").ttl(TTL);
            let waiting = async { lock.acquire().await.unwrap() };
            tokio::pin!(waiting);
            let early = b.env().before(b.env().now() + Duration::from_millis(150), &mut waiting).await;
            assert!(early.is_none(), "two holders");
            soon(&a, lease.release()).await.unwrap();
            soon(&b, soon(&b, waiting).await.release()).await.unwrap();
        }
        a.close().await;
        b.close().await;
    }
}

/// Checks a release by an older worker or another Redlock client, which deletes the key without notifying
/// waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_another_client_is_found_by_polling() {
    let cluster = servers();
    let waiter = quorum(&cluster.urls());
    for server in cluster.iter() {
        assert_eq!(server.command(&["SET", "quorate:r", "another client's", "NX", "PX", "60000"]), "OK");
    }
    let lock = waiter.lock("r").ttl(TTL);
    let freeing = async {
        subscribed(&cluster, &waiter, "quorate:", 1).await;
        for server in cluster.iter() {
            assert_eq!(server.command(&["DEL", "quorate:r"]), "1");
        }
        waiter.env().now()
    };
    let (freed, lease) = soon(&waiter, async { tokio::join!(freeing, lock.acquire()) }).await;
    let lease = lease.unwrap();
    let took = freed.until(waiter.env().now());
    assert!(took < Duration::from_secs(2), "{took:?}: the waiter did not poll");
    soon(&waiter, lease.release()).await.unwrap();
    waiter.close().await;
}
