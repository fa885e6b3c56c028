use crate::{
    env::{BootTime, WallTime},
    node::{Hello, NodeTime, Reply, Request},
    sabotage::Sabotage,
    trust::{
        Marker, NodeState, QuarantineReason, VoteRejection,
        ability::Ability,
        clock_offset::ClockOffset,
        clock_steps::ClockStep,
        marking::{Admission, Marking, is_same_memory},
        policy::{StampCheck, TrustDecision, TrustPolicy},
        registry::{FirstMark, NodeRegistry, Reached},
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// This worker's trust in one node: whether the node may vote, and to which memory epoch its votes belong.
/// This type performs no I/O. It reads and updates the registry, which all drivers of this worker share.
#[derive(Debug)]
pub(crate) struct NodeTrust {
    me: usize,
    policy: Arc<TrustPolicy>,
    registry: Arc<NodeRegistry>,
    trust: TrustState,
    hello: Option<Hello>,
    /// The time on the boot clock at which the handshake arrived, to which [`Hello::node_time`] belongs.
    read_at: BootTime,
    /// True while this worker waits for handshakes with other nodes before it writes a marker to this node.
    awaits_others: bool,
    /// The marker of the memory epoch whose votes count. The marker is kept when a connection ends, so that
    /// the next handshake shows whether the memory is still the same.
    memory: Option<Marker>,
    lost_memory: bool,
    /// [`StampCheck::Behind`] from the time at which the node returned a smaller stamp than this worker had seen, until a
    /// marker begins a new memory.
    stamps: StampCheck,
    /// The last step of the node's clock against the boot clock. `None` once that step no longer keeps the node
    /// from voting.
    step: Option<ClockStep>,
    /// The ability of the node to serve the requests of this worker. A node that refuses them is shown as one without a vote.
    ability: Ability,
}

#[derive(Debug)]
enum TrustState {
    /// It is not decided whether the node may vote, or the decision waits for the first handshakes with other
    /// nodes. Requests that need a vote wait.
    Unknown,
    /// The node must not vote before `until`. If `until` is `None`, it must not vote before a new decision.
    Withheld { until: Option<BootTime>, why: VoteRejection },
    /// The node may vote.
    Granted,
}

impl NodeTrust {
    pub(crate) fn new(me: usize, policy: Arc<TrustPolicy>, registry: Arc<NodeRegistry>) -> Self {
        Self {
            me,
            policy,
            registry,
            trust: TrustState::Unknown,
            hello: None,
            read_at: BootTime::default(),
            awaits_others: false,
            memory: None,
            lost_memory: false,
            stamps: StampCheck::Unchecked,
            step: None,
            ability: Ability::default(),
        }
    }

    /// Records the handshake of a new connection. `seen` is the largest stamp of the node that this worker knew of before
    /// the handshake began. [`NodeTrust::evaluate`] must be called next.
    pub(crate) fn connected(&mut self, now: BootTime, hello: Hello, seen: u64) {
        self.registry.connected(self.me, &hello.run_id, &hello.version);
        self.ability.connected(now, hello.unable.as_ref());
        self.registry.learn_stamps(self.me, &hello.stamps);
        self.trust = TrustState::Unknown;
        self.stamps = self.compare(self.own_stamp(&hello), seen);
        self.hello = Some(hello);
        self.read_at = now;
    }

    /// Records the end of a connection. The known memory of the node is kept.
    pub(crate) fn disconnected(&mut self) {
        self.registry.disconnected(self.me);
        self.trust = TrustState::Unknown;
        self.hello = None;
        self.awaits_others = false;
    }

    /// Records the node's reply to `request`. A node that refuses what leases need is no longer reported as one that
    /// votes. Its replies count as before, because a grant that a node did give is a grant.
    pub(crate) fn replied(&mut self, now: BootTime, request: &Request, reply: &Reply) {
        if self.ability.observe(now, request, reply) && matches!(self.trust, TrustState::Granted) {
            self.grant();
        }
    }

    /// Records a measure of the node's clock, at a time at which this worker's wall clock showed `wall`. A node whose clock
    /// is too far from this worker's is no longer reported as one that votes. Its replies count as before.
    pub(crate) fn clock_measured(&mut self, now: BootTime, wall: WallTime, measure: ClockOffset) {
        let apart = measure.distance(wall, now);
        if self.ability.measured(apart, self.policy.config.max_clock_offset)
            && matches!(self.trust, TrustState::Granted)
        {
            self.grant();
        }
    }

    /// Returns whether the node refuses what leases need.
    pub(crate) fn is_unable(&self) -> bool {
        self.ability.is_unable()
    }

    /// Returns the reason why the node refused the last test, if it did. Then it is not asked for new leases.
    pub(crate) fn failed_test(&self) -> Option<Arc<str>> {
        self.ability.failed_test()
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.trust, TrustState::Unknown)
    }

    /// Returns whether the decision waits for handshakes with other nodes. The registry notifies the driver
    /// of these handshakes.
    pub(crate) fn awaits_others(&self) -> bool {
        self.awaits_others
    }

    /// Decides whether the node may vote, if that is not decided yet. If a marker must be written first,
    /// returns it.
    pub(crate) fn evaluate(&mut self, now: BootTime) -> Option<Marking> {
        if !self.is_unknown() && !self.awaits_others {
            return self.clock_step_marking();
        }
        let hello = self.hello_at(now)?;
        self.registry.set_marker_state(self.me, self.policy.marker(&hello).map(|marker| marker.is_some()));
        let mut decision = self.policy.decide(&hello, now, self.stamps);
        self.awaits_others = false;
        if decision == TrustDecision::Compare {
            match self.registry.reached() {
                Reached::Enough => {
                    // The stamp of the handshake may be old by now. But if another worker has accepted the node since,
                    // and has increased its stamp, it has replaced the marker before.
                    let (seen, own) = (self.registry.stamp(self.me), self.own_stamp(&hello));
                    let stamps = match self.compare(own, seen) {
                        StampCheck::Unchecked => StampCheck::Current,
                        behind => behind,
                    };
                    decision = self.policy.decide(&hello, now, stamps);
                }
                Reached::NotYet => {
                    self.awaits_others = true;
                    return None;
                }
                Reached::TooFew { met, needed } => {
                    self.awaits_others = true;
                    decision = TrustDecision::Refused(VoteRejection::Uncompared { met, needed });
                }
            }
        }
        if let TrustDecision::Write { reason: QuarantineReason::Unmarked, .. } = &decision {
            match self.registry.first_mark() {
                FirstMark::Allowed => {}
                FirstMark::NotYet => {
                    self.awaits_others = true;
                    self.trust = TrustState::Unknown;
                    self.end_memory_unless(|_| false);
                    return None;
                }
                FirstMark::Refused(why) => {
                    self.awaits_others = matches!(why, VoteRejection::TooFewMet { .. });
                    decision = TrustDecision::Refused(why);
                }
            }
        }
        match decision {
            TrustDecision::Votes { marker, from, reason } => {
                self.settle(now, Marking { marker, from, reason, ends_quarantine: false });
                self.clock_step_marking()
            }
            TrustDecision::Write { marker, from, reason } => {
                self.end_memory_unless(|known| is_same_memory(known, &marker));
                if self.lost_memory {
                    // The leases that counted on the node are informed next, and may end before the node has stored the
                    // marker. Their reports take the reason from the node's state.
                    self.show_quarantine(now, from, reason);
                }
                Some(Marking { marker, from, reason, ends_quarantine: false })
            }
            TrustDecision::Compare => None,
            TrustDecision::Refused(why) => {
                // The node is refused, so its earlier grants no longer count either.
                self.end_memory_unless(|_| false);
                self.refuse(why);
                None
            }
        }
    }

    /// Records that the node has stored the marker.
    pub(crate) fn marker_written(&mut self, now: BootTime, marking: Marking) {
        if let Some(hello) = &mut self.hello {
            hello.marker = Some(marking.marker.to_text());
        }
        self.stamps = StampCheck::Unchecked;
        self.registry.set_marker_state(self.me, Ok(true));
        self.settle(now, marking);
    }

    /// Records the stamps of the nodes `names`, which the node returned. `least` is the smallest stamp of the node itself
    /// that can be right: if the node's stamp is smaller, the node has lost data although its session is still the same.
    pub(crate) fn stamps_read(
        &mut self,
        now: BootTime,
        node_time: NodeTime,
        stamps: &BTreeMap<Arc<str>, u64>,
        least: u64,
    ) {
        self.registry.learn_stamps(self.me, stamps);
        let own = stamps.get(&self.registry.name(self.me)).copied().unwrap_or_default();
        let Some(hello) = &mut self.hello else { return };
        if own < least && !self.policy.config.sabotaged(Sabotage::StampsIgnored) {
            (hello.node_time, self.read_at) = (node_time, now);
            self.stamps = self.compare(own, least);
            self.trust = TrustState::Unknown;
            self.end_memory_unless(|_| false);
        }
    }

    /// Returns whether this worker stores stamps on the node now. It does so only on a node that votes, and whose marker
    /// therefore names its own node list.
    pub(crate) fn stores_stamps(&self) -> bool {
        self.policy.config.durable
            && !self.policy.config.read_only
            && matches!(self.trust, TrustState::Granted)
    }

    fn own_stamp(&self, hello: &Hello) -> u64 {
        hello.stamps.get(&self.registry.name(self.me)).copied().unwrap_or_default()
    }

    /// Compares the stamp `own`, which the node has returned, with the largest one that was seen before.
    fn compare(&self, own: u64, seen: u64) -> StampCheck {
        let config = &self.policy.config;
        if !config.durable || own >= seen || config.sabotaged(Sabotage::StampsIgnored) {
            return StampCheck::Unchecked;
        }
        tracing::warn!(
            node = &*self.registry.name(self.me),
            "node has older data than was seen of it: its stamp is {own}, and {} has seen {seen}",
            self.registry.stamp_seen_by(self.me)
        );
        StampCheck::Behind
    }

    /// Records that the node stores a marker other than the known one. The server has not restarted, since
    /// the connection is still the same.
    pub(crate) fn marker_changed(&mut self, now: BootTime, node_time: NodeTime, marker: Option<Arc<str>>) {
        let Some(hello) = self.hello.as_mut().filter(|hello| hello.marker != marker) else { return };
        let stored = marker.as_deref().and_then(|text| Marker::parse(text).ok());
        let before = hello.marker.as_deref().and_then(|text| Marker::parse(text).ok());
        let incarnation = |marker: &Option<Marker>| marker.as_ref().map(|marker| marker.incarnation);
        if incarnation(&before) != incarnation(&stored) {
            // Another worker has noticed the loss too, and has begun a new memory of the node.
            self.stamps = StampCheck::Unchecked;
        }
        hello.marker = marker;
        hello.node_time = node_time;
        self.read_at = now;
        self.trust = TrustState::Unknown;
        if let (Some(known), Some(stored)) = (&self.memory, &stored)
            && known.incarnation == stored.incarnation
            && stored.votes_from < known.votes_from
        {
            // The marker lets the node vote earlier. So an operator has ended the node's quarantine, although
            // the clock stepped.
            self.step = None;
        }
        self.end_memory_unless(|known| stored.is_some_and(|marker| is_same_memory(known, &marker)));
    }

    /// Handles a step of the node's clock against the boot clock. Leases on the node may have ended early, so
    /// the node may grant a lease that another worker still holds. The node's votes no longer count from now
    /// on, and count again after a quarantine.
    pub(crate) fn clock_stepped(&mut self, step: ClockStep) {
        self.end_memory_unless(|_| false);
        self.step = Some(step);
        if let Some(hello) = &mut self.hello {
            hello.node_time = step.node_time;
            self.read_at = step.noticed;
        }
        self.trust = TrustState::Unknown;
    }

    /// Returns the marker that reports a step of this node's clock to all workers. Returns `None` until the
    /// clocks of the other nodes show that this node's clock stepped. Until then, this worker's boot clock
    /// may have stood still instead.
    fn clock_step_marking(&self) -> Option<Marking> {
        let (step, memory) = (self.step.as_ref()?, self.memory.as_ref()?);
        let TrustState::Withheld { until: Some(_), .. } = self.trust else { return None };
        // Checks whether a worker has already written a marker since the step. Before the step, `votes_from`
        // was at most one quarantine after the time that the clock would show without the step. So a later
        // `votes_from` is from a marker written after the step.
        let quarantine = self.policy.config.quarantine();
        let written = memory.votes_from > step.node_time - step.gained + quarantine;
        if written
            || self.policy.config.read_only
            || !self.registry.majority_was_steady(step.after, step.noticed)
        {
            return None;
        }
        // The memory of the node stays the same. A clock step may end leases early, but the records and
        // counters are intact.
        let marker = Marker { votes_from: step.node_time + quarantine, ..memory.clone() };
        Some(Marking {
            marker,
            from: self.step_quarantine_ends(step),
            reason: QuarantineReason::Jumped,
            ends_quarantine: false,
        })
    }

    fn step_quarantine_ends(&self, step: &ClockStep) -> BootTime {
        step.noticed + self.policy.config.quarantine()
    }

    /// Decides on an operator's request to end the quarantine. The request succeeds if the quarantine is the
    /// only reason why the node must not vote.
    pub(crate) fn admission(&self, now: BootTime) -> Admission {
        if let Some(twin) = self.registry.twin(self.me) {
            return Admission::Refused(VoteRejection::Twin(twin));
        }
        match (&self.trust, &self.memory) {
            (TrustState::Granted, _) => Admission::Trusted,
            (TrustState::Withheld { until: Some(_), .. }, Some(memory)) => {
                // After a restart, the memory of a node begins twice `max_clock_offset` after the handshake.
                // The operator wants the node to vote now, so the time of the handshake is used.
                let read = self.hello.as_ref().map_or(memory.since, |hello| hello.node_time);
                let marker = Marker { votes_from: memory.since.min(read), ..memory.clone() };
                Admission::Write(Marking {
                    marker,
                    from: now,
                    reason: QuarantineReason::Marked,
                    ends_quarantine: true,
                })
            }
            (TrustState::Withheld { why, .. }, _) => Admission::Refused(why.clone()),
            (TrustState::Unknown, _) => Admission::Unknown,
        }
    }

    /// Lets the node vote once its quarantine is over.
    pub(crate) fn end_quarantine(&mut self, now: BootTime) {
        if matches!(self.trust, TrustState::Withheld { until: Some(until), .. } if now >= until) {
            self.step = None;
            self.grant();
        }
    }

    /// Returns whether the node must not vote now.
    pub(crate) fn is_withheld(&self) -> bool {
        matches!(self.trust, TrustState::Withheld { .. })
    }

    /// Returns whether the reason for a refusal may end soon without an operator. There are three such reasons:
    ///
    /// * The markers of other nodes differ from this worker's list or settings. These other nodes may turn
    ///   out to be a minority when more nodes are reached.
    /// * Too few nodes were reached. Another worker may write the marker.
    /// * The marker says that this worker's node set is about to replace another one.
    pub(crate) fn may_change_soon(&self) -> bool {
        match &self.trust {
            TrustState::Withheld {
                why:
                    VoteRejection::Contradicted { .. }
                    | VoteRejection::TooFewMet { .. }
                    | VoteRejection::Uncompared { .. },
                ..
            } => true,
            TrustState::Withheld { why: why @ VoteRejection::Replaced { .. }, .. } => !why.is_permanent(),
            _ => false,
        }
    }

    /// Returns the time at which [`NodeTrust::end_quarantine`] must be called, if the node is in quarantine.
    pub(crate) fn wake(&self) -> Option<BootTime> {
        match &self.trust {
            TrustState::Withheld { until, .. } => *until,
            _ => None,
        }
    }

    /// Returns the reason why the node must not vote now. `None` if there is none.
    pub(crate) fn objection(&self, now: BootTime) -> Option<VoteRejection> {
        if let Some(twin) = self.registry.twin(self.me) {
            return Some(VoteRejection::Twin(twin));
        }
        match &self.trust {
            TrustState::Withheld { until: Some(until), why: VoteRejection::Quarantined { reason, .. } } => {
                Some(VoteRejection::Quarantined { reason: *reason, remaining: now.until(*until) })
            }
            TrustState::Withheld { why, .. } => Some(why.clone()),
            _ => None,
        }
    }

    /// Returns the marker that the node stores, as far as this worker knows.
    pub(crate) fn stored_marker(&self) -> Option<Arc<str>> {
        self.hello.as_ref().and_then(|hello| hello.marker.clone())
    }

    /// Returns whether the node's memory was lost since the last call of this function.
    pub(crate) fn take_lost_memory(&mut self) -> bool {
        std::mem::take(&mut self.lost_memory)
    }

    /// Returns the handshake, with its node time moved forward to `now`, because time may have passed since
    /// the handshake.
    fn hello_at(&self, now: BootTime) -> Option<Hello> {
        let hello = self.hello.clone()?;
        let elapsed = self.read_at.until(now);
        // The node's clock may be faster than the boot clock, so the largest possible time is used. A time that
        // is too late only lengthens a quarantine.
        let passed = elapsed + elapsed.mul_f64(self.policy.config.drift_rate);
        Some(Hello { node_time: hello.node_time + passed, ..hello })
    }

    /// Accepts the marking's marker as the description of the node's memory. The node's votes count from the
    /// marking's `from` on. If the node is in quarantine because its clock stepped, its votes count only
    /// after that quarantine. A marking with `ends_quarantine` ends that quarantine at once.
    fn settle(&mut self, now: BootTime, marking: Marking) {
        let Marking { marker, mut from, mut reason, ends_quarantine } = marking;
        match &self.step {
            Some(_) if ends_quarantine => self.step = None,
            Some(step) if self.step_quarantine_ends(step) > from => {
                (from, reason) = (self.step_quarantine_ends(step), QuarantineReason::Jumped);
            }
            _ => {}
        }
        let remembers = self.memory.as_ref().is_some_and(|known| is_same_memory(known, &marker));
        if !remembers {
            self.lost_memory |= self.memory.is_some();
            self.registry.set_since(self.me, marker.since);
            self.begin_epoch();
        }
        self.registry.set_votes_from(self.me, marker.votes_from);
        self.registry.set_incarnation(self.me, marker.incarnation);
        self.memory = Some(marker);
        if from <= now {
            self.grant();
        } else {
            let why = self.show_quarantine(now, from, reason);
            self.trust = TrustState::Withheld { until: Some(from), why };
        }
    }

    /// Shows the node as one that is in quarantine until `from`.
    fn show_quarantine(&self, now: BootTime, from: BootTime, reason: QuarantineReason) -> VoteRejection {
        let why = VoteRejection::Quarantined { reason, remaining: now.until(from) };
        self.registry.set_state(self.me, NodeState::Quarantined { until: from, why: why.clone() });
        why
    }

    /// Ends the node's memory epoch, unless `same` returns true for the node's last known marker. Once the
    /// epoch has ended, the node's grants no longer count, even those of leases that are held.
    fn end_memory_unless(&mut self, same: impl FnOnce(&Marker) -> bool) {
        if self.memory.as_ref().is_some_and(|known| !same(known)) {
            self.memory = None;
            self.lost_memory = true;
            self.begin_epoch();
        }
    }

    fn begin_epoch(&self) {
        if !self.policy.config.sabotaged(Sabotage::ForgettersCount) {
            self.registry.begin_epoch(self.me);
        }
    }

    fn grant(&mut self) {
        self.trust = TrustState::Granted;
        self.registry
            .set_state(self.me, self.ability.objection().map_or(NodeState::Trusted, NodeState::Refused));
    }

    fn refuse(&mut self, why: VoteRejection) {
        self.registry.set_state(self.me, NodeState::Refused(why.clone()));
        self.trust = TrustState::Withheld { until: None, why };
    }
}

#[cfg(test)]
mod tests;
