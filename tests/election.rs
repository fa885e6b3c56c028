//! Tests of `quorate leader resign` and `quorate lock` on real Redis servers. With them, an operator ends a
//! leadership, and shows and releases locks.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{Nodes, PATIENCE, Program, Running, until};
use serde_json::Value;
use std::time::Duration;

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_quorate-under-test"))
}

fn json(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {stdout:?}"))
}

/// The daemons of one group, on three servers.
struct Group {
    program: Program,
    nodes: Nodes,
    config: String,
}

impl Group {
    fn new() -> Self {
        let program = program();
        let nodes = Nodes::admitted(3, &program, &[]);
        let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
        // The command of the job runs until it gets SIGTERM, and logs this.
        let text = format!(
            "nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = \"3s\" }}\n[[job]]\nname = \"long\"\nevery = \"1s\"\n\
             command = [\"sh\", \"-c\", \"trap 'echo $QUORATE_FENCING_TOKEN ended >> log; exit 0' TERM; echo \
             $QUORATE_FENCING_TOKEN runs >> log; while :; do sleep 0.05; done\"]\n",
            list.join(", ")
        );
        let config = program.write("quorate.toml", &text);
        Self { program, nodes, config }
    }

    fn daemon(&self) -> Running {
        self.program.start(["run", "--config", &self.config])
    }

    /// Waits until the command runs under a token larger than `after`, and returns this token.
    fn runs(&self, after: u64) -> u64 {
        until("command that runs", PATIENCE, || {
            let log = self.program.read("log");
            let tokens = log.lines().filter_map(|line| line.strip_suffix(" runs")?.parse().ok());
            tokens.filter(|token| *token > after).max()
        })
    }
}

#[test]
fn a_leader_resigns_on_request_and_the_next_one_leads() {
    let group = Group::new();
    let none = group.program.run(["leader", "resign", "--config", &group.config]).expect(1);
    assert!(none.stderr.contains("the group g has no leader"), "{none}");

    let (first, second) = (group.daemon(), group.daemon());
    let led = group.runs(0);
    let other = ["leader", "resign", "--config", &group.config, "--term", "7", "--json"];
    let other = json(&group.program.run(other).expect(1).stdout);
    assert_eq!((&other["resigned"], &other["term"]), (&Value::Bool(false), &Value::from(led)));
    assert!(other["error"].as_str().is_some_and(|text| text.contains("the term 7 is over")), "{other}");

    let request = ["leader", "resign", "--nodes", &group.nodes.list(), "--group", "g", "--json"];
    let done = json(&group.program.run(request).expect(0).stdout);
    assert_eq!((&done["resigned"], &done["term"]), (&Value::Bool(true), &Value::from(led)), "{done}");
    let next = group.runs(led);
    assert!(group.program.read("log").contains(&format!("{led} ended")), "its work was cancelled, and ended");
    assert_eq!(done["successor_term"].as_u64(), Some(next), "{done}");
    assert_ne!(done["leader"], done["successor"], "another leads");
    let led_first = if first.stderr().contains("asked to resign") { &first } else { &second };
    led_first.until_it_says("asked to resign");
    led_first.until_it_says("resigned");

    let ended = group.program.run(["leader", "resign", "--config", &group.config, "--wait", "20s"]).expect(0);
    assert!(
        ended.stdout.contains("has resigned;") && ended.stdout.contains(&format!("(term {next})")),
        "{ended}"
    );
    let third = group.runs(next);
    assert!(third > next);
}

#[test]
fn a_leader_that_is_stopped_does_not_resign_and_that_is_reported() {
    let group = Group::new();
    let daemon = group.daemon();
    let led = group.runs(0);
    daemon.signal(rustix::process::Signal::STOP);
    let ended =
        group.program.run(["leader", "resign", "--config", &group.config, "--wait", "500ms"]).expect(75);
    assert!(ended.stderr.contains(&led.to_string()), "{ended}");
    daemon.signal(rustix::process::Signal::CONT);
}

#[test]
fn invalid_requests_are_refused_and_write_nothing() {
    let program = program();
    let nodes = Nodes::new(3);
    let missing = program.run(["leader", "resign", "--nodes", &nodes.list()]).expect(78);
    assert!(missing.stderr.contains("no group; name it with --group"), "{missing}");
    let brace = program.run(["leader", "resign", "--nodes", &nodes.list(), "--group", "a{b"]).expect(78);
    assert!(brace.stderr.contains("--group") && brace.stderr.contains("brace"), "{brace}");
    let brace = program.run(["lock", "release", "--nodes", &nodes.list(), "a\nb"]).expect(78);
    assert!(brace.stderr.contains("control character"), "{brace}");
    let none = program.run(["lock", "release", "--force", "--nodes", &nodes.list(), "x"]).expect(1);
    assert!(none.stdout.contains("x: no node stores a holder"), "{none}");
    let none = program.run(["lock", "show", "--nodes", &nodes.list(), "x"]).expect(1);
    assert!(none.stdout.contains("x: no node stores a holder"), "{none}");
    // The command found no leader, and ended before it wrote anything to the nodes.
    for index in 0..3 {
        assert_eq!(nodes[index].command(&["DBSIZE"]), "0");
    }
    let dead = "redis://127.0.0.1:1,redis://127.0.0.1:2";
    for verb in ["show", "release"] {
        let ended = program.run(["lock", verb, "x", "--nodes", dead]).expect(69);
        assert!(
            ended.stderr.contains("cannot read the owner of x: 0 of 2 nodes agreed, 2 required"),
            "{ended}"
        );
        assert!(ended.stderr.contains("Connection refused"), "{ended}");
    }
}

/// Checks the error of a failed round. The error must name the nodes that failed in this round, even if every
/// node was last known to vote.
#[test]
fn a_failed_round_is_not_explained_by_the_votes_of_the_nodes() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    // A key of another type makes every request of the scripts fail. The handshake succeeds nevertheless, and
    // the nodes are trusted.
    for index in 0..3 {
        nodes[index].command(&["HSET", "quorate:x", "field", "value"]);
    }
    let commands: [&[&str]; 2] =
        [&["lock", "show", "x"], &["exec", "--lock", "x", "--wait", "300ms", "--", "true"]];
    for command in commands {
        let (verb, rest) = command.split_at(if command[0] == "exec" { 1 } else { 2 });
        let ended = program.run([verb, &["--nodes", &nodes.list()], rest].concat());
        assert_ne!(ended.code, Some(0), "{ended}");
        assert!(!ended.stderr.contains("3 of 3 nodes vote"), "{ended}");
        assert!(ended.stderr.contains(&nodes.name(0)), "the error of each node: {ended}");
    }
}

#[test]
fn a_lock_is_released_from_the_holder_that_is_shown_and_only_with_force() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let exec = ["exec", "--nodes", &list, "--lock", "x", "--ttl", "20s", "--", "sh", "-c"];
    let holder = program.start([&exec[..], &["echo $QUORATE_FENCING_TOKEN > token; sleep 60"]].concat());
    let token = || program.read("token").trim().parse::<u64>().ok();
    let first = until("holder", PATIENCE, token);
    // The command begins as soon as a majority holds the lease. It is extended to the other one soon after.
    until("lease on every node", PATIENCE, || {
        nodes.iter().all(|node| node.command(&["EXISTS", "quorate:x"]) == "1").then_some(())
    });

    let shown = program.run(["lock", "release", "x", "--nodes", &list]).expect(1);
    assert!(shown.stdout.contains("x: held by ") && shown.stdout.contains("on 3 nodes"), "{shown}");
    assert!(shown.stdout.contains("WARNING") && shown.stdout.contains("Nothing was changed"), "{shown}");
    let page = json(&program.run(["lock", "show", "x", "--nodes", &list, "--json"]).expect(0).stdout);
    assert_eq!(
        (&page["owners"][0]["nodes"], &page["fencing_token"]),
        (&Value::from(3), &Value::from(first)),
        "{page}"
    );
    assert_eq!(nodes[0].command(&["EXISTS", "quorate:x"]), "1");

    // The holder is stopped, and is killed before it can extend its lease. The forced release is meant for such
    // a holder.
    holder.signal(rustix::process::Signal::STOP);
    let forced = program.run(["lock", "release", "--force", "x", "--nodes", &list, "--json"]).expect(0);
    let page = json(&forced.stdout);
    assert!(forced.stderr.contains("WARNING"), "{forced}");
    assert_eq!(
        (&page["released"], &page["fencing_token"]),
        (&Value::Bool(true), &Value::from(first)),
        "{page}"
    );
    assert_eq!(
        (&page["results"][0]["released_on"], &page["owners"][0]["nodes"]),
        (&Value::from(3), &Value::from(3))
    );
    assert_eq!(
        (&page["results"][0]["final"], &page["results"][0]["foreign"]),
        (&Value::Bool(true), &Value::Bool(false)),
        "{page}"
    );
    program.write("token", "");
    program.run([&exec[..], &["echo $QUORATE_FENCING_TOKEN > token"]].concat()).expect(0);
    assert!(token().is_some_and(|second| second > first), "at once, and with a larger token");
    holder.kill();
}

#[test]
fn locks_of_other_clients_and_on_a_minority_can_be_released() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    for index in 0..3 {
        nodes[index].command(&["SET", "quorate:foreign", "another-client"]);
    }
    nodes[1].command(&["SET", "quorate:left", "another-client", "PX", "60000"]);
    let shown = program.run(["lock", "release", "foreign", "--nodes", &list]).expect(1);
    assert!(shown.stdout.contains("without expiry (not by Quorate)"), "{shown}");
    let forced = program.run(["lock", "release", "--force", "foreign", "--nodes", &list]).expect(0);
    assert!(
        forced.stdout.contains("released on 3 nodes")
            && forced.stdout.contains("which cannot take the lock back unless its client"),
        "{forced}"
    );
    let forced = program.run(["lock", "release", "--force", "left", "--nodes", &list]).expect(0);
    assert!(forced.stdout.contains("on 1 nodes, which is no majority"), "{forced}");
    // A foreign holder of a lock that Quorate has used has a counter beside it, which it does not know.
    let exec = ["exec", "--nodes", &list, "--no-wait", "--lock", "both", "--", "true"];
    program.run(exec).expect(0);
    let counters = (0..3).filter(|index| !nodes[*index].command(&["KEYS", "*both*"]).is_empty()).count();
    assert!(counters >= 2, "counters are left");
    for index in 0..3 {
        nodes[index].command(&["SET", "quorate:both", "another-client"]);
    }
    let forced = program.run(["lock", "release", "--force", "both", "--nodes", &list, "--json"]).expect(0);
    let page = json(&forced.stdout);
    assert_eq!(
        (&page["results"][0]["final"], &page["results"][0]["foreign"]),
        (&Value::Bool(true), &Value::Bool(true)),
        "{page}"
    );
    let exec = ["exec", "--nodes", &list, "--no-wait", "--lock", "foreign", "--", "true"];
    program.run(exec).expect(0);
    // An owner token that is not UTF-8 cannot be passed to the nodes. The command reports this, and deletes
    // nothing else.
    nodes[0].command(&["EVAL", "redis.call('SET', 'quorate:bin', '\\255\\254')", "0"]);
    nodes[1].command(&["EVAL", "redis.call('SET', 'quorate:bin', '\\255\\254')", "0"]);
    let binary = program.run(["lock", "release", "--force", "bin", "--nodes", &list]).expect(69);
    assert!(binary.stdout.contains("NOT released: the holder is still stored"), "{binary}");
    assert_eq!(nodes[0].command(&["EXISTS", "quorate:bin"]), "1");
}

#[test]
fn a_majority_releases_while_a_node_is_away_and_that_node_is_named() {
    let program = program();
    let mut nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    for index in 0..3 {
        nodes[index].command(&["SET", "quorate:x", "gone", "PX", "600000"]);
    }
    nodes[2].kill();
    let forced = program.run(["lock", "release", "--force", "x", "--nodes", &list]).expect(0);
    assert!(
        forced.stdout.contains("  released on 2 nodes") && forced.stdout.contains("not released on "),
        "{forced}"
    );
    assert!(forced.took < PATIENCE / 2 + Duration::from_secs(1), "{forced}");
}
