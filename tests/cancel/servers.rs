//! Tests of the futures that need a real server, or that connect the library to one.

use crate::cut::Cut;
use futures_util::{FutureExt, future::BoxFuture};
use quorate::redis::RedisNode;
use quorate::{
    env::Env,
    node::{
        Batch, BatchReply, Cause, FencingToken, FileNode, MemoryNode, Node, NodeTime, Owner, PushSender,
        Reply, Request, Resource, Session,
    },
    quorum::Quorum,
};
use quorate_testkit::redis::RedisServer;
use std::time::Duration;

/// The futures that the tests of this file cover. Every test also covers `World::sleep_until`, because it uses
/// timers.
pub(crate) const TRIED: &[&str] = &[
    "Quorum::connect",
    "Node::open",
    "RedisNode::examine",
    "RedisNode::stored_names",
    "QuorumBuilder::connect",
    "Session::send",
    "World::sleep_until",
    "::shutdown_signal",
];

/// The longest wait for an event that must happen, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// A number that is larger than the number of await points of any of these futures.
const MOST: usize = 200;

fn server() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until the server has no connection except the one that this check uses.
async fn nobody_is_connected(server: &RedisServer, what: &str) {
    let env = Env::system();
    let give_up = env.now() + PATIENCE;
    loop {
        let clients = server.command(&["CLIENT", "LIST"]);
        if clients.lines().filter(|line| line.contains("cmd=")).count() <= 1 {
            return;
        }
        assert!(env.now() < give_up, "{what}: connections are left:\n{clients}");
        env.sleep(Duration::from_millis(5)).await;
    }
}

/// Runs `work` with a cut at each of its await points, until `work` completes before the cut. Tests both kinds
/// of cuts.
async fn at_every_await_point<T>(what: &str, server: &RedisServer, work: impl AsyncFn() -> T) {
    let mut drops = 0;
    for kind in [Cut::Waiting, Cut::Woken] {
        for n in 0..=MOST {
            assert!(n < MOST, "{what}: more than {MOST} await points");
            let done = kind(n).run(work()).await.is_some();
            nobody_is_connected(server, &format!("{what}, {}", kind(n))).await;
            if done {
                break;
            }
            drops += 1;
        }
    }
    assert!(drops > 0, "{what} has no await point: this proves nothing");
}

#[tokio::test]
async fn connect() {
    let server = server();
    at_every_await_point("Quorum::connect", &server, async || {
        Quorum::connect([server.url()]).await.expect("it is there");
    })
    .await;
    assert!(
        server.command(&["KEYS", "*"]).lines().all(|key| key == "quorate:node"),
        "nothing but its marker"
    );
}

#[tokio::test]
async fn connect_a_builder() {
    let server = server();
    at_every_await_point("QuorumBuilder::connect", &server, async || {
        let builder = Quorum::redis([server.url()]).expect("a URL");
        builder.worker("w").connect().await.expect("sound settings");
    })
    .await;
    assert!(
        server.command(&["KEYS", "*"]).lines().all(|key| key == "quorate:node"),
        "nothing but its marker"
    );
}

#[tokio::test]
async fn examine() {
    let server = server();
    let node = RedisNode::parse(&server.url()).expect("a URL");
    at_every_await_point("RedisNode::examine", &server, async || node.examine().await.expect("it is there"))
        .await;
    assert_eq!(server.command(&["DBSIZE"]), "0", "it only looks");
}

#[tokio::test]
async fn stored_names() {
    let server = server();
    let node = RedisNode::parse(&server.url()).expect("a URL");
    let query = quorate::admin::NamesQuery::locks(10);
    at_every_await_point("RedisNode::stored_names", &server, async || {
        node.stored_names(&query).await.expect("it is there")
    })
    .await;
    assert_eq!(server.command(&["DBSIZE"]), "0", "it only looks");
}

#[tokio::test]
async fn open() {
    let server = server();
    let node = RedisNode::parse(&server.url()).expect("a URL");
    at_every_await_point("Node::open of a RedisNode", &server, async || {
        node.open(PushSender::channel().0).await.expect("it is there");
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let node = FileNode::new(dir.path().join("node"));
    for n in 0..MOST {
        if Cut::Waiting(n).run(node.open(PushSender::channel().0)).await.is_some() {
            return;
        }
    }
    panic!("a FileNode never opens");
}

/// Sends one request under the marker that the node stores. Its `not_after` is a minute ahead, so that no node
/// refuses it as late.
fn post(session: &mut impl Session, request: Request) -> BoxFuture<'static, Result<BatchReply, Cause>> {
    let not_after = NodeTime::from_micros(Env::system().wall().as_micros() + 60_000_000);
    session.send(Batch { requests: vec![request], not_after, stamp: "m".into() }).boxed()
}

/// Checks that a batch runs even if its reply is dropped. Each batch must run once, and the batches must run
/// in order.
async fn a_dropped_reply_loses_no_batch(node: impl Node) {
    let (resource, keep) = (Resource::lock("r").expect("a name"), Duration::from_secs(60));
    let (mut session, _) = node.open(PushSender::channel().0).await.expect("it is there");
    let marker = Request::Mark { expect: None, marker: "m".into() };
    post(&mut session, marker).await.expect("marked");
    for (n, cut) in (0..).zip([Cut::Unpolled, Cut::Waiting(0), Cut::Woken(0)]) {
        let owner = Owner::sign("me", n, 1);
        let acquire = Request::Acquire {
            resource: resource.clone(),
            owner: owner.clone(),
            ttl: keep,
            propose: FencingToken::new(Env::system().wall().as_micros()),
            tolerance: Duration::from_secs(5),
            keep,
            ticket: None,
        };
        let inspect = || Request::Inspect { resource: resource.clone() };
        cut.run(post(&mut session, acquire)).await;
        let held = post(&mut session, inspect()).await.expect("an answer");
        let Reply::State { holder: Some((holder, _)), .. } = &held.replies[0] else {
            panic!("{cut}: the batch was lost: {held:?}")
        };
        assert_eq!(*holder, owner);
        cut.run(post(&mut session, Request::Release { resource: resource.clone(), owner })).await;
        let free = post(&mut session, inspect()).await.expect("an answer");
        assert!(matches!(&free.replies[0], Reply::State { holder: None, .. }), "{cut}: {free:?}");
    }
}

#[tokio::test]
async fn send() {
    let server = server();
    a_dropped_reply_loses_no_batch(RedisNode::parse(&server.url()).expect("a URL")).await;
    a_dropped_reply_loses_no_batch(MemoryNode::new("memory")).await;
    let dir = tempfile::tempdir().expect("a directory");
    a_dropped_reply_loses_no_batch(FileNode::new(dir.path().join("node"))).await;
}

/// Checks that a dropped wait takes nothing from the next one, and that a signal ends the wait and not the process.
#[tokio::test]
async fn shutdown_signal() {
    let env = Env::system();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut dropped = Box::pin(quorate::shutdown_signal());
        assert!((&mut dropped).now_or_never().is_none(), "no signal has arrived");
        drop(dropped);
        let mut waits = Box::pin(quorate::shutdown_signal());
        assert!((&mut waits).now_or_never().is_none(), "no signal has arrived");
        rustix::process::kill_process(rustix::process::getpid(), signal).expect("this process lives");
        env.before(env.now() + PATIENCE, waits).await.expect("the signal has arrived");
    }
}
