//! The renewer's decisions about one lease. They are a pure function of the votes and the time.

use crate::{
    config::{QuorumConfig, majority},
    env::BootTime,
    lease::{StepDownCause, event::LeaseEvent, params::LeaseParams, slot::Slot},
    node::{FencingToken, Owner, Refusal, Reply, Resource},
    vote::{Answer, NodeOutcome, Vote, quorum_th},
};
use std::{sync::Arc, time::Duration};

/// The number of steps into which a third of the TTL is divided. Renewal times are rounded to these steps.
const TICKS: u32 = 128;
/// The time for which a lease is held before it is extended to the nodes that its acquire did not ask. A tenth of the TTL is
/// used instead if it is shorter. Most messages are done by then.
const SPREAD_AFTER: Duration = Duration::from_secs(1);
const NEVER: BootTime = BootTime::from_nanos(u64::MAX);

/// The state of one held lease, on which the renewer's decisions depend.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) params: Arc<LeaseParams>,
    slots: Box<[Slot]>,
    /// The time until which the grants in `slots` make the lease valid. `None` without a majority of them.
    extended_until: Option<BootTime>,
    /// The time at which the latest round of extensions began. `None` before the first round.
    round: Option<BootTime>,
    renew_at: BootTime,
    validity: Duration,
    retry_every: Duration,
    stage: LeaseEvent,
    /// The time at which validity must end because of `max_hold`. `None` if there is no such limit.
    hold_until: Option<BootTime>,
    /// True after a failed health check, until a check succeeds.
    unhealthy: bool,
    /// True if a caller has requested the next round of extensions. The round then takes place even if the
    /// lease does not need it.
    asked_for: bool,
    extra_round: ExtraRound,
}

/// The round of extensions that follows at once after a node reported
/// [later grants](Refusal::LaterGrants). If a majority of the other nodes extends the lease in it, no other
/// owner has held a lease in the meantime, and the lease may be set again on the node. A node on which many
/// attempts compete may report still later grants then. So there is only one such round between two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtraRound {
    /// No such round has taken place since the last other round.
    Unused,
    /// The next round is the extra one. It does not ask the nodes that reported later grants.
    Due,
    /// The latest round was the extra one.
    Used,
}

/// Returns whether the node may still store the lease according to its answer to an extension.
fn stores_lease(answer: &Answer) -> bool {
    !matches!(answer, Answer::Reply(Reply::Held { .. } | Reply::Refused(Refusal::LaterGrants { .. })))
}

/// The shortest pause before a node that has not extended the lease is asked again.
const RETRY_AT_LEAST: Duration = Duration::from_millis(10);

impl LeaseState {
    pub(crate) fn new(
        resource: Resource,
        owner: Owner,
        token: FencingToken,
        params: impl Into<Arc<LeaseParams>>,
        config: &QuorumConfig,
        nodes: usize,
        now: BootTime,
    ) -> Self {
        let params = params.into();
        let renew_at = next_renewal(now, &params);
        Self {
            resource,
            owner,
            token,
            slots: (0..nodes).map(|_| Slot::new()).collect(),
            extended_until: None,
            round: None,
            renew_at,
            validity: config.validity(params.ttl),
            retry_every: (params.ttl / 20).min(config.node_timeout.max(params.ttl / 10)).max(RETRY_AT_LEAST),
            stage: LeaseEvent::Held,
            hold_until: None,
            unhealthy: false,
            asked_for: false,
            extra_round: ExtraRound::Unused,
            params,
        }
    }

    /// Notes that the acquire did not ask `nodes`. The lease is extended to them after it has been held for a
    /// short time.
    pub(crate) fn spare(&mut self, now: BootTime, nodes: &[usize]) {
        let at = now + SPREAD_AFTER.min(self.params.ttl / 10);
        nodes.iter().for_each(|&node| self.slots[node].spare(at));
    }

    /// Iterates over the nodes to which no message of this lease was sent.
    pub(crate) fn unasked(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter_map(|(node, slot)| slot.is_unasked().then_some(node))
    }

    /// Sets the time at which validity ends, even if the nodes extend the lease further.
    pub(crate) fn limit(&mut self, until: Option<BootTime>) {
        self.hold_until = until;
    }

    /// Returns whether an extension is due at `now`. If so, the renewer first runs the health check.
    pub(crate) fn wants_to_extend(&self, now: BootTime) -> bool {
        self.stage < LeaseEvent::StepDown && self.asks_at() <= now
    }

    /// Records the result of a health check. If the check failed, no extension is sent before the next check.
    pub(crate) fn health_checked(&mut self, now: BootTime, healthy: bool) {
        self.unhealthy = !healthy;
        if !healthy {
            self.renew_at = now + self.retry_every;
            self.slots.iter_mut().filter(|slot| !slot.spreads()).for_each(|slot| slot.ask_again(None));
        }
    }

    /// Returns the reason why the work is asked to stop.
    pub(crate) fn cause(&self, now: BootTime) -> StepDownCause {
        match self.hold_until {
            Some(end) if now + self.params.grace >= end => StepDownCause::MaxHold,
            _ if self.unhealthy => StepDownCause::Unhealthy,
            _ => StepDownCause::NotExtended,
        }
    }

    /// Records that a node granted a request that was sent at `sent`. An earlier time does not replace a later
    /// one of the same memory epoch.
    pub(crate) fn granted(&mut self, node: usize, sent: BootTime, epoch: u64) {
        if self.slots[node].grant(sent, epoch) {
            self.grants_changed();
        }
    }

    /// Computes the end of the validity from the grants that count now.
    fn grants_changed(&mut self) {
        let sent = self.slots.iter().filter_map(Slot::granted);
        self.extended_until = quorum_th(sent, self.majority()).map(|sent| sent + self.validity);
    }

    /// Counts a node's vote on an extension. Returns whether this changes a decision: the end of the validity, the outcome of
    /// the round, or which nodes are asked now.
    pub(crate) fn count(&mut self, now: BootTime, vote: &Vote) -> bool {
        let before = (self.extended_until, self.round_won());
        let slot = &mut self.slots[vote.node];
        slot.answered();
        match (&vote.answer, vote.sent) {
            (Answer::Reply(Reply::Extended), Some(sent)) => {
                self.granted(vote.node, sent, vote.memory.epoch);
                // The vote is on a request of an earlier round, which the node had not answered when the
                // present round began. So the node has not been asked in this round, and is asked now.
                let behind = self.round.is_some_and(|began| sent < began);
                self.slots[vote.node].ask_again(behind.then_some(now));
                self.retry_vouched(now);
                let asks = self.slots.iter().any(|slot| slot.retry_at() <= now);
                asks || before != (self.extended_until, self.round_won())
            }
            (answer, sent) => {
                let ended = !stores_lease(answer) && sent >= slot.granted();
                slot.refused(now, NodeOutcome::of(answer));
                if ended {
                    // The node no longer stores the lease, so its earlier grant has ended too.
                    slot.remove_grant_if(|_| true);
                    self.grants_changed();
                }
                // A node that must not vote is not asked again before the next round.
                let again = !matches!(answer, Answer::Untrusted(_));
                self.ask_again(now, vote.node, again);
                self.count_later_grants(now, vote.node);
                true
            }
        }
    }

    /// Returns the token with which `node` is asked to extend the lease. It is the lease's fencing token, or the
    /// counter that the node reported with later grants, if the holder can vouch that none of these grants
    /// became a lease: a majority has extended this lease by requests that were sent after that report.
    pub(crate) fn token_for(&self, node: usize) -> FencingToken {
        self.vouched(&self.slots[node]).map_or(self.token, |counter| counter.max(self.token))
    }

    fn vouched(&self, slot: &Slot) -> Option<FencingToken> {
        let (counter, at) = slot.later_grants()?;
        (self.round_since(at) == Some(true)).then_some(counter)
    }

    /// If `node` has just reported later grants, lets it be asked again at once if the holder can vouch for them, or
    /// lets an extra round begin after which the holder may.
    fn count_later_grants(&mut self, now: BootTime, node: usize) {
        if self.slots[node].later_grants().is_none() {
            return;
        }
        self.retry_vouched(now);
        let waits = self.vouched(&self.slots[node]).is_none();
        if waits && self.params.extended && self.extra_round == ExtraRound::Unused {
            self.extra_round = ExtraRound::Due;
            self.renew_at = now;
        }
    }

    /// Lets the nodes that have reported later grants be asked now, as far as the holder can vouch for them.
    fn retry_vouched(&mut self, now: BootTime) {
        for node in 0..self.slots.len() {
            let slot = &self.slots[node];
            if slot.later_grants().is_some() && self.vouched(slot).is_some() {
                self.slots[node].ask_again(Some(now));
            }
        }
    }

    /// Ignores the answer of a node that may have lost its memory since it answered. The node is asked again
    /// later.
    pub(crate) fn discount(&mut self, now: BootTime, node: usize) {
        self.slots[node].answered();
        self.ask_again(now, node, true);
    }

    /// Sets the time at which a node that did not extend the lease is asked again.
    fn ask_again(&mut self, now: BootTime, node: usize, again: bool) {
        self.slots[node].ask_again(again.then(|| now + self.retry_every));
    }

    /// Removes the grants of nodes that may have lost their memory, that is, for which `remembers` returns
    /// false. If a grant was removed, and the lease is extended automatically, a round of extensions is due at
    /// once.
    pub(crate) fn forget_unless(&mut self, now: BootTime, remembers: impl Fn(usize, u64) -> bool) {
        for (node, slot) in self.slots.iter_mut().enumerate() {
            if slot.remove_grant_if(|memory| !remembers(node, memory)) && self.params.extended {
                self.renew_at = now;
            }
        }
        self.grants_changed();
    }

    /// Makes a round of extensions due now, even if the lease does not need it.
    pub(crate) fn renew_now(&mut self, now: BootTime) {
        self.renew_at = now;
        self.asked_for = true;
    }

    /// Returns the nodes that must be asked now, and marks them as asked. After the step-down there are none,
    /// because a lease whose work was asked to stop is not extended.
    pub(crate) fn due(&mut self, now: BootTime) -> Vec<usize> {
        let until = self.valid_until().unwrap_or_default();
        if self.stage >= LeaseEvent::StepDown || now + self.params.grace >= until {
            return Vec::new();
        }
        if self.covered() && !self.asked_for {
            // The grants already last until `hold_until`. A further extension would only keep the keys on the
            // nodes beyond that time.
            self.renew_at = NEVER;
        }
        let whole_round = now >= self.renew_at;
        let extra = whole_round && self.extra_round == ExtraRound::Due;
        if whole_round {
            self.extra_round = if extra { ExtraRound::Used } else { ExtraRound::Unused };
            self.asked_for = false;
            self.round = Some(now);
            self.renew_at = next_renewal(now, &self.params);
        }
        let settled = self.settled();
        let in_round = |slot: &Slot| whole_round && !(extra && slot.later_grants().is_some());
        let again = |slot: &Slot| slot.spreads() || !settled || self.vouched(slot).is_some();
        let ask = |slot: &Slot| in_round(slot) || (now >= slot.retry_at() && again(slot));
        let due = |node: &usize| !self.slots[*node].is_asked() && ask(&self.slots[*node]);
        let due: Vec<usize> = (0..self.slots.len()).filter(due).collect();
        due.iter().for_each(|&node| self.slots[node].asked());
        if whole_round {
            self.slots.iter_mut().for_each(Slot::end_spread);
        }
        due
    }

    /// Returns the time at which the latest round of extensions began. `None` before the first round.
    pub(crate) fn round(&self) -> Option<BootTime> {
        self.round
    }

    /// Returns the time until which the lease is valid by the grants so far.
    pub(crate) fn valid_until(&self) -> Option<BootTime> {
        let until = self.extended_until?;
        Some(self.hold_until.map_or(until, |end| end.min(until)))
    }

    /// Moves the lease to the stage that applies at `now`, and returns the events of this change. First `Held`
    /// and `AtRisk` alternate, then comes `StepDown`, then `Lost`.
    pub(crate) fn advance(&mut self, now: BootTime) -> Vec<LeaseEvent> {
        let until = self.valid_until().unwrap_or_default();
        let next = if now >= until {
            LeaseEvent::Lost
        } else if self.stage >= LeaseEvent::StepDown || now + self.params.grace >= until {
            self.stage.max(LeaseEvent::StepDown)
        } else if self.unhealthy || (self.round_failed() && !self.covered()) {
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

    /// Ends the lease, and returns the events that have not been reported yet.
    pub(crate) fn finish(&mut self) -> Vec<LeaseEvent> {
        let told = std::mem::replace(&mut self.stage, LeaseEvent::Lost);
        [LeaseEvent::StepDown, LeaseEvent::Lost].into_iter().filter(|event| *event > told).collect()
    }

    /// Returns the time at which the next decision is due, unless a vote arrives earlier.
    pub(crate) fn wake(&self) -> BootTime {
        let until = self.valid_until().unwrap_or_default();
        if self.stage >= LeaseEvent::StepDown {
            return until;
        }
        self.sends_at().min(self.steps_down_at())
    }

    /// Returns the time at which the work must be asked to stop, by the grants so far.
    pub(crate) fn steps_down_at(&self) -> BootTime {
        self.valid_until().unwrap_or_default() - self.params.grace
    }

    /// Returns whether a request to a node is due.
    pub(crate) fn is_due(&self, now: BootTime) -> bool {
        self.stage < LeaseEvent::StepDown && self.sends_at() <= now
    }

    /// Returns the time of the next request to a node. There are no requests after the step-down has begun.
    pub(crate) fn sends_at(&self) -> BootTime {
        self.next(Slot::spreads).min(self.asks_at())
    }

    /// Returns the time at which nodes are asked again to extend the lease. There are no requests after the
    /// step-down has begun.
    fn asks_at(&self) -> BootTime {
        let settled = self.settled();
        let again = |slot: &Slot| !slot.spreads() && (!settled || self.vouched(slot).is_some());
        self.next(again).min(self.renew_at)
    }

    /// Returns the time at which the first of these nodes is asked.
    fn next(&self, wants: impl Fn(&Slot) -> bool) -> BootTime {
        let slots = self.slots.iter().filter(|slot| !slot.is_asked() && wants(slot));
        slots.map(Slot::retry_at).min().unwrap_or(NEVER)
    }

    pub(crate) fn stage(&self) -> LeaseEvent {
        self.stage
    }

    /// Returns whether a majority has granted a request that was sent at `began` or later. Returns `None` while
    /// this is not decided, because votes are pending that may complete a majority.
    pub(crate) fn round_since(&self, began: BootTime) -> Option<bool> {
        let extended =
            self.slots.iter().filter(|slot| slot.granted().is_some_and(|sent| sent >= began)).count();
        let pending = self.slots.iter().filter(|slot| slot.is_asked()).count();
        if extended >= self.majority() {
            Some(true)
        } else if extended + pending < self.majority() {
            Some(false)
        } else {
            None
        }
    }

    /// Returns the last answer of each node. A node whose grant does not count in the present round is *pending*.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = NodeOutcome> {
        self.slots.iter().map(|slot| match slot.outcome() {
            Some(outcome) => outcome.clone(),
            None if slot.granted() >= self.round.or(Some(BootTime::default())) => NodeOutcome::Granted,
            None => NodeOutcome::Pending,
        })
    }

    /// Returns whether the present round needs no further answers.
    fn settled(&self) -> bool {
        self.round_won() || self.covered()
    }

    /// Returns whether the grants so far last until `hold_until`, so that no further extension is needed.
    fn covered(&self) -> bool {
        self.hold_until.is_some_and(|end| self.extended_until.is_some_and(|until| until >= end))
    }

    /// Returns whether a majority has extended the lease in the present round.
    pub(crate) fn round_won(&self) -> bool {
        self.round.is_some_and(|began| self.round_since(began) == Some(true))
    }

    fn round_failed(&self) -> bool {
        self.round.is_some_and(|began| self.round_since(began) == Some(false))
    }

    fn majority(&self) -> usize {
        majority(self.slots.len())
    }
}

/// Returns the time of the next renewal: a third of the TTL from now, rounded down. The rounding step is that
/// third divided by `TICKS`. So leases that are due at about the same time are renewed in one batch, but a
/// node does not get all renewals at once. A lease that is not extended automatically has no next renewal.
fn next_renewal(now: BootTime, params: &LeaseParams) -> BootTime {
    if !params.extended {
        return NEVER;
    }
    let third = params.ttl / 3;
    let tick = u64::try_from((third / TICKS).as_nanos()).unwrap_or(u64::MAX).max(1);
    let at = (now + third).as_nanos();
    BootTime::from_nanos(at - at % tick)
}

#[cfg(test)]
mod tests;
