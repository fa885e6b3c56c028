//! Tests of `quorate shards` on real Redis servers: workers join, leave, are killed, and each shard has one command.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{Nodes, PATIENCE, Program, Running, is_alive, now, until};
use rustix::process::Signal;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(2);

/// A cluster of trusted nodes, and the program under test.
struct Bench {
    program: Program,
    nodes: Nodes,
}

impl Bench {
    fn new() -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(3, &program, &[]);
        Self { program, nodes }
    }

    /// Starts a worker of the set `orders`. Its commands note their beginning, and their end on SIGTERM.
    fn worker(&self, count: &str) -> Running {
        let note = "echo $1 $QUORATE_SHARD $QUORATE_SHARDS $QUORATE_FENCING_TOKEN $$ $QUORATE_RESOURCE$NOTIFY_SOCKET >> notes";
        let script = format!(
            "note() {{ {note}; }}; trap 'note end; exit' TERM; note begin; while :; do sleep 0.05; done"
        );
        let list = self.nodes.list();
        let head = ["shards", "run", "--nodes", &list, "--set", "orders", "--count", count, "--ttl", "2s"];
        let mut command = self.program.command(head.into_iter().chain(["--", "sh", "-c", &script]));
        // Only the worker itself may send messages to systemd.
        command.env("NOTIFY_SOCKET", self.program.file("systemd"));
        self.program.start_command(command)
    }

    /// Returns the set, as the program shows it. `None` while there is none.
    fn set(&self) -> Option<Value> {
        let shown =
            self.program.run(["shards", "list", "--nodes", &self.nodes.list(), "--set", "orders", "--json"]);
        (shown.code == Some(0)).then(|| serde_json::from_str(&shown.stdout).expect("a JSON document"))
    }

    /// Waits until the workers own these numbers of shards, in any order. Returns the time that it took.
    fn until_owned(&self, shares: &[u64], within: Duration) -> Duration {
        let began = now();
        until(&format!("shares of {shares:?}"), within, || {
            let set = self.set()?;
            let workers = set["workers"].as_array()?.iter().filter(|worker| worker["lives"] == true);
            let mut owned: Vec<u64> = workers.filter_map(|worker| worker["owned"].as_u64()).collect();
            owned.sort_unstable();
            (owned == shares).then_some(())
        });
        began.until(now())
    }

    /// Returns for each shard the lines that its commands have noted: the word, the token and the process.
    fn notes(&self) -> BTreeMap<u64, Vec<(String, u64, u32)>> {
        let mut notes: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for line in self.program.read("notes").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [word, shard, count, token, pid, resource] = words[..] else { panic!("{line:?}") };
            assert_eq!((count, resource), ("8", &*format!("orders{{shards}}/{shard}")));
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let pid = u32::try_from(number(pid)).expect("a process");
            notes.entry(number(shard)).or_default().push((word.to_owned(), number(token), pid));
        }
        notes
    }
}

#[test]
fn commands_of_shards_follow_the_workers() {
    let bench = Bench::new();
    let a = bench.worker("8");
    bench.until_owned(&[8], PATIENCE);
    let b = bench.worker("8");
    let joined = bench.until_owned(&[4, 4], PATIENCE);
    let shown = bench.program.run(["shards", "list", "--nodes", &bench.nodes.list()]).expect(0);
    shown.tells(&["orders  8 of 8  2", "every shard has its owner"]);
    // Killed: nothing of it is released, and its supervisors end the commands.
    b.kill();
    let killed = bench.until_owned(&[8], TTL + 3 * SECOND);
    assert!(killed < TTL + 2 * SECOND, "owned elsewhere after {killed:?}");
    let c = bench.worker("8");
    bench.until_owned(&[4, 4], PATIENCE);
    a.signal(Signal::TERM);
    a.wait(PATIENCE).expect(0).says(&["SIGTERM: hands its shards over", "ended"]);
    let left = bench.until_owned(&[8], PATIENCE);
    println!("joined within {joined:?}, killed: owned elsewhere within {killed:?}, ended: within {left:?}");
    c.signal(Signal::TERM);
    c.wait(PATIENCE).expect(0);
    for (shard, notes) in bench.notes() {
        let tokens: Vec<u64> =
            notes.iter().filter(|(word, ..)| word == "begin").map(|(_, token, _)| *token).collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "tokens of the shard {shard}: {notes:?}");
        assert!(notes.iter().all(|(_, _, pid)| !is_alive(*pid)), "a command of the shard {shard} runs");
        // A command ends before the next begins, unless it was killed with its worker.
        let overlaps = notes.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
        assert!(overlaps <= 1, "the shard {shard}: {notes:?}");
        assert_eq!(notes.last().map(|(word, ..)| &**word), Some("end"), "the shard {shard}: {notes:?}");
    }
    let set = bench.set().expect("the set is still known");
    assert_eq!((set["owned"].as_u64(), set["leader"].as_str()), (Some(0), None));
}

#[test]
fn wrong_input_is_refused_and_another_number_waits() {
    let bench = Bench::new();
    let list = bench.nodes.list();
    let run = |set: &str, count: &str, weight: &str| {
        let head = ["shards", "run", "--nodes", &list, "--set", set, "--count", count, "--weight", weight];
        bench.program.run(head.into_iter().chain(["--", "true"]))
    };
    run("orders", "0", "1").expect(78).says(&["count is 0, not between 1 and 4096; give it 1 to 4096"]);
    run("orders", "8", "5000").expect(78).says(&["weight is 5000, not between 1 and 1000"]);
    run("{}", "8", "1").expect(78).says(&["the shard set is \"{}\"", "brace"]);
    let nothing = ["shards", "list", "--nodes", &list, "--set", "orders"];
    bench.program.run(nothing).expect(1).says(&["no worker runs the set \"orders\""]);
    let worker = bench.worker("8");
    bench.until_owned(&[8], PATIENCE);
    let other = bench.worker("4");
    other.until_it_says("count is 4, and the other workers of the set (");
    let shown = bench.program.run(nothing).expect(0);
    shown.tells(&["waits: it has --count 4", "1 workers wait"]);
    other.signal(Signal::TERM);
    other.wait(PATIENCE).expect(0);
    worker.signal(Signal::TERM);
    worker.wait(PATIENCE).expect(0);
}
