//! Jepsen's lock workload, in short: see `lock_workload/main.rs`, which runs for as long as one likes.

use serde_json::Value;
use std::process::Command;

#[test]
fn updates_are_lost_without_fencing_tokens_and_none_with_them() {
    let output = Command::new(env!("CARGO_BIN_EXE_lock-workload"))
        .args(["--ttl", "1s", "--pause-every", "2s", "--for", "10s", "--json"])
        .output()
        .expect("it starts");
    let (page, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}\n{errors}");
    let page: Value = serde_json::from_str(&page).expect("one JSON object");
    let run = |mode: &str| {
        let runs = page["runs"].as_array().expect("runs");
        runs.iter().find(|run| run["mode"] == mode).expect("a run of each mode").clone()
    };
    let number = |value: &Value| value.as_u64().expect("a number");
    let (naive, look, fenced) = (run("naive"), run("look"), run("fenced"));
    println!("{naive}\n{look}\n{fenced}");
    assert!(number(&naive["lost"]) > 0, "{naive}");
    assert_eq!(number(&look["before_look"]["lost"]), 0, "{look}");
    assert!(number(&look["after_look"]["lost"]) > 0, "a look cannot close the gap: {look}");
    assert_eq!(number(&fenced["lost"]), 0, "{fenced}");
    assert!(number(&fenced["refused"]) > 0, "{fenced}");
}
