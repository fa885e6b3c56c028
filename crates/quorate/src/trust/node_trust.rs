use crate::{
    env::BootTime,
    node::{Hello, NodeTime},
    sabotage::Sabotage,
    trust::{
        Marker, NodeState, QuarantineReason, VoteRejection,
        clock_steps::ClockStep,
        policy::{TrustDecision, TrustPolicy},
        registry::{FirstMark, NodeRegistry},
    },
};
use std::sync::Arc;

/// How one node stands with this worker: whether it may vote, and what of it is remembered. Pure but for the
/// notes it leaves on the board.
#[derive(Debug)]
pub(crate) struct NodeTrust {
    me: usize,
    policy: Arc<TrustPolicy>,
    registry: Arc<NodeRegistry>,
    trust: TrustState,
    hello: Option<Hello>,
    /// When [`Hello::node_time`] was read, on our boot clock.
    read_at: BootTime,
    /// Whether it waits for other nodes to be met before it marks this one.
    awaits_others: bool,
    /// The memory whose votes are being counted. It outlives a connection.
    memory: Option<Marker>,
    lost_memory: bool,
    /// The last jump of its clock against ours, while it keeps the node from voting.
    step: Option<ClockStep>,
}

#[derive(Debug)]
enum TrustState {
    /// Being found out, or waiting for the first handshakes of other nodes: voting requests wait.
    Unknown,
    /// Not yet, or not at all.
    Withheld { until: Option<BootTime>, why: VoteRejection },
    /// Given.
    Given,
}

/// A marker that is to stand, and what holds once it does.
#[derive(Clone, Debug)]
pub(crate) struct Marking {
    pub(crate) marker: Marker,
    from: BootTime,
    reason: QuarantineReason,
    /// It ends the quarantine, whatever it was for.
    admits: bool,
}

/// What an admission comes to.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It votes already.
    Trusted,
    /// This marker ends its quarantine.
    Write(Marking),
    /// An operator must mend something first.
    Refused(VoteRejection),
    /// Not known yet.
    Unknown,
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
            step: None,
        }
    }

    /// A new connection: all is to be judged anew.
    pub(crate) fn met(&mut self, now: BootTime, hello: Hello) {
        self.registry.met(self.me, &hello.run_id, &hello.version);
        self.trust = TrustState::Unknown;
        self.hello = Some(hello);
        self.read_at = now;
    }

    /// The connection is gone; what the node remembers is not.
    pub(crate) fn parted(&mut self) {
        self.registry.parted(self.me);
        self.trust = TrustState::Unknown;
        self.hello = None;
        self.awaits_others = false;
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.trust, TrustState::Unknown)
    }

    /// Whether the next judgement may be another one as soon as the board changes.
    pub(crate) fn awaits_others(&self) -> bool {
        self.awaits_others
    }

    /// Judges, if that is to be done. Gives the marker to be written first, if one is.
    pub(crate) fn policy(&mut self, now: BootTime) -> Option<Marking> {
        if !self.is_unknown() && !self.awaits_others {
            return self.jump_to_be_told();
        }
        let hello = self.hello_at(now)?;
        self.registry.heard(self.me, self.policy.marker(&hello).map(|marker| marker.is_some()));
        let mut judgement = self.policy.policy(&hello, now);
        self.awaits_others = false;
        if let TrustDecision::Write { reason: QuarantineReason::Unmarked, .. } = &judgement {
            match self.registry.first_mark() {
                FirstMark::Allowed => {}
                FirstMark::NotYet => {
                    self.awaits_others = true;
                    self.trust = TrustState::Unknown;
                    self.lose_memory_unless(|_| false);
                    return None;
                }
                FirstMark::Refused(why) => {
                    self.awaits_others = matches!(why, VoteRejection::TooFewMet { .. });
                    judgement = TrustDecision::Refused(why);
                }
            }
        }
        match judgement {
            TrustDecision::Votes { marker, from, reason } => {
                self.settle(now, Marking { marker, from, reason, admits: false });
                self.jump_to_be_told()
            }
            TrustDecision::Write { marker, from, reason } => {
                self.lose_memory_unless(|known| goes_on(known, &marker));
                Some(Marking { marker, from, reason, admits: false })
            }
            TrustDecision::Refused(why) => {
                // Whatever it granted while it voted no longer counts.
                self.lose_memory_unless(|_| false);
                self.withhold(None, why);
                None
            }
        }
    }

    /// The marker stands on the node.
    pub(crate) fn marked(&mut self, now: BootTime, marking: Marking) {
        if let Some(hello) = &mut self.hello {
            hello.marker = Some(marking.marker.to_text());
        }
        self.registry.heard(self.me, Ok(true));
        self.settle(now, marking);
    }

    /// Another marker stands than was believed: what stands is to be judged. The run is still the same, for
    /// the connection is.
    pub(crate) fn marker_changed(&mut self, now: BootTime, node_time: NodeTime, marker: Option<Arc<str>>) {
        let Some(hello) = self.hello.as_mut().filter(|hello| hello.marker != marker) else { return };
        let node_trust = marker.as_deref().and_then(|text| Marker::parse(text).ok());
        hello.marker = marker;
        hello.node_time = node_time;
        self.read_at = now;
        self.trust = TrustState::Unknown;
        if let (Some(known), Some(node_trust)) = (&self.memory, &node_trust)
            && known.since == node_trust.since
            && node_trust.votes_from < known.votes_from
        {
            // Somebody has admitted the node, a jump of its clock notwithstanding.
            self.step = None;
        }
        self.lose_memory_unless(|known| node_trust.is_some_and(|marker| goes_on(known, &marker)));
    }

    /// The node's clock and ours have jumped against each other: leases on it may have ended early, so that it
    /// may grant what is held. At once it stops counting, and votes no sooner than after a quarantine.
    pub(crate) fn jumped(&mut self, step: ClockStep) {
        self.lose_memory_unless(|_| false);
        self.step = Some(step);
        if let Some(hello) = &mut self.hello {
            hello.node_time = step.node_time;
            self.read_at = step.heard;
        }
        self.trust = TrustState::Unknown;
    }

    /// A jump of this one node's clock is told to all others in its marker, once it is clear that it was the
    /// node's: the others kept step with ours meanwhile. Until then it may have been ours.
    fn jump_to_be_told(&self) -> Option<Marking> {
        let (step, memory) = (self.step.as_ref()?, self.memory.as_ref()?);
        let TrustState::Withheld { until: Some(_), .. } = self.trust else { return None };
        // Only a marker that was written by the clock as it is now, after the jump, waits for so long.
        let quarantine = self.policy.config.quarantine();
        let told = memory.votes_from > step.node_time - step.gained + quarantine;
        if told || self.policy.config.only_looks || !self.registry.most_were_steady(step.after, step.heard) {
            return None;
        }
        // Its records and counters are what they were: only its leases may have ended early.
        let marker = Marker { votes_from: step.node_time + quarantine, ..memory.clone() };
        Some(Marking { marker, from: self.jump_over(step), reason: QuarantineReason::Jumped, admits: false })
    }

    fn jump_over(&self, step: &ClockStep) -> BootTime {
        step.heard + self.policy.config.quarantine()
    }

    /// Ends the quarantine, if that is all that is against the node.
    pub(crate) fn admission(&self, now: BootTime) -> Admission {
        if let Some(twin) = self.registry.twin(self.me) {
            return Admission::Refused(VoteRejection::Twin(twin));
        }
        match (&self.trust, &self.memory) {
            (TrustState::Given, _) => Admission::Trusted,
            (TrustState::Withheld { until: Some(_), .. }, Some(memory)) => {
                // A restarted node's memory begins a little later than now.
                let met = self.hello.as_ref().map_or(memory.since, |hello| hello.node_time);
                let marker = Marker { votes_from: memory.since.min(met), ..memory.clone() };
                Admission::Write(Marking {
                    marker,
                    from: now,
                    reason: QuarantineReason::Marked,
                    admits: true,
                })
            }
            (TrustState::Withheld { why, .. }, _) => Admission::Refused(why.clone()),
            (TrustState::Unknown, _) => Admission::Unknown,
        }
    }

    /// A quarantine that is over is over.
    pub(crate) fn tick(&mut self, now: BootTime) {
        if matches!(self.trust, TrustState::Withheld { until: Some(until), .. } if now >= until) {
            self.step = None;
            self.give();
        }
    }

    /// Whether the vote is withheld.
    pub(crate) fn is_withheld(&self) -> bool {
        matches!(self.trust, TrustState::Withheld { .. })
    }

    /// Whether the vote is withheld for what may be otherwise soon: what other nodes say, as soon as more are met; that
    /// this worker has met too few of them, while another worker marks the node; the set that is being replaced by ours.
    pub(crate) fn is_contradicted(&self) -> bool {
        match &self.trust {
            TrustState::Withheld {
                why: VoteRejection::Contradicted { .. } | VoteRejection::TooFewMet { .. },
                ..
            } => true,
            TrustState::Withheld { why: why @ VoteRejection::Replaced { .. }, .. } => !why.is_permanent(),
            _ => false,
        }
    }

    /// When [`NodeTrust::tick`] has something to do.
    pub(crate) fn wake(&self) -> Option<BootTime> {
        match &self.trust {
            TrustState::Withheld { until, .. } => *until,
            _ => None,
        }
    }

    /// Why the node may not vote now, if so.
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

    /// The marker that the node has, as far as we know.
    pub(crate) fn standing_marker(&self) -> Option<Arc<str>> {
        self.hello.as_ref().and_then(|hello| hello.marker.clone())
    }

    /// Whether the node's memory was lost since the last call.
    pub(crate) fn take_lost_memory(&mut self) -> bool {
        std::mem::take(&mut self.lost_memory)
    }

    /// What the node said of itself, with its time carried on to `now`: the judgement may have had to wait.
    fn hello_at(&self, now: BootTime) -> Option<Hello> {
        let hello = self.hello.clone()?;
        let waited = self.read_at.until(now);
        // A node's clock may be faster than ours: rather too late, for that only lengthens a quarantine.
        let passed = waited + waited.mul_f64(self.policy.config.drift_rate);
        Some(Hello { node_time: hello.node_time + passed, ..hello })
    }

    /// Votes count from the marking's time on.
    fn settle(&mut self, now: BootTime, marking: Marking) {
        let Marking { marker, mut from, mut reason, admits } = marking;
        match &self.step {
            Some(_) if admits => self.step = None,
            Some(step) if self.jump_over(step) > from => {
                (from, reason) = (self.jump_over(step), QuarantineReason::Jumped);
            }
            _ => {}
        }
        let remembers = self.memory.as_ref().is_some_and(|known| goes_on(known, &marker));
        if !remembers {
            self.lost_memory |= self.memory.is_some();
            self.registry.set_since(self.me, marker.since);
            self.begin_epoch();
        }
        self.registry.set_votes_from(self.me, marker.votes_from);
        self.memory = Some(marker);
        if from <= now {
            self.give();
        } else {
            self.withhold(Some(from), VoteRejection::Quarantined { reason, remaining: now.until(from) });
        }
    }

    /// Stops counting on what the node remembers, at once and for leases already held.
    fn lose_memory_unless(&mut self, same: impl FnOnce(&Marker) -> bool) {
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

    fn give(&mut self) {
        self.trust = TrustState::Given;
        self.registry.set_state(self.me, NodeState::Trusted);
    }

    fn withhold(&mut self, until: Option<BootTime>, why: VoteRejection) {
        let state = match until {
            Some(until) => NodeState::Quarantined { until, why: why.clone() },
            None => NodeState::Refused(why.clone()),
        };
        self.registry.set_state(self.me, state);
        self.trust = TrustState::Withheld { until, why };
    }
}

/// Whether the memory that `known` speaks of is still the one that counts: it began then, and nobody has put the
/// node in quarantine since.
fn goes_on(known: &Marker, now: &Marker) -> bool {
    known.since == now.since && now.votes_from <= known.votes_from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{QuorumConfig, SharedSettings},
        node::Cause,
    };
    use std::time::Duration;

    const NOW: BootTime = BootTime::from_nanos(1_000_000_000);
    const NODE_NOW: NodeTime = NodeTime::from_micros(1_700_000_000_000_000);

    fn hello(node: usize, nodes: Option<&str>) -> Hello {
        let run_id: Arc<str> = format!("run of {node}").into();
        let marker = nodes.map(|nodes| Marker {
            run_id: Arc::clone(&run_id),
            nodes: nodes.into(),
            settings: SharedSettings::of(&QuorumConfig::default()),
            since: NODE_NOW - Duration::from_secs(1000),
            votes_from: NODE_NOW - Duration::from_secs(900),
        });
        Hello {
            node_time: NODE_NOW,
            run_id,
            marker: marker.as_ref().map(Marker::to_text),
            uptime: Duration::from_secs(3600),
            version: "7".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: None,
            volatile: None,
        }
    }

    /// A worker with the list `a,b,c`, and its node registry.
    struct Worker {
        registry: Arc<NodeRegistry>,
        policy: Arc<TrustPolicy>,
    }

    impl Worker {
        fn new() -> Self {
            let names = ["a", "b", "c"].map(Arc::from);
            let policy = TrustPolicy { nodes: Marker::node_set(&names), config: QuorumConfig::default() };
            Self { registry: Arc::new(NodeRegistry::new(&names)), policy: Arc::new(policy) }
        }

        /// The node says hello, with this node set in its marker, and is judged for the first time.
        fn meets(&self, node: usize, nodes: Option<&str>) -> NodeTrust {
            let mut node_trust = NodeTrust::new(node, Arc::clone(&self.policy), Arc::clone(&self.registry));
            node_trust.met(NOW, hello(node, nodes));
            assert!(node_trust.policy(NOW).is_none() || nodes.is_none());
            node_trust
        }

        fn is_away(&self, node: usize) {
            self.registry.set_state(node, NodeState::Unreachable(Cause::TimedOut));
        }
    }

    /// A worker with the list `a,b,c` meets them all, with these node sets in their markers; returns for each whether it
    /// is marked, and the objection to the last.
    fn meets(markers: [Option<&str>; 3]) -> ([bool; 3], Option<VoteRejection>) {
        let worker = Worker::new();
        let mut all = [0, 1, 2].map(|node| worker.meets(node, markers[node]));
        let marks = [0, 1, 2].map(|node| all[node].policy(NOW).is_some());
        (marks, all[2].objection(NOW))
    }

    /// A worker that came up with three of five nodes, two of which were flushed, marked the two and led by
    /// them, while the others led by the rest of the five. Seed 347 of the simulation's plan `mistaken`.
    #[test]
    fn who_is_contradicted_marks_no_node_that_forgot() {
        let five = Some("a,b,c,d,e");
        let (marks, why) = meets([five, None, None]);
        assert_eq!(marks, [false; 3]);
        let text = why.unwrap().to_string();
        assert!(text.contains("while a speaks against it") && text.contains("[a,b,c,d,e]"), "{text}");
    }

    #[test]
    fn a_new_node_is_marked_where_no_marker_speaks_against_the_worker_or_a_majority_for_it() {
        let ours = Some("a,b,c");
        assert_eq!(meets([None, None, None]).0, [true; 3], "a new cluster");
        assert_eq!(meets([ours, ours, None]).0, [false, false, true]);
        assert_eq!(meets([Some("a,b"), ours, None]).0, [false; 3], "one word against one");
        assert_eq!(meets([Some("a,b"), None, ours]).0, [false; 3]);
        // A leftover on one node keeps no majority from taking back another that was flushed.
        let worker = Worker::new();
        let (_a, _b) = (worker.meets(0, ours), worker.meets(1, ours));
        let mut c = worker.meets(2, Some("a,b"));
        assert!(c.policy(NOW).is_none() && c.objection(NOW).unwrap().is_permanent());
        c.marker_changed(NOW, NODE_NOW, None);
        assert!(c.policy(NOW).is_some());
    }

    /// The worker met the two new nodes before the one that refuses its list, and had marked them by then.
    #[test]
    fn no_new_node_is_marked_before_every_node_was_met_or_found_away() {
        let worker = Worker::new();
        let (mut b, mut c) = (worker.meets(1, None), worker.meets(2, None));
        assert!(b.policy(NOW).is_none() && c.policy(NOW).is_none(), "a majority, but a is still being met");
        assert!(b.is_unknown() && b.awaits_others(), "voting requests wait");
        let _a = worker.meets(0, Some("a,x,y"));
        assert!(b.policy(NOW).is_none() && c.policy(NOW).is_none());
        assert!(matches!(b.objection(NOW), Some(VoteRejection::Contradicted { .. })));
    }

    #[test]
    fn a_majority_is_enough_where_the_others_are_away_and_less_is_not() {
        let worker = Worker::new();
        worker.is_away(0);
        let mut b = worker.meets(1, None);
        assert!(b.policy(NOW).is_none() && b.is_unknown());
        worker.is_away(2);
        assert!(b.policy(NOW).is_none() && b.awaits_others());
        assert_eq!(b.objection(NOW), Some(VoteRejection::TooFewMet { met: 1, needed: 2 }));
        assert!(matches!(b.admission(NOW), Admission::Refused(VoteRejection::TooFewMet { .. })));
        // The wait is on the node's clock, from when it is marked on.
        let mut c = worker.meets(2, None);
        let later = NOW + Duration::from_secs(5);
        let marking = b.policy(later).expect("a majority has been met");
        let quarantine = QuorumConfig::default().quarantine();
        assert!(marking.marker.since >= NODE_NOW + Duration::from_secs(5));
        assert_eq!(marking.marker.votes_from, marking.marker.since + quarantine);
        assert_eq!(marking.from, later + quarantine);
        assert!(c.policy(later).is_some());
        // Who was met once counts: a connection that breaks stops nothing.
        c.parted();
        b.marked(later, marking);
        b.marker_changed(later, NODE_NOW, None);
        assert!(b.policy(later).is_some());
    }

    #[test]
    fn a_restarted_node_is_marked_anew_at_once() {
        let worker = Worker::new();
        let mut a = NodeTrust::new(0, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
        a.met(NOW, Hello { run_id: "another run".into(), ..hello(0, Some("a,b,c")) });
        assert!(a.policy(NOW).is_some(), "its marker names this worker's list");
    }

    #[test]
    fn two_names_of_one_server_are_one_node_that_was_met() {
        let worker = Worker::new();
        worker.is_away(2);
        let mut a = worker.meets(0, None);
        let mut twin = NodeTrust::new(1, Arc::clone(&worker.policy), Arc::clone(&worker.registry));
        twin.met(NOW, hello(0, None));
        assert!(twin.policy(NOW).is_none() && a.policy(NOW).is_none());
        assert!(a.awaits_others());
    }
}
