//! What `RedisNode` alone promises, on real servers.

use quorate::node::{Batch, FencingToken, Node, NodeTime, Nudge, Owner, Reply, Request, Resource, Session};
use quorate_redis::RedisNode;
use quorate_testkit::redis::RedisServer;
use std::time::Duration;

#[tokio::test]
async fn smoke() {
    let server = RedisServer::start().unwrap();
    let node = RedisNode::parse(&server.url()).unwrap();
    let (mut session, hello) = node.open(Nudge::channel().0).await.unwrap();
    println!("{hello:?}");
    let mark = Request::Mark { expect: None, marker: "m".into() };
    let acquire = Request::Acquire {
        resource: Resource::lock("r").unwrap(),
        owner: Owner::sign("w", 1, 2),
        ttl: Duration::from_secs(5),
        propose: FencingToken::new(hello.node_time.as_micros()),
        tolerance: Duration::from_secs(1),
        keep: Duration::from_secs(60),
    };
    let inspect = Request::Inspect { resource: Resource::lock("r").unwrap() };
    let reply = session
        .send(Batch {
            requests: vec![mark, acquire.clone(), acquire, inspect],
            not_after: NodeTime::from_micros(u64::MAX),
            stamp: "m".into(),
        })
        .await
        .unwrap();
    println!("{reply:?}");
    assert!(matches!(reply.replies[1], Reply::Granted { .. }));
}
