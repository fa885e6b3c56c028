//! Tests of Redis Streams as a source of claims, with real servers and real worker processes. In one test a
//! worker is killed in the middle of a message, and in another the broker becomes unreachable.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use futures_util::{Stream, StreamExt};
use quorate::redis::streams::{Begin, StreamError, StreamMessage, StreamSource};
use quorate::{
    claim::stream::Message,
    env::{SystemWorld, World},
};
use quorate_testkit::redis::{RedisCluster, RedisConfig, RedisServer};
use quorate_tests::support::{Crew, PATIENCE, Told, until};
use redis::{Commands, Connection, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    process::Command,
    time::Duration,
};

const MESSAGES: usize = 300;
const CONSUMERS: usize = 3;

/// The number of pending entries of each consumer.
type PendingOf = Vec<(String, usize)>;

fn connection(server: &RedisServer) -> Connection {
    redis::Client::open(server.url()).expect("a URL").get_connection().expect("it answers")
}

fn add(broker: &mut Connection, field: &str, value: impl AsRef<[u8]>) -> String {
    redis::cmd("XADD")
        .arg("orders")
        .arg("*")
        .arg(field)
        .arg(value.as_ref())
        .query(broker)
        .expect("it is added")
}

fn pending_of(broker: &mut Connection) -> BTreeMap<String, usize> {
    let mut command = redis::cmd("XPENDING");
    // XPENDING replies with four parts: the number of entries, the first id, the last id, and the number of
    // entries of each consumer. Without entries the last three parts are nil.
    let (_, _, _, each): (usize, Value, Value, Option<PendingOf>) =
        command.arg("orders").arg("billing").query(broker).expect("a group");
    each.unwrap_or_default().into_iter().collect()
}

/// Returns whether every entry of the stream has been delivered to the group. Redis 6.2 reports no `lag`, so the test
/// compares the ids.
fn given_all(broker: &mut Connection) -> bool {
    let info = |what: &str| redis::cmd("XINFO").arg(what).arg("orders").take();
    let stream: BTreeMap<String, Value> = info("STREAM").query(broker).expect("a stream");
    let groups: Vec<BTreeMap<String, Value>> = info("GROUPS").query(broker).expect("a stream");
    let last = stream.get("last-generated-id").expect("an id");
    groups.iter().all(|group| group.get("last-delivered-id") == Some(last))
}

/// The reports that the processes have written, as counts.
#[derive(Default)]
struct Heard {
    /// For each process, the messages that it has begun and not ended.
    in_hand: BTreeMap<usize, BTreeSet<String>>,
    begun: BTreeMap<usize, usize>,
    /// For each message, the number of reports that it was handled.
    handled: BTreeMap<String, usize>,
    duplicates: usize,
}

impl Heard {
    fn take(&mut self, told: &Told) {
        let Some(line) = &told.line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        let in_hand = self.in_hand.entry(told.who.member).or_default();
        match &*words {
            ["handling", id] => {
                in_hand.insert((*id).to_owned());
                *self.begun.entry(told.who.member).or_default() += 1;
            }
            ["ended", id, rest @ ..] => {
                in_hand.remove(*id);
                match rest {
                    ["\"handled\"", acked] => {
                        assert_eq!(*acked, "Ok(true)", "{line}");
                        *self.handled.entry((*id).to_owned()).or_default() += 1;
                    }
                    ["\"it", "had", ..] => self.duplicates += 1,
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// Stops the first consumer (SIGSTOP). Returns whether it was handling at least two messages at that moment. If
/// not, lets it continue.
fn is_stopped_within_a_message(crew: &mut Crew, heard: &mut Heard, broker: &mut Connection) -> bool {
    let stopped = crew.stop(0);
    // The pipe may still have a report from before the stop.
    while SystemWorld.now() < stopped + Duration::from_millis(100) {
        crew.next(Duration::from_millis(5)).iter().for_each(|told| heard.take(told));
    }
    let pending = pending_of(broker).get("billing-0").copied().unwrap_or_default();
    let stands = pending >= 2 && heard.in_hand[&0].len() >= 2;
    if !stands {
        crew.go_on(0);
    }
    stands
}

#[test]
fn of_three_consumers_one_is_killed_in_mid_message_and_each_message_is_done_once() {
    let broker = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let nodes = RedisCluster::start(5).unwrap_or_else(|error| panic!("{error}"));
    let mut talk = connection(&broker);
    let ids: Vec<String> = (0..MESSAGES).map(|number| format!("order-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        add(&mut talk, "order", id);
        match number {
            // The producer did not know whether these messages had arrived, so it added them a second time.
            10 | 60 => drop(add(&mut talk, "order", id)),
            20 => drop(add(&mut talk, "order", "")),
            30 => drop(add(&mut talk, "order", "x".repeat(600))),
            40 => drop(add(&mut talk, "order", b"\xff\xfe")),
            50 => drop(add(&mut talk, "item", "no id")),
            _ => {}
        }
    }
    let (url, urls) = (broker.url(), nodes.urls());
    let mut crew = Crew::new(CONSUMERS, move |who| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stream-consumer"));
        command.arg(format!("billing-{}", who.member)).arg(&url).args(&urls);
        command
    });
    for member in 0..CONSUMERS {
        crew.start(member);
    }
    let mut heard = Heard::default();
    until("a first consumer in mid-message", PATIENCE, || {
        crew.next(PATIENCE).iter().for_each(|told| heard.take(told));
        (heard.begun.get(&0) >= Some(&10)
            && heard.in_hand[&0].len() >= 2
            && is_stopped_within_a_message(&mut crew, &mut heard, &mut talk))
        .then_some(())
    });
    crew.kill(0);
    let left = pending_of(&mut talk).get("billing-0").copied().unwrap_or_default();
    assert!(left >= 2, "it was killed with messages in hand: {left}");
    until("end of it all", PATIENCE * 2, || {
        while let Some(told) = crew.next(Duration::from_millis(20)) {
            heard.take(&told);
        }
        (given_all(&mut talk) && pending_of(&mut talk).is_empty()).then_some(())
    });
    for member in 1..CONSUMERS {
        crew.tell_to_end(member);
    }
    let ended = until("end of the consumers", PATIENCE, || {
        while let Some(told) = crew.next(Duration::from_millis(5)) {
            heard.take(&told);
        }
        let gone = crew.ended(PATIENCE);
        (crew.pids().is_empty()).then_some(gone)
    });
    drop(ended);

    let caught = &heard.in_hand[&0];
    assert!(!caught.is_empty(), "it was killed with messages in hand");
    let effects: Vec<String> = talk.lrange("effects", 0, -1).expect("a list");
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    effects.iter().for_each(|id| *times.entry(id).or_default() += 1);
    for id in &ids {
        let (had, done) = (times.get(&**id).copied().unwrap_or_default(), heard.handled.get(id).copied());
        if caught.contains(id) {
            // The kill explains two deviations. A message may have had its effect twice, or its report may be
            // lost although it is done.
            assert!((1..=2).contains(&had) && done.unwrap_or_default() <= 1, "{id}: {had} effects, {done:?}");
        } else {
            assert_eq!((had, done), (1, Some(1)), "{id}, which no kill caught");
        }
    }
    let again: Vec<&&str> = times.iter().filter(|(_, had)| **had > 1).map(|(id, _)| id).collect();
    println!(
        "the kill caught {caught:?}; of these had their effect twice: {again:?}; {left} were left to it"
    );
    assert!(heard.duplicates >= 2, "what the producer added twice: {}", heard.duplicates);
    let dead: Vec<String> = talk.lrange("dead", 0, -1).expect("a list");
    for why in ["is empty", "longer than 512 bytes", "not UTF-8", "no field \"order\""] {
        assert!(dead.iter().any(|said| said.contains(why)), "{why}: {dead:?}");
    }
    assert!((4..=8).contains(&dead.len()), "each once, or again where the kill caught it: {dead:?}");
}

fn source(server: &RedisServer) -> StreamSource {
    StreamSource::new(&server.url(), "orders", "billing").expect("a URL").consumer("billing-1")
}

type Messages = Pin<Box<dyn Stream<Item = Result<StreamMessage, StreamError>> + Send>>;

async fn next(messages: &mut Messages) -> Result<StreamMessage, StreamError> {
    let env = quorate::env::Env::system();
    env.before(env.now() + PATIENCE, messages.next()).await.expect("in time").expect("it never ends")
}

/// Returns the next message, and ignores errors that come before it.
async fn at_last(messages: &mut Messages) -> StreamMessage {
    for _ in 0..50 {
        if let Ok(message) = next(messages).await {
            return message;
        }
    }
    panic!("fifty errors, and no message");
}

#[tokio::test]
async fn what_was_not_acked_comes_again_and_what_was_does_not() {
    let broker = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let mut talk = connection(&broker);
    let ids: Vec<String> = (0..4).map(|n| add(&mut talk, "order", format!("o-{n}"))).collect();
    let source = source(&broker).min_idle(Duration::from_millis(300)).batch(2);
    let mut messages: Messages = Box::pin(source.messages());
    let first = next(&mut messages).await.expect("an entry");
    assert_eq!((first.entry_id(), first.text("order")), (&*ids[0], Some("o-0")));
    assert_eq!(first.id().expect("it has an id"), format!("orders:{}", ids[0]));
    first.ack().await.expect("it is acked");
    first.ack().await.expect("and again, which is nothing");
    let second = next(&mut messages).await.expect("an entry");
    let third = next(&mut messages).await.expect("an entry");
    // The third message is dropped here, so it is delivered again. The second message still exists in this
    // process, so it is not delivered again.
    drop(third);
    let fourth = next(&mut messages).await.expect("an entry");
    assert_eq!(fourth.entry_id(), ids[3]);
    let again = next(&mut messages).await.expect("an entry");
    assert_eq!(again.entry_id(), ids[2], "taken over from ourselves");
    // A consumer that starts under the same name first receives the messages that are pending for this name.
    drop((messages, again, fourth));
    let mut anew: Messages = Box::pin(source.clone().min_idle(PATIENCE).messages());
    for id in [&ids[1], &ids[2], &ids[3]] {
        let message = next(&mut anew).await.expect("an entry");
        assert_eq!(message.entry_id(), id);
        message.ack().await.expect("it is acked");
    }
    assert!(pending_of(&mut talk).is_empty());
    drop(second);
}

#[tokio::test]
async fn it_outlives_the_broker_its_connections_and_its_group() {
    let mut broker = RedisConfig::new().append_only().start().unwrap_or_else(|error| panic!("{error}"));
    let source = source(&broker).min_idle(Duration::from_millis(500));
    let mut messages: Messages = Box::pin(source.messages());
    add(&mut connection(&broker), "order", "o-0");
    let kept = next(&mut messages).await.expect("an entry");
    broker.kill();
    let failed = next(&mut messages).await.expect_err("it is away");
    assert!(
        failed.to_string().contains("\"orders\"") && failed.to_string().contains("127.0.0.1"),
        "{failed}"
    );
    assert!(kept.ack().await.is_err());
    broker.restart().unwrap_or_else(|error| panic!("{error}"));
    kept.ack().await.expect("it is back");
    let mut talk = connection(&broker);
    let added = add(&mut talk, "order", "o-1");
    let message = at_last(&mut messages).await;
    assert_eq!(message.entry_id(), added);
    message.ack().await.expect("it is acked");
    // All data of the broker is deleted. The consumer must create the group again, and lose no message.
    broker.flushall();
    let added = add(&mut talk, "order", "o-2");
    let message = at_last(&mut messages).await;
    assert_eq!(message.entry_id(), added);
    message.ack().await.expect("it is acked");
    // The connection is cut while a read blocks on the server.
    let read = next(&mut messages);
    let cut = async {
        let mut talk = connection(&broker);
        until("blocked read", PATIENCE, || {
            let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut talk).expect("a list");
            list.contains("cmd=xreadgroup").then_some(())
        });
        let _: usize = redis::cmd("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("yes")
            .query(&mut talk)
            .expect("killed");
        std::future::pending::<()>().await;
    };
    tokio::select! { failed = read => assert!(failed.is_err()), () = cut => {} }
    let added = add(&mut connection(&broker), "order", "o-3");
    assert_eq!(at_last(&mut messages).await.entry_id(), added);
}

#[tokio::test]
async fn what_was_deleted_while_it_was_pending_has_no_id_and_says_why() {
    let broker = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let mut talk = connection(&broker);
    let id = add(&mut talk, "order", "o-0");
    let source = source(&broker);
    let mut messages: Messages = Box::pin(source.messages());
    drop(next(&mut messages).await.expect("an entry"));
    let _: usize = redis::cmd("XDEL").arg("orders").arg(&id).query(&mut talk).expect("it is deleted");
    let mut anew: Messages = Box::pin(source.messages());
    let ghost = next(&mut anew).await.expect("an entry");
    assert!(ghost.is_deleted() && ghost.fields().is_empty());
    assert!(ghost.id().expect_err("nothing left").to_string().contains("deleted"));
    ghost.ack().await.expect("it is acked");
    assert!(pending_of(&mut talk).is_empty());
}

/// Checks an entry that was deleted while it was pending for a consumer that died. Redis 7.0 and later remove it
/// during the takeover. Redis 6.2 moves it to the new consumer, and does not name it in the reply.
#[tokio::test]
async fn what_was_deleted_while_a_dead_consumer_had_it_does_not_stay_pending() {
    let broker = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let mut talk = connection(&broker);
    let ids = [add(&mut talk, "order", "o-0"), add(&mut talk, "order", "o-1")];
    let mut dead: Messages = Box::pin(source(&broker).consumer("dead").messages());
    for _ in &ids {
        drop(next(&mut dead).await.expect("an entry"));
    }
    drop(dead);
    let _: usize = redis::cmd("XDEL").arg("orders").arg(&ids[0]).query(&mut talk).expect("it is deleted");
    let mut live: Messages =
        Box::pin(source(&broker).consumer("live").min_idle(Duration::from_millis(100)).messages());
    let deleted_is_delivered = broker.version().is_redis_before(7, 0);
    let mut taken = BTreeMap::new();
    for _ in 0..1 + usize::from(deleted_is_delivered) {
        let entry = next(&mut live).await.expect("an entry");
        taken.insert(entry.entry_id().to_owned(), entry.is_deleted());
        entry.ack().await.expect("it is acked");
    }
    assert_eq!(taken.remove(&ids[0]), deleted_is_delivered.then_some(true));
    assert_eq!(taken, BTreeMap::from([(ids[1].clone(), false)]));
    assert!(pending_of(&mut talk).is_empty());
}

#[tokio::test]
async fn errors_hold_no_password_and_say_what_is_wrong() {
    const PASSWORD: &str = "s3cret-of-the-broker";
    let broker = RedisConfig::new().password(PASSWORD).start().unwrap_or_else(|error| panic!("{error}"));
    let source = |password: &str, stream: &str| {
        let url = format!("redis://:{password}@127.0.0.1:{}", broker.port());
        StreamSource::new(&url, stream, "billing").expect("a URL")
    };
    let mut wrong: Messages = Box::pin(source("wr0ng-passw0rd", "orders").messages());
    let said = next(&mut wrong).await.expect_err("a wrong password").to_string();
    assert!(said.contains("password") && !said.contains("wr0ng-passw0rd"), "{said}");
    assert!(!format!("{:?}", source(PASSWORD, "orders")).contains(PASSWORD));
    let url = format!("redis://:{PASSWORD}@127.0.0.1:{}", broker.port());
    let mut talk = redis::Client::open(url).expect("a URL").get_connection().expect("it answers");
    let _: () = talk.set("text", "no stream").expect("it is set");
    let mut text: Messages = Box::pin(source(PASSWORD, "text").messages());
    let said = next(&mut text).await.expect_err("no stream").to_string();
    let acl = ["ACL", "SETUSER", "reader", "on", "nopass", "~orders", "+@read", "+@connection"];
    let _: () = redis::cmd(acl[0]).arg(&acl[1..]).query(&mut talk).expect("a user");
    let url = format!("redis://reader:any@127.0.0.1:{}", broker.port());
    let reader = StreamSource::new(&url, "orders", "billing").expect("a URL");
    let mut denied: Messages = Box::pin(reader.messages());
    let denied = next(&mut denied).await.expect_err("too few rights").to_string();
    assert!(denied.contains("+xreadgroup") && !denied.contains("any@"), "{denied}");
    assert!(said.contains("WRONGTYPE") && said.contains("\"text\"") && !said.contains(PASSWORD), "{said}");
}

#[tokio::test]
async fn a_group_may_begin_with_what_is_new_and_nothing_is_read_before_it_is_asked_for() {
    let broker = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let mut talk = connection(&broker);
    add(&mut talk, "order", "old");
    let mut messages: Messages = Box::pin(source(&broker).begin(Begin::New).messages());
    let exists = |talk: &mut Connection| {
        let groups: Vec<BTreeMap<String, Value>> =
            redis::cmd("XINFO").arg("GROUPS").arg("orders").query(talk).expect("a stream");
        !groups.is_empty()
    };
    assert!(!exists(&mut talk), "no consumer has asked");
    let env = quorate::env::Env::system();
    let adds = async {
        while !exists(&mut talk) {
            env.sleep(Duration::from_millis(5)).await;
        }
        add(&mut talk, "order", "new")
    };
    let (message, added) = tokio::join!(next(&mut messages), adds);
    assert_eq!(message.expect("an entry").entry_id(), added);
    let began = SystemWorld.now();
    let none = env.before(began + Duration::from_millis(300), messages.next()).await;
    assert!(none.is_none(), "the old one is not given: {none:?}");
}
