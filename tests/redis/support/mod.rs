//! A client of a single node, and short functions that build and send requests.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses what it needs; tests fail by panic"
)]

use quorate::redis::{RedisNode, RedisSession};
use quorate::{
    env::{Env, SystemWorld, World},
    node::{
        Batch, Cause, FencingToken, Hello, Node, NodeTime, Owner, PushSender, Reply, Request, Resource,
        Session,
    },
};
use quorate_testkit::redis::RedisServer;
use std::{sync::Arc, time::Duration};

pub(crate) const LONG: Duration = Duration::from_secs(60);
pub(crate) const STAMP: &str = "the marker";

pub(crate) struct NodeClient {
    pub(crate) node: RedisNode,
    pub(crate) session: RedisSession,
    pub(crate) hello: Hello,
    pub(crate) stamp: Arc<str>,
}

impl NodeClient {
    pub(crate) async fn bare(node: RedisNode) -> Self {
        let (session, hello) = soon(node.open(PushSender::channel().0)).await.unwrap();
        Self::of(node, session, hello)
    }

    pub(crate) async fn marked(node: RedisNode) -> Self {
        let mut client = Self::bare(node).await;
        let mark = Request::Mark { expect: None, marker: STAMP.into() };
        assert_eq!(client.ask(mark).await, Reply::Marked);
        client
    }

    pub(crate) fn of(node: RedisNode, session: RedisSession, hello: Hello) -> Self {
        Self { node, session, hello, stamp: STAMP.into() }
    }

    pub(crate) fn batch(&self, requests: Vec<Request>) -> Batch {
        Batch { requests, not_after: NodeTime::from_micros(u64::MAX), stamp: Arc::clone(&self.stamp) }
    }

    pub(crate) async fn try_ask(&mut self, requests: Vec<Request>) -> Result<Vec<Reply>, Cause> {
        let batch = self.batch(requests);
        soon(self.session.send(batch)).await.map(|reply| reply.replies)
    }

    pub(crate) async fn ask(&mut self, request: Request) -> Reply {
        self.try_ask(vec![request]).await.unwrap().remove(0)
    }

    pub(crate) async fn must_acquire(&mut self, name: &str, by: u64) {
        let reply = self.ask(acquire(name, by)).await;
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    }

    pub(crate) fn raw_get(&self, server: &RedisServer, database: u32, key: &str) -> String {
        let script = format!("redis.call('SELECT', {database}) return redis.call('GET', KEYS[1]) or '(nil)'");
        server.command(&["EVAL", &script, "1", key])
    }
}

pub(crate) fn acquire(name: &str, by: u64) -> Request {
    Request::Acquire {
        resource: lock(name),
        owner: owner(by),
        ttl: LONG,
        propose: FencingToken::new(SystemWorld.wall().as_micros()),
        tolerance: Duration::from_secs(5),
        keep: LONG,
        ticket: None,
    }
}

pub(crate) fn lock(name: &str) -> Resource {
    Resource::lock(name).unwrap()
}

pub(crate) fn owner(number: u64) -> Owner {
    Owner::sign("worker", number, 7)
}

/// Returns the output of `work`. Fails if it takes longer than ten seconds.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    let env = Env::system();
    match env.before(env.now() + Duration::from_secs(10), work).await {
        Some(done) => done,
        None => panic!("timed out after ten seconds"),
    }
}
