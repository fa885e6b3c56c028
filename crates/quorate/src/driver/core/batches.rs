//! The part of a driver's core that makes batches of the queued requests, and passes the replies on.

use crate::{
    driver::{
        core::{Command, Core},
        message::InFlightBatch,
    },
    env::BootTime,
    node::{Batch, BatchReply, Cause, NodeTime, Refusal, Reply, Request},
    sabotage::Sabotage,
    trust::Marking,
    vote::{Answer, ReplyTo},
};
use std::sync::Arc;

/// The maximum number of requests in one batch.
const BATCH_MAX: usize = 256;
/// The maximum number of batches in flight. The number is small for two reasons: requests that arrive
/// meanwhile gather into one batch, and a dead connection loses few bytes.
pub(super) const IN_FLIGHT_MAX: usize = 2;

impl Core {
    /// Returns whether more requests are likely to arrive at once, so that the task should let the other
    /// tasks run before it sends the next batch. More requests are likely under load, when the last batch had
    /// several requests. One large batch costs a node much less than two small ones.
    pub(crate) fn gathers(&self) -> bool {
        self.is_up() && self.last_batch > 1 && self.has_batch()
    }

    /// Returns whether queued requests may be sent now. A second batch is sent only if it is as large as the
    /// batch in flight. A smaller batch grows until the reply arrives.
    fn has_batch(&self) -> bool {
        let in_flight = self.in_flight.last().map_or(0, |batch| batch.requests.len());
        self.in_flight.len() < IN_FLIGHT_MAX && !self.queue.is_empty() && self.queue.len() >= in_flight
    }

    /// Sends one batch if there is one to send. Returns whether another call may send more.
    pub(super) fn send_batch(&mut self, now: BootTime, commands: &mut Vec<Command>) -> bool {
        if !self.has_batch() || self.node_trust.is_unknown() || self.marker_in_flight() {
            return false; // Requests keep their order: an acquire must reach the node before its release.
        }
        if self.policy.config.sabotaged(Sabotage::ReleasesFirst) {
            self.queue.make_contiguous().sort_by_key(|pending| !pending.is_release());
        }
        let objection = self.node_trust.objection(now);
        let failed_test = self.node_trust.failed_test();
        let mut requests = Vec::new();
        let mut sent = Vec::new();
        while requests.len() < BATCH_MAX
            && let Some(pending) = self.queue.pop_front()
        {
            match (&pending.request, &objection) {
                (None, _) if requests.is_empty() => {
                    self.trust(now, pending.reply, commands);
                    return true;
                }
                (None, _) => {
                    self.queue.push_front(pending);
                    break;
                }
                (Some(request), Some(why)) if request.votes() => {
                    let why = why.clone();
                    self.answer(pending.reply, None, Answer::Untrusted(why));
                }
                // The node might grant the lease, and then refuse its extensions.
                (Some(request), _) if request.begins_a_lease() && failed_test.is_some() => {
                    let why = failed_test.clone().unwrap_or_default();
                    self.answer(pending.reply, None, Answer::Reply(Reply::Refused(Refusal::Unable(why))));
                }
                (Some(request), _) => {
                    requests.push(Request::clone(request));
                    sent.push(Some(pending));
                }
            }
        }
        let count = requests.len();
        if count > 0
            && let Some(batch) = self.send(now, requests, commands)
        {
            batch.requests = sent;
            batch.due = batch.next_deadline();
            self.last_batch = count;
        }
        true
    }

    /// Sends a batch. Returns its entry in `in_flight`, so that the calling function can add the pending
    /// requests. Returns `None` without a session.
    pub(super) fn send(
        &mut self,
        now: BootTime,
        requests: Vec<Request>,
        commands: &mut Vec<Command>,
    ) -> Option<&mut InFlightBatch> {
        let stamp = self.node_trust.stored_marker().unwrap_or_default();
        self.send_under(now, stamp, requests, commands)
    }

    /// Sends a batch like [`Core::send`], whose votes need the marker `stamp`.
    pub(super) fn send_under(
        &mut self,
        now: BootTime,
        stamp: Arc<str>,
        requests: Vec<Request>,
        commands: &mut Vec<Command>,
    ) -> Option<&mut InFlightBatch> {
        let not_after = self.offset?.node_time_at_least(now + self.policy.config.node_timeout);
        if requests.iter().any(Request::sets_a_key) {
            self.fence = now + self.policy.config.fence();
        }
        let mut batch = Batch { requests, not_after, stamp };
        if self.policy.config.sabotaged(Sabotage::NoNotAfter) {
            batch.not_after = NodeTime::from_micros(u64::MAX);
        }
        let id = self.next_batch;
        self.next_batch += 1;
        commands.push(Command::Send { in_flight: id, batch });
        let deadline = now + self.policy.config.node_timeout;
        self.in_flight.push(InFlightBatch {
            id,
            sent: now,
            memory: self.registry.node_epoch(self.me),
            deadline,
            due: deadline,
            requests: Vec::new(),
            marking: None,
            stamping: None,
            trust_reply: None,
        });
        self.in_flight.last_mut()
    }

    pub(super) fn on_reply(&mut self, now: BootTime, batch: InFlightBatch, reply: BatchReply) {
        let from_receipt = self.policy.config.sabotaged(Sabotage::ValidityFromReceipt);
        let sent = Some(if from_receipt { now } else { batch.sent });
        if let Some(stamping) = &batch.stamping {
            self.on_stamps(now, stamping, &reply);
        }
        if let Some(marking) = batch.marking {
            return self.on_marker_reply(now, (marking, batch.trust_reply), sent, reply);
        }
        if batch.requests.is_empty() {
            // The batch was a probe. It has no caller.
            let Some(answer) = reply.replies.into_iter().next() else { return };
            if let Some(probe) = self.probe_request() {
                self.node_trust.replied(now, &probe, &answer);
            }
            if let Reply::Refused(Refusal::Marker(marker)) = answer {
                self.node_trust.marker_changed(now, reply.node_time, marker);
            }
            return;
        }
        if batch.requests.len() != reply.replies.len() {
            let cause = Cause::Protocol("the number of replies differs from the number of requests".into());
            for pending in batch.requests.into_iter().flatten() {
                self.answer(pending.reply, sent, Answer::Failed(cause.clone()));
            }
            return;
        }
        for (pending, answer) in batch.requests.into_iter().zip(reply.replies) {
            if let Some(marker) = answer.other_marker() {
                self.node_trust.marker_changed(now, reply.node_time, marker.clone());
            }
            if let Some(pending) = pending {
                if let Some(request) = &pending.request {
                    self.node_trust.replied(now, request, &answer);
                }
                self.answer_under(batch.memory, pending.reply, sent, Answer::Reply(answer));
            }
        }
    }

    fn on_marker_reply(
        &mut self,
        now: BootTime,
        (marking, trust_reply): (Marking, Option<ReplyTo>),
        sent: Option<BootTime>,
        reply: BatchReply,
    ) {
        match reply.replies.into_iter().next() {
            Some(Reply::Marked) => {
                self.node_trust.marker_written(now, marking);
                self.answer(trust_reply, sent, Answer::Reply(Reply::Marked));
            }
            Some(Reply::Refused(Refusal::Marker(marker))) => {
                self.node_trust.marker_changed(now, reply.node_time, marker);
                self.answer(trust_reply, sent, Answer::Failed(Cause::Closed));
            }
            // The write reached the node too late, or the node failed. After a new handshake the driver tries
            // again.
            other => {
                let cause = match other {
                    Some(Reply::Refused(Refusal::Stale)) => Cause::TimedOut,
                    Some(Reply::Refused(why)) => {
                        Cause::Protocol(format!("the marker could not be written: {why}").into())
                    }
                    _ => Cause::Protocol("the reply to a marker write does not fit it".into()),
                };
                self.answer(trust_reply, sent, Answer::Failed(cause.clone()));
                self.fail_connection(now, cause);
            }
        }
    }
}
