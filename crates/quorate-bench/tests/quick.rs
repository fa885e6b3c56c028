//! Runs every scenario in the quick mode, whose figures mean nothing.
use std::process::Command;

#[test]
fn every_scenario_runs_and_measures_something() {
    let out = Command::new(env!("CARGO_BIN_EXE_quorate-bench")).args(["--quick", "--json"]).output();
    let out = out.expect("the program starts");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let sections = report["sections"].as_array().expect("sections");
    let names: Vec<_> = sections.iter().filter_map(|section| section["scenario"].as_str()).collect();
    assert_eq!(
        names,
        [
            "cycles-64",
            "cycles-1",
            "tasks",
            "stopped",
            "handover",
            "leader",
            "many",
            "ledger",
            "claims",
            "loss"
        ],
        "{errors}"
    );
    for section in sections {
        let rows = section["rows"].as_array().expect("rows");
        assert!(!rows.is_empty() && section["skipped"].is_null(), "{section}");
    }
    let value = |scenario: usize, figure: &str| {
        let rows = sections[scenario]["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["figure"] == figure).expect(figure);
        row["value"].as_f64().expect("a number")
    };
    assert!(value(0, "cycles, 1 thread") > 0.0);
    assert_eq!((value(6, "leases held"), value(6, "leases lost")), (500.0, 0.0));
    assert_eq!(value(7, "records that each node returned"), 1_200.0);
    assert!(value(8, "batches against one by one") > 1.0, "also in this short run");
    assert_eq!(value(9, "signalled after validity ended"), 0.0, "this must hold on a slow machine too");
}

#[test]
fn unknown_arguments_are_refused_by_name() {
    for (args, word) in [(&["--only", "speed"][..], "cycles-64"), (&["--rounds", "0"], "--rounds is 0")] {
        let out = Command::new(env!("CARGO_BIN_EXE_quorate-bench")).args(args).output().expect("it starts");
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && errors.contains(word), "{errors}");
    }
}
