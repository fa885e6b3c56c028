//! Tests of notifications and pings: daemons on real Redis servers, and receivers in this process.

use quorate_tests::support::{Http, JobBench, PATIENCE, Receiver, Running, keys, until};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;

const SECRET: &str = "Bearer-hush-0123456789";
const PATH: &str = "/hook-hush-4711";

fn bench(settings: &str) -> JobBench {
    JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), settings)
}

/// Returns the messages that a command of `[[notify]]` has written, one JSON object a line.
fn written(bench: &JobBench) -> Vec<Value> {
    let text = bench.program.read("messages");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// A job fails, its leader is killed, and it succeeds under the next leader. One receiver gets a request with a secret,
/// another one never answers, and a command gets the message in its environment and on its standard input.
#[test]
fn one_message_for_each_change_whatever_the_leaders_and_the_other_receivers_do() {
    let (receiver, hung) = (Receiver::start(Some(200)), Receiver::start(None));
    let settings = format!(
        r#"
http = {{ listen = "127.0.0.1:0" }}
[[job]]
name = "flaky"
every = "500ms"
misfire = {{ rule = "skip" }}
shell = "echo $QUORATE_TICK >> ticks; test -e ok || {{ echo oops; exit 3; }}"
expect_within = "2s"
ping_file = "ping-url"
ping_on = ["start", "success", "fail"]
[[job]]
name = "other"
every = "500ms"
misfire = {{ rule = "skip" }}
command = ["false"]
[[notify]]
on = ["failed", "recovered", "overdue"]
jobs = ["flaky"]
webhook = "{}"
header_files = {{ Authorization = "pager-token" }}
[[notify]]
on = ["failed", "recovered"]
jobs = ["flaky"]
command = ["/bin/sh", "-c", "env > environment; cat >> messages; echo >> messages"]
[[notify]]
on = ["failed"]
webhook = "{}"
timeout = "120s"
"#,
        receiver.url(PATH),
        hung.url("/"),
    );
    let bench = bench(&settings);
    bench.program.write("pager-token", &format!("{SECRET}\n"));
    bench.program.write("ping-url", &receiver.url("/ping-hush"));
    let checked = bench.program.run(["run", "--check", "--config", &bench.config]).expect(0).stdout;
    assert!(checked.contains("notify 1: failed, recovered, overdue to http://127.0.0.1\n"), "{checked}");
    let mut command = bench.program.command(["run", "--config", &bench.config]);
    command.env("QUORATE_NODES", bench.nodes.list());
    let first = bench.program.start_command(command);

    until("a message that it failed, for each receiver", PATIENCE, || {
        (receiver.events("failed").len() == 1 && written(&bench).len() == 1 && !hung.requests().is_empty())
            .then_some(())
    });
    let message = receiver.events("failed").remove(0);
    assert_eq!((&message["job"], &message["group"]), (&"flaky".into(), &"g".into()), "{message}");
    assert!(message["reason"].as_str().is_some_and(|why| why.contains("exit status 3")), "{message}");
    assert_eq!(written(&bench)[0]["id"], message["id"]);
    let request = receiver.requests().into_iter().find(|request| request.path == PATH).expect("a request");
    assert!(
        request.head.to_lowercase().contains(&format!("authorization: {}", SECRET.to_lowercase())),
        "{request:?}"
    );
    let environment = bench.program.read("environment");
    assert!(
        environment.contains("QUORATE_EVENT=failed\n") && environment.contains("QUORATE_JOB=flaky\n"),
        "{environment}"
    );
    assert!(!environment.contains("QUORATE_NODES") && !environment.contains("hush"), "{environment}");

    // The receiver that never answers delays no tick, and no other receiver. The job becomes overdue.
    let ticks = bench.program.read("ticks").lines().count();
    let http = Http::of(&first);
    let overdue = "quorate_job_overdue{group=\"g\",job=\"flaky\"}";
    until("a job that is overdue", PATIENCE, || (http.metric(overdue) > 0.5).then_some(()));
    until("a message that it is overdue", PATIENCE, || (receiver.events("overdue").len() == 1).then_some(()));
    assert!(bench.json(&["show", "flaky"])["overdue_since"].is_string());
    bench.jobs(&["list"]).expect(0).tells(&["overdue"]);
    until("three more ticks", PATIENCE, || {
        (bench.program.read("ticks").lines().count() >= ticks + 3).then_some(())
    });
    assert!(http.metric("quorate_job_overdue{group=\"g\",job=\"other\"}").abs() < f64::EPSILON);

    let second = bench.daemon();
    let follower = Http::of(&second);
    first.kill();
    until("another leader", PATIENCE, || (follower.status("/leader") == Some(200)).then_some(()));
    until("a job that is overdue under the next leader", PATIENCE, || {
        (follower.metric(overdue) > 0.5).then_some(())
    });
    // The next leader sends again what the first one did not finish, and asks each receiver's claim first. The claim
    // of the first leader on the silent receiver is free again after its lease.
    let runs = "quorate_runs_total{group=\"g\",job=\"flaky\",outcome=\"failed\"}";
    until("three more failures", PATIENCE, || (follower.metric(runs) > 2.5).then_some(()));
    bench.program.write("ok", "");
    until("a message that it recovered, for each receiver", PATIENCE, || {
        (!receiver.events("recovered").is_empty() && written(&bench).len() > 1).then_some(())
    });
    until("a job that is not overdue", PATIENCE, || (follower.metric(overdue) < 0.5).then_some(()));
    let done = "quorate_runs_total{group=\"g\",job=\"flaky\",outcome=\"done\"}";
    until("three more successes", PATIENCE, || (follower.metric(done) > 2.5).then_some(()));
    let sent = |event: &str| receiver.events(event).len();
    assert_eq!((sent("failed"), sent("overdue"), sent("recovered")), (1, 1, 1), "{:?}", receiver.requests());
    assert_eq!(written(&bench).iter().map(|one| &one["event"]).collect::<Vec<_>>(), ["failed", "recovered"]);
    let counted = follower.metric("quorate_notifications_total{event=\"recovered\",outcome=\"sent\"}");
    assert!((counted - 2.0).abs() < f64::EPSILON, "{counted}");

    // The pings of a dead-man's switch.
    until("pings", PATIENCE, || (receiver.count("/ping-hush") > 0).then_some(()));
    assert!(receiver.count("/ping-hush/start") > 0 && receiver.count("/ping-hush/fail") > 0);

    second.signal(Signal::TERM);
    let ended = second.wait(PATIENCE).expect(0);
    for text in [&first.stderr(), &first.stdout(), &ended.stderr, &ended.stdout, &checked] {
        assert!(!text.contains("hush"), "a secret in {text}");
    }
    assert!(first.stderr().contains("notified: g/flaky/failed/"), "{}", first.stderr());
}

/// A receiver that answers with an error, or redirects, gets a few attempts; the secret header goes to no other place.
#[test]
fn a_group_without_a_quorum_has_no_leader_and_each_worker_says_so() {
    let receiver = Receiver::start(Some(200));
    let moved = Receiver::start(Some(302));
    let settings = format!(
        "[[job]]\nname = \"beat\"\nevery = \"1s\"\ncommand = [\"true\"]\n\
         [[notify]]\non = [\"no-leader\"]\nno_leader_after = \"2s\"\nwebhook = \"{}\"\n\
         [[notify]]\non = [\"no-leader\"]\nno_leader_after = \"2s\"\nwebhook = \"{}\"\n",
        receiver.url("/"),
        moved.url("/first"),
    );
    let mut bench = bench(&settings);
    let (one, other) = (bench.daemon(), bench.daemon());
    until("a run", PATIENCE, || {
        (!bench.json(&["list"])["jobs"][0]["last"].as_array()?.is_empty()).then_some(())
    });
    assert!(receiver.requests().is_empty(), "there is a leader: {:?}", receiver.requests());
    bench.nodes[0].kill();
    bench.nodes[1].kill();
    let message = until("a message of each worker", PATIENCE, || {
        let messages = receiver.events("no-leader");
        (messages.len() == 2).then(|| messages.into_iter().next()).flatten()
    });
    assert!(
        message["job"].is_null() && message["reason"].as_str().is_some_and(|why| why.contains("no quorum")),
        "{message}"
    );
    one.until_it_says("redirects are not followed");
    assert_eq!(moved.count("/other"), 0);
    for daemon in [one, other] {
        daemon.signal(Signal::TERM);
        daemon.wait(PATIENCE).expect(0);
    }
}

/// The servers have no free memory: they extend the leader's lease, and refuse what a run needs. Without a row on the
/// nodes, the receivers are notified all the same, and every face names the cause.
#[test]
fn a_leader_whose_nodes_have_no_memory_says_so_everywhere_and_gives_up_the_lead() {
    let receiver = Receiver::start(Some(200));
    let settings = format!(
        "http = {{ listen = \"127.0.0.1:0\" }}\n\
         [[job]]\nname = \"beat\"\nevery = \"500ms\"\nexpect_within = \"2s\"\nshell = \"echo beat >> ticks\"\n\
         [[notify]]\non = [\"no-leader\"]\nno_leader_after = \"1s\"\nwebhook = \"{0}\"\n\
         [[notify]]\non = [\"overdue\"]\nwebhook = \"{0}\"\n",
        receiver.url("/"),
    );
    let bench = bench(&settings);
    let daemon = bench.daemon();
    let (http, runs) = (Http::of(&daemon), || bench.program.read("ticks").lines().count());
    until("a run", PATIENCE, || (runs() > 1).then_some(()));
    until("readiness", PATIENCE, || (http.status("/readyz") == Some(200)).then_some(()));
    for node in bench.nodes.iter() {
        node.command(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    daemon.until_it_says("no run starts, and the leader gives up the lead in 2s");
    daemon.until_it_says("gives up the lead after 2s: the ledger cannot be written");
    let page = until("that it is not ready", PATIENCE, || {
        let page = http.get("/readyz");
        (page.status == 503).then_some(page.body)
    });
    assert!(page.contains("OOM command not allowed"), "{page}");
    until("that it does not lead", PATIENCE, || (http.status("/leader") == Some(503)).then_some(()));
    let why = bench.json(&["why", "beat"]);
    assert!(["no-leader", "no-quorum"].iter().any(|reason| why["reason"] == *reason), "{why}");
    for (event, text) in [("no-leader", "OOM"), ("overdue", "a success is expected within 2s")] {
        let message = until(event, PATIENCE, || receiver.events(event).into_iter().next());
        assert!(message["reason"].as_str().is_some_and(|why| why.contains(text)), "{message}");
    }
    let log = daemon.stderr();
    let warnings = log.lines().filter(|line| line.contains("ledger cannot be written")).count();
    assert!(warnings <= 6, "{log}");
    let before = runs();
    for node in bench.nodes.iter() {
        node.command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    until("a run", PATIENCE, || (runs() > before).then_some(()));
    until("readiness", PATIENCE, || (http.status("/readyz") == Some(200)).then_some(()));
    // A run that ended while the nodes ran out of memory may be recorded once they have some again. Then its success is the
    // last one, with an event of its own.
    let overdue = receiver.events("overdue");
    let ids: BTreeSet<String> = overdue.iter().map(|message| message["id"].to_string()).collect();
    assert!(ids.len() <= 2, "one event, or one more: {overdue:?}");
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}

/// The user of one worker loses a right that the ledger needs and a lease does not. The other worker leads.
#[test]
fn a_leader_that_cannot_write_leaves_the_lead_to_a_worker_that_can() {
    let bench = bench(
        "http = { listen = \"127.0.0.1:0\" }\n[[job]]\nname = \"beat\"\nevery = \"500ms\"\nshell = \"echo rich >> ticks\"\n",
    );
    let poor = bench
        .program
        .read("quorate.toml")
        .replace("redis://", "redis://poor:secret@")
        .replace("rich", "poor");
    let poor = bench.program.write("poor.toml", &poor);
    for node in bench.nodes.iter() {
        node.command(&["ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all"]);
    }
    let first = bench.program.start(["run", "--config", &poor]);
    let ticks_of = |worker: &str| bench.program.read("ticks").lines().filter(|line| *line == worker).count();
    until("a run of the first", PATIENCE, || (ticks_of("poor") > 0).then_some(()));
    let second = bench.program.start(["run", "--config", &bench.config]);
    second.until_it_says("following the leader");
    for node in bench.nodes.iter() {
        node.command(&["ACL", "SETUSER", "poor", "-hset"]);
    }
    first.until_it_says("gives up the lead after 2s: the ledger cannot be written");
    until("a run of the other", PATIENCE, || (ticks_of("rich") > 2).then_some(()));
    for daemon in [first, second] {
        daemon.signal(Signal::TERM);
        daemon.wait(PATIENCE).expect(0);
    }
}

/// Gives the lock of the leadership to another program on each node, which none of them ever releases. No program has a
/// majority, so there is no leader, although all nodes vote.
fn block_leadership(bench: &JobBench) {
    for (at, node) in bench.nodes.iter().enumerate() {
        let of_election = keys(node).into_iter().filter(|key| key.name.contains("election/g"));
        let lock = of_election.min_by_key(|key| key.name.len()).expect("the lock of the leader").name;
        node.command(&["SET", &lock, &format!("another-program-{at}")]);
    }
}

fn unblock_leadership(bench: &JobBench) {
    for node in bench.nodes.iter() {
        let strings = keys(node).into_iter().filter(|key| key.kind == "string");
        for key in strings.filter(|key| key.name.contains("election/g")) {
            if node.command(&["GET", &key.name]).starts_with("another-program") {
                node.command(&["DEL", &key.name]);
            }
        }
    }
}

/// All nodes vote, so the workers agree that one of them sends the message; each time without a leader has its own.
#[test]
fn a_group_with_a_quorum_and_without_a_leader_gets_one_message_each_time() {
    let receiver = Receiver::start(Some(200));
    let settings = format!(
        "[[job]]\nname = \"beat\"\nevery = \"500ms\"\nshell = \"echo beat >> ticks\"\n\
         [[notify]]\non = [\"no-leader\"]\nno_leader_after = \"1s\"\nwebhook = \"{}\"\n",
        receiver.url("/"),
    );
    let bench = bench(&settings);
    let daemons = [bench.daemon(), bench.daemon(), bench.daemon()];
    let runs = || bench.program.read("ticks").lines().count();
    until("a run", PATIENCE, || (runs() > 0).then_some(()));
    for daemon in &daemons {
        until("a worker that leads or follows", PATIENCE, || {
            let log = daemon.stderr();
            (log.contains("elected") || log.contains("following the leader")).then_some(())
        });
    }
    let mut ids = Vec::new();
    for time in 1..=2 {
        block_leadership(&bench);
        // The first time, every worker has seen the leader, misses it, and asks the others whether it is the one that
        // sends the message. A worker that has not seen the next leader notices no second time.
        let noticed = |daemon: &&Running| daemon.stderr().matches("no leader since").count() >= time;
        let expected = if time == 1 { daemons.len() } else { 1 };
        until(&format!("workers that notice time {time}"), PATIENCE, || {
            (daemons.iter().filter(noticed).count() >= expected).then_some(())
        });
        until(&format!("message {time}"), PATIENCE, || {
            (receiver.events("no-leader").len() == time).then_some(())
        });
        let messages = receiver.events("no-leader");
        let message = messages.last().expect("a message");
        assert!(message["reason"].as_str().is_some_and(|why| !why.contains("each worker")), "{message}");
        ids.push(message["id"].clone());
        let before = runs();
        unblock_leadership(&bench);
        until("a run under a new leader", PATIENCE, || (runs() > before).then_some(()));
    }
    assert_ne!(ids[0], ids[1], "each time without a leader has its own id");
    for daemon in daemons {
        daemon.signal(Signal::TERM);
        daemon.wait(PATIENCE).expect(0);
    }
    assert_eq!(receiver.requests().len(), 2, "one message each time: {:?}", receiver.requests());
}

/// Each receiver has its own `no_leader_after`.
#[test]
fn a_receiver_that_waits_longer_for_a_leader_is_not_notified_with_the_others() {
    let (soon, late) = (Receiver::start(Some(200)), Receiver::start(Some(200)));
    let receiver = |after: &str, url: &str| {
        format!("[[notify]]\non = [\"no-leader\"]\nno_leader_after = {after:?}\nwebhook = {url:?}\n")
    };
    let settings = format!(
        "[[job]]\nname = \"beat\"\nevery = \"1s\"\ncommand = [\"true\"]\n{}{}{}",
        receiver("1s", &soon.url("/one")),
        receiver("1h", &late.url("/")),
        receiver("3s", &soon.url("/three")),
    );
    let mut bench = bench(&settings);
    let daemon = bench.daemon();
    until("a run", PATIENCE, || {
        (!bench.json(&["list"])["jobs"][0]["last"].as_array()?.is_empty()).then_some(())
    });
    bench.nodes[0].kill();
    bench.nodes[1].kill();
    until("a message after one second", PATIENCE, || (soon.count("/one") > 0).then_some(()));
    assert_eq!(late.requests().len(), 0, "an hour has not passed: {:?}", late.requests());
    until("a message after three seconds", PATIENCE, || (soon.count("/three") > 0).then_some(()));
    assert_eq!(late.requests().len(), 0, "an hour has not passed: {:?}", late.requests());
    daemon.signal(Signal::TERM);
    daemon.wait(PATIENCE).expect(0);
}
