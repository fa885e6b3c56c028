//! Tests of leases through the public interface, with memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    lease::{AcquireError, Lease, LeaseEvent, StepDownCause, TryAcquire},
    node::{
        Batch, BatchReply, Cause, Hello, MemoryNode, MemorySession, Node, PushSender, Request, Resource,
        Session,
    },
    quorum::Quorum,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

async fn acquired(quorum: &Quorum, name: &str, ttl: Duration) -> Lease {
    match quorum.lock(name).ttl(ttl).try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(lease) => lease,
        TryAcquire::Contended { holder, .. } => panic!("held by {holder:?}"),
    }
}

#[tokio::test]
async fn the_loser_learns_the_holder_and_a_release_gives_it_a_larger_token() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let first = acquired(&a, "x", 10 * SECOND).await;
    match b.lock("x").try_acquire().await.expect("a quorum") {
        TryAcquire::Acquired(_) => panic!("two holders"),
        TryAcquire::Contended { retry_after, holder, .. } => {
            assert_eq!(holder.expect("a majority names it").worker(), "a");
            assert!(retry_after.expect("memory nodes tell") <= 10 * SECOND);
        }
    }
    let resource = Resource::lock("x").expect("a name");
    let seen = b.inspect(&resource).await.expect("a majority");
    assert_eq!(seen.holder.expect("held"), *first.owner());
    assert_eq!(seen.token, Some(first.unchecked_token()));

    let token = first.fencing_token().expect("held");
    first.release().await.expect("all nodes answer");
    let second = acquired(&b, "x", 10 * SECOND).await;
    assert!(second.unchecked_token() > token);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn an_extension_that_is_due_when_its_lease_is_released_does_not_set_the_lock_again() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let resource = Resource::lock("x").expect("a name");
    for _ in 0..20 {
        let lease = acquired(&quorum, "x", 10 * SECOND).await;
        // The renewer gets both commands at once.
        tokio::select! { biased;
            _ = lease.extend() => panic!("no node has answered"),
            () = std::future::ready(()) => {}
        }
        lease.release().await.expect("all nodes answer");
        assert_eq!(quorum.inspect(&resource).await.expect("a majority").holder, None);
    }
    quorum.close().await;
}

#[tokio::test]
async fn a_lease_may_be_released_before_its_renewer_has_started() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    for _ in 0..100 {
        let lease = acquired(&quorum, "x", 10 * SECOND).await;
        let mut events = lease.events();
        lease.release().await.expect("all nodes answer");
        let mut last = None;
        while let Some(event) = events.recv().await {
            assert!(last < Some(event), "in order");
            last = Some(event);
        }
    }
    quorum.close().await;
}

#[tokio::test]
async fn a_dropped_lease_and_a_closed_quorum_leave_nothing_behind() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    drop(acquired(&a, "dropped", 10 * SECOND).await);
    let _ = b.lock("dropped").wait(SECOND).acquire().await.expect("free at once, not after its TTL");
    let held = acquired(&a, "closed", 10 * SECOND).await;
    a.close().await;
    a.close().await;
    assert_eq!(a.env().tasks_alive(), 0);
    assert!(!held.is_valid() && held.lost_token().is_cancelled(), "a closed quorum holds nothing");
    let _ = acquired(&b, "closed", 10 * SECOND).await;
    let after = a.lock("x").try_acquire().await.expect_err("closed");
    assert!(after.to_string().contains("closed"), "{after}");
    b.close().await;
}

#[tokio::test]
async fn the_renewer_extends_past_the_ttl_and_events_come_in_order() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let lease = acquired(&quorum, "x", SECOND).await;
    let mut events = lease.events();
    quorum.env().sleep(2 * SECOND).await;
    assert!(lease.is_valid(), "extended");
    lease.extend().await.expect("a majority extends");
    assert!(lease.remaining() > SECOND * 8 / 10);
    lease.release().await.expect("all nodes answer");
    let mut seen = Vec::new();
    while let Some(event) = events.recv().await {
        seen.push(event);
    }
    assert_eq!(seen, [LeaseEvent::Held, LeaseEvent::StepDown, LeaseEvent::Lost]);
    quorum.close().await;
}

/// A node that blocks the only thread of its worker when the lease is first extended. This has the effect of a
/// stopped process.
#[derive(Clone)]
struct Blocking {
    node: MemoryNode,
    has_blocked: Arc<AtomicBool>,
}

impl Blocking {
    const BLOCKS_FOR: Duration = Duration::from_millis(4_500);
}

impl Node for Blocking {
    type Session = BlockingSession;
    fn name(&self) -> &str {
        self.node.name()
    }
    async fn open(&self, push_sender: PushSender) -> Result<(BlockingSession, Hello), Cause> {
        let (session, hello) = self.node.open(push_sender).await?;
        Ok((BlockingSession { session, node: self.clone() }, hello))
    }
}

struct BlockingSession {
    session: MemorySession,
    node: Blocking,
}

impl Session for BlockingSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let extends = batch.requests.iter().any(|request| matches!(request, Request::Extend { .. }));
        if extends && !self.node.has_blocked.swap(true, Ordering::Relaxed) {
            thread::sleep(Blocking::BLOCKS_FOR);
        }
        self.session.send(batch)
    }
}

/// Tests an extension that completes too late. The extension is sent at 2 s, before the deadline. Its replies
/// arrive at 6.5 s, after the deadline. The validity that these replies would give ends later than that.
#[tokio::test]
async fn an_extension_that_completes_after_the_deadline_leaves_no_key_behind() {
    const TTL: Duration = Duration::from_secs(6);
    let nodes: Vec<_> = nodes().into_iter().take(3).collect();
    let has_blocked = Arc::new(AtomicBool::new(false));
    let blocking =
        nodes.iter().map(|node| Blocking { node: node.clone(), has_blocked: Arc::clone(&has_blocked) });
    let a = Quorum::builder().worker("a").nodes(blocking).trust_new_nodes(true);
    let a = a.build().expect("a sound setup");
    let lease = acquired(&a, "x", TTL).await;
    let mut events = lease.events();
    let mut seen = Vec::new();
    let reported = async {
        while let Some(event) = events.recv().await {
            seen.push(event);
        }
    };
    a.env().before(a.env().now() + 30 * SECOND, reported).await.expect("the events end");
    assert!(has_blocked.load(Ordering::Relaxed), "the lease was extended");
    assert_eq!(seen, [LeaseEvent::Held, LeaseEvent::StepDown, LeaseEvent::Lost]);
    assert_eq!(lease.step_down_cause(), Some(StepDownCause::NotExtended));
    assert!(!lease.is_valid());
    let b = quorum("b", &nodes);
    let next = b.lock("x").wait(TTL / 2).acquire().await;
    let _ = next.expect("the keys are released at once, not after their TTL");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn without_extension_a_lease_ends_by_itself_and_stays_ended() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let lock = quorum.lock("x").ttl(SECOND / 2).auto_extend(false);
    let lease = lock.acquire().await.expect("free");
    lease.lost_token().cancelled().await;
    assert!(lease.fencing_token().is_err());
    assert!(lease.extend().await.is_err(), "what has ended stays ended");
    assert!(lease.step_down_token().is_cancelled());
    quorum.close().await;
}

#[tokio::test]
async fn a_timed_out_wait_names_the_contention_and_bad_input_names_the_fix() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let _held = acquired(&a, "x", 10 * SECOND).await;
    let late = b.lock("x").wait(SECOND / 5).acquire().await.expect_err("held");
    assert!(late.is_contended() && late.to_string().contains("held by a"), "{late}");
    let name = b.lock("election/x").try_acquire().await.expect_err("reserved");
    assert!(matches!(name, AcquireError::Setting(_)), "{name}");
    let long = b.lock("x").ttl(60 * SECOND).try_acquire().await.expect_err("above max_ttl");
    assert!(long.to_string().contains("max_ttl"), "{long}");
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn a_new_cluster_waits_or_is_admitted() {
    let nodes = nodes();
    let builder = Quorum::builder().worker("a").nodes(nodes.iter().cloned());
    let quorum = builder.build().expect("a sound setup");
    let refused = quorum.lock("x").try_acquire().await.expect_err("quarantined");
    assert!(refused.is_untrusted() && refused.to_string().contains("new or was flushed"), "{refused}");
    quorum.trust_nodes().await.expect("all nodes answer");
    let _ = acquired(&quorum, "x", SECOND).await;
    quorum.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_two_threads_exclude_each_other_and_all_get_their_turn() {
    let nodes = nodes();
    let quorums: Vec<Quorum> = (0..4).map(|i| quorum(&format!("w{i}"), &nodes)).collect();
    let inside = std::sync::Arc::new(std::sync::Mutex::new((0_u32, 0_u64, 0_u32)));
    let tasks: Vec<_> = (0..16)
        .map(|i| {
            let (quorum, inside) = (quorums[i % 4].clone(), std::sync::Arc::clone(&inside));
            let env = quorum.env().clone();
            env.spawn_scoped(async move {
                for _ in 0..10 {
                    let lease = quorum.lock("x").acquire().await.expect("a quorum");
                    {
                        let mut inside = inside.lock().expect("no panic");
                        inside.0 += 1;
                        assert_eq!(inside.0, 1, "alone");
                        assert!(lease.unchecked_token().get() > inside.1, "tokens grow");
                        inside.1 = lease.unchecked_token().get();
                        inside.2 += 1;
                    }
                    tokio::task::yield_now().await;
                    inside.lock().expect("no panic").0 -= 1;
                    lease.release().await.expect("all nodes answer");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(inside.lock().expect("no panic").2, 160);
    for quorum in quorums {
        quorum.close().await;
        assert_eq!(quorum.env().tasks_alive(), 0);
    }
}

#[tokio::test]
async fn closing_the_quorum_ends_every_wait() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let _held = acquired(&a, "x", 10 * SECOND).await;
    let lock = b.lock("x");
    let (waited, ()) = tokio::join!(lock.acquire(), async {
        b.env().sleep(SECOND / 5).await;
        b.close().await;
    });
    assert!(matches!(waited, Err(AcquireError::Closed)), "{waited:?}");
    assert!(matches!(b.lock("x").try_acquire().await, Err(AcquireError::Closed)));
    a.close().await;
}

/// Regression: the drivers stopped taking releases as soon as the quorum was closed. An attempt that was granted then
/// left its keys on the nodes for the whole TTL.
#[tokio::test]
async fn closing_the_quorum_releases_what_an_open_attempt_was_granted() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    drop(acquired(&a, "warm", SECOND).await);
    for round in 0..20 {
        let name = format!("x{round}");
        let a = quorum("a", &nodes);
        assert!(a.ready(5 * SECOND).await.expect("sound settings").has_majority());
        let lock = a.lock(&name).ttl(10 * SECOND);
        let (tried, ()) = tokio::join!(lock.try_acquire(), a.close());
        assert!(!matches!(tried, Ok(TryAcquire::Acquired(lease)) if lease.is_valid()), "it was closed");
        let free = b.lock(&name).ttl(SECOND).wait(3 * SECOND).acquire().await;
        assert!(free.is_ok(), "round {round}: {free:?}");
    }
    a.close().await;
    b.close().await;
}

/// Regression: the renewer of all leases panicked on a lease of these timings.
#[tokio::test]
async fn a_lease_that_is_shorter_than_the_least_retry_stops_no_other_lease() {
    let nodes = nodes();
    let builder = Quorum::builder().worker("a").nodes(nodes.iter().cloned()).trust_new_nodes(true);
    let quorum = builder.node_timeout(SECOND / 200).build().expect("a sound setup");
    let held = quorum.lock("x").wait(10 * SECOND).acquire().await.expect("free");
    let short = quorum.lock("y").ttl(SECOND * 6 / 100).wait(10 * SECOND).acquire().await.expect("free");
    drop(short);
    // A busy machine may be too slow for this node timeout.
    let give_up = quorum.env().now() + 5 * SECOND;
    while let Err(error) = held.extend().await {
        assert!(held.is_valid() && quorum.env().now() < give_up, "{error}");
    }
    assert!(held.is_valid());
    quorum.close().await;
    assert!(!held.is_valid());
}
