//! `rediss://` against a real server that speaks TLS, and against ports that do not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

mod support;

use quorate::node::{Cause, Node, Nudge};
use quorate_redis::RedisNode;
use quorate_testkit::redis::{RedisConfig, RedisServer};
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};
use support::{Desk, soon};

#[tokio::test]
async fn a_server_that_speaks_tls_serves_and_its_certificate_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let (server, port) = tls_server(home.path(), "localhost");
    let trusted = home.path().join("cert.pem");
    let node = RedisNode::parse(&format!("rediss://localhost:{port}/1")).unwrap();
    assert_eq!(node.name(), format!("rediss://localhost:{port}/1"));
    Desk::marked(node.clone().ca_file(&trusted)).await.must_acquire("r", 1).await;
    assert!(server.command(&["INFO", "keyspace"]).contains("db1:"));
    // The machine does not know the authority.
    let unknown = refused(&node).await;
    assert!(unknown.contains("TLS failed") && unknown.contains("ca_file"), "{unknown}");
    // The certificate is for another name.
    let elsewhere = RedisNode::parse(&format!("rediss://127.0.0.1:{port}")).unwrap().ca_file(&trusted);
    let elsewhere = refused(&elsewhere).await;
    assert!(elsewhere.contains("TLS failed"), "{elsewhere}");
    // Plain words to a port that expects TLS.
    let plain = refused(&RedisNode::parse(&format!("redis://localhost:{port}")).unwrap()).await;
    assert!(plain.contains("write rediss://"), "{plain}");
}

#[tokio::test]
async fn tls_to_a_plain_port_says_so() {
    let server = RedisServer::start().unwrap();
    let node = RedisNode::parse(&format!("rediss://:secret@127.0.0.1:{}", server.port())).unwrap();
    let cause = refused(&node).await;
    assert!(
        cause.contains("answers without TLS")
            && cause.contains("write redis://")
            && !cause.contains("secret"),
        "{cause}"
    );
}

#[tokio::test]
async fn a_bad_ca_file_is_named() {
    let home = tempfile::tempdir().unwrap();
    let node = RedisNode::parse("rediss://127.0.0.1:1").unwrap();
    let missing = refused(&node.clone().ca_file(home.path().join("missing.pem"))).await;
    assert!(missing.contains("missing.pem"), "{missing}");
    let empty = home.path().join("empty.pem");
    fs::write(&empty, "no certificate\n").unwrap();
    let empty = refused(&node.ca_file(empty)).await;
    assert!(empty.contains("holds no certificate"), "{empty}");
}

/// A server with a TLS port beside its plain one, and a certificate for `name` in `cert.pem`.
fn tls_server(home: &Path, name: &str) -> (RedisServer, u16) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let file = |name: &str, text: String| -> PathBuf {
        let path = home.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let certificate = file("cert.pem", made.cert.pem());
    let key = file("key.pem", made.signing_key.serialize_pem());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = RedisConfig::new()
        .line(&format!("tls-port {port}"))
        .line(&format!("tls-cert-file {}", certificate.display()))
        .line(&format!("tls-key-file {}", key.display()))
        .line("tls-auth-clients no")
        .start()
        .unwrap();
    (server, port)
}

async fn refused(node: &RedisNode) -> String {
    match soon(node.open(Nudge::channel().0)).await {
        Ok((_, hello)) => panic!("opened: {hello:?}"),
        Err(cause @ (Cause::Unreachable(_) | Cause::Misconfigured(_))) => cause.to_string(),
        Err(other) => panic!("{other}"),
    }
}
