//! Kept promises, in short: see `promises/main.rs`, which makes two hundred changes.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::process::Command;

fn run(args: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_guarantees"));
    let output = command.args(args).arg("--json").output().expect("it starts");
    let (page, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}\n{errors}");
    println!("{page}");
    serde_json::from_str(&page).expect("one JSON object")
}

#[test]
fn over_changes_of_each_kind_every_tick_is_accounted_for() {
    let page = run(&["changes", "--changes", "8", "--seed", "11"]);
    for kind in ["SIGKILL", "SIGTERM", "SIGSTOP", "cut off"] {
        assert_eq!(page["changes"][kind], 2, "{page}");
    }
    assert!(page["terms"].as_u64().expect("a number") > 8, "{page}");
    for job in ["most-quick", "most-long", "least-quick", "least-long"] {
        let of = |what: &str| page["jobs"][job][what].as_u64().expect("a number");
        assert!(of("due") >= 8 && of("done") > 0, "{page}");
        if job.starts_with("least") {
            assert_eq!(of("done"), of("due"), "{page}");
        }
    }
}

#[test]
fn hundreds_of_jobs_a_second_start_soon() {
    // A build without optimization on a machine that does other things: the figures are for `cargo run --release`.
    let page = run(&["load", "--registered", "600", "--due", "100", "--for", "5s", "--bound", "500ms"]);
    assert!(page["ticks"].as_u64().expect("a number") >= 400, "{page}");
}
