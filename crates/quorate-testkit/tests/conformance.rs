//! Runs the conformance suite on every kind of node.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use quorate::node::{FileNode, MemoryNode};
use quorate::redis::RedisNode;
use quorate_testkit::{conformance, redis::RedisServer};
use std::{collections::BTreeSet, fs, path::Path};

/// The kinds of nodes for which there is a test below. The test `no_kind_of_node_is_left_out` compares this
/// list with the sources.
const KINDS: [&str; 3] = ["MemoryNode", "FileNode", "RedisNode"];

#[tokio::test]
async fn memory_node() {
    conformance::suite("MemoryNode", || MemoryNode::new("memory")).await;
    conformance::pushes("MemoryNode", || MemoryNode::new("memory")).await;
}

#[tokio::test]
async fn file_node() {
    let home = tempfile::tempdir().unwrap();
    let mut number = 0;
    conformance::suite("FileNode", || {
        number += 1;
        FileNode::new(home.path().join(number.to_string()))
    })
    .await;
}

/// Runs the suite on a Redis node. Each case uses a prefix of its own, so that the shared server acts like a
/// new node.
#[tokio::test]
async fn redis_node() {
    let server = RedisServer::start().unwrap();
    let mut number = 0;
    let mut make = || {
        number += 1;
        RedisNode::parse(&server.url()).unwrap().prefix(&format!("{number}:"))
    };
    conformance::suite("RedisNode", &mut make).await;
    conformance::pushes("RedisNode", make).await;
}

/// Runs the suite on a Redis node without a prefix, with tasks on several threads and over a Unix socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_node_without_a_prefix() {
    let server = quorate_testkit::redis::RedisConfig::new().unix_socket().start().unwrap();
    let url = format!("unix://{}?db=3", server.socket().unwrap().display());
    let make = || {
        // The server may not have noticed yet that the sessions of the case before are closed. It would still count them as
        // subscribers of a lock's channel.
        for kind in ["pubsub", "normal"] {
            server.command(&["CLIENT", "KILL", "TYPE", kind]);
        }
        server.flushall();
        RedisNode::parse(&url).unwrap().prefix("")
    };
    conformance::suite("RedisNode", make).await;
    conformance::pushes("RedisNode", make).await;
}

#[test]
fn no_kind_of_node_is_left_out() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        // The nodes of these crates are only for tests. They run the engine of the memory node over a simulated
        // network, so they need no conformance test.
        if !["quorate-testkit", "quorate-test"].iter().any(|tests| path.ends_with(tests)) {
            assert!(path.join("src").is_dir(), "{} has no sources", path.display());
            kinds_in(&path.join("src"), &mut found);
        }
    }
    let tested: BTreeSet<String> = KINDS.iter().map(ToString::to_string).collect();
    assert_eq!(found, tested, "a kind of node has no conformance test (or none is left): add it here");
    let tests = include_str!("conformance.rs");
    for kind in KINDS {
        assert!(tests.contains(&format!("suite(\"{kind}\"")), "{kind} has no test");
    }
}

/// Adds to `found` the types for which the sources in `dir` implement `Node`. Test modules are left out.
fn kinds_in(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            kinds_in(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            let source = fs::read_to_string(&path).unwrap();
            let shipped = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for line in shipped.lines() {
                // rustfmt writes such a line as `impl Node for X {` or `impl<T> Node for X<T> {`.
                let Some((head, kind)) = line.split_once(" Node for ") else { continue };
                if head.starts_with("impl") {
                    let end = kind.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(kind.len());
                    found.insert(kind[..end].to_owned());
                }
            }
        }
    }
}
