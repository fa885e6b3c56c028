//! Tests of the commands of operators on real Redis servers, and on directories: the lists of locks and messages, the
//! history of terms, freezes, and the audit list.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::redis::RedisNode;
use quorate::{Claims, Quorum, claim::Claim, claim::ClaimOutcome};
use quorate_testkit::redis::RedisServer;
use quorate_tests::support::{JobBench, Nodes, PATIENCE, Program, until};
use rustix::process::Signal;
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

    // The answer must report that the limit cut it off, and that a node is unreachable. Without a majority
    // there is no answer.
    let cut = locks(&["--limit", "1"], 0);
    assert_eq!((&cut["complete"], cut["locks"].as_array().map(Vec::len)), (&json!(false), Some(1)));
    nodes[2].kill();
    // The lock may have been on this node and one other. Its holder then extends it to the third one soon.
    let page = until("the lock on a majority again", PATIENCE, || {
        let page = locks(&[], 0);
        (lock(&page, "backup/1")["state"] == "exclusive").then_some(page)
    });
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

    // The command resets only messages that were given up.
    let refused = |args: &[&str], code, says: &str| {
        program.run([&["claims", "reset"], args, &["--nodes", &list]].concat()).expect(code).says(&[says]);
    };
    refused(&["orders", "o-1"], 125, "done already");
    refused(&["orders", "o-3"], 75, "packer");
    refused(&["orders", "o-9"], 1, "nothing of the message o-9");
    refused(&["or/ders", "o-9"], 78, "slash");
    assert_eq!(
        run(&["reset", "orders", "o-2", "--by", "ann", "--reason", "stock is back"], 0)["reset"],
        true
    );
    let audit = shown(&program, &["audit", "--nodes", &list], 0);
    let of = |at: usize, field: &str| audit["requests"][at][field].clone();
    assert_eq!((of(0, "action"), of(0, "target")), (json!("claims-reset"), json!("claim/orders/o-2")));
    assert_eq!((of(0, "by"), of(0, "reason")), (json!("ann"), json!("stock is back")));
    assert_eq!((of(1, "accepted"), of(1, "target")), (json!(false), json!("claim/orders/o-3")), "{audit}");
    assert_eq!(run(&["dead-letters", "orders"], 0)["messages"], json!([]));
    let again = claims.process("o-2", |_| async { Ok::<_, String>("shipped") }).await.expect("a majority");
    assert!(again.may_ack(), "{again:?}");
    claim.abandon().await.expect("a majority");
    quorum.close().await;
}

const OFTEN: &str = "[[job]]\nname = \"beat\"\nevery = \"500ms\"\ncommand = [\"true\"]\n\
                     [[job]]\nname = \"other\"\nevery = \"500ms\"\ncommand = [\"true\"]\n";

/// Runs a command with the bench's file, and returns its JSON after the exit status has been checked.
#[track_caller]
fn asked(bench: &JobBench, args: &[&str], code: i32) -> Value {
    shown(&bench.program, &[args, &["--config", &bench.config]].concat(), code)
}

fn terms(bench: &JobBench) -> Vec<Value> {
    asked(bench, &["leader", "history"], 0)["terms"].as_array().cloned().unwrap_or_default()
}

/// Waits until a term later than `after` has a leader, and returns it.
#[track_caller]
fn next_term(bench: &JobBench, after: u64) -> Value {
    until("a leader of a later term", PATIENCE, || {
        let newest = terms(bench).into_iter().next()?;
        (newest["leads"] == true && newest["term"].as_u64() > Some(after)).then_some(newest)
    })
}

/// Waits until the end of a term is recorded, and returns the term.
#[track_caller]
fn ended(bench: &JobBench, term: &Value, cause: &str) -> Value {
    until(&format!("{cause} of term {term}"), PATIENCE, || {
        let found = terms(bench).into_iter().find(|other| other["term"] == term["term"])?;
        (found["cause"] == cause).then_some(found)
    })
}

fn number(term: &Value) -> u64 {
    term["term"].as_u64().expect("a term")
}

#[test]
fn the_history_of_terms_says_why_each_ended() {
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), OFTEN);
    bench
        .program
        .run(["leader", "history", "--config", &bench.config])
        .expect(0)
        .tells(&["g: no term is recorded"]);

    // Killed: it records no end, and its successor takes over.
    let first = bench.daemon();
    let killed = next_term(&bench, 0);
    first.signal(Signal::KILL);
    let second = bench.daemon();
    let resigning = next_term(&bench, number(&killed));
    let found = ended(&bench, &killed, "unknown");
    let holder = resigning["holder"].as_str().expect("a holder");
    assert!(found["reason"].as_str().is_some_and(|reason| reason.contains(holder)), "{found}");
    assert_eq!(found["ended"], resigning["began"], "it ends, for the reader, with the next term");

    // Asked to resign, with an entry in the audit list.
    let why = ["leader", "resign", "--reason", "new kernel", "--by", "ann"];
    asked(&bench, &why, 0);
    let found = ended(&bench, &resigning, "resigned");
    assert!(found["lasted_ms"].is_u64() && found["ended"].is_string(), "{found}");
    let forced = next_term(&bench, number(&resigning));

    // Released by force, while its process is stuck. It learns of that later.
    second.signal(Signal::STOP);
    let release = ["lock", "release", "election/g", "--force", "--reason", "stuck", "--by", "bob"];
    asked(&bench, &release, 0);
    let third = bench.daemon();
    let last = next_term(&bench, number(&forced));
    second.signal(Signal::CONT);
    let found = ended(&bench, &forced, "forced-release");
    assert_eq!(found["reason"], "by bob: stuck");

    // Shut down.
    second.signal(Signal::TERM);
    second.wait(PATIENCE).expect(0);
    third.signal(Signal::TERM);
    third.wait(PATIENCE).expect(0);
    ended(&bench, &last, "shut-down");
    ended(&bench, &forced, "forced-release");
    let all = terms(&bench);
    assert!(all.iter().all(|term| term["leads"] == false), "{all:?}");
    let text = bench.program.run(["leader", "history", "--limit", "2", "--config", &bench.config]).expect(0);
    let text = text.tells(&["CAUSE", "shut-down"]);
    assert_eq!(text.stdout.lines().count(), 3, "{text}");

    let audit = asked(&bench, &["audit"], 0);
    let entries = audit["requests"].as_array().expect("requests");
    let of = |action: &str| entries.iter().find(|entry| entry["action"] == action).expect(action);
    let (resign, release) = (of("resign"), of("forced-release"));
    assert_eq!(
        (&resign["by"], &resign["reason"], &resign["target"], &resign["accepted"]),
        (&json!("ann"), &json!("new kernel"), &json!("election/g"), &json!(true))
    );
    assert_eq!((&release["by"], &release["reason"]), (&json!("bob"), &json!("stuck")));
    let of_other = asked(&bench, &["audit", "--group", "other"], 0).to_string();
    assert!(!of_other.contains("resign\"") && of_other.contains("forced-release"), "{of_other}");
}

/// Lost leases and failed work of a group without jobs, whose nodes are away for a while.
#[test]
fn a_leader_that_loses_its_lease_records_that_when_the_nodes_are_back() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let config = program.write("lead.toml", "lease = { ttl = \"2s\" }\n");
    let side = ["lead", "--config", &config, "--nodes", &list, "--group", "side", "--listen", "127.0.0.1:0"];
    let _leader = program.start(side);
    let history = || {
        let args = ["leader", "history", "--nodes", &list, "--group", "side"];
        shown(&program, &args, 0)["terms"].as_array().cloned().unwrap_or_default()
    };
    let first = until("a leader", PATIENCE, || history().into_iter().find(|term| term["leads"] == true));
    nodes.iter().take(2).for_each(RedisServer::pause);
    program.run(["leader", "history", "--nodes", &list, "--group", "side"]).expect(69);
    std::thread::sleep(Duration::from_millis(2_500));
    nodes.iter().take(2).for_each(RedisServer::resume);
    let found = until("the end of the term", PATIENCE, || {
        let found = history().into_iter().find(|term| term["term"] == first["term"])?;
        (found["cause"] == "lease-lost").then_some(found)
    });
    assert!(found["lasted_ms"].as_u64() > Some(500), "{found}");
}

/// Returns a time of a page in a form that compares like the time: the pages leave out zero fractions.
fn time(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    if text.contains('.') { text.to_owned() } else { text.replace('Z', ".000000Z") }
}

/// Returns the newest entry of a job's history.
fn last_end(bench: &JobBench, job: &str) -> Value {
    let shown = bench.jobs(&["show", job, "--json"]);
    // No leader may have registered the job yet.
    serde_json::from_str::<Value>(&shown.stdout).unwrap_or_default()["last"][0].clone()
}

#[test]
fn a_freeze_survives_the_leader_s_death_and_ends_on_time() {
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), OFTEN);
    bench.program.run(["freeze", "--config", &bench.config, "--for", "1m"]).expect(1).says(&["has no jobs"]);
    bench.program.run(["freeze", "--config", &bench.config, "--reason", "x"]).expect(2).says(&["--for"]);
    let early = ["freeze", "--config", &bench.config, "--reason", "x", "--for", "1m"];
    bench.program.run(early).expect(1).says(&["the group has no jobs"]);

    let first = bench.daemon();
    until("runs of both", PATIENCE, || {
        let ran = |job: &str| last_end(&bench, job)["outcome"] == "done";
        (ran("beat") && ran("other")).then_some(())
    });
    asked(&bench, &["jobs", "pause", "other", "--reason", "by itself"], 0);
    let freeze = ["freeze", "--reason", "the database moves", "--for", "7s", "--by", "ann"];
    let text = bench.program.run([&freeze[..], &["--config", &bench.config]].concat()).expect(0);
    text.tells(&["g: frozen", "active runs continue"]);
    let list = bench.json(&["list"]);
    let end = list["frozen"]["until"].clone();
    let until_time = time(&end);
    assert_eq!(
        (&list["frozen"]["by"], &list["frozen"]["reason"]),
        (&json!("ann"), &json!("the database moves"))
    );
    for job in list["jobs"].as_array().expect("jobs") {
        assert_eq!(job["frozen"], true, "{job}");
    }
    let beat = bench.json(&["show", "beat"]);
    assert!(time(&beat["next"]) >= until_time, "{beat}");
    bench.jobs(&["list"]).tells(&["the group is frozen by ann", "frozen until"]);
    let status = bench.program.run(["status", "--config", &bench.config]).expect(0);
    status.tells(&["its jobs are frozen by ann", "the database moves"]);
    let why = bench.json(&["why", "beat"]);
    assert_eq!(why["reason"], "frozen", "{why}");
    assert!(why["text"].as_str().is_some_and(|text| text.contains("the database moves")), "{why}");

    // The leader is killed. The next one does not start a tick before the end.
    let before = number(&next_term(&bench, 0));
    first.signal(Signal::KILL);
    let second = bench.daemon();
    next_term(&bench, before);
    let frozen = bench.json(&["list"]);
    assert_eq!(frozen["frozen"]["until"], end, "{frozen}");
    let resumed = until("runs after the freeze", PATIENCE, || {
        let last = last_end(&bench, "beat");
        (last["outcome"] == "done" && time(&last["tick"]) >= until_time).then_some(last)
    });
    assert!(time(&resumed["started"]) >= until_time, "{resumed}");
    let history = bench.json(&["history", "beat", "--limit", "100"]);
    let entries = history["history"].as_array().expect("entries");
    let skipped: Vec<&Value> = entries.iter().filter(|entry| entry["outcome"] == "skipped-frozen").collect();
    let span = skipped.iter().find(|entry| entry["until"].is_string()).expect("a span");
    assert!(
        span["reason"]
            .as_str()
            .is_some_and(|why| why.starts_with("the group was frozen by ann: the database")),
        "{span}"
    );
    let in_span = |entry: &&Value| {
        entry["outcome"] == "done"
            && time(&entry["tick"]) >= time(&span["tick"])
            && time(&entry["tick"]) <= time(&span["until"])
    };
    assert_eq!(entries.iter().filter(in_span).count(), 0, "{history}");
    assert_eq!(
        bench.json(&["why", "beat", "--at", span["tick"].as_str().expect("a tick")])["reason"],
        "frozen"
    );
    let other = bench.json(&["show", "other"]);
    assert_eq!(
        (&other["paused"]["reason"], &other["frozen"]),
        (&json!("by itself"), &json!(false)),
        "{other}"
    );

    // A second freeze is ended by hand.
    asked(&bench, &["freeze", "--reason", "again", "--for", "1h"], 0);
    assert_eq!(asked(&bench, &["unfreeze"], 0)["text"], "unfrozen");
    assert_eq!(asked(&bench, &["unfreeze"], 0)["text"], "was not frozen");
    assert!(bench.json(&["list"])["frozen"].is_null());
    let audit = asked(&bench, &["audit"], 0);
    let actions: Vec<&str> = audit["requests"]
        .as_array()
        .expect("requests")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .filter(|action| *action != "nodes-trust")
        .collect();
    assert_eq!(actions, ["unfreeze", "unfreeze", "freeze", "freeze", "pause"], "{audit}");
    assert_eq!(audit["requests"][3]["by"], "ann");
    assert_eq!((&audit["requests"][3]["target"], &audit["requests"][3]["job"]), (&json!("g"), &Value::Null));
    second.signal(Signal::TERM);
    second.wait(PATIENCE).expect(0);
}

/// Checks that the length of a freeze counts from the quorum's clock, from which the operator's may differ.
#[test]
fn the_length_of_a_freeze_is_measured_with_the_quorum_s_clock() {
    const OFFSET: &str = "max_clock_offset = \"2h\"\n";
    let (program, nodes) = (program(), Nodes::with_own_clocks(3));
    nodes.iter().for_each(|node| node.step_clock(Duration::from_secs(3_600), true));
    nodes.admit(&program, &["--config", &program.write("offset.toml", OFFSET)]);
    let bench = JobBench::on(program, nodes, &format!("{OFFSET}{OFTEN}"));
    let daemon = bench.daemon();
    until("a registered job", PATIENCE, || (bench.jobs(&["show", "beat"]).code == Some(0)).then_some(()));
    asked(&bench, &["freeze", "--reason", "the clocks differ", "--for", "10m"], 0);
    let frozen = bench.json(&["list"])["frozen"].clone();
    let minute = |field: &str| {
        let text = frozen[field].as_str().expect("a time");
        let part = |at: std::ops::Range<usize>| text[at].parse::<u32>().expect("a number");
        part(11..13) * 60 + part(14..16)
    };
    let length = (minute("until") + 24 * 60 - minute("at")) % (24 * 60);
    assert!((9..=10).contains(&length), "{length} minutes: {frozen}");
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

#[test]
fn operations_on_the_nodes_are_in_the_audit_list() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let old = nodes.list();
    let audit = |nodes: &str| shown(&program, &["audit", "--nodes", nodes], 0)["requests"].clone();
    program.run(["nodes", "trust", "--nodes", &old, "--by", "ann", "--reason", "new cluster"]).expect(0);
    let entries = audit(&old);
    assert_eq!(
        (&entries[0]["action"], &entries[0]["by"], &entries[0]["reason"], &entries[0]["accepted"]),
        (&json!("nodes-trust"), &json!("ann"), &json!("new cluster"), &json!(true)),
        "{entries}"
    );
    let held = program.start(["exec", "--nodes", &old, "--lock", "backup", "--", "sleep", "300"]);
    until("a holder", PATIENCE, || {
        (program.run(["lock", "show", "backup", "--nodes", &old]).code == Some(0)).then_some(())
    });
    let release = ["lock", "release", "backup", "--force", "--nodes", &old, "--reason", "\u{1b}[2Jgone"];
    program.run(release).expect(0);
    let text = program.run(["audit", "--nodes", &old]).expect(0);
    let text = text.tells(&["forced-release", "backup", "gone", "the holder was"]);
    assert!(!text.stdout.contains('\u{1b}'), "{text}");
    assert!(audit(&old)[0]["by"].as_str().is_some_and(|by| by.contains('@')), "USER@HOST by default");
    drop(held);
}
