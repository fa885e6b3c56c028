//! Tests of a change of the node set. Its future is dropped at each await point, and the change then runs
//! again. At the same time, workers with the old list of nodes and workers with the new list try to acquire a
//! lock. There must never be two holders, tokens must grow, and at the end the new set must grant the lock.

use crate::{
    cut::Cut,
    stage::NODE_TIMEOUT,
    world::{PausedWorld, Road, Server},
};
use quorate::{
    admin::{Found, NodeSet, Part, Progress, ReplaceError, Replacement},
    env::Env,
    node::FencingToken,
    quorum::{NodeState, Quorum, QuorumConfig},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

pub(crate) const TRIED: &[&str] = &["NodeSet::look", "Replacement::run", "Replacement::survey"];

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(2);
/// A number that is larger than the number of await points of any change.
const MOST: usize = 400;
const MS: Duration = Duration::from_millis(1);

/// The present holder, and all grants in order, each with its worker and its token.
#[derive(Debug, Default)]
struct Book {
    holder: Option<&'static str>,
    grants: Vec<(&'static str, FencingToken)>,
}

impl Book {
    fn enter(&mut self, name: &'static str, token: FencingToken) {
        let before = self.holder.replace(name);
        assert_eq!(before, None, "two holders, {name} beside it");
        self.grants.push((name, token));
    }
}

struct Bench {
    env: Env,
    network: Env,
    servers: Vec<Arc<Server>>,
    workers: Vec<Quorum>,
    book: Arc<Mutex<Book>>,
}

impl Bench {
    fn new(servers: usize) -> Self {
        let world = PausedWorld::new();
        let (env, network) = (Env::new(world.clone()), Env::new(world));
        let far = |at: usize| MS * u32::try_from(1 + at % 3).unwrap();
        let servers =
            (0..servers).map(|at| Server::new(&format!("server-{at}"), &network, far(at), far(at + 1)));
        Self { servers: servers.collect(), env, network, workers: Vec::new(), book: Arc::default() }
    }

    fn setup(worker: &str) -> QuorumConfig {
        QuorumConfig {
            worker: worker.into(),
            node_timeout: NODE_TIMEOUT,
            max_ttl: MAX_TTL,
            ..QuorumConfig::default()
        }
    }

    fn set(&self, nodes: &[usize]) -> NodeSet {
        nodes.iter().fold(NodeSet::default(), |set, at| set.node(Road(Arc::clone(&self.servers[*at]))))
    }

    fn change(&self, old: &[usize], new: &[usize]) -> Replacement {
        let (old, new) = (self.set(old), self.set(new));
        Replacement::new(self.env.clone(), Self::setup("operator"), old, new).expect("two lists")
    }

    /// Starts a worker that acquires the lock again and again, and holds it for a while each time.
    fn worker(&mut self, name: &'static str, nodes: &[usize]) -> Quorum {
        let nodes = nodes.iter().map(|at| Road(Arc::clone(&self.servers[*at])));
        let quorum = Quorum::builder().env(self.env.clone()).config(Self::setup(name)).nodes(nodes).build();
        let quorum = quorum.expect("a sound setup");
        let (inner, book) = (quorum.clone(), Arc::clone(&self.book));
        self.env.spawn(async move {
            let env = inner.env();
            while !env.stopped().is_cancelled() {
                let Ok(lease) = inner.lock("r").ttl(TTL).wait(TTL).acquire().await else {
                    env.sleep(50 * MS).await;
                    continue;
                };
                let until = env.now() + 700 * MS;
                if let Ok(token) = lease.fencing_token() {
                    // If `enter` panics, it poisons the mutex. The test then fails when it reads the book.
                    book.lock().unwrap().enter(name, token);
                    while lease.is_valid() && env.now() < until {
                        env.sleep(MS).await;
                    }
                    book.lock().unwrap().holder = None;
                }
                drop(lease);
                env.sleep(5 * MS).await;
            }
        });
        self.workers.push(quorum.clone());
        quorum
    }

    async fn until(&self, what: &str, within: Duration, holds: impl Fn(&Book) -> bool) {
        let give_up = self.env.now() + within;
        while !holds(&self.book.lock().unwrap()) {
            assert!(self.env.now() < give_up, "no {what} in {within:?}: {:?}", self.book);
            self.env.sleep(5 * MS).await;
        }
    }

    async fn end(self) {
        for worker in &self.workers {
            worker.close().await;
            assert_eq!(worker.env().tasks_alive(), 0);
        }
        self.env.finish().await;
        self.network.finish().await;
        // The tasks of the workers have ended. If one of them panicked, the mutex is poisoned, and this line
        // fails the test.
        let book = self.book.lock().expect("no worker has panicked: two held");
        let tokens: Vec<FencingToken> = book.grants.iter().map(|(_, token)| *token).collect();
        assert!(
            tokens.is_sorted() && tokens.windows(2).all(|two| two[0] < two[1]),
            "tokens: {:?}",
            book.grants
        );
    }
}

fn wins(book: &Book, name: &str) -> usize {
    book.grants.iter().filter(|(winner, _)| *winner == name).count()
}

/// Runs the change until the cut, and then again to its end. Returns whether it completed before the cut.
async fn once(size: usize, old: &[usize], new: &[usize], cut: Cut) -> bool {
    let mut bench = Bench::new(size);
    let worker = bench.worker("old", old);
    worker.met(MAX_TTL).await;
    worker.trust_nodes().await.expect("all are there");
    bench.until("lease of the old set", TTL, |book| wins(book, "old") > 0).await;
    // This worker gets the new list a little too early, before the change.
    let early = bench.worker("new", new);
    early.met(MAX_TTL).await;
    let change = bench.change(old, new);
    let finished = cut.run(change.run(|_| ())).await.is_some();
    bench.env.sleep(bench.env.random_below(300 * MS)).await;
    // The change runs to its end. A second run must then change nothing.
    for _ in 0..2 {
        let parts = bench.change(old, new).run(|_| ()).await.expect("all are there");
        let open = parts.iter().filter(|part| part.part != Part::Leaves);
        assert!(open.clone().count() == new.len() && open.clone().all(|part| part.found == Ok(Found::New)));
    }
    // A worker that has not seen the nodes while they were closed can acquire the lock at once.
    bench.worker("fresh", new);
    let before = wins(&bench.book.lock().unwrap(), "old");
    bench
        .until("lease of the new set", 2 * MAX_TTL, |book| wins(book, "new") + wins(book, "fresh") > 1)
        .await;
    bench.env.sleep(MAX_TTL).await;
    assert_eq!(wins(&bench.book.lock().unwrap(), "old"), before, "the old list elects no more");
    // The states that a worker with the old list reports must name both lists.
    let reported = worker.nodes().iter().any(|node| match &node.state {
        NodeState::Refused(why) => {
            let (text, names) = (why.to_string(), |nodes: &[usize]| bench.set(nodes).names().join(","));
            text.contains(&names(old)) && text.contains(&names(new))
        }
        _ => false,
    });
    assert!(reported, "{:?}", worker.nodes());
    bench.end().await;
    finished
}

fn block_on<T>(history: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(history)
}

/// Tests the change with a cut at each of its await points, until the change completes before its cut.
fn at_every_await_point(size: usize, old: &[usize], new: &[usize]) {
    let mut drops = 0;
    for kind in [Cut::Waiting, Cut::Woken] {
        let whole = (0..MOST).find(|&n| {
            println!("{old:?} to {new:?}, {}", kind(n));
            block_on(once(size, old, new, kind(n)))
        });
        drops += whole.expect("fewer await points than that");
    }
    println!("{old:?} to {new:?}: dropped {drops} times");
    assert!(drops > 10, "too few await points to prove anything: {drops}");
}

#[test]
fn one_server_for_another() {
    at_every_await_point(4, &[0, 1, 2], &[1, 2, 3]);
}

#[test]
fn three_servers_become_five() {
    at_every_await_point(5, &[0, 1, 2], &[0, 1, 2, 3, 4]);
}

/// Tests a change from five servers to three. Two of the three may have been in no majority of the old five, so
/// their memories must begin again.
#[test]
fn five_servers_become_three() {
    at_every_await_point(5, &[0, 1, 2, 3, 4], &[2, 3, 4]);
}

/// Tests that no token is given twice if staying servers have missed grants. The old majority has two servers
/// that leave and one that is unreachable later. The counters of the other two servers are too small.
#[test]
fn what_staying_servers_have_missed_makes_no_token_go_back() {
    block_on(async {
        let (mut bench, old, new) = (Bench::new(5), [0, 1, 2, 3, 4], [2, 3, 4]);
        let worker = bench.worker("old", &old);
        worker.met(MAX_TTL).await;
        worker.trust_nodes().await.expect("all are there");
        bench.until("leases of the old set", MAX_TTL, |book| wins(book, "old") > 1).await;
        bench.servers[3].set_up(false);
        bench.servers[4].set_up(false);
        let before = wins(&bench.book.lock().unwrap(), "old");
        bench.until("leases of three", 5 * MAX_TTL, |book| wins(book, "old") > before + 3).await;
        worker.close().await;
        bench.servers[3].set_up(true);
        bench.servers[4].set_up(true);
        bench.change(&old, &new).run(|_| ()).await.expect("all are there");
        bench.servers[2].set_up(false);
        bench.worker("new", &new);
        bench.until("lease of the new set", 2 * MAX_TTL, |book| wins(book, "new") > 1).await;
        bench.end().await;
    });
}

#[test]
fn all_servers_are_new() {
    at_every_await_point(6, &[0, 1, 2], &[3, 4, 5]);
}

#[test]
fn looks_write_nothing() {
    for n in 0..MOST {
        let done = block_on(async {
            let bench = Bench::new(4);
            let change = bench.change(&[0, 1, 2], &[1, 2, 3]);
            let surveyed = Cut::Waiting(n).run(change.survey()).await;
            let set = bench.set(&[0, 1, 2, 3]);
            let looked = Cut::Waiting(n).run(set.look(&bench.env, MAX_TTL)).await;
            for sight in set.look(&bench.env, MAX_TTL).await {
                assert_eq!(sight.expect("it is there").hello.marker, None);
            }
            if let Some(parts) = &surveyed {
                let found = parts
                    .as_ref()
                    .expect("it may be done")
                    .iter()
                    .map(|part| (part.part, part.found.clone()));
                let (stays, joins, leaves) = (Part::Stays, Part::Joins, Part::Leaves);
                let un = Ok(Found::Unmarked);
                let all = [stays, stays, joins, leaves].map(|part| (part, un.clone()));
                assert!(found.eq(all), "{surveyed:?}");
            }
            bench.end().await;
            surveyed.is_some() && looked.is_some()
        });
        if done {
            assert!(n > 3, "it has await points");
            return;
        }
    }
    panic!("it never ends");
}

#[test]
fn too_few_of_the_old_set_or_one_new_node_away_and_nothing_is_opened() {
    block_on(async {
        let mut bench = Bench::new(4);
        let worker = bench.worker("old", &[0, 1, 2]);
        worker.met(MAX_TTL).await;
        worker.trust_nodes().await.expect("all are there");
        bench.servers[3].set_up(false);
        let error = bench.change(&[0, 1, 2], &[1, 2, 3]).run(|_| ()).await.expect_err("server 3 is away");
        assert!(matches!(&error, ReplaceError::NewNodeAway { node, .. } if &**node == "server-3"), "{error}");
        // The change was refused, so the workers with the old list can still acquire the lock.
        bench.until("lease of the old set", TTL, |book| wins(book, "old") > 1).await;
        bench.servers[3].set_up(true);
        bench.servers[0].set_up(false);
        bench.servers[1].set_up(false);
        let error =
            bench.change(&[0, 1, 2], &[1, 2, 3]).run(|_| ()).await.expect_err("one of three is there");
        let text = error.to_string();
        assert!(matches!(error, ReplaceError::NotClosed { shut: 1, needed: 2, .. }), "{text}");
        assert!(text.contains("server-0") && text.contains("server-1"), "{text}");
        // A leaving server may be unreachable, because the other servers are a majority.
        bench.servers[1].set_up(true);
        let (mut reported, env) = (Vec::new(), bench.env.clone());
        let change = bench.change(&[0, 1, 2], &[1, 2, 3]);
        let parts = change.run(|step| reported.push((env.now(), step))).await.expect("enough");
        assert_eq!(parts.iter().filter(|part| part.found == Ok(Found::New)).count(), 3);
        assert!(
            reported.iter().any(|(_, step)| matches!(step, Progress::Left(node, _) if &**node == "server-0"))
        );
        let at = |wanted: &str| {
            let step = reported.iter().rev().find(|(_, step)| format!("{step:?}").starts_with(wanted));
            step.unwrap_or_else(|| panic!("no {wanted}: {reported:?}")).0
        };
        assert!(at("Closed").until(at("Opened")) >= MAX_TTL, "{reported:?}");
        // Server 0 still has the old list, so this change is not complete. Until it is complete, another
        // change must be refused.
        bench.servers[0].set_up(true);
        let error =
            bench.change(&[0, 1], &[1, 2]).run(|_| ()).await.expect_err("another set is stored there");
        assert!(matches!(error, ReplaceError::Unfit { .. }), "{error}");
        bench.end().await;
    });
}
