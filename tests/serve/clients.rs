//! The clients of `examples/clients`, with the real interpreters.

use crate::sidecar::{Sidecar, clients, has, script};
use quorate_tests::support::{PATIENCE, signal, until};
use rustix::process::Signal;
use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

/// The longest time of one run of a script: it waits for longer than a TTL.
const RUN: Duration = Duration::from_secs(60);

/// Runs a script that says each step, and releases the lock `forced` once the script holds it.
fn steps(sidecar: &Sidecar, mut command: Command) {
    let output = sidecar.program.file("output");
    let file = || fs::File::create(&output).expect("our own file");
    let errors = fs::File::create(sidecar.program.file("errors")).expect("our own file");
    let mut child =
        command.stdout(file()).stderr(errors).stdin(Stdio::null()).spawn().expect("an interpreter");
    let said = || format!("{}{}", sidecar.program.read("output"), sidecar.program.read("errors"));
    let mut ended = None;
    until("a script that holds the lock", RUN, || {
        ended = child.try_wait().expect("our own child");
        (ended.is_some() || said().contains("holds: forced")).then_some(())
    });
    assert!(ended.is_none(), "{ended:?}: {}", said());
    let release = ["lock", "release", "forced", "--force", "--config", "quorate.toml"];
    sidecar.program.run(release).expect(0);
    let status = until("the end of the script", PATIENCE, || child.try_wait().expect("our own child"));
    assert!(status.success(), "{status}: {}", said());
    assert_eq!(said().matches("passed: ").count(), 6, "{}", said());
}

#[test]
fn the_python_client_does_what_its_page_says() {
    if !has("python3", "the_python_client_does_what_its_page_says") {
        return;
    }
    let sidecar = Sidecar::new(3, "");
    let mut command = Command::new("python3");
    command.arg(script("check.py")).arg(format!("unix:{}", sidecar.socket().display()));
    command.env("PYTHONPATH", clients()).env("PYTHONDONTWRITEBYTECODE", "1");
    steps(&sidecar, command);
}

#[test]
fn the_node_client_does_what_its_page_says() {
    if !has("node", "the_node_client_does_what_its_page_says") {
        return;
    }
    let sidecar = Sidecar::new(3, "");
    let mut command = Command::new("node");
    command.arg(script("check.mjs")).arg(clients().join("quorate.mjs"));
    command.arg(format!("unix:{}", sidecar.socket().display()));
    steps(&sidecar, command);
}

#[test]
fn a_client_that_hangs_loses_its_lease_and_knows_it_when_it_runs_again() {
    if !has("python3", "a_client_that_hangs_loses_its_lease_and_knows_it_when_it_runs_again") {
        return;
    }
    let sidecar = Sidecar::new(3, "");
    let output = fs::File::create(sidecar.program.file("output")).expect("our own file");
    let mut command = Command::new("python3");
    command.arg(script("hold.py")).arg(format!("unix:{}", sidecar.socket().display())).arg("hung");
    command.env("PYTHONPATH", clients()).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut child = command.stdin(Stdio::piped()).stdout(output).spawn().expect("Python");
    child.stdin.as_mut().expect("a pipe").write_all(b"hold\n").expect("a client that reads");
    let says = |word: &str| sidecar.program.read("output").lines().any(|line| line.starts_with(word));
    until("a client that holds", PATIENCE, || says("held ").then_some(()));
    signal(child.id(), Signal::STOP);
    // The lock is free once the client was silent for `keep`, which is the TTL of 3 s.
    let next = sidecar.until_free("hung-0", PATIENCE);
    assert!(!says("lost "), "it does not run");
    signal(child.id(), Signal::CONT);
    until("a client that knows of the loss", PATIENCE, || says("lost ").then_some(()));
    sidecar.release(&next).expect(200);
    child.kill().expect("our own child");
    child.wait().expect("our own child");
}
