//! Tests of a leader whose servers answer, and refuse what it writes.

use quorate_testkit::redis::RedisServer;
use quorate_tests::support::{Http, JobBench, PATIENCE, until};

/// A reason for which servers refuse writes.
struct Refusal {
    /// The beginning of the server's error.
    error: &'static str,
    /// The text that names the reason once each server has refused a write.
    cause: &'static str,
    begin: fn(&RedisServer),
    end: fn(&RedisServer),
}

fn set(server: &RedisServer, args: &[&str]) {
    assert_eq!(server.command(args), "OK", "{args:?}");
}

const REFUSALS: [Refusal; 5] = [
    Refusal {
        error: "OOM command not allowed",
        cause: "raise the server's maxmemory",
        begin: |server| set(server, &["CONFIG", "SET", "maxmemory", "1"]),
        end: |server| set(server, &["CONFIG", "SET", "maxmemory", "0"]),
    },
    Refusal {
        error: "NOREPLICAS Not enough good replicas",
        cause: "set min-replicas-to-write 0",
        begin: |server| set(server, &["CONFIG", "SET", "min-replicas-to-write", "1"]),
        end: |server| set(server, &["CONFIG", "SET", "min-replicas-to-write", "0"]),
    },
    // The server cannot replace its snapshot, as on a full disk.
    Refusal {
        error: "MISCONF ",
        cause: "check the server's disk",
        begin: |server| {
            std::fs::create_dir(server.dir().join("dump.rdb")).expect("the server has stored no snapshot");
            set(server, &["CONFIG", "SET", "save", "3600 1000"]);
            server.command(&["BGSAVE"]);
        },
        end: |server| set(server, &["CONFIG", "SET", "save", ""]),
    },
    // Redis 7 has another text for a command of a script than for one of a client.
    Refusal {
        error: "run this command",
        cause: "let the user of the node's URL do",
        begin: |server| set(server, &["ACL", "SETUSER", "default", "-@write"]),
        end: |server| set(server, &["ACL", "SETUSER", "default", "+@write"]),
    },
    Refusal {
        error: "READONLY ",
        cause: "it is a replica",
        begin: |server| set(server, &["REPLICAOF", "127.0.0.1", "1"]),
        end: |server| set(server, &["REPLICAOF", "NO", "ONE"]),
    },
];

fn lines<'a>(log: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    log.lines().filter(move |line| line.contains(text))
}

/// The leader does not log the reason again with each try, and it is at every place at which an operator looks.
#[test]
fn a_leader_whose_servers_refuse_writes_says_why_and_says_it_once() {
    let settings = "http = { listen = \"127.0.0.1:0\" }\n\
         [[job]]\nname = \"beat\"\nevery = \"500ms\"\nshell = \"echo beat >> ticks\"\n";
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), settings);
    let daemon = bench.daemon();
    let (http, runs) = (Http::of(&daemon), || bench.program.read("ticks").lines().count());
    for Refusal { error, cause, begin, end } in REFUSALS {
        let before = runs();
        until("a run", PATIENCE, || (runs() > before).then_some(()));
        until("readiness", PATIENCE, || (http.status("/readyz") == Some(200)).then_some(()));
        let before = daemon.stderr().len();
        bench.nodes.iter().for_each(begin);
        until(&format!("{cause:?} at /readyz"), PATIENCE, || {
            let page = http.get("/readyz");
            (page.status == 503 && page.body.contains(cause)).then_some(())
        });
        until(&format!("{cause:?} of `jobs why`"), PATIENCE, || {
            bench.jobs(&["why", "beat"]).stdout.contains(cause).then_some(())
        });
        until("that it does not lead", PATIENCE, || (http.status("/leader") == Some(503)).then_some(()));
        bench.nodes.iter().for_each(end);
        let log = daemon.stderr().split_off(before);
        // A replica's role is noticed soon after its first error, and is then named in place of that error.
        let says_why = |line: &&str| line.contains(error) || line.contains(cause);
        let warned = ["WARN no run starts", "WARN gives up the lead", "WARN lost the term"]
            .map(|warning| lines(&log, warning).filter(says_why).count());
        assert!(warned.iter().sum::<usize>() > 0 && warned.iter().all(|times| *times <= 1), "{error}: {log}");
        for node in 0..bench.nodes.len() {
            let name = bench.nodes.name(node);
            let of_node = lines(&log, "node has no vote").filter(|line| line.contains(&name));
            assert!(of_node.count() <= 1, "{name}, {error}: {log}");
        }
    }
}

/// Regression: the user of a node had no right to PEXPIRE, which only an extension needs. A new program counted such a
/// node as voting, and the same worker was elected and lost its lease every ten seconds.
#[test]
fn no_worker_is_elected_where_extensions_would_be_refused() {
    let bench = JobBench::new(
        env!("CARGO_BIN_EXE_quorate-under-test"),
        "http = { listen = \"127.0.0.1:0\" }\n[[job]]\nname = \"beat\"\nevery = \"500ms\"\ncommand = [\"true\"]\n",
    );
    for server in bench.nodes.iter().take(2) {
        set(server, &["ACL", "SETUSER", "default", "-pexpire"]);
    }
    let status = bench.program.run(["status", "--nodes", &bench.nodes.list()]).expect(69);
    assert!(status.stdout.contains("1 of 3 nodes vote"), "{status}");
    let daemon = bench.daemon();
    let http = Http::of(&daemon);
    // The handshake names PEXPIRE. The test that follows in a script does not: the server gives it a shorter text.
    let fix = "let the user of the node's URL do";
    until("the reason", PATIENCE, || http.get("/readyz").body.contains(fix).then_some(()));
    assert!(!daemon.stderr().contains("elected"), "{}", daemon.stderr());
    for server in bench.nodes.iter().take(2) {
        set(server, &["ACL", "SETUSER", "default", "+pexpire"]);
    }
    until("leadership", PATIENCE, || (http.status("/leader") == Some(200)).then_some(()));
}
