//! Tests of claims on real servers. The workers are processes that the tests kill.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use quorate::{
    claim::{Claim, ClaimError, ClaimOutcome, ClaimState, Claims, DeadLettered, MessageId},
    quorum::Quorum,
};
use quorate_testkit::redis::{RedisCluster, RedisServer};
use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The TTL of all claims in this file, and the deployment's `max_ttl`.
const TTL: Duration = Duration::from_secs(2);
/// A time limit that a healthy run never reaches, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The environment variable that passes a [`worker_process`] its name, its message, and its servers.
const ARGUMENTS: &str = "QUORATE_TEST_CLAIMS_WORKER";

fn quorum(servers: &RedisCluster, name: &str) -> Quorum {
    let urls: Vec<String> = servers.iter().map(quorate_testkit::redis::RedisServer::url).collect();
    connect(&urls, name)
}

fn connect(urls: &[String], name: &str) -> Quorum {
    let builder = Quorum::redis(urls).expect("URLs").worker(name).max_ttl(TTL).trust_new_nodes(true);
    builder.node_timeout(Duration::from_millis(500)).build().expect("a sound setup")
}

fn claims(quorum: &Quorum) -> Claims {
    Claims::new(quorum, "orders").ttl(TTL).max_attempts(3)
}

/// The code of a worker process. The process claims a message, and reports this. Then it waits for a command
/// on its standard input, abandons or completes the claim, and reports the result.
#[test]
#[ignore = "the other tests of this file run it"]
fn worker_process() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let parts: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let [name, id, urls @ ..] = &parts[..] else { panic!("{arguments}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let quorum = connect(urls, name);
        let claim = eventually(&quorum, id).await;
        println!("claimed {}", claim.attempt());
        std::io::stdout().flush().expect("a pipe");
        let mut order = String::new();
        std::io::stdin().read_line(&mut order).expect("a pipe");
        let result = match order.trim() {
            "abandon" => claim.abandon().await.map_err(|error| match error {
                ClaimError::TakenOver { holder } => format!("taken over by {}", holder.worker()),
                other => other.to_string(),
            }),
            "complete" => claim.complete("theirs").await.map(drop).map_err(|error| match error {
                ClaimError::TakenOver { holder } => format!("taken over by {}", holder.worker()),
                other => other.to_string(),
            }),
            other => panic!("{other}"),
        };
        println!("result {}", result.map_or_else(|error| error, |()| "done".to_owned()));
    });
}

/// Claims a message of which a killed worker may still hold the claim. Waits until that claim has expired.
async fn eventually(quorum: &Quorum, id: &str) -> Claim {
    let give_up = quorum.env().now() + PATIENCE;
    loop {
        match claims(quorum).claim(id).await {
            Ok(ClaimOutcome::Claimed(claim)) => return claim,
            Ok(ClaimOutcome::InProgress { retry_after, .. }) => {
                quorum.env().sleep(retry_after.unwrap_or_default().min(TTL / 10)).await;
            }
            Ok(other) => panic!("{other:?}"),
            // Some servers may not be connected yet. So an error that may end by itself is ignored.
            Err(error) => assert!(!error.is_permanent(), "{error}"),
        }
        assert!(quorum.env().now() < give_up, "{id} is never free");
    }
}

struct Worker {
    child: Child,
    orders: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    fn start(servers: &RedisCluster, name: &str, id: &str) -> Self {
        let urls: Vec<String> = servers.iter().map(quorate_testkit::redis::RedisServer::url).collect();
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["worker_process", "--exact", "--ignored", "--nocapture"])
            .env(ARGUMENTS, format!("{name} {id} {}", urls.join(" ")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let orders = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, orders, lines }
    }

    /// Returns the rest of the next line that begins with `prefix`.
    fn line_after(&mut self, prefix: &str) -> String {
        let found = self
            .lines
            .by_ref()
            .map(|line| line.expect("text"))
            .find_map(|line| line.strip_prefix(prefix).map(|rest| rest.trim().to_owned()));
        found.unwrap_or_else(|| panic!("it ended without {prefix}"))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child process");
    }

    fn send(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("a pipe");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_of_killed_workers_count_and_one_worker_dead_letters_the_message() {
    let servers = RedisCluster::start(5).unwrap();
    for attempt in ["1", "2", "3"] {
        let mut worker = Worker::start(&servers, "mortal", "m");
        assert_eq!(worker.line_after("claimed"), attempt);
        worker.kill();
    }
    let (a, b) = (quorum(&servers, "a"), quorum(&servers, "b"));
    let handed = Arc::new(AtomicUsize::new(0));
    let consumer = async |quorum: &Quorum| -> DeadLettered {
        let handed = Arc::clone(&handed);
        let env = quorum.env().clone();
        let claims = claims(quorum).dead_letter(move |letter| {
            handed.fetch_add(1, Ordering::SeqCst);
            let env = env.clone();
            async move {
                // During this sleep the claim expires, and the other consumer claims the message.
                env.sleep(TTL / 2).await;
                letter.claim.fencing_token().map(|token| format!("row {token}"))
            }
        });
        let give_up = quorum.env().now() + PATIENCE;
        loop {
            match claims.claim("m").await {
                Ok(ClaimOutcome::DeadLettered(letter)) => return letter,
                Ok(ClaimOutcome::Claimed(claim)) => panic!("attempt {}", claim.attempt()),
                _ => assert!(quorum.env().now() < give_up, "never dead-lettered"),
            }
            quorum.env().sleep(Duration::from_millis(20)).await;
        }
    };
    let (one, two) = tokio::join!(consumer(&a), consumer(&b));
    assert_eq!(handed.load(Ordering::SeqCst), 1, "handed over once");
    assert_eq!(one, two, "both receive the same record");
    assert!(one.attempts == 3 && one.at.is_some() && one.note.starts_with("row "), "{one:?}");

    claims(&a).reset("m").await.expect("every server is up");
    assert_eq!(eventually(&b, "m").await.attempt(), 1);
    a.close().await;
    b.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_worker_changes_nothing_and_learns_the_holder() {
    let servers = RedisCluster::start(5).unwrap();
    for order in ["abandon", "complete"] {
        let mut late = Worker::start(&servers, "late", order);
        assert_eq!(late.line_after("claimed"), "1");
        late.signal("-STOP");
        let a = quorum(&servers, "a");
        let claim = eventually(&a, order).await;
        assert_eq!(claim.attempt(), 2);
        let give_up = a.env().now() + PATIENCE;
        let has = |server: &RedisServer| {
            server.command(&["GET", &format!("quorate:claim/orders/{order}")]).contains(":a:")
        };
        while !servers.iter().all(has) {
            assert!(a.env().now() < give_up, "a server without the new claim");
            a.env().sleep(Duration::from_millis(5)).await;
        }
        // The new claim is removed from two servers, as if its requests had never reached them. So these
        // servers do not refuse the late worker.
        for server in servers.iter().take(2) {
            let key = format!("quorate:claim/orders/{order}");
            let stored = server.command(&["GET", &key]);
            // The stored value keeps the counted attempts, but loses the owner and the counter.
            let parts: Vec<&str> = stored.splitn(8, ':').collect();
            let counted = format!("c:0:0:0:{}:", parts[4..7].join(":"));
            server.command(&["SET", &key, &counted, "KEEPTTL"]);
        }
        late.send(order);
        late.signal("-CONT");
        assert_eq!(late.line_after("result"), "taken over by a", "{order}");
        claim.fencing_token().expect("still ours");
        let state = claims(&a).inspect(order).await.expect("a quorum");
        assert!(matches!(state, ClaimState::Claimed { attempts: 2, .. }), "{state:?}");
        claim.complete("ours").await.expect("a majority");
        let done = claims(&a).claim(order).await.expect("a quorum");
        assert!(matches!(&done, ClaimOutcome::Done(record) if &*record.result == "ours"), "{done:?}");
        a.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_gets_the_first_result_and_another_payload_is_refused() {
    let servers = RedisCluster::start(5).unwrap();
    let (a, b) = (quorum(&servers, "a"), quorum(&servers, "b"));
    let _met = tokio::join!(a.ready(PATIENCE), b.ready(PATIENCE));
    let payment = MessageId::new("key-1").payload(b"ten euros");
    let env = a.env().clone();
    let first = async {
        let claims = claims(&a);
        let handler = |_| async move {
            env.sleep(TTL / 4).await;
            Ok::<_, Infallible>("receipt 7".to_owned())
        };
        claims.process_or_wait(payment.clone(), PATIENCE, handler).await.expect("handled")
    };
    let second = async {
        while !matches!(
            claims(&b).inspect("key-1").await.expect("a quorum"),
            ClaimState::Claimed { attempts: 1, .. }
        ) {
            b.env().sleep(Duration::from_millis(5)).await;
        }
        let other = claims(&b).claim(MessageId::new("key-1").payload(b"a million")).await;
        assert!(matches!(other, Err(ClaimError::OtherPayload { .. })), "while it is claimed: {other:?}");
        let handler = |_| async { Err::<(), _>("handled twice") };
        claims(&b).process_or_wait(payment.clone(), PATIENCE, handler).await.expect("the stored result")
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first, second);
    assert_eq!(&*second.result, "receipt 7");
    let other = claims(&b).claim(MessageId::new("key-1").payload(b"a million")).await;
    assert!(matches!(other, Err(ClaimError::OtherPayload { .. })), "when it is done: {other:?}");
    a.close().await;
    b.close().await;
}

/// Checks that an attempt asks a server again where plain commands found the record of an earlier attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_another_worker_gave_up_is_claimed_by_one_call() {
    let servers = RedisCluster::start(5).unwrap();
    let (a, b) = (quorum(&servers, "a"), quorum(&servers, "b"));
    a.ready(PATIENCE).await.expect("a majority votes");
    b.ready(PATIENCE).await.expect("a majority votes");
    let taken = async |claims: &Claims, id: &str| loop {
        match claims.claim(id).await.expect("every server is up") {
            ClaimOutcome::Claimed(claim) => return claim,
            // A server may not have received the release yet.
            ClaimOutcome::InProgress { .. } => a.env().sleep(Duration::from_millis(2)).await,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..4 {
        let limited = number % 2 == 0;
        let of =
            |quorum: &Quorum| if limited { claims(quorum) } else { Claims::new(quorum, "plain").ttl(TTL) };
        let id = format!("m-{number}");
        let first = taken(&of(&a), &id).await;
        let (attempt, token) = (first.attempt(), first.fencing_token().expect("it is held"));
        first.abandon().await.expect("every server is up");
        let second = taken(&of(&b), &id).await;
        assert_eq!(second.attempt(), attempt + u32::from(limited), "{id}");
        assert!(second.fencing_token().expect("it is held") > token, "{id}");
        second.complete("fine").await.expect("a majority");
    }
    a.close().await;
    b.close().await;
}

/// Returns the number of script calls that the first of `servers` has served.
fn script_calls(servers: &RedisCluster) -> u64 {
    let stats = servers[0].command(&["INFO", "commandstats"]);
    // The first server may not have served a script call yet. Then it shows no line for EVALSHA.
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_claims_are_made_and_extended_in_few_calls() {
    const IDS: usize = 1_500;
    // The TTL must be long enough for a build without optimization on a busy machine.
    const LONG_TTL: Duration = Duration::from_secs(9);
    let servers = RedisCluster::start(5).unwrap();
    let urls: Vec<String> = servers.iter().map(quorate_testkit::redis::RedisServer::url).collect();
    let builder = Quorum::redis(&urls).expect("URLs").worker("a").trust_new_nodes(true);
    let a = builder.node_timeout(Duration::from_secs(2)).build().expect("a sound setup");
    a.ready(PATIENCE).await.expect("a majority votes");
    let claims = Claims::new(&a, "orders").ttl(LONG_TTL).max_attempts(3);
    let ids: Vec<String> = (0..IDS).map(|number| format!("m-{number}")).collect();
    let before = script_calls(&servers);
    let mut held = Vec::new();
    for (id, outcome) in claims.claim_many(&ids).await.expect("sound names") {
        match outcome {
            Ok(ClaimOutcome::Claimed(claim)) => held.push(claim),
            other => panic!("{id}: {other:?}"),
        }
    }
    let claimed = script_calls(&servers);
    // Each message takes two requests: one to claim it, and one to count the attempt.
    assert!(claimed - before < IDS as u64 / 10, "{} calls to claim {IDS}", claimed - before);
    a.env().sleep(LONG_TTL * 4 / 3).await;
    let extended = script_calls(&servers);
    // There were three rounds of extensions, and possibly the beginning of a fourth. A round sends its
    // extensions at 128 different times at most.
    let calls = extended - claimed;
    assert!(calls < 4 * IDS as u64 / 4, "{calls} calls to extend {IDS} four times");
    assert!(held.iter().all(|claim| claim.fencing_token().is_ok()), "all are held past their TTL");
    let completed = Claim::complete_many(held.into_iter().map(|claim| (claim, "ok"))).await;
    assert!(completed.iter().all(|(_, completed)| completed.is_ok()));
    let done = script_calls(&servers) - extended;
    assert!(done < IDS as u64 / 10, "{done} calls to complete {IDS}");
    a.close().await;
}
