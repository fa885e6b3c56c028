//! A worker that holds a lease and writes under it, for tests to stop and to kill.
//!
//! The command is `lease-probe NAME MODE NODES RESOURCE TTL_MS SINK`. MODE is one of:
//!
//! - `work`: acquire the lease, then check it and write every few milliseconds. When the lease is lost, acquire
//!   it again, without limit.
//! - `write-when-notified`: acquire the lease and wait for a file `go`. Then check the lease once, and write
//!   even if the lease is no longer valid.
//!
//! The file `journal` has a line for each event, `NANOSECONDS WHAT TOKEN`. The time is that of the boot clock
//! *before* the check. The events are `held` (the lease was just acquired), `ok` (the lease is valid), `lost`
//! (the lease is not valid), `notified` (the tokens for the step-down and for the loss are cancelled), and
//! `refused` (the sink refused a write).

#![expect(clippy::expect_used, reason = "a program for tests")]

use quorate::{
    env::BootTime,
    lease::Lease,
    quorum::{Quorum, QuorumConfig},
};
use quorate_tests::support::Sink;
use std::{fs::File, io::Write, path::Path, thread, time::Duration};

/// The time between two checks of the lease.
const LOOK_EVERY: Duration = Duration::from_millis(2);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, mode, nodes, resource, ttl, sink] = &args[..] else { panic_usage() };
    let ttl = Duration::from_millis(ttl.parse().expect("TTL_MS"));
    // The runtime has two threads. So while this thread is blocked, the other one extends the lease.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let setup = QuorumConfig {
            worker: name.as_str().into(),
            max_ttl: ttl,
            node_timeout: Duration::from_millis(250),
            ..QuorumConfig::default()
        };
        let quorum = Quorum::redis(nodes.split(',')).expect("URLs").config(setup).build().expect("a setup");
        let probe = Probe {
            sink: Sink::at(sink).expect("a sink"),
            journal: File::options().create(true).append(true).open("journal").expect("a file"),
            quorum,
        };
        let lock = probe.quorum.lock(resource).ttl(ttl);
        loop {
            let lease = lock.acquire().await.expect("a quorum");
            probe.note(probe.now(), "held", &lease);
            match mode.as_str() {
                "work" => probe.work(&lease).await,
                "write-when-notified" => return probe.write_when_notified(&lease),
                _ => panic_usage(),
            }
        }
    });
}

struct Probe {
    quorum: Quorum,
    sink: Sink,
    journal: File,
}

impl Probe {
    async fn work(&self, lease: &Lease) {
        loop {
            let at = self.now();
            let Ok(token) = lease.fencing_token() else {
                self.note(at, "lost", lease);
                lease.step_down_token().cancelled().await;
                lease.lost_token().cancelled().await;
                return self.note(self.now(), "notified", lease);
            };
            self.note(at, "ok", lease);
            if !self.sink.write(token.get()).expect("the sink answers") {
                self.note(at, "refused", lease);
            }
            self.quorum.env().sleep(LOOK_EVERY).await;
        }
    }

    fn write_when_notified(&self, lease: &Lease) {
        while !Path::new("go").exists() {
            thread::sleep(LOOK_EVERY);
        }
        let at = self.now();
        self.note(at, if lease.fencing_token().is_ok() { "ok" } else { "lost" }, lease);
        // The probe writes even if the check has failed.
        if !self.sink.write(lease.unchecked_token().get()).expect("the sink answers") {
            self.note(at, "refused", lease);
        }
    }

    fn now(&self) -> BootTime {
        self.quorum.env().now()
    }

    /// Writes a line with a single call. So the file has the whole line or nothing of it. `at` is the time of the check:
    /// a process that is stopped during a write learns only later that the write is refused.
    fn note(&self, at: BootTime, what: &str, lease: &Lease) {
        let line = format!("{} {what} {}\n", at.as_nanos(), lease.unchecked_token().get());
        (&self.journal).write_all(line.as_bytes()).expect("a file of our own");
    }
}

fn panic_usage() -> ! {
    eprintln!("lease-probe NAME work|write-when-notified NODES RESOURCE TTL_MS SINK");
    std::process::exit(64)
}
