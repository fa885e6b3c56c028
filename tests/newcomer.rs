//! Tests of the messages that a new user gets at a first try or with a wrong configuration. Each message names
//! the node, the error and the fix. No message, log or status shows a password.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_testkit::redis::{RedisConfig, RedisServer};
use quorate_tests::support::{Ended, Nodes, PATIENCE, Program, until};
use rustix::process::Signal;
use serde_json::Value;
use std::{fmt::Write as _, time::Duration};

/// The URL of a node that does not exist. No service uses its port.
const CLOSED: &str = "redis://127.0.0.1:1";

/// A word that is part of every password in this file.
const SECRET: &str = "SECRETWORD";

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_quorate-under-test"))
}

fn exec(program: &Program, nodes: &str) -> Ended {
    program.run(["exec", "--nodes", nodes, "--lock", "job", "--no-wait", "--", "true"])
}

fn server(config: RedisConfig) -> RedisServer {
    config.start().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn without_a_server_it_names_the_address_and_the_error() {
    let program = program();
    let ended = exec(&program, CLOSED).expect(69).says(&[
        "0 of 1 nodes vote, 1 required",
        CLOSED,
        "Connection refused",
    ]);
    assert!(ended.took < Duration::from_secs(5), "{ended}");
    let ended = ended.says(&["start it, or correct the node's address"]);
    let (_, error) = ended.stderr.split_once("quorate: ").expect("an error");
    assert_eq!(error.matches(CLOSED).count(), 1, "the name once: {ended}");
    let status = program.run(["status", "--nodes", CLOSED]).expect(69);
    for part in ["NO QUORUM", CLOSED, "Connection refused"] {
        assert!(status.stdout.contains(part), "{part}: {status}");
    }
}

#[test]
fn one_node_of_five_may_be_unreachable_from_the_beginning() {
    let program = program();
    let nodes = Nodes::new(4);
    let list = format!("{},{CLOSED}", nodes.list());
    // It is not known what this node remembers. The message must name it, and nothing is trusted.
    let refused = program.run(["nodes", "trust", "--nodes", &list]).expect(69);
    let refused =
        refused.says(&["not every node can be asked", CLOSED, "Connection refused", "trust --force"]);
    assert_eq!(refused.stderr.matches(CLOSED).count(), 1, "{refused}");
    assert!(exec(&program, &list).code != Some(0), "nothing was trusted");
    let forced = program.run(["nodes", "trust", "--force", "--nodes", &list]).expect(69);
    let forced = forced.says(&[CLOSED, "Connection refused"]);
    assert_eq!(forced.stderr.matches(CLOSED).count(), 1, "{forced}");
    exec(&program, &list).expect(0);
    program.run(["status", "--nodes", &list]).expect(0);
}

#[test]
fn a_wrong_password_is_named_by_its_node_and_place() {
    let program = program();
    let guarded = server(RedisConfig::new().password("right"));
    let port = guarded.port();
    let name = format!("redis://127.0.0.1:{port}");
    let check = "check the user and password";
    exec(&program, &format!("redis://:wrong@127.0.0.1:{port}")).expect(69).says(&[&name, "WRONGPASS", check]);
    exec(&program, &format!("redis://me:right@127.0.0.1:{port}")).expect(69).says(&[&name, check]);
    exec(&program, &name).expect(69).says(&[&name, "NOAUTH", check]);
    let open = server(RedisConfig::new());
    let url = format!("redis://:right@127.0.0.1:{}", open.port());
    exec(&program, &url).expect(69).says(&["requires no password", check]);
}

#[test]
fn a_server_that_may_evict_is_refused_with_the_fix() {
    let program = program();
    let evicts = server(RedisConfig::new().maxmemory_policy("allkeys-lru"));
    exec(&program, &evicts.url()).expect(69).says(&["allkeys-lru", "set maxmemory-policy to noeviction"]);
    evicts.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    program.run(["nodes", "trust", "--nodes", &evicts.url()]).expect(0);
    exec(&program, &evicts.url()).expect(0);
}

#[test]
fn one_server_has_one_vote_however_often_it_is_named() {
    let program = program();
    let nodes = Nodes::new(2);
    let (first, other) = (nodes.name(0), nodes.name(1));
    exec(&program, &format!("{first},{other},{first}/0")).expect(78).says(&[&first, "twice"]);
    let again = format!("redis://localhost:{}", nodes[0].port());
    let list = format!("{first},{other},{again}");
    exec(&program, &list).expect(69).says(&["are one server", &first, &again, "name each server once"]);
    // The command must not trust two names of one server, even if it is run again and again. Otherwise one
    // server would have two votes of three.
    for _ in 0..3 {
        program.run(["nodes", "trust", "--nodes", &list]).expect(69).says(&["are one server"]);
    }
    let status = program.run(["status", "--nodes", &list]).expect(69);
    assert!(status.stdout.contains("are one server"), "{status}");
}

#[test]
fn workers_that_disagree_see_both_values() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let two = format!("{},{}", nodes.name(0), nodes.name(1));
    let all: Vec<String> = (0..3).map(|index| format!("{}/0", nodes.name(index))).collect();
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        format!("[{}]", names.join(","))
    };
    let ended = exec(&program, &two).expect(69);
    ended.says(&[&sorted(&all), &sorted(&all[..2]), "give every worker the same list"]);

    let quoted = all.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let text = format!("nodes = [{quoted}]\nmax_ttl = \"20s\"\ngroup = \"g\"\n");
    let job = "[[job]]\nname = \"j\"\nevery = \"1h\"\ncommand = [\"true\"]\n";
    let file = program.write("other.toml", &format!("{text}{job}"));
    let parts = ["max_ttl", "30s", "20s", "give every worker the same max_ttl"];
    program
        .run(["exec", "--config", &file, "--lock", "job", "--no-wait", "--", "true"])
        .expect(69)
        .says(&parts);
    // A daemon with this `max_ttl` can never work. So it ends with the exit code after which systemd does not
    // restart it.
    program.run(["run", "--config", &file]).expect(78).says(&parts);
    // The nodes still accept a worker with the right `max_ttl`.
    exec(&program, &list).expect(0);
}

#[test]
fn an_unknown_variable_is_refused_and_the_known_one_suggested() {
    let program = program();
    let mut command = program.command(["exec", "--lock", "job", "--", "true"]);
    command.env("QUORATE_NODE", CLOSED);
    let ended = program.start_command(command).wait(PATIENCE).expect(78);
    ended.says(&["QUORATE_NODE;", "did you mean QUORATE_NODES?"]);
}

#[test]
fn without_nodes_it_names_every_way_to_name_them() {
    let program = program();
    for args in [&["status"][..], &["nodes", "trust"], &["exec", "--lock", "job", "--", "true"]] {
        let ways =
            ["--nodes redis://", "QUORATE_NODES=", "nodes = [", "--config", "QUORATE_CONFIG", "--local"];
        program.run(args).expect(78).says(&ways);
    }
    program.write("quorate.toml", "nodes = [\"redis://127.0.0.1:1\"]\n");
    program.run(["status"]).expect(69).tells(&["nodes from ./quorate.toml"]);
    program.run(["exec", "--local", "--lock", "job", "--no-wait", "--", "true"]).expect(0);
}

#[test]
fn the_first_commands_that_a_person_types_work_or_name_the_right_one() {
    let program = program();
    for (typed, meant) in [
        (&["why", "nightly"][..], "'jobs why'"),
        (&["logs", "nightly"], "'jobs logs'"),
        (&["trigger", "nightly"], "'jobs trigger'"),
        (&["resign"], "'leader resign'"),
        (&["elect"], "'leader'"),
        (&["statu"], "'status'"),
    ] {
        let ended = program.run(typed).expect(2).says(&[meant]);
        assert!(!ended.stderr.contains("'when'"), "{ended}");
    }
    program.run(["exec", "--wait", "1s", "--no-wait", "--lock", "x", "true"]).expect(2).says(&["--no-wait"]);
    program.run(["job", "list", "--group", "g"]).expect(78).says(&["no nodes are named"]);
    // The first word that is no option begins the command. All words after it are the command's.
    let local = ["exec", "--local", "--lock", "x", "--no-wait"];
    for (command, output) in [
        (&["echo", "-n", "--wait", "--", "hi"][..], "--wait -- hi"),
        (&["--", "echo", "hi"], "hi\n"),
        (&["sh", "-c", "echo $1", "sh", "--lock"], "--lock\n"),
    ] {
        let ended = program.run([&local[..], command].concat()).expect(0);
        assert_eq!(ended.stdout, output);
    }
    // `init` writes the file that the next command reads.
    program.run(["init"]).expect(0);
    program.run(["run", "--check"]).expect(0).tells(&["3 nodes from ./quorate.toml"]);
}

#[test]
fn a_new_cluster_names_the_command_that_trusts_its_nodes() {
    let program = program();
    let nodes = Nodes::new(3);
    let list = nodes.list();
    let args = |wait| ["exec", "--nodes", &list, "--lock", "job", "--wait", wait, "--", "true"];
    let ended = program.run(args("300ms")).expect(69);
    ended.says(&["0 of 3 nodes vote, 2 required", "it is new or was flushed", "`quorate nodes trust`"]);
    // The quarantine takes longer than this process waits. Only the trust command of the other process can end
    // it in time.
    let waits = program.start(args("15s"));
    waits.until_it_says("waiting for a quorum");
    let trusted = program.run(["nodes", "trust", "--nodes", &list]).expect(0);
    assert_eq!(trusted.stdout.matches(": votes").count(), 3, "{trusted}");
    exec(&program, &list).expect(0);
    waits.wait(PATIENCE).expect(0);
}

#[test]
fn exec_reports_a_quarantine_once_while_it_waits() {
    let program = program();
    let nodes = Nodes::new(3);
    let list = nodes.list();
    let args = ["exec", "--nodes", &list, "--lock", "job", "--wait", "3500ms", "--", "true"];
    let ended = program.run(args).expect(69);
    assert_eq!(ended.stderr.matches("waiting for a quorum").count(), 1, "{ended}");
}

#[test]
fn a_failed_write_of_standard_output_is_an_error_and_a_closed_pipe_is_not() {
    let program = program();
    let dir = program.dir().join("node");
    let node = format!("file://{}", dir.display());
    program.run(["exec", "--nodes", &node, "--lock", "x", "--no-wait", "--", "true"]);
    let looks: [&[&str]; 5] = [
        &["--help"],
        &["--version"],
        &["status", "--nodes", &node],
        &["nodes", "list", "--nodes", &node],
        &["status", "--json", "--nodes", &node],
    ];
    for args in looks {
        let mut full = program.command(args);
        full.stdout(std::fs::File::options().write(true).open("/dev/full").expect("a full device"));
        full.stderr(std::process::Stdio::piped());
        let output = full.output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{args:?}: {error}");
        assert!(error.contains("cannot write to standard output"), "{args:?}: {error}");
        let usual = program.run(args).code;
        let mut closed = program.command(args);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        closed.stdout(writer).stderr(std::process::Stdio::piped());
        let output = closed.output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), &*error), (usual, ""), "{args:?}");
    }
}

#[test]
fn status_and_nodes_list_create_no_directory() {
    let program = program();
    for args in [&["status", "--local"][..], &["nodes", "list", "--local"], &["doctor", "--local"]] {
        let ended = program.run(args);
        assert_ne!(ended.code, Some(0), "{ended}");
        assert!(ended.stdout.contains("does not exist"), "{ended}");
        assert!(!program.file(".local").exists(), "{args:?} creates the directory of the node");
    }
    program.run(["exec", "--local", "--lock", "job", "--no-wait", "--", "true"]).expect(0);
    program.run(["status", "--local"]).expect(0);
}

#[test]
fn the_version_names_the_time_zone_tables() {
    let program = program();
    let ended = program.run(["--version"]).expect(0);
    let tables = quorate::scheduler::Zone::tables_version();
    assert!(ended.stdout.trim_end().ends_with(&format!("(time zone tables {tables})")), "{ended}");
    let doctor = program.run(["doctor", "--nodes", CLOSED]);
    assert!(doctor.stdout.contains(&format!("time zone tables {tables}")), "{doctor}");
    let doctor = program.run(["doctor", "--json", "--nodes", CLOSED]);
    let page: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    assert_eq!(page["time_zone_tables"], tables, "{page}");
}

#[test]
fn status_only_looks() {
    let program = program();
    let nodes = Nodes::new(3);
    let list = nodes.list();
    for args in [&["status", "--nodes", &list][..], &["status", "--json", "--nodes", &list, "job"]] {
        let ended = program.run(args).expect(69);
        assert!(ended.stdout.contains("no worker has used it"), "{ended}");
    }
    for node in nodes.iter() {
        assert_eq!(node.command(&["EXISTS", "quorate:node"]), "0");
        assert_eq!(node.command(&["DBSIZE"]), "0");
    }
}

#[test]
fn status_shows_the_votes_and_the_holders() {
    let program = program();
    let mut nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let status = |code| {
        let ended = program.run(["status", "--json", "--nodes", &list, "job", "other"]).expect(code);
        let page = serde_json::from_str::<Value>(&ended.stdout);
        page.unwrap_or_else(|error| panic!("{error}: {ended}"))
    };
    let free = program.run(["status", "--nodes", &list, "job"]).expect(0);
    assert!(free.stdout.contains("job: free"), "{free}");

    let (held, go) = (program.file("held"), program.file("go"));
    let script = format!(
        "echo $QUORATE_FENCING_TOKEN > {held}.new; mv {held}.new {held}; until [ -e {go} ]; do sleep 0.02; done",
        held = held.display(),
        go = go.display()
    );
    let holder = program.start(["exec", "--nodes", &list, "--lock", "job", "--", "sh", "-c", &script]);
    until("command that holds the lock", PATIENCE, || held.exists().then_some(()));
    let token: u64 = program.read("held").trim().parse().expect("a fencing token");
    // The command begins as soon as a majority holds the lease. It is extended to the other one soon after.
    until("lease on every node", PATIENCE, || {
        nodes.iter().all(|node| node.command(&["EXISTS", "quorate:job"]) == "1").then_some(())
    });

    let page = status(0);
    assert_eq!(page["quorum"], true, "{page:#}");
    for (index, node) in page["nodes"].as_array().expect("a list").iter().enumerate() {
        assert_eq!(node["name"], format!("{}/0", nodes.name(index)), "{page:#}");
        assert_eq!(
            (&node["reachable"], &node["votes"]),
            (&Value::Bool(true), &Value::Bool(true)),
            "{page:#}"
        );
        assert!(node["reason"].is_null(), "{page:#}");
        assert!(node["version"].as_str().is_some_and(|version| version.contains('.')), "{page:#}");
        assert!(node["round_trip_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{page:#}");
    }
    let (job, other) = (&page["resources"][0], &page["resources"][1]);
    assert_eq!((&job["resource"], &job["held"]), (&Value::from("job"), &Value::Bool(true)), "{page:#}");
    let owner = job["owners"][0]["owner"].as_str().expect("an owner");
    assert!(job["holder"].as_str().is_some_and(|name| name.contains(&holder.pid().to_string())), "{page:#}");
    assert_eq!(nodes[0].command(&["GET", "quorate:job"]), owner);
    assert!(job["remaining_ms"].as_u64().is_some_and(|ms| (1..=10_000).contains(&ms)), "{page:#}");
    assert_eq!(job["fencing_token"].as_u64(), Some(token), "{page:#}");
    assert_eq!((&other["held"], &other["holder"]), (&Value::Bool(false), &Value::Null), "{page:#}");
    let text = program.run(["status", "--nodes", &list, "job", "other"]).expect(0).stdout;
    for part in ["3 of 3 nodes vote, 2 required", "job: held by", &token.to_string(), "other: free"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    program.write("go", "");
    holder.wait(PATIENCE).expect(0);
    let page = status(0);
    let job = &page["resources"][0];
    assert_eq!((&job["held"], job["fencing_token"].as_u64()), (&Value::Bool(false), Some(token)), "{page:#}");

    nodes[0].kill();
    assert_eq!(status(0)["nodes"][0]["reachable"], false);
    nodes[1].kill();
    let page = status(69);
    assert_eq!(page["quorum"], false, "{page:#}");
    assert_eq!(page["nodes"][1]["votes"], false, "{page:#}");
    assert!(page["nodes"][1]["reason"].as_str().is_some_and(|why| why.contains("refused")), "{page:#}");
    assert_eq!(page["nodes"][2]["votes"], true, "{page:#}");
    assert!(page["resources"][0]["held"].is_null(), "unknown without a quorum: {page:#}");
}

/// Runs all commands with the nodes in `file`, and returns their output. The daemon is stopped once it has
/// logged `until_it_says`.
fn everything_said(program: &Program, file: &str, flags: &[&str], until_it_says: &str) -> String {
    let mut said = String::new();
    let (config, exec) = (["--config", file], ["--lock", "job", "--no-wait", "--", "true"]);
    let calls: [Vec<&str>; 5] = [
        [&["exec"], flags, &exec].concat(),
        [&["status"], flags, &["job"]].concat(),
        [&["status", "--json"], flags, &["job"]].concat(),
        [&["nodes", "trust"], flags].concat(),
        [&["run", "--check"], &config[..]].concat(),
    ];
    for call in &calls {
        let _ = write!(said, "{}", program.run(call));
    }
    for format in ["text", "json"] {
        let call = [&["run", "--log-level", "trace", "--log-format", format], &config[..]].concat();
        let daemon = program.start(call);
        daemon.until_it_says(until_it_says);
        // The daemon is stopped by SIGTERM and not by SIGKILL. So it also logs its end, and releases its lease
        // for the next daemon.
        daemon.signal(Signal::TERM);
        let _ = write!(said, "{}", daemon.wait(PATIENCE));
    }
    said
}

#[test]
fn no_password_is_ever_shown() {
    let program = program();
    let right = format!("right{SECRET}");
    let guarded = server(RedisConfig::new().password(&right));
    let at = format!("127.0.0.1:{}", guarded.port());
    program.run(["nodes", "trust", "--nodes", &guarded.url()]).expect(0);
    let password_file = program.write("right", &format!("{right}\n"));
    let wrong_file = program.write("wrong", &format!("wrong{SECRET}\n"));
    let job = "group = \"g\"\n[[job]]\nname = \"j\"\nevery = \"100ms\"\ncommand = [\"sh\", \"-c\", \"echo the-job-ran >&2\"]\n";
    let plain = |url: &str| (format!("\"{url}\""), Some(url.to_owned()));
    let in_file =
        |at: &str, file: &str| (format!("{{ url = \"redis://{at}\", password_file = \"{file}\" }}"), None);
    let denied = "check the user and password";
    let table = [
        (plain(&format!("redis://:{right}@{at}")), "the-job-ran"),
        (plain(&format!("redis://:wrong{SECRET}@{at}")), denied),
        (plain(&format!("redis://user{SECRET}:wrong{SECRET}@{at}")), denied),
        (plain(&format!("redis://:{right}@127.0.0.1:1")), "refused"),
        (in_file(&at, &password_file), "the-job-ran"),
        (in_file(&at, &wrong_file), denied),
        (in_file("127.0.0.1:1", &password_file), "refused"),
    ];
    for ((node, url), word) in table {
        let file = program.write("quorate.toml", &format!("nodes = [{node}]\n{job}"));
        let flags = match &url {
            Some(url) => vec!["--nodes", url],
            None => vec!["--config", &file],
        };
        let said = everything_said(&program, &file, &flags, word);
        assert!(said.contains("redis://127.0.0.1:"), "the node is named: {said}");
        assert!(!said.contains(SECRET), "with {node}: {said}");
    }
}

#[test]
fn no_password_is_shown_where_it_cannot_even_be_read() {
    let program = program();
    let urls = [
        format!("redis://:{SECRET}@127.0.0.1:x"),
        format!("redis://:a/{SECRET}@127.0.0.1"),
        format!("redis://:a#{SECRET}@127.0.0.1"),
        format!("redis://:a?{SECRET}@127.0.0.1"),
        format!("redis://:a,{SECRET}@127.0.0.1"),
        format!("redis://:a@{SECRET}@127.0.0.1:x"),
        format!("redis://me:{SECRET}"),
        format!("redsi://:{SECRET}@127.0.0.1"),
        format!("redis:{SECRET}@127.0.0.1"),
        format!("redis://:{SECRET}@127.0.0.1/jobs"),
        format!("redis://:{SECRET}@127.0.0.1,redis://:{SECRET}@127.0.0.1"),
        format!("unix://run/redis.sock?pass={SECRET}"),
    ];
    for url in urls {
        let mut variable = program.command(["status"]);
        variable.env("QUORATE_NODES", &url);
        let file = program.write("list.toml", &format!("nodes = [\"{url}\"]\n"));
        let text = program.write("text.toml", &format!("nodes = \"{url}\"\n"));
        let open = program.write("open.toml", &format!("nodes = [\"{url}]\n"));
        let table = program.write("table.toml", &format!("nodes = [{{ uri = \"{url}\" }}]\n"));
        let mut all = vec![exec(&program, &url), program.start_command(variable).wait(PATIENCE)];
        for file in [&file, &text, &open, &table] {
            all.push(program.run(["status", "--config", file]));
        }
        for ended in all {
            assert!(matches!(ended.code, Some(69 | 78)), "{url}: {ended}");
            assert!(!ended.stderr.is_empty() || !ended.stdout.is_empty(), "{url}: says nothing");
            assert!(!format!("{ended}").contains(SECRET), "{url}: {ended}");
        }
    }
}
