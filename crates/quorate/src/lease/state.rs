//! The renewer's decisions about one lease, as a pure function of the votes and the current time.

use crate::{
    config::{QuorumConfig, majority},
    env::BootTime,
    lease::{StepDownCause, event::LeaseEvent, params::LeaseParams},
    node::{FencingToken, Owner, Reply, Resource},
    vote::{Answer, NodeOutcome, Vote, quorum_th},
};
use std::time::Duration;

/// The number of steps into which a third of the TTL is divided. Renewal times are rounded to these steps.
const TICKS: u32 = 128;

/// The state of one held lease, on which the renewer's decisions depend.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) params: LeaseParams,
    slots: Box<[Slot]>,
    /// The start of the current or the last round of extensions; `None` before the first.
    round: Option<BootTime>,
    renew_at: BootTime,
    validity: Duration,
    retry_every: Duration,
    stage: LeaseEvent,
    /// The latest end of validity, by `max_hold`; `None` if there is no such limit.
    hold_until: Option<BootTime>,
    /// True after a failed health check, until the next check succeeds.
    ailing: bool,
    /// True if a caller requested the next round of extensions. The round then runs even if the lease does
    /// not need it.
    asked_for: bool,
}

#[derive(Debug)]
struct Slot {
    /// The time at which the latest request that this node granted was sent, and the node's memory epoch at that
    /// grant.
    granted: Option<(BootTime, u64)>,
    asked: bool,
    retry_at: Option<BootTime>,
    said: NodeReply,
}

/// The last reply of a node. It is nearly always one of the first two variants, which need no allocation.
#[derive(Debug)]
enum NodeReply {
    Nothing,
    Granted,
    Otherwise(Box<NodeOutcome>),
}

impl LeaseState {
    pub(crate) fn new(
        resource: Resource,
        owner: Owner,
        token: FencingToken,
        params: LeaseParams,
        config: &QuorumConfig,
        nodes: usize,
        now: BootTime,
    ) -> Self {
        let slot = || Slot { granted: None, asked: false, retry_at: None, said: NodeReply::Nothing };
        let renew_at = next_renewal(now, &params);
        Self {
            resource,
            owner,
            token,
            params,
            slots: (0..nodes).map(|_| slot()).collect(),
            round: None,
            renew_at,
            validity: config.validity(params.ttl),
            retry_every: (params.ttl / 20)
                .clamp(Duration::from_millis(10), config.node_timeout.max(params.ttl / 10)),
            stage: LeaseEvent::Held,
            hold_until: None,
            ailing: false,
            asked_for: false,
        }
    }

    /// Limits validity: it ends at `until` at the latest, even if the nodes extend the lease further.
    pub(crate) fn limit(&mut self, until: Option<BootTime>) {
        self.hold_until = until;
    }

    /// Returns whether an extension is due now. If so, the renewer first checks the worker's health.
    pub(crate) fn wants_to_extend(&self, now: BootTime) -> bool {
        self.stage < LeaseEvent::StepDown && self.asks_at() <= now
    }

    /// Records the result of a health check. After a failed check, no extension is sent before the next
    /// check.
    pub(crate) fn heed(&mut self, now: BootTime, healthy: bool) {
        self.ailing = !healthy;
        if !healthy {
            self.renew_at = now + self.retry_every;
            self.slots.iter_mut().for_each(|slot| slot.retry_at = None);
        }
    }

    /// Returns the reason why the work is asked to stop.
    pub(crate) fn cause(&self, now: BootTime) -> StepDownCause {
        match self.hold_until {
            Some(end) if now + self.params.grace >= end => StepDownCause::MaxHold,
            _ if self.ailing => StepDownCause::Unhealthy,
            _ => StepDownCause::NotExtended,
        }
    }

    /// Records that a node granted a request that was sent at `sent`. Within one memory epoch of the node, an earlier
    /// time never replaces a later one.
    pub(crate) fn granted(&mut self, node: usize, sent: BootTime, epoch: u64) {
        let slot = &mut self.slots[node];
        slot.said = NodeReply::Granted;
        slot.retry_at = None;
        if slot.granted.is_none_or(|(before, memory)| memory != epoch || before < sent) {
            slot.granted = Some((sent, epoch));
        }
    }

    /// Counts a vote on an extension.
    pub(crate) fn count(&mut self, now: BootTime, vote: &Vote) {
        let slot = &mut self.slots[vote.node];
        slot.asked = false;
        match (&vote.answer, vote.sent) {
            (Answer::Reply(Reply::Extended), Some(sent)) => {
                self.granted(vote.node, sent, vote.memory.epoch);
                // A vote on a request of an earlier round shows that the node has not been asked in the
                // current round. Ask it now.
                let behind = self.round.is_some_and(|began| sent < began);
                self.slots[vote.node].retry_at = behind.then_some(now);
            }
            (answer, _) => {
                slot.said = NodeReply::Otherwise(Box::new(NodeOutcome::of(answer)));
                // Ask a node that may not vote only in the next round.
                let again = !matches!(answer, Answer::Untrusted(_));
                slot.retry_at = again.then_some(now + self.retry_every);
            }
        }
    }

    /// Discards the answer of a node that may have lost its memory since. The node is asked again later.
    pub(crate) fn discount(&mut self, now: BootTime, node: usize) {
        let slot = &mut self.slots[node];
        slot.asked = false;
        slot.retry_at = Some(now + self.retry_every);
    }

    /// Removes the grants of nodes that may have lost their memory. If any is removed, and the lease is
    /// extended automatically, a round of extensions is due at once.
    pub(crate) fn forget_unless(&mut self, now: BootTime, remembers: impl Fn(usize, u64) -> bool) {
        for (node, slot) in self.slots.iter_mut().enumerate() {
            if slot.granted.is_some_and(|(_, epoch)| !remembers(node, epoch)) {
                slot.granted = None;
                if self.params.extended {
                    self.renew_at = now;
                }
            }
        }
    }

    /// Makes a round of extensions due now, even if the lease does not need it.
    pub(crate) fn renew_now(&mut self, now: BootTime) {
        self.renew_at = now;
        self.asked_for = true;
    }

    /// Returns the nodes to ask now, and marks them as asked. There are none after the step-down: once the work has
    /// been asked to stop, the lease is not extended.
    pub(crate) fn due(&mut self, now: BootTime) -> Vec<usize> {
        let until = self.valid_until().unwrap_or_default();
        if self.stage >= LeaseEvent::StepDown || now + self.params.grace >= until {
            return Vec::new();
        }
        if self.covered() && !self.asked_for {
            // The grants already last until `hold_until`. A further extension would only make keys outlive that time.
            self.renew_at = BootTime::from_nanos(u64::MAX);
        }
        let whole_round = now >= self.renew_at;
        if whole_round {
            self.asked_for = false;
            self.round = Some(now);
            self.renew_at = next_renewal(now, &self.params);
        }
        let settled = self.settled();
        let ask = |slot: &Slot| {
            !slot.asked && (whole_round || (!settled && slot.retry_at.is_some_and(|retry| now >= retry)))
        };
        let due: Vec<usize> = (0..self.slots.len()).filter(|&node| ask(&self.slots[node])).collect();
        for &node in &due {
            self.slots[node].asked = true;
            self.slots[node].retry_at = None;
        }
        due
    }

    /// Returns the time until which the lease is valid by the grants so far.
    pub(crate) fn valid_until(&self) -> Option<BootTime> {
        let until = self.extended_until()?;
        Some(self.hold_until.map_or(until, |end| end.min(until)))
    }

    /// Returns the time until which the lease would be valid if `hold_until` did not limit it.
    fn extended_until(&self) -> Option<BootTime> {
        let sent = self.slots.iter().filter_map(|slot| slot.granted).map(|(sent, _)| sent);
        quorum_th(sent, self.majority()).map(|sent| sent + self.validity)
    }

    /// Advances to the stage that applies at `now`, and returns the events of this change. `Held` and
    /// `AtRisk` may alternate; `StepDown` follows, and `Lost` is last.
    pub(crate) fn advance(&mut self, now: BootTime) -> Vec<LeaseEvent> {
        let until = self.valid_until().unwrap_or_default();
        let next = if now >= until {
            LeaseEvent::Lost
        } else if self.stage >= LeaseEvent::StepDown || now + self.params.grace >= until {
            self.stage.max(LeaseEvent::StepDown)
        } else if self.ailing || (self.round_failed() && !self.covered()) {
            LeaseEvent::AtRisk
        } else if self.round_won() || self.round.is_none() {
            LeaseEvent::Held
        } else {
            self.stage
        };
        if next == self.stage {
            return Vec::new();
        }
        let skips_step_down = next == LeaseEvent::Lost && self.stage < LeaseEvent::StepDown;
        self.stage = next;
        if skips_step_down { vec![LeaseEvent::StepDown, next] } else { vec![next] }
    }

    /// Ends the lease, for any reason, and returns the events that have not been reported yet.
    pub(crate) fn finish(&mut self) -> Vec<LeaseEvent> {
        let told = std::mem::replace(&mut self.stage, LeaseEvent::Lost);
        [LeaseEvent::StepDown, LeaseEvent::Lost].into_iter().filter(|event| *event > told).collect()
    }

    /// Returns the time of the next decision, if no vote arrives earlier.
    pub(crate) fn wake(&self) -> BootTime {
        let until = self.valid_until().unwrap_or_default();
        if self.stage >= LeaseEvent::StepDown {
            return until;
        }
        self.asks_at().min(until - self.params.grace)
    }

    /// Returns the time at which nodes are asked again. After the step-down the value has no meaning.
    pub(crate) fn asks_at(&self) -> BootTime {
        let retries = self.slots.iter().filter(|slot| !slot.asked).filter_map(|slot| slot.retry_at);
        let retry = if self.settled() { None } else { retries.min() };
        retry.map_or(self.renew_at, |retry| retry.min(self.renew_at))
    }

    /// Returns the last stage that was reported.
    pub(crate) fn stage(&self) -> LeaseEvent {
        self.stage
    }

    /// Returns whether a majority has granted a request that was sent at `began` or later; `None` while
    /// pending votes may still complete a majority.
    pub(crate) fn round_since(&self, began: BootTime) -> Option<bool> {
        let extended = self.slots.iter().filter(|s| s.granted.is_some_and(|(sent, _)| sent >= began)).count();
        let pending = self.slots.iter().filter(|slot| slot.asked).count();
        if extended >= self.majority() {
            Some(true)
        } else if extended + pending < self.majority() {
            Some(false)
        } else {
            None
        }
    }

    /// Returns the last reply of each node.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = NodeOutcome> {
        self.slots.iter().map(|slot| match &slot.said {
            NodeReply::Nothing => NodeOutcome::Pending,
            NodeReply::Granted => NodeOutcome::Granted,
            NodeReply::Otherwise(what) => (**what).clone(),
        })
    }

    /// Returns whether the lease needs no further answers before the next round.
    fn settled(&self) -> bool {
        self.round_won() || self.covered()
    }

    /// Returns whether the grants so far already last until `hold_until`.
    fn covered(&self) -> bool {
        self.hold_until.is_some_and(|end| self.extended_until().is_some_and(|until| until >= end))
    }

    fn round_won(&self) -> bool {
        self.round.is_some_and(|began| self.round_since(began) == Some(true))
    }

    fn round_failed(&self) -> bool {
        self.round.is_some_and(|began| self.round_since(began) == Some(false))
    }

    fn majority(&self) -> usize {
        majority(self.slots.len())
    }
}

/// Returns the time of the next renewal: a third of the TTL from now, rounded down to one of `TICKS` steps.
/// So leases that are due at about the same time renew together, but a node does not get all renewals at
/// once. A lease that is not extended automatically has no next renewal.
fn next_renewal(now: BootTime, params: &LeaseParams) -> BootTime {
    if !params.extended {
        return BootTime::from_nanos(u64::MAX);
    }
    let third = params.ttl / 3;
    let tick = u64::try_from((third / TICKS).as_nanos()).unwrap_or(u64::MAX).max(1);
    let at = (now + third).as_nanos();
    BootTime::from_nanos(at - at % tick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lease::mode::Mode, node::Cause, trust::NodeEpoch};

    const fn at(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    /// Returns a lease with a TTL of 10 s, valid for 9,698 ms, that nodes 0 to 2 of 5 granted at 1,000 ms.
    fn held() -> LeaseState {
        let second = Duration::from_secs(1);
        let params = LeaseParams {
            ttl: 10 * second,
            grace: 2 * second,
            min_validity: second,
            keep: 100 * second,
            not_after: None,
            extended: true,
            mode: Mode::Exclusive,
        };
        let resource = Resource::lock("x").unwrap();
        let mut held = LeaseState::new(
            resource,
            Owner::from_node("me"),
            FencingToken::new(7),
            params,
            &QuorumConfig::default(),
            5,
            at(1000),
        );
        (0..3).for_each(|node| held.granted(node, at(1000), 0));
        held
    }

    fn vote(node: usize, sent: u64, answer: Answer) -> Vote {
        Vote { node, ticket: 0, sent: Some(at(sent)), memory: NodeEpoch::default(), answer }
    }

    fn extended(node: usize, sent: u64) -> Vote {
        vote(node, sent, Answer::Reply(Reply::Extended))
    }

    fn late(node: usize, sent: u64) -> Vote {
        vote(node, sent, Answer::Failed(Cause::TimedOut))
    }

    #[test]
    fn renewed_every_third_of_the_ttl_on_all_nodes() {
        let mut held = held();
        assert_eq!(held.valid_until(), Some(at(1000 + 9698)));
        let (third, tick) = (Duration::from_secs(10) / 3, Duration::from_secs(10) / 3 / TICKS);
        assert!(held.wake() <= at(1000) + third && held.wake() + tick > at(1000) + third);
        assert!(held.due(at(4000)).is_empty());
        assert_eq!(held.due(at(4400)), [0, 1, 2, 3, 4]);
        (2..5).for_each(|node| held.count(at(4401), &extended(node, 4400)));
        assert_eq!(held.valid_until(), Some(at(4400 + 9698)));
        assert!(held.advance(at(4401)).is_empty(), "still held");
    }

    #[test]
    fn an_extension_never_lowers_a_node_s_deadline() {
        let mut held = held();
        held.count(at(5000), &extended(0, 500));
        assert_eq!(held.valid_until(), Some(at(1000 + 9698)));
    }

    #[test]
    fn failures_are_retried_until_the_step_down_and_the_events_keep_their_order() {
        let mut held = held();
        let mut events = Vec::new();
        let mut asked = 0;
        let mut now = at(1000);
        while held.stage() != LeaseEvent::Lost {
            now = held.wake().max(now);
            let sent = now.as_nanos() / 1_000_000;
            for node in held.due(now) {
                asked += 1;
                held.count(now, &late(node, sent));
            }
            events.extend(held.advance(now));
            assert!(asked < 1000);
        }
        assert_eq!(events, [LeaseEvent::AtRisk, LeaseEvent::StepDown, LeaseEvent::Lost]);
        assert_eq!(now, at(1000 + 9698), "lost exactly at the end of validity");
        assert!(asked > 30, "asked only {asked} times");
    }

    #[test]
    fn recovery_from_at_risk_is_told() {
        let mut held = held();
        held.due(at(4400)).into_iter().for_each(|node| held.count(at(4500), &late(node, 4400)));
        assert_eq!(held.advance(at(4500)), [LeaseEvent::AtRisk]);
        assert_eq!(held.due(at(5000)), [0, 1, 2, 3, 4]);
        (0..3).for_each(|node| held.count(at(5001), &extended(node, 5000)));
        assert_eq!(held.advance(at(5001)), [LeaseEvent::Held]);
    }

    #[test]
    fn a_node_that_forgot_stops_counting_at_once() {
        let mut held = held();
        held.forget_unless(at(2000), |node, _| node != 1);
        assert_eq!(held.valid_until(), None);
        assert_eq!(held.advance(at(2000)), [LeaseEvent::StepDown, LeaseEvent::Lost]);
        assert!(held.due(at(2000)).is_empty());
    }

    /// Regression test: an answer that did not count was once discarded without a retry, and its node was
    /// never asked again. So a lease was not restored on a node that had lost it to a FLUSHALL.
    #[test]
    fn a_node_whose_answer_does_not_count_is_asked_again() {
        let mut held = held();
        assert_eq!(held.due(at(4400)), [0, 1, 2, 3, 4]);
        (0..4).for_each(|node| held.count(at(4401), &extended(node, 4400)));
        held.discount(at(4401), 4);
        assert!(held.due(at(4402)).is_empty(), "the round is won without it");
        assert_eq!(held.due(at(4400) + Duration::from_secs(10) / 3), [0, 1, 2, 3, 4]);
        held.discount(at(8000), 4);
        (0..2).for_each(|node| held.count(at(8000), &extended(node, 7800)));
        (2..4).for_each(|node| held.count(at(8000), &late(node, 7800)));
        assert_eq!(held.round_since(at(7700)), Some(false), "no node is awaited");
        assert_eq!(held.due(at(8600)), [2, 3, 4], "and before the next round where this one needs it");
    }

    #[test]
    fn after_the_step_down_nothing_is_extended() {
        let mut held = held();
        assert_eq!(held.advance(at(9000)), [LeaseEvent::StepDown]);
        assert!(held.due(at(9000)).is_empty());
        (0..3).for_each(|node| held.count(at(9001), &extended(node, 8999)));
        assert!(held.advance(at(9001)).is_empty(), "a step-down is not taken back");
    }

    #[test]
    fn what_may_be_held_for_so_long_ends_then_and_is_not_extended_beyond() {
        let mut held = held();
        held.limit(Some(at(15_000)));
        assert_eq!(held.due(at(4400)), [0, 1, 2, 3, 4]);
        (0..5).for_each(|node| held.count(at(4401), &extended(node, 4400)));
        assert_eq!(held.valid_until(), Some(at(4400 + 9698)));
        let next = at(4400) + Duration::from_secs(10) / 3;
        assert_eq!(held.due(next), [0, 1, 2, 3, 4]);
        (0..5).for_each(|node| held.count(at(7800), &extended(node, 7734)));
        assert_eq!(held.valid_until(), Some(at(15_000)), "not for the 9,698 ms that were granted");
        assert!(held.due(at(11_100)).is_empty(), "the keys stand for long enough");
        assert_eq!(held.wake(), at(13_000), "the grace before the end");
        assert_eq!(held.advance(at(13_000)), [LeaseEvent::StepDown]);
        assert_eq!(held.cause(at(13_000)), StepDownCause::MaxHold);
        assert_eq!(held.advance(at(15_000)), [LeaseEvent::Lost]);
    }

    #[test]
    fn who_is_stuck_is_not_extended_until_it_says_that_it_gets_on() {
        let mut held = held();
        assert!(!held.wants_to_extend(at(4000)) && held.wants_to_extend(at(4400)));
        held.heed(at(4400), false);
        assert!(held.due(at(4400)).is_empty(), "nothing leaves");
        assert_eq!(held.advance(at(4400)), [LeaseEvent::AtRisk]);
        assert_eq!(held.wake(), at(4400) + Duration::from_millis(500), "and is looked at again");
        held.heed(at(4900), true);
        assert_eq!(held.due(at(4900)), [0, 1, 2, 3, 4]);
        (0..3).for_each(|node| held.count(at(4901), &extended(node, 4900)));
        assert_eq!(held.advance(at(4901)), [LeaseEvent::Held]);
        let mut now = held.wake();
        let mut events = Vec::new();
        while held.stage() != LeaseEvent::Lost {
            if held.wants_to_extend(now) {
                held.heed(now, false);
            }
            assert!(held.due(now).is_empty());
            events.extend(held.advance(now));
            assert_eq!(held.cause(now), StepDownCause::Unhealthy);
            now = held.wake().max(now);
        }
        assert_eq!(events, [LeaseEvent::AtRisk, LeaseEvent::StepDown, LeaseEvent::Lost]);
        assert_eq!(now, at(4900 + 9698), "at the end of what was granted last");
    }
}
