//! Tests of `quorate demo`. Its figures must meet the guarantees, and none of its processes and files may
//! remain.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests")]

use quorate::env::{SystemWorld, World};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tempfile::TempDir;

/// The longest wait for an event that should happen at once, on a machine that may be busy.
const SOON: Duration = Duration::from_secs(10);
/// The TTL of the demo's leases.
const LEASE_MS: f64 = 2000.0;

/// Returns a guard that only one test can have at a time. The demos measure failovers, so they must not run at
/// the same time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn demo(args: &[&str]) -> Command {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_quorate-under-test"));
    demo.arg("demo").args(args).stdin(Stdio::null());
    demo
}

fn run(args: &[&str], scratch: Option<&Path>) -> (Output, String) {
    let mut demo = demo(args);
    if let Some(scratch) = scratch {
        demo.env("TMPDIR", scratch);
    }
    let began = SystemWorld.now();
    let output = demo.output().unwrap();
    let took = SystemWorld.now().since(began);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(took < Duration::from_secs(30), "it took {took:?}:\n{said}");
    (output, said)
}

/// Returns the ids of the processes that the output names.
fn pids(said: &str) -> Vec<Pid> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let named = words.windows(2).filter(|pair| pair[0] == "process");
    named.map(|pair| Pid::from_raw(pair[1].parse().unwrap()).unwrap()).collect()
}

/// Returns the processes that have `dir` as their working directory. These are servers and their supervisors.
fn inside(dir: &Path) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let cwd = |process: &fs::DirEntry| fs::read_link(process.path().join("cwd")).ok();
    processes
        .filter(|process| cwd(process).is_some_and(|cwd| cwd.starts_with(dir)))
        .map(|p| p.path())
        .collect()
}

fn until(what: &str, said: &str, condition: impl Fn() -> bool) {
    let deadline = SystemWorld.now() + SOON;
    while !condition() {
        assert!(SystemWorld.now() < deadline, "{what}:\n{said}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn number(page: &Value, at: &str) -> f64 {
    page.pointer(at).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {at} in {page}"))
}

/// Checks that the figures in the summary meet the guarantees.
fn check(output: &Output, said: &str, nodes: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}, {errors}\n{said}", output.status);
    let page: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(page["nodes"], nodes);
    assert_eq!(page["failovers"].as_array().unwrap().len(), 2, "{page}");
    let bounds = [("KILL", LEASE_MS + 250.0), ("TERM", 250.0)];
    for (n, (signal, bound)) in bounds.into_iter().enumerate() {
        assert_eq!(page["failovers"][n]["signal"], signal);
        let ms = number(&page, &format!("/failovers/{n}/ms"));
        assert!(0.0 < ms && ms <= bound, "{signal}: {ms} ms\n{said}");
    }
    for zero in ["/ticks/started_twice", "/ticks/missed", "/messages/processed_twice"] {
        assert_eq!(number(&page, zero), 0.0, "{zero}\n{said}");
    }
    // The demo takes about ten seconds, and four ticks are due in each second.
    assert!(number(&page, "/ticks/due") > 30.0, "{page}");
    let cut = number(&page, "/ticks/due") - number(&page, "/ticks/started");
    assert!(cut <= number(&page, "/ticks/interrupted") && cut <= 1.0, "{page}");
    assert!(number(&page, "/messages/sent") > 100.0, "{page}");
    assert_eq!(number(&page, "/messages/processed"), number(&page, "/messages/sent"), "{page}");
    assert_eq!(said.matches("  LEADS").count(), 3, "{said}");
    assert_eq!(pids(said).len(), 5, "three workers, two of them again:\n{said}");
    for pid in pids(said) {
        assert!(test_kill_process(pid).is_err(), "{pid:?} still runs\n{said}");
    }
}

#[test]
fn on_files_it_keeps_its_promises_and_leaves_nothing() {
    let _alone = alone();
    let (output, said) = run(&["--json"], None);
    check(&output, &said, "file");
    let dir = said.lines().find_map(|line| Some(line.split_once("directories in ")?.1)).unwrap();
    assert!(dir.contains("quorate-demo-") && !Path::new(dir).exists(), "{dir}");
}

/// Returns the words of a line of the demo, with `#` for what differs from run to run.
fn pattern(line: &str) -> String {
    let line = line.replace("the tick that was due", "the 1 ticks that were due");
    let line = line.split_once(" and handled again").map_or(&*line, |(line, _)| line);
    let varies = |word: &str| word.starts_with('/') || word.starts_with("worker-");
    let of = |word: &str| match varies(word) {
        true => "#".to_owned(),
        false => word
            .split(|c: char| c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("#"),
    };
    line.split_whitespace().map(of).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_readme_shows_what_it_prints() {
    let _alone = alone();
    let (_, said) = run(&[], None);
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let shown = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    // The last paragraph depends on where the SIGKILL meets a run.
    let (shown, _) = shown.trim_end().rsplit_once("\n\n").unwrap();
    assert!(shown.lines().count() > 20, "{shown}");
    let printed: Vec<String> = said.lines().map(pattern).collect();
    for line in shown.lines() {
        assert!(printed.contains(&pattern(line)), "the demo prints no line such as {line:?}:\n{said}");
    }
}

#[test]
fn on_redis_servers_it_keeps_its_promises_and_leaves_nothing() {
    let _alone = alone();
    let scratch = TempDir::new().unwrap();
    let (output, said) = run(&["--redis", "--json"], Some(scratch.path()));
    check(&output, &said, "redis");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    assert_eq!(inside(scratch.path()), Vec::<PathBuf>::new());
}

/// Starts a demo on Redis servers. Reads its output until the first worker leads. A demo whose output is closed ends.
fn first_leader(scratch: &Path) -> (Child, BufReader<ChildStdout>, String) {
    let demo = demo(&["--redis"]).env("TMPDIR", scratch).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut demo = demo.unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(demo.stdout.take().unwrap());
    while !said.contains("LEADS") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "it ended early:\n{said}");
    }
    assert_eq!(pids(&said).len(), 3, "{said}");
    assert!(inside(scratch).len() >= 5, "five servers:\n{said}");
    (demo, lines, said)
}

#[test]
fn a_signal_ends_it_with_all_that_it_started() {
    let _alone = alone();
    let scratch = TempDir::new().unwrap();
    let (mut demo, _output, said) = first_leader(scratch.path());
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130), "{said}");
    assert!(pids(&said).into_iter().all(|pid| test_kill_process(pid).is_err()), "{said}");
    assert_eq!(inside(scratch.path()), Vec::<PathBuf>::new());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "the directory");
}

#[test]
fn killed_itself_it_leaves_no_process() {
    let _alone = alone();
    let scratch = TempDir::new().unwrap();
    let (mut demo, _output, said) = first_leader(scratch.path());
    demo.kill().unwrap();
    demo.wait().unwrap();
    until("workers", &said, || pids(&said).into_iter().all(|pid| test_kill_process(pid).is_err()));
    until("servers", &said, || inside(scratch.path()).is_empty());
}

#[test]
fn without_redis_server_it_says_how_to_get_one() {
    let scratch = TempDir::new().unwrap();
    let output =
        demo(&["--redis"]).env("TMPDIR", scratch.path()).env("PATH", scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("apt-get install redis-server") && errors.contains("without --redis"),
        "{errors}"
    );
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "the directory");
}
