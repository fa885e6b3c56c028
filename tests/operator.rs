//! Tests of `quorate locks list` and `quorate claims`: another process lists what workers hold on real Redis
//! servers, and on directories.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::{Claims, Quorum, claim::Claim, claim::ClaimOutcome};
use quorate_redis::RedisNode;
use quorate_tests::support::{Nodes, PATIENCE, Program, until};
use serde_json::{Value, json};
use std::time::Duration;

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_quorate-under-test"))
}

/// Runs the program with `--json`, and returns its output after the exit status has been checked.
#[track_caller]
fn shown(program: &Program, args: &[&str], code: i32) -> Value {
    let ended = program.run([args, &["--json"]].concat()).expect(code);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

fn lock<'a>(page: &'a Value, name: &str) -> &'a Value {
    let locks = page["locks"].as_array().expect("locks");
    locks.iter().find(|lock| lock["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn held_locks_are_listed_with_their_holders() {
    let program = program();
    let mut nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let locks =
        |args: &[&str], code| shown(&program, &[&["locks", "list", "--nodes", &list], args].concat(), code);
    assert_eq!(locks(&[], 0)["locks"], json!([]));
    program.run(["locks", "list", "--nodes", &list]).expect(0).tells(&["no lock is held under the prefix"]);

    let config = program.write(
        "quorate.toml",
        "group = \"billing\"\n[[job]]\nname = \"j\"\nevery = \"1h\"\ncommand = [\"true\"]\n",
    );
    let daemon = program.start(["run", "--nodes", &list, "--config", &config]);
    let held =
        program.start(["exec", "--nodes", &list, "--lock", "backup/1", "--ttl", "5s", "--", "sleep", "300"]);
    for node in nodes.iter() {
        node.command(&["SET", "quorate:foreign", "client\u{1b}[2J"]);
        node.command(&["SET", "other:backup", "another program"]);
        node.command(&["HSET", "quorate:table", "a", "b"]);
    }
    nodes[0].command(&["SET", "quorate:left", "over", "PX", "60000"]);
    let page = until("holders", PATIENCE, || {
        let page = locks(&[], 0);
        (!lock(&page, "backup/1").is_null() && !lock(&page, "election/billing").is_null()).then_some(page)
    });
    let backup = lock(&page, "backup/1");
    assert_eq!(backup["state"], "exclusive");
    let left = backup["remaining_ms"].as_u64().expect("a time");
    assert!((1..=5_000).contains(&left) && backup["fencing_token"].is_u64(), "{backup}");
    assert!(backup["holder"].as_str().is_some_and(|holder| holder.contains('-')), "{backup}");
    assert_eq!(lock(&page, "election/billing")["state"], "exclusive");
    let foreign = lock(&page, "foreign");
    assert_eq!((&foreign["remaining_ms"], &foreign["holder"]), (&Value::Null, &json!("client [2J")));
    assert_eq!(lock(&page, "left")["state"], "minority");
    assert_eq!(page["locks"].as_array().map(Vec::len), Some(4), "no other key is a lock: {page}");
    assert_eq!(page["complete"], true);
    let text = program.run(["lock", "list", "--nodes", &list]).expect(0).tells(&[
        "NAME",
        "ENDS IN",
        "backup/1",
        "no expiry",
    ]);
    assert!(!text.stdout.contains('\u{1b}'), "{text}");

    // A limit is reported, and so is a node that is away. Without a majority there is no answer.
    let cut = locks(&["--limit", "1"], 0);
    assert_eq!((&cut["complete"], cut["locks"].as_array().map(Vec::len)), (&json!(false), Some(1)));
    nodes[2].kill();
    let page = locks(&[], 0);
    assert_eq!(lock(&page, "backup/1")["state"], "exclusive", "{page}");
    assert!(page["missing"][0].as_str().is_some_and(|node| node.contains(&nodes.name(2))), "{page}");
    nodes[1].kill();
    program.run(["locks", "list", "--nodes", &list]).expect(69).says(&["1 of 3 nodes answered, 2 required"]);
    drop((daemon, held));
}

#[test]
fn locks_on_directories_are_listed() {
    let program = program();
    let held = program.start(["exec", "--local", "--lock", "Backup", "--", "sleep", "300"]);
    let page = until("holder", PATIENCE, || {
        let page = shown(&program, &["locks", "list", "--local"], 0);
        (!lock(&page, "Backup").is_null()).then_some(page)
    });
    assert_eq!(lock(&page, "Backup")["state"], "exclusive", "{page}");
    drop(held);
}

/// Claims messages in each state, and returns the claim that is held.
async fn claim_messages(claims: &Claims) -> Claim {
    let done = claims.process("o-1", |_| async { Ok::<_, String>("shipped\u{1b}[2J") }).await;
    assert!(done.expect("a majority").may_ack());
    let failed = claims.process("o-2", |_| async { Err::<&str, _>("no stock") }).await;
    assert!(failed.is_err());
    let given_up = claims.claim("o-2").await.expect("a majority");
    assert!(matches!(given_up, ClaimOutcome::DeadLettered(_)), "{given_up:?}");
    match claims.claim("o-3").await.expect("a majority") {
        ClaimOutcome::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_shown_and_reset() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let servers = nodes.urls().into_iter().map(|url| RedisNode::parse(&url).expect("a URL"));
    let quorum = Quorum::builder().nodes(servers).worker("packer").build().expect("three nodes");
    quorum.ready(PATIENCE).await.expect("trusted nodes");
    let claims = Claims::new(&quorum, "orders")
        .ttl(Duration::from_secs(20))
        .max_attempts(1)
        .dead_letter(|letter| async move { Ok::<_, String>(format!("filed {}", letter.id)) });
    let claim = claim_messages(&claims).await;

    let run = |args: &[&str], code| shown(&program, &[&["claims"], args, &["--nodes", &list]].concat(), code);
    let page = run(&["show", "orders"], 0);
    let states: Vec<(&str, &str)> = page["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| (message["id"].as_str().unwrap_or("-"), message["state"].as_str().unwrap_or("-")))
        .collect();
    assert_eq!(states, [("o-1", "done"), ("o-2", "dead-lettered"), ("o-3", "claimed")]);
    assert_eq!(page["messages"][0]["result"], "shipped [2J");
    assert_eq!(
        (&page["messages"][2]["holder"], &page["messages"][2]["attempts"]),
        (&json!("packer"), &json!(1))
    );
    assert_eq!(page["examined"], 3);
    assert_eq!(run(&["show", "orders", "--limit", "2"], 0)["complete"], false);
    assert_eq!(run(&["show", "other"], 0)["messages"], json!([]));
    assert_eq!(run(&["show", "orders", "o-2"], 0)["messages"][0]["result"], "filed o-2");
    assert_eq!(run(&["show", "orders", "o-9"], 1)["messages"][0]["state"], "free");

    let letters = run(&["dead-letters", "orders"], 0);
    assert_eq!(letters["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&letters["messages"][0]["id"], &letters["messages"][0]["attempts"]),
        (&json!("o-2"), &json!(1))
    );
    let text = ["claims", "dead-letters", "orders", "--nodes", &list];
    program.run(text).expect(0).tells(&["ID", "o-2", "dead-lettered", "filed o-2"]);

    // Only a message that was given up is reset.
    let refused = |args: &[&str], code, says: &str| {
        program.run([&["claims", "reset"], args, &["--nodes", &list]].concat()).expect(code).says(&[says]);
    };
    refused(&["orders", "o-1"], 125, "done already");
    refused(&["orders", "o-3"], 75, "packer");
    refused(&["orders", "o-9"], 1, "nothing of the message o-9");
    refused(&["or/ders", "o-9"], 78, "slash");
    assert_eq!(run(&["reset", "orders", "o-2"], 0)["reset"], true);
    assert_eq!(run(&["dead-letters", "orders"], 0)["messages"], json!([]));
    let again = claims.process("o-2", |_| async { Ok::<_, String>("shipped") }).await.expect("a majority");
    assert!(again.may_ack(), "{again:?}");
    claim.abandon().await.expect("a majority");
    quorum.close().await;
}
