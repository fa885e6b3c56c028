//! Tests of what an operator sees of the copies of a group's ledger, on real servers that lose their data.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{Ended, Nodes, PATIENCE, Program, Running, until};
use rustix::process::Signal;
use serde_json::Value;

const SETTINGS: &str = r#"
group = "g"
max_ttl = "3s"
lease = { ttl = "2s" }

[[job]]
name = "beat"
every = "500ms"
command = ["true"]

[[job]]
name = "yearly"
schedule = "0 0 1 1 *"
command = ["true"]
"#;

/// Four servers, of which the first ones are the nodes.
struct Bench {
    program: Program,
    servers: Nodes,
    config: String,
    /// The number of nodes.
    size: usize,
}

impl Bench {
    /// Starts the servers, and a daemon that leads until both jobs are registered and `yearly` is paused.
    fn new(size: usize) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let servers = Nodes::new(4);
        let config = write(&program, "old.toml", &servers.urls()[..size]);
        let bench = Self { program, servers, config, size };
        let mut trust = vec!["nodes", "trust"];
        until("trust in all nodes", PATIENCE, || {
            let trusted = bench.run(&trust);
            // On a busy machine the first handshakes may come late. Then some nodes may vote already.
            trust = vec!["nodes", "trust", "--force"];
            (trusted.code != Some(69)).then(|| trusted.expect(0))
        });
        let daemon = bench.daemon();
        until("both jobs", PATIENCE, || {
            (bench.json(&["jobs", "list"])["jobs"].as_array()?.len() == 2).then_some(())
        });
        bench.run(&["jobs", "pause", "yearly"]).expect(0);
        bench.until_all_are("complete");
        stop(daemon);
        bench
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ended {
        self.program.run([args, &["--config", &self.config]].concat())
    }

    /// Returns the JSON that a command prints; null if it prints none.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let ended = self.run(&[args, &["--json"]].concat());
        serde_json::from_str(&ended.stdout).unwrap_or_default()
    }

    fn daemon(&self) -> Running {
        self.program.start(["run", "--config", &self.config])
    }

    /// Returns the copies that `quorate status` shows, in the order of the nodes.
    fn copies(&self) -> Vec<Value> {
        let status = self.json(&["status"]);
        status["resources"][0]["copies"].as_array().cloned().unwrap_or_default()
    }

    #[track_caller]
    fn until_all_are(&self, state: &str) {
        until(&format!("copies that are {state}"), PATIENCE, || {
            let copies = self.copies();
            (copies.len() == self.size && copies.iter().all(|copy| copy["state"] == state)).then_some(())
        });
    }

    #[track_caller]
    fn until_it_votes(&self, node: usize, meanwhile: impl Fn()) {
        until("vote of the restarted node", PATIENCE, || {
            meanwhile();
            (self.json(&["status"])["nodes"][node]["votes"] == true).then_some(())
        });
    }

    /// Lets too few complete copies remain: the first of three nodes restarts empty, and the second one is away. Returns the
    /// daemon that waits.
    fn waits(&mut self) -> Running {
        self.servers[1].kill();
        self.servers[0].restart().expect("it starts again");
        let daemon = self.daemon();
        daemon.until_it_says("no run starts until this ends");
        daemon
    }

    /// Replaces the node set by these servers.
    #[track_caller]
    fn replace(&mut self, servers: [usize; 3]) {
        let urls = self.servers.urls();
        let new = servers.map(|server| urls[server].clone());
        self.run(&["nodes", "replace", "--to", &new.join(",")]).expect(0);
        (self.config, self.size) = (write(&self.program, "new.toml", &new), 3);
    }

    /// Checks that all runs go on, and that the pause is not lost.
    #[track_caller]
    fn goes_on(&self, daemon: Running) {
        self.until_all_are("complete");
        until("run", PATIENCE, || (self.json(&["jobs", "why", "beat"])["reason"] == "ran").then_some(()));
        let yearly = self.json(&["jobs", "show", "yearly"]);
        assert!(yearly["paused"].is_object(), "{yearly}: {}", daemon.stderr());
        stop(daemon);
    }
}

fn write(program: &Program, name: &str, urls: &[String]) -> String {
    let list: Vec<String> = urls.iter().map(|url| format!("{url:?}")).collect();
    program.write(name, &format!("nodes = [{}]\n{SETTINGS}", list.join(", ")))
}

#[track_caller]
fn stop(daemon: Running) {
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

#[test]
fn a_server_that_restarted_empty_is_incomplete_until_a_leader_has_copied_everything() {
    let mut bench = Bench::new(3);
    bench.servers[0].restart().expect("it starts again");
    // No daemon runs, so nothing is copied. Another worker lets the node's quarantine begin.
    let exec = ["exec", "--config", &bench.config, "--lock", "x", "--", "true"];
    bench.until_it_votes(0, || drop(bench.program.run(exec).expect(0)));
    let copies = bench.copies();
    let states: Vec<&Value> = copies.iter().map(|copy| &copy["state"]).collect();
    assert_eq!(states, ["incomplete", "complete", "complete"], "{copies:?}");
    assert_eq!((&copies[0]["records"], &copies[1]["records"]), (&0.into(), &Value::Null), "{copies:?}");
    let of = copies[0]["of"].as_u64().expect("a number");
    assert!(of >= 2, "the rows of both jobs: {of}");
    let incomplete = format!("incomplete, 0 of {of} records");
    bench.run(&["status"]).expect(0).tells(&[
        &format!("votes; copy of g: {incomplete}"),
        "the records of its jobs: 2 of 3 copies are complete",
    ]);
    let doctor = bench.run(&["doctor"]);
    assert!(doctor.stdout.contains(&incomplete) && doctor.stdout.contains("before you stop"), "{doctor}");
    let daemon = bench.daemon();
    bench.until_all_are("complete");
    bench.run(&["status"]).expect(0).tells(&["the records of its jobs: 3 of 3 copies are complete"]);
    bench.goes_on(daemon);
}

#[test]
fn a_ledger_that_waits_says_why_and_goes_on_once_the_lost_node_is_replaced() {
    let mut bench = Bench::new(3);
    let daemon = bench.waits();
    daemon.until_it_says("`quorate nodes replace`");
    let waits = format!("wait for {}/0: 1 of 3 copies are complete, 2 required", bench.servers.name(1));
    bench.run(&["status"]).expect(0).tells(&[&waits, "`quorate nodes replace`"]);
    let why = bench.json(&["jobs", "why", "beat"]);
    assert_eq!(why["reason"], "incomplete", "{why}");
    assert!(why["text"].as_str().is_some_and(|text| text.contains(&waits)), "{why}");
    assert!(why["action"].as_str().is_some_and(|text| text.contains("nodes replace")), "{why}");
    let doctor = bench.run(&["doctor"]).expect(2);
    assert!(doctor.stdout.contains(&waits) && doctor.stdout.contains("nodes replace"), "{doctor}");
    stop(daemon);
    bench.replace([0, 2, 3]);
    let daemon = bench.daemon();
    bench.goes_on(daemon);
    let audit = bench.json(&["audit"]);
    assert_eq!(audit["requests"][0]["action"], "nodes-replace", "{audit}");
}

#[test]
fn a_ledger_that_waits_goes_on_once_an_empty_server_has_the_name_of_the_lost_node() {
    let mut bench = Bench::new(3);
    let daemon = bench.waits();
    bench.servers[1].restart().expect("it starts again");
    daemon.until_it_says("founded the ledger");
    bench.goes_on(daemon);
}

/// Of an even number of nodes, half may have forgotten. Then no majority can be complete, so a new ledger begins.
#[test]
fn a_ledger_of_two_nodes_goes_on_after_one_has_forgotten() {
    let mut bench = Bench::new(2);
    bench.servers[0].restart().expect("it starts again");
    let daemon = bench.daemon();
    daemon.until_it_says("founded the ledger");
    bench.goes_on(daemon);
}
