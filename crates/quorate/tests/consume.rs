//! A stream of messages over memory nodes on the real clock: what becomes of each.

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
        stream::{Acked, BadId, Delivery, Ended, Message, Outcome},
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

/// A message whose acks are counted.
#[derive(Debug)]
struct Letter {
    id: Vec<u8>,
    acks: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

impl Message for Letter {
    type Error = &'static str;

    fn id(&self) -> Result<&str, BadId> {
        str::from_utf8(&self.id).map_err(|_| BadId::not_utf8(&self.id))
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

/// Where messages are sent from, and what came of them.
#[derive(Clone, Default)]
struct Post {
    acks: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
    ended: Arc<Mutex<Vec<(String, String, Acked)>>>,
}

impl Post {
    fn letter(&self, id: impl AsRef<[u8]>) -> Letter {
        Letter { id: id.as_ref().to_owned(), acks: Arc::clone(&self.acks), left: Arc::clone(&self.left) }
    }

    fn letters<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<Letter> {
        ids.into_iter().map(|id| self.letter(id)).collect()
    }

    fn note(&self) -> impl Fn(&Ended<Letter>) + Send + Sync + 'static {
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

/// A worker over nodes that the switch cuts off.
fn with_switch(nodes: &[MemoryNode]) -> (Quorum, Arc<AtomicBool>) {
    let off = Arc::new(AtomicBool::new(false));
    let nodes = nodes.iter().map(|node| Cut::new(node, &off));
    let builder = Quorum::builder().worker("a").nodes(nodes).trust_new_nodes(true);
    (builder.build().expect("a sound setup"), off)
}

fn claims(quorum: &Quorum) -> Claims {
    Claims::new(quorum, "orders").ttl(SECOND)
}

async fn handled(_: Delivery<Letter>) -> Result<(), String> {
    Ok(())
}

#[tokio::test]
async fn each_is_handled_once_and_acked_only_when_a_majority_knows_it_done() {
    let (nodes, post) = (nodes(), Post::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let ids: Vec<String> = (0..200).map(|i| format!("m-{i}")).collect();
    let times = Arc::new(AtomicUsize::new(0));
    let consumer = |quorum: &Quorum| {
        let times = Arc::clone(&times);
        let handler = move |letter: Delivery<Letter>| {
            let times = Arc::clone(&times);
            async move {
                letter.fencing_token().expect("ours");
                times.fetch_add(1, Ordering::Relaxed);
                Ok::<_, String>("shipped")
            }
        };
        let letters = post.letters(ids.iter().map(String::as_str));
        claims(quorum).consume(stream::iter(letters), handler).concurrency(8).until(pending::<()>())
    };
    let (at_a, at_b) = tokio::join!(consumer(&a), consumer(&b));
    let (at_a, at_b) = (at_a.expect("sound timings"), at_b.expect("sound timings"));
    assert_eq!(times.load(Ordering::Relaxed), 200);
    assert_eq!(at_a.handled + at_b.handled, 200, "{at_a:?} {at_b:?}");
    assert_eq!(at_a.duplicates + at_b.duplicates, 200, "{at_a:?} {at_b:?}");
    assert_eq!((at_a.acked, at_b.acked, post.acks()), (200, 200, 400));
    for id in &ids {
        let outcome = claims(&a).claim(id).await.expect("a quorum");
        assert!(matches!(&outcome, ClaimOutcome::Done(done) if &*done.result == "shipped"), "{outcome:?}");
    }
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn what_cannot_be_handled_is_said_and_blocks_nobody() {
    let (nodes, post) = (nodes(), Post::default());
    let a = quorum("a", &nodes);
    let long = "x".repeat(600);
    let mut letters = post.letters(["good", "", "bad{brace}", "fails", "panics", "deaf", &long]);
    letters.push(post.letter(b"\xff\xfe"));
    letters.extend(post.letters(["good too"]));
    let handler = |letter: Delivery<Letter>| async move {
        match &*letter.message().id {
            b"fails" => Err("no stock".to_owned()),
            b"panics" => panic!("at the disco"),
            _ => Ok(()),
        }
    };
    let dead = Arc::new(Mutex::new(Vec::new()));
    let graves = Arc::clone(&dead);
    let consumer = claims(&a).consume(stream::iter(letters), handler).concurrency(2).on_end(post.note());
    let consumer = consumer.on_dead(move |letter| {
        let graves = Arc::clone(&graves);
        async move {
            graves.lock().expect("no panic").push(letter.why.to_string());
            if letter.message.id.is_empty() { Err("the cemetery is full") } else { Ok(()) }
        }
    });
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.handled, consumed.failed, consumed.unusable), (3, 2, 4), "{consumed:?}");
    let ended = post.ended();
    assert_eq!(ended["good"], ("handled".to_owned(), Acked::Yes));
    assert_eq!(ended["good too"], ("handled".to_owned(), Acked::Yes));
    assert_eq!(ended["fails"], ("the handler failed: no stock".to_owned(), Acked::No));
    assert_eq!(ended["panics"], ("the handler failed: it panicked: at the disco".to_owned(), Acked::No));
    assert_eq!(ended["deaf"].1, Acked::Failed("the source does not listen".into()));
    let (why, acked) = &ended[""];
    assert!(why.contains("is empty") && *acked == Acked::Failed("dead letter: the cemetery is full".into()));
    for (id, says) in
        [("bad{brace}", "brace"), (&*long, "longer than 512 bytes"), ("\u{fffd}\u{fffd}", "UTF-8")]
    {
        let (why, acked) = &ended[id];
        assert!(why.contains(says) && *acked == Acked::Yes, "{id}: {why} {acked:?}");
    }
    assert_eq!(dead.lock().expect("no panic").len(), 4);
    // What failed may be claimed again at once.
    assert!(matches!(claims(&a).claim("fails").await, Ok(ClaimOutcome::Claimed(_))));
    assert_eq!(post.left.load(Ordering::Relaxed), 3, "fails, panics, and whom the hook did not take");
    a.close().await;
}

#[tokio::test]
async fn without_a_hook_what_cannot_be_handled_is_left_to_the_source() {
    let (nodes, post) = (nodes(), Post::default());
    let a = quorum("a", &nodes);
    let consumer = claims(&a).consume(stream::iter(post.letters([""])), handled).on_end(post.note());
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.unusable, consumed.acked, post.acks()), (1, 0, 0));
    assert!(matches!(&post.ended()[""].1, Acked::Failed(why) if why.contains("on_dead")));
    a.close().await;
}

#[tokio::test]
async fn nothing_is_pulled_without_room() {
    let (nodes, post) = (nodes(), Post::default());
    let a = quorum("a", &nodes);
    let (pulled, at_work, most) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Notify::new());
    let ids: Vec<String> = (0..20).map(|i| format!("m-{i}")).collect();
    let letters = post.letters(ids.iter().map(String::as_str));
    let source = stream::iter(letters).inspect(|_| {
        pulled.fetch_add(1, Ordering::Relaxed);
    });
    let handler = {
        let (at_work, most, gate) = (Arc::clone(&at_work), Arc::clone(&most), Arc::clone(&gate));
        move |_: Delivery<Letter>| {
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
            while post.acks() < done + 1 {
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
async fn what_another_handles_is_looked_at_again_and_left_when_patience_is_over() {
    let (nodes, post) = (nodes(), Post::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let mut theirs = Vec::new();
    for id in ["done soon", "freed soon", "never"] {
        match claims(&b).claim(id).await {
            Ok(ClaimOutcome::Claimed(claim)) => theirs.push(claim),
            other => panic!("{other:?}"),
        }
    }
    let (never, freed, done) = (theirs.pop(), theirs.pop().expect("one"), theirs.pop().expect("one"));
    let source = stream::iter(post.letters(["done soon", "freed soon", "never", "ours"]));
    let consumer = claims(&a).consume(source, handled).concurrency(4).patience(SECOND * 2);
    let ends = async {
        while !post.ended().contains_key("ours") {
            a.env().sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(post.ended().len(), 1, "nobody waits for those of others");
        done.complete("by b").await.expect("a majority");
        freed.abandon().await.expect("a majority");
    };
    let (consumed, ()) = tokio::join!(consumer.on_end(post.note()).until(pending::<()>()), ends);
    let consumed = consumed.expect("sound timings");
    assert_eq!((consumed.handled, consumed.duplicates, consumed.in_progress), (2, 1, 1), "{consumed:?}");
    assert_eq!(post.ended()["never"], ("b handles it".to_owned(), Acked::No));
    assert_eq!(post.acks(), 3);
    drop(never);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn shut_down_lets_handlers_end_within_the_grace_and_abandons_the_rest() {
    let (nodes, post) = (nodes(), Post::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let stop = Arc::new(Notify::new());
    let begun = Arc::new(AtomicUsize::new(0));
    let handler = {
        let begun = Arc::clone(&begun);
        move |letter: Delivery<Letter>| {
            begun.fetch_add(1, Ordering::Relaxed);
            async move {
                letter.cancellation_token().cancelled().await;
                if letter.message().id == b"stubborn" { pending().await } else { Ok::<_, String>(()) }
            }
        }
    };
    let source = stream::iter(post.letters(["willing", "stubborn", "unseen"])).chain(stream::pending());
    let consumer = claims(&a).consume(source, handler).concurrency(2).grace(SECOND / 2).on_end(post.note());
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
    assert_eq!(post.ended()["willing"], ("handled".to_owned(), Acked::Yes));
    assert_eq!(post.ended()["stubborn"].1, Acked::No);
    assert!(matches!(claims(&b).claim("stubborn").await, Ok(ClaimOutcome::Claimed(_))), "abandoned");
    assert!(matches!(claims(&b).claim("unseen").await, Ok(ClaimOutcome::Claimed(_))), "never claimed");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn without_a_quorum_messages_wait_and_the_source_is_not_read_empty() {
    let (nodes, post) = (nodes(), Post::default());
    let (a, off) = with_switch(&nodes);
    let pulled = Arc::new(AtomicUsize::new(0));
    let ids: Vec<String> = (0..10).map(|i| format!("m-{i}")).collect();
    let letters = post.letters(ids.iter().map(String::as_str));
    let source = stream::iter(letters).inspect(|_| {
        pulled.fetch_add(1, Ordering::Relaxed);
    });
    off.store(true, Ordering::Relaxed);
    let consumer = claims(&a).consume(source, handled).concurrency(3).until(pending::<()>());
    let mends = async {
        a.env().sleep(Duration::from_millis(500)).await;
        assert_eq!(pulled.load(Ordering::Relaxed), 3);
        off.store(false, Ordering::Relaxed);
    };
    let (consumed, ()) = tokio::join!(consumer, mends);
    let consumed = consumed.expect("sound timings");
    assert_eq!((consumed.handled, consumed.acked), (10, 10), "{consumed:?}");
    a.close().await;
}

#[tokio::test]
async fn timings_that_cannot_work_are_told_before_anything_is_pulled() {
    let a = quorum("a", &nodes());
    let source = stream::poll_fn::<(String, ()), _>(|_| panic!("pulled"));
    let consumer = claims(&a).ttl(Duration::ZERO).consume(source, |_| ready(Ok::<_, String>(())));
    assert!(consumer.until(pending::<()>()).await.is_err());
    a.close().await;
}

#[tokio::test]
async fn errors_of_the_source_are_told_and_triples_are_acked() {
    let a = quorum("a", &nodes());
    let acks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&acks);
    let ack = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        ready(Ok::<_, String>(()))
    };
    let items = vec![Ok(("m-1", "tea", ack.clone())), Err("a hiccup"), Ok(("m-2", "milk", ack))];
    let told = Arc::new(Mutex::new(Vec::new()));
    let errors = Arc::clone(&told);
    let consumer = claims(&a).consume(stream::iter(items), |_| ready(Ok::<_, String>(())));
    let consumer =
        consumer.on_source_error(move |error| errors.lock().expect("no panic").push(error.to_owned()));
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.handled, consumed.source_errors), (2, 1));
    assert_eq!(
        (acks.load(Ordering::Relaxed), told.lock().expect("no panic").join("")),
        (2, "a hiccup".to_owned())
    );
    a.close().await;
}

#[tokio::test]
async fn a_source_that_has_an_error_ready_always_is_left_alone_in_between() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    let (errors, third) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (told, reached) = (Arc::clone(&errors), Arc::clone(&third));
    let source = stream::repeat(Err::<(&str, &str), &str>("no such queue"));
    let began = a.env().now();
    let consumed = Claims::new(&a, "letters")
        .consume(source, |_| async { Ok::<_, String>(()) })
        .on_source_error(move |_| {
            let so_far = told.fetch_add(1, Ordering::SeqCst) + 1;
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
async fn what_is_gone_is_acked_at_once_without_a_claim_or_a_hook() {
    let (post, nodes) = (Post::default(), nodes());
    let a = quorum("a", &nodes);
    let consumed = Claims::new(&a, "letters")
        .consume(stream::iter(post.letters(["gone", "m-1"])), handled)
        .until(pending::<()>())
        .await
        .expect("timings");
    assert_eq!((consumed.gone, consumed.handled, consumed.acked, post.acks()), (1, 1, 2, 2), "{consumed:?}");
    a.close().await;
}

#[tokio::test]
async fn what_no_hook_took_is_not_acked_and_given_to_the_first_one_there_is() {
    let (post, nodes) = (Post::default(), nodes());
    let a = quorum("a", &nodes);
    let claims = Claims::new(&a, "letters").max_attempts(1);
    let fails = |_: Delivery<Letter>| async { Err::<(), _>("no stock") };
    let failed = claims.consume(stream::iter(post.letters(["m-1"])), fails).until(pending::<()>()).await;
    assert_eq!(failed.expect("timings").failed, 1);
    for _ in 0..2 {
        let source = stream::iter(post.letters(["m-1"]));
        let left = claims.consume(source, fails).until(pending::<()>()).await.expect("timings");
        assert_eq!((left.poisoned, left.acked), (1, 0), "there is no hook");
    }
    let buried = Arc::new(AtomicUsize::new(0));
    let grave = Arc::clone(&buried);
    let hooked = claims
        .consume(stream::iter(post.letters(["m-1"])), fails)
        .on_dead(move |letter| {
            assert_eq!((&*letter.message.id, letter.attempts), (&b"m-1"[..], 1));
            grave.fetch_add(1, Ordering::SeqCst);
            ready(Ok::<_, String>(()))
        })
        .until(pending::<()>())
        .await
        .expect("timings");
    assert_eq!((hooked.poisoned, hooked.acked, buried.load(Ordering::SeqCst)), (1, 1, 1));
    // Somebody has it now, so that a worker without a hook may ack its copy.
    let again = claims.consume(stream::iter(post.letters(["m-1"])), fails).until(pending::<()>()).await;
    assert_eq!(again.expect("timings").acked, 1);
    a.close().await;
}

#[tokio::test]
async fn a_lost_claim_drops_its_handler_and_is_not_acked() {
    let (nodes, post) = (nodes(), Post::default());
    let (a, off) = with_switch(&nodes);
    let begun = Arc::new(Notify::new());
    let told = Arc::clone(&begun);
    let handler = move |_: Delivery<Letter>| {
        told.notify_one();
        pending::<Result<(), String>>()
    };
    let source = stream::iter(post.letters(["m-1"]));
    let consumer = claims(&a).consume(source, handler).on_end(post.note()).until(pending::<()>());
    let cut = async {
        begun.notified().await;
        off.store(true, Ordering::Relaxed);
    };
    let (consumed, ()) = tokio::join!(consumer, cut);
    assert_eq!(consumed.expect("sound timings").lost, 1);
    assert_eq!((post.acks(), &post.ended()["m-1"].1), (0, &Acked::No));
    assert_eq!(Outcome::Lost.to_string(), post.ended()["m-1"].0);
    a.close().await;
}

#[tokio::test]
async fn what_fails_too_often_is_handed_over_with_its_message_once_and_acked() {
    let (nodes, post) = (nodes(), Post::default());
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let dead = Arc::new(Mutex::new(Vec::new()));
    let consumer = |quorum: &Quorum, ids: [&'static str; 2]| {
        let graves = Arc::clone(&dead);
        let handler = |letter: Delivery<Letter>| async move {
            if letter.message().id == b"bad" {
                Err(format!("attempt {}", letter.claim().attempt()))
            } else {
                Ok(())
            }
        };
        let source = stream::iter(post.letters(ids));
        let consumer = claims(quorum).max_attempts(2).consume(source, handler).on_end(post.note());
        let consumer = consumer.on_dead(move |letter| {
            let graves = Arc::clone(&graves);
            async move {
                letter.claim.expect("handed over under a claim").fencing_token().expect("which is ours");
                graves.lock().expect("no panic").push((letter.message.id.clone(), letter.attempts));
                Ok::<_, String>(())
            }
        });
        consumer.until(pending::<()>())
    };
    for (quorum, id) in [(&a, "one"), (&b, "two")] {
        let consumed = consumer(quorum, ["bad", id]).await.expect("sound timings");
        assert_eq!((consumed.failed, consumed.handled, consumed.poisoned), (1, 1, 0), "{consumed:?}");
    }
    let consumed = consumer(&a, ["bad", "three"]).await.expect("sound timings");
    assert_eq!((consumed.poisoned, consumed.handled, consumed.acked), (1, 1, 2), "{consumed:?}");
    assert_eq!(post.ended()["bad"], ("given up after 2 attempts".to_owned(), Acked::Yes));
    // Who is brought it again knows, and hands over nothing.
    let consumed = consumer(&b, ["bad", "four"]).await.expect("sound timings");
    assert_eq!((consumed.poisoned, consumed.acked), (1, 2), "{consumed:?}");
    assert_eq!(*dead.lock().expect("no panic"), [(b"bad".to_vec(), 2)]);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_hook_that_fails_keeps_the_message_and_a_slow_one_keeps_nobody_waiting() {
    let (nodes, post) = (nodes(), Post::default());
    let a = quorum("a", &nodes);
    let fails = |_: Delivery<Letter>| ready(Err::<(), _>("no"));
    let once = claims(&a).max_attempts(1).consume(stream::iter(post.letters(["bad"])), fails);
    assert_eq!(once.until(pending::<()>()).await.expect("sound timings").failed, 1);
    let (ended, left) = (Arc::clone(&post.ended), Arc::clone(&post.left));
    let before = left.load(Ordering::Relaxed);
    let env = a.env().clone();
    let consumer = claims(&a).max_attempts(1).consume(stream::iter(post.letters(["bad", "good"])), handled);
    let consumer = consumer.on_end(post.note()).on_dead(move |_| {
        let (ended, env) = (Arc::clone(&ended), env.clone());
        async move {
            while ended.lock().expect("no panic").is_empty() {
                env.sleep(Duration::from_millis(1)).await;
            }
            Err("no room")
        }
    });
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.poisoned, consumed.handled, consumed.acked), (1, 1, 1), "{consumed:?}");
    assert!(matches!(&post.ended()["bad"].1, Acked::Failed(why) if why.contains("hook failed")));
    assert_eq!(left.load(Ordering::Relaxed), before + 1);
    a.close().await;
}

/// An id and a payload, which are looked at together.
struct Sealed(&'static str, &'static str);

impl Message for Sealed {
    type Error = &'static str;

    fn id(&self) -> Result<&str, BadId> {
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
    let told = Arc::clone(&why);
    let consumer = claims(&a).consume(source, |_| ready(Ok::<_, String>(()))).concurrency(1);
    let consumer = consumer.on_dead(move |letter| {
        *told.lock().expect("no panic") = format!("{}: {}", letter.message.1, letter.why);
        ready(Ok::<_, String>(()))
    });
    let consumed = consumer.until(pending::<()>()).await.expect("sound timings");
    assert_eq!((consumed.handled, consumed.duplicates, consumed.unusable), (1, 1, 1), "{consumed:?}");
    let why = why.lock().expect("no panic").clone();
    assert!(why.starts_with("milk: ") && why.contains("one id is for one payload"), "{why}");
    a.close().await;
}
