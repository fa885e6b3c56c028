//! Tests of `quorate jobs`. Two daemons run jobs on real Redis servers, and a third process shows and controls
//! them.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{JobBench, PATIENCE, now, until};
use rustix::process::Signal;
use serde_json::Value;
use std::{ops::Deref, time::Duration};

const JOBS: &str = r#"
[[job]]
name = "beat"
every = "500ms"
misfire = { rule = "skip" }
shell = "echo $QUORATE_TICK >> beats"

[[job]]
name = "nightly-report"
schedule = "0 3 * * *"
shell = "echo $QUORATE_TICK $QUORATE_CAUSE $QUORATE_ATTEMPT $QUORATE_FENCING_TOKEN ${QUORATE_DEADLINE:-none} $QUORATE_REQUEST >> reports; echo written"
keep_output = "1KiB"
timeout = "1m"

[[job]]
name = "long"
schedule = "0 0 1 1 *"
shell = "echo begun >> long; sleep 300"

[[job]]
name = "flaky"
schedule = "0 0 1 1 *"
shell = "echo $QUORATE_ATTEMPT >> flaky; echo attempt $QUORATE_ATTEMPT; test $QUORATE_ATTEMPT = 3 && exit 3; exit 1"
ok_exit_codes = [0, 3]
retries = { attempts = 4, backoff = "50ms", max_backoff = "100ms" }
keep_output = "100"

[[job]]
name = "slow"
schedule = "0 0 1 1 *"
shell = "trap 'echo stopped >> slow; exit 0' TERM; while :; do sleep 0.05; done"
timeout = "300ms"

[[job]]
name = "shared"
every = "500ms"
runs_on = "any"
misfire = { rule = "skip" }
shell = "echo $QUORATE_TICK $QUORATE_FENCING_TOKEN >> shared; sleep 0.3"
"#;

/// A [`JobBench`] with the helpers that the tests of this file need.
struct Bench(JobBench);

impl Deref for Bench {
    type Target = JobBench;
    fn deref(&self) -> &JobBench {
        &self.0
    }
}

impl Bench {
    fn new() -> Self {
        Self(JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), JOBS))
    }

    /// Sends a request, and checks that it is accepted.
    #[track_caller]
    fn accepted(&self, args: &[&str]) -> Value {
        let answer = self.json(args);
        assert_eq!(answer["accepted"], true, "{args:?}: {answer}");
        answer
    }

    /// Waits until the run of this request has ended, and returns its history entry.
    #[track_caller]
    fn end_of(&self, job: &str, request: &Value) -> Value {
        until(&format!("end of {job}'s {request}"), PATIENCE, || {
            let history = self.json(&["history", job]);
            let mine =
                history["history"].as_array()?.iter().find(|end| end["request"] == request["id"])?.clone();
            Some(mine)
        })
    }

    #[track_caller]
    fn until_registered(&self) {
        until("jobs", PATIENCE, || {
            let list = self.json(&["list"]);
            (list["jobs"].as_array().map_or(0, Vec::len) == 6).then_some(())
        });
    }

    fn lines(&self, file: &str) -> usize {
        self.program.read(file).lines().count()
    }

    #[track_caller]
    fn until_lines(&self, file: &str, lines: usize) {
        until(&format!("{lines} lines in {file}"), PATIENCE, || (self.lines(file) >= lines).then_some(()));
    }
}

#[test]
fn jobs_are_shown_and_controlled_from_outside() {
    let bench = Bench::new();
    let (one, other) = (bench.daemon(), bench.daemon());
    bench.until_registered();

    let list = bench.json(&["list"]);
    assert_eq!(list["group"], "g");
    let names: Vec<&str> =
        list["jobs"].as_array().expect("jobs").iter().filter_map(|job| job["name"].as_str()).collect();
    assert_eq!(names, ["beat", "flaky", "long", "nightly-report", "shared", "slow"]);
    let shown =
        bench.jobs(&["list"]).expect(0).tells(&["NAME", "SCHEDULE", "beat", "nightly-report", "0 3 * * *"]);
    assert_eq!(shown.stdout.lines().count(), 7, "a head and a line a job: {}", shown.stdout);

    // While a job is paused, its ticks are skipped, and the history shows the skipped ticks. Once the job is
    // resumed, its ticks run again.
    bench.until_lines("beats", 2);
    bench.accepted(&["pause", "beat"]);
    let job = bench.json(&["show", "beat"]);
    assert!(job["paused"]["by"].as_str().is_some_and(|by| by.contains('@')), "{job}");
    assert!(job["next"].is_null(), "a paused job has no next tick: {job}");
    bench.jobs(&["list"]).expect(0).tells(&["paused"]);
    let paused = bench.lines("beats");
    // Two ticks would be due in this time.
    let begun = now();
    until("a second and more", PATIENCE, || {
        (begun.until(now()) >= Duration::from_millis(1_200)).then_some(())
    });
    assert_eq!(bench.lines("beats"), paused);
    bench.accepted(&["resume", "beat"]);
    bench.until_lines("beats", paused + 2);
    let history = bench.json(&["history", "beat"]);
    let ends = history["history"].as_array().expect("a list");
    let skipped =
        ends.iter().find(|end| end["outcome"] == "skipped-paused").unwrap_or_else(|| panic!("{history}"));
    assert!(skipped["until"].is_string(), "two at least in one entry: {skipped}");
    assert!(skipped["reason"].as_str().is_some_and(|why| why.contains("paused by")), "{skipped}");
    let resumed = bench.json(&["show", "beat"]);
    assert!(resumed["paused"].is_null() && resumed["next"].is_string(), "{resumed}");

    // A triggered run starts at once, with the environment of any run. The history has its output.
    let request = bench.accepted(&["trigger", "nightly-report"]);
    let end = bench.end_of("nightly-report", &request);
    assert_eq!((&end["outcome"], &end["cause"]), (&"done".into(), &"triggered".into()), "{end}");
    assert_eq!(end["output"], "written\n", "{end}");
    let report = bench.program.read("reports");
    let words: Vec<&str> = report.trim().split(' ').collect();
    assert_eq!(words[1..3], ["triggered", "1"], "{report}");
    assert!(
        words[3].parse::<u64>().is_ok() && words[4].starts_with("20"),
        "a token and a deadline: {report}"
    );
    assert_eq!(request["id"], words[5], "the id of the request: {report}");

    // A back-fill runs the ticks of a span, oldest first.
    let span = ["--from", "2026-11-01T03:00:00Z", "--until", "2026-11-04T03:00:00Z"];
    let request = bench.accepted(&[&["backfill", "nightly-report"], &span[..]].concat());
    assert_eq!(request["count"], 3, "the end is excluded: {request}");
    bench.until_lines("reports", 4);
    let reports = bench.program.read("reports");
    let ticks: Vec<&str> = reports.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(ticks, ["2026-11-01T03:00:00Z", "2026-11-02T03:00:00Z", "2026-11-03T03:00:00Z"]);

    // An active run is shown, and then cancelled.
    let request = bench.accepted(&["trigger", "long"]);
    bench.until_lines("long", 1);
    let running = bench.json(&["show", "long"])["running"].clone();
    assert_eq!(running[0]["request"], request["id"], "{running}");
    assert_eq!(running[0]["orphaned"], false);
    bench.jobs(&["list"]).expect(0).tells(&["running"]);
    let answer = bench.accepted(&["cancel", "long"]);
    assert_eq!(answer["count"], 1, "{answer}");
    let end = bench.end_of("long", &request);
    assert_eq!(end["outcome"], "cancelled", "{end}");

    // Failed attempts are repeated. An exit code that the job lists counts as success.
    let request = bench.accepted(&["trigger", "flaky"]);
    let end = bench.end_of("flaky", &request);
    assert_eq!((&end["outcome"], &end["attempts"]), (&"done".into(), &3.into()), "{end}");
    assert_eq!(bench.program.read("flaky"), "1\n2\n3\n");
    assert_eq!(end["output"], "attempt 3\n", "of the last attempt: {end}");

    // A timeout is recorded as the outcome. Before that, the command has its grace period in which to end.
    let request = bench.accepted(&["trigger", "slow"]);
    let end = bench.end_of("slow", &request);
    assert_eq!(end["outcome"], "timed-out", "{end}");
    assert_eq!(bench.program.read("slow"), "stopped\n");

    // A job that is placed on any worker is shown too.
    let shared = until("a run of the shared job", PATIENCE, || {
        let job = bench.json(&["show", "shared"]);
        (job["running"].as_array()?.len() == 1).then_some(job)
    });
    assert_eq!(
        (&shared["placement"], &shared["running"][0]["orphaned"]),
        (&"any-worker".into(), &false.into()),
        "{shared}"
    );
    let request = bench.accepted(&["trigger", "shared"]);
    let end = bench.end_of("shared", &request);
    assert_eq!(
        (&end["outcome"], &end["cause"]),
        (&"done".into(), &"triggered".into()),
        "it takes its turn: {end}"
    );
    until("outcomes of the shared job", PATIENCE, || {
        let history = bench.json(&["history", "shared"]);
        (history["history"].as_array()?.iter().filter(|end| end["outcome"] == "done").count() >= 2)
            .then_some(())
    });

    for daemon in [one, other] {
        daemon.signal(Signal::TERM);
        daemon.wait(PATIENCE).expect(0);
    }
}

#[test]
fn failed_requests_report_the_reason_and_an_exit_status() {
    let bench = Bench::new();
    let daemon = bench.daemon();
    bench.until_registered();
    for args in
        [&["show", "nightly-reprot"][..], &["trigger", "nightly-reprot"], &["history", "nightly-reprot"]]
    {
        bench
            .jobs(args)
            .expect(1)
            .says(&["no job is called \"nightly-reprot\"", "did you mean \"nightly-report\"?"]);
    }
    let answer = bench.jobs(&["cancel", "long"]).expect(1);
    assert!(answer.stderr.contains("the leader refuses"), "nothing runs: {answer:?}");
    let json = bench.json(&["cancel", "long"]);
    assert_eq!(json["accepted"], false);
    assert!(json["error"].as_str().is_some_and(|error| error.contains("refuses")), "{json}");
    let span = ["--from", "2026-11-04T00:00:00Z", "--until", "2026-11-01T00:00:00Z"];
    bench.jobs(&[&["backfill", "beat"], &span[..]].concat()).expect(78).says(&["--until", "--from"]);
    bench
        .jobs(&["backfill", "beat", "--from", "yesterday", "--until", "2026-11-01T00:00:00Z"])
        .expect(2)
        .says(&["yesterday", "2026-11-21T03:00:00Z"]);
    bench.jobs(&["list", "--group", "a{b"]).expect(78).says(&["--group", "brace"]);
    let empty = bench.jobs(&["list", "--group", "other"]).expect(0).tells(&["other: no jobs"]);
    assert!(empty.stderr.is_empty(), "{empty:?}");

    // Without a leader, the request is posted. The next leader carries it out once, if it has not expired.
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
    let answer = bench.jobs(&["trigger", "nightly-report", "--wait", "1s"]).expect(75);
    answer.says(&["is posted and not answered: there is no leader", "a leader may accept it until"]);
    let daemon = bench.daemon();
    bench.until_lines("reports", 1);
    let request = bench.accepted(&["trigger", "nightly-report"]);
    bench.end_of("nightly-report", &request);
    assert_eq!(bench.lines("reports"), 2, "{}", bench.program.read("reports"));
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);

    // None of these nodes exists.
    let nowhere = ["--nodes", "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3"];
    bench
        .program
        .run([&["jobs", "list", "--group", "g"][..], &nowhere].concat())
        .expect(69)
        .says(&["127.0.0.1:1"]);
    bench.program.run([&["jobs", "pause", "beat", "--group", "g"][..], &nowhere].concat()).expect(69);
    let empty = bench.program.write("elsewhere.toml", "");
    let args = [&["jobs", "list", "--config", &empty][..], &nowhere].concat();
    bench.program.run(args).expect(78).says(&["no group", "--group"]);
}

#[test]
fn next_is_computed_from_the_file_without_nodes_and_else_from_the_ledger() {
    let bench = Bench::new();
    let lonely = bench.program.write("lonely.toml", &format!("group = \"g\"\n{JOBS}"));
    let from = ["--count", "2", "--from", "2026-11-21T00:00:00Z"];
    let args = [&["jobs", "next", "nightly-report", "--config", &lonely][..], &from].concat();
    bench.program.run(&args).expect(0).tells(&["2026-11-21T03:00:00Z", "2026-11-22T03:00:00Z"]);
    let answer: Value =
        serde_json::from_str(&bench.program.run([&args[..], &["--json"]].concat()).expect(0).stdout)
            .expect("JSON");
    assert_eq!(answer["next"].as_array().map(Vec::len), Some(2));
    assert_eq!(answer["next"][0]["tick"], "2026-11-21T03:00:00Z");
    assert_eq!(answer["source"], lonely.as_str());

    // The configuration file of this command does not contain the job. The ledger contains the job once a
    // leader has registered it.
    let daemon = bench.daemon();
    bench.until_registered();
    let empty = bench.program.write("elsewhere.toml", "group = \"g\"\n");
    let elsewhere = ["jobs", "next", "nightly-report", "--config", &empty, "--nodes"];
    let list = bench.nodes.list();
    let answer = bench.program.run([&elsewhere[..], &[&list], &from].concat()).expect(0);
    answer.tells(&["the ledger of group g", "2026-11-21T03:00:00Z", "2026-11-22T03:00:00Z"]);
    let wrong = ["jobs", "next", "nightly", "--config", &empty, "--nodes"];
    bench.program.run([&wrong[..], &[&list]].concat()).expect(1).says(&["no job is called \"nightly\""]);
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}
