//! Tests of `quorate nodes list` and `quorate nodes replace` on real servers, while workers hold leases.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::redis::RedisNode;
use quorate::{
    Lease,
    node::FencingToken,
    quorum::{Quorum, QuorumConfig},
};
use quorate_testkit::redis::{RedisConfig, RedisServer};
use quorate_tests::support::{Nodes, PATIENCE, Program, until};
use serde_json::Value;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

const TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(2);

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_quorate-under-test"))
}

/// The holders of the lock so far, in the order of their grants.
#[derive(Debug, Default)]
struct Book {
    /// The worker that holds the lock, with its lease. This worker may have lost the lease without having
    /// noticed.
    holder: Option<(String, Arc<Lease>)>,
    grants: Vec<(String, FencingToken)>,
}

impl Book {
    fn wins(&self, name: &str) -> usize {
        self.grants.iter().filter(|(winner, _)| winner == name).count()
    }
}

/// A worker with a runtime of its own. It acquires the lock again and again, and holds it for a while each
/// time.
struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(name: &str, urls: Vec<String>, book: &Arc<Mutex<Book>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, book, name) = (Arc::clone(&stop), Arc::clone(book), name.to_owned());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(work(&name, &urls, &book, &stopped));
        });
        Self { stop, thread: Some(thread) }
    }

    /// Stops the worker in order, as a deployment does. Panics if two workers ever held the lock at the same
    /// time.
    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it has not ended before");
        thread.join().expect("no two held at once");
    }
}

async fn work(name: &str, urls: &[String], book: &Mutex<Book>, stop: &AtomicBool) {
    let setup = QuorumConfig {
        worker: name.into(),
        max_ttl: MAX_TTL,
        node_timeout: Duration::from_millis(250),
        ..QuorumConfig::default()
    };
    let nodes = urls.iter().map(|url| RedisNode::parse(url).expect("a URL"));
    let quorum = Quorum::builder().config(setup).nodes(nodes).build().expect("a sound setup");
    let env = quorum.env().clone();
    while !stop.load(Ordering::Relaxed) {
        let tried = quorum.lock("leader").ttl(TTL).wait(Duration::from_millis(300)).acquire().await;
        let Ok(lease) = tried else {
            env.sleep(Duration::from_millis(20)).await;
            continue;
        };
        let lease = Arc::new(lease);
        {
            let mut book = book.lock().expect("no two held at once");
            let Ok(token) = lease.fencing_token() else { continue };
            // The previous holder may have been paused since before its lease ended, and then its entry is
            // still here. In any case, its lease must not be valid any more.
            if let Some((other, before)) = book.holder.replace((name.to_owned(), Arc::clone(&lease))) {
                assert!(!before.is_valid(), "two holders, {name} beside {other}");
            }
            book.grants.push((name.to_owned(), token));
        }
        let until = env.now() + Duration::from_millis(300);
        while lease.is_valid() && env.now() < until && !stop.load(Ordering::Relaxed) {
            env.sleep(Duration::from_millis(2)).await;
        }
        // On a busy machine, this worker may pause here until its lease has ended and another worker holds the
        // lock. So this worker removes the entry only if it is its own.
        let ended =
            book.lock().expect("no two held at once").holder.take_if(|(_, held)| Arc::ptr_eq(held, &lease));
        drop(ended);
        if let Some(lease) = Arc::into_inner(lease) {
            lease.release().await.ok();
        }
        env.sleep(Duration::from_millis(10)).await;
    }
    quorum.close().await;
}

#[track_caller]
fn wins(book: &Mutex<Book>, name: &str) -> usize {
    book.lock().expect("no two held at once").wins(name)
}

#[test]
fn a_set_is_replaced_under_load_though_the_program_is_killed_on_the_way() {
    let program = program();
    let nodes = Nodes::new(4);
    let urls = nodes.urls();
    let (old, new) = (urls[..3].to_vec(), urls[1..].to_vec());
    let quoted = old.iter().map(|url| format!("{url:?}")).collect::<Vec<_>>().join(", ");
    let file = program.write("quorate.toml", &format!("nodes = [{quoted}]\nmax_ttl = \"2s\"\n"));
    program.run(["nodes", "trust", "--config", &file]).expect(0);
    let book = Arc::new(Mutex::new(Book::default()));
    let names = ["a", "b", "c"];
    let mut workers: Vec<_> = names.iter().map(|name| Worker::start(name, old.clone(), &book)).collect();
    until("leases of the old set", PATIENCE, || names.iter().all(|name| wins(&book, name) > 0).then_some(()));

    // A dry run must change nothing.
    let to = new.join(",");
    let replace = ["nodes", "replace", "--config", &file, "--to", &to];
    let dry = program.run([&replace[..], &["--dry-run"]].concat()).expect(0);
    for part in ["stays; in the old set", "joins; in no set", "leaves; in the old set", "nothing was written"]
    {
        assert!(dry.stdout.contains(part), "{part}: {dry}");
    }
    assert_eq!(nodes[3].command(&["EXISTS", "quorate:node"]), "0");

    // The command is killed while it waits. Until it runs again, no worker with either list can acquire the
    // lock.
    let killed = program.start(replace);
    until("its wait", PATIENCE, || killed.stdout().contains("waiting").then_some(()));
    killed.kill();
    let early = Worker::start("early", new.clone(), &book);
    let exec = |list: &str| {
        let list = list.to_owned();
        let file = program.write("other.toml", "max_ttl = \"2s\"\n");
        let args =
            ["exec", "--config", &file, "--nodes", &list, "--lock", "other", "--ttl", "1s", "--no-wait"];
        program.run([&args[..], &["--", "true"]].concat())
    };
    let ended = exec(&to).expect(69);
    ended.says(&["is being replaced by this worker's", "run `quorate nodes replace` again"]);

    let ended = program.run(replace).expect(0);
    for part in ["opened for the new set", "the new set is open", "give every worker this list"] {
        assert!(ended.stdout.contains(part), "{part}: {ended}");
    }
    until("lease of the new set", PATIENCE, || (wins(&book, "early") > 0).then_some(()));

    // The workers are restarted with the new list, one after the other. Workers that still have the old list
    // get no lease.
    let before: Vec<usize> = names.iter().map(|name| wins(&book, name)).collect();
    for (at, name) in names.iter().enumerate() {
        workers.remove(0).end();
        assert_eq!(wins(&book, name), before[at], "{name} led by the old list");
        workers.push(Worker::start(name, new.clone(), &book));
        until("lease of the restarted", PATIENCE, || (wins(&book, name) > before[at]).then_some(()));
    }
    workers.into_iter().chain([early]).for_each(Worker::end);
    let book = book.lock().expect("no two held at once");
    let grows = book.grants.windows(2).all(|two| two[0].1 < two[1].1);
    assert!(grows, "tokens: {:?}", book.grants);

    // The error of a worker with the old list must name both lists.
    let ended = exec(&old.join(",")).expect(69);
    let sorted = |urls: &[usize]| {
        let mut names: Vec<String> = urls.iter().map(|at| format!("{}/0", nodes.name(*at))).collect();
        names.sort();
        format!("[{}]", names.join(","))
    };
    ended.says(&[&sorted(&[0, 1, 2]), &sorted(&[1, 2, 3]), "give this worker the new list"]);
    exec(&to).expect(0);
}

#[test]
fn a_new_node_that_is_away_or_unfit_leaves_everything_as_it_was() {
    let program = program();
    let nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let to = |url: &str| format!("{},{},{url}", nodes.name(1), nodes.name(2));
    let replace = |to: &str| program.run(["nodes", "replace", "--nodes", &list, "--to", to]);
    let closed = "redis://127.0.0.1:1";
    replace(&to(closed)).expect(69).says(&["the new node", closed, "nothing has been opened"]);
    let evicts = RedisConfig::new().maxmemory_policy("allkeys-lru");
    let evicts = RedisServer::start_with(evicts).unwrap_or_else(|error| panic!("{error}"));
    replace(&to(&evicts.url())).expect(69).says(&["allkeys-lru", "set maxmemory-policy to noeviction"]);
    replace(&list).expect(78).says(&["the same set as the old one"]);
    replace(&to("redis://localhost:x")).expect(78).says(&["--to"]);
    // The old list in this command is wrong: the markers of the nodes contain another one.
    let other = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let ended = program.run(["nodes", "replace", "--nodes", &nodes.name(0), "--to", &other.url()]).expect(69);
    ended.says(&["two lists could elect two leaders"]);
    program.run(["exec", "--nodes", &list, "--lock", "job", "--no-wait", "--", "true"]).expect(0);
}

#[test]
fn list_shows_each_node_s_memory_clock_and_marker() {
    let program = program();
    let mut nodes = Nodes::admitted(3, &program, &[]);
    let list = nodes.list();
    let text = program.run(["nodes", "list", "--nodes", &list]).expect(0).stdout;
    for part in
        ["3 of 3 nodes vote", "remembers since 20", "votes from 20", "max_ttl 30s", "round trip", "clock "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    nodes[0].kill();
    let page = program.run(["nodes", "list", "--json", "--nodes", &list]).expect(0).stdout;
    let page: Value = serde_json::from_str(&page).expect("one JSON object");
    let shown = page["nodes"].as_array().expect("a list");
    assert_eq!(
        (&shown[0]["votes"], &shown[1]["votes"]),
        (&Value::Bool(false), &Value::Bool(true)),
        "{page:#}"
    );
    assert!(shown[0]["reason"].as_str().is_some_and(|why| why.contains("refused")), "{page:#}");
    assert!(
        shown[1]["clock_ahead_ms"].as_f64().is_some_and(|ms| ms.abs() < 1_000.0),
        "one machine: {page:#}"
    );
    assert!(
        shown[1]["marker_nodes"].as_str().is_some_and(|set| set.matches("redis://").count() == 3),
        "{page:#}"
    );
    nodes[1].kill();
    program.run(["nodes", "list", "--nodes", &list]).expect(69);
}

/// Lets a worker lead the group `g` of the file for one term, and returns the worker's name.
fn one_term(program: &Program, config: &str) -> String {
    let leader = program.start(["lead", "--config", config, "--listen", "127.0.0.1:0"]);
    let holder = until("a leader", PATIENCE, || {
        let page = program.run(["status", "--json", "--config", config]).stdout;
        let page: Value = serde_json::from_str(&page).ok()?;
        page["resources"][0]["holder"].as_str().map(str::to_owned)
    });
    until("the record of the term", PATIENCE, || {
        program.run(["leader", "history", "--config", config]).stdout.contains(&holder).then_some(())
    });
    leader.signal(rustix::process::Signal::TERM);
    leader.wait(PATIENCE).expect(0);
    holder
}

fn configured(program: &Program, urls: &[String]) -> String {
    let urls: Vec<String> = urls.iter().map(|url| format!("{url:?}")).collect();
    program.write("quorate.toml", &format!("nodes = [{}]\ngroup = \"g\"\n", urls.join(", ")))
}

#[test]
fn a_cluster_in_use_is_not_trusted_unless_that_is_forced() {
    let program = program();
    let mut nodes = Nodes::new(3);
    let config = configured(&program, &nodes.urls());
    nodes.admit(&program, &["--config", &config]);
    let trust = ["nodes", "trust", "--config", &config];
    let again = program.run(trust).expect(0);
    assert_eq!(again.stdout.matches(": votes already\n").count(), 3, "{again}");
    let holder = one_term(&program, &config);
    program.run(["status", "--config", &config, "g"]).expect(0).tells(&["g: free", "status election/g"]);

    nodes[0].restart().expect("it starts again");
    nodes[1].restart().expect("it starts again");
    let refused = program.run(trust).expect(1).says(&[
        "refused: the cluster is or was in use",
        &nodes.name(2),
        "votes already, and other nodes do not",
        &format!("of {holder}"),
        "two leaders",
        "wait: each node votes by itself",
        "nodes trust --force",
    ]);
    assert!(refused.stdout.is_empty() && !refused.stderr.contains(&nodes.name(0)), "{refused}");
    // Nothing was trusted. The third node alone remembers the leader.
    let status = program.run(["status", "--config", &config]).expect(69).tells(&[
        "1 of 3 nodes vote",
        "election/g: unknown: too few nodes vote",
        &format!("{}: it stores term", nodes.name(2)),
        &format!("of {holder}, begun 20"),
    ]);
    assert!(!status.stdout.contains("free"), "{status}");
    let page = program.run(["status", "--json", "--config", &config]).expect(69).stdout;
    let page: Value = serde_json::from_str(&page).expect("one JSON object");
    assert!(page["resources"][0]["held"].is_null(), "{page:#}");

    let forced = program.run(["nodes", "trust", "--force", "--config", &config]).expect(0);
    assert_eq!(forced.stdout.matches(": votes\n").count(), 2, "{forced}");
    assert_eq!(forced.stdout.matches(": votes already\n").count(), 1, "{forced}");
    program.run(["audit", "--config", &config]).expect(0).tells(&["every node votes, by --force"]);
}

/// Starts a server that keeps its data, and trusts it. Returns it with the configuration file.
fn trusted_server(program: &Program) -> (RedisServer, String) {
    let server = RedisConfig::new().append_only().start().unwrap_or_else(|error| panic!("{error}"));
    let config = configured(program, &[server.url()]);
    program.run(["nodes", "trust", "--config", &config]).expect(0);
    (server, config)
}

#[test]
fn a_server_that_kept_its_data_is_not_trusted_after_a_restart() {
    let program = program();
    let (mut server, config) = trusted_server(&program);
    let trust = ["nodes", "trust", "--config", &config];
    let holder = one_term(&program, &config);
    server.restart().expect("it starts again");
    // The first command replaces the marker by one of this run. The second one finds only what the node stores.
    program.run(trust).expect(1).says(&["it restarted with data", "two leaders"]);
    program.run(trust).expect(1).says(&["it stores term", &format!("of {holder}")]);
    program.run(["exec", "--config", &config, "--lock", "x", "--no-wait", "--", "true"]).expect(69);
}

#[test]
fn an_operation_or_a_held_lock_refuses_the_trust() {
    let program = program();
    let (mut server, config) = trusted_server(&program);
    let trust = ["nodes", "trust", "--config", &config];
    server.restart().expect("it starts again");
    program.run(trust).expect(1).says(&["it restarted with data"]);
    program.run(trust).expect(1).says(&["its audit list has the operation nodes-trust of 20", "two leaders"]);

    program.run(["nodes", "trust", "--force", "--config", &config]).expect(0);
    let lock = ["exec", "--config", &config, "--lock", "report", "--ttl", "30s", "--", "sleep", "60"];
    let holder = program.start(lock);
    until("a held lock", PATIENCE, || {
        program.run(["lock", "list", "--config", &config]).stdout.contains("report").then_some(())
    });
    // A killed holder does not release its lock.
    holder.signal(rustix::process::Signal::KILL);
    server.restart().expect("it starts again");
    program.run(trust).expect(1).says(&["it restarted with data"]);
    program.run(trust).expect(1).says(&["it stores the lock report", "two leaders"]);
}

#[test]
fn a_second_call_after_some_new_nodes_were_trusted_names_the_remedy() {
    let program = program();
    let mut nodes = Nodes::new(3);
    let config = configured(&program, &nodes.urls());
    nodes[2].kill();
    program.run(["nodes", "trust", "--force", "--config", &config]).expect(69);
    nodes[2].restart().expect("it starts again");
    program
        .run(["nodes", "trust", "--config", &config])
        .expect(1)
        .says(&["votes already, and other nodes do not", "--force is right"]);
}
