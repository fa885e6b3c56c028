//! Checks that a server that sends data without end does not fill the memory of a worker. The test is a program of its
//! own, because it counts the bytes of its process.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use peak_alloc::PeakAlloc;
use quorate::{env::Env, node::MemoryNode, quorum::Quorum, redis::RedisNode};
use quorate_testkit::hostile::{HostileServer, Hostility};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The most bytes of this process at any time, its servers included. The worker reads 1 MiB of an answer to a
/// handshake, from each of two servers, and connects again and again.
const MOST: usize = 16 << 20;

/// Checks that a worker closes the connection to such a server before the data fills the memory, and that its lease
/// does not suffer.
#[tokio::test]
async fn a_flood_is_bounded() {
    let servers = [Hostility::Endless, Hostility::HugeLength].map(|kind| HostileServer::start(kind).unwrap());
    let nodes = (0..3).map(|number| MemoryNode::new(&format!("memory{number}")));
    let hostile = servers.iter().map(|server| RedisNode::parse(&server.url("")).unwrap());
    let quorum = Quorum::builder().nodes(nodes).nodes(hostile).trust_new_nodes(true);
    // On a slow machine, the honest nodes must still answer in time.
    let quorum = quorum.node_timeout(Duration::from_millis(400)).build().unwrap();
    let env = Env::system();
    let soon = env.now() + Duration::from_secs(20);
    let lease = env.before(soon, quorum.lock("r").acquire()).await.unwrap().unwrap();
    let until = env.now() + Duration::from_secs(60);
    // Each connection that is closed for its flood is a new chance to fill the memory.
    while servers[0].connections() < 5 {
        assert!(env.now() < until, "{} connections", servers[0].connections());
        lease.extend().await.unwrap();
        env.sleep(Duration::from_millis(20)).await;
    }
    assert!(ALLOCATOR.peak_usage() < MOST, "{} MiB", ALLOCATOR.peak_usage() >> 20);
    lease.release().await.unwrap();
    quorum.close().await;
}
