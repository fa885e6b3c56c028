//! Tests of connections with `rediss://` URLs, to real servers that use TLS and to ports without TLS.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

mod support;

use quorate::node::{Cause, Node, PushSender};
use quorate::redis::RedisNode;
use quorate_testkit::redis::{RedisConfig, RedisServer};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};
use support::{NodeClient, soon};

#[tokio::test]
async fn a_tls_server_works_and_its_certificate_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let (server, port) = tls_server(home.path(), "localhost");
    let trusted = home.path().join("cert.pem");
    let node = RedisNode::parse(&format!("rediss://localhost:{port}/1")).unwrap();
    assert_eq!(node.name(), format!("rediss://localhost:{port}/1"));
    NodeClient::marked(node.clone().ca_file(&trusted)).await.must_acquire("r", 1).await;
    assert!(server.command(&["INFO", "keyspace"]).contains("db1:"));
    // This client does not trust the server's certificate authority. The error must suggest options that exist.
    let unknown = refused(&node).await;
    assert!(unknown.contains("TLS failed"), "{unknown}");
    for advised in ["rediss://HOST?ca_file=FILE", "RedisNode::ca_file", "--ca-file", "quorate.toml"] {
        assert!(unknown.contains(advised), "{unknown}");
    }
    let by_option = format!("rediss://localhost:{port}?ca_file={}", trusted.display());
    soon(RedisNode::parse(&by_option).unwrap().open(PushSender::channel().0)).await.unwrap();
    // The certificate is valid for `localhost`, but not for this address.
    let elsewhere = RedisNode::parse(&format!("rediss://127.0.0.1:{port}")).unwrap().ca_file(&trusted);
    let elsewhere = refused(&elsewhere).await;
    assert!(elsewhere.contains("TLS failed"), "{elsewhere}");
    // This URL has no TLS, but the port expects TLS.
    let plain = refused(&RedisNode::parse(&format!("redis://localhost:{port}")).unwrap()).await;
    assert!(plain.contains("write rediss://"), "{plain}");
}

#[tokio::test]
async fn tls_to_a_plain_port_is_reported() {
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
async fn a_bad_file_is_named_with_the_reason_and_the_fix() {
    let home = tempfile::tempdir().unwrap();
    let own = Authority::new("own");
    let (cert, key) = own.sign(home.path(), "client", 4096);
    let (_, other_key) = own.sign(home.path(), "other", 4096);
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let missing = home.path().join("missing.pem");
    let empty = write("empty.pem", "no certificate\n");
    let damaged = write("damaged.pem", &fs::read_to_string(&key).unwrap().replace("-----END", "SECRETLINE"));
    let broken =
        write("broken.pem", "-----BEGIN CERTIFICATE-----\n!SECRETLINE!\n-----END CERTIFICATE-----\n");
    let encrypted = write(
        "encrypted.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let long = home.path().join("long.pem");
    fs::File::create(&long).unwrap().set_len(1 << 40).unwrap();

    let node = RedisNode::parse("rediss://127.0.0.1:1").unwrap();
    for (file, why) in [
        (&missing, "cannot be read: No such file"),
        (&empty, "holds no certificate"),
        (&broken, "is damaged"),
        (&long, "longer than 1 MiB"),
        (&home.path().to_owned(), "cannot be read"),
    ] {
        for (key_name, node) in [
            ("ca_file", node.clone().ca_file(file)),
            ("cert_file", node.clone().client_certificate(file, &key)),
        ] {
            let message = denied(&node).await;
            let named = format!("the {key_name} {} ", file.display());
            assert!(
                message.contains(&named) && message.contains(why) && message.contains("; give "),
                "{message}"
            );
            assert!(!message.contains("SECRETLINE"), "{message}");
        }
    }
    for (file, why) in [
        (&missing, "cannot be read: No such file"),
        (&empty, "holds no private key"),
        (&encrypted, "not encrypted (`openssl pkey"),
        (&damaged, "is damaged"),
        (&other_key, "does not belong to the certificate in cert_file"),
    ] {
        let message = denied(&node.clone().client_certificate(&cert, file)).await;
        assert!(
            message.contains(&format!("the key_file {} ", file.display())) && message.contains(why),
            "{message}"
        );
        assert!(!message.contains("SECRETLINE"), "{message}");
    }
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_gets_one() {
    let home = tempfile::tempdir().unwrap();
    let (own, foreign) = (Authority::new("own"), Authority::new("foreign"));
    for protocols in ["TLSv1.3", "TLSv1.2"] {
        let (server, port) = demanding_server(home.path(), &own, protocols);
        let ca = home.path().join("ca.pem");
        let node = RedisNode::parse(&format!("rediss://localhost:{port}")).unwrap().ca_file(&ca);
        let (cert, key) = own.sign(home.path(), "client", 4096);

        let none = refused(&node).await;
        assert!(none.contains("demands a client certificate"), "{protocols}: {none}");
        assert!(none.contains("give a cert_file and a key_file"), "{protocols}: {none}");
        let (cert_of_another, its_key) = foreign.sign(home.path(), "foreign", 4096);
        let wrong = refused(&node.clone().client_certificate(cert_of_another, its_key)).await;
        assert!(wrong.contains("does not trust the authority of the certificate in cert_file"), "{wrong}");
        let (old, old_key) = own.sign(home.path(), "old", 2020);
        let expired = refused(&node.clone().client_certificate(old, old_key)).await;
        assert!(expired.contains("has expired"), "{protocols}: {expired}");

        let node = node.client_certificate(&cert, &key);
        NodeClient::marked(node.clone()).await.must_acquire("r", 1).await;
        assert_eq!(server.command(&["EXISTS", "quorate:r"]), "1");
        // The URL's options are enough for TLS. The certificate and the key may be in one file.
        let both = home.path().join("both.pem");
        fs::write(&both, fs::read_to_string(&cert).unwrap() + &fs::read_to_string(&key).unwrap()).unwrap();
        let url = format!(
            "rediss://localhost:{port}?ca_file={0}&cert_file={1}&key_file={1}",
            ca.display(),
            both.display()
        );
        let by_url = RedisNode::parse(&url).unwrap();
        assert_eq!(by_url.name(), format!("rediss://localhost:{port}/0"));
        soon(by_url.open(PushSender::channel().0)).await.unwrap();

        // After a certificate was renewed on disk, the client uses it from its next connection on.
        fs::copy(home.path().join("old.pem"), &cert).unwrap();
        fs::copy(home.path().join("old.key"), &key).unwrap();
        assert!(refused(&node).await.contains("has expired"));
        own.sign(home.path(), "client", 4096);
        soon(node.open(PushSender::channel().0)).await.unwrap();
        let shown = format!("{node:?}");
        assert!(shown.contains("client.key") && !shown.contains("PRIVATE"), "{shown}");
    }
}

/// A certificate authority: the key with which it signs, and its own certificate in PEM.
struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// Creates a certificate for `localhost` that is valid until the end of the year before `until`. Stores it
    /// as `NAME.pem`, and its key as `NAME.key`.
    fn sign(&self, home: &Path, name: &str, until: i32) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.not_after = date_time_ymd(until, 1, 1);
        let signed = params.signed_by(&key, &self.0).unwrap();
        let (cert_file, key_file) = (home.join(format!("{name}.pem")), home.join(format!("{name}.key")));
        fs::write(&cert_file, signed.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }
}

/// Starts a server that requires a client certificate of `authority`. The authority's certificate is in
/// `ca.pem`.
fn demanding_server(home: &Path, authority: &Authority, protocols: &str) -> (RedisServer, u16) {
    let ca = home.join("ca.pem");
    fs::write(&ca, &authority.1).unwrap();
    let (cert, key) = authority.sign(home, "server", 4096);
    start(
        &cert,
        &key,
        &[
            "tls-auth-clients yes",
            &format!("tls-ca-cert-file {}", ca.display()),
            &format!("tls-protocols \"{protocols}\""),
        ],
    )
}

/// Starts a server that has a TLS port besides its plain port. Its certificate for `name` is in `cert.pem`.
fn tls_server(home: &Path, name: &str) -> (RedisServer, u16) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (cert, key) = (home.join("cert.pem"), home.join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    start(&cert, &key, &["tls-auth-clients no"])
}

fn start(cert: &Path, key: &Path, lines: &[&str]) -> (RedisServer, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = RedisConfig::new()
        .line(&format!("tls-port {port}"))
        .line(&format!("tls-cert-file {}", cert.display()))
        .line(&format!("tls-key-file {}", key.display()));
    let server = lines.iter().fold(config, |config, line| config.line(line)).start().unwrap();
    (server, port)
}

async fn refused(node: &RedisNode) -> String {
    match soon(node.open(PushSender::channel().0)).await {
        Ok((_, hello)) => panic!("opened: {hello:?}"),
        Err(cause @ (Cause::Unreachable(_) | Cause::Misconfigured(_))) => cause.to_string(),
        Err(other) => panic!("{other}"),
    }
}

/// Opens a connection that must be refused for a reason that only an operator can fix. Returns this reason.
async fn denied(node: &RedisNode) -> String {
    match soon(node.open(PushSender::channel().0)).await {
        Err(Cause::Misconfigured(why)) => why.to_string(),
        other => panic!("{:?}", other.map(|(_, hello)| hello)),
    }
}
