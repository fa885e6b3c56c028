//! Tests of claims through the public interface, with memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/cut.rs"]
mod cut;
#[path = "common/log.rs"]
mod log;

use common::{SECOND, nodes, quorum};
use cut::Cut;
use log::Log;
use quorate::{
    claim::{Claim, ClaimError, ClaimOutcome, Claims, ProcessError, Processed},
    node::{
        Batch, DoneRecord, FencingToken, FileNode, MemoryNode, Node, NodeTime, Owner, PushSender, Reply,
        Request, Resource, Session,
    },
    quorum::Quorum,
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

fn claims(quorum: &Quorum) -> Claims {
    Claims::new(quorum, "orders").ttl(SECOND)
}

fn claimed(outcome: ClaimOutcome) -> Claim {
    match outcome {
        ClaimOutcome::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn one_worker_handles_a_message_and_the_others_receive_its_result() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let claim = claimed(claims(&a).claim("m-1").await.expect("a quorum"));
    match claims(&b).claim("m-1").await.expect("a quorum") {
        ClaimOutcome::InProgress { holder, retry_after } => {
            assert_eq!(holder.expect("a majority names it").worker(), "a");
            assert!(retry_after.expect("memory nodes tell") <= SECOND);
        }
        other => panic!("{other:?}"),
    }
    let handle = claim.handle();
    claim.complete("42").await.expect("a majority");
    assert_eq!(recorded(&nodes, "m-1").await, 5);
    assert!(handle.fencing_token().is_err());
    match claims(&b).claim("m-1").await.expect("a quorum") {
        ClaimOutcome::Done(done) => assert_eq!(&*done.result, "42"),
        other => panic!("{other:?}"),
    }
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn no_worker_claims_between_the_work_and_its_done_record() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    for i in 0..100 {
        let id = format!("m-{i}");
        let claim = claimed(claims(&a).claim(&id).await.expect("a quorum"));
        let rival = async {
            for _ in 0..20 {
                match claims(&b).claim(&id).await.expect("a quorum") {
                    ClaimOutcome::Claimed(_) => panic!("{id} was handled, and claimed again"),
                    ClaimOutcome::Done(_) => return,
                    _ => tokio::task::yield_now().await,
                }
            }
        };
        let (completed, ()) = tokio::join!(claim.complete("done"), rival);
        completed.expect("a majority");
        assert_eq!(recorded(&nodes, &id).await, 5);
    }
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_batch_returns_one_outcome_for_each_id() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let _one = claimed(claims(&a).claim("m-1").await.expect("a quorum"));
    let handled = claims(&a).process("m-2", |_| async { Ok::<_, Infallible>("two") }).await.expect("handled");
    assert!(handled.may_ack());
    let ids: Vec<String> = (1..=400).map(|i| format!("m-{i}")).collect();
    let outcomes = claims(&b).claim_many(ids.iter().map(String::as_str)).await.expect("names are sound");
    assert_eq!(outcomes.len(), 400);
    let mut held = Vec::new();
    for (i, (id, outcome)) in outcomes.into_iter().enumerate() {
        assert_eq!(*id, ids[i]);
        match (i, outcome.expect("a quorum")) {
            (0, ClaimOutcome::InProgress { .. }) | (1, ClaimOutcome::Done(_)) => {}
            (2.., ClaimOutcome::Claimed(claim)) => held.push(claim),
            (_, other) => panic!("{id}: {other:?}"),
        }
    }
    let late = claims(&b).claim_many(["ok", ""]).await.expect_err("an empty id");
    assert!(late.to_string().contains("message id"), "{late}");
    a.close().await;
    b.close().await;
}

/// Tests a batch that is so long that several of its chunks are in progress at the same time.
#[tokio::test]
async fn a_long_batch_keeps_its_order_and_leaves_nothing_when_dropped() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let mut ids: Vec<String> = (0..500).map(|number| format!("m-{number}")).collect();
    // This id occurs in two chunks that are in progress at the same time.
    ids.insert(300, "m-1".to_owned());
    for polls in 0..40 {
        let (own, list) = (claims(&a), ids.clone());
        let mut batch = Box::pin(async move { own.claim_many(&list).await });
        let mut done = false;
        for _ in 0..polls {
            done |= futures_util::poll!(&mut batch).is_ready();
            if done {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(batch);
    }
    // The claims of a dropped batch are released a moment later, so the test tries again.
    let mut tries = 0;
    let held = loop {
        let verdicts = claims(&a).claim_many(&ids).await.expect("sound ids");
        let mut held = Vec::new();
        for (at, ((id, outcome), asked)) in verdicts.into_iter().zip(&ids).enumerate() {
            assert_eq!(&*id, asked, "in their order");
            match outcome.expect("a verdict") {
                ClaimOutcome::Claimed(claim) if at != 300 => held.push((claim, format!("result of {id}"))),
                ClaimOutcome::InProgress { .. } => {}
                other => panic!("{id}, at {at}: {other:?}"),
            }
        }
        tries += 1;
        if held.len() == 500 {
            break held;
        }
        assert!(tries < 500, "only {} are free", held.len());
        drop(held);
        a.env().sleep(SECOND / 50).await;
    };
    let completed = Claim::complete_many(held).await;
    assert_eq!(completed.len(), 500);
    for ((id, completed), number) in completed.into_iter().zip(0..) {
        completed.expect("a majority");
        assert_eq!(*id, format!("m-{number}"));
    }
    for id in ["m-0", "m-127", "m-128", "m-255", "m-256", "m-499"] {
        match claims(&b).claim(id).await.expect("a quorum") {
            ClaimOutcome::Done(done) => assert_eq!(*done.result, format!("result of {id}")),
            other => panic!("{id}: {other:?}"),
        }
    }
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn process_handles_once_renews_meanwhile_and_abandons_on_failure() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let failed = claims(&a).process("m", |_| async { Err::<(), _>("no") }).await;
    assert!(matches!(failed, Err(ProcessError::Handler("no"))));
    let env = a.env().clone();
    let slow = claims(&a);
    let slow = slow.process("m", |claim| async move {
        env.sleep(SECOND * 3 / 2).await;
        claim.fencing_token().map(|_| "done")
    });
    let meanwhile = async {
        b.env().sleep(SECOND * 5 / 4).await;
        claims(&b).process("m", |_| async { Ok::<(), Infallible>(()) }).await.expect("a quorum")
    };
    let (slow, other) = tokio::join!(slow, meanwhile);
    assert_eq!(slow.expect("handled, past its TTL"), Processed::Handled);
    assert!(matches!(other, Processed::InProgress { .. }));
    let again = claims(&b).process("m", |_| async { Ok::<(), Infallible>(()) }).await.expect("a quorum");
    assert!(matches!(again, Processed::AlreadyDone(done) if &*done.result == "done"));
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_stale_claim_cannot_complete_and_a_long_result_is_refused() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let long = claimed(claims(&a).claim("long").await.expect("a quorum"));
    assert!(matches!(long.complete(&"x".repeat(2000)).await, Err(ClaimError::TooLong { .. })));

    let stale = claimed(claims(&a).claim("m").await.expect("a quorum"));
    // Closing the quorum releases the claim. The worker thus loses the claim as it would during a pause that is
    // longer than the claim's TTL.
    a.close().await;
    let other = claimed(claims(&b).claim("m").await.expect("a quorum"));
    let c = quorum("c", &nodes);
    assert!(stale.complete("stale").await.is_err(), "its quorum is closed");
    other.complete("fresh").await.expect("a majority");
    assert_eq!(recorded(&nodes, "m").await, 5);
    match claims(&c).claim("m").await.expect("a quorum") {
        ClaimOutcome::Done(done) => assert_eq!(&*done.result, "fresh"),
        other => panic!("{other:?}"),
    }
    b.close().await;
    c.close().await;
}

#[tokio::test]
async fn one_of_many_simultaneous_claims_wins() {
    let nodes = nodes();
    let quorums: Vec<Quorum> = (0..4).map(|i| quorum(&format!("w{i}"), &nodes)).collect();
    for i in 0..50 {
        let id = format!("m-{i}");
        let claims: Vec<Claims> = quorums.iter().map(claims).collect();
        let outcomes = tokio::join!(
            claims[0].claim(&id),
            claims[1].claim(&id),
            claims[2].claim(&id),
            claims[3].claim(&id)
        );
        let outcomes =
            [outcomes.0, outcomes.1, outcomes.2, outcomes.3].map(|outcome| outcome.expect("a quorum"));
        let claimed = outcomes.iter().filter(|outcome| matches!(outcome, ClaimOutcome::Claimed(_))).count();
        assert_eq!(claimed, 1, "{id}: {outcomes:?}");
    }
    for quorum in quorums {
        quorum.close().await;
    }
}

/// Sends one request to `node` directly, without a quorum, and returns the reply. The request contains the
/// marker that the node stores.
async fn ask(node: &MemoryNode, request: impl FnOnce(&Arc<str>) -> Request) -> Reply {
    let (mut session, hello) = node.open(PushSender::channel().0).await.expect("memory opens");
    let stamp = hello.marker.expect("a worker has marked it");
    let not_after = NodeTime::from_micros(u64::MAX);
    let reply = session.send(Batch { requests: vec![request(&stamp)], not_after, stamp });
    reply.await.expect("memory answers").replies.remove(0)
}

/// Returns whether the node stores a done record for the message.
async fn done_at(node: &MemoryNode, id: &str) -> bool {
    let resource = Resource::claim("orders", id).expect("a name");
    matches!(ask(node, |_| Request::Inspect { resource }).await, Reply::State { done: Some(_), .. })
}

/// Returns the number of nodes that store a done record for the message.
async fn recorded(nodes: &[MemoryNode], id: &str) -> usize {
    let mut count = 0;
    for node in nodes {
        count += usize::from(done_at(node, id).await);
    }
    count
}

/// Stores a done record for the message on the node, as another worker does.
async fn store_done(node: &MemoryNode, id: &str) {
    let done = ask(node, |_| Request::Complete {
        resource: Resource::claim("orders", id).expect("a name"),
        owner: Owner::from_node("b:1"),
        record: DoneRecord { token: FencingToken::new(1), result: "42".into(), ..DoneRecord::default() },
        retention: 100 * SECOND,
    });
    assert_eq!(done.await, Reply::Completed);
}

async fn is_done(claims: &Claims, id: &str) {
    match claims.claim(id).await.expect("a quorum") {
        ClaimOutcome::Done(done) => assert_eq!(&*done.result, "42"),
        other => panic!("{id}: {other:?}"),
    }
}

/// Tests that a message is not handled again if a majority has its done record, whichever majority is asked first: for some
/// of these messages, only one of the nodes that are asked has the record.
#[tokio::test]
async fn one_done_record_outweighs_every_grant() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    drop(claimed(claims(&quorum).claim("first").await.expect("a quorum, which marks the nodes")));
    for number in 0..20 {
        let id = format!("m-{number}");
        for node in &nodes[..3] {
            store_done(node, &id).await;
        }
        is_done(&claims(&quorum), &id).await;
    }
    quorum.close().await;
}

/// Tests that a worker which asks all nodes heeds a done record that the other nodes have lost.
#[tokio::test]
async fn a_worker_that_asks_all_nodes_heeds_the_last_done_record() {
    let nodes = nodes();
    let builder = Quorum::builder().worker("a").nodes(nodes.iter().cloned()).trust_new_nodes(true);
    let quorum = builder.ask_all_nodes(true).build().expect("a sound setup");
    drop(claimed(claims(&quorum).claim("first").await.expect("a quorum, which marks the nodes")));
    store_done(&nodes[0], "m-1").await;
    is_done(&claims(&quorum), "m-1").await;
    quorum.close().await;
}

/// Tests a node that is quarantined between the grant and the *complete*. This node refuses the done record.
/// The claim must still be released on it. (In seed 14444 of the simulation, the node kept the key of the claim
/// until the end of its TTL.)
#[tokio::test]
async fn a_node_that_refused_the_done_record_is_released() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let claim = claimed(claims(&quorum).claim("m-1").await.expect("a quorum"));
    let quarantined = ask(&nodes[0], |marker| {
        let (kept, votes_from) = marker.rsplit_once('=').expect("lines of key=value");
        let later: u64 = votes_from.parse::<u64>().expect("microseconds") + 10_000_000;
        Request::Mark { expect: Some(Arc::clone(marker)), marker: format!("{kept}={later}").into() }
    });
    assert_eq!(quarantined.await, Reply::Marked);

    claim.complete("42").await.expect("a majority");
    assert_eq!(recorded(&nodes, "m-1").await, 4);
    quorum.close().await; // Sends the pending releases.
    let resource = Resource::claim("orders", "m-1").expect("a name");
    match ask(&nodes[0], |_| Request::Inspect { resource }).await {
        Reply::State { holder: None, done: None, .. } => {}
        other => panic!("{other:?}"),
    }
}

/// Tests ids with braces, as other systems write GUIDs, on nodes in memory and in directories.
#[tokio::test]
async fn an_id_with_braces_is_a_message_of_its_own() {
    let ids = [
        "{0f8fad5b-d9cb-469f-a165-70867728950e}",
        "%7B0f8fad5b-d9cb-469f-a165-70867728950e%7D",
        "a{b",
        "}{%",
    ];
    let dir = std::env::temp_dir().join(format!("quorate-claims-{}", std::process::id()));
    let files = (0..3).map(|node| FileNode::new(dir.join(node.to_string())));
    let in_files =
        Quorum::builder().worker("a").nodes(files).trust_new_nodes(true).build().expect("a sound setup");
    for quorum in [quorum("a", &nodes()), in_files] {
        let claims = claims(&quorum);
        for (number, id) in ids.iter().enumerate() {
            let claim = claimed(claims.claim(*id).await.expect("a quorum"));
            assert_eq!(&**claim.id(), *id);
            claim.complete(&number.to_string()).await.expect("a majority");
        }
        for (number, (id, outcome)) in
            claims.claim_many(ids).await.expect("valid ids").into_iter().enumerate()
        {
            match outcome {
                Ok(ClaimOutcome::Done(done)) => assert_eq!(*done.result, number.to_string(), "{id}"),
                other => panic!("{id}: {other:?}"),
            }
        }
        quorum.close().await;
    }
    std::fs::remove_dir_all(&dir).expect("the nodes are closed");
}

/// Tests claims whose leases have ended before they are completed. No other worker has the messages. Where the caller
/// was refused the token, the message is not recorded. The others are recorded, with a warning.
#[tokio::test]
async fn a_late_completion_is_refused_after_a_failed_check_and_otherwise_warns() {
    let (nodes, log) = (nodes(), Log::default());
    let _heard = log.warnings();
    let quorum = quorum("a", &nodes);
    let claims = Claims::new(&quorum, "orders").ttl(SECOND / 2).auto_extend(false);
    let mut held = Vec::new();
    for id in ["checked", "late-1", "late-2"] {
        held.push((claimed(claims.claim(id).await.expect("a quorum")), "42"));
    }
    for (claim, _) in &held {
        claim.handle().lost_token().cancelled().await;
    }
    assert!(held[0].0.handle().fencing_token().is_err());
    let ended = Claim::complete_many(held).await;
    assert!(matches!(ended[0].1, Err(ClaimError::Lost(_))), "{ended:?}");
    assert!(ended[1].1.is_ok() && ended[2].1.is_ok(), "{ended:?}");
    assert_eq!(recorded(&nodes, "checked").await, 0);
    let lines = log.lines("completed after its claim has ended");
    assert!(
        lines.len() == 1 && lines[0].contains("claim/orders/late-1") && lines[0].contains("others=1"),
        "{lines:?}"
    );
    assert!(matches!(claims.claim("checked").await, Ok(ClaimOutcome::Claimed(_))), "it may be handled again");
    quorum.close().await;
}

/// Tests a worker that completes its claim after the claim has ended, while it reaches only two of five nodes.
/// The other three nodes may have granted the message to another worker.
#[tokio::test]
async fn a_late_completion_records_nothing_until_the_owner_is_known() {
    for comes_back in [false, true] {
        let (nodes, off) = (nodes(), Arc::new(AtomicBool::new(false)));
        let cut = |(number, node): (usize, &MemoryNode)| {
            Cut::new(node, &if number < 2 { Arc::default() } else { Arc::clone(&off) })
        };
        let builder = Quorum::builder().worker("a").nodes(nodes.iter().enumerate().map(cut));
        let a = builder.trust_new_nodes(true).build().expect("a sound setup");
        a.met(SECOND).await;
        let id = "m-1";
        let claim = claimed(claims(&a).claim(id).await.expect("a quorum"));
        off.store(true, Ordering::Relaxed);
        claim.handle().lost_token().cancelled().await;
        let back = async {
            a.env().sleep(SECOND / 4).await;
            let early = [done_at(&nodes[0], id).await, done_at(&nodes[1], id).await];
            off.store(!comes_back, Ordering::Relaxed);
            early
        };
        let (completed, early) = tokio::join!(claim.complete("42"), back);
        assert_eq!(early, [false; 2], "no node records a completion while the owner is unknown");
        if comes_back {
            completed.expect("no other worker has it");
            assert!(recorded(&nodes, id).await >= 3);
        } else {
            assert!(matches!(completed, Err(ClaimError::NoMajority(_))), "{completed:?}");
        }
        assert_eq!(done_at(&nodes[0], id).await, comes_back);
        a.close().await;
    }
}
