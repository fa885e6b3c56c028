//! The work and the checks of the soak test, on machines: five servers and three workers in network namespaces of their own,
//! connected by a bridge. Packet filters on the bridge cut links in one direction or both, split the network, and lose
//! packets. Every second link leads through a proxy, which delays. Each server has a wall clock that can be stepped, and each
//! worker a boot clock with another value. Servers are replaced while the workers run.
//!
//! # What is not guaranteed
//!
//! The machines share the processors, the disk and the rate of the clocks. The wall clocks of the workers are those of this
//! machine: no namespace has a wall clock of its own, and a worker ignores a preloaded library. A clock is stepped beyond the
//! allowance only while no other fault occurs, and only on two servers at most: a worker must have observed the server before
//! to detect such a step.

mod faults;

use crate::{
    harness::{Network, Options, Report},
    soak::{self, Setting},
};
pub(crate) use faults::WEATHER;
use quorate_testkit::machines::{can_isolate, isolated};
use std::{
    env,
    os::unix::process::CommandExt,
    process::{ExitCode, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

const WORKERS: usize = 3;
/// The time between two looks at the process in the namespaces.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The exit code of a plan that cannot run on this machine.
const CANNOT_RUN: u8 = 77;
/// The environment variable that is set if the process runs in namespaces of its own.
const INSIDE: &str = "QUORATE_WEATHER_INSIDE";

/// Returns whether this process was started by [`enter`].
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs this program again in namespaces of its own, and returns its exit code. If `stop` is set, or this process ends, the
/// process in the namespaces ends the plan. Everything in the namespaces ends with that process.
pub(crate) fn enter(stop: &AtomicBool) -> ExitCode {
    if let Err(reason) = can_isolate() {
        eprintln!("workload: weather: {reason}");
        return ExitCode::from(CANNOT_RUN);
    }
    // The directories of the servers are removed here even if the process in the namespaces is killed.
    let directory = tempfile::Builder::new().prefix("quorate-weather-").tempdir().expect("a directory");
    let mut inside = isolated();
    inside.arg(env::current_exe().expect("the path of this program")).args(env::args_os().skip(1));
    inside.env(INSIDE, "1").env("TMPDIR", directory.path()).stdin(Stdio::piped());
    // A Ctrl-C on the terminal reaches only this process.
    inside.process_group(0);
    let mut inside = inside.spawn().expect("unshare(1) was started before");
    let mut stdin = inside.stdin.take();
    loop {
        if stop.load(Ordering::Relaxed) {
            drop(stdin.take());
        }
        match inside.try_wait().expect("it is a child") {
            Some(status) => {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return code.map_or(ExitCode::FAILURE, ExitCode::from);
            }
            None => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Runs the plan in the namespaces of this process.
pub(crate) fn run(settings: &soak::Settings, options: &Options, stop: &std::sync::Arc<AtomicBool>) -> Report {
    let stopped = std::sync::Arc::clone(stop);
    thread::spawn(move || {
        // The pipe is closed when the process outside is to end, or has ended.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopped.store(true, Ordering::Relaxed);
    });
    let (workers, left_out) = (options.workers.unwrap_or(WORKERS), settings.left_out);
    let network = Network::Machines(workers);
    let setting =
        Setting { plan: "weather", workers, durable: Some(true), network, kinds: WEATHER, left_out };
    soak::run_in(&setting, options, stop)
}
