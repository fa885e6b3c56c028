//! Tests that `quorate run` applies changes of its configuration file while it leads, on real Redis servers.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate_tests::support::{JobBench, Nodes, PATIENCE, Program, Receiver, Running, until};
use rustix::process::Signal;
use std::collections::BTreeSet;

/// Three nodes, and a daemon whose jobs write their names, ticks and tokens to the file `ticks`.
struct Bench {
    program: Program,
    _nodes: Nodes,
    head: String,
    config: String,
    daemon: Running,
}

impl Bench {
    fn new(jobs: &[&str]) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(3, &program, &[]);
        let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
        let head = format!("nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = \"2s\" }}\n", list.join(", "));
        let config = program.write("quorate.toml", &text(&head, jobs));
        let daemon = program.start(["run", "--config", &config]);
        Self { program, _nodes: nodes, head, config, daemon }
    }

    /// Replaces the file in one step, as most editors do.
    fn replace(&self, text: &str) {
        let new = self.program.write("quorate.toml.new", text);
        std::fs::rename(new, &self.config).expect("in our own directory");
    }

    fn ticks(&self, job: &str) -> Vec<String> {
        let text = self.program.read("ticks");
        let mine = text.lines().filter_map(|line| line.strip_prefix(&format!("{job} ")));
        mine.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    fn tokens(&self) -> BTreeSet<String> {
        self.program
            .read("ticks")
            .lines()
            .filter_map(|line| Some(line.rsplit(' ').next()?.to_owned()))
            .collect()
    }

    #[track_caller]
    fn until_more(&self, job: &str) {
        let enough = self.ticks(job).len() + 3;
        until(&format!("{enough} ticks of {job}: {}", self.daemon.stderr()), PATIENCE, || {
            (self.ticks(job).len() >= enough).then_some(())
        });
    }
}

fn text(head: &str, jobs: &[&str]) -> String {
    let job = |name: &&str| {
        format!(
            "[[job]]\nname = \"{name}\"\nevery = \"500ms\"\n\
             shell = \"echo $QUORATE_JOB $QUORATE_TICK $QUORATE_FENCING_TOKEN >> ticks\"\n"
        )
    };
    format!("{head}{}", jobs.iter().map(job).collect::<String>())
}

#[test]
fn a_changed_file_changes_the_jobs_and_nothing_else() {
    let bench = Bench::new(&["stays", "goes"]);
    bench.until_more("stays");
    bench.until_more("goes");

    bench.replace(&text(&bench.head, &["stays", "comes"]));
    bench.daemon.signal(Signal::HUP);
    bench.daemon.until_it_says("added comes; removed goes");
    bench.until_more("comes");
    let last = bench.ticks("goes").pop().expect("it ran");
    bench.until_more("stays");
    bench.until_more("comes");
    assert_eq!(bench.ticks("goes").pop(), Some(last), "what is removed runs no more");

    // The daemon reports that the file is invalid, and changes nothing.
    bench.replace(&text(&bench.head, &["stays"]).replace("every", "evry"));
    bench.daemon.signal(Signal::HUP);
    bench.daemon.until_it_says("the jobs stay as they were");
    bench.daemon.until_it_says("quorate.toml:6: unknown key `evry`; did you mean `every`?");
    bench.until_more("comes");

    // No signal is needed, because the daemon watches the file. The daemon reports that one key needs a
    // restart, and applies the jobs anyway.
    let head = bench.head.replace("2s", "3s");
    bench.replace(&text(&head, &["stays", "again"]));
    bench.daemon.until_it_says("the new value of `lease` takes effect after a restart");
    bench.daemon.until_it_says("added again; removed comes");
    bench.until_more("again");
    bench.until_more("stays");

    // The file is removed and then written again in place, as some editors do.
    std::fs::remove_file(&bench.config).expect("it is there");
    bench.program.write("quorate.toml", &text(&bench.head, &["stays", "last"]));
    bench.daemon.until_it_says("added last; removed again");
    bench.until_more("last");

    assert_eq!(
        bench.tokens().len(),
        1,
        "one term all along: {:?}\n{}",
        bench.tokens(),
        bench.daemon.stderr()
    );
    let stays = bench.ticks("stays");
    let distinct: BTreeSet<_> = stays.iter().collect();
    assert_eq!(distinct.len(), stays.len(), "no tick twice: {stays:?}");
    bench.daemon.signal(Signal::TERM);
    let ended = bench.daemon.wait(PATIENCE).expect(0);
    assert_eq!(ended.stderr.matches("elected").count(), 1, "{}", ended.stderr);
}

#[test]
fn a_follower_takes_up_the_file_too_and_leads_with_the_new_jobs() {
    let bench = Bench::new(&["old"]);
    bench.until_more("old");
    let follower = bench.program.start(["run", "--config", &bench.config]);
    follower.until_it_says("nodes from");
    bench.replace(&text(&bench.head, &["new"]));
    follower.until_it_says("added new; removed old");
    bench.daemon.until_it_says("added new; removed old");
    bench.daemon.signal(Signal::TERM);
    let before = bench.ticks("new").len();
    follower.until_it_says("elected");
    // The old job was removed, and its runs ended with the term. So the old job must not run under the new
    // leader.
    let old = bench.ticks("old").len();
    until("ticks of the new job", PATIENCE, || (bench.ticks("new").len() >= before + 3).then_some(()));
    assert_eq!(bench.ticks("old").len(), old);
    assert_eq!(bench.tokens().len(), 2);
    follower.signal(Signal::TERM);
    follower.wait(PATIENCE).expect(0);
}

/// The settings of a job take effect at once, those of the daemon after a restart. The log says which.
#[test]
fn a_reload_applies_the_pings_of_a_job_and_names_the_sections_that_need_a_restart() {
    let (ping, old, new) =
        (Receiver::start(Some(200)), Receiver::start(Some(200)), Receiver::start(Some(200)));
    let job =
        "[[job]]\nname = \"beat\"\nevery = \"500ms\"\nshell = \"echo beat >> ticks; test ! -e broken\"\n";
    let notify = |receiver: &Receiver| {
        format!("[[notify]]\non = [\"failed\"]\nwebhook = {:?}\n", receiver.url("/hook"))
    };
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), &format!("{job}{}", notify(&old)));
    let head = bench.program.read("quorate.toml").replace(&format!("{job}{}", notify(&old)), "");
    let daemon = bench.daemon();
    let ticks = || bench.program.read("ticks").lines().count();
    until("a run", PATIENCE, || (ticks() > 0).then_some(()));
    assert!(bench.json(&["show", "beat"])["expect_within_us"].is_null());

    let changed = format!(
        "{head}output = {{ dir = \"outputs\" }}\n{job}expect_within = \"1h\"\nping = {:?}\n{}",
        ping.url("/ping"),
        notify(&new)
    );
    bench.program.write("quorate.toml", &changed);
    daemon.signal(Signal::HUP);
    for section in ["notify", "output"] {
        daemon.until_it_says(&format!("the new value of `{section}` takes effect after a restart"));
    }
    daemon.until_it_says("changed beat");
    assert!(!daemon.stderr().contains("`lease` takes effect"), "{}", daemon.stderr());
    until("a ping of the reloaded job", PATIENCE, || (ping.count("/ping") > 0).then_some(()));
    until("the new time within which it must succeed", PATIENCE, || {
        (bench.json(&["show", "beat"])["expect_within_us"] == 3_600_000_000_u64).then_some(())
    });
    // The receivers and the files are those of the start.
    bench.program.write("broken", "");
    until("a message to the old receiver", PATIENCE, || (old.events("failed").len() == 1).then_some(()));
    assert!(new.requests().is_empty() && !bench.program.file("outputs").exists());

    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
    std::fs::remove_file(bench.program.file("broken")).expect("it is there");
    let daemon = bench.daemon();
    let before = ticks();
    until("a success after the restart", PATIENCE, || (ticks() > before + 1).then_some(()));
    bench.program.write("broken", "");
    until("a message to the new receiver", PATIENCE, || (new.events("failed").len() == 1).then_some(()));
    assert!(bench.program.file("outputs").exists() && old.events("failed").len() == 1);
    drop(daemon);
}
