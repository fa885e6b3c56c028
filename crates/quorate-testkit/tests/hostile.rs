//! Checks that servers which violate the protocol on purpose have no vote and do no harm. A text that such a
//! server sends must never be printed without escapes.
//!
//! `QUORATE_CASES=200` tries more seeds than CI does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use quorate::redis::RedisNode;
use quorate::{
    env::{Env, SystemWorld, World},
    lease::{Lease, TryAcquire},
    ledger::{Ledger, LedgerError},
    node::{
        Batch, BatchReply, Cause, DoneRecord, FencingToken, Hello, Incarnation, MemoryNode, MemorySession,
        Node, NodeTime, Owner, PushSender, Record, Refusal, Reply, Request, Resource, Session, StampStep,
        copy::{AssignmentId, LeadAct, Seal, WorkAct},
    },
    quorum::{NodeState, Quorum, QuorumBuilder, QuorumConfig},
    scheduler::{Job, Schedule, Scheduler},
};
use quorate_testkit::hostile::{HostileServer, Hostility};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const PASSWORD: &str = "hunter2-hunter2";
const TTL: Duration = Duration::from_secs(5);

/// The longest wait for an event that must happen, on a slow machine. A round takes a tenth of a second.
const BOUND: Duration = Duration::from_secs(20);

/// A quorum of `honest` memory nodes, and of hostile servers.
struct Cluster {
    servers: Vec<HostileServer>,
    quorum: Quorum,
}

impl Cluster {
    fn new(honest: usize, hostile: &[Hostility]) -> Self {
        let servers: Vec<_> = hostile.iter().map(|kind| HostileServer::start(*kind).unwrap()).collect();
        let nodes = (0..honest).map(|number| MemoryNode::new(&format!("memory{number}")));
        let redis = servers.iter().map(|server| RedisNode::parse(&server.url(PASSWORD)).unwrap());
        let quorum = Quorum::builder().nodes(nodes).nodes(redis).trust_new_nodes(true);
        // This process reads megabytes from the hostile nodes. On a slow machine, the honest nodes must still
        // answer in time.
        let quorum = quorum.node_timeout(Duration::from_millis(400)).build().unwrap();
        Self { servers, quorum }
    }

    /// Checks that the descriptions of the quorum's nodes, which are written to logs, have no control
    /// characters.
    fn check_words(&self) {
        for node in self.quorum.nodes() {
            fit_to_print(&format!("{node:?}"));
        }
    }
}

#[track_caller]
fn fit_to_print(text: &str) {
    assert!(text.len() < 16_000, "{} bytes: {text:.300}", text.len());
    assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
    assert!(!text.contains(PASSWORD), "{text}");
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    let env = Env::system();
    env.before(env.now() + BOUND, work).await.unwrap_or_else(|| panic!("nothing came in {BOUND:?}"))
}

async fn acquire(quorum: &Quorum) -> Lease {
    soon(quorum.lock("r").ttl(TTL).acquire()).await.unwrap()
}

/// Checks that three honest nodes of five are enough, whatever the two hostile nodes reply.
async fn a_hostile_minority_blocks_no_lock(hostile: &[Hostility]) {
    let cluster = Cluster::new(3, hostile);
    let mut last = None;
    for _ in 0..3 {
        let lease = acquire(&cluster.quorum).await;
        let token = lease.fencing_token().unwrap();
        assert!(last < Some(token), "{hostile:?}: tokens grow: {last:?}, {token}");
        last = Some(token);
        soon(lease.extend()).await.unwrap();
        let tried = soon(cluster.quorum.lock("r").ttl(TTL).try_acquire()).await;
        assert!(!matches!(tried, Ok(TryAcquire::Acquired(_))), "{hostile:?}: held twice");
        if let Err(error) = tried {
            fit_to_print(&error.to_string());
        }
        assert!(lease.fencing_token().is_ok());
        // The three honest nodes are exactly a majority. The release therefore succeeds only if all three
        // confirm it.
        soon(lease.release()).await.unwrap();
        cluster.check_words();
    }
    soon(cluster.quorum.close()).await;
}

/// Checks that a worker soon rejects a ledger whose pages never end, or are impossible in another way.
#[tokio::test]
async fn impossible_ledger_pages_are_no_answer() {
    for kind in Hostility::PAGERS {
        let cluster = Cluster::new(3, &[kind; 2]);
        soon(all_trusted(&cluster.quorum)).await;
        let ledger = Ledger::new(&cluster.quorum, "g").unwrap();
        assert_eq!(soon(ledger.read()).await.unwrap().len(), 3, "{kind:?}: the honest answer");
        soon(ledger.prune(3)).await.unwrap();
        cluster.check_words();
        soon(cluster.quorum.close()).await;

        let cluster = Cluster::new(2, &[kind; 3]);
        soon(all_trusted(&cluster.quorum)).await;
        let ledger = Ledger::new(&cluster.quorum, "g").unwrap();
        let error = soon(ledger.read()).await.unwrap_err();
        assert!(matches!(error, LedgerError::NoMajority(_)), "{kind:?}: {error}");
        // On a busy machine, a page of several megabytes may take longer than the node timeout.
        let late = kind == Hostility::HugePage && error.to_string().contains("no reply in time");
        assert!(late || error.to_string().contains("unexpected reply"), "{kind:?}: {error}");
        fit_to_print(&error.to_string());
        soon(cluster.quorum.close()).await;
    }
}

/// Checks that a leader takes its ledger over and runs a job, whatever pages two hostile nodes of five return.
#[tokio::test]
async fn impossible_ledger_pages_block_no_scheduler() {
    for kind in Hostility::PAGERS.into_iter().chain([Hostility::RepeatedRecords]) {
        let cluster = Cluster::new(3, &[kind; 2]);
        let ran = CancellationToken::new();
        let runs = ran.clone();
        let job = Job::new("j", Schedule::every(Duration::from_millis(200)).unwrap(), move |_| {
            runs.cancel();
            async { Ok::<(), Infallible>(()) }
        });
        soon(Scheduler::new(&cluster.quorum, "g").job(job).run().until(ran.cancelled_owned())).await.unwrap();
        cluster.check_words();
        soon(cluster.quorum.close()).await;
    }
}

/// Checks that a record is counted once if a server returns it twice.
#[tokio::test]
async fn a_record_returned_twice_is_read_once() {
    let cluster = Cluster::new(1, &[Hostility::RepeatedRecords; 2]);
    soon(all_trusted(&cluster.quorum)).await;
    let answered = soon(Ledger::new(&cluster.quorum, "g").unwrap().read()).await.unwrap();
    let counts: Vec<_> = answered.iter().map(|one| one.state.records.len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 2, "{counts:?}");
    soon(cluster.quorum.close()).await;
}

/// Checks that three hostile nodes never form a majority together with two honest nodes. No hostile node has
/// a vote.
async fn a_majority_is_never_believed(hostility: Hostility) {
    let cluster = Cluster::new(2, &[hostility; 3]);
    let tried = soon(cluster.quorum.lock("r").ttl(TTL).wait(Duration::from_millis(1_500)).acquire()).await;
    let error = tried.err().unwrap_or_else(|| panic!("{hostility:?}: a lease on garbage"));
    fit_to_print(&error.to_string());
    cluster.check_words();
    for server in &cluster.servers {
        assert!(server.connections() > 0, "{hostility:?}: it was never asked");
    }
    soon(cluster.quorum.close()).await;
}

/// Runs `work` for each of `kinds`. Four run at the same time, because they mostly wait.
async fn for_each<F: Future<Output = ()>>(kinds: &[Hostility], work: impl Fn(Hostility) -> F) {
    for some in kinds.chunks(4) {
        futures_util::future::join_all(some.iter().map(|kind| work(*kind))).await;
    }
}

#[tokio::test]
async fn two_hostile_nodes_of_five_block_no_lock() {
    for_each(&Hostility::BREAKERS, |kind| async move { a_hostile_minority_blocks_no_lock(&[kind; 2]).await })
        .await;
}

#[tokio::test]
async fn three_hostile_nodes_of_five_have_no_vote() {
    for_each(&Hostility::BREAKERS, a_majority_is_never_believed).await;
}

/// Checks that a server never votes if it reports another run id at each connection. Such a server seems to
/// have restarted each time, so its quarantine never ends. (New nodes are not trusted in this test.)
#[tokio::test]
async fn a_node_of_another_run_each_time_has_no_vote() {
    let servers: Vec<_> = (0..3).map(|_| HostileServer::start(Hostility::AnotherRun).unwrap()).collect();
    let honest = (0..2).map(|number| MemoryNode::new(&format!("memory{number}")));
    let hostile = servers.iter().map(|server| RedisNode::parse(&server.url(PASSWORD)).unwrap());
    let setup = QuorumConfig { max_ttl: Duration::from_secs(2), ..QuorumConfig::default() };
    let quorum = Quorum::builder().config(setup).nodes(honest).nodes(hostile).build().unwrap();
    let tried =
        soon(quorum.lock("r").ttl(Duration::from_secs(1)).wait(Duration::from_secs(4)).acquire()).await;
    fit_to_print(&tried.err().unwrap().to_string());
    // The honest nodes are in quarantine at first. Their quarantine begins once every other node has answered
    // or is known to be unreachable.
    let trusted = || quorum.nodes().iter().filter(|node| node.state == NodeState::Trusted).count();
    let env = Env::system();
    soon(async {
        while trusted() < 2 {
            env.sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let tried =
        soon(quorum.lock("r").ttl(Duration::from_secs(1)).wait(Duration::from_secs(1)).acquire()).await;
    fit_to_print(&tried.err().unwrap().to_string());
    assert_eq!(trusted(), 2, "no hostile one: {:?}", quorum.nodes());
    assert!(servers.iter().all(|server| server.connections() > 1));
    soon(quorum.close()).await;
}

#[tokio::test]
async fn any_mixture_of_hostility_blocks_no_lock() {
    let seeds = std::env::var("QUORATE_CASES").map_or(12, |text| text.parse().unwrap());
    for seed in 0..seeds {
        let one = Hostility::Mixed(seed);
        let two = Hostility::BREAKERS[usize::try_from(seed).unwrap() % Hostility::BREAKERS.len()];
        println!("seed {seed}");
        a_hostile_minority_blocks_no_lock(&[one, two]).await;
    }
}

/// Checks exclusion with one node that grants every request of every client. No client can distinguish this
/// node from an honest one. With four honest nodes, exclusion holds as long as the holder has the grants of
/// three honest nodes. If the round asks all nodes, the holder gets these grants at once. If the round asks a
/// majority first, the holder gets them once the lease has been extended to all nodes.
#[tokio::test]
async fn one_liar_of_five_makes_no_second_holder_beside_three_honest_nodes() {
    for asks_all in [true, false] {
        no_second_holder_beside_three_honest_nodes(asks_all).await;
    }
}

async fn no_second_holder_beside_three_honest_nodes(asks_all: bool) {
    let server = HostileServer::start(Hostility::Liar).unwrap();
    let honest: Vec<_> = (0..4).map(|number| Switched::new(&format!("memory{number}"))).collect();
    let [a, b] = [(); 2].map(|()| builder(&honest, &server).ask_all_nodes(asks_all).build().unwrap());
    for worker in [&a, &b] {
        soon(all_trusted(worker)).await;
    }
    let lease = acquire(&a).await;
    let on_honest_nodes = async {
        loop {
            let seen = a.inspect(lease.resource()).await.unwrap();
            if seen.named.iter().any(|(owner, nodes)| owner == lease.owner() && *nodes >= honest.len()) {
                return;
            }
            a.env().sleep(Duration::from_millis(5)).await;
        }
    };
    soon(on_honest_nodes).await;
    for _ in 0..5 {
        let tried = soon(b.lock("r").ttl(TTL).try_acquire()).await;
        assert!(!matches!(tried, Ok(TryAcquire::Acquired(_))), "two holders");
    }
    assert!(lease.fencing_token().is_ok());
    assert!(server.batches() > 0, "the liar was asked");
    soon(lease.release()).await.unwrap();
    for worker in [a, b] {
        soon(worker.close()).await;
    }
}

/// Returns requests for which the Redis node uses each of its scripts.
fn one_of_each() -> Vec<Request> {
    let (seal, id) = (Seal { term: FencingToken::new(7), leader: 1 }, AssignmentId::default());
    let (lock, claim) = (Resource::lock("r").unwrap(), Resource::claim("s", "m").unwrap());
    let (owner, ledger, token, keep): (_, Arc<str>, _, _) =
        (Owner::sign("w", 1, 2), "g".into(), FencingToken::new(7), TTL);
    let record = Record { at: 1, term: token, last: false, value: "v".into() };
    let mut requests = Vec::new();
    for resource in [&lock, &claim] {
        let (resource, owner) = (resource.clone(), owner.clone());
        let acquire = Request::Acquire {
            resource: resource.clone(),
            owner: owner.clone(),
            ttl: TTL,
            propose: token,
            tolerance: TTL,
            keep,
            ticket: None,
        };
        requests.extend([
            acquire,
            Request::Raise { resource: resource.clone(), owner: owner.clone(), to: token, keep },
            Request::Extend { resource: resource.clone(), owner: owner.clone(), ttl: TTL, token, keep },
            Request::Release { resource: resource.clone(), owner: owner.clone() },
            Request::Inspect { resource: resource.clone() },
            // A request for a reader is not valid for a claim. It is handled by the script that refuses
            // invalid requests.
            Request::Share { resource, owner, ttl: TTL, ticket: None },
        ]);
    }
    let (resource, reader) = (lock.clone(), Owner::sign("w", 3, 4));
    requests.extend([
        Request::ExtendShare { resource: lock.clone(), owner: reader.clone(), ttl: TTL },
        Request::ReleaseShare { resource: lock.clone(), owner: reader.clone() },
        Request::Downgrade {
            resource: lock.clone(),
            owner: owner.clone(),
            token,
            reader: reader.clone(),
            ttl: TTL,
        },
        Request::Queue {
            resource: lock.clone(),
            ticket: reader.clone(),
            at: 1,
            now: 1,
            tolerance: TTL,
            ttl: TTL,
            exclusive: true,
        },
        Request::LeaveQueue { resource: lock.clone(), ticket: reader },
        Request::Reserve { resource, owner: owner.clone(), successor: Owner::reserve("w", 5, 6), ttl: TTL },
        Request::Complete {
            resource: claim.clone(),
            owner: owner.clone(),
            record: DoneRecord { token, ..DoneRecord::default() },
            retention: keep,
        },
        Request::Count { resource: claim.clone(), owner, attempts: 1, payload: None, withdraw: false, keep },
        Request::ResetAttempts { resource: claim, keep },
        Request::Write { ledger: Arc::clone(&ledger), key: "k".into(), seen: None, record },
        Request::Prune { ledger: Arc::clone(&ledger), below: 1, after: None },
        Request::Read { ledger: Arc::clone(&ledger), after: None, key: None },
        Request::SealCopy { ledger: Arc::clone(&ledger), seal, after: None },
        Request::Lead {
            ledger: Arc::clone(&ledger),
            seal,
            memory: Incarnation::default(),
            act: LeadAct::Confirm,
        },
        Request::Work { ledger: Arc::clone(&ledger), key: "k".into(), id, act: WorkAct::Start },
        Request::Keep { ledger, life: keep },
        Request::Mark { expect: None, marker: "marker".into() },
        Request::Stamp {
            own: "a".into(),
            known: [("a".into(), 1), ("b".into(), 7)].into(),
            step: StampStep::Advance,
        },
    ]);
    requests
}

/// Checks the hostile server's list of scripts, in which each script has a number. If the list were wrong,
/// the other tests would meet protocol errors, and not the kind of hostility that they test.
#[tokio::test]
async fn the_server_has_a_valid_reply_to_every_script() {
    let server = HostileServer::start(Hostility::Liar).unwrap();
    let node = RedisNode::parse(&server.url(PASSWORD)).unwrap();
    let (mut session, _hello) = soon(node.open(PushSender::channel().0)).await.unwrap();
    let not_after = NodeTime::from_micros(u64::MAX >> 12);
    let mut ask = async |requests: Vec<Request>| {
        let batch = Batch { requests: requests.clone(), not_after, stamp: "marker".into() };
        let replies =
            soon(session.send(batch)).await.unwrap_or_else(|error| panic!("{requests:?}: {error}")).replies;
        assert_eq!(replies.len(), requests.len());
        for (request, reply) in requests.iter().zip(&replies) {
            assert!(request.is_answered_by(reply), "{request:?}: {reply:?}");
        }
    };
    let requests = one_of_each();
    for request in &requests {
        ask(vec![request.clone()]).await;
    }
    // Requests that share one script are sent together: first those on locks, then those on claims.
    ask(requests[..4].to_vec()).await;
    ask(requests[6..10].to_vec()).await;
    assert_eq!(
        server.scripts_not_served(),
        [0; 0],
        "each script has an entry in the server's table and a request here"
    );
}

/// Checks that a hostile server grants an acquire by plain commands, so that the other tests meet broken replies to these.
#[tokio::test]
async fn the_server_has_a_valid_reply_to_plain_commands() {
    let server = HostileServer::start(Hostility::Liar).unwrap();
    let node = RedisNode::parse(&server.url(PASSWORD)).unwrap();
    let (mut session, _hello) = soon(node.open(PushSender::channel().0)).await.unwrap();
    let acquire =
        one_of_each().into_iter().find(|request| matches!(request, Request::Acquire { .. })).unwrap();
    let mut counts = Vec::new();
    for _ in 0..2 {
        let not_after = SystemWorld.wall() + Duration::from_millis(100);
        let batch = Batch { requests: vec![acquire.clone()], not_after, stamp: "marker".into() };
        match &soon(session.send(batch)).await.unwrap().replies[..] {
            [Reply::Granted { counter, .. }] => counts.push(*counter),
            // The server has no marker yet.
            [Reply::MayHold(Refusal::Marker(None))] => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(counts.len(), 1, "the first acquire is served by a script, and the second by commands");
    assert_eq!(server.batches(), 1);
}

/// Shows a limit of the guarantee: a majority with a lying node proves nothing. Two workers both hold the lock
/// if each reaches the lying node and a different half of the honest nodes. Redlock has to trust the answers of
/// nodes.
#[tokio::test]
async fn one_liar_of_five_makes_two_holders_if_each_reaches_half_of_the_honest_nodes() {
    let server = HostileServer::start(Hostility::Liar).unwrap();
    let honest: Vec<_> = (0..4).map(|number| Switched::new(&format!("memory{number}"))).collect();
    // Each worker has switches of its own. Otherwise the first worker could store its lease on the other nodes too
    // before the second one acquires it.
    let [of_a, of_b] = [(); 2].map(|()| honest.iter().map(Switched::with_own_switch).collect::<Vec<_>>());
    of_a[2..].iter().chain(&of_b[..2]).for_each(|node| node.switch(false));
    let (a, b) = (worker(&of_a, &server), worker(&of_b, &server));
    let (first, second) = (acquire(&a).await, acquire(&b).await);
    assert!(
        first.fencing_token().is_ok() && second.fencing_token().is_ok(),
        "the limit of the guarantee has changed: document it"
    );
}

/// Checks a server that reports hundreds of releases that did not happen. These reports must wake no waiter
/// and fill no memory. A waiter polls as often as if that server were silent, and is woken by the releases
/// that the other servers report.
#[tokio::test]
async fn false_release_messages_wake_no_waiter() {
    let server = HostileServer::start(Hostility::NoisyPushes).unwrap();
    let honest: Vec<_> = (0..4).map(|number| MemoryNode::new(&format!("memory{number}"))).collect();
    // The hostile server also grants every request. A lease must therefore be stored on three honest nodes,
    // and the round asks all nodes at once.
    let [a, b] = [(); 2].map(|()| {
        let liar = RedisNode::parse(&server.url(PASSWORD)).unwrap();
        let builder = Quorum::builder().nodes(honest.iter().cloned()).node(liar).trust_new_nodes(true);
        builder.ask_all_nodes(true).build().unwrap()
    });
    for worker in [&a, &b] {
        soon(all_trusted(worker)).await;
    }
    let env = Env::system();
    for _ in 0..3 {
        let lease = acquire(&a).await;
        let before = server.batches();
        let waiting = acquire(&b);
        tokio::pin!(waiting);
        let early = env.before(env.now() + Duration::from_millis(500), &mut waiting).await;
        assert!(early.is_none() && lease.fencing_token().is_ok(), "two holders");
        let asked = server.batches() - before;
        assert!((2..60).contains(&asked), "{asked} calls in half a second: it was woken by noise");
        soon(lease.release()).await.unwrap();
        soon(waiting.await.release()).await.unwrap();
    }
    for quorum in [a, b] {
        soon(quorum.close()).await;
    }
}

async fn all_trusted(quorum: &Quorum) {
    while !quorum.nodes().iter().all(|node| node.state == NodeState::Trusted) {
        quorum.env().sleep(Duration::from_millis(5)).await;
    }
}

fn worker(honest: &[Switched], liar: &HostileServer) -> Quorum {
    builder(honest, liar).build().unwrap()
}

fn builder(honest: &[Switched], liar: &HostileServer) -> QuorumBuilder {
    let liar = RedisNode::parse(&liar.url(PASSWORD)).unwrap();
    Quorum::builder().nodes(honest.iter().cloned()).node(liar).trust_new_nodes(true)
}

/// A memory node whose connection a test can cut.
#[derive(Clone)]
struct Switched {
    node: MemoryNode,
    on: Arc<AtomicBool>,
}

impl Switched {
    fn new(name: &str) -> Self {
        Self { node: MemoryNode::new(name), on: Arc::new(AtomicBool::new(true)) }
    }

    /// Returns the same node over a connection with a switch of its own.
    fn with_own_switch(&self) -> Self {
        Self { node: self.node.clone(), on: Arc::new(AtomicBool::new(true)) }
    }

    fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Release);
    }
}

struct SwitchedSession(MemorySession, Arc<AtomicBool>);

impl Node for Switched {
    type Session = SwitchedSession;

    fn name(&self) -> &str {
        self.node.name()
    }

    async fn open(&self, push_sender: PushSender) -> Result<(SwitchedSession, Hello), Cause> {
        if !self.on.load(Ordering::Acquire) {
            return Err(Cause::Unreachable("switched off".into()));
        }
        let (session, hello) = self.node.open(push_sender).await?;
        Ok((SwitchedSession(session, Arc::clone(&self.on)), hello))
    }
}

impl Session for SwitchedSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let reply = self.1.load(Ordering::Acquire).then(|| self.0.send(batch));
        async move {
            match reply {
                Some(reply) => reply.await,
                None => Err(Cause::Closed),
            }
        }
    }
}
