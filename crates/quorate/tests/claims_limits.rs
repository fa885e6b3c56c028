//! Tests of claims with memory nodes and the real clock. They cover attempt limits, payload fingerprints, and
//! several workers that claim the same message.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    claim::{
        Claim, ClaimError, ClaimOutcome, ClaimState, Claims, DeadLettered, Fingerprint, MessageId,
        ProcessError, Processed,
    },
    env::Env,
    node::{
        Batch, BatchReply, Cause, FencingToken, Hello, MemoryNode, MemorySession, Node, NodeTime, Owner,
        PushSender, Refusal, Reply, Request, Resource, Session,
    },
    quorum::Quorum,
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

fn claims(quorum: &Quorum) -> Claims {
    Claims::new(quorum, "orders").ttl(SECOND).max_attempts(3)
}

async fn claimed<'a>(claims: &Claims, message: impl Into<MessageId<'a>>) -> Claim {
    match claims.claim(message).await.expect("a quorum") {
        ClaimOutcome::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    }
}

async fn dead_lettered(claims: &Claims, id: &str) -> DeadLettered {
    match claims.claim(id).await.expect("a quorum") {
        ClaimOutcome::DeadLettered(dead_lettered) => dead_lettered,
        other => panic!("{other:?}"),
    }
}

/// Waits until the claim is in the state `wanted`. This can take a moment: for example, the claim of a failed
/// attempt is released a little later.
async fn until_it_is(claims: &Claims, id: &str, wanted: &ClaimState) {
    for _ in 0..10_000 {
        let state = claims.inspect(id).await.expect("a quorum");
        if state == *wanted {
            return;
        }
        assert!(matches!(state, ClaimState::Claimed { .. }), "{state:?}");
        tokio::task::yield_now().await;
    }
    panic!("never {wanted:?}");
}

#[tokio::test]
async fn attempts_are_counted_over_failing_workers_up_to_the_limit() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    let failed = claims(&a).process("m", |claim| async move { Err::<(), _>(claim.attempt()) }).await;
    assert!(matches!(failed, Err(ProcessError::Handler(1))), "{failed:?}");
    let second = claimed(&claims(&a), "m").await;
    assert_eq!(second.attempt(), 2);
    drop(second);
    // The dropped claim is released a little later, so the test tries until the message can be claimed.
    let third = loop {
        match claims(&a).claim("m").await.expect("a quorum") {
            ClaimOutcome::Claimed(claim) => break claim,
            ClaimOutcome::InProgress { .. } => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(third.attempt(), 3);
    match claims(&a).inspect("m").await.expect("a quorum") {
        ClaimState::Claimed { by, attempts: 3, .. } => assert_eq!(by.expect("it").worker(), "a"),
        other => panic!("{other:?}"),
    }
    third.abandon().await.expect("a majority");
    let state = claims(&a).inspect("m").await.expect("a quorum");
    assert_eq!(state, ClaimState::Free { attempts: 3, payload: None });
    let given_up = dead_lettered(&claims(&a), "m").await;
    assert_eq!((given_up.attempts, &*given_up.note), (3, ""));
    assert_eq!(given_up.at, None, "no hook has it");
    assert_eq!(dead_lettered(&claims(&a), "m").await, given_up, "and it stays given up");
    let completed = claims(&a).process("m", |_| async { Ok::<(), Infallible>(()) }).await.expect("a quorum");
    assert_eq!(completed, Processed::DeadLettered(given_up.clone()));
    let state = claims(&a).inspect("m").await.expect("a quorum");
    assert_eq!(state, ClaimState::Free { attempts: 3, payload: None });
    a.close().await;
}

#[tokio::test]
async fn a_dead_message_waits_for_the_first_worker_with_a_hook() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    for _ in 0..3 {
        claimed(&claims(&a), "m").await.abandon().await.expect("a majority");
    }
    assert_eq!(dead_lettered(&claims(&a), "m").await.at, None, "no hook has it");
    let taken = Arc::new(AtomicUsize::new(0));
    let hooked = {
        let taken = Arc::clone(&taken);
        claims(&a).dead_letter(move |_| {
            taken.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>("a row") }
        })
    };
    let handed = dead_lettered(&hooked, "m").await;
    assert!(handed.at.is_some() && &*handed.note == "a row", "{handed:?}");
    assert_eq!(taken.load(Ordering::SeqCst), 1);
    // This worker has no hook. It gets the record of the dead letter, which shows that the hook of another
    // worker has handled the message.
    assert_eq!(dead_lettered(&claims(&a), "m").await, handed);
    assert_eq!(claims(&a).inspect("m").await.expect("a quorum"), ClaimState::DeadLettered(handed));
    a.close().await;
}

#[tokio::test]
async fn the_dead_letter_hook_runs_under_a_claim_until_it_succeeds() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    for attempt in 1..=3 {
        let claim = claimed(&claims(&a), "m").await;
        assert_eq!(claim.attempt(), attempt);
        claim.abandon().await.expect("a majority");
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let hooked = |quorum: &Quorum| {
        let runs = Arc::clone(&runs);
        claims(quorum).dead_letter(move |letter| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            async move {
                assert_eq!((&*letter.set, &*letter.id, letter.attempts), ("orders", "m", 3));
                letter.claim.fencing_token().expect("it is ours while the hook runs");
                tokio::task::yield_now().await;
                if run == 0 { Err("the table is away") } else { Ok(format!("row {run}")) }
            }
        })
    };
    let refused = dead_lettered(&hooked(&a), "m").await;
    assert_eq!((refused.attempts, refused.at), (3, None), "not taken yet");
    // Two workers claim the message at the same time. One of them passes the message to the hook. The other
    // gets *in progress*, or *dead-lettered* if the hook has handled the message by then.
    let (one, two) = (hooked(&a), hooked(&b));
    let mut handed = 0;
    while handed == 0 {
        let (one, two) = tokio::join!(one.claim("m"), two.claim("m"));
        for outcome in [one, two] {
            match outcome.expect("a quorum") {
                ClaimOutcome::DeadLettered(dead_lettered) if dead_lettered.at.is_some() => handed += 1,
                ClaimOutcome::InProgress { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2, "once more after it failed");
    let last = dead_lettered(&hooked(&b), "m").await;
    assert_eq!((last.attempts, &*last.note), (3, "row 1"));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_claim_given_back_counts_no_attempt_and_a_reset_starts_at_zero() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    let claims = claims(&a);
    for _ in 0..5 {
        let claim = claimed(&claims, "m").await;
        assert_eq!(claim.attempt(), 1);
        claim.cancel_before_start().await.expect("a majority");
    }
    for _ in 0..3 {
        claimed(&claims, "m").await.abandon().await.expect("a majority");
    }
    dead_lettered(&claims, "m").await;
    claims.reset("m").await.expect("every node is there");
    let fresh = claimed(&claims, "m").await;
    assert_eq!(fresh.attempt(), 1);
    let held = claims.reset("m").await.expect_err("it is held");
    assert!(matches!(&held, ClaimError::InProgress { holder } if holder.worker() == "a"), "{held}");
    fresh.complete("ok").await.expect("a majority");
    let done = claims.reset("m").await.expect_err("it is done");
    assert!(matches!(&done, ClaimError::AlreadyDone(done) if &*done.result == "ok"), "{done}");
    a.close().await;
}

#[tokio::test]
async fn an_id_keeps_one_payload_while_claimed_free_or_done() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let (ours, theirs) = (Claims::new(&a, "orders").ttl(SECOND), Claims::new(&b, "orders").ttl(SECOND));
    let (first, other) =
        (MessageId::new("m").payload(b"ten euros"), MessageId::new("m").payload(b"a million"));
    let refused = async |when: &str| {
        let error = theirs.claim(other.clone()).await.expect_err(when);
        let ClaimError::OtherPayload { id, given, stored } = &error else { panic!("{when}: {error}") };
        assert_eq!(&**id, "m");
        assert_eq!(
            (given, stored),
            (&Fingerprint::of(b"a million"), &Fingerprint::of(b"ten euros")),
            "{when}"
        );
        let text = error.to_string();
        assert!(text.contains(given.as_str()) && text.contains(stored.as_str()), "{text}");
        assert!(error.is_permanent());
    };
    let claim = claimed(&ours, first.clone()).await;
    refused("claimed").await;
    let same = theirs.claim(first.clone()).await.expect("the same payload");
    assert!(matches!(same, ClaimOutcome::InProgress { .. }), "{same:?}");
    claim.abandon().await.expect("a majority");
    refused("abandoned").await;
    let free = ClaimState::Free { attempts: 1, payload: Some(Fingerprint::of(b"ten euros")) };
    until_it_is(&ours, "m", &free).await;
    // This claim has no fingerprint. So it is not compared with the stored fingerprint, and does not change it.
    claimed(&theirs, "m").await.complete("paid").await.expect("a majority");
    refused("done").await;
    match theirs.claim(first).await.expect("the same payload") {
        ClaimOutcome::Done(done) => assert_eq!(&*done.result, "paid"),
        other => panic!("{other:?}"),
    }
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_message_that_was_refused_for_its_payload_can_be_reset_at_once() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    let claims = Claims::new(&a, "orders").ttl(SECOND);
    let (first, other) =
        (MessageId::new("m").payload(b"ten euros"), MessageId::new("m").payload(b"a million"));
    claimed(&claims, first).await.abandon().await.expect("a majority");
    let refused = claims.claim(other.clone()).await.expect_err("another payload");
    assert!(matches!(refused, ClaimError::OtherPayload { .. }), "{refused}");
    claims.reset("m").await.expect("the refused claim does not hold the message");
    claimed(&claims, other).await.complete("paid").await.expect("a majority");
    a.close().await;
}

#[tokio::test]
async fn a_late_worker_learns_the_holder_and_the_completer() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let (late, also_late) = (claimed(&claims(&a), "m").await, claimed(&claims(&a), "n").await);
    for claim in [&late, &also_late] {
        // The test releases the claims without their worker, so that the worker loses them as it would at the
        // end of their TTL.
        let resource = Resource::claim("orders", claim.id()).expect("a name");
        let owner = b.inspect(&resource).await.expect("a majority").holder.expect("a");
        assert!(b.force_release(&resource, &owner).await.is_clear());
    }
    let (held, finished) = (claimed(&claims(&b), "m").await, claimed(&claims(&b), "n").await);
    finished.complete("theirs").await.expect("a majority");
    let taken = late.abandon().await.expect_err("b holds it");
    assert!(matches!(&taken, ClaimError::TakenOver { holder } if holder.worker() == "b"), "{taken:?}");
    assert!(taken.to_string().contains("held by b"), "{taken}");
    held.fencing_token().expect("still its own");
    match also_late.abandon().await {
        Err(ClaimError::AlreadyDone(done)) => assert_eq!(&*done.result, "theirs"),
        other => panic!("{other:?}"),
    }
    let state = claims(&b).inspect("m").await.expect("a quorum");
    assert!(matches!(state, ClaimState::Claimed { by: Some(by), .. } if by.worker() == "b"));
    held.complete("b's").await.expect("a majority");
    b.close().await;
    a.close().await;
}

#[tokio::test]
async fn every_caller_of_an_idempotent_key_gets_the_first_result() {
    let nodes = nodes();
    let quorums: Vec<Quorum> = (0..4).map(|i| quorum(&format!("w{i}"), &nodes)).collect();
    let runs = AtomicUsize::new(0);
    let asks = quorums.iter().map(|quorum| {
        let (claims, runs, env) = (claims(quorum), &runs, quorum.env().clone());
        async move {
            let handler = |_| async move {
                let run = runs.fetch_add(1, Ordering::SeqCst);
                env.sleep(Duration::from_millis(300)).await;
                // The first handler fails. One of the waiting callers then runs its own handler.
                if run == 0 { Err("card declined") } else { Ok(format!("receipt {run}")) }
            };
            claims.process_or_wait("key-1", 10 * SECOND, handler).await
        }
    });
    let answers = futures_util::future::join_all(asks).await;
    let (completed, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!(matches!(&failed[..], [Err(ProcessError::Handler("card declined"))]), "{failed:?}");
    let completed: Vec<_> = completed.into_iter().map(|once| once.expect("sorted out")).collect();
    assert!(completed.iter().all(|once| &*once.result == "receipt 1"), "{completed:?}");
    assert!(completed.iter().all(|once| once.at == completed[0].at), "one record: {completed:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    for quorum in quorums {
        quorum.close().await;
    }
}

#[tokio::test]
async fn a_wait_for_another_worker_times_out_and_names_the_holder() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let _held = claimed(&claims(&a), "m").await;
    let began = b.env().now();
    let wait = Duration::from_millis(250);
    let over = claims(&b)
        .process_or_wait("m", wait, |_| async { Ok::<(), Infallible>(()) })
        .await
        .expect_err("it is held");
    assert!(began.until(b.env().now()) >= wait);
    match &over {
        ProcessError::StillInProgress { holder, .. } => {
            assert_eq!(holder.as_ref().expect("it").worker(), "a");
        }
        other => panic!("{other}"),
    }
    assert!(over.to_string().contains("\"m\"") && over.to_string().contains("by a"), "{over}");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn thousands_are_claimed_completed_and_abandoned_in_one_call() {
    // The test sends thousands of ids to five nodes in one process, which may take longer than the default
    // timeout on a busy machine.
    let builder = Quorum::builder().worker("a").nodes(nodes()).node_timeout(Duration::from_secs(1));
    let a = builder.trust_new_nodes(true).build().expect("a sound setup");
    let claims = Claims::new(&a, "orders").max_attempts(3);
    let ids: Vec<String> = (0..3000).map(|i| format!("m-{i}")).collect();
    let mut held = Vec::new();
    for (id, outcome) in claims.claim_many(&ids).await.expect("names are sound") {
        match outcome.expect("a quorum") {
            ClaimOutcome::Claimed(claim) => held.push(claim),
            other => panic!("{id}: {other:?}"),
        }
    }
    let rest = held.split_off(2000);
    let results: Vec<String> = held.iter().map(|claim| format!("of {}", claim.id())).collect();
    let completed = Claim::complete_many(held.into_iter().zip(results)).await;
    assert!(completed.iter().zip(&ids).all(|((id, done), asked)| **id == **asked && done.is_ok()));
    let abandoned = Claim::abandon_many(rest).await;
    assert!(abandoned.iter().zip(&ids[2000..]).all(|((id, free), asked)| **id == **asked && free.is_ok()));
    for (number, (id, outcome)) in claims.claim_many(&ids).await.expect("names").into_iter().enumerate() {
        match outcome.expect("a quorum") {
            ClaimOutcome::Done(done) if number < 2000 => assert_eq!(*done.result, format!("of {id}")),
            ClaimOutcome::Claimed(claim) if number >= 2000 => assert_eq!(claim.attempt(), 2),
            other => panic!("{id}: {other:?}"),
        }
    }
    a.close().await;
}

/// A node that refuses to count attempts while its flag is set.
#[derive(Clone)]
struct NotCounting(MemoryNode, Arc<AtomicBool>);

struct NotCountingSession(MemorySession, Arc<AtomicBool>);

impl Node for NotCounting {
    type Session = NotCountingSession;

    fn name(&self) -> &str {
        self.0.name()
    }

    async fn open(&self, push_sender: PushSender) -> Result<(NotCountingSession, Hello), Cause> {
        let (session, hello) = self.0.open(push_sender).await?;
        Ok((NotCountingSession(session, Arc::clone(&self.1)), hello))
    }
}

impl Session for NotCountingSession {
    fn send(&mut self, mut batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let deaf = self.1.load(Ordering::SeqCst);
        for request in batch.requests.iter_mut().filter(|_| deaf) {
            if let Request::Count { owner, withdraw: false, .. } = request {
                *owner = Owner::from_node("stranger:1");
            }
        }
        self.0.send(batch)
    }
}

#[tokio::test]
async fn an_attempt_without_a_majority_of_counts_is_taken_back() {
    let nodes = nodes();
    let deaf = Arc::new(AtomicBool::new(true));
    let some = nodes.iter().enumerate().map(|(at, node)| {
        let deaf = if at < 3 { Arc::clone(&deaf) } else { Arc::default() };
        NotCounting(node.clone(), deaf)
    });
    let builder = Quorum::builder().worker("a").nodes(some).trust_new_nodes(true);
    let a = builder.build().expect("a sound setup");
    let mut tries = 0;
    while tries < 10 {
        match claims(&a).claim(MessageId::new("m").payload(b"wrong")).await.expect("a quorum") {
            ClaimOutcome::InProgress { .. } => tries += 1,
            other => panic!("two of five have counted it: {other:?}"),
        }
        // The claim of the failed attempt is released a little later.
        let free = ClaimState::Free { attempts: 0, payload: None };
        until_it_is(&claims(&a), "m", &free).await;
    }
    deaf.store(false, Ordering::SeqCst);
    // The earlier attempts did not begin. So the fingerprint of their payload must not exclude another payload.
    let claim = claimed(&claims(&a), MessageId::new("m").payload(b"right")).await;
    assert_eq!(claim.attempt(), 1);
    claim.complete("ok").await.expect("a majority");
    a.close().await;
}

/// A node on which no worker learns that its lease is released. If the flag of its kind is set, it does not even
/// answer a batch with a release.
#[derive(Clone)]
struct QuietRelease {
    node: MemoryNode,
    hangs: bool,
    /// The number of counted attempts.
    counted: Arc<AtomicUsize>,
}

struct QuietReleaseSession(MemorySession, QuietRelease);

impl Node for QuietRelease {
    type Session = QuietReleaseSession;

    fn name(&self) -> &str {
        self.node.name()
    }

    async fn open(&self, push_sender: PushSender) -> Result<(QuietReleaseSession, Hello), Cause> {
        let (session, hello) = self.node.open(push_sender).await?;
        Ok((QuietReleaseSession(session, self.clone()), hello))
    }
}

impl Session for QuietReleaseSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let is_release: Vec<bool> =
            batch.requests.iter().map(|request| matches!(request, Request::Release { .. })).collect();
        let (sent, QuietRelease { hangs, counted, .. }) = (self.0.send(batch), self.1.clone());
        async move {
            let mut answer = sent.await?;
            if hangs && is_release.contains(&true) {
                return std::future::pending().await;
            }
            for (reply, is_release) in answer.replies.iter_mut().zip(is_release) {
                if is_release {
                    *reply = Reply::Refused(Refusal::NotOwner);
                }
                counted.fetch_add(usize::from(*reply == Reply::Counted), Ordering::SeqCst);
            }
            Ok(answer)
        }
    }
}

/// One message of a batch is refused for its payload, and another one is counted. The caller is cancelled while the
/// release of the first is not confirmed yet.
#[tokio::test]
async fn a_counted_attempt_is_withdrawn_if_its_caller_is_cancelled_while_another_is_refused() {
    let nodes = nodes();
    let (plain, counted) = (quorum("b", &nodes), Arc::<AtomicUsize>::default());
    let (paid, wrong) = (MessageId::new("paid").payload(b"ten"), MessageId::new("paid").payload(b"million"));
    claimed(&claims(&plain), paid).await.abandon().await.expect("a majority");
    let some = nodes.iter().enumerate().map(|(at, node)| QuietRelease {
        node: node.clone(),
        hangs: at == 4,
        counted: Arc::clone(&counted),
    });
    let builder = Quorum::builder().worker("a").nodes(some).trust_new_nodes(true).ask_all_nodes(true);
    let a = builder.node_timeout(SECOND * 2).build().expect("a sound setup");
    let slow = claims(&a).ttl(SECOND * 30);
    for number in 0..3 {
        let id = format!("m-{number}");
        counted.store(0, Ordering::SeqCst);
        let batch = [wrong.clone(), MessageId::new(&*id).payload(b"right")];
        let mut claim = Box::pin(slow.claim_many(batch));
        let cancelled = async {
            while counted.load(Ordering::SeqCst) < 3 {
                tokio::task::yield_now().await;
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased;
            outcomes = &mut claim => panic!("a release was confirmed: {outcomes:?}"),
            () = cancelled => {}
        }
        drop(claim);
        // The withdrawal and the release are sent a little later.
        let claim = loop {
            match claims(&plain).claim(MessageId::new(&*id).payload(b"right")).await.expect("a quorum") {
                ClaimOutcome::Claimed(claim) => break claim,
                ClaimOutcome::InProgress { .. } => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(claim.attempt(), 1, "the handler of the cancelled attempt has not started");
    }
    plain.close().await;
    a.close().await;
}

#[tokio::test]
async fn a_payload_of_an_attempt_that_never_began_blocks_no_claim() {
    let nodes = nodes();
    let a = quorum("a", &nodes);
    drop(claimed(&claims(&a), "m-0").await);
    let (mut session, hello) = nodes[0].open(PushSender::channel().0).await.expect("memory opens");
    let stamp = hello.marker.expect("a worker has marked it");
    for number in 1..=20 {
        let id = format!("m-{number}");
        let (resource, owner) = (Resource::claim("orders", &id).expect("a name"), Owner::from_node("b:1"));
        // The test sends the requests of a worker that dies after a single node has counted its attempt.
        let requests = vec![
            Request::Acquire {
                resource: resource.clone(),
                owner: owner.clone(),
                ttl: SECOND,
                propose: FencingToken::new(Env::system().wall().as_micros()),
                tolerance: SECOND * 5,
                keep: SECOND * 100,
                ticket: None,
            },
            Request::Count {
                resource: resource.clone(),
                owner: owner.clone(),
                attempts: 1,
                payload: Some("bb".into()),
                withdraw: false,
                keep: SECOND * 100,
            },
            Request::Release { resource, owner },
        ];
        let not_after = NodeTime::from_micros(u64::MAX);
        let sent = session.send(Batch { requests, not_after, stamp: Arc::clone(&stamp) });
        let replies = sent.await.expect("memory answers").replies;
        assert_eq!(replies[1..], [Reply::Counted, Reply::Released(true)]);
        let claim = claimed(&claims(&a), MessageId::new(&*id).payload(b"right")).await;
        // A claim with another payload is refused, even while the message is claimed.
        let other = claims(&a).claim(MessageId::new(&*id).payload(b"wrong")).await;
        assert!(matches!(other, Err(ClaimError::OtherPayload { .. })), "{other:?}");
        claim.abandon().await.expect("a majority");
    }
    a.close().await;
}
