//! The part of a driver's core that makes batches of the queued requests, and passes the replies on.

use crate::{
    driver::{
        core::{Command, Core},
        message::{InFlightBatch, PendingRequest, SentRequests},
    },
    env::BootTime,
    node::{Batch, BatchReply, Cause, NodeTime, Refusal, Reply, Request},
    sabotage::Sabotage,
    trust::{Marking, NodeEpoch},
    vote::{Answer, ReplyTo},
};
use std::sync::Arc;

/// The maximum number of requests in one batch.
const BATCH_MAX: u64 = 256;
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
        let mut missing = self.in_flight.last().map_or(0, |batch| batch.requests() as u64);
        let mut reaches = |pending: &PendingRequest| {
            missing = missing.saturating_sub(pending.count());
            missing == 0
        };
        self.in_flight.len() < IN_FLIGHT_MAX && self.queue.iter().any(&mut reaches)
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
        let fits = |requests: &[Request], next: &PendingRequest| {
            requests.is_empty() || requests.len() as u64 + next.count() <= BATCH_MAX
        };
        while self.queue.front().is_some_and(|next| fits(&requests, next))
            && let Some(pending) = self.queue.pop_front()
        {
            match (pending.requests.as_deref(), &objection) {
                (None, _) if requests.is_empty() => {
                    self.trust(now, pending.reply, commands);
                    return true;
                }
                (None, _) => {
                    self.queue.push_front(pending);
                    break;
                }
                (Some(asked), Some(why)) if asked.iter().any(Request::votes) => {
                    self.answer_all(&pending, None, Answer::Untrusted(why.clone()));
                }
                // The node might grant the lease, and then refuse its extensions.
                (Some(asked), _) if asked.iter().any(Request::begins_a_lease) && failed_test.is_some() => {
                    let why = failed_test.clone().unwrap_or_default();
                    self.answer_all(&pending, None, Answer::Reply(Reply::Refused(Refusal::Unable(why))));
                }
                (Some(asked), _) => {
                    requests.extend_from_slice(asked);
                    sent.push(SentRequests { count: asked.len(), pending: Some(pending) });
                }
            }
        }
        let count = requests.len();
        if count > 0
            && let Some(batch) = self.send(now, requests, commands)
        {
            batch.messages = sent;
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
            messages: Vec::new(),
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
        if batch.messages.is_empty() {
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
        if batch.requests() != reply.replies.len() {
            let cause = Cause::Protocol("the number of replies differs from the number of requests".into());
            for pending in batch.messages.into_iter().filter_map(|message| message.pending) {
                self.answer_all(&pending, sent, Answer::Failed(cause.clone()));
            }
            return;
        }
        for answer in &reply.replies {
            if let Some(marker) = answer.other_marker() {
                self.node_trust.marker_changed(now, reply.node_time, marker.clone());
            }
        }
        let mut replies = reply.replies.into_iter();
        for SentRequests { count, pending } in batch.messages {
            let own = replies.by_ref().take(count);
            match pending {
                Some(pending) => self.pass_on(now, batch.memory, &pending, sent, own),
                None => own.for_each(drop),
            }
        }
    }

    /// Passes the replies to the requests of one message on to the caller, equal ones in a row as one vote.
    fn pass_on(
        &mut self,
        now: BootTime,
        memory: NodeEpoch,
        pending: &PendingRequest,
        sent: Option<BootTime>,
        replies: impl Iterator<Item = Reply>,
    ) {
        let mut replies = replies.peekable();
        let mut ticket = pending.reply.as_ref().map_or(0, |reply| reply.ticket);
        let mut equal = 0;
        for request in pending.requests.as_deref().unwrap_or_default() {
            let Some(answer) = replies.next() else { return };
            self.node_trust.replied(now, request, &answer);
            equal += 1;
            if replies.peek() != Some(&answer) {
                self.answer_under(
                    memory,
                    pending.reply.as_ref(),
                    (ticket, equal),
                    sent,
                    Answer::Reply(answer),
                );
                (ticket, equal) = (ticket.wrapping_add(equal), 0);
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
