//! Tests of the guarantees of a single `RedisNode`, on real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

mod support;

use quorate::redis::{LINGER, RedisNode};
use quorate::{
    env::Env,
    node::{Cause, Node, Push, PushSender, Refusal, Reply, Request},
    quorum::Quorum,
};
use quorate_testkit::redis::{RedisConfig, RedisServer};
use std::{fs, time::Duration};
use support::{LONG, NodeClient, acquire, lock, owner, soon};

const PASSWORD: &str = "pa/ss@wo:rd";
const ESCAPED: &str = "pa%2Fss%40wo%3Ard";

#[tokio::test]
async fn a_wrong_password_is_denied_with_the_fix_and_never_shown() {
    let server = RedisConfig::new().password("sesame").start().unwrap();
    let port = server.port();
    for url in [
        format!("redis://:{ESCAPED}@127.0.0.1:{port}"),
        format!("redis://unknown:{ESCAPED}@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let node = RedisNode::parse(&url).unwrap();
        let cause = refused(&node).await;
        let shown = format!("{cause} {cause:?} {node:?} {}", node.name());
        assert!(matches!(cause, Cause::Denied(_)), "{cause}");
        assert!(shown.contains("check the user and password"), "{shown}");
        assert!(
            !shown.contains(PASSWORD) && !shown.contains(ESCAPED) && !shown.contains("sesame"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_password_that_the_server_does_not_require_is_reported() {
    let server = RedisServer::start().unwrap();
    let url = format!("redis://:{ESCAPED}@127.0.0.1:{}", server.port());
    let cause = refused(&RedisNode::parse(&url).unwrap()).await;
    assert!(cause.to_string().contains("requires no password"), "{cause}");
}

#[tokio::test]
async fn user_password_and_database_are_used() {
    let rules = format!("on >{PASSWORD} ~q:* ~{{q:* &* +@all");
    let server = RedisConfig::new().user("app", &rules).start().unwrap();
    let url = format!("redis://app:{ESCAPED}@127.0.0.1:{}/7", server.port());
    let mut client = NodeClient::marked(RedisNode::parse(&url).unwrap().prefix("q:")).await;
    client.must_acquire("r", 1).await;
    assert!(server.command(&["INFO", "keyspace"]).contains("db7:keys=3"));
    // The user loses the permission for SET. The error with which the server refuses the request must contain
    // no password.
    let mut elsewhere = NodeClient::bare(RedisNode::parse(&url).unwrap().prefix("q:")).await;
    let marker = server.command(&["ACL", "SETUSER", "app", "-set"]);
    assert_eq!(marker, "OK");
    elsewhere.stamp = support::STAMP.into();
    match elsewhere.ask(acquire("s", 2)).await {
        Reply::Refused(Refusal::Unable(why)) => assert!(!why.contains(PASSWORD), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.raw_get(&server, 7, "q:s"), "(nil)");
}

#[tokio::test]
async fn a_user_without_the_required_permissions_is_denied_with_the_fix() {
    let server = RedisConfig::new().user("app", "on >secret ~* +ping +get").start().unwrap();
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let cause = refused(&RedisNode::parse(&url).unwrap()).await;
    assert!(matches!(&cause, Cause::Denied(text) if text.contains("+@scripting")), "{cause}");
}

#[tokio::test]
async fn a_password_file_is_read_at_every_connection() {
    let server = RedisConfig::new().password("sesame").start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("password");
    let node =
        RedisNode::parse(&format!("redis://127.0.0.1:{}", server.port())).unwrap().password_file(&file);
    let missing = refused(&node).await;
    assert!(matches!(&missing, Cause::Misconfigured(text) if text.contains("password_file")), "{missing}");
    fs::write(&file, "\n").unwrap();
    assert!(refused(&node).await.to_string().contains("is empty"));
    fs::write(&file, "wrong one\n").unwrap();
    assert!(!refused(&node).await.to_string().contains("wrong one"));
    fs::write(&file, "sesame\n").unwrap();
    NodeClient::marked(node).await.must_acquire("r", 1).await;
}

#[tokio::test]
async fn a_missing_database_is_denied() {
    let server = RedisServer::start().unwrap();
    let node = RedisNode::parse(&format!("redis://127.0.0.1:{}/99", server.port())).unwrap();
    let cause = refused(&node).await;
    assert!(matches!(&cause, Cause::Denied(text) if text.contains("choose another number")), "{cause}");
}

#[tokio::test]
async fn a_unix_socket_serves_and_a_missing_one_is_unreachable() {
    let server = RedisConfig::new().unix_socket().start().unwrap();
    let socket = server.socket().unwrap();
    for scheme in ["unix", "redis+unix"] {
        let node = RedisNode::parse(&format!("{scheme}://{}?db=2", socket.display())).unwrap();
        assert_eq!(node.name(), format!("unix://{}?db=2", socket.display()));
        node.open(PushSender::channel().0).await.unwrap();
    }
    let node = RedisNode::parse(&format!("unix://{}.not", socket.display())).unwrap();
    let cause = refused(&node).await;
    assert!(matches!(&cause, Cause::Unreachable(text) if text.contains("unix://")), "{cause}");
}

#[tokio::test]
async fn a_killed_server_is_unreachable_and_returns_with_another_run_id() {
    let mut server = RedisServer::start().unwrap();
    let (push_sender, mut pushes) = PushSender::channel();
    let node = RedisNode::parse(&server.url()).unwrap();
    let (session, first) = node.open(push_sender).await.unwrap();
    server.kill();
    // The session reports that the connection was closed, although no request was in flight.
    assert_eq!(soon(pushes.recv()).await, Some(Push::Closed(Cause::Closed)));
    let mut client = NodeClient::of(node.clone(), session, first.clone());
    assert_eq!(client.try_ask(vec![acquire("r", 1)]).await, Err(Cause::Closed));
    let cause = refused(&node).await;
    let named = format!("redis://127.0.0.1:{}/0", server.port());
    assert!(matches!(&cause, Cause::Unreachable(text) if text.contains(&named)), "{cause}");
    server.restart().unwrap();
    let (_, second) = soon(node.open(PushSender::channel().0)).await.unwrap();
    assert_ne!(first.run_id, second.run_id);
    assert_eq!(second.marker, None);
}

#[tokio::test]
async fn a_request_in_flight_when_the_server_dies_is_closed() {
    let mut server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap()).await;
    server.pause();
    let batch = client.batch(vec![acquire("r", 1)]);
    let reply = quorate::node::Session::send(&mut client.session, batch);
    server.kill();
    assert_eq!(soon(reply).await, Err(Cause::Closed));
}

#[tokio::test]
async fn opening_a_paused_server_waits_and_leaves_no_task_when_dropped() {
    let server = RedisServer::start().unwrap();
    let env = Env::system();
    let node = RedisNode::parse(&server.url()).unwrap().with_env(env.clone());
    server.pause();
    let give_up = env.now() + Duration::from_millis(100);
    assert!(env.before(give_up, node.open(PushSender::channel().0)).await.is_none());
    assert_eq!(env.tasks_alive(), 0);
    server.resume();
    soon(node.open(PushSender::channel().0)).await.unwrap();
}

#[tokio::test]
async fn a_session_dropped_on_a_paused_server_ends_within_the_linger() {
    let server = RedisServer::start().unwrap();
    let env = Env::system();
    let node = RedisNode::parse(&server.url()).unwrap().with_env(env.clone());
    let mut client = NodeClient::marked(node.clone()).await;
    assert_eq!(env.tasks_alive(), 1);
    server.pause();
    // The requests together are larger than the kernel's buffers, so that some bytes are never sent while the
    // server is paused.
    for number in 0..40 {
        let requests =
            (0..2000).map(|item| acquire(&format!("{number}-{item}-{}", "x".repeat(200)), 1)).collect();
        let batch = client.batch(requests);
        drop(quorate::node::Session::send(&mut client.session, batch));
    }
    // The kernel's buffers are full. The task that sends must not block other tasks now.
    env.sleep(Duration::from_millis(20)).await;
    let dropped = env.now();
    drop(client);
    while env.tasks_alive() > 0 {
        assert!(dropped.until(env.now()) < LINGER + Duration::from_secs(2), "the task still runs");
        env.sleep(Duration::from_millis(5)).await;
    }
    assert!(dropped.until(env.now()) >= LINGER, "it ended early");
    server.resume();
    soon(node.open(PushSender::channel().0)).await.unwrap();
}

#[tokio::test]
async fn a_dropped_session_ends_at_once_when_everything_was_sent() {
    let server = RedisServer::start().unwrap();
    let env = Env::system();
    let node = RedisNode::parse(&server.url()).unwrap().with_env(env.clone());
    let mut client = NodeClient::marked(node).await;
    client.must_acquire("r", 1).await;
    let dropped = env.now();
    drop(client);
    while env.tasks_alive() > 0 {
        assert!(dropped.until(env.now()) < LINGER / 2, "the task still runs");
        env.sleep(Duration::from_millis(1)).await;
    }
    assert!(!server.command(&["CLIENT", "LIST"]).contains("name=quorate"), "the connection is gone");
}

#[tokio::test]
async fn finishing_the_environment_ends_the_sessions() {
    let server = RedisServer::start().unwrap();
    let env = Env::system();
    let node = RedisNode::parse(&server.url()).unwrap().with_env(env.clone());
    let _held = node.open(PushSender::channel().0).await.unwrap();
    soon(env.finish()).await;
    assert_eq!(env.tasks_alive(), 0);
}

#[tokio::test]
async fn a_flushed_server_refuses_votes_because_its_marker_is_missing() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap()).await;
    client.must_acquire("r", 1).await;
    server.flushall();
    assert_eq!(client.ask(acquire("r", 2)).await, Reply::Refused(Refusal::Marker(None)));
}

#[tokio::test]
async fn flushed_scripts_close_the_session_and_the_next_loads_them_again() {
    let server = RedisServer::start().unwrap();
    let node = RedisNode::parse(&server.url()).unwrap();
    let mut client = NodeClient::marked(node.clone()).await;
    assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "OK");
    let lost = client.try_ask(vec![acquire("r", 1)]).await;
    assert!(matches!(&lost, Err(Cause::Unreachable(text)) if text.contains("SCRIPT FLUSH")), "{lost:?}");
    let mut again = NodeClient::bare(node).await;
    assert!(matches!(again.ask(acquire("r", 1)).await, Reply::Granted { .. }));
}

#[tokio::test]
async fn a_plain_redlock_client_excludes_and_is_excluded() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap().prefix("")).await;
    assert_eq!(server.command(&["SET", "theirs", "\u{fffd}token", "NX", "PX", "30000"]), "OK");
    match client.ask(acquire("theirs", 1)).await {
        Reply::Held { owner, remaining: Some(left) } => {
            assert_eq!(owner.as_str(), "\u{fffd}token");
            assert!(left > Duration::from_secs(20) && left <= Duration::from_millis(30_001));
        }
        other => panic!("{other:?}"),
    }
    client.must_acquire("ours", 1).await;
    assert_eq!(server.command(&["SET", "ours", "x", "NX", "PX", "30000"]), "(nil)");
    assert_eq!(server.command(&["TYPE", "ours"]), "string");
    assert_eq!(server.command(&["GET", "ours"]), owner(1).as_str());
    let ttl: i64 = server.command(&["PTTL", "ours"]).parse().unwrap();
    assert!(ttl > 0 && ttl <= i64::try_from(LONG.as_millis()).unwrap());
    // Another client has created a lock without an expiry.
    server.command(&["SET", "forever", "x"]);
    assert!(matches!(client.ask(acquire("forever", 1)).await, Reply::Held { remaining: None, .. }));
    let looked = client.ask(Request::Inspect { resource: lock("forever") }).await;
    assert!(matches!(looked, Reply::State { holder: Some((_, None)), .. }), "{looked:?}");
}

/// Returns the write of a record to the ledger of `group`.
fn write(group: &str) -> Request {
    let term = quorate::node::FencingToken::new(3);
    let record = quorate::node::Record { at: 5, term, last: false, value: "v".into() };
    Request::Write { ledger: group.into(), key: "k".into(), seen: None, record }
}

#[tokio::test]
async fn keys_are_those_of_the_documentation() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap()).await;
    client.must_acquire("r", 1).await;
    let claim = quorate::node::Resource::claim("orders", "7").unwrap();
    let done = Request::Complete {
        resource: claim,
        owner: owner(1),
        record: quorate::node::DoneRecord {
            token: quorate::node::FencingToken::new(5),
            result: "ok".into(),
            ..Default::default()
        },
        retention: LONG,
    };
    assert_eq!(client.ask(done).await, Reply::Completed);
    assert_eq!(client.ask(write("billing")).await, Reply::Written);
    let keys = server.command(&["KEYS", "*"]);
    let mut keys: Vec<_> = keys.lines().collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "quorate:claim/orders/7",
            "quorate:ledger/billing",
            "quorate:node",
            "quorate:r",
            "{quorate:r}:fence",
        ]
    );
    for key in ["{quorate:r}:fence", "quorate:claim/orders/7"] {
        assert!(server.command(&["PTTL", key]).parse::<i64>().unwrap() > 0, "{key} ends");
    }
    assert_eq!(server.command(&["PTTL", "quorate:node"]), "-1");
}

#[tokio::test]
async fn a_key_of_another_type_fails_only_its_own_request() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap().prefix("")).await;
    server.command(&["RPUSH", "list", "x"]);
    server.command(&["SET", "{text}:fence", "12x"]);
    server.command(&["RPUSH", "{fence}:fence", "x"]);
    server.command(&["SET", "ledger/text", "x"]);
    server.command(&["HSET", "ledger/odd", "w", "-1"]);
    server.command(&["HSET", "ledger/stray", "stray", "1"]);
    let read = |group: &str| Request::Read { ledger: group.into(), after: None, key: None };
    let prune = |group: &str| Request::Prune { ledger: group.into(), below: 1, after: None };
    let replies = client
        .try_ask(vec![
            acquire("fine", 1),
            acquire("list", 1),
            acquire("text", 1),
            acquire("fence", 1),
            acquire("also fine", 1),
            Request::Release { resource: lock("list"), owner: owner(1) },
            Request::Inspect { resource: lock("list") },
            Request::Extend {
                resource: lock("list"),
                owner: owner(1),
                ttl: LONG,
                token: quorate::node::FencingToken::new(1),
                keep: LONG,
            },
            read("text"),
            read("stray"),
            write("text"),
            write("odd"),
            prune("text"),
            prune("odd"),
        ])
        .await
        .unwrap();
    for (number, reply) in replies.iter().enumerate() {
        match number {
            0 | 4 => assert!(matches!(reply, Reply::Granted { .. }), "{number}: {reply:?}"),
            _ => assert!(matches!(reply, Reply::Refused(Refusal::WrongType(_))), "{number}: {reply:?}"),
        }
    }
    // The server must have refused these requests before it changed anything.
    for untouched in ["text", "fence"] {
        assert_eq!(server.command(&["EXISTS", untouched]), "0");
    }
    assert_eq!(server.command(&["TYPE", "list"]), "list");
}

/// Returns every request that the holder with the owner token `w` can make on a claim.
fn every_request_of(resource: &quorate::node::Resource) -> Vec<Request> {
    let (resource, owner) = (|| resource.clone(), || quorate::node::Owner::from_node("w"));
    let token = quorate::node::FencingToken::new(1);
    let record = quorate::node::DoneRecord { token, ..Default::default() };
    vec![
        Request::Inspect { resource: resource() },
        Request::Acquire {
            resource: resource(),
            owner: owner(),
            ttl: LONG,
            propose: token,
            tolerance: Duration::MAX,
            keep: LONG,
            ticket: None,
        },
        Request::Raise { resource: resource(), owner: owner(), to: token, keep: LONG },
        Request::Extend { resource: resource(), owner: owner(), ttl: LONG, token, keep: LONG },
        Request::Complete { resource: resource(), owner: owner(), record, retention: LONG },
        Request::Count {
            resource: resource(),
            owner: owner(),
            attempts: 1,
            payload: None,
            withdraw: false,
            keep: LONG,
        },
        Request::ResetAttempts { resource: resource(), keep: LONG },
        Request::Release { resource: resource(), owner: owner() },
    ]
}

/// Checks numbers on the server that no script of Quorate writes. In an earlier version, each of them made the
/// whole batch fail, and closed the session.
#[tokio::test]
async fn a_number_out_of_bounds_fails_only_its_own_request() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap().prefix("")).await;
    let beyond = "99999999999999999999";
    server.command(&["SET", "{counter}:fence", beyond]);
    let far = "9".repeat(17);
    for (id, text) in [
        ("1", format!("{beyond}:x")),
        ("2", format!("d:{beyond}:1:::x")),
        ("3", format!("c:1:{beyond}:1:1:1::w")),
        ("4", format!("c:{far}:1:1:1:1::w")),
        ("5", format!("c:1:1:{far}:1:1::w")),
        ("6", format!("c:1:1:1:1:{far}::w")),
        ("7", format!("c:1:1:1:{far}:1::w")),
        ("8", format!("c:1:1:1:1:1:{}:w", "f".repeat(65))),
        ("9", "c:1:1:1:1:-1::w".to_owned()),
    ] {
        server.command(&["SET", &format!("claim/s/{id}"), &text]);
    }
    server.command(&["HSET", "ledger/beyond", "w", beyond]);
    server.command(&["HSET", "ledger/text", "w", "x"]);
    server.command(&["HSET", "ledger/below", "w", "-1"]);
    server.command(&["SET", "long", "theirs", "PX", "4000000000000000"]);
    let claims = (1..10).map(|id| quorate::node::Resource::claim("s", &id.to_string()).unwrap());
    let claims = claims.collect::<Vec<_>>();
    let read = |group: &str| Request::Read { ledger: group.into(), after: None, key: None };
    let mut requests = vec![
        acquire("long", 1),
        Request::Inspect { resource: lock("long") },
        acquire("counter", 1),
        Request::Inspect { resource: lock("counter") },
        read("beyond"),
        read("text"),
        read("below"),
    ];
    for resource in claims {
        requests.extend(every_request_of(&resource));
    }
    let replies = client.try_ask(requests).await.unwrap();
    for (number, reply) in replies.iter().enumerate() {
        match reply {
            Reply::Held { remaining: Some(left), .. }
            | Reply::State { holder: Some((_, Some(left))), .. } => {
                assert!(number < 2 && left.as_secs() > 3_999_999_999_000, "{number}: {left:?}");
            }
            other => {
                assert!(
                    number >= 2 && matches!(other, Reply::Refused(Refusal::WrongType(_))),
                    "{number}: {other:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_marker_of_another_type_is_named_at_the_handshake() {
    let server = RedisServer::start().unwrap();
    server.command(&["RPUSH", "quorate:node", "x"]);
    let cause = refused(&RedisNode::parse(&server.url()).unwrap()).await;
    assert!(matches!(&cause, Cause::Misconfigured(text) if text.contains("another prefix")), "{cause}");
}

#[tokio::test]
async fn a_server_out_of_memory_refuses_without_partial_changes() {
    let server = RedisServer::start().unwrap();
    let mut client = NodeClient::marked(RedisNode::parse(&server.url()).unwrap().prefix("")).await;
    client.must_acquire("held", 1).await;
    let claims = ["held", "kept", "done", "new"].map(|id| quorate::node::Resource::claim("s", id).unwrap());
    let [held, kept, done, new] = &claims;
    let begin = |claim: &quorate::node::Resource, attempt: u64| {
        let mut request = acquire("c", attempt);
        if let Request::Acquire { resource, .. } = &mut request {
            *resource = claim.clone();
        }
        request
    };
    for claim in &claims[..3] {
        assert!(matches!(client.ask(begin(claim, 1)).await, Reply::Granted { .. }));
        let counted = Request::Count {
            resource: claim.clone(),
            owner: owner(1),
            attempts: 1,
            payload: None,
            withdraw: false,
            keep: LONG,
        };
        assert_eq!(client.ask(counted).await, Reply::Counted);
    }
    let record = quorate::node::DoneRecord { result: "ok".into(), ..Default::default() };
    let completed = Request::Complete {
        resource: done.clone(),
        owner: owner(1),
        record: record.clone(),
        retention: LONG,
    };
    assert_eq!(client.ask(completed).await, Reply::Completed);
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    match client.ask(acquire("r", 1)).await {
        Reply::Refused(Refusal::Unable(why)) => assert!(why.contains("memory"), "{why}"),
        other => panic!("{other:?}"),
    }
    // The server is out of memory. It still reports the stored state to another worker, and refuses only the
    // acquire of a free claim.
    assert_eq!(client.ask(begin(done, 2)).await, Reply::Done(record));
    let reply = client.ask(begin(held, 2)).await;
    assert!(matches!(&reply, Reply::Held { owner: holder, .. } if *holder == owner(1)), "{reply:?}");
    let refused = client.ask(begin(new, 2)).await;
    assert!(matches!(refused, Reply::Refused(Refusal::Unable(_))), "{refused:?}");
    // Even without memory, a lock or claim that is held can be extended and released.
    for resource in [lock("held"), held.clone(), kept.clone()] {
        let extended = Request::Extend {
            resource: resource.clone(),
            owner: owner(1),
            ttl: LONG * 2,
            token: quorate::node::FencingToken::new(1),
            keep: LONG,
        };
        assert_eq!(client.ask(extended).await, Reply::Extended, "{resource}");
        if resource != *kept {
            let released = client.ask(Request::Release { resource, owner: owner(1) }).await;
            assert_eq!(released, Reply::Released(true));
        }
    }
    assert_eq!(
        client.ask(Request::ResetAttempts { resource: held.clone(), keep: LONG }).await,
        Reply::AttemptsReset
    );
    let looked = client.ask(Request::Inspect { resource: kept.clone() }).await;
    let Reply::State { holder: Some((_, Some(left))), .. } = looked else { panic!("{looked:?}") };
    assert!(left > LONG, "the lease was extended: {left:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(server.command(&["EXISTS", "r"]), "0", "an owner without a count");
    client.must_acquire("r", 2).await;
}

#[tokio::test]
async fn a_hello_reports_policy_durability_and_replicas() {
    let plain = RedisConfig::new().maxmemory_policy("allkeys-lru").start().unwrap();
    let hello = hello_of(&plain).await;
    assert_eq!(hello.eviction.as_deref(), Some("allkeys-lru"));
    assert_eq!((hello.durable, hello.replica), (Some(false), false));
    assert_eq!(*hello.version, plain.version().to_string());
    let durable = RedisConfig::new().append_only().start().unwrap();
    assert_eq!(hello_of(&durable).await.durable, Some(true));
    let lazy = RedisConfig::new().append_only().line("appendfsync everysec").start().unwrap();
    assert_eq!(hello_of(&lazy).await.durable, Some(false));
    // With this setting, the server does not sync its append-only file during a rewrite. So it is not durable.
    let rewriting = RedisConfig::new().append_only().line("no-appendfsync-on-rewrite yes").start().unwrap();
    let hello = hello_of(&rewriting).await;
    assert_eq!(hello.durable, Some(false));
    let why = hello.volatile.unwrap_or_default();
    for part in ["no-appendfsync-on-rewrite is yes", "CONFIG SET no-appendfsync-on-rewrite no", "redis.conf"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
    // The user has no permission to read the server's settings.
    let restricted =
        RedisConfig::new().append_only().user("app", "on >secret ~* &* +@all -config").start().unwrap();
    let url = format!("redis://app:secret@127.0.0.1:{}", restricted.port());
    let (_, hello) = RedisNode::parse(&url).unwrap().open(PushSender::channel().0).await.unwrap();
    assert_eq!(hello.durable, None);
    let replica = RedisConfig::new().line(&format!("replicaof 127.0.0.1 {}", plain.port())).start().unwrap();
    assert!(hello_of(&replica).await.replica);
}

#[tokio::test]
async fn durable_workers_exclude_a_server_that_delays_syncs() {
    let server = RedisConfig::new().append_only().line("no-appendfsync-on-rewrite yes").start().unwrap();
    let set =
        |setting: &str, value: &str| assert_eq!(server.command(&["CONFIG", "SET", setting, value]), "OK");
    let node = RedisNode::parse(&server.url()).unwrap();
    let quorum = Quorum::builder().node(node).durable(true).trust_new_nodes(true).build().unwrap();
    until(&quorum, "no-appendfsync-on-rewrite is yes").await;
    set("no-appendfsync-on-rewrite", "no");
    until(&quorum, "Trusted").await;
    // If a setting changes while a session is open, the session ends. Once the setting is right again, the next
    // session can be opened.
    for (setting, wrong, right) in [
        ("appendfsync", "everysec", "always"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
        ("appendonly", "no", "yes"),
    ] {
        set(setting, wrong);
        until(&quorum, &format!("{setting} is {wrong}")).await;
        set(setting, right);
        until(&quorum, "Trusted").await;
    }
    quorum.close().await;
}

/// Regression: only the durability was checked again. A server that began to evict granted a held lock twice.
#[tokio::test]
async fn a_server_whose_eviction_policy_or_role_changes_ends_its_open_sessions() {
    let evicts = ["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"];
    let replicates = ["REPLICAOF", "127.0.0.1", "1"];
    let ends = async |change: &[&str], named: &str, decision: &str| {
        let server = RedisServer::start().unwrap();
        let node = RedisNode::parse(&server.url()).unwrap();
        let (push_sender, mut pushes) = PushSender::channel();
        let (_session, _) = node.open(push_sender).await.unwrap();
        let mut client = NodeClient::marked(node.clone().prefix("other:")).await;
        client.must_acquire("r", 1).await;
        let quorum = Quorum::builder().node(node).trust_new_nodes(true).build().unwrap();
        until(&quorum, "Trusted").await;
        assert_eq!(server.command(change), "OK");
        if change == replicates {
            // A server that refuses a write for its role is asked again at once.
            let refused = client.try_ask(vec![acquire("other", 2)]).await;
            assert!(
                matches!(&refused, Err(Cause::Changed(why)) if why.starts_with("READONLY")),
                "{refused:?}"
            );
        }
        until(&quorum, decision).await;
        match soon(pushes.recv()).await {
            Some(Push::Closed(Cause::Changed(why))) => assert!(why.contains(named), "{why}"),
            other => panic!("{other:?}"),
        }
        quorum.close().await;
    };
    tokio::join!(
        ends(
            &evicts,
            "its maxmemory-policy was noeviction and is now volatile-ttl",
            "Evicts(\"volatile-ttl\")"
        ),
        ends(&replicates, "its role was master and is now slave", "Refused(Replica)"),
    );
}

/// Waits until the text of the state of the quorum's only node contains `part`.
async fn until(quorum: &Quorum, part: &str) {
    let env = Env::system();
    let late = env.now() + Duration::from_secs(60);
    loop {
        let state = format!("{:?}", quorum.nodes()[0].state);
        if state.contains(part) {
            return;
        }
        assert!(env.now() < late, "not within a minute: {part}; {state}");
        env.sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_durable_server_restarts_with_its_marker_and_leases() {
    let mut server = RedisConfig::new().append_only().start().unwrap();
    let node = RedisNode::parse(&server.url()).unwrap();
    let mut client = NodeClient::marked(node.clone()).await;
    client.must_acquire("r", 1).await;
    server.restart().unwrap();
    let mut again = NodeClient::bare(node).await;
    assert_ne!(again.hello.run_id, client.hello.run_id);
    assert_eq!(again.hello.marker.as_deref(), Some(support::STAMP));
    assert!(
        matches!(again.ask(acquire("r", 2)).await, Reply::Held { owner: holder, .. } if holder == owner(1))
    );
}

async fn hello_of(server: &RedisServer) -> quorate::node::Hello {
    let node = RedisNode::parse(&server.url()).unwrap();
    soon(node.open(PushSender::channel().0)).await.unwrap().1
}

async fn refused(node: &RedisNode) -> Cause {
    match soon(node.open(PushSender::channel().0)).await {
        Ok((_, hello)) => panic!("opened: {hello:?}"),
        Err(cause) => cause,
    }
}
