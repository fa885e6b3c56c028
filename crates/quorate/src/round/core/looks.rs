//! How a driver's core comes to trust its node, and looks again where it does not.

use super::{
    super::{
        Answer, ReplyTo, Sabotage,
        standing::{Admission, Marking},
        steps::Gait,
    },
    Cargo, Command, Core, FLIGHTS_MAX, IDLE_PARTS, LOOK_EVERY, MEET_EVERY,
};
use crate::{
    env::BootTime,
    node::{Cause, NodeTime, Reply, Request},
};
use std::sync::Arc;

impl Core {
    /// Looks whether the node's clock has kept step with ours.
    pub(super) fn watch(&mut self, node_time: NodeTime, sent: BootTime, now: BootTime) {
        self.idle_since = now;
        let Some(steps) = &mut self.steps else { return };
        match steps.see(node_time, sent, now) {
            Gait::Steady { from } => self.board.set_steady(self.me, from, sent),
            Gait::Jumped(_) if self.judge.setup.sabotaged(Sabotage::JumpsUnseen) => {}
            Gait::Jumped(jump) => self.standing.jumped(jump),
        }
    }

    pub(super) fn judge_standing(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if !self.marker_in_flight()
            && let Some(marking) = self.standing.judge(now)
        {
            self.send_marker(now, marking, None, commands);
        }
        self.standing.tick(now);
    }

    /// What keeps a node from voting may be over without its saying so.
    pub(super) fn look_again(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        let quarantined = self.standing.wake().is_some();
        let soon = quarantined || self.standing.is_contradicted();
        let every = if soon { LOOK_EVERY } else { MEET_EVERY };
        match self.look_at {
            _ if !self.standing.is_withheld() => {
                self.look_at = None;
                self.look_at_the_idle(now, commands);
            }
            None => self.look_at = Some(now + every),
            Some(at) if now < at => {}
            Some(_) if self.flights.len() >= FLIGHTS_MAX => {
                self.look_at = Some(now + self.judge.setup.node_timeout);
            }
            Some(_) if quarantined => {
                self.look_at = Some(now + every);
                self.send_look(now, commands);
            }
            Some(_) => {
                commands.push(Command::Close);
                self.part(now, Cause::Closed);
            }
        }
    }

    /// Changes nothing, and says so where another marker stands.
    pub(super) fn send_look(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if let Some(marker) = self.standing.standing_marker() {
            let request = Request::Mark { expect: Some(Arc::clone(&marker)), marker };
            self.send(now, vec![request], Cargo::Look, commands);
        }
    }

    /// When to look at a node that nobody asks anything: who has not heard from it for long cannot tell whether
    /// its clock has jumped.
    pub(super) fn idle_until(&self) -> Option<BootTime> {
        // While it waits for other nodes to be met, requests wait in its queue, and it is not idle.
        let judged = !self.standing.is_withheld() && !self.standing.is_unknown();
        let idles = self.steps.is_some() && self.flights.is_empty() && judged;
        idles.then(|| self.idle_since + self.judge.setup.max_ttl / IDLE_PARTS)
    }

    pub(super) fn look_at_the_idle(&mut self, now: BootTime, commands: &mut Vec<Command>) {
        if self.queue.is_empty() && self.idle_until().is_some_and(|at| now >= at) {
            self.idle_since = now;
            self.send_look(now, commands);
        }
    }

    pub(super) fn send_marker(
        &mut self,
        now: BootTime,
        marking: Marking,
        admits: Option<ReplyTo>,
        commands: &mut Vec<Command>,
    ) {
        let expect = self.standing.standing_marker();
        let request = Request::Mark { expect, marker: marking.marker.to_text() };
        self.send(now, vec![request], Cargo::Marker { marking, admits }, commands);
    }

    pub(super) fn marker_in_flight(&self) -> bool {
        self.flights.iter().any(|flight| matches!(flight.cargo, Cargo::Marker { .. }))
    }

    /// Ends the quarantine in the marker, for all.
    pub(super) fn admit(&mut self, now: BootTime, reply: Option<ReplyTo>, commands: &mut Vec<Command>) {
        match self.standing.admission(now) {
            Admission::Trusted => self.answer(reply, Some(now), Answer::Reply(Reply::Marked)),
            Admission::Write(marking) => self.send_marker(now, marking, reply, commands),
            Admission::Refused(why) => self.answer(reply, None, Answer::Untrusted(why)),
            Admission::Unknown => self.answer(reply, None, Answer::Failed(Cause::Closed)),
        }
    }
}
