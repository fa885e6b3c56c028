//! Tests of `quorate run` on real Redis servers. Two daemons use the same file, and each tick runs on one of
//! them.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{Nodes, PATIENCE, Program, Running, now, until};
use rustix::process::Signal;
use std::{collections::BTreeMap, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
/// The time between two ticks.
const PERIOD: Duration = Duration::from_millis(500);

/// Three nodes, and the daemons of one group.
struct Bench {
    program: Program,
    _nodes: Nodes,
    config: String,
}

impl Bench {
    /// Starts the nodes, and writes a configuration whose job appends its tick and its daemon's token to the
    /// file `ticks`.
    fn new() -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(3, &program, &[]);
        let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
        let text = format!(
            "nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = \"2s\" }}\n\
             [[job]]\nname = \"beat\"\nevery = \"500ms\"\ndelivery = \"at-most-once\"\n\
             misfire = {{ rule = \"run-all\", within = \"60s\" }}\n\
             command = [\"sh\", \"-c\", \"echo $QUORATE_JOB $QUORATE_TICK $QUORATE_FENCING_TOKEN >> ticks\"]\n",
            list.join(", ")
        );
        let config = program.write("quorate.toml", &text);
        Self { program, _nodes: nodes, config }
    }

    fn daemon(&self) -> Running {
        self.program.start(["run", "--config", &self.config])
    }

    /// Returns the tokens under which each tick ran, by the time of the tick.
    fn ticks(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut ticks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let text = self.program.read("ticks");
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some("beat"), Some(tick), Some(token)) = (words.next(), words.next(), words.next()) else {
                panic!("{line:?}")
            };
            let token = token.parse().unwrap_or_else(|_| panic!("no token in {line:?}"));
            ticks.entry(millis(tick)).or_default().push(token);
        }
        ticks
    }

    #[track_caller]
    fn until_ticks(&self, more: usize) {
        let enough = self.ticks().len() + more;
        until(&format!("{enough} ticks"), PATIENCE, || (self.ticks().len() >= enough).then_some(()));
    }
}

/// Returns the daemon that leads and then the other one, according to their logs.
fn leader_first(a: Running, b: Running) -> (Running, Running) {
    let elected = |daemon: &Running| daemon.stderr().contains("elected");
    until("leader", PATIENCE, || (elected(&a) || elected(&b)).then_some(()));
    if elected(&a) { (a, b) } else { (b, a) }
}

#[test]
fn sigterm_hands_over_without_a_tick_lost_or_doubled_and_sigkill_after_the_expiry() {
    let bench = Bench::new();
    let (leader, follower) = leader_first(bench.daemon(), bench.daemon());
    bench.until_ticks(3);

    leader.signal(Signal::TERM);
    let signalled = now();
    let ended = leader.wait(PATIENCE).expect(0).says(&["SIGTERM: resigning", "ended"]);
    assert!(signalled.until(now()) < 2 * SECOND, "the stated bound is the grace and a second: {ended}");
    follower.until_it_says("elected");
    bench.until_ticks(3);

    let third = bench.daemon();
    third.until_it_says("nodes from");
    follower.kill();
    let killed = now();
    third.until_it_says("elected");
    let taken_over = killed.until(now());
    assert!(taken_over < 4 * SECOND, "a TTL of 2 s was over, and it took {taken_over:?}");
    bench.until_ticks(4);
    third.signal(Signal::TERM);
    third.wait(PATIENCE).expect(0);

    let ticks = bench.ticks();
    let twice: Vec<_> = ticks.iter().filter(|(_, tokens)| tokens.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let tokens: Vec<u64> = ticks.values().flatten().copied().collect();
    assert!(tokens.is_sorted(), "later ticks run under later terms: {ticks:?}");
    assert_eq!(tokens.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "three terms: {ticks:?}");
    // The kill may interrupt a single tick between its start and its line in the file. No other tick may be
    // missing.
    let missing = due(&ticks) - ticks.len();
    assert!(missing <= 1, "{missing} ticks are missing: {ticks:?}");
}

/// Returns the number of ticks that were due between the first and the last tick that ran.
fn due(ticks: &BTreeMap<u64, Vec<u64>>) -> usize {
    let (first, last) = (ticks.keys().next().expect("a tick"), ticks.keys().last().expect("a tick"));
    usize::try_from((last - first) / PERIOD.as_millis() as u64).expect("few") + 1
}

/// Converts a time such as `2026-11-21T05:08:45.500000Z` to milliseconds. The fraction is optional, and months
/// are ignored.
fn millis(tick: &str) -> u64 {
    let (date, time) = tick.trim_end_matches('Z').split_once('T').expect("RFC 3339");
    let day = date.rsplit('-').next().map_or(0, |day| day.parse::<u64>().expect("a day"));
    let mut parts = time.split([':', '.']);
    let mut part = || parts.next().map_or(0, |part| part.parse::<u64>().expect("a number"));
    (((day * 24 + part()) * 60 + part()) * 60 + part()) * 1000 + part() / 1000
}

#[test]
fn a_killed_daemon_takes_its_command_with_it() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let text = format!(
        "nodes = [\"file://{}/node\"]\ngroup = \"g\"\ntrust_new_nodes = true\nlease = {{ ttl = \"2s\" }}\n\
         [[job]]\nname = \"long\"\nevery = \"100ms\"\n\
         command = [\"sh\", \"-c\", \"trap '' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.1; done\"]\n",
        program.dir().display()
    );
    let config = program.write("quorate.toml", &text);
    let daemon = program.start(["run", "--config", &config]);
    let pid: u32 = until("command", PATIENCE, || program.read("pid").trim().parse().ok());
    daemon.kill();
    let killed = now();
    until("end of the command", PATIENCE, || (!quorate_tests::support::is_alive(pid)).then_some(()));
    assert!(killed.until(now()) < 2 * SECOND, "alive {:?} after the kill", killed.until(now()));
}

#[test]
fn a_command_deaf_to_sigterm_is_dead_before_a_resigning_daemon_releases_its_lease() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let nodes = format!("file://{}/node", program.dir().display());
    let text = format!(
        "nodes = [{nodes:?}]\ngroup = \"g\"\ntrust_new_nodes = true\nlease = {{ ttl = \"4s\" }}\n\
         [[job]]\nname = \"deaf\"\nevery = \"100ms\"\n\
         command = [\"sh\", \"-c\", \"trap '' TERM; while :; do date +%s%N >> beats; sleep 0.01; done\"]\n",
    );
    let config = program.write("quorate.toml", &text);
    let daemon = program.start(["run", "--config", &config]);
    until("command", PATIENCE, || (!program.read("beats").is_empty()).then_some(()));
    // The rival leads only after the first daemon has released the leadership.
    let rival = program.write(
        "rival.toml",
        &text.replace("deaf", "rival").replace(
            "trap '' TERM; while :; do date +%s%N >> beats; sleep 0.01; done",
            "date +%s%N >> rival",
        ),
    );
    let rival = program.start(["run", "--config", &rival]);
    rival.until_it_says("node votes");
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
    until("rival", PATIENCE, || (!program.read("rival").is_empty()).then_some(()));
    let nanos = |text: &str| text.trim().parse::<u64>().expect("a time");
    let beats = program.read("beats");
    let last = beats.lines().last().map(nanos).expect("a beat");
    let first = program.read("rival").lines().next().map(nanos).expect("a beat");
    assert!(last < first, "both ran for {:?}", Duration::from_nanos(last - first.min(last)));
    rival.signal(Signal::TERM);
    rival.wait(PATIENCE).expect(0);
}

/// Checks that the daemon knows that no process runs if a job's directory is missing. So it releases the lease at its
/// end, and the next daemon does not wait for the TTL.
#[test]
fn a_run_whose_directory_is_missing_does_not_keep_the_lease() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let dir = program.dir().display();
    let text = format!(
        "nodes = [\"file://{dir}/node\"]\ngroup = \"g\"\ntrust_new_nodes = true\nlease = {{ ttl = \"30s\" }}\n\
         [[job]]\nname = \"lost\"\nevery = \"200ms\"\ncwd = \"{dir}/missing\"\ncommand = [\"true\"]\n"
    );
    let config = program.write("quorate.toml", &text);
    let daemon = program.start(["run", "--config", &config]);
    daemon.until_it_says(&format!("cannot enter cwd = \"{dir}/missing\": No such file or directory"));
    let next = program.start(["run", "--config", &config]);
    next.until_it_says("node votes");
    daemon.signal(Signal::TERM);
    let ended = daemon.wait(PATIENCE).expect(0);
    let released = now();
    assert!(!ended.stderr.contains("not released"), "{ended}");
    assert!(ended.stderr.contains("create the directory"), "{ended}");
    next.until_it_says("elected");
    assert!(released.until(now()) < 10 * SECOND, "elected {:?} later", released.until(now()));
    next.signal(Signal::TERM);
    next.wait(PATIENCE).expect(0);
}

#[test]
fn check_reads_the_file_and_says_what_it_means_or_what_is_wrong_and_where() {
    let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    let good = "nodes = [\"redis://127.0.0.1:1\"]\ngroup = \"g\"\n\
                [[job]]\nname = \"nightly\"\nschedule = \"0 3 * * *\"\nzone = \"Europe/Kyiv\"\ncommand = [\"./report.sh\"]\n";
    let check = |text: &str| {
        let config = program.write("quorate.toml", text);
        program.run(["run", "--check", "--config", &config])
    };
    let answer = check(good).expect(0).stdout;
    for part in
        ["group g", "redis://127.0.0.1:1", "nightly", "0 3 * * *", "Europe/Kyiv", "03:00:00", "./report.sh"]
    {
        assert!(answer.contains(part), "{part:?} is not in {answer}");
    }
    let warning = "every node is a loopback address";
    assert_eq!(answer.matches(warning).count(), 1, "{answer}");
    let elsewhere = check(&good.replace("127.0.0.1:1", "alpha")).expect(0);
    assert!(!elsewhere.stdout.contains(warning), "{elsewhere}");
    let secret =
        good.replace("\"redis://127.0.0.1:1\"", "{ url = \"redis://alpha\", password_file = \"secret\" }");
    let missing = check(&secret).expect(78);
    missing.says(&[
        "quorate.toml",
        "password_file",
        "secret of redis://alpha:6379",
        "cannot be read: No such",
        "create it",
    ]);
    program.write("secret", "hush");
    check(&secret).expect(0);
    let tls = secret
        .replace("redis://alpha", "rediss://alpha")
        .replace("group", "tls = { ca_file = \"ca.pem\" }\ngroup");
    check(&tls).expect(78).says(&["ca_file", "ca.pem of rediss://alpha:6379", "cannot be read"]);
    for (wrong, says) in [
        (good.replace("0 3 * * *", "0 25 * * *"), ["quorate.toml:5", "25"]),
        (good.replace("Europe/Kyiv", "Europe/Kiew"), ["quorate.toml:6", "did you mean"]),
        (good.replace("zone", "zne"), ["quorate.toml:6", "zone"]),
        (good.replace("nightly", "a/b"), ["quorate.toml:4", "slashes"]),
        (format!("{good}{}", &good[good.find("[[job]]").expect("a job")..]), ["quorate.toml", "nightly"]),
        (good.replace("group = \"g\"\n", ""), ["quorate.toml", "group"]),
        (
            good.replace("group = \"g\"", "group = \"g\"\nlease = { ttl = \"2 parsecs\" }"),
            ["quorate.toml:3", "parsecs"],
        ),
        (
            good.replace("group = \"g\"", "group = \"g\"\nlease = { ttl = \"50ms\" }"),
            ["quorate.toml:3", "ttl"],
        ),
    ] {
        check(&wrong).expect(78).says(&says);
    }
}

#[test]
fn logs_are_json_where_that_is_asked_for_and_a_refused_list_ends_the_daemon() {
    let bench = Bench::new();
    let daemon = bench.program.start(["run", "--config", &bench.config, "--log-format", "json"]);
    bench.until_ticks(1);
    daemon.signal(Signal::INT);
    let ended = daemon.wait(PATIENCE).expect(0);
    let mut messages = Vec::new();
    for line in ended.stderr.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        messages.push(line["message"].as_str().expect("a message").to_owned());
    }
    let loopback = messages.iter().filter(|message| message.starts_with("every node is a loopback address"));
    assert_eq!(loopback.count(), 1, "{messages:?}");
    for message in ["elected", "SIGINT: resigning", "resigned", "ended"] {
        assert!(messages.iter().any(|answer| answer == message), "{message:?} is not in {messages:?}");
    }
    let half = bench.program.read("quorate.toml").replacen(", \"redis", "] # \"redis", 1);
    let half = bench.program.write("half.toml", &half);
    bench.program.run(["run", "--config", &half]).expect(78).says(&["names the node set", "same list"]);
}

/// Answers requests on a free port: the first with 503, all others with 200. Returns the address and the requests.
fn http_server() -> (String, std::sync::mpsc::Receiver<String>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.expect("a connection");
            let mut got = Vec::new();
            while !got.ends_with(b"}") {
                let mut part = [0; 4096];
                let n = stream.read(&mut part).expect("a request");
                got.extend_from_slice(&part[..n]);
                if n == 0 {
                    break;
                }
            }
            let (status, body) =
                if number == 0 { ("503 Busy", "try again") } else { ("200 OK", "refreshed") };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes());
            if sender.send(String::from_utf8_lossy(&got).into_owned()).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

#[test]
fn a_job_sends_a_request_with_its_token_and_one_key_for_all_attempts() {
    let bench = Bench::new();
    let (address, requests) = http_server();
    bench.program.write("token", "Bearer hush\n");
    let text = bench.program.read("quorate.toml");
    let (above, _) = text.split_once("[[job]]").expect("a job");
    let job = format!(
        "{above}[[job]]\nname = \"refresh\"\nevery = \"1s\"\nkeep_output = \"1KiB\"\n\
         retries = {{ attempts = 3, backoff = \"100ms\" }}\n\
         http = {{ method = \"PUT\", url = \"http://{address}/cache?hush=1\", header_files = {{ Authorization = \"token\" }}, body = '{{\"all\":true}}' }}\n"
    );
    bench.program.write("quorate.toml", &job);
    let daemon = bench.daemon();
    let next = || requests.recv_timeout(PATIENCE).expect("a request");
    let (first, second) = (next(), next());
    let header = |request: &str, name: &str| {
        let line =
            request.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {request}"))
    };
    for request in [&first, &second] {
        assert!(request.starts_with("PUT /cache?hush=1 HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\n{\"all\":true}"), "{request}");
        assert_eq!(header(request, "authorization"), "Bearer hush");
        assert_eq!(header(request, "content-type"), "application/json");
        assert_eq!(header(request, "quorate-job"), "refresh");
        assert!(header(request, "quorate-fencing-token").parse::<u64>().is_ok_and(|token| token > 0));
    }
    assert_eq!(
        (header(&first, "quorate-attempt"), header(&second, "quorate-attempt")),
        ("1".into(), "2".into())
    );
    assert_eq!(header(&first, "idempotency-key"), header(&second, "idempotency-key"), "of one run");
    assert_ne!(header(&next(), "idempotency-key"), header(&second, "idempotency-key"), "the next run");
    until("the end of the answer in the history", PATIENCE, || {
        let history = bench.program.run(["jobs", "history", "refresh", "--config", &bench.config, "--json"]);
        let history = history.expect(0).stdout;
        (history.contains("refreshed") && history.contains("it answered 503")).then_some(())
    });
    let log = daemon.stderr();
    assert!(!log.contains("hush"), "a secret shows: {log}");
}
