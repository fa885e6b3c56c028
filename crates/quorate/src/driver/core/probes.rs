//! How a driver's core comes to trust its node, and looks again where it does not.

use crate::{
    driver::core::{BatchContents, Command, Core, FLIGHTS_MAX, IDLE_PARTS, LOOK_EVERY, MEET_EVERY},
    env::BootTime,
    node::{Cause, NodeTime, Reply, Request},
    sabotage::Sabotage,
    trust::{Admission, ClockObservation, Marking},
    vote::{Answer, ReplyTo},
};
use std::sync::Arc;

impl Core {
    /// Looks whether the node's clock has kept step with ours.
    pub(crate) fn watch(&mut self, node_time: NodeTime, sent: BootTime, now: BootTime) {
        self.idle_since = now;
        let Some(steps) = &mut self.steps else { return };
        match steps.see(node_time, sent, now) {
            ClockObservation::Steady { from } => self.registry.set_steady(self.me, from, sent),
            ClockObservation::Jumped(_) if self.policy.config.sabotaged(Sabotage::JumpsUnseen) => {}
            ClockObservation::Jumped(step) => self.node_trust.jumped(step),
        }
    }

    pub(crate) fn judge_standing(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if !self.marker_in_flight()
            && let Some(marking) = self.node_trust.policy(now)
        {
            self.send_marker(now, marking, None, commands);
        }
        self.node_trust.tick(now);
    }

    /// What keeps a node from voting may be over without its saying so.
    pub(crate) fn look_again(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        let quarantined = self.node_trust.wake().is_some();
        let soon = quarantined || self.node_trust.is_contradicted();
        let every = if soon { LOOK_EVERY } else { MEET_EVERY };
        match self.look_at {
            _ if !self.node_trust.is_withheld() => {
                self.look_at = None;
                self.look_at_the_idle(now, commands);
            }
            None => self.look_at = Some(now + every),
            Some(at) if now < at => {}
            Some(_) if self.in_flight.len() >= FLIGHTS_MAX => {
                self.look_at = Some(now + self.policy.config.node_timeout);
            }
            Some(_) if quarantined => {
                self.look_at = Some(now + every);
                self.send_look(now, commands);
            }
            Some(_) => {
                commands.push(Command::Close);
                self.disconnect(now, Cause::Closed);
            }
        }
    }

    /// Changes nothing, and says so where another marker stands.
    pub(crate) fn send_look(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if let Some(marker) = self.node_trust.standing_marker() {
            let request = Request::Mark { expect: Some(Arc::clone(&marker)), marker };
            self.send(now, vec![request], BatchContents::Probe, commands);
        }
    }

    /// When to look at a node that nobody asks anything: who has not heard from it for long cannot tell whether
    /// its clock has jumped.
    pub(crate) fn idle_until(&self) -> Option<BootTime> {
        // While it waits for other nodes to be met, requests wait in its queue, and it is not idle.
        let judged = !self.node_trust.is_withheld() && !self.node_trust.is_unknown();
        let idles = self.steps.is_some() && self.in_flight.is_empty() && judged;
        idles.then(|| self.idle_since + self.policy.config.max_ttl / IDLE_PARTS)
    }

    pub(crate) fn look_at_the_idle(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if self.queue.is_empty() && self.idle_until().is_some_and(|at| now >= at) {
            self.idle_since = now;
            self.send_look(now, commands);
        }
    }

    pub(crate) fn send_marker(
        &mut self,
        now: BootTime,
        marking: Marking,
        admits: Option<ReplyTo>,
        commands: &mut Vec<Command>,
    ) {
        let expect = self.node_trust.standing_marker();
        let request = Request::Mark { expect, marker: marking.marker.to_text() };
        self.send(now, vec![request], BatchContents::Marker { marking, admits }, commands);
    }

    pub(crate) fn marker_in_flight(&self) -> bool {
        self.in_flight.iter().any(|in_flight| matches!(in_flight.contents, BatchContents::Marker { .. }))
    }

    /// Ends the quarantine in the marker, for all.
    pub(crate) fn admit(&mut self, now: BootTime, reply: Option<ReplyTo>, commands: &mut Vec<Command>) {
        match self.node_trust.admission(now) {
            Admission::Trusted => self.answer(reply, Some(now), Answer::Reply(Reply::Marked)),
            Admission::Write(marking) => self.send_marker(now, marking, reply, commands),
            Admission::Refused(why) => self.answer(reply, None, Answer::Untrusted(why)),
            Admission::Unknown => self.answer(reply, None, Answer::Failed(Cause::Closed)),
        }
    }
}
