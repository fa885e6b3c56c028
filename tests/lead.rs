//! `quorate lead resign` and `quorate unlock` on real Redis servers: what an operator does to who holds something.

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

/// Daemons of one group on three servers.
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
        // Its command goes on until it is told to end, and says so.
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

    /// Waits until a command runs under a larger token than `after`, and gives its token.
    fn runs(&self, after: u64) -> u64 {
        until("command that runs", PATIENCE, || {
            let log = self.program.read("log");
            let tokens = log.lines().filter_map(|line| line.strip_suffix(" runs")?.parse().ok());
            tokens.filter(|token| *token > after).max()
        })
    }
}

#[test]
fn a_leader_resigns_when_it_is_told_to_and_the_next_one_leads() {
    let group = Group::new();
    let none = group.program.run(["lead", "resign", "--config", &group.config]).expect(1);
    assert!(none.stderr.contains("nobody leads g"), "{none}");

    let (first, second) = (group.daemon(), group.daemon());
    let led = group.runs(0);
    let other = ["lead", "resign", "--config", &group.config, "--term", "7", "--json"];
    let other = json(&group.program.run(other).expect(1).stdout);
    assert_eq!((&other["resigned"], &other["term"]), (&Value::Bool(false), &Value::from(led)));
    assert!(other["error"].as_str().is_some_and(|text| text.contains("the term 7 is over")), "{other}");

    let asked = ["lead", "resign", "--nodes", &group.nodes.list(), "--group", "g", "--json"];
    let done = json(&group.program.run(asked).expect(0).stdout);
    assert_eq!((&done["resigned"], &done["term"]), (&Value::Bool(true), &Value::from(led)), "{done}");
    let next = group.runs(led);
    assert!(group.program.read("log").contains(&format!("{led} ended")), "its work was told, and ended");
    assert_eq!(done["successor_term"].as_u64(), Some(next), "{done}");
    assert_ne!(done["leader"], done["successor"], "another leads");
    let led_first = if first.stderr().contains("asked to resign") { &first } else { &second };
    led_first.until_it_says("asked to resign");
    led_first.until_it_says("resigned");

    let told = group.program.run(["lead", "resign", "--config", &group.config, "--wait", "20s"]).expect(0);
    assert!(
        told.stdout.contains("has resigned;") && told.stdout.contains(&format!("(term {next})")),
        "{told}"
    );
    let third = group.runs(next);
    assert!(third > next);
}

#[test]
fn a_leader_that_stands_still_does_not_obey_and_that_is_said() {
    let group = Group::new();
    let daemon = group.daemon();
    let led = group.runs(0);
    daemon.signal(rustix::process::Signal::STOP);
    let deaf = group.program.run(["lead", "resign", "--config", &group.config, "--wait", "500ms"]).expect(75);
    assert!(deaf.stderr.contains("leads on") && deaf.stderr.contains(&led.to_string()), "{deaf}");
    daemon.signal(rustix::process::Signal::CONT);
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let program = program();
    let nodes = Nodes::new(3);
    let missing = program.run(["lead", "resign", "--nodes", &nodes.list()]).expect(78);
    assert!(missing.stderr.contains("no group; name it with --group"), "{missing}");
    let brace = program.run(["lead", "resign", "--nodes", &nodes.list(), "--group", "a{b"]).expect(78);
    assert!(brace.stderr.contains("--group") && brace.stderr.contains("brace"), "{brace}");
    let brace = program.run(["unlock", "--nodes", &nodes.list(), "a\nb"]).expect(78);
    assert!(brace.stderr.contains("control character"), "{brace}");
    let none = program.run(["unlock", "--force", "--nodes", &nodes.list(), "x"]).expect(1);
    assert!(none.stdout.contains("x: nobody holds it"), "{none}");
    // Nobody was elected, nothing was written: the cluster is as new as before.
    for index in 0..3 {
        assert_eq!(nodes[index].command(&["DBSIZE"]), "0");
    }
    let dead = program.run(["unlock", "x", "--nodes", "redis://127.0.0.1:1,redis://127.0.0.1:2"]).expect(69);
    assert!(dead.stderr.contains("0 of 2 nodes vote"), "{dead}");
}

#[test]
fn unlock_takes_a_lock_from_the_holder_that_it_shows_and_only_with_force() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let exec = ["exec", "--nodes", &list, "--lock", "x", "--ttl", "20s", "--", "sh", "-c"];
    let holder = program.start([&exec[..], &["echo $QUORATE_FENCING_TOKEN > token; sleep 60"]].concat());
    let token = || program.read("token").trim().parse::<u64>().ok();
    let first = until("holder", PATIENCE, token);

    let shown = program.run(["unlock", "x", "--nodes", &list]).expect(1);
    assert!(shown.stdout.contains("x: held by ") && shown.stdout.contains("on 3 nodes"), "{shown}");
    assert!(shown.stdout.contains("WARNING") && shown.stdout.contains("Nothing was done"), "{shown}");
    assert_eq!(nodes[0].command(&["EXISTS", "quorate:x"]), "1");

    // Stuck for good, and killed before it can extend: what the command is for.
    holder.signal(rustix::process::Signal::STOP);
    let forced = program.run(["unlock", "--force", "x", "--nodes", &list, "--json"]).expect(0);
    let page = json(&forced.stdout);
    assert!(forced.stderr.contains("WARNING"), "{forced}");
    assert_eq!(
        (&page["unlocked"], &page["fencing_token"]),
        (&Value::Bool(true), &Value::from(first)),
        "{page}"
    );
    assert_eq!(
        (&page["owners"][0]["freed"], &page["owners"][0]["nodes"]),
        (&Value::from(3), &Value::from(3))
    );
    program.write("token", "");
    program.run([&exec[..], &["echo $QUORATE_FENCING_TOKEN > token"]].concat()).expect(0);
    assert!(token().is_some_and(|second| second > first), "at once, and with a larger token");
    holder.kill();
}

#[test]
fn unlock_frees_what_another_client_left_and_what_is_on_a_minority() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    for index in 0..3 {
        nodes[index].command(&["SET", "quorate:foreign", "somebody"]);
    }
    nodes[1].command(&["SET", "quorate:left", "somebody", "PX", "60000"]);
    let shown = program.run(["unlock", "foreign", "--nodes", &list]).expect(1);
    assert!(shown.stdout.contains("without an end (not by Quorate)"), "{shown}");
    let forced = program.run(["unlock", "--force", "foreign", "--nodes", &list]).expect(0);
    assert!(forced.stdout.contains("freed on 3 nodes") && forced.stdout.contains("unlocked"), "{forced}");
    let forced = program.run(["unlock", "--force", "left", "--nodes", &list]).expect(0);
    assert!(forced.stdout.contains("on 1 nodes, which is no majority"), "{forced}");
    let exec = ["exec", "--nodes", &list, "--no-wait", "--lock", "foreign", "--", "true"];
    program.run(exec).expect(0);
    // A token that is no text cannot be named: that is said, and nothing else is deleted.
    nodes[0].command(&["EVAL", "redis.call('SET', 'quorate:bin', '\\255\\254')", "0"]);
    nodes[1].command(&["EVAL", "redis.call('SET', 'quorate:bin', '\\255\\254')", "0"]);
    let binary = program.run(["unlock", "--force", "bin", "--nodes", &list]).expect(69);
    assert!(binary.stdout.contains("NOT unlocked: it stands on"), "{binary}");
    assert_eq!(nodes[0].command(&["EXISTS", "quorate:bin"]), "1");
}

#[test]
fn unlock_frees_a_majority_though_a_node_is_away_and_names_that_node() {
    let program = program();
    let mut nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    for index in 0..3 {
        nodes[index].command(&["SET", "quorate:x", "gone", "PX", "600000"]);
    }
    nodes[2].kill();
    let forced = program.run(["unlock", "--force", "x", "--nodes", &list]).expect(0);
    assert!(
        forced.stdout.contains("freed on 2 nodes") && forced.stdout.contains("not freed on "),
        "{forced}"
    );
    assert!(forced.took < PATIENCE / 2 + Duration::from_secs(1), "{forced}");
}
