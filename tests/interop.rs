//! Tests that Quorate and other Redlock clients exclude each other on locks of the same names. With an empty
//! prefix, a lock's key is its name, and the value is a plain string, as for a client that calls `SET name
//! value NX PX ms`.
//!
//! # What is not guaranteed
//!
//! These tests only send the commands of the other client, according to Redlock's description. The tests in
//! `interop/` run real clients in other languages.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{Ended, Nodes, PATIENCE, Program, Running, until};

/// The script by which other Redlock clients release a lock. The script deletes the key only if the key has
/// the client's value.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
/// The random value with which the other client acquires locks.
const VALUE: &str = "20c9f2b1d7a84e5c";

struct Bench {
    program: Program,
    nodes: Nodes,
}

impl Bench {
    fn new() -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(5, &program, &["--prefix", ""]);
        Self { program, nodes }
    }

    fn start(&self, options: &[&str], script: &str) -> Running {
        let list = self.nodes.list();
        let head = ["exec", "--nodes", &list, "--prefix", "", "--lock", "job"];
        self.program.start([&head[..], options, &["--", "sh", "-c", script]].concat())
    }

    #[track_caller]
    fn run(&self, options: &[&str], script: &str) -> Ended {
        self.start(options, script).wait(PATIENCE)
    }

    /// Tries to acquire the lock on the node at `index`, as the other client does. Returns whether this
    /// succeeded.
    fn foreign_set(&self, index: usize) -> bool {
        self.nodes[index].command(&["SET", "job", VALUE, "NX", "PX", "60000"]) == "OK"
    }

    /// Releases the lock on the node at `index`, as the other client does. Returns whether the key was deleted.
    fn foreign_release(&self, index: usize) -> bool {
        self.nodes[index].command(&["EVAL", RELEASE, "1", "job", VALUE]) == "1"
    }

    fn value(&self, index: usize) -> String {
        self.nodes[index].command(&["GET", "job"])
    }
}

#[test]
fn a_foreign_holder_of_a_majority_keeps_exec_out_until_it_lets_go() {
    let bench = Bench::new();
    for index in 0..3 {
        assert!(bench.foreign_set(index), "node {index} was taken");
    }
    bench.run(&["--no-wait"], "touch ran").expect(75).says(&["job", "held by", VALUE]);
    assert!(!bench.program.file("ran").exists(), "the command ran without the lock");
    // The failed attempt of the worker has changed nothing for the holder, and has left no grant behind.
    for index in 0..3 {
        assert_eq!(bench.value(index), VALUE, "node {index}");
    }
    until("free key on the other nodes", PATIENCE, || {
        (3..5).all(|index| bench.value(index) == "(nil)").then_some(())
    });
    let list = bench.nodes.list();
    let status = bench.program.run(["status", "--nodes", &list, "--prefix", "", "job"]).expect(0);
    assert!(status.stdout.contains(&format!("job: held by {VALUE}")), "{status}");

    let asked =
        |index: usize| bench.nodes[index].command(&["INFO", "commandstats"]).contains("cmdstat_evalsha");
    bench.nodes[0].command(&["CONFIG", "RESETSTAT"]);
    let waits = bench.start(&["--wait", "19s"], "true");
    until("attempt of the one that waits", PATIENCE, || asked(0).then_some(()));
    for index in 0..3 {
        assert!(bench.foreign_release(index), "node {index} had forgotten the foreign lock");
    }
    waits.wait(PATIENCE).expect(0);
}

#[test]
fn a_foreign_holder_of_a_minority_has_no_lock_and_loses_nothing() {
    let bench = Bench::new();
    for index in 0..2 {
        assert!(bench.foreign_set(index), "node {index} was taken");
    }
    bench.run(&["--no-wait"], "touch ran").expect(0);
    assert!(bench.program.file("ran").exists());
    for index in 0..2 {
        assert!(bench.foreign_release(index), "node {index}: the key was overwritten or deleted");
    }
}

#[test]
fn what_exec_holds_no_foreign_client_gets() {
    let bench = Bench::new();
    let (held, go) = (bench.program.file("held"), bench.program.file("go"));
    let script = format!("touch {}; until [ -e {} ]; do sleep 0.02; done", held.display(), go.display());
    let holder = bench.start(&["--ttl", "8s"], &script);
    until("command that holds the lock", PATIENCE, || held.exists().then_some(()));

    let mut got = Vec::new();
    let mut owners = Vec::new();
    for index in 0..5 {
        if bench.foreign_set(index) {
            got.push(index);
            continue;
        }
        let node = &bench.nodes[index];
        assert_eq!(node.command(&["TYPE", "job"]), "string");
        let left: i64 = node.command(&["PTTL", "job"]).parse().expect("milliseconds");
        assert!((1..=8000).contains(&left), "node {index} keeps the lock for {left} ms of a TTL of 8000");
        owners.push(bench.value(index));
    }
    assert!(got.len() < 3, "the foreign client has a majority besides the holder: {got:?}");
    owners.dedup();
    assert_eq!(owners.len(), 1, "one random value on all nodes: {owners:?}");
    assert!(!bench.foreign_release(4) || got.contains(&4), "another's lock was released");
    got.iter().filter(|index| **index != 4).for_each(|index| assert!(bench.foreign_release(*index)));

    bench.program.write("go", "");
    holder.wait(PATIENCE).expect(0);
    // If a release was lost, this wait takes as long as the TTL.
    for index in 0..5 {
        until(&format!("free lock on node {index}"), PATIENCE, || bench.foreign_set(index).then_some(()));
    }
    bench.run(&["--no-wait"], "true").expect(75).says(&[VALUE]);
}
