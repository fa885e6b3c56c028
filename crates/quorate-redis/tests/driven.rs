//! Tests of a session whose input and output the caller carries on, as the driver of a node does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

mod support;

use futures_util::FutureExt;
use quorate::node::{BatchReply, Cause, Reply, Request, Session};
use quorate_redis::{RedisNode, RedisSession};
use quorate_testkit::redis::RedisServer;
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};
use support::{NodeClient, acquire, lock, owner, soon};

fn node(server: &RedisServer) -> RedisNode {
    RedisNode::parse(&format!("redis://127.0.0.1:{}", server.port())).unwrap()
}

/// Returns the output of `reply`. Polls the session before each poll of it.
async fn driven(
    session: &mut RedisSession,
    reply: impl Future<Output = Result<BatchReply, Cause>>,
) -> Result<BatchReply, Cause> {
    let mut reply = pin!(reply);
    soon(poll_fn(|context| {
        session.poll_io(context);
        reply.as_mut().poll(context)
    }))
    .await
}

#[tokio::test]
async fn replies_of_every_kind_arrive_in_order() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(node(&server)).await;
    for round in 0..50 {
        // More requests than one call has, and a reply that the decoder of the redis crate parses.
        let mut requests: Vec<Request> =
            (0..100).map(|number| acquire(&format!("r{round}-{number}"), 1)).collect();
        requests.push(Request::Inspect { resource: lock(&format!("r{round}-0")) });
        requests.push(acquire(&format!("r{round}-0"), 2));
        let first = client.session.send(client.batch(requests));
        let second = client.session.send(client.batch(vec![acquire(&format!("s{round}"), 1)]));
        let replies = driven(&mut client.session, first).await.unwrap().replies;
        assert!(replies[..100].iter().all(|reply| matches!(reply, Reply::Granted { .. })), "{replies:?}");
        let [Reply::State { holder: Some((holder, _)), .. }, Reply::Held { owner: named, .. }] =
            &replies[100..]
        else {
            panic!("{replies:?}")
        };
        assert_eq!((holder, named), (&owner(1), &owner(1)));
        let replies = driven(&mut client.session, second).await.unwrap().replies;
        assert!(matches!(replies[..], [Reply::Granted { .. }]), "{replies:?}");
    }
}

#[tokio::test]
async fn the_task_that_reads_a_reply_is_not_woken_for_it() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(node(&server)).await;
    let mut reply = pin!(client.session.send(client.batch(vec![acquire("r", 1)])));
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    client.session.poll_io(&mut context);
    assert!(reply.as_mut().poll(&mut context).is_pending());
    // The socket wakes the task once, for the input.
    soon(poll_fn(|outer| {
        outer.waker().wake_by_ref();
        if count.0.load(Ordering::Relaxed) > 0 { Poll::Ready(()) } else { Poll::Pending }
    }))
    .await;
    client.session.poll_io(&mut context);
    assert!(matches!(reply.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn what_a_dropped_session_had_queued_is_sent() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(node(&server)).await;
    let granted = client.session.send(client.batch(vec![acquire("r", 1)]));
    driven(&mut client.session, granted).await.unwrap();
    let release = Request::Release { resource: lock("r"), owner: owner(1) };
    drop(client.session.send(client.batch(vec![release])));
    let mut other = NodeClient::bare(node(&server)).await;
    drop(client);
    soon(async { while !matches!(other.ask(acquire("r", 2)).await, Reply::Granted { .. }) {} }).await;
}

#[tokio::test]
async fn the_end_of_the_connection_fails_the_pending_reply() {
    let mut server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(node(&server)).await;
    server.kill();
    let pending = client.session.send(client.batch(vec![acquire("r", 1)]));
    assert_eq!(driven(&mut client.session, pending).await.unwrap_err(), Cause::Closed);
    let later = client.session.send(client.batch(vec![acquire("r", 1)]));
    assert_eq!(later.now_or_never().unwrap().unwrap_err(), Cause::Closed, "at once");
}
