//! The soak, in short: see `soak/main.rs`, which runs for as long as one likes.

use serde_json::Value;
use std::process::Command;

/// Under this seed holders are stopped while all servers forget, and the leader is killed in a run, within 8 s.
const SEED: &str = "192";

#[test]
fn everything_at_once_under_faults_breaks_no_promise() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(["--for", "20s", "--seed", SEED, "--json"])
        .output()
        .expect("it starts");
    let (page, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}\n{errors}");
    let page: Value = serde_json::from_str(&page).expect("one JSON object");
    println!("{page}");
    let number = |name: &str| page[name].as_u64().expect("a number");
    assert_eq!(number("violations"), 0);
    assert!(number("locks") >= 5 && number("terms") >= 2, "{page}");
    assert!(number("messages_done") >= 30, "{page}");
    for job in ["at-most-once", "at-least-once"] {
        assert!(page["ticks"][job]["done"].as_u64().expect("a number") >= 3, "{page}");
    }
    let faults = page["faults"].as_object().expect("faults by kind");
    assert!(faults.len() >= 3, "{page}");
}
