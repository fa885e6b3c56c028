//! Tests of the driver's core without a runtime. Each test supplies every event and every time.

use crate::{
    config::{QuorumConfig, SharedSettings},
    driver::{
        core::{Command, Core},
        message::{DriverMessage, PendingRequest},
    },
    env::{BootTime, WallTime},
    node::{
        Batch, BatchReply, Cause, DoneRecord, FencingToken, Hello, Incarnation, NodeTime, Owner, Refusal,
        Reply, Request, Resource, StampStep,
    },
    trust::{Marker, NodeRegistry, NodeState, QuarantineReason, TrustPolicy, VoteRejection},
    vote::{Answer, ReplyTo, Vote, VoteReceiver, VoteSender, vote_channel},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub(super) const fn at(ms: u64) -> BootTime {
    BootTime::from_nanos(ms * 1_000_000)
}

/// Returns the time that a node's clock shows when the boot clock shows `ms`. The node's clock is an hour ahead
/// of the boot clock.
fn node_time(ms: u64) -> NodeTime {
    NodeTime::from_micros((3_600_000 + ms) * 1_000)
}

pub(super) struct Harness {
    pub(super) core: Core,
    registry: Arc<NodeRegistry>,
    pub(super) sender: VoteSender,
    pub(super) votes: VoteReceiver,
}

impl Harness {
    fn new() -> Self {
        Self::with(QuorumConfig::default())
    }

    fn with(config: QuorumConfig) -> Self {
        let registry = Arc::new(NodeRegistry::new(&["a".into()]));
        let policy = Arc::new(TrustPolicy { nodes: "a".into(), config, seed: 1 });
        let (sender, votes) = vote_channel();
        Self { core: Core::new(0, true, policy, Arc::clone(&registry)), registry, sender, votes }
    }

    /// Returns a core that has been connected since 10 ms to a node that has this worker's marker and votes.
    pub(super) fn trusted() -> Self {
        let mut harness = Self::new();
        assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
        harness.core.opened(at(10), Ok(hello("run", Some("run"))));
        assert!(harness.core.step(at(10)).is_empty());
        harness
    }

    pub(super) fn pending(&mut self, request: Request, deadline: u64, waits: bool) {
        let reply = waits.then(|| ReplyTo { sender: self.sender.clone(), ticket: 0 });
        self.enqueue(request, deadline, reply);
    }

    fn enqueue(&mut self, request: Request, deadline: u64, reply: Option<ReplyTo>) {
        self.core.enqueue(DriverMessage::Request(PendingRequest {
            requests: Some(request.into()),
            deadline: at(deadline),
            reply,
        }));
    }

    fn answers(&mut self) -> Vec<Answer> {
        std::iter::from_fn(|| self.votes.try_recv()).map(|vote| vote.answer).collect()
    }
}

fn hello(run_id: &str, marked: Option<&str>) -> Hello {
    let marker = marked.map(|run_id| Marker {
        run_id: run_id.into(),
        data: "".into(),
        incarnation: Incarnation::default(),
        nodes: "a".into(),
        settings: SharedSettings::of(&QuorumConfig::default()),
        since: node_time(0),
        votes_from: node_time(0),
    });
    Hello {
        node_time: node_time(10),
        run_id: run_id.into(),
        marker: marker.map(|marker| marker.to_text()),
        data: None,
        stamps: BTreeMap::new(),
        uptime: Duration::from_secs(1),
        version: "7".into(),
        replica: false,
        eviction: Some("noeviction".into()),
        durable: None,
        volatile: None,
        unable: None,
    }
}

fn owner() -> Owner {
    Owner::sign("w", 1, 2)
}

fn acquire() -> Request {
    let second = Duration::from_secs(1);
    let propose = FencingToken::new(7);
    let resource = Resource::lock("x").unwrap();
    Request::Acquire {
        resource,
        owner: owner(),
        ttl: second,
        propose,
        tolerance: second,
        keep: second,
        ticket: None,
    }
}

pub(super) fn release() -> Request {
    Request::Release { resource: Resource::lock("x").unwrap(), owner: owner() }
}

pub(super) fn extend() -> Request {
    let second = Duration::from_secs(1);
    let resource = Resource::lock("x").unwrap();
    Request::Extend { resource, owner: owner(), ttl: second, token: FencingToken::new(7), keep: second }
}

pub(super) fn sent(commands: Vec<Command>) -> Vec<(u64, Batch)> {
    let sends = commands.into_iter().map(|command| match command {
        Command::Send { in_flight, batch } => (in_flight, batch),
        other => panic!("{other:?}"),
    });
    sends.collect()
}

pub(super) fn reply(ms: u64, replies: Vec<Reply>) -> Result<BatchReply, Cause> {
    Ok(BatchReply { node_time: node_time(ms), replies })
}

#[test]
fn under_durable_a_node_that_may_forget_is_refused_with_the_reason() {
    let opened = |durable: bool, hello: Hello| {
        let mut harness = Harness::with(QuorumConfig { durable, ..QuorumConfig::default() });
        assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
        harness.core.opened(at(10), Ok(hello));
        (harness.core.is_up(), harness.registry.status().remove(0).state)
    };
    let marked = || hello("run", Some("run"));
    for (durable, why) in
        [(Some(false), "its appendfsync is everysec"), (None, "it does not report its appendfsync")]
    {
        let volatile = Hello { durable, volatile: Some(why.into()), ..marked() };
        assert!(opened(false, volatile.clone()).0);
        let (is_up, state) = opened(true, volatile);
        let NodeState::Unreachable(Cause::Denied(text)) = state else { panic!("{state:?}") };
        assert!(!is_up && text.starts_with("durable = true, but ") && text.contains(why), "{text}");
    }
    // While the server rewrites its append-only file, the settings cannot be confirmed. The cause is temporary,
    // so callers that wait get no error yet.
    let rewriting = Hello { durable: None, volatile: None, ..marked() };
    let (is_up, state) = opened(true, rewriting);
    let NodeState::Unreachable(cause @ Cause::Unreachable(_)) = state else { panic!("{state:?}") };
    assert!(!is_up && !cause.is_permanent() && cause.to_string().contains("does not say yet"), "{cause}");
    assert!(opened(true, Hello { durable: Some(true), ..marked() }).0);
}

/// Returns whether the registry says that the node votes, and otherwise the reason.
fn vote(harness: &Harness) -> Result<(), String> {
    harness.registry.status()[0].reason().map_or(Ok(()), Err)
}

#[test]
fn a_node_that_refuses_what_leases_need_does_not_vote_and_its_grants_count_nevertheless() {
    let mut harness = Harness::trusted();
    let epoch = harness.registry.epoch(0);
    let ask = |harness: &mut Harness, ms: u64, reply_to_it: Reply| {
        harness.pending(acquire(), ms + 100, true);
        let batches = sent(harness.core.step(at(ms)));
        assert_eq!(batches[0].1.requests, [acquire()], "it is asked as before");
        harness.core.replied(at(ms + 1), batches[0].0, reply(ms, vec![reply_to_it]));
        harness.answers().remove(0)
    };
    let refused = || Reply::Refused(Refusal::Unable("OOM; raise maxmemory".into()));
    let granted = || Reply::Granted { counter: FencingToken::new(8), begun: None };
    let answer = ask(&mut harness, 20, refused());
    assert!(matches!(answer, Answer::Reply(Reply::Refused(Refusal::Unable(_)))), "{answer:?}");
    assert!(vote(&harness).unwrap_err().contains("OOM; raise maxmemory"));
    // The node is probed every second. A probe that it refuses too changes nothing.
    assert!(harness.core.step(at(30)).is_empty());
    let probe = |harness: &mut Harness, ms: u64, reply_to_it: Reply| {
        assert!(harness.core.wake() > at(ms - 1_000) && harness.core.wake() <= at(ms));
        let batches = sent(harness.core.step(at(ms)));
        assert!(matches!(batches[0].1.requests[..], [Request::Mark { .. }]), "{batches:?}");
        harness.core.replied(at(ms + 1), batches[0].0, reply(ms, vec![reply_to_it]));
        assert!(harness.core.step(at(ms + 2)).is_empty());
    };
    probe(&mut harness, 1_040, refused());
    assert!(vote(&harness).is_err());
    probe(&mut harness, 2_050, Reply::Marked);
    assert_eq!(vote(&harness), Ok(()));
    // A grant ends the state at once, and is counted like any other.
    ask(&mut harness, 2_100, refused());
    assert!(vote(&harness).is_err());
    let answer = ask(&mut harness, 2_200, granted());
    assert!(matches!(answer, Answer::Reply(Reply::Granted { .. })), "{answer:?}");
    assert_eq!(vote(&harness), Ok(()));
    assert!(harness.core.step(at(2_300)).is_empty());
    assert_eq!(harness.registry.epoch(0), epoch, "it has lost nothing");
}

#[test]
fn a_handshake_with_a_node_that_refuses_writes_says_so_at_once() {
    let mut harness = Harness::new();
    assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
    let hello = Hello { unable: Some("MISCONF".into()), ..hello("run", Some("run")) };
    harness.core.opened(at(10), Ok(hello));
    assert!(harness.core.step(at(10)).is_empty());
    assert!(vote(&harness).unwrap_err().contains("MISCONF"));
    assert!(harness.core.is_up());
}

#[test]
fn queued_requests_are_sent_in_order_as_one_batch_with_a_not_after_on_the_node_s_clock() {
    let mut harness = Harness::trusted();
    harness.pending(acquire(), 111, true);
    harness.pending(release(), 99_999, false);
    let batches = sent(harness.core.step(at(11)));
    assert_eq!(batches.len(), 1);
    let (in_flight, batch) = &batches[0];
    assert_eq!(batch.requests, [acquire(), release()]);
    assert!(batch.not_after <= node_time(111), "the node refuses it once the caller has timed out");
    assert!(batch.not_after >= node_time(105));
    let granted = Reply::Granted { counter: FencingToken::new(8), begun: None };
    harness.core.replied(at(12), *in_flight, reply(11, vec![granted, Reply::Released(true)]));
    assert!(matches!(harness.answers()[..], [Answer::Reply(Reply::Granted { .. })]));
    assert!(harness.core.is_idle());
}

#[test]
fn at_most_two_batches_are_in_flight_and_a_request_past_its_deadline_is_not_sent() {
    let mut harness = Harness::trusted();
    for _ in 0..3 {
        harness.pending(acquire(), 111, true);
        let sends = sent(harness.core.step(at(11))).len();
        assert!(sends <= 1);
    }
    assert!(harness.answers().is_empty());
    let commands = harness.core.step(at(111));
    let answers = harness.answers();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Failed(Cause::TimedOut))));
    assert!(commands.is_empty(), "the third was not sent: {commands:?}");
}

/// A node serves one large batch with much less work than several small ones.
#[test]
fn a_second_batch_is_sent_once_it_is_as_large_as_the_one_in_flight() {
    let mut harness = Harness::trusted();
    (0..3).for_each(|_| harness.pending(release(), 111, true));
    assert!(!harness.core.gathers(), "no batch of several requests was sent so far");
    let (first, batch) = sent(harness.core.step(at(11))).remove(0);
    assert_eq!(batch.requests.len(), 3);
    for _ in 0..2 {
        harness.pending(release(), 111, true);
        assert!(!harness.core.gathers() && sent(harness.core.step(at(12))).is_empty(), "it is smaller");
    }
    harness.pending(release(), 111, true);
    assert!(harness.core.gathers(), "it may be sent, and others may follow");
    assert_eq!(sent(harness.core.step(at(12))).remove(0).1.requests.len(), 3);
    harness.pending(release(), 111, true);
    assert!(sent(harness.core.step(at(13))).is_empty(), "two batches are in flight");
    harness.core.replied(at(14), first, reply(13, vec![Reply::Released(true); 3]));
    assert!(sent(harness.core.step(at(14))).is_empty(), "it is smaller than the second");
    let commands = harness.core.step(at(112));
    assert!(sent(commands).is_empty() && harness.answers().len() == 7, "no request waits forever");
}

#[test]
fn after_several_timeouts_a_new_session_opens_after_the_fence_and_sends_releases_first() {
    let mut harness = Harness::trusted();
    harness.pending(acquire(), 111, true);
    assert_eq!(sent(harness.core.step(at(11))).len(), 1);
    harness.pending(release(), 99_999, false);
    assert_eq!(sent(harness.core.step(at(12))).len(), 1);
    // Two batches have timed out, which is fewer than the connection may miss. So the session stays open, and
    // only the release is sent again.
    let again = sent(harness.core.step(at(112)));
    assert_eq!(again[0].1.requests, [release()]);
    harness.pending(acquire(), 220, true);
    assert_eq!(sent(harness.core.step(at(120))).len(), 1);
    assert!(matches!(harness.core.step(at(220))[..], [Command::Close]));
    // The session is closed. A request is now answered at once, with an error.
    harness.answers();
    harness.pending(acquire(), 330, true);
    assert!(harness.core.step(at(230)).is_empty());
    assert!(matches!(harness.answers()[..], [Answer::Failed(Cause::TimedOut)]));
    // The last batch was sent at 120 ms. No session is opened until the `not_after` of that batch has certainly
    // passed on the node.
    let fence = 120 + 2 * 100 + 200;
    assert!(harness.core.step(at(fence - 1)).is_empty());
    assert!(matches!(harness.core.step(at(fence))[..], [Command::Open]));
    harness.core.opened(at(fence + 1), Ok(hello("run", Some("run"))));
    harness.pending(acquire(), fence + 101, true);
    let batches = sent(harness.core.step(at(fence + 1)));
    assert_eq!(batches[0].1.requests, [release(), acquire()]);
}

#[test]
fn a_flushed_node_stops_counting_at_once_and_waits_but_still_gets_releases() {
    let mut harness = Harness::trusted();
    let before = harness.registry.epoch(0);
    harness.pending(acquire(), 111, true);
    let (in_flight, _) = sent(harness.core.step(at(11))).remove(0);
    harness.core.replied(at(12), in_flight, reply(12, vec![Reply::Refused(Refusal::Marker(None))]));
    assert!(harness.core.take_lost_memory() && harness.registry.epoch(0) > before);
    assert!(!harness.core.take_lost_memory(), "reported once");
    harness.answers();
    let (in_flight, batch) = sent(harness.core.step(at(12))).remove(0);
    let Request::Mark { expect: None, marker } = &batch.requests[0] else { panic!("{batch:?}") };
    let marker = Marker::parse(marker).unwrap();
    assert_eq!(marker.votes_from, marker.since + QuorumConfig::default().quarantine());
    harness.core.replied(at(13), in_flight, reply(13, vec![Reply::Marked]));
    harness.pending(acquire(), 113, true);
    harness.pending(release(), 99_999, false);
    let batches = sent(harness.core.step(at(13)));
    assert_eq!(batches[0].1.requests, [release()]);
    assert!(matches!(harness.answers()[..], [Answer::Untrusted(VoteRejection::Quarantined { .. })]));
    harness.core.replied(at(14), batches[0].0, reply(14, vec![Reply::Released(false)]));
    let over = 12 + 30_300;
    let probes = sent(harness.core.step(at(over - 1)));
    assert!(matches!(&probes[0].1.requests[..], [Request::Mark { expect: Some(a), marker: b }] if a == b));
    harness.core.replied(at(over - 1), probes[0].0, reply(over - 1, vec![Reply::Marked]));
    harness.pending(acquire(), over + 100, true);
    assert_eq!(sent(harness.core.step(at(over))).len(), 1, "then it votes");
}

/// Regression: leases lost their majority while the node was still shown as one that votes, so their reports had no
/// reason for it.
#[test]
fn a_node_is_shown_as_not_voting_when_leases_are_informed_that_it_lost_its_memory() {
    let mut harness = Harness::trusted();
    harness.pending(acquire(), 111, true);
    let (in_flight, _) = sent(harness.core.step(at(11))).remove(0);
    harness.core.replied(at(12), in_flight, reply(12, vec![Reply::Refused(Refusal::Marker(None))]));
    let (_, batch) = sent(harness.core.step(at(12))).remove(0);
    assert!(matches!(batch.requests[..], [Request::Mark { .. }]), "the marker is not stored yet: {batch:?}");
    assert!(harness.core.take_lost_memory());
    let reason = harness.registry.status()[0].reason();
    assert!(reason.as_ref().is_some_and(|why| why.contains("it is new or was flushed")), "{reason:?}");
}

#[test]
fn a_trusted_node_s_marker_ends_the_quarantine() {
    let mut harness = Harness::new();
    harness.core.step(at(9));
    harness.core.opened(at(10), Ok(hello("run", None)));
    let (in_flight, _) = sent(harness.core.step(at(10))).remove(0);
    harness.core.replied(at(11), in_flight, reply(11, vec![Reply::Marked]));
    let reply_to = ReplyTo { sender: harness.sender.clone(), ticket: 0 };
    harness.core.enqueue(DriverMessage::Request(PendingRequest {
        requests: None,
        deadline: at(200),
        reply: Some(reply_to),
    }));
    let (in_flight, batch) = sent(harness.core.step(at(12))).remove(0);
    let Request::Mark { expect: Some(_), marker } = &batch.requests[0] else { panic!("{batch:?}") };
    let marker = Marker::parse(marker).unwrap();
    assert_eq!(marker.votes_from, marker.since);
    harness.core.replied(at(13), in_flight, reply(13, vec![Reply::Marked]));
    assert!(matches!(harness.answers()[..], [Answer::Reply(Reply::Marked)]));
    harness.pending(acquire(), 114, true);
    assert_eq!(sent(harness.core.step(at(14))).len(), 1);
}

#[test]
fn the_end_of_a_quarantine_by_another_worker_is_noticed_within_a_second() {
    let mut harness = Harness::new();
    harness.core.step(at(9));
    harness.core.opened(at(10), Ok(hello("run", None)));
    let (in_flight, batch) = sent(harness.core.step(at(10))).remove(0);
    harness.core.replied(at(11), in_flight, reply(11, vec![Reply::Marked]));
    let Request::Mark { marker, .. } = &batch.requests[0] else { panic!("{batch:?}") };
    let ours = Marker::parse(marker).unwrap();
    let admitted = Marker { votes_from: ours.since, ..ours };
    assert!(harness.core.step(at(11)).is_empty());
    assert_eq!(harness.core.wake(), at(1011));
    let (in_flight, _) = sent(harness.core.step(at(1011))).remove(0);
    let other = Reply::Refused(Refusal::Marker(Some(admitted.to_text())));
    harness.core.replied(at(1012), in_flight, reply(1012, vec![other]));
    assert!(!harness.core.take_lost_memory(), "its memory is the same");
    harness.pending(acquire(), 1112, true);
    assert_eq!(sent(harness.core.step(at(1012))).len(), 1, "it votes");
}

#[test]
fn a_refused_node_gets_new_handshakes_until_it_is_fixed() {
    let mut harness = Harness::new();
    harness.core.step(at(9));
    let evicts = Hello { eviction: Some("allkeys-lru".into()), ..hello("run", Some("run")) };
    harness.core.opened(at(10), Ok(evicts));
    assert!(harness.core.step(at(10)).is_empty());
    assert!(matches!(harness.core.step(at(10_010))[..], [Command::Close]));
    assert!(matches!(harness.core.step(at(10_020))[..], [Command::Open]));
    harness.core.opened(at(10_021), Ok(hello("run", Some("run"))));
    harness.pending(acquire(), 10_121, true);
    assert_eq!(sent(harness.core.step(at(10_021))).len(), 1, "it votes");
}

#[test]
fn a_driver_that_ends_answers_every_caller() {
    let mut harness = Harness::trusted();
    harness.pending(acquire(), 111, true);
    assert_eq!(sent(harness.core.step(at(11))).len(), 1);
    harness.pending(acquire(), 111, true);
    harness.core.stop(at(12));
    let answers = harness.answers();
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Failed(Cause::Stopped))));
}

#[test]
fn a_marker_that_arrived_too_late_is_written_on_the_next_connection() {
    let mut harness = Harness::new();
    let _ = harness.core.step(at(9));
    harness.core.opened(at(10), Ok(hello("run", None)));
    let (in_flight, _) = sent(harness.core.step(at(10))).remove(0);
    harness.core.replied(at(90), in_flight, reply(120, vec![Reply::Refused(Refusal::Stale)]));
    assert_eq!(harness.registry.status()[0].state, NodeState::Unreachable(Cause::TimedOut));
    let again = harness.core.wake().max(at(90));
    assert!(matches!(harness.core.step(again)[..], [Command::Open]));
    harness.core.opened(again, Ok(Hello { node_time: node_time(500), ..hello("run", None) }));
    let (in_flight, batch) = sent(harness.core.step(again)).remove(0);
    assert!(matches!(batch.requests[..], [Request::Mark { .. }]));
    harness.core.replied(again, in_flight, reply(501, vec![Reply::Marked]));
    assert!(matches!(harness.registry.status()[0].state, NodeState::Quarantined { .. }));
}

/// Returns a core that has not connected yet to its node, one of three.
fn of_three(config: QuorumConfig) -> Harness {
    let names: Vec<Arc<str>> = vec!["a".into(), "b".into(), "c".into()];
    let registry = Arc::new(NodeRegistry::new(&names));
    let policy = Arc::new(TrustPolicy { nodes: "a".into(), config, seed: 1 });
    let (sender, votes) = vote_channel();
    Harness { core: Core::new(0, true, policy, Arc::clone(&registry)), registry, sender, votes }
}

/// Returns the core of the first of three nodes, which votes from 10 ms on. If `steady` is true, the clocks of
/// the other two nodes have not stepped against the boot clock.
fn one_of_three(steady: bool) -> Harness {
    let mut harness = of_three(QuorumConfig::default());
    assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
    harness.core.opened(at(10), Ok(hello("run", Some("run"))));
    assert!(harness.core.step(at(10)).is_empty());
    if steady {
        (1..3).for_each(|node| harness.registry.set_steady(node, at(5), at(60_000)));
    }
    harness
}

/// Sends an acquire at 1,000 ms, and delivers a reply that shows that the node's clock has stepped a minute
/// ahead. Returns the vote.
fn step(harness: &mut Harness) -> Vote {
    harness.pending(acquire(), 1_100, true);
    let (in_flight, _) = sent(harness.core.step(at(1_000))).remove(0);
    let granted = Reply::Granted { counter: FencingToken::new(8), begun: None };
    harness.core.replied(at(1_001), in_flight, reply(61_001, vec![granted]));
    harness.votes.try_recv().unwrap()
}

#[test]
fn a_vote_whose_reply_shows_a_clock_step_counts_for_the_memory_before_it() {
    let mut harness = one_of_three(false);
    let before = harness.registry.epoch(0);
    let vote = step(&mut harness);
    assert!(harness.core.take_lost_memory(), "leases no longer count on it");
    assert_eq!(vote.memory.epoch, before);
    assert!(harness.registry.epoch(0) > before, "so the vote is no longer used");
    // It is not known whether the clocks of the other nodes have stepped too. If they have, this worker's boot
    // clock stood still. So no marker is written.
    assert!(harness.core.step(at(1_001)).is_empty());
    harness.pending(acquire(), 1_200, true);
    harness.pending(release(), 99_999, false);
    assert_eq!(sent(harness.core.step(at(1_100)))[0].1.requests, [release()]);
    let answers = harness.answers();
    let [Answer::Untrusted(VoteRejection::Quarantined { reason, .. })] = answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(reason, QuarantineReason::Jumped);
    harness.core.stop(at(1_200));
}

#[test]
fn the_quarantine_after_a_clock_step_is_this_worker_s_own_and_ends() {
    let mut harness = one_of_three(false);
    step(&mut harness);
    // The quarantine continues when the connection ends.
    harness.core.closed(at(1_002), Cause::Closed);
    assert!(matches!(harness.core.step(at(1_500))[..], [Command::Open]));
    harness.core.opened(at(1_501), Ok(Hello { node_time: node_time(61_501), ..hello("run", Some("run")) }));
    harness.core.step(at(1_501));
    let over = 1_001 + 30_300;
    let NodeState::Quarantined { until, .. } = harness.registry.status()[0].state else { panic!() };
    assert_eq!(until, at(over));
    harness.core.step(at(over));
    assert_eq!(harness.registry.status()[0].state, NodeState::Trusted);
}

#[test]
fn a_step_of_one_clock_among_steady_ones_is_written_to_its_marker_once() {
    let mut harness = one_of_three(true);
    step(&mut harness);
    let (in_flight, batch) = sent(harness.core.step(at(1_001))).remove(0);
    let Request::Mark { expect: Some(_), marker } = &batch.requests[0] else { panic!("{batch:?}") };
    let marker = Marker::parse(marker).unwrap();
    assert_eq!(marker.since, node_time(0), "its memory is the same");
    assert_eq!(marker.votes_from, node_time(61_001) + QuorumConfig::default().quarantine());
    harness.core.replied(at(1_003), in_flight, reply(61_003, vec![Reply::Marked]));
    assert!(harness.core.step(at(1_004)).is_empty(), "reported once");
    assert!(matches!(harness.registry.status()[0].state, NodeState::Quarantined { .. }));
}

#[test]
fn a_clock_step_that_another_worker_wrote_to_the_marker_is_not_written_again() {
    let mut harness = one_of_three(true);
    step(&mut harness);
    let (in_flight, batch) = sent(harness.core.step(at(1_001))).remove(0);
    let Request::Mark { marker, .. } = &batch.requests[0] else { panic!("{batch:?}") };
    let theirs = Marker { votes_from: node_time(91_290), ..Marker::parse(marker).unwrap() };
    let other = Reply::Refused(Refusal::Marker(Some(theirs.to_text())));
    harness.core.replied(at(1_003), in_flight, reply(61_003, vec![other]));
    assert!(harness.core.step(at(1_003)).is_empty());
    assert!(harness.core.step(at(1_004)).is_empty());
    assert!(matches!(harness.registry.status()[0].state, NodeState::Quarantined { .. }));
}

#[test]
fn an_operator_ends_the_quarantine_after_a_clock_step() {
    let mut harness = one_of_three(false);
    step(&mut harness);
    harness.core.step(at(1_001));
    let reply_to = ReplyTo { sender: harness.sender.clone(), ticket: 0 };
    harness.core.enqueue(DriverMessage::Request(PendingRequest {
        requests: None,
        deadline: at(2_000),
        reply: Some(reply_to),
    }));
    let (in_flight, _) = sent(harness.core.step(at(1_002))).remove(0);
    harness.core.replied(at(1_003), in_flight, reply(61_003, vec![Reply::Marked]));
    assert_eq!(harness.registry.status()[0].state, NodeState::Trusted);
}

#[test]
fn a_node_is_tested_so_that_a_clock_step_is_noticed() {
    let mut harness = one_of_three(false);
    assert_eq!(harness.core.wake(), at(10_010));
    let probes = sent(harness.core.step(at(10_010)));
    assert!(matches!(&probes[0].1.requests[..], [Request::Mark { expect: Some(a), marker: b }] if a == b));
    harness.core.replied(at(10_011), probes[0].0, reply(10_011, vec![Reply::Marked]));
    assert!(harness.core.step(at(10_011)).is_empty());
    assert_eq!(harness.core.wake(), at(20_010));
}

/// Regression: a leader without jobs only extends its lease, which a node without memory serves. The node counted as
/// voting.
#[test]
fn a_node_that_serves_extensions_and_refuses_writes_does_not_vote() {
    let mut harness = Harness::trusted();
    let mut tests = 0;
    for now in (100..12_000).step_by(100) {
        if now < 10_000 {
            harness.pending(extend(), now + 300, true);
        }
        for (in_flight, batch) in sent(harness.core.step(at(now))) {
            let answer = |request: &Request| match request {
                Request::Extend { .. } => Reply::Extended,
                _ => Reply::Refused(Refusal::Unable("OOM".into())),
            };
            tests += usize::from(matches!(batch.requests[..], [Request::Mark { .. }]));
            let replies = batch.requests.iter().map(answer).collect();
            harness.core.replied(at(now), in_flight, reply(now, replies));
        }
    }
    assert!((1..=3).contains(&tests), "one after ten seconds, then one each second: {tests}");
    let status = &harness.registry.status()[0];
    assert!(matches!(status.state, NodeState::Refused(VoteRejection::Unable(_))), "{status:?}");
}

/// Regression: a new client counted a node whose clock was a minute off as voting, until the node refused an acquire.
#[test]
fn a_node_whose_clock_is_far_off_does_not_vote_from_its_handshake_on() {
    let mut harness = Harness::new();
    harness.core.step(at(9));
    harness.core.opened(at(10), Ok(hello("run", Some("run"))));
    let far = Duration::from_mins(1);
    let wall = |ms, off| WallTime::from_micros((node_time(ms) + off).as_micros());
    harness.core.compare_clocks(at(10), wall(10, far));
    harness.pending(acquire(), 300, true);
    let batches = sent(harness.core.step(at(11)));
    let is_far = |harness: &Harness| matches!(harness.registry.status()[0].state, NodeState::Refused(VoteRejection::Clock { apart }) if far - apart < at(0).until(at(2)));
    assert!(is_far(&harness) && batches.len() == 1, "it is asked as before");
    let granted = Reply::Granted { counter: FencingToken::new(1), begun: None };
    harness.core.replied(at(12), batches[0].0, reply(12, vec![granted]));
    harness.core.compare_clocks(at(12), wall(12, far));
    assert!(is_far(&harness) && harness.votes.try_recv().is_some(), "its grant counts, and shows nothing");
    harness.core.compare_clocks(at(13), wall(13, Duration::ZERO));
    assert_eq!(harness.registry.status()[0].state, NodeState::Trusted, "the worker's clock was set");
}

/// Regression: a server whose user lacks a right that only extensions need granted a lease every ten seconds, and the
/// holder lost each of them.
#[test]
fn a_node_that_fails_its_test_is_not_asked_for_new_leases() {
    let mut harness = Harness::trusted();
    let probes = sent(harness.core.step(at(10_100)));
    assert!(matches!(&probes[0].1.requests[..], [Request::Mark { .. }]), "{probes:?}");
    let refused = Reply::Refused(Refusal::Unable("NOPERM".into()));
    harness.core.replied(at(10_110), probes[0].0, reply(10_110, vec![refused.clone()]));
    harness.pending(acquire(), 10_500, true);
    assert!(sent(harness.core.step(at(10_120))).is_empty());
    assert!(matches!(&harness.answers()[..], [Answer::Reply(given)] if *given == refused));
    harness.pending(extend(), 10_500, true);
    let extends = sent(harness.core.step(at(10_130)));
    assert!(matches!(&extends[0].1.requests[..], [Request::Extend { .. }]), "{extends:?}");
}

#[test]
fn a_node_is_tested_every_ten_seconds_however_long_leases_may_last() {
    let config = QuorumConfig { max_ttl: Duration::from_secs(86_400), ..QuorumConfig::default() };
    let marker = Marker {
        run_id: "run".into(),
        data: "".into(),
        incarnation: Incarnation::default(),
        nodes: "a".into(),
        settings: SharedSettings::of(&config),
        since: node_time(0),
        votes_from: node_time(0),
    };
    let mut harness = of_three(config);
    assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
    harness.core.opened(at(10), Ok(Hello { marker: Some(marker.to_text()), ..hello("run", None) }));
    assert!(harness.core.step(at(10)).is_empty());
    assert_eq!(harness.core.wake(), at(10_010));
}

/// Regression: a server that closes each session after its handshake was connected to a hundred times a second.
#[test]
fn a_session_that_ends_before_any_reply_is_opened_again_after_growing_pauses() {
    let mut harness = Harness::trusted();
    let mut now = 10;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        harness.core.closed(at(now), Cause::Closed);
        let wake = harness.core.wake().as_nanos() / 1_000_000;
        pauses.push(wake - now);
        now = wake + 1;
        assert!(matches!(harness.core.step(at(now))[..], [Command::Open]));
        harness.core.opened(at(now), Ok(hello("run", Some("run"))));
        harness.core.step(at(now));
    }
    assert!(pauses.last() > pauses.first() && pauses.is_sorted(), "{pauses:?}");
}

/// Checks replies that cannot be an answer to *acquire*. Without the check, each of them would be counted as a
/// vote.
#[test]
fn a_reply_that_does_not_fit_its_request_is_no_vote_and_ends_the_session() {
    for wrong in [
        Reply::Raised,
        Reply::Extended,
        Reply::Released(true),
        Reply::Marked,
        Reply::Done(DoneRecord { token: FencingToken::new(1), ..DoneRecord::default() }),
        Reply::Granted { counter: FencingToken::new(0), begun: None },
        Reply::Granted { counter: FencingToken::new(FencingToken::MAX.get() + 1), begun: None },
        Reply::Granted { counter: FencingToken::new(u64::MAX), begun: None },
    ] {
        let mut harness = Harness::trusted();
        harness.pending(acquire(), 100, true);
        harness.pending(release(), 100, false);
        let batches = sent(harness.core.step(at(11)));
        harness.core.replied(at(12), batches[0].0, reply(12, vec![wrong.clone(), Reply::Released(true)]));
        let answers = harness.answers();
        assert!(matches!(&answers[..], [Answer::Failed(Cause::Protocol(_))]), "{wrong:?}: {answers:?}");
        assert!(matches!(harness.registry.status()[0].state, NodeState::Unreachable(Cause::Protocol(_))));
        assert!(!harness.core.is_idle(), "the release is kept for the next session");
    }
}

#[test]
fn the_first_round_waits_for_the_first_session_and_then_has_the_whole_node_timeout() {
    let mut harness = Harness::new();
    assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
    harness.pending(acquire(), 110, true);
    for ms in [110, 111, 500, 700] {
        assert!(harness.core.wake() > at(ms), "nothing to do at {ms}");
        assert!(harness.core.step(at(ms)).is_empty());
        assert!(harness.answers().is_empty(), "no session is open yet at {ms}");
    }
    harness.core.opened(at(710), Ok(Hello { node_time: node_time(710), ..hello("run", Some("run")) }));
    let (in_flight, batch) = sent(harness.core.step(at(710))).remove(0);
    let Request::Acquire { propose, .. } = &batch.requests[0] else { panic!("{batch:?}") };
    assert_eq!(propose.get(), 7 + 700_000, "asked at 10, sent at 710: the clocks are not 700 ms apart");
    assert!(harness.core.step(at(809)).is_empty() && harness.answers().is_empty());
    let granted = Reply::Granted { counter: FencingToken::new(8), begun: None };
    harness.core.replied(at(809), in_flight, reply(809, vec![granted]));
    assert!(matches!(harness.answers()[..], [Answer::Reply(Reply::Granted { .. })]));
    // Only the requests of the first round wait for the handshake. A later request has the usual node timeout.
    harness.pending(acquire(), 910, true);
    assert_eq!(sent(harness.core.step(at(810))).len(), 1);
    harness.core.step(at(910));
    assert!(matches!(harness.answers()[..], [Answer::Failed(Cause::TimedOut)]));
}

#[test]
fn the_first_round_gets_the_reason_why_no_session_was_opened() {
    let mut harness = Harness::new();
    harness.core.step(at(9));
    harness.pending(acquire(), 110, true);
    harness.core.opened(at(400), Err(Cause::Unreachable("down".into())));
    harness.core.step(at(400));
    assert!(matches!(&harness.answers()[..], [Answer::Failed(Cause::Unreachable(why))] if &**why == "down"));

    let mut harness = Harness::new();
    harness.core.step(at(9));
    harness.pending(acquire(), 110, true);
    assert_eq!(harness.core.wake(), at(1_009));
    assert!(matches!(harness.core.step(at(1_009))[..], [Command::Close]));
    let answers = harness.answers();
    assert!(matches!(&answers[..], [Answer::Failed(Cause::Unreachable(why))] if why.contains("handshake")));
    // Later requests do not wait for a handshake.
    harness.pending(acquire(), 1_110, true);
    harness.core.step(at(1_030));
    assert_eq!(harness.answers().len(), 1);
}

/// Checks the first of three nodes, all of which are new.
#[test]
fn the_first_round_on_a_new_node_waits_for_the_first_handshakes_with_the_other_nodes() {
    let names: Vec<Arc<str>> = vec!["a".into(), "b".into(), "c".into()];
    let registry = Arc::new(NodeRegistry::new(&names));
    let config = QuorumConfig { trust_new_nodes: true, ..QuorumConfig::default() };
    let policy = Arc::new(TrustPolicy { nodes: Marker::node_set(&names), config, seed: 1 });
    let (sender, votes) = vote_channel();
    let mut harness =
        Harness { core: Core::new(0, true, policy, Arc::clone(&registry)), registry, sender, votes };
    harness.core.step(at(9));
    harness.pending(acquire(), 110, true);
    harness.core.opened(at(10), Ok(hello("run", None)));
    assert!(harness.core.step(at(10)).is_empty() && harness.core.awaits_others());
    assert!(harness.core.step(at(200)).is_empty() && harness.answers().is_empty());
    harness.registry.connected(1, &"another run".into(), &"7".into());
    harness.registry.set_marker_state(1, Ok(false));
    assert!(harness.core.step(at(201)).is_empty(), "the handshake with c is still under way");
    harness.registry.set_state(2, NodeState::Unreachable(Cause::TimedOut));
    let (in_flight, batch) = sent(harness.core.step(at(300))).remove(0);
    let Request::Mark { expect: None, marker } = &batch.requests[0] else { panic!("{batch:?}") };
    let marker = Marker::parse(marker).unwrap();
    assert!(marker.since >= node_time(300) && marker.since <= node_time(303), "{marker:?}");
    assert!(!harness.core.awaits_others());
    harness.core.replied(at(301), in_flight, reply(301, vec![Reply::Marked]));
    let (_, batch) = sent(harness.core.step(at(301))).remove(0);
    assert!(matches!(batch.requests[..], [Request::Acquire { .. }]));
}

/// Returns a harness of a durable worker, and the handshake of a durable node that it trusts.
fn durable() -> (Harness, Hello) {
    let config = QuorumConfig { durable: true, ..QuorumConfig::default() };
    let settings = SharedSettings::of(&config);
    let known = hello("run", Some("run"));
    let marker = Marker::parse(known.marker.as_deref().unwrap()).unwrap();
    let marker = Some(Marker { settings, ..marker }.to_text());
    let stamps = BTreeMap::from([("a".into(), 4)]);
    (Harness::with(config), Hello { durable: Some(true), marker, stamps, ..known })
}

/// Regression: the time at which the next stamp was due passed, and the driver's task ran without a pause.
#[test]
fn a_durable_node_that_refuses_what_leases_need_gets_no_stamp_and_lets_the_driver_wait() {
    let (mut harness, hello) = durable();
    assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
    harness.core.opened(at(10), Ok(Hello { unable: Some("OOM".into()), ..hello }));
    assert!(harness.core.step(at(10)).is_empty());
    assert_eq!(harness.core.wake(), at(1_010), "the next probe");
}

#[test]
fn a_durable_node_is_told_the_stamps_and_one_that_falls_back_is_quarantined() {
    let (mut harness, hello) = durable();
    assert!(matches!(harness.core.step(at(9))[..], [Command::Open]));
    harness.core.opened(at(10), Ok(hello));
    let asked = |batch: &Batch| match batch.requests.last() {
        Some(Request::Stamp { own, known, step }) => (*step, own.to_string(), known[0].1),
        other => panic!("{other:?}"),
    };
    let batches = sent(harness.core.step(at(10)));
    assert_eq!(asked(&batches[0].1), (StampStep::Advance, "a".to_owned(), 4));
    harness.core.replied(at(11), batches[0].0, reply(11, vec![Reply::Stamps(vec![5])]));
    assert!(sent(harness.core.step(at(11))).is_empty());
    assert_eq!(harness.core.wake(), at(110));
    let batches = sent(harness.core.step(at(110)));
    assert_eq!(asked(&batches[0].1), (StampStep::Tell, "a".to_owned(), 5));
    harness.core.replied(at(111), batches[0].0, reply(111, vec![Reply::Stamps(vec![5])]));
    assert_eq!(harness.core.wake(), at(10_110), "a few times in max_ttl, and no probe in between");
    let batches = sent(harness.core.step(at(10_110)));
    assert_eq!(asked(&batches[0].1).0, StampStep::Advance);
    harness.core.replied(at(10_111), batches[0].0, reply(10_111, vec![Reply::Stamps(vec![3])]));
    let batches = sent(harness.core.step(at(10_111)));
    let [Request::Mark { marker, .. }, Request::Stamp { .. }] = &batches[0].1.requests[..] else {
        panic!("{batches:?}")
    };
    assert_eq!(asked(&batches[0].1), (StampStep::Raise, "a".to_owned(), 5));
    assert_eq!(batches[0].1.stamp, *marker, "the stamp is raised only under the new marker");
    harness.core.replied(
        at(10_112),
        batches[0].0,
        reply(10_112, vec![Reply::Marked, Reply::Stamps(vec![6])]),
    );
    let NodeState::Quarantined { why: VoteRejection::Quarantined { reason, .. }, .. } =
        &harness.registry.status()[0].state
    else {
        panic!("{:?}", harness.registry.status())
    };
    assert_eq!(*reason, QuarantineReason::RolledBack);
    // A count that no node can reach is not passed on to the other nodes.
    harness.registry.learn_stamps(0, &[("a".into(), u64::MAX)].into());
    assert_eq!(harness.registry.stamp(0), 6);
}
