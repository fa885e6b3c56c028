//! Tests of `quorate run` as process 1 of a container. It must reap orphaned processes, and end cleanly at
//! SIGTERM.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::env::{BootTime, SystemWorld, World};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

const QUORATE: &str = env!("CARGO_BIN_EXE_quorate-under-test");
const PATIENCE: Duration = Duration::from_secs(30);

/// A process namespace. Dropping it ends all its processes.
struct Namespace(Child);

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(init) = children(self.0.id()).first() {
            let _ = kill_process(pid(*init), Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn now() -> BootTime {
    SystemWorld.now()
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn pid(raw: u32) -> Pid {
    Pid::from_raw(raw.cast_signed()).expect("a process id")
}

fn children(of: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Returns the children of the process `of` that have ended and have not been reaped.
fn zombies(of: u32) -> Vec<u32> {
    let is_zombie = |child: &u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    children(of).into_iter().filter(is_zombie).collect()
}

/// Returns a command that runs the program as process 1 of a namespace.
fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--pid", "--fork", "--mount-proc", QUORATE]).stdin(Stdio::null());
    unshare
}

fn as_process_one(config: &Path) -> Namespace {
    let unshare = unshare().args(["run", "--config"]).arg(config).spawn();
    Namespace(unshare.expect("unshare(1) of util-linux is there: install util-linux"))
}

#[test]
fn process_one_reaps_what_is_left_to_it_and_ends_on_sigterm() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (config, ticks) = (dir.path().join("quorate.toml"), dir.path().join("ticks"));
    // Each run leaves a process behind that has left the run's process group. When its parent ends, this
    // process becomes a child of process 1.
    let text = format!(
        "nodes = [\"file://{0}/node\"]\ngroup = \"g\"\ntrust_new_nodes = true\nlease = {{ ttl = \"2s\" }}\n\
         [[job]]\nname = \"j\"\nevery = \"300ms\"\n\
         command = [\"sh\", \"-c\", \"setsid sleep 0.1 & echo $QUORATE_TICK >> {0}/ticks\"]\n",
        dir.path().display()
    );
    fs::write(&config, text).expect("a writable directory");
    let mut namespace = as_process_one(&config);
    let ran = || fs::read_to_string(&ticks).unwrap_or_default().lines().count();
    eventually("five ticks", || (ran() >= 5).then_some(()));
    let init = *children(namespace.0.id()).first().expect("unshare has one child");
    // There may be a zombie for a moment, but none may remain.
    eventually("no zombie is left", || zombies(init).is_empty().then_some(()));
    let before = ran();
    eventually("the job goes on", || (ran() > before).then_some(()));

    kill_process(pid(init), Signal::TERM).expect("it runs");
    let told = now();
    let status = eventually("the end", || namespace.0.try_wait().expect("our child"));
    assert!(status.success(), "{status}");
    assert!(now().since(told) < Duration::from_secs(5), "it took {:?}", now().since(told));
}

/// The process group of this test is outside of the new namespace, so the program has none that it could name.
#[test]
fn exec_runs_where_its_process_group_is_outside_of_the_namespace() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = format!("file://{}/node", dir.path().display());
    let config = dir.path().join("quorate.toml");
    fs::write(&config, format!("nodes = [\"{node}\"]\ntrust_new_nodes = true\n"))
        .expect("a writable directory");
    let mut exec = unshare();
    exec.args(["exec", "--lock", "x", "--config"]).arg(&config).args(["--", "echo", "it ran"]);
    let output = exec.output().expect("unshare(1) of util-linux is there: install util-linux");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"it ran\n", "{}: {error}", output.status);
}
