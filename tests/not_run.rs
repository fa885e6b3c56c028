//! Tests that no test is skipped silently. If a machine cannot run a test, the test is listed here, or reports
//! this with `quorate_testkit::cannot_run`. The last lines of `tests/run.sh` name such tests.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The files with `#[ignore]`, the number of ignored tests in each file, and the reason why they are ignored.
const IGNORED: [(&str, usize, &str); 4] = [
    ("tests/redis/claims.rs", 1, "a process that the other tests of the file start"),
    (
        "crates/quorate/src/node/file/access_tests.rs",
        1,
        "a process that `a_node_creates_private_files_whatever_the_umask` starts",
    ),
    ("crates/quorate/src/node/file/crash_tests.rs", 1, "a process that the tests start and kill"),
    (
        "crates/quorate/src/node/file/tests.rs",
        2,
        "processes that `processes_exclude_each_other` and others start",
    ),
];

/// The tests that exist only on Linux: the file, the number of its platform conditions, and the names of the
/// tests.
const LINUX_ALONE: [(&str, usize, &str); 6] = [
    ("crates/quorate-testkit/tests/growth.rs", 1, "growth"),
    ("crates/quorate-testkit/tests/machines.rs", 1, "machines"),
    ("crates/quorate-testkit/tests/server_clock.rs", 1, "server_clock"),
    ("tests/faults/main.rs", 1, "faults"),
    ("tests/stuck.rs", 10, "stuck"),
    ("tests/systemd.rs", 2, "systemd::a_daemon_that_is_stopped_is_silent_and_an_abstract_name_will_do"),
];

/// The manifests with test targets that need a feature, and the number of these targets. `tests/run.sh`
/// enables all features. The fuzz targets are no tests; `tests/fuzz/run.sh` builds those of the program only without
/// `--libraries`.
const WITH_FEATURES: [(&str, usize); 3] = [
    ("crates/quorate-testkit/Cargo.toml", 1),
    ("crates/quorate/Cargo.toml", 13),
    ("tests/fuzz/Cargo.toml", 5),
];

#[cfg(not(target_os = "linux"))]
#[test]
fn what_exists_on_linux_alone_is_reported() {
    for (_, _, name) in LINUX_ALONE {
        quorate_testkit::cannot_run(name, "it needs Linux");
    }
}

#[test]
fn every_ignored_test_is_listed() {
    let expected = IGNORED.map(|(file, count, _)| (file.to_owned(), count));
    let found = lines_of(&["crates", "examples", "tests"], "rs", |line| {
        line.starts_with("#[ignore") || (line.contains("cfg_attr(") && line.contains("ignore"))
    });
    let advice = "run it, have it call quorate_testkit::cannot_run where it cannot run, or list it here with its reason";
    assert_eq!(found, BTreeMap::from(expected), "a test is ignored: {advice}");
}

#[test]
fn every_test_of_one_platform_is_listed() {
    let expected = LINUX_ALONE.map(|(file, count, _)| (file.to_owned(), count));
    let platform = ["target_os", "target_arch", "target_family", "target_pointer_width", "unix", "windows"];
    let found = lines_of(&["crates", "examples", "tests"], "rs", |line| {
        let condition = line.starts_with("#[cfg(") || line.starts_with("#![cfg(");
        condition && platform.iter().any(|word| line.contains(word))
    });
    // Platform conditions in other files concern the code of the libraries, and not tests.
    let tests = found.into_iter().filter(|(file, _)| file.starts_with("tests/") || file.contains("/tests/"));
    let advice = "list it here, so that other platforms report it";
    assert_eq!(
        tests.collect::<BTreeMap<_, _>>(),
        BTreeMap::from(expected),
        "a test is of one platform: {advice}"
    );
}

#[test]
fn tests_that_need_a_feature_are_listed_and_run_with_all_features() {
    let expected = WITH_FEATURES.map(|(file, count)| (file.to_owned(), count));
    let found = lines_of(&["crates", "tests"], "toml", |line| line.starts_with("required-features"));
    assert_eq!(found, BTreeMap::from(expected));
    let run = fs::read_to_string(workspace().join("tests/run.sh")).expect("it is here");
    assert!(run.contains("    cargo test --workspace --all-features --no-run "));
}

/// Checks the last lines of `tests/run.sh` and its exit status, if tests did not run.
#[test]
fn the_run_names_what_did_not_run_and_fails_where_all_must_run() {
    let verdict_with = |reported: &str, warned: &str, ci: &str| {
        let home = tempfile::tempdir().expect("a directory");
        let [not_run, warnings] = ["not-run", "warned"].map(|name| home.path().join(name));
        fs::write(&not_run, reported).expect("our own directory");
        fs::write(&warnings, warned).expect("our own directory");
        let mut command = Command::new("bash");
        command.arg(workspace().join("tests/run.sh")).arg("--verdict");
        command.env("TESTS_NOT_RUN", &not_run).env("TESTS_WARNED", &warnings).env("CI", ci);
        let output = command.output().expect("bash");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let verdict = |reported: &str, ci: &str| verdict_with(reported, "", ci);
    let (success, said) = verdict_with("", "a.rs:1: `heir`: write successor\n", "true");
    assert!(
        success && said.contains("warnings") && said.contains("a.rs:1: `heir`"),
        "a warning fails nothing: {said}"
    );
    for ci in ["", "false", "true"] {
        assert_eq!(verdict("", ci), (true, "== all is well".to_owned()), "CI={ci}");
    }
    let reported = "NOT RUN: b: no npm\nNOT RUN: a: no pip\nNOT RUN: b: no npm\n";
    for (ci, succeeds) in [("", true), ("false", true), ("true", false), ("1", false)] {
        let (success, said) = verdict(reported, ci);
        assert_eq!(success, succeeds, "CI={ci}: {said}");
        assert!(said.ends_with("NOT RUN: a: no pip\nNOT RUN: b: no npm"), "{said}");
        assert!(!said.contains("all is well"), "{said}");
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

/// Counts the lines for which `such` returns true, in each file with the ending `end` below these folders.
/// Files without such a line are left out, and so is this file.
fn lines_of(folders: &[&str], end: &str, such: impl Fn(&str) -> bool) -> BTreeMap<String, usize> {
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| workspace().join(folder)).collect();
    let mut found = BTreeMap::new();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.extend((!path.ends_with("target")).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == end)
                && !path.ends_with("not_run.rs")
            {
                files += 1;
                let text = fs::read_to_string(&path).expect("text");
                let count = text.lines().filter(|line| such(line.trim_start())).count();
                let name = path.strip_prefix(workspace()).expect("below it").display().to_string();
                if count > 0 {
                    found.insert(name, count);
                }
            }
        }
    }
    assert!(files > 0, "no file was read");
    found
}
