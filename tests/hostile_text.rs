//! Tests of text that other parties may have stored anywhere. Such text must not reach a terminal unchanged:
//! no output and no log may contain a control character or a forged line.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::plain::steers;
use quorate_testkit::hostile::{HostileServer, Hostility};
use quorate_tests::support::{Ended, Nodes, PATIENCE, Program, Running, until};
use redis::{Connection, RedisResult, cmd};
use rustix::process::Signal;

/// A hostile text. It clears the screen, sets the clipboard, opens a link, forges lines, and hides and reverses
/// text. It is not UTF-8.
const HOSTILE: &[u8] =
    b"PLANTED\x1b[2J\x1b]52;c;QUFB\x07\x1b]8;;evil\x1b\\\x9b31m\xff\r\nFORGED line\nFORGED \
    \xe2\x80\xae\xe2\x81\xa6\xc2\x9b\x7f\xe2\x80\x8b\xef\xbb\xbf\x08\x0b end";
/// The random bits of an owner token.
const BITS: &str = "0123456789abcdef0123456789abcdef";

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

    /// Lets `write` store data on the first `count` nodes.
    fn plant(&self, count: usize, mut write: impl FnMut(&mut Connection) -> RedisResult<()>) {
        for url in self.nodes.urls().iter().take(count) {
            let client = redis::Client::open(url.as_str()).expect("a URL");
            let mut connection = client.get_connection().expect("it runs");
            write(&mut connection).expect("it takes a write");
        }
    }

    fn plant_lock(&self, count: usize, key: &str, value: &[u8], ttl: Option<u32>) {
        self.plant(count, |connection| {
            let mut set = cmd("SET");
            set.arg(format!("quorate:{key}")).arg(value);
            if let Some(ttl) = ttl {
                set.arg("PX").arg(ttl);
            }
            set.query(connection)
        });
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ended {
        let ended = self.program.run([args, &["--nodes", &self.nodes.list()]].concat());
        is_clean(&format!("{args:?}"), &ended);
        ended
    }

    /// Runs `exec`. The options are placed before the command.
    #[track_caller]
    fn exec(&self, args: &[&str]) -> Ended {
        let list = self.nodes.list();
        let ended = self.program.run([&["exec", "--nodes", &list], args, &["--", "true"]].concat());
        is_clean(&format!("exec {args:?}"), &ended);
        ended
    }

    /// Runs the command twice, without and with `--json`, and checks the output.
    #[track_caller]
    fn look(&self, args: &[&str]) {
        shows_it(args, &self.run(args));
        let json = self.run(&[args, &["--json"]].concat());
        assert_eq!(json.stdout.lines().count(), 1, "{args:?}: {json}");
        serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap_or_else(|e| panic!("{e}: {json}"));
        shows_it(args, &json);
    }
}

#[track_caller]
fn is_clean(what: &str, ended: &Ended) {
    text_is_clean(what, &ended.stdout);
    text_is_clean(what, &ended.stderr);
    assert!(!ended.stdout.is_empty() || !ended.stderr.is_empty(), "{what} says nothing that is UTF-8");
}

#[track_caller]
fn text_is_clean(what: &str, text: &str) {
    if let Some(at) = text.find(|c| c != '\n' && steers(c)) {
        let from = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = text[from..].lines().next();
        panic!("{what} lets {:?} through: {line:?}", text[at..].chars().next());
    }
    assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{what} lets a line be forged:\n{text}");
}

/// Checks that the output contains the hostile text in its harmless form. Otherwise the test would prove
/// nothing.
#[track_caller]
fn shows_it(what: &[&str], ended: &Ended) {
    assert!(ended.stdout.contains("PLANTED") || ended.stderr.contains("PLANTED"), "{what:?}: {ended}");
}

fn with(ending: &str) -> Vec<u8> {
    [HOSTILE, ending.as_bytes()].concat()
}

#[test]
fn holders_of_locks_groups_and_messages() {
    let bench = Bench::new();
    let signed = with(&format!(":{BITS}"));
    let reserved = with(&format!(":{BITS}:reserved"));
    for (value, ttl) in
        [(HOSTILE, Some(600_000)), (HOSTILE, None), (&*signed, Some(600_000)), (&*reserved, Some(600_000))]
    {
        bench.plant_lock(3, "l", value, ttl);
        bench.look(&["status", "l"]);
        bench.look(&["lock", "show", "l"]);
        shows_it(&["exec"], &bench.exec(&["--lock", "l", "--no-wait"]));
        shows_it(&["exec"], &bench.exec(&["--lock", "l", "--wait", "1s"]));
    }
    bench.run(&["lock", "release", "--force", "l"]);
    bench.plant_lock(1, "few", &signed, Some(600_000));
    bench.look(&["lock", "show", "few"]);
    bench.run(&["status", "few"]);

    bench.plant_lock(3, "election/g", &signed, Some(600_000));
    bench.look(&["status", "election/g"]);
    bench.look(&["leader", "resign", "--group", "g", "--wait", "500ms"]);
    bench.run(&["leader", "resign", "--group", "g", "--term", "7"]);

    bench.plant_lock(3, "claim/s/m", &[b"d:5:1:::", HOSTILE].concat(), None);
    bench.look(&["status", "claim/s/m"]);
}

/// Runs daemons with both log formats, and checks their logs until they contain `what`.
fn daemons(program: &Program, config: &str, what: &str) {
    for format in ["text", "json"] {
        let args = ["run", "--config", config, "--log-level", "trace", "--log-format", format];
        let daemon: Running = program.start(args);
        daemon.until_it_says(what);
        daemon.signal(Signal::TERM);
        let ended = daemon.wait(PATIENCE);
        text_is_clean(&format!("run, log of {format}"), &ended.stderr);
        for line in ended.stderr.lines().filter(|_| format == "json") {
            serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        }
    }
}

fn config(program: &Program, urls: &[String], jobs: &str) -> String {
    let urls: Vec<String> = urls.iter().map(|url| format!("{url:?}")).collect();
    let text = format!("nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = \"2s\" }}\n{jobs}", urls.join(", "));
    program.write("quorate.toml", &text)
}

#[test]
fn markers_of_nodes() {
    let bench = Bench::new();
    let config = config(
        &bench.program,
        &bench.nodes.urls(),
        "[[job]]\nname = \"a\"\nevery = \"1h\"\ncommand = [\"true\"]\n",
    );
    let marker = bench.nodes[0].command(&["GET", "quorate:node"]);
    let lines = |from: &str| -> Vec<u8> {
        let hostile = HOSTILE.split(|byte| *byte == b'\n').next().expect("a line");
        let line = |line: &str| match line.split_once('=') {
            Some((key, _)) if key == from => [format!("{key}=").as_bytes(), hostile].concat(),
            _ => line.as_bytes().to_owned(),
        };
        marker.lines().map(line).collect::<Vec<_>>().join(&b'\n')
    };
    for value in [HOSTILE.to_owned(), lines("nodes"), lines("run")] {
        bench.plant_lock(1, "node", &value, None);
        for args in [&["status"][..], &["nodes", "list"], &["doctor"]] {
            bench.run(args);
            bench.run(&[args, &["--json"]].concat());
        }
        daemons(&bench.program, &config, "elected");
    }
    bench.plant_lock(1, "node", &lines("nodes"), None);
    bench.look(&["nodes", "list"]);
    bench.look(&["doctor"]);
    bench.plant_lock(3, "node", &lines("nodes"), None);
    shows_it(&["exec"], &bench.exec(&["--lock", "l", "--wait", "1s"]));
    shows_it(&["nodes", "trust"], &bench.run(&["nodes", "trust"]));
    let to = bench.nodes.list();
    bench.run(&["nodes", "replace", "--to", &to, "--dry-run"]);
}

#[test]
fn servers_that_say_what_they_like() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    for hostility in [Hostility::Error, Hostility::InfoNoise, Hostility::WrongTypes, Hostility::NoisyPushes] {
        let servers: Vec<_> = (0..3).map(|_| HostileServer::start(hostility).expect("a server")).collect();
        let urls: Vec<String> = servers.iter().map(|server| server.url("hush")).collect();
        let list = urls.join(",");
        for args in [
            &["status", "l"][..],
            &["status", "--json", "l"],
            &["nodes", "list"],
            &["nodes", "list", "--json"],
            &["doctor"],
            &["doctor", "--json"],
            &["lock", "show", "l"],
            &["jobs", "list", "--group", "g"],
            &["leader", "resign", "--group", "g", "--wait", "100ms"],
        ] {
            let ended = program.run([args, &["--nodes", &list]].concat());
            is_clean(&format!("{args:?} with {hostility:?}"), &ended);
        }
        let exec = ["exec", "--nodes", &list, "--lock", "l", "--wait", "1s", "--", "echo", "ran"];
        is_clean(&format!("exec with {hostility:?}"), &program.run(exec));
    }
    let server = HostileServer::start(Hostility::Error).expect("a server");
    let nodes = Nodes::admitted(2, &program, &["--prefix", "p:"]);
    let urls = [nodes.urls(), vec![server.url("hush")]].concat();
    let jobs = "[[job]]\nname = \"a\"\nevery = \"1h\"\ncommand = [\"true\"]\n";
    daemons(&program, &config(&program, &urls, jobs), "node is unreachable");
}

#[test]
fn what_the_ledger_holds_of_jobs() {
    let bench = Bench::new();
    bench.program.write("noise", "");
    std::fs::write(bench.program.file("noise"), HOSTILE).expect("in our own directory");
    let jobs = "[[job]]\nname = \"beat\"\nevery = \"200ms\"\nshell = \"cat noise; exit 3\"\nkeep_output = \"2KiB\"\n\
                [[job]]\nname = \"rest\"\nevery = \"1h\"\ncommand = [\"true\"]\n";
    let config = config(&bench.program, &bench.nodes.urls(), jobs);
    let daemon = bench.program.start(["run", "--config", &config]);
    let history = || bench.program.run(["jobs", "history", "beat", "--config", &config, "--json"]).stdout;
    let told = until("a run's output in the history", PATIENCE, || {
        Some(history()).filter(|told| told.contains("PLANTED"))
    });
    let mut paused = bench.program.command(["jobs", "pause", "rest", "--config", &config]);
    paused.env("USER", "PLANTED\u{1b}[2J\nFORGED");
    bench.program.start_command(paused).wait(PATIENCE).expect(0);
    daemon.signal(Signal::TERM);
    text_is_clean("run", &daemon.wait(PATIENCE).stderr);
    let looks = |what: &str| {
        for args in
            [&["list"][..], &["show", "beat"], &["show", "rest"], &["history", "beat"], &["next", "beat"]]
        {
            for json in [&[][..], &["--json"]] {
                let ended = bench
                    .program
                    .run([&["jobs"], args, &["--nodes", &bench.nodes.list(), "--group", "g"], json].concat());
                is_clean(&format!("jobs {args:?} {json:?}, {what}"), &ended);
            }
        }
    };
    looks("of a hostile job");

    // A party that can write to the servers replaces names and reasons by the hostile text.
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let worker = told["history"][0]["worker"].as_str().expect("a name").to_owned();
    for from in [&*worker, "exit status", "beat", "run-once"] {
        bench.plant(3, |connection| tamper(connection, from.as_bytes()));
        looks(&format!("in the place of {from:?}"));
    }
    let after = bench.program.run(["jobs", "history", "beat", "--config", &config]);
    assert!(after.stdout.contains("PLANTED") && !after.stdout.contains(&worker), "{after}");
    daemons(&bench.program, &config, "elected");
}

/// Replaces `from` by [`HOSTILE`] in all values of a server. A field with `from` in its name is also stored
/// under the replaced name.
fn tamper(connection: &mut Connection, from: &[u8]) -> RedisResult<()> {
    let text = String::from_utf8_lossy(HOSTILE);
    let json = serde_json::to_string(&text).expect("a string");
    let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(connection)?;
    for key in keys {
        let kind: String = cmd("TYPE").arg(&key).query(connection)?;
        if kind != "hash" {
            continue;
        }
        let fields: Vec<(Vec<u8>, Vec<u8>)> = cmd("HGETALL").arg(&key).query(connection)?;
        for (field, value) in fields {
            let (named, says) =
                (replaced(&field, from, HOSTILE), replaced(&value, from, json.trim_matches('"').as_bytes()));
            for name in [&field, &named] {
                cmd("HSET").arg(&key).arg(name).arg(&says).query::<()>(connection)?;
            }
        }
    }
    Ok(())
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match text.windows(from.len()).position(|part| part == from) {
        None => text.to_owned(),
        Some(at) => {
            let (before, rest) = text.split_at(at);
            [before, to, &replaced(&rest[from.len()..], from, to)].concat()
        }
    }
}
