//! Tests of `quorate jobs why`: a daemon runs jobs on real Redis servers, and another process asks why a job
//! did or did not run.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::env::WallTime;
use quorate_tests::support::{Http, JobBench, PATIENCE, now, until};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

const JOBS: &str = r#"
[[job]]
name = "beat"
every = "500ms"
misfire = { rule = "skip" }
history = 1000
command = ["true"]

[[job]]
name = "broken"
every = "500ms"
shell = "echo no disk >&2; exit 3"

[[job]]
name = "slow"
every = "500ms"
overlap = "skip"
shell = "sleep 2"

[[job]]
name = "yearly"
schedule = "0 0 1 1 *"
command = ["true"]
"#;

/// A [`JobBench`] with the helpers that the tests of this file need.
struct Bench(JobBench);

impl Deref for Bench {
    type Target = JobBench;
    fn deref(&self) -> &JobBench {
        &self.0
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut JobBench {
        &mut self.0
    }
}

impl Bench {
    fn new() -> Self {
        Self(JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), JOBS))
    }

    /// Returns the answer, and checks the exit status.
    #[track_caller]
    fn why(&self, args: &[&str], code: i32) -> Value {
        let ended = self.jobs(&[&["why"], args, &["--json"]].concat()).expect(code);
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    /// Asks until the answer has this reason, and returns the answer.
    #[track_caller]
    fn until_why(&self, args: &[&str], reason: &str) -> Value {
        until(&format!("{reason} of {args:?}"), PATIENCE, || {
            let ended = self.jobs(&[&["why"], args, &["--json"]].concat());
            let answer: Value = serde_json::from_str(&ended.stdout).ok()?;
            (answer["reason"] == reason).then_some(answer)
        })
    }

    /// Returns the first tick of the job's history with this outcome.
    #[track_caller]
    fn tick_with(&self, job: &str, outcome: &str) -> String {
        until(&format!("{outcome} of {job}"), PATIENCE, || {
            let ended = self.jobs(&["history", job, "--json"]);
            let page: Value = serde_json::from_str(&ended.stdout).ok()?;
            let history = page["history"].as_array()?;
            let found = history.iter().find(|end| end["outcome"] == outcome)?;
            found["tick"].as_str().map(str::to_owned)
        })
    }
}

/// Returns the latest tick of the jobs with a period of half a second.
fn tick_now() -> String {
    let period = 500_000;
    WallTime::from_micros(now().as_micros() / period * period).to_string()
}

fn has(answer: &Value, field: &str, part: &str) -> bool {
    answer[field].to_string().contains(part)
}

#[test]
fn each_reason_is_given_with_its_evidence() {
    let mut bench = Bench::new();

    let unknown = bench.why(&["beat"], 1);
    assert_eq!(unknown["reason"], "not-registered", "no leader has registered a job yet");
    assert!(
        has(&unknown, "evidence", "has no jobs") && has(&unknown, "evidence", "no worker leads"),
        "{unknown}"
    );
    let daemon = bench.daemon();

    // Checks the answer for a tick that ran.
    let tick = bench.tick_with("beat", "done");
    let ran = bench.why(&["beat", "--at", &tick], 0);
    assert_eq!(
        (&ran["reason"], &ran["tick"], &ran["entry"]["outcome"]),
        (&"ran".into(), &tick.as_str().into(), &"done".into())
    );
    assert_eq!(ran["action"], "nothing");
    let tick = bench.tick_with("broken", "failed");
    let failed = bench.why(&["broken", "--at", &tick], 0);
    assert_eq!((&failed["reason"], &failed["entry"]["outcome"]), (&"ran".into(), &"failed".into()));
    assert!(has(&failed, "text", "3") && has(&failed, "action", "jobs history broken"), "{failed}");
    bench.jobs(&["why", "broken", "--at", &tick]).expect(0).tells(&[
        &format!("broken: ran: the scheduled run of {tick} failed after "),
        ": exit status 3\n",
        "  evidence  ",
        "  to do ",
    ]);

    // Checks the answers for a tick that an overlap skipped, for a running job, and for a time that is no
    // tick.
    let tick = bench.tick_with("slow", "skipped-overlap");
    assert_eq!(bench.why(&["slow", "--at", &tick], 0)["reason"], "overlap");
    let running = bench.until_why(&["slow"], "running");
    assert!(has(&running, "action", "jobs cancel slow"), "{running}");
    let schedule = bench.why(&["yearly"], 0);
    assert_eq!(schedule["reason"], "schedule");
    assert!(
        has(&schedule, "next", "-01-01T00:00:00Z") && has(&schedule, "evidence", "0 0 1 1 *"),
        "{schedule}"
    );
    assert_eq!(bench.why(&["yearly", "--at", "2026-03-01T00:00:00Z"], 0)["reason"], "schedule");
    let before = bench.why(&["yearly", "--at", "2026-01-01T00:00:00Z"], 1);
    assert!(has(&before, "text", "count from"), "{before}");
    assert!(has(&before, "action", "backfill yearly --from 2026-01-01T00:00:00Z"), "{before}");

    // Checks the answer for a job that is not registered. It must contain the most similar name.
    let unknown = bench.why(&["beta"], 1);
    assert_eq!(unknown["reason"], "not-registered");
    assert!(has(&unknown, "evidence", "a similar name is \\\"beat\\\""), "{unknown}");

    // Checks the answers for a job that is paused now, and for a tick that was due during a pause.
    bench.jobs(&["pause", "beat"]).expect(0);
    let skipped = tick_now();
    until("tick of the pause", PATIENCE, || (tick_now() > skipped).then_some(()));
    let during = tick_now();
    let paused = bench.why(&["beat"], 0);
    assert_eq!((&paused["reason"], &paused["next"]), (&"paused".into(), &Value::Null));
    assert!(has(&paused, "action", "jobs resume beat"), "{paused}");
    assert_eq!(bench.why(&["beat", "--at", &during], 0)["reason"], "paused");
    bench.jobs(&["resume", "beat"]).expect(0);
    let then = bench.until_why(&["beat", "--at", &during], "paused");
    until("entry of the pause", PATIENCE, || {
        (bench.why(&["beat", "--at", &during], 0)["entry"]["outcome"] == "skipped-paused").then_some(())
    });
    assert_eq!(then["tick"], during.as_str());

    // Checks a pause that has an end and a reason.
    let until_at = WallTime::from_micros(now().as_micros() / 1_000_000 * 1_000_000) + Duration::from_secs(3);
    let end = until_at.to_string();
    let past = bench.jobs(&["pause", "beat", "--until", "2026-01-01T00:00:00Z"]).expect(78);
    assert!(past.stderr.contains("would have ended already"), "{past}");
    bench.jobs(&["pause", "beat", "--until", &end, "--reason", "disk\u{1b}[2J full"]).expect(0);
    let paused = bench.why(&["beat"], 0);
    assert_eq!((&paused["reason"], &paused["next"]), (&"paused".into(), &end.as_str().into()));
    assert!(
        has(&paused, "text", &format!("until {}", end.split('T').next().unwrap_or_default())),
        "{paused}"
    );
    let listed = bench.jobs(&["list", "--json"]).expect(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let page =
        listed["jobs"].as_array().expect("jobs").iter().find(|job| job["name"] == "beat").expect("beat");
    assert_eq!(page["paused"]["until"], end.as_str());
    assert_eq!(page["paused"]["reason"], "disk [2J full");
    bench.jobs(&["list"]).expect(0).tells(&[&format!("paused until {end} (disk [2J full)")]);
    bench.jobs(&["show", "beat"]).expect(0).tells(&[&format!(" until {end}: disk [2J full")]);
    // A daemon that leads later ends the pause, and the tick at its end runs.
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
    let daemon = bench.daemon();
    let ran = bench.until_why(&["beat", "--at", &end], "ran");
    assert_eq!(ran["entry"]["outcome"], "done", "{ran}");
    let before = (until_at - Duration::from_millis(500)).to_string();
    let skipped = bench.why(&["beat", "--at", &before], 0);
    assert_eq!(
        (&skipped["reason"], &skipped["entry"]["outcome"]),
        (&"paused".into(), &"skipped-paused".into())
    );
    assert!(has(&skipped, "text", "disk [2J full"), "{skipped}");

    // The audit list must contain who sent each request, when, and why.
    let audit = bench.program.run(["audit", "--json", "--config", &bench.config]).expect(0);
    let audit: Value = serde_json::from_str(&audit.stdout).expect("JSON");
    let requests = audit["requests"].as_array().expect("requests");
    let actions = requests.iter().filter_map(|request| request["action"].as_str());
    // The nodes were trusted before, perhaps in several attempts.
    let actions: Vec<&str> = actions.filter(|action| *action != "nodes-trust").collect();
    assert_eq!(actions, ["pause", "resume", "pause"], "the newest first: {audit}");
    assert_eq!(
        (&requests[0]["reason"], &requests[0]["until"]),
        (&"disk [2J full".into(), &end.as_str().into())
    );
    assert_eq!((&requests[0]["job"], &requests[0]["accepted"]), (&"beat".into(), &true.into()));
    assert!(requests[0]["by"].as_str().is_some_and(|by| by.contains('@')), "{audit}");
    let text = bench.program.run(["audit", "--limit", "1", "--config", &bench.config]).expect(0);
    text.tells(&[&format!("pause until {end} (disk [2J full)"), "ANSWER"]);

    // Checks the answers without a leader, for now and for a tick that was due in this time.
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
    let missed = tick_now();
    until("tick without a leader", PATIENCE, || (tick_now() > missed).then_some(()));
    let missed = tick_now();
    let leaderless = bench.until_why(&["beat"], "no-leader");
    assert!(has(&leaderless, "evidence", "3 of 3 nodes vote"), "{leaderless}");
    until("tick after it", PATIENCE, || (tick_now() > missed).then_some(()));
    let daemon = bench.daemon();
    let misfire = bench.until_why(&["beat", "--at", &missed], "misfire");
    assert!(has(&misfire, "evidence", "the misfire rule is `skip`"), "{misfire}");

    // Checks the answer without a quorum.
    for node in 0..2 {
        bench.nodes[node].kill();
    }
    let cut_off = bench.why(&["beat"], 69);
    assert_eq!(cut_off["reason"], "no-quorum");
    assert!(has(&cut_off, "text", "1 of 3 answered, 2 required"), "{cut_off}");
    assert!(has(&cut_off, "evidence", &bench.nodes.name(0)), "{cut_off}");
    drop(daemon);
}

#[test]
fn times_are_those_of_the_jobs_zone_and_may_be_named_as_a_person_does() {
    let bench = JobBench::new(
        env!("CARGO_BIN_EXE_quorate-under-test"),
        r#"
http = { listen = "127.0.0.1:0" }
[[job]]
name = "tokyo"
schedule = "* * * * * *"
zone = "Asia/Tokyo"
keep_output = "100 B"
shell = "echo hello"

[[job]]
name = "long"
every = "1s"
overlap = "skip"
command = ["sleep", "600"]
"#,
    );
    let daemon = bench.daemon();
    let local = until("a run", PATIENCE, || {
        let page = bench.jobs(&["history", "tokyo"]).stdout;
        let tick = page.lines().nth(1)?.split_whitespace().next()?;
        tick.ends_with("+09:00").then(|| tick.to_owned())
    });
    // Tables and texts have the offset of the zone.
    for args in [&["history", "tokyo"][..], &["list"], &["show", "tokyo"], &["why", "tokyo"]] {
        let ended = bench.jobs(args).expect(0);
        assert!(ended.stdout.contains("+09:00"), "{ended}");
        let utc = bench.jobs(&[args, &["--utc"]].concat()).expect(0);
        assert!(!utc.stdout.contains("+09:00") && utc.stdout.contains('Z'), "{utc}");
    }
    assert_eq!(bench.json(&["show", "tokyo"])["zone"], "Asia/Tokyo");
    // A moment without an offset is in the zone of the job.
    let last = bench.json(&["why", "tokyo", "--at", &local])["tick"].as_str().expect("a tick").to_owned();
    assert!(last.ends_with('Z'), "JSON is in UTC: {last}");
    let (day, clock) = (&local[..10], &local[11..19]);
    for at in [&*local, &last, &format!("{day}T{clock}"), &format!("{day} {clock}"), clock] {
        let why = bench.json(&["why", "tokyo", "--at", at]);
        assert_eq!((&why["reason"], &why["tick"]), (&"ran".into(), &last.as_str().into()), "{at}: {why}");
        let logs = bench.jobs(&["logs", "tokyo", "--at", at]).expect(0);
        assert_eq!(logs.stdout, "hello\n", "{at}: {logs}");
    }
    let of_day = bench.json(&["why", "tokyo", "--at", day]);
    assert!(of_day["tick"].as_str().is_some_and(|tick| *tick >= *last), "the last tick of the day: {of_day}");
    // The page has the same rule: it answers about the last tick of the day, not about its begin.
    let page = format!("/job?name=tokyo&at={day}");
    until("the answer of the page", PATIENCE, || {
        Http::of(&daemon).get(&page).body.contains("the scheduled run of").then_some(())
    });
    let wrong = bench.jobs(&["why", "tokyo", "--at", "noon"]).expect(2);
    assert!(wrong.stderr.contains("a time of day (03:00)"), "{wrong}");
    // The active run may be named by its day, and a moment without an active run is refused with those that are.
    let running = until("the long run", PATIENCE, || {
        bench.json(&["show", "long"])["running"][0]["tick"].as_str().map(str::to_owned)
    });
    let none = bench.jobs(&["cancel", "long", "--at", "2020-01-01"]).expect(1);
    assert!(none.stderr.contains(&format!("active runs: {running}")), "{none}");
    bench.jobs(&["cancel", "long", "--at", &running[..10]]).expect(0);
}
