//! Tests of transfers: a lease or the leadership passes to another worker before it ends. The tests use memory
//! nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    election::{Election, ElectionEvent, ResignError, Term},
    env::ScopedTask,
    lease::{Heartbeat, LeaseError, StepDownCause, TryAcquire},
    node::{FencingToken, Resource},
    quorum::Quorum,
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

async fn contended(quorum: &Quorum, name: &str) -> bool {
    matches!(quorum.lock(name).try_acquire().await.expect("a quorum"), TryAcquire::Contended { .. })
}

#[tokio::test]
async fn a_transferred_lease_goes_to_its_successor_before_longer_waiters() {
    let nodes = nodes();
    let [a, b, c] = ["a", "b", "c"].map(|worker| quorum(worker, &nodes));
    let mut last = FencingToken::default();
    for _ in 0..5 {
        let lease = a.lock("x").acquire().await.expect("free");
        assert!(lease.unchecked_token() > last);
        let waiting = {
            let c = c.clone();
            c.env().clone().spawn_scoped(async move { c.lock("x").acquire().await })
        };
        let successor = {
            let b = b.clone();
            b.env().clone().spawn_scoped(async move { b.lock("x").acquire().await })
        };
        a.env().sleep(SECOND / 10).await;
        let (lost, token) = (lease.lost_token().clone(), lease.unchecked_token());
        let lasts = lease.transfer_to("b").await.expect("a majority keeps it");
        assert!(lost.is_cancelled() && lasts <= SECOND);
        let theirs = successor.await.expect("no panic").expect("kept for it");
        assert!(theirs.unchecked_token() > token, "a larger token");
        assert!(theirs.is_valid());
        last = theirs.unchecked_token();
        drop(waiting);
        theirs.release().await.expect("all nodes answer");
    }
    for quorum in [a, b, c] {
        quorum.close().await;
    }
}

#[tokio::test]
async fn an_unused_reservation_expires_and_the_lock_is_free() {
    let nodes = nodes();
    let (a, c) = (quorum("a", &nodes), quorum("c", &nodes));
    let lease = a.lock("x").acquire().await.expect("free");
    let began = a.env().now();
    lease.transfer_to("absent").await.expect("a majority keeps it");
    assert!(contended(&c, "x").await, "reserved for the successor");
    assert!(contended(&a, "x").await, "also from the holder that transferred it");
    let seen = c.inspect(&Resource::lock("x").expect("a name")).await.expect("a majority");
    assert_eq!(seen.holder.expect("kept").reserved_for(), Some("absent"));
    let _late = c.lock("x").wait(10 * SECOND).acquire().await.expect("free after a second");
    assert!(began.until(c.env().now()) < 3 * SECOND, "the rest of 10 s is not waited for");

    let wild = a.lock("y").acquire().await.expect("free").transfer_to("new\nline").await;
    assert!(
        matches!(&wild, Err(LeaseError::Successor(error)) if error.to_string().contains("control")),
        "{wild:?}"
    );
    let _free = c.lock("y").wait(5 * SECOND).acquire().await.expect("released all the same");
    let brief = a.lock("z").ttl(SECOND / 2).auto_extend(false).acquire().await.expect("free");
    brief.lost_token().cancelled().await;
    assert!(matches!(brief.transfer_to("c").await, Err(LeaseError::Lost(_))));
    a.close().await;
    c.close().await;
}

/// A running candidate, and its events. The candidate's work continues until it is cancelled.
struct Runs {
    election: Election,
    events: mpsc::UnboundedReceiver<ElectionEvent>,
    stop: CancellationToken,
    campaign: ScopedTask<()>,
}

fn run(election: Election) -> Runs {
    let (events, stop) = (election.events(), CancellationToken::new());
    let campaign = election.run(|term: Term| async move {
        term.step_down_token().cancelled().await;
        Ok::<(), Infallible>(())
    });
    let campaign = campaign.until(stop.clone().cancelled_owned());
    let env = election.quorum().env().clone();
    let campaign = env.spawn_scoped(async move { campaign.await.expect("a shutdown is Ok") });
    Runs { election, events, stop, campaign }
}

impl Runs {
    /// Waits for an event for which `wanted` returns true. Returns the earlier events, and this event.
    async fn until(
        &mut self,
        wanted: impl Fn(&ElectionEvent) -> bool,
    ) -> (Vec<ElectionEvent>, ElectionEvent) {
        let env = self.election.quorum().env().clone();
        let deadline = env.now() + 20 * SECOND;
        let mut before = Vec::new();
        loop {
            let event = env.before(deadline, self.events.recv()).await.expect("in time").expect("it runs");
            if wanted(&event) {
                return (before, event);
            }
            before.push(event);
        }
    }

    async fn elected(&mut self) -> FencingToken {
        match self.until(|event| matches!(event, ElectionEvent::Elected(_))).await.1 {
            ElectionEvent::Elected(term) => term,
            other => panic!("{other:?}"),
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.campaign.await.expect("no panic");
        self.election.quorum().close().await;
    }
}

fn candidate(worker: &str, nodes: &[quorate::node::MemoryNode]) -> Election {
    Election::new(&quorum(worker, nodes), "g").ttl(SECOND)
}

#[tokio::test]
async fn a_leader_transfers_to_the_named_candidate_after_its_work_has_ended() {
    let nodes = nodes();
    let mut a = run(candidate("a", &nodes));
    let first = a.elected().await;
    let (mut b, c) = (run(candidate("b", &nodes)), run(candidate("c", &nodes)));
    let term = a.election.term().expect("it leads");
    assert!(term.transfer_to("").is_err() && term.is_valid(), "no worker has an empty name");
    term.transfer_to("b").expect("it leads");
    let second = b.elected().await;
    assert!(second > first && !term.is_valid() && !c.election.is_leader());
    let (before, _) = a.until(|event| *event == ElectionEvent::Resigned(first)).await;
    let handed = ElectionEvent::HandedOver { term: first, reserved: true };
    assert_eq!(before, [ElectionEvent::StepDown(first), handed]);
    for one in [a, b, c] {
        one.end().await;
    }
}

#[tokio::test]
async fn a_remote_resign_request_applies_to_the_current_leader_only() {
    let nodes = nodes();
    let mut a = run(candidate("a", &nodes));
    let first = a.elected().await;
    let mut b = run(candidate("b", &nodes));
    let outside = quorum("operator", &nodes);
    let mut observer = Election::new(&outside, "g").observe().expect("a name");
    let other = observer.ask_to_resign(Some(FencingToken::new(7)), SECOND).await.expect_err("not its term");
    assert!(matches!(other, ResignError::OtherTerm { .. }), "{other}");
    let done = observer.ask_to_resign(Some(first), 10 * SECOND).await.expect("it obeys");
    assert_eq!((&*done.0.worker, done.0.term), ("a", Some(first)));
    let second = b.elected().await;
    let (before, _) = a.until(|event| *event == ElectionEvent::Resigned(first)).await;
    assert_eq!(before, [ElectionEvent::AskedToResign(first), ElectionEvent::StepDown(first)]);
    // The nodes still store the resign request for ten seconds. The request must not apply to the new leader.
    outside.env().sleep(SECOND).await;
    assert!(b.election.term().is_some_and(|term| term.unchecked_token() == second && term.is_valid()));
    // This request is for the present leader. The nodes still store the first request, which must not block
    // this one.
    let again = observer.ask_to_resign(None, 10 * SECOND).await.expect("it obeys");
    assert_eq!(&*again.0.worker, "b");
    a.elected().await;
    for one in [a, b] {
        one.end().await;
    }
    let none = observer.ask_to_resign(None, SECOND).await.expect_err("no candidate runs");
    assert!(matches!(none, ResignError::NoLeader { .. }), "{none}");
    outside.close().await;
}

/// Tests that a leader does not wait for its next look at the nodes, which comes every 5 s once it is known that the nodes report
/// releases.
#[tokio::test]
async fn a_leader_hears_a_resign_request() {
    let nodes = nodes();
    let (mut a, outside) = (run(candidate("a", &nodes)), quorum("operator", &nodes));
    let env = outside.env().clone();
    for _ in 0..3 {
        a.elected().await;
        env.sleep(SECOND / 5).await;
        let mut observer = Election::new(&outside, "g").observe().expect("a name");
        let began = env.now();
        observer.ask_to_resign(None, 10 * SECOND).await.expect("it obeys");
        a.until(|event| matches!(event, ElectionEvent::AskedToResign(_))).await;
        let took = began.until(env.now());
        assert!(took < 4 * SECOND, "the leader learned of the request after {took:?}");
    }
    a.end().await;
    outside.close().await;
}

#[tokio::test]
async fn a_leader_that_allows_no_remote_resign_stays_leader() {
    let nodes = nodes();
    let mut a = run(candidate("a", &nodes).allow_remote_resign(false));
    let first = a.elected().await;
    let outside = quorum("operator", &nodes);
    let mut observer = Election::new(&outside, "g").observe().expect("a name");
    let refused = observer.ask_to_resign(None, SECOND).await.expect_err("it does not obey");
    assert!(
        matches!(&refused, ResignError::LeadsOn { leader, .. } if leader.term == Some(first)),
        "{refused}"
    );
    assert!(a.election.is_leader());
    a.end().await;
    outside.close().await;
}

#[tokio::test]
async fn a_term_with_a_maximum_length_ends_and_lets_others_go_first() {
    let nodes = nodes();
    let mut a = run(candidate("a", &nodes).max_hold(SECOND * 3 / 2));
    let first = a.elected().await;
    let term = a.election.term().expect("it leads");
    let mut b = run(candidate("b", &nodes).max_hold(SECOND * 3 / 2));
    let second = b.elected().await;
    assert!(second > first);
    assert_eq!(term.step_down_cause(), Some(StepDownCause::MaxHold));
    let third = a.elected().await;
    assert!(third > second, "in turn");
    for one in [a, b] {
        one.end().await;
    }
}

#[tokio::test]
async fn a_leader_without_heartbeat_resigns_and_an_ineligible_candidate_does_not_campaign() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let heart = Heartbeat::new(quorum.env(), SECOND / 4);
    // The work blocks, so it never calls the heartbeat.
    let mut a = run(Election::new(&quorum, "g").ttl(SECOND).renew_while_beating(&heart));
    let first = a.elected().await;
    let term = a.election.term().expect("it leads");
    let fit = Arc::new(AtomicBool::new(false));
    let check = {
        let fit = Arc::clone(&fit);
        move || fit.load(Ordering::Acquire)
    };
    let mut b = run(candidate("b", &nodes).eligible_while(check));
    term.lost_token().cancelled().await;
    assert_eq!(term.step_down_cause(), Some(StepDownCause::Unhealthy));
    assert!(a.elected().await > first, "the other does not campaign");
    fit.store(true, Ordering::Release);
    let second = b.elected().await;
    fit.store(false, Ordering::Release);
    quorum.env().sleep(SECOND * 3 / 2).await;
    assert!(
        b.election.term().is_some_and(|term| term.unchecked_token() == second),
        "a term that has begun goes on"
    );
    for one in [a, b] {
        one.end().await;
    }
}

#[tokio::test]
async fn a_candidate_that_becomes_ineligible_while_it_waits_is_not_elected() {
    let nodes = nodes();
    let (fit, checks) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let mut a = run(candidate("a", &nodes));
    a.elected().await;
    let check = {
        let (fit, checks) = (Arc::clone(&fit), Arc::clone(&checks));
        move || {
            checks.fetch_add(1, Ordering::AcqRel);
            fit.load(Ordering::Acquire)
        }
    };
    let mut b = run(candidate("b", &nodes).eligible_while(check));
    let env = b.election.quorum().env().clone();
    let checked = async |times: usize| {
        let wanted = checks.load(Ordering::Acquire) + times;
        let reached = async {
            while checks.load(Ordering::Acquire) < wanted {
                env.sleep(SECOND / 100).await;
            }
        };
        env.before(env.now() + 20 * SECOND, reached)
            .await
            .expect("the check is called while the candidate waits");
    };
    checked(3).await;
    fit.store(false, Ordering::Release);
    checked(2).await;
    a.end().await;
    checked(3).await;
    assert!(b.election.term().is_none(), "an ineligible candidate was elected");
    fit.store(true, Ordering::Release);
    b.elected().await;
    b.end().await;
}

#[tokio::test]
async fn of_two_candidates_the_one_without_a_delay_leads() {
    let nodes = nodes();
    for _ in 0..3 {
        let mut second = run(candidate("second", &nodes).candidate_delay(SECOND / 2));
        let mut first = run(candidate("first", &nodes));
        first.elected().await;
        assert!(!second.election.is_leader());
        first.end().await;
        second.elected().await;
        second.end().await;
    }
}

#[tokio::test]
async fn a_preferred_candidate_takes_the_lead_once_it_has_been_healthy() {
    let nodes = nodes();
    let mut usual = run(candidate("usual", &nodes).priority(5));
    let first = usual.elected().await;
    let equal = run(candidate("equal", &nodes).priority(5).take_over_after(SECOND / 4));
    usual.election.quorum().env().sleep(2 * SECOND).await;
    assert_eq!(usual.election.term().map(|term| term.unchecked_token()), Some(first), "equals stay");
    let mut preferred = run(candidate("preferred", &nodes).priority(10).take_over_after(SECOND));
    let (env, began) = (preferred.election.quorum().env().clone(), preferred.election.quorum().env().now());
    let second = preferred.elected().await;
    assert!(second > first && began.until(env.now()) >= SECOND, "not before it has been healthy for so long");
    let (before, _) = usual.until(|event| *event == ElectionEvent::Resigned(first)).await;
    let handed = ElectionEvent::HandedOver { term: first, reserved: true };
    assert_eq!(before, [ElectionEvent::AskedToResign(first), ElectionEvent::StepDown(first), handed]);
    let terms = preferred.election.observe().expect("a name").history(9).await.expect("a majority");
    let of_term = |term| terms.iter().find(|past| past.term == term).map(|past| past.priority);
    assert_eq!((of_term(first), of_term(second)), (Some(5), Some(10)));
    for one in [usual, equal, preferred] {
        one.end().await;
    }
}

#[tokio::test]
async fn a_leader_that_allows_no_remote_resign_hands_nothing_over() {
    let nodes = nodes();
    let mut usual = run(candidate("usual", &nodes).allow_remote_resign(false));
    let first = usual.elected().await;
    let preferred = run(candidate("preferred", &nodes).priority(1).take_over_after(SECOND / 4));
    usual.election.quorum().env().sleep(2 * SECOND).await;
    assert!(usual.election.term().is_some_and(|term| term.unchecked_token() == first && term.is_valid()));
    for one in [usual, preferred] {
        one.end().await;
    }
}

#[tokio::test]
async fn a_candidate_that_never_leads_follows_the_leader() {
    let nodes = nodes();
    let never = run(candidate("never", &nodes).never_lead());
    let env = never.election.quorum().env().clone();
    env.sleep(SECOND).await;
    assert!(!never.election.is_leader() && never.election.leader().is_none(), "there is no other candidate");
    let mut usual = run(candidate("usual", &nodes));
    usual.elected().await;
    let followed = async {
        while never.election.leader().is_none_or(|leader| &*leader.worker != "usual") {
            env.sleep(SECOND / 20).await;
        }
    };
    env.before(env.now() + 20 * SECOND, followed).await.expect("it looks at the leader");
    usual.end().await;
    env.sleep(SECOND).await;
    assert!(never.election.term().is_none());
    never.election.quorum().close().await;
    never.campaign.await.expect_err("the quorum is closed, and the campaign was stopped with it");
}

#[tokio::test]
async fn a_forced_release_applies_to_the_observed_holder_only() {
    let nodes = nodes();
    let (a, outside) = (quorum("a", &nodes), quorum("operator", &nodes));
    let resource = Resource::lock("x").expect("a name");
    let seen = outside.inspect(&resource).await.expect("a majority");
    assert!(seen.named.is_empty());
    let old = a.lock("x").acquire().await.expect("free");
    let old_owner = old.owner().clone();
    old.release().await.expect("all nodes answer");
    let lease = a.lock("x").ttl(10 * SECOND).auto_extend(false).acquire().await.expect("free");
    let nothing = outside.force_release(&resource, &old_owner).await;
    assert_eq!((nothing.freed, nothing.clear), (0, 5), "of the one before nothing is left");
    // The lease is extended to all nodes only a moment after it was acquired. The test waits until all nodes
    // store the lease. An attempt of another worker before that would be counted on the other nodes, for which a
    // lease that is not extended automatically cannot vouch.
    let mut seen = outside.inspect(&resource).await.expect("a majority");
    let spread = async {
        while seen.named != [(lease.owner().clone(), 5)] {
            outside.env().sleep(SECOND / 200).await;
            seen = outside.inspect(&resource).await.expect("a majority");
        }
    };
    outside
        .env()
        .before(outside.env().now() + 8 * SECOND, spread)
        .await
        .expect("it is extended to all nodes");
    assert!(contended(&outside, "x").await);
    let forced = outside.force_release(&resource, &seen.named[0].0).await;
    assert!(forced.is_clear() && forced.is_final() && forced.freed == 5, "{forced:?}");
    assert!(lease.is_valid(), "the holder does not know");
    let next = outside.lock("x").acquire().await.expect("free");
    assert!(next.unchecked_token() > lease.unchecked_token(), "which is what the sink compares");
    a.close().await;
    outside.close().await;
}

/// Regression: after a forced release and the whole lease of another worker, an extension of the old holder set its
/// lease again.
#[tokio::test]
async fn a_holder_does_not_take_back_a_lock_that_was_released_by_force() {
    for other_holds in [false, true] {
        let nodes = nodes();
        let (a, outside) = (quorum("a", &nodes), quorum("operator", &nodes));
        let resource = Resource::lock("x").expect("a name");
        let lease = a.lock("x").ttl(10 * SECOND).acquire().await.expect("free");
        lease.extend().await.expect("all nodes answer");
        assert!(outside.force_release(&resource, lease.owner()).await.is_final());
        if other_holds {
            let other = outside.lock("x").acquire().await.expect("free");
            assert!(other.unchecked_token() > lease.unchecked_token());
            other.release().await.expect("all nodes answer");
        }
        assert!(matches!(lease.extend().await, Err(LeaseError::Lost(_))), "{other_holds}");
        assert!(!lease.is_valid() && lease.lost_token().is_cancelled());
        assert_eq!(lease.step_down_cause(), Some(StepDownCause::NotExtended));
        let why = lease.failed_extension().expect("a report").to_string();
        assert!(why.contains("later grants have been counted"), "{why}");
        assert!(!contended(&outside, "x").await);
        a.close().await;
        outside.close().await;
    }
}

/// Regression: the lease was released at the end of its longest holding time, although the work may still have run.
#[tokio::test]
async fn a_term_that_must_not_release_its_lease_does_not_do_so_at_its_longest_holding_time() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let (sender, mut terms) = mpsc::unbounded_channel();
    // This work runs on until it is dropped.
    let campaign = Election::new(&quorum, "g").ttl(3 * SECOND).max_hold(4 * SECOND).run(move |term: Term| {
        let _ = sender.send(term);
        std::future::pending::<Result<(), Infallible>>()
    });
    let stop = CancellationToken::new();
    let campaign = quorum.env().spawn_scoped(campaign.until(stop.clone().cancelled_owned()));
    let term = terms.recv().await.expect("it leads");
    let resource = Resource::election("g").expect("a name");
    let outside = common::quorum("outside", &nodes);
    let holder = outside.inspect(&resource).await.expect("a majority").holder.expect("a leads");
    term.end_without_release();
    term.lost_token().cancelled().await;
    outside.env().sleep(SECOND / 10).await;
    let seen = outside.inspect(&resource).await.expect("a majority");
    assert_eq!(seen.holder, Some(holder), "its key expires");
    stop.cancel();
    campaign.await.expect("no panic").expect("a shutdown is Ok");
    quorum.close().await;
    outside.close().await;
}
