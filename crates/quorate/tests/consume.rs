//! Tests of consumers, with memory nodes and the real clock. They check the outcome of each message in a
//! stream.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/cut.rs"]
mod cut;

use common::{SECOND, nodes, quorum};
use cut::Cut;
use futures_util::{StreamExt, stream};
use quorate::{
    claim::{
        ClaimOutcome, Claims, Fingerprint,
        stream::{Ended, Message, Outcome, Received},
    },
    node::MemoryNode,
    quorum::Quorum,
};
use std::{
    collections::BTreeMap,
    future::{pending, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// The result of acknowledging a message. This is the type of `Ended::acked`.
type Acked = Result<bool, Arc<str>>;

/// A message that counts its acknowledgements.
#[derive(Debug)]
struct TestMessage {
    id: Vec<u8>,
    acks: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

impl Message for TestMessage {
    type Error = &'static str;

    fn id(&self) -> Result<&str, Box<dyn std::error::Error + Send + Sync>> {
        str::from_utf8(&self.id).map_err(|_| "the message id is not UTF-8".into())
    }

    fn is_gone(&self) -> bool {
        self.id == b"gone"
    }

    async fn ack(&self) -> Result<(), &'static str> {
        if self.id == b"deaf" {
            return Err("the source does not listen");
        }
        self.acks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn leave(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }
}

/// A source of messages. It records the acknowledgements and the outcomes of its messages.
#[derive(Clone, Default)]
struct Sender {
    acks: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
    ended: Arc<Mutex<Vec<(String, String, Acked)>>>,
}

impl Sender {
    fn message(&self, id: impl AsRef<[u8]>) -> TestMessage {
        TestMessage { id: id.as_ref().to_owned(), acks: Arc::clone(&self.acks), left: Arc::clone(&self.left) }
    }

    fn messages<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<TestMessage> {
        ids.into_iter().map(|id| self.message(id)).collect()
    }

    fn note(&self) -> impl Fn(&Ended<TestMessage>) + Send + Sync + 'static {
        let ended = Arc::clone(&self.ended);
        move |end| {
            let id = String::from_utf8_lossy(&end.message.id).into_owned();
            ended.lock().expect("no panic").push((id, end.outcome.to_string(), end.acked.clone()));
        }
    }

    fn ended(&self) -> BTreeMap<String, (String, Acked)> {
        let ended = self.ended.lock().expect("no panic");
        ended.iter().map(|(id, outcome, acked)| (id.clone(), (outcome.clone(), acked.clone()))).collect()
    }

    fn acks(&self) -> usize {
        self.acks.load(Ordering::Relaxed)
    }
}

/// Returns a worker's quorum, and a switch that cuts the worker off from all nodes.
fn with_switch(nodes: &[MemoryNode]) -> (Quorum, Arc<AtomicBool>) {
    let off = Arc::new(AtomicBool::new(false));
    let nodes = nodes.iter().map(|node| Cut::new(node, &off));
    let builder = Quorum::builder().worker("a").nodes(nodes).trust_new_nodes(true);
    (builder.build().expect("a sound setup"), off)
}

fn claims(quorum: &Quorum) -> Claims {
    Claims::new(quorum, "orders").ttl(SECOND)
}

async fn handled(_: Received<TestMessage>) -> Result<(), String> {
    Ok(())
}

/// Returns the number of attempts after which a message became a dead letter.
fn attempts(reason: &Outcome) -> u32 {
    match reason {
        Outcome::DeadLettered { attempts } => *attempts,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_message_is_handled_once_and_acked_after_its_done_record() {
    let (nodes, sender) = (nodes(), Sender::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let ids: Vec<String> = (0..200).map(|i| format!("m-{i}")).collect();
    let times = Arc::new(AtomicUsize::new(0));
    let consumer = |quorum: &Quorum| {
        let times = Arc::clone(&times);
        let handler = move |delivery: Received<TestMessage>| {
            let times = Arc::clone(&times);
            async move {
                delivery.fencing_token().expect("ours");
                times.fetch_add(1, Ordering::Relaxed);
                Ok::<_, String>("shipped")
            }
        };
        let messages = sender.messages(ids.iter().map(String::as_str));
        claims(quorum).consume(stream::iter(messages), handler).concurrency(8).until(pending::<()>())
    };
    let (at_a, at_b) = tokio::join!(consumer(&a), consumer(&b));
    let (at_a, at_b) = (at_a.expect("sound timings"), at_b.expect("sound timings"));
    assert_eq!(times.load(Ordering::Relaxed), 200);
    assert_eq!(at_a.handled + at_b.handled, 200, "{at_a:?} {at_b:?}");
    assert_eq!(at_a.duplicates + at_b.duplicates, 200, "{at_a:?} {at_b:?}");
    assert_eq!((at_a.acked, at_b.acked, sender.acks()), (200, 200, 400));
    for id in &ids {
        let outcome = claims(&a).claim(id).await.expect("a quorum");
        assert!(matches!(&outcome, ClaimOutcome::Done(done) if &*done.result == "shipped"), "{outcome:?}");
    }
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn an_invalid_message_is_reported_and_blocks_no_other() {
    let (nodes, sender) = (nodes(), Sender::default());
    let a = quorum("a", &nodes);
    let long = "x".repeat(600);
    let mut messages = sender.messages(["good", "", "bad\nline", "fails", "panics", "deaf", &long]);
    messages.push(sender.message(b"\xff\xfe"));
    messages.extend(sender.messages(["good too"]));
    let handler = |delivery: Received<TestMessage>| async move {
        match &*delivery.message().id {
            b"fails" => Err("no stock".to_owned()),
            b"panics" => panic!("at the disco"),
            _ => Ok(()),
        }
    };
    let dead = Arc::new(Mutex::new(Vec::new()));
    let dead_messages = Arc::clone(&dead);
    let consumer = claims(&a).consume(stream::iter(messages), handler).concurrency(2).on_end(sender.note());
    let consumer = consumer.on_dead(move |message, reason, _| {
        let dead_messages = Arc::clone(&dead_messages);
        async move {
            dead_messages.lock().expect("no panic").push(reason.to_string());
            if message.id.is_empty() { Err("the dead letter queue is full") } else { Ok(()) }
        }
    });
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.handled, consumed.failed, consumed.unusable), (3, 2, 4), "{consumed:?}");
    let ended = sender.ended();
    assert_eq!(ended["good"], ("handled".to_owned(), Ok(true)));
    assert_eq!(ended["good too"], ("handled".to_owned(), Ok(true)));
    assert_eq!(ended["fails"], ("the handler failed: no stock".to_owned(), Ok(false)));
    assert_eq!(ended["panics"], ("the handler failed: it panicked: at the disco".to_owned(), Ok(false)));
    assert_eq!(ended["deaf"].1, Err("the source does not listen".into()));
    let (why, acked) = &ended[""];
    assert!(why.contains("is empty") && *acked == Err("dead letter: the dead letter queue is full".into()));
    for (id, says) in
        [("bad\nline", "control character"), (&*long, "longer than 512 bytes"), ("\u{fffd}\u{fffd}", "UTF-8")]
    {
        let (why, acked) = &ended[id];
        assert!(why.contains(says) && *acked == Ok(true), "{id}: {why} {acked:?}");
    }
    assert_eq!(dead.lock().expect("no panic").len(), 4);
    // A message whose handler has failed is released, so another worker can claim it at once.
    assert!(matches!(claims(&a).claim("fails").await, Ok(ClaimOutcome::Claimed(_))));
    assert_eq!(sender.left.load(Ordering::Relaxed), 3, "fails, panics, and the one that the hook refused");
    a.close().await;
}

#[tokio::test]
async fn without_a_hook_an_invalid_message_is_left_to_the_source() {
    let (nodes, sender) = (nodes(), Sender::default());
    let a = quorum("a", &nodes);
    let consumer = claims(&a).consume(stream::iter(sender.messages([""])), handled).on_end(sender.note());
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.unusable, consumed.acked, sender.acks()), (1, 0, 0));
    assert!(matches!(&sender.ended()[""].1, Err(why) if why.contains("on_dead")));
    a.close().await;
}

#[tokio::test]
async fn nothing_is_pulled_without_room() {
    let (nodes, sender) = (nodes(), Sender::default());
    let a = quorum("a", &nodes);
    let (pulled, at_work, most) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Notify::new());
    let ids: Vec<String> = (0..20).map(|i| format!("m-{i}")).collect();
    let messages = sender.messages(ids.iter().map(String::as_str));
    let source = stream::iter(messages).inspect(|_| {
        pulled.fetch_add(1, Ordering::Relaxed);
    });
    let handler = {
        let (at_work, most, gate) = (Arc::clone(&at_work), Arc::clone(&most), Arc::clone(&gate));
        move |_: Received<TestMessage>| {
            let (at_work, most, gate) = (Arc::clone(&at_work), Arc::clone(&most), Arc::clone(&gate));
            async move {
                most.fetch_max(at_work.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                gate.notified().await;
                at_work.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, String>(())
            }
        }
    };
    let consumer = claims(&a).consume(source, handler).concurrency(3).until(pending::<()>());
    let watch = async {
        for done in 0..20 {
            let now = (done + 3).min(20);
            while at_work.load(Ordering::Relaxed) < now - done {
                a.env().sleep(Duration::from_millis(1)).await;
            }
            assert!(
                pulled.load(Ordering::Relaxed) <= now,
                "{} pulled, {done} done",
                pulled.load(Ordering::Relaxed)
            );
            gate.notify_one();
            while sender.acks() < done + 1 {
                a.env().sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let (consumed, ()) = tokio::join!(consumer, watch);
    assert_eq!(consumed.expect("sound timings").handled, 20);
    assert_eq!(most.load(Ordering::Relaxed), 3);
    a.close().await;
}

#[tokio::test]
async fn a_message_of_another_worker_is_retried_until_patience_ends() {
    let (nodes, sender) = (nodes(), Sender::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let mut theirs = Vec::new();
    for id in ["done soon", "freed soon", "never"] {
        match claims(&b).claim(id).await {
            Ok(ClaimOutcome::Claimed(claim)) => theirs.push(claim),
            other => panic!("{other:?}"),
        }
    }
    let (never, freed, done) = (theirs.pop(), theirs.pop().expect("one"), theirs.pop().expect("one"));
    let source = stream::iter(sender.messages(["done soon", "freed soon", "never", "ours"]));
    let consumer = claims(&a).consume(source, handled).concurrency(4).max_wait(SECOND * 2);
    let ends = async {
        while !sender.ended().contains_key("ours") {
            a.env().sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(sender.ended().len(), 1, "no consumer waits for the messages of others");
        done.complete("by b").await.expect("a majority");
        freed.abandon().await.expect("a majority");
    };
    let (consumed, ()) = tokio::join!(consumer.on_end(sender.note()).until(pending::<()>()), ends);
    let consumed = consumed.expect("sound timings");
    assert_eq!((consumed.handled, consumed.duplicates, consumed.in_progress), (2, 1, 1), "{consumed:?}");
    assert_eq!(sender.ended()["never"], ("b handles it".to_owned(), Ok(false)));
    assert_eq!(sender.acks(), 3);
    drop(never);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn shutdown_waits_for_handlers_within_the_grace_and_abandons_the_rest() {
    let (nodes, sender) = (nodes(), Sender::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let stop = Arc::new(Notify::new());
    let begun = Arc::new(AtomicUsize::new(0));
    let handler = {
        let begun = Arc::clone(&begun);
        move |delivery: Received<TestMessage>| {
            begun.fetch_add(1, Ordering::Relaxed);
            async move {
                delivery.cancellation_token().cancelled().await;
                if delivery.message().id == b"stubborn" { pending().await } else { Ok::<_, String>(()) }
            }
        }
    };
    let source = stream::iter(sender.messages(["willing", "stubborn", "unseen"])).chain(stream::pending());
    let consumer = claims(&a).consume(source, handler).concurrency(2).grace(SECOND / 2).on_end(sender.note());
    let ends = async {
        while begun.load(Ordering::Relaxed) < 2 {
            a.env().sleep(Duration::from_millis(1)).await;
        }
        stop.notify_one();
        a.env().now()
    };
    let (consumed, since) = tokio::join!(consumer.until(stop.notified()), ends);
    let took = a.env().now().since(since);
    let consumed = consumed.expect("sound timings");
    assert!((SECOND / 2..SECOND).contains(&took), "{took:?}");
    assert_eq!((consumed.handled, consumed.stopped, consumed.acked), (1, 1, 1), "{consumed:?}");
    assert_eq!(sender.ended()["willing"], ("handled".to_owned(), Ok(true)));
    assert_eq!(sender.ended()["stubborn"].1, Ok(false));
    assert!(matches!(claims(&b).claim("stubborn").await, Ok(ClaimOutcome::Claimed(_))), "abandoned");
    assert!(matches!(claims(&b).claim("unseen").await, Ok(ClaimOutcome::Claimed(_))), "never claimed");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn without_a_quorum_messages_wait_and_the_source_is_not_drained() {
    let (nodes, sender) = (nodes(), Sender::default());
    let (a, off) = with_switch(&nodes);
    let pulled = Arc::new(AtomicUsize::new(0));
    let ids: Vec<String> = (0..10).map(|i| format!("m-{i}")).collect();
    let messages = sender.messages(ids.iter().map(String::as_str));
    let source = stream::iter(messages).inspect(|_| {
        pulled.fetch_add(1, Ordering::Relaxed);
    });
    off.store(true, Ordering::Relaxed);
    let consumer = claims(&a).consume(source, handled).concurrency(3).until(pending::<()>());
    let reconnects = async {
        a.env().sleep(Duration::from_millis(500)).await;
        assert_eq!(pulled.load(Ordering::Relaxed), 3);
        off.store(false, Ordering::Relaxed);
    };
    let (consumed, ()) = tokio::join!(consumer, reconnects);
    let consumed = consumed.expect("sound timings");
    assert_eq!((consumed.handled, consumed.acked), (10, 10), "{consumed:?}");
    a.close().await;
}

#[tokio::test]
async fn impossible_timings_are_refused_before_any_message_is_pulled() {
    let a = quorum("a", &nodes());
    let source = stream::poll_fn::<(String, ()), _>(|_| panic!("pulled"));
    let consumer = claims(&a).ttl(Duration::ZERO).consume(source, |_| ready(Ok::<_, String>(())));
    assert!(consumer.until(pending::<()>()).await.is_err());
    a.close().await;
}

#[tokio::test]
async fn source_errors_are_reported_and_duplicates_are_acked() {
    let a = quorum("a", &nodes());
    let acks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&acks);
    let ack = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        ready(Ok::<_, String>(()))
    };
    let items = vec![Ok(("m-1", "tea", ack.clone())), Err("a hiccup"), Ok(("m-2", "milk", ack))];
    let reported = Arc::new(Mutex::new(Vec::new()));
    let errors = Arc::clone(&reported);
    let consumer = claims(&a).try_consume(stream::iter(items), |_| ready(Ok::<_, String>(())));
    let consumer =
        consumer.on_source_error(move |error| errors.lock().expect("no panic").push(error.to_owned()));
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.handled, consumed.source_errors), (2, 1));
    assert_eq!(
        (acks.load(Ordering::Relaxed), reported.lock().expect("no panic").join("")),
        (2, "a hiccup".to_owned())
    );
    a.close().await;
}

#[tokio::test]
async fn a_source_that_always_fails_is_polled_with_pauses() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    let (errors, third) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (reported, reached) = (Arc::clone(&errors), Arc::clone(&third));
    let source = stream::repeat(Err::<(&str, &str), &str>("no such queue"));
    let began = a.env().now();
    let consumed = Claims::new(&a, "letters")
        .try_consume(source, |_| async { Ok::<_, String>(()) })
        .on_source_error(move |_| {
            let so_far = reported.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(so_far < 100, "asked without a pause");
            if so_far == 3 {
                reached.notify_one();
            }
        })
        .until(third.notified())
        .await
        .expect("timings");
    assert_eq!((consumed.source_errors, errors.load(Ordering::SeqCst)), (3, 3));
    assert!(began.until(a.env().now()) >= Duration::from_millis(150), "50 ms, then 100");
    a.close().await;
}

#[tokio::test]
async fn an_expired_message_is_acked_at_once_without_a_claim_or_a_hook() {
    let (sender, nodes) = (Sender::default(), nodes());
    let a = quorum("a", &nodes);
    let consumed = Claims::new(&a, "letters")
        .consume(stream::iter(sender.messages(["gone", "m-1"])), handled)
        .until(pending::<()>())
        .await
        .expect("timings");
    assert_eq!(
        (consumed.gone, consumed.handled, consumed.acked, sender.acks()),
        (1, 1, 2, 2),
        "{consumed:?}"
    );
    a.close().await;
}

#[tokio::test]
async fn a_dead_message_is_not_acked_before_a_hook_accepts_it() {
    let (sender, nodes) = (Sender::default(), nodes());
    let a = quorum("a", &nodes);
    let claims = Claims::new(&a, "letters").max_attempts(1);
    let fails = |_: Received<TestMessage>| async { Err::<(), _>("no stock") };
    let failed = claims.consume(stream::iter(sender.messages(["m-1"])), fails).until(pending::<()>()).await;
    assert_eq!(failed.expect("timings").failed, 1);
    for _ in 0..2 {
        let source = stream::iter(sender.messages(["m-1"]));
        let left = claims.consume(source, fails).until(pending::<()>()).await.expect("timings");
        assert_eq!((left.dead_lettered, left.acked), (1, 0), "there is no hook");
    }
    let dead_letters = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dead_letters);
    let hooked = claims
        .consume(stream::iter(sender.messages(["m-1"])), fails)
        .on_dead(move |message, reason, _| {
            assert_eq!((&*message.id, attempts(&reason)), (&b"m-1"[..], 1));
            counted.fetch_add(1, Ordering::SeqCst);
            ready(Ok::<_, String>(()))
        })
        .until(pending::<()>())
        .await
        .expect("timings");
    assert_eq!((hooked.dead_lettered, hooked.acked, dead_letters.load(Ordering::SeqCst)), (1, 1, 1));
    // The dead-letter hook has already handled the message. So a worker without a hook may also acknowledge its
    // copy of the message.
    let again = claims.consume(stream::iter(sender.messages(["m-1"])), fails).until(pending::<()>()).await;
    assert_eq!(again.expect("timings").acked, 1);
    a.close().await;
}

#[tokio::test]
async fn a_lost_claim_drops_its_handler_and_is_not_acked() {
    let (nodes, sender) = (nodes(), Sender::default());
    let (a, off) = with_switch(&nodes);
    let begun = Arc::new(Notify::new());
    let reported = Arc::clone(&begun);
    let handler = move |_: Received<TestMessage>| {
        reported.notify_one();
        pending::<Result<(), String>>()
    };
    let source = stream::iter(sender.messages(["m-1"]));
    let consumer = claims(&a).consume(source, handler).on_end(sender.note()).until(pending::<()>());
    let cut = async {
        begun.notified().await;
        off.store(true, Ordering::Relaxed);
    };
    let (consumed, ()) = tokio::join!(consumer, cut);
    assert_eq!(consumed.expect("sound timings").lost, 1);
    assert_eq!((sender.acks(), &sender.ended()["m-1"].1), (0, &Ok(false)));
    assert_eq!(Outcome::Lost.to_string(), sender.ended()["m-1"].0);
    a.close().await;
}

#[tokio::test]
async fn a_message_that_fails_too_often_is_dead_lettered_once_and_acked() {
    let (nodes, sender) = (nodes(), Sender::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let dead = Arc::new(Mutex::new(Vec::new()));
    let consumer = |quorum: &Quorum, ids: [&'static str; 2]| {
        let dead_messages = Arc::clone(&dead);
        let handler = |delivery: Received<TestMessage>| async move {
            if delivery.message().id == b"bad" {
                Err(format!("attempt {}", delivery.claim().attempt()))
            } else {
                Ok(())
            }
        };
        let source = stream::iter(sender.messages(ids));
        let consumer = claims(quorum).max_attempts(2).consume(source, handler).on_end(sender.note());
        let consumer = consumer.on_dead(move |message, reason, claim| {
            let dead_messages = Arc::clone(&dead_messages);
            async move {
                claim.expect("handed over under a claim").fencing_token().expect("which is ours");
                dead_messages.lock().expect("no panic").push((message.id.clone(), attempts(&reason)));
                Ok::<_, String>(())
            }
        });
        consumer.until(pending::<()>())
    };
    for (quorum, id) in [(&a, "one"), (&b, "two")] {
        let consumed = consumer(quorum, ["bad", id]).await.expect("sound timings");
        assert_eq!((consumed.failed, consumed.handled, consumed.dead_lettered), (1, 1, 0), "{consumed:?}");
    }
    let consumed = consumer(&a, ["bad", "three"]).await.expect("sound timings");
    assert_eq!((consumed.dead_lettered, consumed.handled, consumed.acked), (1, 1, 2), "{consumed:?}");
    assert_eq!(sender.ended()["bad"], ("given up after 2 attempts".to_owned(), Ok(true)));
    // The messages are delivered again. The worker finds that the hook has handled the message `bad`, and does
    // not call the hook again.
    let consumed = consumer(&b, ["bad", "four"]).await.expect("sound timings");
    assert_eq!((consumed.dead_lettered, consumed.acked), (1, 2), "{consumed:?}");
    assert_eq!(*dead.lock().expect("no panic"), [(b"bad".to_vec(), 2)]);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_failing_hook_keeps_the_message_and_a_slow_hook_delays_no_other() {
    let (nodes, sender) = (nodes(), Sender::default());
    let a = quorum("a", &nodes);
    let fails = |_: Received<TestMessage>| ready(Err::<(), _>("no"));
    let once = claims(&a).max_attempts(1).consume(stream::iter(sender.messages(["bad"])), fails);
    assert_eq!(once.until(pending::<()>()).await.expect("sound timings").failed, 1);
    let (ended, left) = (Arc::clone(&sender.ended), Arc::clone(&sender.left));
    let before = left.load(Ordering::Relaxed);
    let env = a.env().clone();
    let consumer =
        claims(&a).max_attempts(1).consume(stream::iter(sender.messages(["bad", "good"])), handled);
    let consumer = consumer.on_end(sender.note()).on_dead(move |_, _, _| {
        let (ended, env) = (Arc::clone(&ended), env.clone());
        async move {
            while ended.lock().expect("no panic").is_empty() {
                env.sleep(Duration::from_millis(1)).await;
            }
            Err("no room")
        }
    });
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.dead_lettered, consumed.handled, consumed.acked), (1, 1, 1), "{consumed:?}");
    assert!(matches!(&sender.ended()["bad"].1, Err(why) if why.contains("hook failed")));
    assert_eq!(left.load(Ordering::Relaxed), before + 1);
    a.close().await;
}

/// A message with an id and a payload. The consumer compares the fingerprint of the payload.
struct Sealed(&'static str, &'static str);

impl Message for Sealed {
    type Error = &'static str;

    fn id(&self) -> Result<&str, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0)
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        Some(Fingerprint::of(self.1.as_bytes()))
    }

    async fn ack(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

#[tokio::test]
async fn the_same_id_with_another_payload_is_a_dead_message() {
    let a = quorum("a", &nodes());
    let source = stream::iter([Sealed("m-1", "tea"), Sealed("m-1", "tea"), Sealed("m-1", "milk")]);
    let why = Arc::new(Mutex::new(String::new()));
    let reported = Arc::clone(&why);
    let consumer = claims(&a).consume(source, |_| ready(Ok::<_, String>(()))).concurrency(1);
    let consumer = consumer.on_dead(move |message, reason, _| {
        *reported.lock().expect("no panic") = format!("{}: {reason}", message.1);
        ready(Ok::<_, String>(()))
    });
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.handled, consumed.duplicates, consumed.unusable), (1, 1, 1), "{consumed:?}");
    let why = why.lock().expect("no panic").clone();
    assert!(why.starts_with("milk: ") && why.contains("one id is for one payload"), "{why}");
    a.close().await;
}
