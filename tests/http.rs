//! Tests of the HTTP server of `quorate run` and `quorate lead` on real Redis servers: health checks, metrics, the
//! API, tokens and hostile clients.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::env::{SystemWorld, World};
use quorate_testkit::cannot_run;
use quorate_tests::support::{Http, Nodes, PATIENCE, Program, Running, check_schema, until};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

const TTL: Duration = Duration::from_secs(3);
const READ: &str = "the-token-for-reading";
const OPERATE: &str = "the-token-to-operate";
/// The jobs of most tests: one that runs each second, and one that is never due.
const JOBS: &str = "[[job]]\nname = \"beat\"\nevery = \"1s\"\ncommand = [\"true\"]\n\
                    [[job]]\nname = \"rare\"\nschedule = \"0 0 29 2 *\"\ncommand = [\"true\"]\n";

/// Daemons on three servers that vote.
struct Group {
    program: Program,
    nodes: Nodes,
}

impl Group {
    fn new() -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(3, &program, &[]);
        Self { program, nodes }
    }

    /// Writes a configuration whose table `http` has these further lines.
    fn config(&self, http: &str) -> String {
        let list: Vec<String> = self.nodes.urls().iter().map(|url| format!("{url:?}")).collect();
        let text = format!(
            "nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = {TTL:?} }}\n[http]\nlisten = \"127.0.0.1:0\"\n{http}{JOBS}",
            list.join(", ")
        );
        self.program.write("quorate.toml", &text.replace(&format!("{TTL:?}"), "\"3s\""))
    }

    /// Writes a configuration with both tokens.
    fn with_tokens(&self) -> String {
        self.program.write("read", READ);
        self.program.write("operate", &format!("{OPERATE}\n"));
        self.config("read_token_file = \"read\"\noperate_token_file = \"operate\"\n")
    }

    fn run(&self, config: &str) -> (Running, Http) {
        let daemon = self.program.start(["run", "--config", config]);
        let http = Http::of(&daemon);
        (daemon, http)
    }

    fn lead(&self, group: &str) -> (Running, Http) {
        let list = self.nodes.list();
        let config = self.program.write("lead.toml", "lease = { ttl = \"3s\" }\n");
        let args =
            ["lead", "--config", &config, "--nodes", &list, "--group", group, "--listen", "127.0.0.1:0"];
        let daemon = self.program.start(args);
        let http = Http::of(&daemon);
        (daemon, http)
    }
}

#[track_caller]
fn until_status(http: &Http, path: &str, status: u16) {
    until(&format!("{status} at {path}"), PATIENCE, || (http.status(path) == Some(status)).then_some(()));
}

/// Kills the leader of two processes, and checks how soon the other one answers that it leads.
fn kill_and_take_over((leader, of_leader): (Running, Http), (follower, other): (Running, Http), group: &str) {
    let gauge = format!("quorate_leader{{group=\"{group}\"}}");
    until_status(&of_leader, "/leader", 200);
    until("a follower that knows the leader", PATIENCE, || {
        let answer = other.get("/leader").expect(503).json();
        (answer["leader"] == of_leader.get("/leader").json()["worker"]).then_some(())
    });
    other.get("/readyz").expect(200);
    let led = of_leader.get("/leader").expect(200).json();
    assert_eq!((&led["leading"], &led["leader"]), (&Value::Bool(true), &led["worker"]), "{led}");
    assert_eq!((of_leader.metric(&gauge), other.metric(&gauge)), (1.0, 0.0));
    leader.kill();
    let killed = SystemWorld.now();
    until_status(&other, "/leader", 200);
    let took = killed.until(SystemWorld.now());
    assert!(took <= TTL + Duration::from_secs(1), "{took:?}\n{}", follower.stderr());
    assert!((other.metric(&gauge) - 1.0).abs() < f64::EPSILON);
    let next = other.get("/leader").json();
    assert!(next["term"].as_u64() > led["term"].as_u64(), "{led} {next}");
    assert!((other.metric(&format!("quorate_terms_total{{group=\"{group}\"}}")) - 1.0).abs() < f64::EPSILON);
    assert!(other.metric(&format!("quorate_lease_remaining_seconds{{group=\"{group}\"}}")) > 0.0);
    follower.signal(Signal::TERM);
    follower.wait(PATIENCE).expect(0);
}

#[test]
fn the_leader_is_killed_and_another_daemon_answers_that_it_leads() {
    let group = Group::new();
    let config = group.config("");
    let first = group.run(&config);
    until_status(&first.1, "/leader", 200);
    kill_and_take_over(first, group.run(&config), "g");
}

#[test]
fn a_sidecar_leads_without_jobs() {
    let group = Group::new();
    let first = group.lead("side");
    until_status(&first.1, "/leader", 200);
    let second = group.lead("side");
    let none = second.1.get("/api/v1/jobs").expect(404).error();
    assert!(none.contains("this process runs no jobs"), "{none}");
    let paths = second.1.get("/api/v1/openapi.json").expect(200).json()["paths"].clone();
    assert!(paths["/leader"].is_object() && paths["/api/v1/jobs"].is_null(), "{paths}");
    second.0.signal(Signal::HUP);
    second.0.until_it_says("nothing to reload");
    kill_and_take_over(first, second, "side");
    let missing = group.program.run(["lead", "--nodes", &group.nodes.list(), "--group", "x"]).expect(78);
    assert!(missing.stderr.contains("give --listen 127.0.0.1:9640"), "{missing}");
}

/// While a sidecar led the group of the jobs, none of them would run.
#[test]
fn a_sidecar_does_not_lead_the_group_of_a_files_jobs() {
    let group = Group::new();
    let jobs = group.config("");
    let text = group.program.read("quorate.toml");
    let notify = "[[notify]]\non = [\"no-leader\"]\ncommand = [\"true\"]\n";
    let config = group.program.write("notify.toml", &format!("{text}{notify}"));
    for args in [&["lead", "--config", &jobs][..], &["lead", "--config", &config, "--group", "g"]] {
        let ended = group.program.run(args).expect(78);
        ended.says(&[".toml: the group \"g\" has ", "[[job]]", "start `quorate run`", "--group"]);
    }
    let sidecar = group.program.start(["lead", "--config", &config, "--group", "side"]);
    until_status(&Http::of(&sidecar), "/leader", 200);
    sidecar.until_it_says("`quorate lead` sends no notifications");
    // A file without jobs names the group of the sidecar, and has nothing to warn about.
    let only = text.split("[[job]]").next().expect("the settings");
    let config = group.program.write("only.toml", only);
    let of_file = group.program.start(["lead", "--config", &config]);
    until_status(&Http::of(&of_file), "/leader", 200);
    for (daemon, warns) in [(sidecar, true), (of_file, false)] {
        daemon.signal(Signal::TERM);
        let ended = daemon.wait(PATIENCE).expect(0);
        assert_eq!(ended.stderr.contains("[[notify]]"), warns, "{ended}");
    }
}

#[test]
fn a_daemon_is_ready_while_there_is_a_quorum() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let mut nodes = Nodes::new(3);
    let list = nodes.list();
    let daemon = program.start(["lead", "--nodes", &list, "--group", "g", "--listen", "127.0.0.1:0"]);
    let http = Http::of(&daemon);
    // The new nodes are in quarantine.
    let answer = http.get("/readyz").expect(503).json();
    assert_eq!(answer["ready"], Value::Bool(false), "{answer}");
    assert!(answer["reason"].as_str().is_some_and(|text| text.contains("0 of 3 nodes vote")), "{answer}");
    http.get("/livez").expect(200);
    http.get("/leader").expect(503);
    let status = http.get("/api/v1/status").expect(200).json();
    assert_eq!(
        (&status["quorum"], &status["resources"][0]["resource"]),
        (&Value::Bool(false), &"election/g".into())
    );
    nodes.admit(&program, &[]);
    until_status(&http, "/readyz", 200);
    until_status(&http, "/leader", 200);
    until("all votes", PATIENCE, || (http.metric("quorate_nodes_voting") > 2.5).then_some(()));
    let status = http.get("/api/v1/status").expect(200).json();
    assert_eq!(status["resources"][0]["copies"], Value::Null, "a group without jobs has no records");
    nodes[0].kill();
    until("a missing node", PATIENCE, || (http.metric("quorate_nodes_voting") < 2.5).then_some(()));
    let up = format!("quorate_node_up{{node=\"{}/0\"}}", nodes.name(0));
    until("that it is down", PATIENCE, || (http.metric(&up) < 0.5).then_some(()));
    http.get("/readyz").expect(200);
    nodes[1].kill();
    until_status(&http, "/readyz", 503);
    until_status(&http, "/leader", 503);
    http.get("/livez").expect(200);
    assert!(http.metric("quorate_leader{group=\"g\"}").abs() < f64::EPSILON);
    // A sidecar has no work to finish, and resigns when the lease is about to end. On a busy machine it may be
    // too late to resign, and then it loses the lease.
    let events =
        |name: &str| http.metric(&format!("quorate_lease_events_total{{group=\"g\",event=\"{name}\"}}"));
    until("the end of the term", PATIENCE, || (events("resigned") + events("lost") > 0.0).then_some(()));
    assert!((events("elected") - 1.0).abs() < f64::EPSILON);
}

/// Checks that every counter of a group, a job and an outcome exists with the value zero before anything has
/// happened.
#[test]
fn every_counter_exists_at_zero_and_promtool_finds_nothing() {
    let group = Group::new();
    let config = group.config("");
    // The name of this job contains characters that the metrics and the API must escape.
    let hostile = "[[job]]\nname = 'x\"y\\z<script>'\nevery = \"1s\"\ncommand = [\"true\"]\n";
    group.program.write("quorate.toml", &(group.program.read("quorate.toml") + hostile));
    let (_daemon, http) = group.run(&config);
    let text = http.get("/metrics").expect(200).body;
    assert!(text.contains(r#"quorate_job_paused{group="g",job="x\"y\\z<script>"} 0"#), "{text}");
    let outcomes = [
        "done",
        "failed",
        "timed-out",
        "cancelled",
        "skipped-overlap",
        "skipped-misfire",
        "skipped-paused",
        "skipped-frozen",
        "lost",
    ];
    for outcome in outcomes {
        assert!(text.contains(&format!(
            "\nquorate_runs_total{{group=\"g\",job=\"rare\",outcome=\"{outcome}\"}} 0\n"
        )));
    }
    let events = [
        "elected",
        "at-risk",
        "recovered",
        "step-down",
        "asked-to-resign",
        "handed-over",
        "work-failed",
        "resigned",
        "lost",
    ];
    for event in events {
        assert!(
            text.contains(&format!("\nquorate_lease_events_total{{group=\"g\",event=\"{event}\"}} ")),
            "{event}"
        );
    }
    for name in [
        "quorate_terms_total{group=\"g\"}",
        "quorate_history_write_failures_total{group=\"g\"}",
        "quorate_jobs_without_worker{group=\"g\",why=\"handler\"}",
        "quorate_job_running{group=\"g\",job=\"rare\"}",
        "quorate_job_paused{group=\"g\",job=\"rare\"}",
        "quorate_job_last_success_timestamp_seconds{group=\"g\",job=\"rare\"}",
        "quorate_run_seconds_count{group=\"g\",job=\"rare\"}",
        "quorate_tick_lateness_seconds_count{group=\"g\",job=\"rare\"}",
        "quorate_acquire_seconds_count{outcome=\"failed\"}",
    ] {
        assert!(text.contains(&format!("\n{name} ")), "no {name} in {text}");
    }
    // The metrics must also be correct once some of them have values.
    let done = "quorate_runs_total{group=\"g\",job=\"beat\",outcome=\"done\"}";
    until("a run", PATIENCE, || (http.metric(done) > 0.0).then_some(()));
    let copy = format!("quorate_ledger_copy_complete{{group=\"g\",node=\"{}/0\"}}", group.nodes.name(0));
    until("a complete copy", PATIENCE, || (http.metric(&copy) > 0.5).then_some(()));
    let shown = http.get("/api/v1/jobs/x%22y%5Cz%3Cscript%3E").expect(200);
    assert_eq!(shown.json()["name"], r#"x"y\z<script>"#);
    assert!(shown.head.contains("x-content-type-options: nosniff"), "{shown}");
    let scrape = http.get("/metrics").expect(200).body;
    let names = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    assert_eq!(names(&text), names(&scrape), "runs add no series");
    check_metrics(&scrape);
}

fn check_metrics(scrape: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = command.spawn() else {
        cannot_run(
            "http::every_counter_exists_at_zero_and_promtool_finds_nothing",
            "promtool is missing; install prometheus",
        );
        return;
    };
    promtool.stdin.take().expect("a pipe").write_all(scrape.as_bytes()).expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{scrape}", String::from_utf8_lossy(&said));
}

#[test]
fn the_description_agrees_with_every_answer_and_operations_need_their_token() {
    let group = Group::new();
    let config = group.with_tokens();
    let slow =
        "[[job]]\nname = \"slow\"\nevery = \"1s\"\noverlap = \"skip\"\ncommand = [\"sleep\", \"60\"]\n";
    group.program.write("quorate.toml", &(group.program.read("quorate.toml") + slow));
    let (daemon, anyone) = group.run(&config);
    let (reader, operator) = (anyone.with_token(READ), anyone.with_token(OPERATE));
    until_status(&anyone, "/leader", 200);
    until("a run", PATIENCE, || {
        let (beat, slow) = (reader.get("/api/v1/jobs/beat").json(), reader.get("/api/v1/jobs/slow").json());
        let both = [&beat["last"], &slow["running"]];
        both.iter().all(|list| list.as_array().is_some_and(|list| !list.is_empty())).then_some(())
    });
    let document = reader.get("/api/v1/openapi.json").expect(200).json();
    let paths = document["paths"].as_object().expect("paths").clone();
    assert_eq!(paths.len(), 28);
    let resign = "/api/v1/election/resign";
    let order =
        paths.keys().filter(|path| *path != resign).chain([&resign.to_owned()]).cloned().collect::<Vec<_>>();
    for path in order {
        for (method, described) in paths[&path].as_object().expect("methods") {
            let method = method.to_uppercase();
            let job = match &*method {
                "PUT" | "DELETE" => "letter",
                _ if path.ends_with("cancel") => "slow",
                _ => "beat",
            };
            let at = path.replace("{job}", job).replace("{set}", "orders").replace("{id}", "order%2F1");
            let body = if method == "POST" && at.ends_with("/jobs") {
                r#"{"job":"letter","schedule":"0 3 * * *","handler":"mail"}"#
            } else if method == "PUT" {
                r#"{"schedule":"0 4 * * *","handler":"mail"}"#
            } else if at.ends_with("backfill") {
                r#"{"from":"2026-11-21T03:00:00Z","until":"2026-11-21T03:00:02Z"}"#
            } else if at.ends_with("/freeze") {
                r#"{"reason":"a migration","for":"1h"}"#
            } else {
                ""
            };
            let health = ["/livez", "/readyz", "/leader"].contains(&at.as_str());
            let denied = anyone.request(&method, &at, "", body);
            assert_eq!(denied.status, if health { 200 } else { 401 }, "{at}: {denied}");
            assert!(!denied.body.contains("127.0.0.1") && !denied.body.contains("worker"), "{denied}");
            if method != "GET" {
                let refused = reader.request(&method, &at, "", body).expect(403).error();
                assert!(refused.contains("send the token of http.operate_token_file"), "{refused}");
            }
            // The nodes store nothing of the message.
            let code = if at.contains("/messages/") { 404 } else { 200 };
            let answer = operator.request(&method, &at, "", body).expect(code);
            let content = &described["responses"]["200"]["content"];
            if at.ends_with("/reset") {
                assert!(answer.error().contains("nothing of the message order/1"), "{answer}");
            } else if content["application/json"].is_object() {
                check_schema(&document, &content["application/json"]["schema"], &answer.json(), &at);
            } else {
                assert!(answer.head.contains("content-type: text/plain"), "{at}: {answer}");
            }
            assert!(answer.head.contains("cache-control: no-store"), "{answer}");
        }
    }
    let audit = reader.get("/api/v1/audit?limit=100").json();
    let actions: BTreeSet<&str> = audit["requests"]
        .as_array()
        .expect("requests")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    for action in ["pause", "resume", "trigger", "backfill", "cancel", "freeze", "unfreeze", "resign"] {
        assert!(actions.contains(action), "{action}: {audit}");
    }
    let terms = reader.get("/api/v1/leader/history").json();
    assert!(terms["terms"].as_array().is_some_and(|terms| !terms.is_empty()), "{terms}");
    // The requests above have triggered, paused and resumed `beat`, and have back-filled its ticks.
    let history = reader.get("/api/v1/jobs/beat/history?limit=100").json().to_string();
    assert!(history.contains("triggered") && history.contains("backfilled"), "{history}");
    assert!(daemon.stderr().contains("http@127.0.0.1"), "{}", daemon.stderr());
    for wrong in ["", "x", "the-token-for-readinG", "the-token-for-reading-"] {
        anyone.with_token(wrong).get("/api/v1/jobs").expect(401);
    }
    let denied = anyone.get("/metrics").expect(401);
    assert!(denied.head.contains("www-authenticate: bearer"), "{denied}");
    for secret in [READ, OPERATE] {
        assert!(!daemon.stderr().contains(secret), "a token is in the log");
    }
}

#[test]
fn unknown_paths_methods_and_parameters_are_refused_with_the_fix() {
    let group = Group::new();
    group.program.write("operate", OPERATE);
    let (_daemon, http) = group.run(&group.config("operate_token_file = \"operate\"\n"));
    until_status(&http, "/leader", 200);
    until("the jobs", PATIENCE, || (http.status("/api/v1/jobs/beat") == Some(200)).then_some(()));
    let operator = http.with_token(OPERATE);
    for (method, path, status, text) in [
        ("GET", "/api", 404, "GET /api/v1/openapi.json lists all paths"),
        ("GET", "/nothing%3Cscript%3E", 404, "there is no path"),
        ("GET", "/api/v1/jobs/", 404, "there is no path"),
        ("POST", "/metrics", 405, "the header Allow lists its methods"),
        ("PATCH", "/api/v1/jobs/beat", 405, "no method PATCH"),
        ("DELETE", "/api/v1/jobs/beat", 401, "http.operate_token_file"),
        ("GET", "/api/v1/jobs/beat/trigger", 405, "no method GET"),
        ("GET", "/metrics?name=x", 400, "there are no parameters here"),
        ("GET", "/api/v1/jobs?group=x", 400, "unknown parameter \"group\""),
        ("GET", "/api/v1/jobs/beat/history?limt=1", 400, "did you mean limit?"),
        ("GET", "/api/v1/jobs/beat/history?limit=0", 400, "limit \"0\" is not a number from 1 to 10000"),
        ("GET", "/api/v1/jobs/beat/history?limit=1&limit=2", 400, "limit is given twice"),
        ("GET", "/api/v1/jobs/beat/next?from=now", 400, "write it like 2026-11-21T03:00:00Z"),
        ("GET", "/api/v1/jobs/baet", 404, "did you mean \"beat\"?"),
        ("GET", "/api/v1/jobs/%ff", 400, "not UTF-8"),
        ("GET", "/api/v1/status?resource=a%7Bb", 400, "brace"),
        ("POST", "/api/v1/jobs/beat/pause", 401, "http.operate_token_file"),
        ("GET", "/api/v1/jobs/beat/why?at=noon", 400, "write it like 2026-11-21T03:00:00Z"),
        ("GET", "/api/v1/leader/history?limit=0", 400, "limit \"0\" is not a number from 1 to 10000"),
        ("GET", "/api/v1/claims/a%7Bb", 400, "brace"),
        ("POST", "/api/v1/freeze", 401, "http.operate_token_file"),
    ] {
        let answer = http.request(method, path, "", "").expect(status);
        assert!(answer.error().contains(text), "{method} {path}: {answer}");
        assert_eq!(answer.head.contains("\r\nallow: "), status == 405, "{answer}");
    }
    for (path, body, status, text) in [
        ("trigger", "no json", 400, "not a JSON object"),
        ("trigger", "[1]", 400, "not a JSON object"),
        ("trigger", r#"{"wiat":"1s"}"#, 400, "did you mean wait?"),
        ("trigger", r#"{"wait":"1h"}"#, 400, "a time up to 30s"),
        ("trigger", r#"{"wait":[1]}"#, 400, "not a string or a number"),
        ("cancel", r#"{"tick":"noon"}"#, 400, "write it like 2026"),
        ("backfill", r#"{"from":"2026-11-21T03:00:00Z"}"#, 400, "until is missing"),
        (
            "backfill",
            r#"{"until":"2026-11-21T03:00:00Z","from":"2026-11-21T03:00:00Z"}"#,
            400,
            "not later than",
        ),
    ] {
        let answer = operator.post(&format!("/api/v1/jobs/beat/{path}"), body).expect(status);
        assert!(answer.error().contains(text), "{path} {body}: {answer}");
    }
    for (body, text) in [
        ("", "give either for"),
        (r#"{"reason":"x"}"#, "give either for"),
        (r#"{"reason":"x","for":"1h","until":"2036-11-21T03:00:00Z"}"#, "give either for"),
        (r#"{"reason":"x","for":"soon"}"#, "write it like 30m"),
    ] {
        let answer = operator.post("/api/v1/freeze", body).expect(400);
        assert!(answer.error().contains(text), "{body}: {answer}");
    }
    let missing = operator.post("/api/v1/jobs/none/trigger", "").expect(404).error();
    assert!(missing.contains("no job is called \"none\""), "{missing}");
    let long = operator.post("/api/v1/jobs/beat/trigger", &" ".repeat(20_000)).expect(413).error();
    assert!(long.contains("longer than 16384 bytes"), "{long}");
    let host = http.request("GET", "/leader", "Host: quorate.example.com\r\n", "").expect(403).error();
    assert!(host.contains("quorate.example.com") && host.contains("http.read_token_file"), "{host}");
    for path in ["/leader", "/"] {
        let twice =
            http.request("GET", path, "Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n", "").expect(400).error();
        assert!(twice.contains("the header host is given twice"), "{twice}");
    }
    for origin in ["http://evil.example.com", "null"] {
        let answer =
            operator.request("POST", "/api/v1/jobs/beat/pause", &format!("Origin: {origin}\r\n"), "");
        assert!(answer.expect(403).error().contains("may not use this server"));
    }
    let none = http.get("/api/v1/jobs/beat").json();
    assert!(none["paused"].is_null(), "nothing was done: {none}");
}

#[test]
fn settings_that_expose_the_server_are_refused() {
    let group = Group::new();
    let refused = |args: &[&str], text: &[&str]| {
        let ended = group.program.run(args).expect(78);
        for part in text {
            assert!(ended.stderr.contains(part), "{part}: {ended}");
        }
        assert!(!ended.stderr.contains("elected"), "{ended}");
    };
    let config = group.config("");
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9640"] {
        refused(
            &["run", "--config", &config, "--listen", address],
            &["--listen", address, "no token protects", "set http.read_token_file"],
        );
    }
    refused(
        &["run", "--check", "--config", &config, "--listen", "web:80"],
        &["\"web:80\" is not an IP address"],
    );
    group.program.write("read", "short");
    let short = group.config("read_token_file = \"read\"\n");
    refused(
        &["run", "--config", &short],
        &["http.read_token_file", "has a token of 5 characters", "openssl rand"],
    );
    let missing = group.config("read_token_file = \"none\"\n");
    refused(&["run", "--config", &missing], &["http.read_token_file", "cannot be read", "make it readable"]);
    let unknown = group.config("read_token = \"x\"\n");
    refused(
        &["run", "--config", &unknown],
        &["unknown key `read_token`; the keys here are listen, read_token_file"],
    );
    // With a read token, a daemon may listen on any address.
    let open = group.with_tokens();
    let daemon = group.program.start(["run", "--config", &open, "--listen", "0.0.0.0:0"]);
    daemon.until_it_says("listening for HTTP on http://0.0.0.0:");
    let port = Http::of(&daemon).address().port();
    let file = group.program.write("other.toml", "");
    let taken = ["lead", "--config", &file, "--nodes", &group.nodes.list(), "--group", "x", "--listen"];
    let address = format!("127.0.0.1:{port}");
    let ended = group.program.run(taken.into_iter().chain([address.as_str()])).expect(125);
    assert!(ended.stderr.contains("choose another address"), "{ended}");
}

#[test]
fn a_reload_keeps_the_server_and_a_stop_ends_it_in_time() {
    let group = Group::new();
    let config = group.config("");
    let (daemon, http) = group.run(&config);
    until_status(&http, "/leader", 200);
    let text = group.program.read("quorate.toml");
    let changed = format!("{text}[[job]]\nname = \"later\"\nevery = \"1s\"\ncommand = [\"true\"]\n");
    group.program.write("quorate.toml", &changed.replace("[http]\n", "[http]\noperate_token_file = \"x\"\n"));
    daemon.signal(Signal::HUP);
    daemon.until_it_says("the new value of `http` takes effect after a restart");
    daemon.until_it_says("added later");
    let done = "quorate_runs_total{group=\"g\",job=\"later\",outcome=\"done\"}";
    until("a run of the new job", PATIENCE, || (http.metric(done) > 0.0).then_some(()));
    // Clients that are connected but send nothing, or only half a request, do not delay the daemon's exit.
    let mut half = http.connect().expect("a connection");
    half.write_all(b"GET /livez HTTP/1.1\r\nHost: 127").expect("it is connected");
    let idle = http.connect().expect("a connection");
    daemon.signal(Signal::TERM);
    let stopped = SystemWorld.now();
    let ended = daemon.wait(PATIENCE).expect(0);
    let took = stopped.until(SystemWorld.now());
    assert!(took < Duration::from_secs(4), "{took:?}\n{}", ended.stderr);
    assert!(http.connect().is_err(), "the port is free");
    drop((half, idle));
}

/// A generator of pseudo-random numbers (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).unwrap_or_default()
    }
}

/// Sends a request with a token on a connection that stays open, and returns the answer.
fn ask(stream: &mut TcpStream, path: &str, token: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is connected");
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0_usize) {
                return answer;
            }
        }
        match stream.read(&mut bytes).expect("an answer") {
            0 => panic!("the connection was closed: {answer}"),
            count => answer += &String::from_utf8_lossy(&bytes[..count]),
        }
    }
}

const PIECES: [&str; 30] = [
    "GET ",
    "POST ",
    "PRI * HTTP/2.0",
    "/",
    "/metrics",
    "/api/v1/jobs/",
    "beat",
    "%00%ff%2e%2e",
    "/trigger",
    "?",
    "limit=",
    "99999999999999999999",
    "&",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/9.9",
    "\r\n",
    "\n",
    "\r\n\r\n",
    "Host: 127.0.0.1\r\n",
    "Host:",
    "Content-Length: 18446744073709551616\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "ffffffffffffffff\r\n",
    "Authorization: Bearer \u{fc}\r\n",
    "Expect: 100-continue\r\n",
    "Upgrade: h2c\r\n",
    "{\"wait\":",
    "\0\u{1b}[2J",
];

#[test]
fn malformed_requests_leave_the_daemon_leading() {
    const REQUESTS: usize = 10_000;
    let group = Group::new();
    let (mut daemon, http) = group.run(&group.with_tokens());
    until_status(&http, "/leader", 200);
    let reader = http.with_token(READ);
    let term = reader.get("/leader").json()["term"].clone();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut answered, mut server_errors) = (0, Vec::new());
    for _ in 0..REQUESTS {
        let mut request: Vec<u8> = if random.below(4) == 0 {
            (0..random.below(300)).map(|_| u8::try_from(random.below(256)).unwrap_or_default()).collect()
        } else {
            let pieces: Vec<&str> =
                (0..random.below(20)).map(|_| PIECES[random.below(PIECES.len())]).collect();
            pieces.concat().into_bytes()
        };
        if random.below(100) == 0 {
            request.extend(vec![b'a'; 40_000]);
        }
        let Ok(mut stream) = http.connect() else { continue };
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(&request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answered += usize::from(answer.starts_with(b"HTTP/1.1 4"));
        if answer.starts_with(b"HTTP/1.1 5") {
            server_errors.push((request, answer));
        }
    }
    assert!(answered > REQUESTS / 4, "{answered} were answered");
    let shown = server_errors.iter().map(|(request, _)| String::from_utf8_lossy(request));
    assert!(server_errors.is_empty(), "{:?}", shown.collect::<Vec<_>>());
    // Opens more connections than the server permits. Each of them sends a part of a request.
    let mut operator = http.connect().expect("a connection");
    assert!(ask(&mut operator, "/leader", OPERATE).starts_with("HTTP/1.1 200"));
    let mut open: Vec<_> = (0..100)
        .filter_map(|_| {
            let mut stream = http.connect().ok()?;
            stream.write_all(b"GET /livez HTTP/1.1\r\n").ok()?;
            Some(stream)
        })
        .collect();
    assert_eq!(open.len(), 100);
    for path in ["/livez", "/readyz", "/leader"] {
        http.get(path).expect(200);
        reader.get(path).expect(200);
    }
    assert!(ask(&mut operator, "/metrics", OPERATE).starts_with("HTTP/1.1 200"), "its place is kept apart");
    let began = SystemWorld.now();
    let mut answer = Vec::new();
    let _ = open[0].read_to_end(&mut answer);
    let took = began.until(SystemWorld.now());
    assert!(took < Duration::from_secs(2), "the oldest lost its place, after {took:?}");
    // An idle connection ends, although its client has a token.
    assert!(matches!(operator.read_to_end(&mut answer), Ok(0)), "{}", String::from_utf8_lossy(&answer));
    drop(open);
    until_status(&http, "/livez", 200);
    let after = reader.get("/leader").expect(200).json();
    assert_eq!(after["term"], term, "{}", daemon.stderr());
    assert!(daemon.is_running());
    assert_eq!(daemon.stderr().matches("elected").count(), 1, "{}", daemon.stderr());
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}
