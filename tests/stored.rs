//! Tests of jobs that are stored on the nodes, with `quorate jobs put|edit|remove|at`, on real Redis servers.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::scheduler::Zone;
use quorate_tests::support::{JobBench, PATIENCE, now, until};
use serde_json::{Value, json};
use std::time::Duration;

/// The command notes its payload and its arguments.
const COMMANDS: &str =
    "[commands]\nnote = [\"sh\", \"-c\", \"echo \\\"$# $QUORATE_JOB $(cat)\\\" >> notes\", \"own\"]\n";

fn bench(rest: &str) -> JobBench {
    JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), rest)
}

#[track_caller]
fn accepted(bench: &JobBench, args: &[&str]) -> Value {
    let answer = bench.json(args);
    assert_eq!(answer["accepted"], true, "{args:?}: {answer}");
    answer
}

#[track_caller]
fn until_noted(bench: &JobBench, line: &str) {
    until(line, PATIENCE, || bench.program.read("notes").lines().any(|noted| noted == line).then_some(()));
}

#[test]
fn a_stored_job_runs_an_allowed_command_with_its_payload_on_standard_input() {
    let bench = bench(&format!("labels = [\"eu\"]\n{COMMANDS}"));
    let _one = bench.daemon();
    let payload = "$(touch injected); `touch injected`\\\"; touch injected";
    let file = format!("name = \"beat\"\nevery = \"500ms\"\nhandler = \"note\"\npayload = '{payload}'\n");
    accepted(&bench, &["put", &bench.program.write("beat.toml", &file)]);
    until_noted(&bench, &format!("0 beat {payload}"));
    accepted(&bench, &["trigger", "beat", "--payload", "asked"]);
    until_noted(&bench, "0 beat asked");
    assert!(!bench.program.dir().join("injected").exists(), "no shell reads the payload");

    let shown = bench.json(&["show", "beat"]);
    assert_eq!((&shown["stored"]["handler"], &shown["waits_for"]), (&"note".into(), &Value::Null), "{shown}");
    let worker = &bench.json(&["list"])["workers"][0];
    assert_eq!((&worker["labels"], &worker["handlers"]), (&json!(["eu"]), &json!(["note"])), "{worker}");
    let list = bench.jobs(&["list"]).stdout;
    assert!(list.lines().any(|line| line.split_whitespace().eq(["WORKER", "LABELS", "HANDLERS"])), "{list}");
    accepted(&bench, &["remove", "beat"]);
    let gone = bench.jobs(&["show", "beat"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");

    let audit = bench.program.run(["audit", "--config", &bench.config, "--json"]);
    let audit: Value = serde_json::from_str(&audit.stdout).expect("JSON");
    let done: Vec<&str> = audit["requests"].as_array().map_or_else(Vec::new, |entries| {
        entries.iter().filter_map(|entry| entry["action"].as_str()).collect()
    });
    assert_eq!(done[..3], ["remove", "trigger", "put"], "{audit}");
    assert!(!audit.to_string().contains("injected"), "the audit list has no payloads");
}

#[test]
fn a_single_run_runs_once_and_its_job_is_removed() {
    let bench = bench(COMMANDS);
    let _one = bench.daemon();
    let soon = Zone::UTC.rfc3339(now() + Duration::from_secs(2));
    accepted(&bench, &["at", &soon, "once", "--handler", "note", "--payload", "only"]);
    until_noted(&bench, "0 once only");
    until("removal", PATIENCE, || {
        let list = bench.json(&["list"]);
        list["jobs"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
    assert_eq!(bench.program.read("notes").lines().count(), 1);
    assert_eq!(bench.json(&["history", "once"])["history"][0]["outcome"], "done");
    let past = bench.jobs(&["at", "2020-01-01T00:00:00Z", "late", "--handler", "note"]);
    assert_eq!(past.code, Some(1), "{past:?}");
    assert!(past.stderr.contains("which is past; give a later time"), "{past:?}");
}

#[test]
fn a_job_whose_handler_no_worker_has_waits_and_is_named() {
    let bench = bench("[[job]]\nname = \"own\"\nevery = \"1s\"\ncommand = [\"true\"]\n");
    let _one = bench.daemon();
    let file = bench.program.write("beat.toml", "name = \"beat\"\nevery = \"1s\"\nhandler = \"missing\"\n");
    accepted(&bench, &["put", &file]);
    let why = until("its reason", PATIENCE, || {
        let why = bench.json(&["why", "beat"]);
        (why["reason"] == "no-worker").then_some(why)
    });
    assert!(why["text"].as_str().is_some_and(|text| text.contains("has its handler \"missing\"")), "{why}");
    let list = bench.jobs(&["list"]);
    assert!(list.stdout.contains("no worker, idle"), "{list:?}");
    let doctor = bench.program.run(["doctor", "--config", &bench.config]);
    assert!(
        doctor.stdout.contains("the job \"beat\" does not run: no live worker has its handler"),
        "{doctor:?}"
    );
    // A name has one place.
    let own = bench.program.write("own.toml", "name = \"own\"\nevery = \"1s\"\nhandler = \"note\"\n");
    let refused = bench.jobs(&["put", &own]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("in the configuration or the program of the leader"), "{refused:?}");
}

#[test]
fn an_edit_is_refused_if_another_has_changed_the_job_meanwhile() {
    let bench = bench(COMMANDS);
    let _one = bench.daemon();
    let job = |period: &str| format!("name = \"beat\"\nevery = \"{period}\"\nhandler = \"note\"\n");
    accepted(&bench, &["put", "--new", &bench.program.write("beat.toml", &job("1h"))]);
    let again = bench.jobs(&["put", "--new", &bench.program.file("beat.toml").display().to_string()]);
    assert!(again.stderr.contains("is stored on the nodes already"), "{again:?}");
    let edit = |editor: &str| {
        let mut command = bench.program.command(["jobs", "edit", "beat", "--config", &bench.config]);
        command.env_remove("VISUAL").env("EDITOR", editor).env("TMPDIR", bench.program.dir());
        bench.program.start_command(command).wait(PATIENCE)
    };
    let changed = edit("sed -i s/1h/2h/");
    assert_eq!(changed.code, Some(0), "{changed:?}");
    assert_eq!(bench.json(&["show", "beat"])["schedule"], "every 7200s");
    // The editor itself lets another change the job first.
    bench.program.write("other.toml", &job("3h"));
    let program = env!("CARGO_BIN_EXE_quorate-under-test");
    let other = format!("{program} jobs put other.toml --config {} && sed -i s/2h/4h/", bench.config);
    let refused = edit(&other);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("was changed meanwhile, by"), "{refused:?}");
    assert!(refused.stderr.contains("your text is kept in"), "{refused:?}");
    assert_eq!(bench.json(&["show", "beat"])["schedule"], "every 10800s");
    let wrong = edit("sed -i s/every/evry/");
    assert!(wrong.stderr.contains("unknown key \"evry\"; did you mean every?"), "{wrong:?}");
    let failed = edit("false");
    assert!(failed.stderr.contains("nothing was stored"), "{failed:?}");
}
