//! Tests that an error that only an operator can fix ends every waiting call at once. The call's error has the
//! cause for each node.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use futures_util::{
    FutureExt, StreamExt,
    future::{LocalBoxFuture, pending},
    stream,
};
use quorate::{
    claim::{Claims, ProcessError},
    election::{Election, ElectionError},
    env::Env,
    lease::AcquireError,
    quorum::Quorum,
    scheduler::Jobs,
};
use quorate_testkit::redis::{RedisConfig, RedisServer};
use std::{
    convert::Infallible,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A time limit for a call that must end at once, on a busy machine. A call that does not end at once waits for
/// longer.
const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(600);

fn servers(config: &RedisConfig) -> Vec<RedisServer> {
    (0..3).map(|_| config.clone().start().expect("a server")).collect()
}

fn urls(servers: &[RedisServer], login: &str) -> Vec<String> {
    servers.iter().map(|server| format!("redis://{login}127.0.0.1:{}", server.port())).collect()
}

fn quorum(urls: &[String]) -> Quorum {
    let builder = Quorum::redis(urls).expect("URLs").worker("w").trust_new_nodes(true);
    builder.node_timeout(Duration::from_secs(1)).build().expect("a sound setup")
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let env = Env::system();
    let ended = env.before(env.now() + SOON, work).await;
    ended.unwrap_or_else(|| panic!("{what} waits although only an operator can fix the cause"))
}

fn text<T, E: Display>(result: Result<T, E>) -> String {
    match result {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Returns every kind of call that waits. Each has a name, and a future of the text of its error.
fn waiting_calls(quorum: &Quorum) -> Vec<(&'static str, LocalBoxFuture<'static, String>)> {
    let calls = [
        "ready",
        "acquire",
        "fair",
        "read",
        "write",
        "acquire_all",
        "slot",
        "process",
        "once",
        "consume",
        "election",
        "observer",
        "jobs",
    ];
    calls.into_iter().map(|name| (name, call(name, quorum.clone()).boxed_local())).collect()
}

async fn call(name: &'static str, quorum: Quorum) -> String {
    let claims = Claims::new(&quorum, "orders");
    let election = Election::new(&quorum, "g");
    let handled = |_| async { Ok::<_, Infallible>("handled") };
    match name {
        "ready" => text(quorum.ready(LONG).await),
        "acquire" => text(quorum.lock("x").acquire().await),
        "fair" => text(quorum.lock("x").fair(Duration::ZERO).acquire().await),
        "read" => text(quorum.read_lock("x").acquire().await),
        "write" => text(quorum.lock("x").acquire().await),
        "acquire_all" => text(quorum.locks(["x", "y"]).acquire_all().await),
        "slot" => text(quorum.slots("x", 3).acquire_any().await),
        "process" => text(claims.process("m", handled).await),
        "once" => text(claims.process_or_wait("m", LONG, handled).await),
        "consume" => {
            let messages = stream::iter([("m-1", ()), ("m-2", ())]).chain(stream::pending());
            text(claims.consume(messages, |_| async { Ok::<_, Infallible>("") }).until(pending::<()>()).await)
        }
        "election" => text(election.run(|_| async { Ok::<_, Infallible>(()) }).until(pending::<()>()).await),
        "observer" => text(election.observe().expect("a name").change().await),
        "jobs" => text(Jobs::new(&quorum, "g").expect("a name").wait(LONG).trigger("j").await),
        other => panic!("{other}"),
    }
}

/// Checks that every waiting call ends with an error that contains `says` for at least two of the three
/// servers. A call ends as soon as a majority refuses it, so the third server may not have answered. The calls
/// in `spared` only read, and are not checked.
async fn all_end(quorum: &Quorum, servers: &[RedisServer], says: &str, spared: &[&str]) {
    for (name, call) in waiting_calls(quorum).into_iter().filter(|(name, _)| !spared.contains(name)) {
        let text = soon(name, call).await;
        let reports = |server: &&RedisServer| {
            let node = format!("127.0.0.1:{}", server.port());
            text.split("; redis://").any(|part| part.contains(&node) && part.contains(says))
        };
        assert!(
            servers.iter().filter(reports).count() >= 2,
            "{name} does not report {says:?} for two servers: {text}"
        );
        assert!(!text.contains("sesame") && !text.contains("wrong-one"), "{name}: {text}");
    }
    quorum.close().await;
}

#[tokio::test]
async fn a_wrong_password_ends_every_waiting_call_at_once() {
    let servers = servers(&RedisConfig::new().password("sesame"));
    all_end(&quorum(&urls(&servers, ":wrong-one@")), &servers, "WRONGPASS", &[]).await;
    all_end(&quorum(&urls(&servers, "")), &servers, "NOAUTH", &[]).await;
}

#[tokio::test]
async fn missing_permissions_end_every_waiting_call_at_once() {
    let servers = servers(&RedisConfig::new().user("app", "on >sesame ~* +ping +get"));
    all_end(&quorum(&urls(&servers, "app:sesame@")), &servers, "NOPERM", &[]).await;
}

/// The names of the calls that only read. Nodes that must not vote can serve them.
const READS: [&str; 2] = ["observer", "jobs"];

#[tokio::test]
async fn replicas_and_evicting_servers_end_every_waiting_call_at_once() {
    let servers = servers(&RedisConfig::new());
    for server in &servers {
        server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    }
    all_end(&quorum(&urls(&servers, "")), &servers, "allkeys-lru", &READS).await;
    for server in &servers {
        server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    }
    all_end(&quorum(&urls(&servers, "")), &servers, "replica", &READS).await;
}

#[tokio::test]
async fn a_different_node_list_and_different_settings_end_every_waiting_call_at_once() {
    let mut servers = servers(&RedisConfig::new());
    let right = quorum(&urls(&servers, ""));
    right.lock("x").acquire().await.expect("a lease").release().await.expect("released");
    let other = Quorum::redis(urls(&servers, "")).expect("URLs").max_ttl(Duration::from_secs(29));
    let other = other.trust_new_nodes(true).build().expect("a sound setup");
    all_end(&other, &servers, "max_ttl", &READS).await;
    servers.pop();
    all_end(&quorum(&urls(&servers, "")), &servers, "names the node set", &READS).await;
}

#[tokio::test]
async fn a_majority_ends_the_calls_while_another_node_is_down() {
    let config = RedisConfig::new().password("sesame");
    let servers = servers(&config);
    let mut urls = urls(&servers[1..], ":wrong-one@");
    urls.insert(0, "redis://127.0.0.1:1".to_owned());
    all_end(&quorum(&urls), &servers[1..], "WRONGPASS", &[]).await;
    // If only one node fails, the calls must not end, because the other nodes can still serve them.
    let mut urls = vec!["redis://127.0.0.1:1".to_owned()];
    urls.extend(servers[..1].iter().map(|server| format!("redis://:wrong-one@127.0.0.1:{}", server.port())));
    urls.extend(servers[1..2].iter().map(RedisServer::url));
    let quorum = quorum(&urls);
    let waits = quorum.lock("x").wait(Duration::from_secs(1)).acquire().await.expect_err("no majority");
    assert!(!waits.is_permanent(), "{waits}");
    quorum.close().await;
}

/// Checks that a worker that has had a quorum continues to run when a password is changed. Its waiting calls
/// end with an error.
#[tokio::test]
async fn a_candidate_that_has_had_a_quorum_survives_a_temporary_wrong_password() {
    let servers = servers(&RedisConfig::new().user("app", "on >sesame ~* &* +@all"));
    let quorum = quorum(&urls(&servers, "app:sesame@"));
    quorum.ready(SOON).await.expect("a majority votes");
    let set_password = |to: &str| {
        for server in &servers {
            assert_eq!(server.command(&["ACL", "SETUSER", "app", "resetpass", &format!(">{to}")]), "OK");
            server.command(&["CLIENT", "KILL", "USER", "app"]);
        }
    };
    set_password("rotated");
    let refused = soon("acquire", quorum.lock("x").acquire()).await.expect_err("the password is wrong");
    assert!(matches!(refused, AcquireError::Unreachable { .. }) && refused.is_permanent(), "{refused}");
    let claims = Claims::new(&quorum, "s");
    let once = claims.process_or_wait("m", LONG, |_| async { Ok::<_, Infallible>("") });
    assert!(matches!(soon("once", once).await, Err(ProcessError::Claim(error)) if error.is_permanent()));

    let leads = Arc::new(AtomicBool::new(false));
    let (led, election) = (Arc::clone(&leads), Election::new(&quorum, "g"));
    let campaign = election.run(move |_| {
        led.store(true, Ordering::Relaxed);
        async { Ok::<_, Infallible>(()) }
    });
    let env = Env::system();
    let rotates_back = async {
        env.sleep(Duration::from_secs(2)).await;
        assert!(!leads.load(Ordering::Relaxed), "no candidate can lead yet");
        set_password("sesame");
        while !leads.load(Ordering::Relaxed) {
            env.sleep(Duration::from_millis(20)).await;
        }
    };
    let ended: Result<(), ElectionError<Infallible>> =
        soon("the candidate", campaign.until(rotates_back)).await;
    ended.expect("it leads once the password is right again");
    assert!(leads.load(Ordering::Relaxed));
    quorum.close().await;
}
