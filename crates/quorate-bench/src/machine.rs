//! The facts about the machine that a reader needs to interpret a figure.

use serde::Serialize;
use std::{collections::BTreeMap, fs, process::Command, thread};

/// The machine, and the versions of the programs and packages.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    /// The load averages over one, five and fifteen minutes, at the start of the measurements.
    pub(crate) load: String,
    /// The versions of the programs and packages, by name.
    pub(crate) versions: BTreeMap<&'static str, String>,
}

pub(crate) fn describe() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|it| it.1));
    let load = read("/proc/loadavg");
    let versions = [
        ("quorate", env!("CARGO_PKG_VERSION").to_owned()),
        ("rslock", locked("rslock")),
        ("redis (crate)", locked("redis")),
        ("tokio", locked("tokio")),
        ("rustc", version_of("rustc")),
        ("node", version_of("node")),
    ];
    Machine {
        cores: thread::available_parallelism().map_or(0, Into::into),
        cpu: cpu.unwrap_or("unknown").to_owned(),
        kernel: read("/proc/sys/kernel/osrelease"),
        load: load.split(' ').take(3).collect::<Vec<_>>().join(" "),
        versions: versions.into(),
    }
}

/// Returns the version of the dependency `package` of this program.
fn locked(package: &str) -> String {
    const LOCK: &str = include_str!("../../../Cargo.lock");
    let entry = format!("name = \"{package}\"\nversion = \"");
    let found: Vec<_> = LOCK.split(&entry).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    found.join(", ")
}

/// Returns the version of an installed program, which prints `NAME VERSION …` or only the version.
fn version_of(program: &str) -> String {
    let output = Command::new(program).arg("--version").output().map(|out| out.stdout).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let mut words = output.split_whitespace();
    let first = words.next().unwrap_or("not installed");
    if first == program { words.next().unwrap_or("unknown") } else { first }.to_owned()
}
