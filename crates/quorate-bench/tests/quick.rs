//! Runs every scenario in the quick mode, whose figures mean nothing. Also checks one figure that varies
//! little from run to run: the CPU time of the servers.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use quorate_testkit::cannot_run;
use std::{
    fs,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The usual ratio of two CPU times of the servers: for one cycle of Quorate, and for one cycle of the rival
/// *bare* (`SET NX PX` and a compare-and-delete script) in the same rounds. It was measured with 64 tasks and
/// one thread, in the build of the tests. A ratio depends less on the machine than a time does.
const SERVERS_CPU: f64 = 1.3;
/// The test fails if the ratio has grown from [`SERVERS_CPU`] by more than this factor.
const GROWTH_MAX: f64 = 1.3;

/// Returns a guard that only one test can have at a time. So only one test measures at a time.
fn alone() -> MutexGuard<'static, ()> {
    static MEASURES: Mutex<()> = Mutex::new(());
    MEASURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the program with `--json`, and returns its report.
fn report(args: &[&str]) -> serde_json::Value {
    let mut program = Command::new(env!("CARGO_BIN_EXE_quorate-bench"));
    let out = program.args(args).arg("--json").output().expect("the program starts");
    let errors = String::from_utf8_lossy(&out.stderr);
    // Without `--quick` the program fails if a goal is not reached.
    assert!(out.status.success() || !args.contains(&"--quick"), "{errors}");
    serde_json::from_slice(&out.stdout).expect(&errors)
}

fn figure(report: &serde_json::Value, rival: &str, figure: &str) -> f64 {
    let rows = report["sections"][0]["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["rival"] == rival && row["figure"] == figure).expect(figure);
    row["value"].as_f64().expect("a number")
}

#[test]
fn a_cycle_costs_the_servers_no_more_than_it_did() {
    let _alone = alone();
    let mut ratios = Vec::new();
    // Other work on the machine makes batches smaller, and so makes a cycle more expensive. So one good run is
    // enough.
    for _ in 0..5 {
        let report = report(&["--only", "cycles-64", "--rounds", "5", "--round-seconds", "0.2"]);
        let [ours, bare] =
            ["quorate", "bare"].map(|rival| figure(&report, rival, "five servers' CPU a cycle, 1 thread"));
        ratios.push(ours / bare);
        if ours / bare <= SERVERS_CPU * GROWTH_MAX {
            println!("the servers' CPU: {ratios:.2?} times that of the bare commands");
            return;
        }
    }
    panic!("{ratios:.2?} times the servers' CPU of the bare commands, where {SERVERS_CPU} is usual");
}

#[test]
fn a_run_is_compared_with_an_earlier_one_and_drawn() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let [earlier, plot] = ["earlier.json", "plot.svg"].map(|name| folder.path().join(name));
    let tasks = ["--quick", "--only", "tasks"];
    fs::write(&earlier, report(&tasks).to_string()).expect("the file");
    let mut program = Command::new(env!("CARGO_BIN_EXE_quorate-bench"));
    let out = program.args(tasks).arg("--compare").arg(&earlier).arg("--plot").arg(&plot).output();
    let out = out.expect("the program starts");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("cycles, 1 task") && text.contains("noise"), "{text}");
    let svg = fs::read_to_string(&plot).expect("a plot");
    for part in ["<svg", "quorate", "rslock", "tasks", "<polyline"] {
        assert!(svg.contains(part), "no {part} in {svg}");
    }
    fs::write(&earlier, "{").expect("the file");
    let mut program = Command::new(env!("CARGO_BIN_EXE_quorate-bench"));
    let out = program.args(tasks).arg("--compare").arg(&earlier).output().expect("the program starts");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && errors.contains("earlier.json"), "{errors}");
}

#[test]
fn every_scenario_runs_and_measures_something() {
    let _alone = alone();
    let report = report(&["--quick"]);
    let sections = report["sections"].as_array().expect("sections");
    let names: Vec<_> = sections.iter().filter_map(|section| section["scenario"].as_str()).collect();
    assert_eq!(
        names,
        [
            "cycles-64",
            "cycles-1",
            "durable",
            "tasks",
            "others",
            "sidecar",
            "stopped",
            "handover",
            "contention",
            "leader",
            "many",
            "ledger",
            "claims",
            "messages",
            "ticks",
            "rates",
            "jobs",
            "stored",
            "idle",
            "shards",
            "regions",
            "loss"
        ]
    );
    for section in sections {
        // The clients in other languages may be missing on a developer's machine.
        if let Some(why) = section["skipped"].as_str().filter(|_| section["scenario"] == "others") {
            cannot_run("the clients in other languages, in the benchmark", why);
            continue;
        }
        let rows = section["rows"].as_array().expect("rows");
        assert!(!rows.is_empty() && section["skipped"].is_null(), "{section}");
    }
    let value = |scenario: &str, figure: &str| {
        let section = sections.iter().find(|section| section["scenario"] == scenario).expect(scenario);
        let rows = section["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["figure"] == figure).expect(figure);
        row["value"].as_f64().expect("a number")
    };
    assert!(value("cycles-64", "cycles, 1 thread") > 0.0);
    assert_eq!((value("many", "leases held"), value("many", "leases lost")), (500.0, 0.0));
    assert_eq!(value("ledger", "records that each node returned"), 1_200.0);
    assert!(value("claims", "batches against one by one") > 1.0, "also in this short run");
    assert!(value("ticks", "100 ticks/s: runs ended and recorded") > 10.0);
    assert!(value("messages", "three workers, batches of 256") > 0.0);
    assert!(value("regions", "3 nodes, 50 ms to each: acquire p50") >= 50.0, "a majority is 50 ms away");
    assert_eq!(value("loss", "signalled after validity ended"), 0.0, "this must hold on a slow machine too");
}

#[test]
fn unknown_arguments_are_refused_by_name() {
    for (args, word) in [(&["--only", "speed"][..], "cycles-64"), (&["--rounds", "0"], "--rounds is 0")] {
        let out = Command::new(env!("CARGO_BIN_EXE_quorate-bench")).args(args).output().expect("it starts");
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && errors.contains(word), "{errors}");
    }
}
