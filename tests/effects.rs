//! Exactly-once effects, in short: see `effects/main.rs`, which takes as many messages as one likes.

use serde_json::Value;
use std::process::Command;

#[test]
fn with_the_helper_each_message_has_one_effect_and_without_it_some_have_two() {
    let output = Command::new(env!("CARGO_BIN_EXE_effects"))
        .args(["--messages", "10000", "--json"])
        .output()
        .expect("it starts");
    let (page, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}\n{errors}");
    print!("{page}");
    let runs: Vec<Value> = page.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&runs[0]["mode"], &runs[0]["effects"]), (&"with".into(), &10_000.into()));
    assert_eq!(runs[1]["mode"], "without");
    assert!(runs[1]["effects"].as_u64() > Some(10_000), "{}", runs[1]);
}
