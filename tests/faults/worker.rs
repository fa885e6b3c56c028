//! Tests of workers in processes of their own, which are stopped (SIGSTOP), continued and killed.

use super::bench::{Bench, TTL, eventually};
use quorate::env::{BootTime, SystemWorld, World};
use quorate_testkit::redis::RedisServer;
use quorate_tests::support::{PATIENCE, Program, Running, Sink};
use rustix::process::Signal;
use std::time::Duration;

/// A process of `lease-probe`, its journal, and the sink to which it writes.
pub(crate) struct Probe {
    running: Running,
    program: Program,
    sink: RedisServer,
}

/// A line of a probe's journal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    /// The time of the boot clock just before the check that this line reports.
    pub(crate) at: BootTime,
    pub(crate) what: String,
    pub(crate) token: u64,
}

impl Probe {
    /// Starts a worker with a sink of its own. `mode` is the MODE of `lease_probe.rs`.
    pub(crate) fn start(bench: &Bench, name: &str, mode: &str) -> Self {
        let sink = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
        Self::start_with(bench, name, mode, sink)
    }

    fn start_with(bench: &Bench, name: &str, mode: &str, sink: RedisServer) -> Self {
        let url = sink.url();
        Self::start_at(bench, name, mode, sink, &url)
    }

    fn start_at(bench: &Bench, name: &str, mode: &str, own: RedisServer, sink: &str) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_lease-probe"));
        let list = bench.servers.urls().join(",");
        let ms = TTL.as_millis().to_string();
        let running = program.start([name, mode, &list, "job", &ms, sink]);
        Self { running, program, sink: own }
    }

    pub(crate) fn sink(&self) -> Sink {
        Sink::at(&self.sink.url()).expect("a server of ours")
    }

    pub(crate) fn notes(&self) -> Vec<Note> {
        // The process may still be writing the last line, so an incomplete line is ignored.
        let text = self.program.read("journal");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| Note::parse(line).unwrap_or_else(|| panic!("{line:?}"))).collect()
    }

    pub(crate) async fn until_it_notes(&self, what: &str) -> Note {
        eventually(&format!("note of {what:?} from {:?}", self.running), || {
            self.notes().into_iter().find(|note| note.what == what)
        })
        .await
    }

    /// Returns the first line about a check that began after `since`.
    pub(crate) fn first_since(&self, since: BootTime) -> Note {
        let notes = self.notes();
        notes
            .iter()
            .find(|note| note.at > since)
            .cloned()
            .unwrap_or_else(|| panic!("nothing since: {notes:?}"))
    }

    pub(crate) fn stop(&self) {
        self.running.signal(Signal::STOP);
        quorate_tests::support::until("standstill", PATIENCE, || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.running.pid())).ok()?;
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')).then_some(())
        });
    }

    /// Lets the stopped process continue. Returns the time of the boot clock just before that.
    pub(crate) fn go_on(&self) -> BootTime {
        let at = SystemWorld.now();
        self.running.signal(Signal::CONT);
        at
    }

    /// Creates the file for which the process waits.
    pub(crate) fn tell(&self) {
        self.program.write("go", "");
    }
}

impl Note {
    /// Parses a line `NANOSECONDS WHAT TOKEN`.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let at = BootTime::from_nanos(parts.next()?.parse().ok()?);
        let what = parts.next()?.to_owned();
        Some(Self { at, what, token: parts.next()?.parse().ok()? })
    }
}

/// Checks that no worker found its lease valid after another worker had acquired the lock. If all successful
/// checks are sorted by time, their tokens never decrease.
fn never_two(probes: &[&Probe]) {
    let mut beliefs: Vec<Note> = probes.iter().flat_map(|probe| probe.notes()).collect();
    beliefs.retain(|note| note.what == "ok" || note.what == "held");
    beliefs.sort_by_key(|note| note.at);
    assert!(beliefs.len() > 2, "no worker held it");
    for pair in beliefs.windows(2) {
        assert!(pair[0].token <= pair[1].token, "two held it: {pair:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stood_still_finds_out_at_once_and_the_next_has_a_larger_token() {
    let bench = Bench::new().await;
    let sink = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let url = sink.url();
    let first = Probe::start_with(&bench, "a", "work", sink);
    let held = first.until_it_notes("ok").await;
    let spare = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let second = Probe::start_at(&bench, "b", "work", spare, &url);
    first.stop();
    let taken = second.until_it_notes("ok").await;
    assert!(taken.token > held.token);
    let woke = first.go_on();
    let lost = eventually("loss", || first.notes().into_iter().find(|note| note.what == "lost")).await;
    assert_eq!(first.first_since(woke), lost, "it believed in its lease after it woke");
    assert!(woke.until(lost.at) < Duration::from_secs(2), "it found out {:?} later", woke.until(lost.at));
    // Both cancellation tokens are cancelled by now, or very soon. So code that waits for them is notified too.
    let notified = first.until_it_notes("notified").await;
    assert!(
        woke.until(notified.at) < Duration::from_secs(2),
        "it was notified {:?} later",
        woke.until(notified.at)
    );
    never_two(&[&first, &second]);
    // The worker that was stopped campaigns again. It acquires the lease after the other worker is killed.
    second.running.kill();
    let back = eventually("first again", || {
        first.notes().into_iter().find(|note| note.what == "ok" && note.token > taken.token)
    })
    .await;
    never_two(&[&first, &second]);
    // The tokens in the sink never decrease. So if the worker that was stopped wrote late, the sink refused the
    // write.
    let taken_in = first.sink().history().expect("a server");
    assert!(taken_in.is_sorted() && taken_in.contains(&held.token) && taken_in.contains(&back.token));
    drop((first, second));
    bench.worker("c").await.serves("job").await;
    bench.clean().await;
}

/// Checks a worker that is stopped for less than the TTL. Its lease must still be extended afterwards, and no
/// other worker may acquire it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stood_still_for_a_moment_goes_on() {
    let bench = Bench::new().await;
    let rival = bench.worker("b").await;
    let worker = Probe::start(&bench, "a", "work");
    let held = worker.until_it_notes("ok").await;
    for _ in 0..3 {
        worker.stop();
        let until = rival.now() + TTL / 10;
        while rival.now() < until {
            assert!(rival.must_not_acquire("job").await.is_none(), "a majority reports the holder");
        }
        let woke = worker.go_on();
        eventually("look after it woke", || worker.notes().into_iter().find(|note| note.at > woke)).await;
        if woke.until(rival.now()) < TTL / 10 {
            let note = worker.first_since(woke);
            assert_eq!((note.what.as_str(), note.token), ("ok", held.token));
        }
    }
    drop(worker);
    rival.serves("job").await;
    bench.clean().await;
}
