//! The part of a driver's core that acts on the trust in its node. This part checks the node's clock, writes
//! markers, and probes a node that is idle or must not vote.

use crate::{
    driver::core::{
        Command, Core, PROBE_EVERY, PROBE_LATE_EVERY, RECONNECT_EVERY, TELL_AFTER, TEST_AT_LEAST_EVERY,
        TESTS, batches::IN_FLIGHT_MAX,
    },
    env::{BootTime, WallTime},
    node::{BatchReply, Cause, NodeTime, Reply, Request, StampStep},
    sabotage::Sabotage,
    trust::{Admission, ClockObservation, Marking},
    vote::{Answer, ReplyTo},
};
use std::{sync::Arc, time::Duration};

impl Core {
    /// Compares the node's clock with the boot clock.
    pub(crate) fn check_clock(&mut self, node_time: NodeTime, sent: BootTime, now: BootTime) {
        let Some(steps) = &mut self.steps else { return };
        match steps.observe(node_time, sent, now) {
            ClockObservation::Steady { from } => self.registry.set_steady(self.me, from, sent),
            ClockObservation::Stepped(_) if self.policy.config.sabotaged(Sabotage::ClockStepsIgnored) => {}
            ClockObservation::Stepped(step) => self.node_trust.clock_stepped(step),
        }
    }

    /// Compares the node's clock, as it was measured last, with this worker's wall clock, which shows `wall`.
    pub(crate) fn compare_clocks(&mut self, now: BootTime, wall: WallTime) {
        if let Some(measure) = self.offset {
            self.node_trust.clock_measured(now, wall, measure);
        }
    }

    /// Decides whether the node may vote, and writes a marker if the node needs one first.
    pub(crate) fn evaluate_trust(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if !self.marker_in_flight()
            && let Some(marking) = self.node_trust.evaluate(now)
        {
            self.write_marker(now, marking, None, commands);
        }
        self.node_trust.end_quarantine(now);
    }

    /// Probes a node that must not vote or refuses what leases need, since it does not report when the reason has ended.
    /// Also tests a node that votes from time to time: see [`Core::test_due`].
    pub(crate) fn probe(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        let is_tested = self.node_trust.wake().is_some() || self.is_unable();
        let soon = is_tested || self.node_trust.may_change_soon();
        let every = if soon { PROBE_EVERY } else { RECONNECT_EVERY };
        let votes = !self.node_trust.is_withheld() && !self.is_unable();
        if !votes {
            self.late_probe = None;
        }
        match self.probe_at {
            _ if votes => {
                self.probe_at = None;
                self.stamp(now, commands);
                self.test(now, commands);
                self.probe_if_late(now, commands);
            }
            None => self.probe_at = Some(now + every),
            Some(at) if now < at => {}
            Some(_) if self.in_flight.len() >= IN_FLIGHT_MAX => {
                self.probe_at = Some(now + self.policy.config.node_timeout);
            }
            Some(_) if is_tested => {
                self.probe_at = Some(now + every);
                self.send_probe(now, commands);
            }
            // For the other reasons, only a new handshake shows whether an operator has fixed the node.
            Some(_) => {
                commands.push(Command::Close);
                self.disconnect(now, Cause::Closed);
            }
        }
    }

    /// Sends a request that replaces the node's marker by the same marker, which changes nothing. If the node
    /// stores another marker by now, it refuses the request, and its reply contains the other marker.
    fn send_probe(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        self.tested_at = now;
        if let Some(request) = self.probe_request() {
            self.send(now, vec![request], commands);
        }
    }

    pub(super) fn probe_request(&self) -> Option<Request> {
        let marker = self.node_trust.stored_marker()?;
        Some(Request::Mark { expect: Some(Arc::clone(&marker)), marker })
    }

    /// Returns whether the node could vote, and refuses what leases need.
    fn is_unable(&self) -> bool {
        !self.node_trust.is_withheld() && !self.node_trust.is_unknown() && self.node_trust.is_unable()
    }

    /// Returns the time of the next test of a node that votes, if one can be sent. Without replies for a long time, the
    /// driver would not notice a step of the node's clock. And a node that has no memory left, or whose user lost a
    /// right, may serve the extensions of a lease, though no other worker could acquire the lease afterwards. So a
    /// node is tested while it is busy, too.
    pub(crate) fn test_due(&self) -> Option<BootTime> {
        // While the trust in the node is not decided, requests wait in the driver's queue.
        // A node that refuses what leases need is probed more often anyway.
        let evaluated = !self.node_trust.is_withheld() && !self.node_trust.is_unknown() && !self.is_unable();
        let has_room = self.in_flight.len() < IN_FLIGHT_MAX && !self.marker_in_flight();
        let may_send = self.steps.is_some() && evaluated && has_room;
        may_send.then(|| self.tested_at + self.test_time())
    }

    fn test_time(&self) -> Duration {
        (self.policy.config.max_ttl / TESTS).min(TEST_AT_LEAST_EVERY)
    }

    fn test(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if self.test_due().is_some_and(|at| now >= at) {
            self.send_probe(now, commands);
        }
    }

    /// Probes a node that answered late. Such a node is asked last, so the acquires do not show whether it is
    /// prompt again. The probes show it.
    fn probe_if_late(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if self.node_trust.is_unknown() || !self.registry.latencies().is_late(self.me) {
            self.late_probe = None;
            return;
        }
        let (first, most) = PROBE_LATE_EVERY;
        let (mut at, mut every) = *self.late_probe.get_or_insert((now + first, first));
        if self.registry.latencies().is_recovering(self.me) {
            (at, every) = (at.min(now + first), first);
            self.late_probe = Some((at, every));
        }
        if now >= at {
            self.late_probe = Some((now + every, (every * 2).min(most)));
            // While requests are in flight, their replies measure the latency, and no probe is needed.
            if self.in_flight.is_empty() {
                self.send_probe(now, commands);
            }
        }
    }

    /// Returns the time of the next request about stamps, if one can be sent.
    pub(crate) fn stamp_due(&self) -> Option<BootTime> {
        // A node that refuses what leases need is probed, and would refuse the stamp too.
        let may_store = self.node_trust.stores_stamps() && !self.is_unable();
        let may_send = may_store && self.in_flight.len() < IN_FLIGHT_MAX;
        may_send.then_some(self.next_stamp.0)
    }

    /// Increases the node's stamp a few times in a `max_ttl`, and soon after reports to the node the stamps of the others.
    fn stamp(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if self.stamp_due().is_none_or(|at| now < at) {
            return;
        }
        let (_, step) = self.next_stamp;
        self.next_stamp = match step {
            StampStep::Advance => (now + TELL_AFTER, StampStep::Tell),
            _ => (now + self.test_time(), StampStep::Advance),
        };
        self.tested_at = now;
        let request = self.stamp_request(step);
        if let Some(batch) = self.send(now, vec![request.clone()], commands) {
            batch.stamping = Some(request);
        }
    }

    fn stamp_request(&self, step: StampStep) -> Request {
        let (own, known) = (self.registry.name(self.me), self.registry.known_stamps());
        Request::Stamp { own, known, step }
    }

    /// Handles the reply to a request about stamps.
    pub(crate) fn on_stamps(&mut self, now: BootTime, request: &Request, reply: &BatchReply) {
        if let (Request::Stamp { own, known, step }, Some(Reply::Stamps(counts))) =
            (request, reply.replies.last())
        {
            let seen = known.iter().find(|(name, _)| name == own).map_or(0, |(_, count)| *count);
            let least = if *step == StampStep::Tell { seen } else { seen + 1 };
            let stamps = known.iter().zip(counts).map(|((name, _), count)| (Arc::clone(name), *count));
            self.node_trust.stamps_read(now, reply.node_time, &stamps.collect(), least);
        }
    }

    fn write_marker(
        &mut self,
        now: BootTime,
        marking: Marking,
        trust_reply: Option<ReplyTo>,
        commands: &mut Vec<Command>,
    ) {
        let expect = self.node_trust.stored_marker();
        let marker = marking.marker.to_text();
        let mut requests = vec![Request::Mark { expect, marker: Arc::clone(&marker) }];
        // A node that begins a new memory continues above every stamp that was seen of its earlier ones. Otherwise its
        // next restart would look like a loss. The node increases its stamp only under the new marker.
        let begins = self.policy.config.durable && marking.begins_memory();
        let stamping = begins.then(|| self.stamp_request(StampStep::Raise));
        requests.extend(stamping.clone());
        if let Some(batch) = self.send_under(now, marker, requests, commands) {
            (batch.marking, batch.stamping, batch.trust_reply) = (Some(marking), stamping, trust_reply);
        }
    }

    pub(crate) fn marker_in_flight(&self) -> bool {
        self.in_flight.iter().any(|batch| batch.marking.is_some())
    }

    /// Ends the node's quarantine for every worker, by changing its marker.
    pub(crate) fn trust(&mut self, now: BootTime, reply: Option<ReplyTo>, commands: &mut Vec<Command>) {
        match self.node_trust.admission(now) {
            Admission::Trusted => self.answer(reply, Some(now), Answer::Reply(Reply::Marked)),
            Admission::Write(marking) => self.write_marker(now, marking, reply, commands),
            Admission::Refused(why) => self.answer(reply, None, Answer::Untrusted(why)),
            Admission::Unknown => self.answer(reply, None, Answer::Failed(Cause::Closed)),
        }
    }
}
