//! Tests that run each plan of `workloads/main.rs` for a short time. By hand, the program `workload` can run a
//! plan for any time.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use quorate_testkit::{cannot_run, machines::can_isolate};
use serde_json::Value;
use std::{
    process::Command,
    sync::{Mutex, PoisonError},
};

/// A lock that lets only one plan run at a time. Each plan measures times, which another plan would change.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a plan, and returns its report. Fails if the plan finds a violation.
#[track_caller]
fn run(args: &[&str]) -> Value {
    run_to(0, args)
}

/// Runs a plan, and returns its report. Fails if the plan ends with another status.
#[track_caller]
fn run_to(status: i32, args: &[&str]) -> Value {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
    let output = command.args(args).arg("--json").output().expect("it starts");
    let (page, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{page}\n{errors}");
    println!("{page}");
    serde_json::from_str(&page).expect("one JSON object")
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Checks that the linearizability checker judged at least `least` operations, and could judge all of them.
#[track_caller]
fn histories_were_judged(page: &Value, least: u64) {
    let found = &page["linearizability"];
    assert!(number(&found["operations"]) >= least, "{page}");
    assert_eq!(found["undecided"].as_array().map(Vec::len), Some(0), "{page}");
}

/// Runs the soak test with a seed that reaches two situations within 8 s: holders are stopped while all servers
/// lose their data, and the leader is killed during a run.
#[test]
fn everything_at_once_under_faults_breaks_no_guarantee() {
    let page = run(&["soak", "--for", "20s", "--seed", "192"]);
    assert!(number(&page["locks"]) >= 5 && number(&page["terms"]) >= 2, "{page}");
    assert!(number(&page["messages_done"]) >= 30, "{page}");
    for job in ["at-most-once", "at-least-once"] {
        assert!(number(&page["ticks"][job]["done"]) >= 3, "{page}");
    }
    histories_were_judged(&page, 100);
    assert!(page["faults"].as_object().expect("faults by kind").len() >= 3, "{page}");
}

/// Runs the soak test on machines with a network, with a seed that reaches one-way cuts, lost packets, servers that
/// restart, and a replaced server within 25 s.
#[test]
fn on_machines_with_networks_and_clocks_of_their_own_no_guarantee_breaks() {
    if let Err(reason) = can_isolate() {
        cannot_run("on_machines_with_networks_and_clocks_of_their_own_no_guarantee_breaks", &reason);
        return;
    }
    let page = run(&["weather", "--for", "30s", "--seed", "20261126"]);
    assert!(number(&page["locks"]) >= 5 && number(&page["terms"]) >= 2, "{page}");
    assert!(number(&page["fenced_writes"]["accepted"]) >= 20, "{page}");
    assert!(number(&page["messages_done"]) >= 30, "{page}");
    for job in ["at-most-once", "at-least-once"] {
        assert!(number(&page["ticks"][job]["done"]) >= 3, "{page}");
    }
    assert!(page["faults"].as_object().expect("faults by kind").len() >= 6, "{page}");
    assert_eq!(page["faults"]["server replaced"], 1, "{page}");
}

/// Runs the same plan with workers that check their leases without reading the clock, with a seed whose first fault stops
/// the leader during a run for 4.8 s, which is longer than its lease. The stopped leader then still believes in its lease
/// when another one leads.
#[test]
fn the_weather_finds_a_lease_that_is_checked_without_the_clock() {
    let name = "the_weather_finds_a_lease_that_is_checked_without_the_clock";
    if !cfg!(feature = "sabotage") {
        cannot_run(name, "the test was built without the feature `sabotage`");
        return;
    }
    if let Err(reason) = can_isolate() {
        cannot_run(name, &reason);
        return;
    }
    let page = run_to(1, &["weather", "--for", "10s", "--seed", "4787", "--leave-out", "clock-check"]);
    let violations = page["violations"].as_array().expect("violations");
    let of_the_term = |text: &str| text.starts_with("linearizability: weather: election/");
    assert!(violations.iter().any(|violation| violation.as_str().is_some_and(of_the_term)), "{page}");
}

#[test]
fn over_leader_changes_of_each_kind_every_tick_is_accounted_for() {
    let page = run(&["guarantees", "--changes", "8", "--seed", "11"]);
    for kind in ["SIGKILL", "SIGTERM", "SIGSTOP", "cut off"] {
        assert_eq!(page["changes"][kind], 2, "{page}");
    }
    assert!(number(&page["terms"]) > 8, "{page}");
    histories_were_judged(&page, 80);
    for job in ["most-quick", "most-long", "least-quick", "least-long"] {
        let of = |what: &str| number(&page["jobs"][job][what]);
        assert!(of("due") >= 8 && of("done") > 0, "{page}");
        if job.starts_with("least") {
            assert_eq!(of("done"), of("due"), "{page}");
        }
    }
}

#[test]
fn any_worker_runs_are_shared_and_accounted_for_while_workers_are_killed() {
    let page = run(&["any-worker", "--ticks", "400", "--jobs", "20", "--kill-every", "5s"]);
    assert!(number(&page["kills"]) >= 3, "{page}");
    assert!(number(&page["ticks"]) >= 400, "{page}");
    histories_were_judged(&page, 800);
    let shares: Vec<u64> = page["shares"].as_array().expect("workers").iter().map(number).collect();
    assert!(shares.len() == 3 && shares.iter().all(|share| *share > 0), "{page}");
}

/// Checks a limit for builds without optimization on a busy machine. To measure the real lateness, use `cargo
/// run --release`.
#[test]
fn hundreds_of_jobs_a_second_start_soon() {
    let page = run(&["load", "--registered", "600", "--due", "100", "--for", "5s", "--bound", "500ms"]);
    assert!(number(&page["ticks"]) >= 400, "{page}");
}

#[test]
fn updates_are_lost_without_fencing_tokens_and_none_with_them() {
    let page = run(&["lock", "--ttl", "1s", "--pause-every", "2s", "--for", "10s"]);
    let of = |mode: &str| {
        let runs = page["runs"].as_array().expect("runs");
        runs.iter().find(|run| run["mode"] == mode).expect("a run of each mode").clone()
    };
    let (naive, check, fenced) = (of("naive"), of("check"), of("fenced"));
    assert!(number(&naive["lost"]) > 0, "{naive}");
    assert_eq!(number(&check["before_check"]["lost"]), 0, "{check}");
    assert!(number(&check["after_check"]["lost"]) > 0, "a check cannot close the gap: {check}");
    assert_eq!(number(&fenced["lost"]), 0, "{fenced}");
    assert!(number(&fenced["refused"]) > 0, "{fenced}");
    for (run, violations) in [(&naive, 1), (&check, 1), (&fenced, 0)] {
        histories_were_judged(run, 40);
        assert_eq!(run["linearizability"]["violations"], violations, "{run}");
    }
}

#[test]
fn with_the_effects_table_each_message_has_one_effect_and_without_it_some_have_two() {
    let page = run(&["effects", "--messages", "10000"]);
    let runs = page["runs"].as_array().expect("runs");
    assert_eq!((&runs[0]["mode"], &runs[0]["effects"]), (&"with".into(), &10_000.into()));
    assert_eq!(runs[1]["mode"], "without");
    assert!(number(&runs[1]["effects"]) > 10_000, "{page}");
    runs.iter().for_each(|run| histories_were_judged(run, 20_000));
}

#[test]
fn after_each_kind_of_fault_another_candidate_leads_within_the_ttl_or_so() {
    let page = run(&["failover", "--ttl", "1s", "--nodes", "3", "--trials", "4", "--groups", "4"]);
    let rows = page["without_leader_ms"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{page}");
    for row in rows {
        assert!(number(&row["times"]) >= 4, "{row}");
        // The bound is for a busy machine. A resignation needs no TTL.
        let longest = row["max"].as_f64().expect("a duration");
        assert!(longest < 15_000.0 && (row["fault"] == "SIGTERM" || longest > 300.0), "{row}");
    }
}

#[test]
fn a_lease_is_handed_from_contender_to_contender() {
    for mode in ["tasks", "leaders"] {
        let page = run(&["handover", "--mode", mode, "--contenders", "3", "--rounds", "10"]);
        assert_eq!(number(&page["turns"]), 30, "{page}");
        assert!(number(&page["handover_ms"]["times"]) > 0, "{page}");
    }
}
