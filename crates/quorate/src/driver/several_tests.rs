//! Tests of messages with several requests. See the tests of the core for the harness.

use super::core_tests::{Harness, at, extend, release, reply, sent};
use crate::{
    driver::message::{DriverMessage, PendingRequest},
    node::{Refusal, Reply, Request},
    vote::{Answer, ReplyTo},
};

/// Enqueues a message with `count` extensions, whose tickets begin with `ticket`.
fn several(harness: &mut Harness, ticket: u64, count: usize, deadline: u64) {
    let requests: Vec<Request> = (0..count).map(|_| extend()).collect();
    harness.core.enqueue(DriverMessage::Request(PendingRequest {
        requests: Some(requests.into()),
        deadline: at(deadline),
        reply: Some(ReplyTo { sender: harness.sender.clone(), ticket }),
    }));
}

/// Returns the tickets of each vote, and whether it agrees.
fn votes(harness: &mut Harness) -> Vec<(u64, u64, bool)> {
    let agrees = |answer: &Answer| matches!(answer, Answer::Reply(Reply::Extended));
    std::iter::from_fn(|| harness.votes.try_recv())
        .map(|vote| (vote.ticket, vote.requests, agrees(&vote.answer)))
        .collect()
}

#[test]
fn a_message_with_several_requests_is_answered_by_a_vote_for_each_run_of_equal_replies() {
    let mut harness = Harness::trusted();
    several(&mut harness, 10, 3, 110);
    harness.pending(release(), 110, true);
    several(&mut harness, 20, 4, 110);
    let (in_flight, batch) = sent(harness.core.step(at(11))).remove(0);
    assert_eq!(batch.requests.len(), 8, "one batch has the requests of all messages");
    let lost = || Reply::Refused(Refusal::Stale);
    let mut replies = vec![Reply::Extended; 3];
    replies.push(Reply::Released(true));
    replies.extend([Reply::Extended, lost(), lost(), Reply::Extended]);
    harness.core.replied(at(12), in_flight, reply(12, replies));
    assert_eq!(
        votes(&mut harness),
        [(10, 3, true), (0, 1, false), (20, 1, true), (21, 2, false), (23, 1, true)]
    );
}

#[test]
fn every_request_of_a_message_is_answered_once_even_late_or_without_a_session() {
    let mut harness = Harness::trusted();
    several(&mut harness, 10, 3, 110);
    harness.pending(extend(), 300, true);
    let (in_flight, _) = sent(harness.core.step(at(11))).remove(0);
    harness.core.step(at(110));
    assert_eq!(votes(&mut harness), [(10, 3, false)], "the callers of one message have timed out");
    let replies = vec![Reply::Extended; 4];
    harness.core.replied(at(110), in_flight, reply(110, replies));
    assert_eq!(votes(&mut harness), [(0, 1, true)], "the replies before it are those of the other message");
    several(&mut harness, 30, 2, 400);
    harness.core.closed(at(301), crate::node::Cause::Closed);
    harness.core.step(at(301));
    assert_eq!(votes(&mut harness), [(30, 2, false)]);
}

#[test]
fn a_reply_that_does_not_fit_one_request_of_a_message_ends_the_session() {
    let mut harness = Harness::trusted();
    several(&mut harness, 10, 2, 110);
    let (in_flight, _) = sent(harness.core.step(at(11))).remove(0);
    harness.core.replied(at(12), in_flight, reply(12, vec![Reply::Extended, Reply::Released(true)]));
    assert!(!harness.core.is_up());
    assert_eq!(votes(&mut harness), [(10, 2, false)]);
}
