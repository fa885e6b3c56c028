//! Reports tests that cannot run on this machine, each by its name. In an environment where every test must
//! run, such a report makes the test fail.
//!
//! # What is not guaranteed
//!
//! This module does not notice a test that returns early without a call of [`cannot_run`]. The test
//! `tests/not_run.rs` reads the sources. It finds tests that are ignored, or that are left out on a platform.

use std::{
    env,
    ffi::OsStr,
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
};

/// The environment variable with the name of a file. Each test that cannot run adds a line to this file.
/// `tests/run.sh` sets the variable and prints the file at its end.
pub const NOT_RUN_FILE: &str = "TESTS_NOT_RUN";

/// Reports that the test `name` cannot run here. `reason` says why, and what must change so that the test can
/// run. The caller then returns from the test.
///
/// The line is written directly to standard error, because the test harness hides the output of a test that
/// passes. It is also written to the file that the variable `TESTS_NOT_RUN` names.
///
/// # Panics
/// If the variable `CI` is `true` or `1`, because every test must run there; and if the file cannot be
/// written.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn cannot_run(name: &str, reason: &str) {
    let file = env::var_os(NOT_RUN_FILE);
    match report(name, reason, env::var_os("CI").as_deref(), file.as_deref().map(Path::new)) {
        // If standard error cannot be written, the test must still pass.
        Ok(line) => drop(writeln!(io::stderr(), "{line}")),
        Err(why) => panic!("{why}"),
    }
}

fn report(name: &str, reason: &str, ci: Option<&OsStr>, file: Option<&Path>) -> Result<String, String> {
    let line = format!("NOT RUN: {name}: {}", reason.replace('\n', " "));
    if let Some(path) = file {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(|error| format!("{line}; and {} cannot be written: {error}", path.display()))?;
    }
    if ci.is_some_and(|ci| ci == "true" || ci == "1") {
        return Err(format!("{line}; with CI=true every test must run"));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_test_that_cannot_run_is_named_and_fails_where_all_must_run() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("not-run");
        for ci in [None, Some("false"), Some("")] {
            report("a::b", "no node\nhere", ci.map(OsStr::new), Some(&file)).unwrap();
        }
        let lines = "NOT RUN: a::b: no node here\n".repeat(3);
        assert_eq!(fs::read_to_string(&file).unwrap(), lines);
        for ci in ["true", "1"] {
            let why = report("c", "no npm", Some(OsStr::new(ci)), Some(&file)).unwrap_err();
            assert_eq!(why, "NOT RUN: c: no npm; with CI=true every test must run");
        }
        assert!(fs::read_to_string(&file).unwrap().ends_with("NOT RUN: c: no npm\n"));
        let why = report("d", "e", None, Some(home.path())).unwrap_err();
        assert!(why.starts_with("NOT RUN: d: e; and ") && why.contains("cannot be written"), "{why}");
        assert_eq!(report("f", "g", None, None).unwrap(), "NOT RUN: f: g");
    }
}
