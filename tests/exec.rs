//! Tests of `quorate exec` on real Redis servers. They check the environment of the command, the messages, and
//! that the command is dead before another worker can hold the lock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::env::WallTime;
use quorate_testkit::redis::RedisServer;
use quorate_tests::support::{
    Beats, Ended, Nodes, PATIENCE, Program, Running, is_alive, now, parent_of, signal, until,
};
use rustix::process::Signal;
use std::{io::Write, process::Stdio, time::Duration};

const SECOND: Duration = Duration::from_secs(1);

/// A cluster of trusted nodes, and the program under test.
struct Bench {
    program: Program,
    nodes: Nodes,
}

impl Bench {
    fn new(size: usize) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(size, &program, &[]);
        Self { program, nodes }
    }

    /// Returns the arguments of `exec`, which are its options and then the command.
    fn args(&self, options: &[&str], command: &[impl AsRef<str>]) -> Vec<String> {
        let list = self.nodes.list();
        let head = ["exec", "--nodes", &list, "--lock", "job"];
        let head = head.iter().chain(options).chain(&["--"]);
        let command = command.iter().map(AsRef::as_ref);
        head.copied().chain(command).map(str::to_owned).collect()
    }

    fn start(&self, options: &[&str], command: &[impl AsRef<str>]) -> Running {
        self.program.start(self.args(options, command))
    }

    #[track_caller]
    fn run(&self, options: &[&str], command: &[impl AsRef<str>]) -> Ended {
        self.start(options, command).wait(PATIENCE)
    }

    fn beats(&self) -> Beats {
        Beats::new(self.program.file("beats"))
    }

    /// Acquires the lock for a moment, and returns its fencing token.
    #[track_caller]
    fn token(&self, options: &[&str]) -> u64 {
        let ended = self.run(options, &["sh", "-c", "echo $QUORATE_FENCING_TOKEN"]).expect(0);
        ended.stdout.trim().parse().expect("a fencing token")
    }
}

#[test]
fn the_exit_status_is_the_commands_own() {
    let bench = Bench::new(3);
    let shell = |script: &str| bench.run(&["--no-wait"], &["sh", "-c", script]);
    shell("exit 0").expect(0);
    shell("exit 7").expect(7);
    shell("exit 255").expect(255);
    shell("kill -TERM $$").expect(128 + 15);
    shell("kill -KILL $$").expect(128 + 9);
    bench.run(&["--no-wait"], &["quorate-no-such-program"]).expect(127).says(&["quorate-no-such-program"]);
    let file = bench.program.write("not-executable", "true");
    bench.run(&["--no-wait"], &[&file]).expect(126).says(&[&file]);
    // If one of these commands had not released the lock, the next one would have ended with the exit status
    // 75.
    shell("exit 0").expect(0);
}

#[test]
fn the_command_knows_its_resource_and_token_and_has_our_standard_streams() {
    let bench = Bench::new(3);
    let script = r#"echo "$QUORATE_RESOURCE $QUORATE_FENCING_TOKEN"; cat; echo to-stderr >&2; printenv MINE"#;
    let mut command = bench.program.command(bench.args(&[], &["sh", "-c", script]));
    command.stdin(Stdio::piped()).env("MINE", "kept");
    let mut running = bench.program.start_command(command);
    let mut stdin = running.stdin().expect("a pipe");
    stdin.write_all(b"first line\nsecond line\n").expect("the command reads");
    drop(stdin);
    let ended = running.wait(PATIENCE).expect(0).says(&["to-stderr"]);
    let mut lines = ended.stdout.lines();
    let (resource, token) = lines.next().and_then(|line| line.split_once(' ')).expect("two words");
    assert_eq!(resource, "job");
    let token: u64 = token.parse().expect("a fencing token");
    assert_eq!(lines.collect::<Vec<_>>(), ["first line", "second line", "kept"]);
    assert!(bench.token(&[]) > token);
}

#[test]
fn a_taken_lock_is_a_conflict_unless_it_is_waited_for() {
    let bench = Bench::new(3);
    let (held, go) = (bench.program.file("held"), bench.program.file("go"));
    let script = format!(
        "echo $QUORATE_FENCING_TOKEN > {held}.new; mv {held}.new {held}; until [ -e {go} ]; do sleep 0.02; done; date +%s%N",
        held = held.display(),
        go = go.display()
    );
    let first = bench.start(&["--ttl", "3s"], &["sh", "-c", &script]);
    until("word from the first command", PATIENCE, || held.exists().then_some(()));

    let never = ["touch", "ran"];
    bench.run(&["--no-wait"], &never).expect(75).says(&["job", "held by"]);
    bench.run(&["--no-wait", "--conflict-exit-code", "3"], &never).expect(3);
    let timed_out = bench.run(&["--wait", "700ms"], &never).expect(75);
    assert!(timed_out.took >= Duration::from_millis(700), "{timed_out}");
    assert!(!bench.program.file("ran").exists(), "a command ran without the lock");
    // A lock of another name is not affected.
    let list = bench.nodes.list();
    bench.program.run(["exec", "--nodes", &list, "--lock", "other", "--no-wait", "--", "true"]).expect(0);

    let script = "date +%s%N; echo $QUORATE_FENCING_TOKEN";
    let second = bench.start(&[], &["sh", "-c", script]);
    let third = bench.start(&["--wait", "19s"], &["sh", "-c", script]);
    bench.program.write("go", "");
    let ended: u64 = first.wait(PATIENCE).expect(0).stdout.trim().parse().expect("a time");
    let mut tokens = vec![bench.program.read("held").trim().parse::<u64>().expect("a token")];
    let mut began = Vec::new();
    for waiter in [second, third] {
        let ended = waiter.wait(PATIENCE).expect(0);
        let (at, token) = ended.stdout.trim().split_once('\n').expect("two lines");
        began.push((at.parse::<u64>().expect("a time"), token.parse::<u64>().expect("a token")));
    }
    began.sort_unstable();
    assert!(began[0].0 >= ended, "the second command began before the first had ended");
    let handed_over = Duration::from_nanos(began[0].0 - ended);
    assert!(handed_over < 2 * SECOND, "released, not expired: {handed_over:?} of a TTL of 3 s");
    tokens.extend(began.iter().map(|(_, token)| *token));
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// Returns a command that writes a file once it runs, and goes on until the file `go` exists.
fn until_go(bench: &Bench, began: &str) -> [String; 3] {
    let [began, go] = [began, "go"].map(|file| bench.program.file(file).display().to_string());
    let script = format!(
        "echo \"$QUORATE_RESOURCE $QUORATE_SLOT\" > {began}.new; mv {began}.new {began}; until [ -e {go} ]; do sleep 0.02; done"
    );
    ["sh".to_owned(), "-c".to_owned(), script]
}

#[test]
fn at_most_as_many_commands_run_at_once_as_there_are_slots() {
    let bench = Bench::new(3);
    let slots = ["--slots", "2"];
    let first = bench.start(&slots, &until_go(&bench, "first"));
    let second = bench.start(&slots, &until_go(&bench, "second"));
    let began = |file: &str| {
        until("a command in a slot", PATIENCE, || {
            bench.program.file(file).exists().then(|| bench.program.read(file))
        })
    };
    let mut held = [began("first"), began("second")].map(|line| line.trim().to_owned());
    held.sort_unstable();
    assert_eq!(held, ["job/slot-0 0", "job/slot-1 1"]);
    bench.run(&["--slots", "2", "--no-wait"], &["true"]).expect(75).says(&["job/slot-"]);
    let third = bench.start(&slots, &["sh", "-c", "echo $QUORATE_FENCING_TOKEN"]);
    until("the third to wait", PATIENCE, || third.stderr().contains("all 2 slots are held").then_some(()));
    bench.program.write("go", "");
    let token = third.wait(PATIENCE).expect(0).stdout;
    assert!(token.trim().parse::<u64>().is_ok(), "{token:?}");
    for running in [first, second] {
        running.wait(PATIENCE).expect(0);
    }
    bench.run(&["--slots", "0"], &["true"]).expect(78).says(&["slots is 0"]);
}

#[test]
fn readers_share_a_lock_and_keep_a_writer_out() {
    let bench = Bench::new(3);
    let first = bench.start(&["--shared"], &until_go(&bench, "first"));
    until("the first reader", PATIENCE, || bench.program.file("first").exists().then_some(()));
    let script = "echo \"${QUORATE_FENCING_TOKEN:-none}\"";
    let second = bench.run(&["--shared", "--no-wait"], &["sh", "-c", script]).expect(0);
    assert_eq!(second.stdout, "none\n", "a reader has no token");
    bench.run(&["--no-wait"], &["true"]).expect(75).says(&["job"]);
    bench.program.write("go", "");
    first.wait(PATIENCE).expect(0);
    bench.run(&["--wait", "19s"], &["true"]).expect(0);
    bench.run(&["--shared", "--slots", "2"], &["true"]).expect(2).says(&["--slots"]);
}

#[test]
fn without_a_quorum_it_says_which_nodes_and_why() {
    let mut bench = Bench::new(5);
    bench.nodes[0].kill();
    bench.nodes[1].kill();
    bench.token(&["--no-wait"]);
    bench.nodes[2].pause();
    let names: Vec<String> = (0..3).map(|index| bench.nodes.name(index)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ended = bench.run(&["--no-wait"], &["true"]).expect(69).says(&names);
    assert!(ended.took < 5 * SECOND, "{ended}");
    assert!(!ended.stderr.contains(&bench.nodes.name(3)), "names a node that votes: {ended}");
    bench.run(&["--wait", "300ms"], &["true"]).expect(69).says(&["2 of 5 nodes vote, 3 required"]);
    // With `--wait`, the command runs as soon as a majority votes again. One more node is enough for that.
    let waits = bench.start(&["--wait", "19s"], &["true"]);
    waits.until_it_says("waiting for a quorum");
    bench.nodes[2].resume();
    waits.wait(PATIENCE).expect(0);
}

#[test]
fn nodes_that_answer_and_refuse_what_a_lock_needs_do_not_vote() {
    let bench = Bench::new(5);
    let (list, began, ends) = (bench.nodes.list(), bench.program.file("began"), bench.program.file("ends"));
    let script = format!("touch {}; until [ -e {} ]; do sleep 0.1; done", began.display(), ends.display());
    let hold = ["exec", "--nodes", &list, "--lock", "held", "--ttl", "3s", "--", "sh", "-c", &script];
    let holder = bench.program.start(hold);
    // An acquire asks a majority first. The first extension stores the lease on the other nodes too.
    let is_stored = |node: &RedisServer| node.command(&["EXISTS", "quorate:held"]) == "1";
    until("lease on each node", PATIENCE, || {
        (began.exists() && bench.nodes.iter().all(is_stored)).then_some(())
    });
    for index in 0..3 {
        bench.nodes[index].command(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    bench.nodes[3].command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    bench.nodes[4].command(&["ACL", "SETUSER", "default", "-set"]);
    // The clocks of this node and of the worker are an hour apart.
    let apart = Bench {
        program: Program::new(env!("CARGO_BIN_EXE_quorate-under-test")),
        nodes: Nodes::with_own_clocks(1),
    };
    apart.nodes[0].step_clock(3_600 * SECOND, true);
    apart.nodes.admit(&apart.program, &[]);
    // Without `--wait`, each of these gives up after ten seconds, also if a majority names a holder.
    let free = bench.start(&[], &["true"]);
    let taken = bench.program.start(["exec", "--nodes", &list, "--lock", "held", "--", "true"]);
    let by_clock = apart.start(&[], &["true"]);
    let causes = [
        "0 of 5 nodes vote, 3 required",
        "OOM command not allowed",
        "raise the server's maxmemory",
        "NOREPLICAS",
        "set min-replicas-to-write 0",
        "`quorate doctor` prints the smallest sufficient rule",
    ];
    bench.program.run(["status", "--nodes", &list]).expect(69).tells(&causes);
    bench
        .program
        .run(["doctor", "--nodes", &list])
        .tells(&["0 of 5 nodes vote", "does not vote: it refuses"]);
    bench.run(&["--wait", "300ms"], &["true"]).expect(69).says(&causes);
    let waits = bench.start(&["--wait", "60s"], &["true"]);
    free.wait(PATIENCE).expect(69).says(&causes);
    taken.wait(PATIENCE).expect(69).says(&causes);
    by_clock.wait(PATIENCE).expect(69).says(&["0 of 1 nodes vote", "its clock and this worker's are"]);
    // A lease that is held can be extended without memory. As soon as a majority serves again, it votes.
    for index in 0..3 {
        bench.nodes[index].command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    waits.wait(PATIENCE).expect(0);
    bench.program.run(["status", "--nodes", &list]).expect(0).tells(&["3 of 5 nodes vote"]);
    std::fs::write(&ends, "").expect("a file");
    holder.wait(PATIENCE).expect(0);
}

#[test]
fn an_invalid_command_line_ends_with_2_and_a_setting_that_cannot_be_used_with_78() {
    let bench = Bench::new(1);
    bench.run(&["--ttl", "10m"], &["true"]).expect(78).says(&["--ttl", "max_ttl", "30s"]);
    bench.run(&["--ttl", "1ms"], &["true"]).expect(78).says(&["ttl", "1ms"]);
    bench.run(&["--ttl", "ten"], &["true"]).expect(2).says(&["--ttl", "ten", "10s"]);
    bench.run(&["--wait", "1s", "--no-wait"], &["true"]).expect(2).says(&["--wait", "--no-wait"]);
    bench.run(&["--waite"], &["true"]).expect(2).says(&["--waite", "--wait"]);
    let list = bench.nodes.list();
    bench.run(&["--ttl", "0s"], &["true"]).expect(2).says(&["--ttl", "zero", "10s"]);
    let long = "l".repeat(513);
    for name in ["a{b", "a}b", "a\nb", "election/x", "node", "resign/x", "", &long] {
        let ended = bench.program.run(["exec", "--nodes", &list, "--lock", name, "--", "true"]).expect(78);
        assert!(ended.stderr.contains("choose another name"), "{ended}");
    }
}

#[test]
fn one_paused_server_of_five_costs_no_time() {
    let bench = Bench::new(5);
    bench.nodes[1].pause();
    // The shortest of several runs counts, because the machine may be busy during some of them.
    let runs = (0..12).map(|_| bench.run(&["--no-wait"], &["true"]).expect(0).took);
    let best = runs.min().expect("twelve runs");
    assert!(best < SECOND / 2, "the whole of exec took {best:?}");
}

/// Returns the latest possible end of a lease with this TTL, whose last extension was sent before `at`.
fn bound(at: WallTime, ttl: Duration) -> WallTime {
    at + ttl
}

#[test]
fn when_the_majority_goes_the_command_is_dead_before_validity_ends() {
    let bench = Bench::new(5);
    let beats = bench.beats();
    let ttl = 2 * SECOND;
    let running = bench.start(&["--ttl", "2s"], &beats.stubborn());
    beats.wait_for_child();
    let pids = beats.pids();
    // The command runs for longer than one TTL, so the lease is extended.
    let began = beats.tenures()[0].1;
    until("beat after the TTL", PATIENCE, || (beats.last() > began + ttl + SECOND / 2).then_some(()));

    (1..4).for_each(|index| bench.nodes[index].pause());
    let paused = now();
    let names: Vec<String> = (1..4).map(|index| bench.nodes.name(index)).collect();
    let ended = running.wait(PATIENCE).expect(70);
    for name in &names {
        assert!(ended.stderr.contains(name), "does not name {name}: {ended}");
    }
    let ended =
        ended.says(&["the lease on job was lost", "2 of 5 nodes agreed, 3 required", "no reply in time"]);
    for pid in &pids {
        assert!(!is_alive(*pid), "process {pid} still runs: {ended}");
    }
    let last = beats.last();
    assert!(last > paused, "the command was dead before the nodes were paused: nothing was shown");
    let bound = bound(paused, ttl);
    assert!(last < bound, "alive {:?} after the lease", bound.until(last));

    let before = beats.tenures()[0].0;
    (1..4).for_each(|index| bench.nodes[index].resume());
    assert!(bench.token(&[]) > before);
}

#[test]
fn a_lease_is_lost_as_soon_as_a_node_of_its_majority_forgets() {
    let bench = Bench::new(5);
    bench.nodes[3].pause();
    bench.nodes[4].pause();
    let beats = bench.beats();
    let running = bench.start(&["--ttl", "5s"], &beats.stubborn());
    beats.wait_for_child();
    let flushed = now();
    bench.nodes[0].flushall();
    running.wait(PATIENCE).expect(70).says(&["the lease on job was lost", "is new or was flushed"]);
    // `exec` notices the loss at the next extension, which is at most a third of the TTL later. So `exec` does
    // not have to wait until the lease ends.
    let lived = flushed.until(beats.last());
    assert!(lived < 4 * SECOND, "the command lived on for {lived:?}");
}

#[test]
fn a_stopped_supervisor_does_not_hide_that_the_lease_was_lost() {
    let bench = Bench::new(3);
    let beats = bench.beats();
    let running = bench.start(&["--ttl", "2s"], &beats.stubborn());
    beats.wait_for_child();
    let pids = beats.pids();
    let supervisor = pids.iter().map(|pid| parent_of(*pid)).find(|parent| !pids.contains(parent));
    let supervisor = supervisor.expect("someone has started the command");
    assert_eq!(parent_of(supervisor), running.pid(), "not the supervisor");
    signal(supervisor, Signal::STOP);
    bench.nodes[0].flushall();
    bench.nodes[1].flushall();
    // While the supervisor process is stopped, `exec` itself must end the command. When the supervisor process
    // continues, the command is dead, and the supervisor process has not read the orders of `exec` yet.
    for pid in pids {
        until("end of the command", PATIENCE, || (!is_alive(pid)).then_some(()));
    }
    signal(supervisor, Signal::CONT);
    running.wait(PATIENCE).expect(70).says(&["the lease on job was lost"]);
}

#[test]
fn a_killed_exec_takes_its_command_with_it_before_another_gets_the_lock() {
    let bench = Bench::new(5);
    let beats = bench.beats();
    let ttl = 2 * SECOND;
    let first = bench.start(&["--ttl", "2s"], &beats.stubborn());
    beats.wait_for_child();
    let pids = beats.pids();
    assert!(pids.len() >= 2, "a command and its child: {pids:?}");
    let second = bench.start(&["--ttl", "2s"], &beats.stubborn());
    first.kill();
    let killed = now();
    first.wait(PATIENCE);
    for pid in pids {
        until("end of the command", PATIENCE, || (!is_alive(pid)).then_some(()));
    }
    let tenures = until("beat of the second command", PATIENCE, || {
        Some(beats.tenures()).filter(|tenures| tenures.len() > 1)
    });
    let ((old, _, last), (new, first, _)) = (tenures[0], tenures[1]);
    assert!(new > old, "{tenures:?}");
    assert!(last < bound(killed, ttl), "alive after the lease by {:?}", bound(killed, ttl).until(last));
    assert!(last < first, "two commands at once for {:?}", first.until(last));
    let taken_over = killed.until(first);
    assert!(taken_over < ttl + 2 * SECOND, "a free lock was not taken for {taken_over:?}");
    second.kill();
}
