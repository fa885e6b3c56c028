use super::{
    Distrust, Marker, NodeState, QuarantineReason, Sabotage,
    board::Board,
    steps::Jump,
    trust::{Judge, Judgement},
};
use crate::{
    env::BootTime,
    node::{Hello, NodeTime},
};
use std::sync::Arc;

/// How one node stands with this worker: whether it may vote, and what of it is remembered. Pure but for the
/// notes it leaves on the board.
#[derive(Debug)]
pub(super) struct Standing {
    me: usize,
    judge: Arc<Judge>,
    board: Arc<Board>,
    trust: Trust,
    hello: Option<Hello>,
    /// The memory whose votes are being counted. It outlives a connection.
    memory: Option<Marker>,
    lost_memory: bool,
    /// The last jump of its clock against ours, while it keeps the node from voting.
    jump: Option<Jump>,
}

#[derive(Debug)]
enum Trust {
    /// Being found out: voting requests wait.
    Unknown,
    /// Not yet, or not at all.
    Withheld { until: Option<BootTime>, why: Distrust },
    /// Given.
    Given,
}

/// A marker that is to stand, and what holds once it does.
#[derive(Clone, Debug)]
pub(super) struct Marking {
    pub(super) marker: Marker,
    from: BootTime,
    reason: QuarantineReason,
    /// It ends the quarantine, whatever it was for.
    admits: bool,
}

/// What an admission comes to.
#[derive(Debug)]
pub(super) enum Admission {
    /// It votes already.
    Trusted,
    /// This marker ends its quarantine.
    Write(Marking),
    /// An operator must mend something first.
    Refused(Distrust),
    /// Not known yet.
    Unknown,
}

impl Standing {
    pub(super) fn new(me: usize, judge: Arc<Judge>, board: Arc<Board>) -> Self {
        Self {
            me,
            judge,
            board,
            trust: Trust::Unknown,
            hello: None,
            memory: None,
            lost_memory: false,
            jump: None,
        }
    }

    /// A new connection: all is to be judged anew.
    pub(super) fn met(&mut self, hello: Hello) {
        self.board.met(self.me, &hello.run_id, &hello.version);
        self.trust = Trust::Unknown;
        self.hello = Some(hello);
    }

    /// The connection is gone; what the node remembers is not.
    pub(super) fn parted(&mut self) {
        self.trust = Trust::Unknown;
        self.hello = None;
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.trust, Trust::Unknown)
    }

    /// Judges, if that is to be done. Gives the marker to be written first, if one is.
    pub(super) fn judge(&mut self, now: BootTime) -> Option<Marking> {
        if !self.is_unknown() {
            return self.jump_to_be_told();
        }
        match self.heed_the_others(self.judge.judge(self.hello.as_ref()?, now)) {
            Judgement::Votes { marker, from, reason } => {
                self.settle(now, Marking { marker, from, reason, admits: false });
                self.jump_to_be_told()
            }
            Judgement::Write { marker, from, reason } => {
                self.lose_memory_unless(|known| goes_on(known, &marker));
                Some(Marking { marker, from, reason, admits: false })
            }
            Judgement::Refused(why) => {
                // Whatever it granted while it voted no longer counts.
                self.lose_memory_unless(|_| false);
                self.withhold(None, why);
                None
            }
        }
    }

    /// The marker stands on the node.
    pub(super) fn marked(&mut self, now: BootTime, marking: Marking) {
        if let Some(hello) = &mut self.hello {
            hello.marker = Some(marking.marker.to_text());
        }
        self.settle(now, marking);
    }

    /// Another marker stands than was believed: what stands is to be judged. The run is still the same, for
    /// the connection is.
    pub(super) fn marker_changed(&mut self, node_time: NodeTime, marker: Option<Arc<str>>) {
        let Some(hello) = self.hello.as_mut().filter(|hello| hello.marker != marker) else { return };
        let standing = marker.as_deref().and_then(|text| Marker::parse(text).ok());
        hello.marker = marker;
        hello.node_time = node_time;
        self.trust = Trust::Unknown;
        if let (Some(known), Some(standing)) = (&self.memory, &standing)
            && known.since == standing.since
            && standing.votes_from < known.votes_from
        {
            // Somebody has admitted the node, a jump of its clock notwithstanding.
            self.jump = None;
        }
        self.lose_memory_unless(|known| standing.is_some_and(|marker| goes_on(known, &marker)));
    }

    /// The node's clock and ours have jumped against each other: leases on it may have ended early, so that it
    /// may grant what is held. At once it stops counting, and votes no sooner than after a quarantine.
    pub(super) fn jumped(&mut self, jump: Jump) {
        self.lose_memory_unless(|_| false);
        self.jump = Some(jump);
        if let Some(hello) = &mut self.hello {
            hello.node_time = jump.node_time;
        }
        self.trust = Trust::Unknown;
    }

    /// A jump of this one node's clock is told to all others in its marker, once it is clear that it was the
    /// node's: the others kept step with ours meanwhile. Until then it may have been ours.
    fn jump_to_be_told(&self) -> Option<Marking> {
        let (jump, memory) = (self.jump.as_ref()?, self.memory.as_ref()?);
        let Trust::Withheld { until: Some(_), .. } = self.trust else { return None };
        // Only a marker that was written by the clock as it is now, after the jump, waits for so long.
        let quarantine = self.judge.setup.quarantine();
        let told = memory.votes_from > jump.node_time - jump.gained + quarantine;
        if told || self.judge.setup.only_looks || !self.board.most_were_steady(jump.after, jump.heard) {
            return None;
        }
        // Its records and counters are what they were: only its leases may have ended early.
        let marker = Marker { votes_from: jump.node_time + quarantine, ..memory.clone() };
        Some(Marking { marker, from: self.jump_over(jump), reason: QuarantineReason::Jumped, admits: false })
    }

    fn jump_over(&self, jump: &Jump) -> BootTime {
        jump.heard + self.judge.setup.quarantine()
    }

    /// Ends the quarantine, if that is all that is against the node.
    pub(super) fn admission(&self, now: BootTime) -> Admission {
        if let Some(twin) = self.board.twin(self.me) {
            return Admission::Refused(Distrust::Twin(twin));
        }
        match (&self.trust, &self.memory) {
            (Trust::Given, _) => Admission::Trusted,
            (Trust::Withheld { until: Some(_), .. }, Some(memory)) => {
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
            (Trust::Withheld { why, .. }, _) => Admission::Refused(why.clone()),
            (Trust::Unknown, _) => Admission::Unknown,
        }
    }

    /// A quarantine that is over is over.
    pub(super) fn tick(&mut self, now: BootTime) {
        if matches!(self.trust, Trust::Withheld { until: Some(until), .. } if now >= until) {
            self.jump = None;
            self.give();
        }
    }

    /// Whether the vote is withheld.
    pub(super) fn is_withheld(&self) -> bool {
        matches!(self.trust, Trust::Withheld { .. })
    }

    /// Whether the vote is withheld for what may be otherwise soon: what other nodes say, as soon as more are met; the
    /// set that is being replaced by ours.
    pub(super) fn is_contradicted(&self) -> bool {
        match &self.trust {
            Trust::Withheld { why: Distrust::Contradicted { .. }, .. } => true,
            Trust::Withheld { why: why @ Distrust::Replaced { .. }, .. } => !why.is_permanent(),
            _ => false,
        }
    }

    /// When [`Standing::tick`] has something to do.
    pub(super) fn wake(&self) -> Option<BootTime> {
        match &self.trust {
            Trust::Withheld { until, .. } => *until,
            _ => None,
        }
    }

    /// Why the node may not vote now, if so.
    pub(super) fn objection(&self, now: BootTime) -> Option<Distrust> {
        if let Some(twin) = self.board.twin(self.me) {
            return Some(Distrust::Twin(twin));
        }
        match &self.trust {
            Trust::Withheld { until: Some(until), why: Distrust::Quarantined { reason, .. } } => {
                Some(Distrust::Quarantined { reason: *reason, remaining: now.until(*until) })
            }
            Trust::Withheld { why, .. } => Some(why.clone()),
            _ => None,
        }
    }

    /// The marker that the node has, as far as we know.
    pub(super) fn standing_marker(&self) -> Option<Arc<str>> {
        self.hello.as_ref().and_then(|hello| hello.marker.clone())
    }

    /// Whether the node's memory was lost since the last call.
    pub(super) fn take_lost_memory(&mut self) -> bool {
        std::mem::take(&mut self.lost_memory)
    }

    /// Notes what the node's marker says, and writes none where other nodes' markers speak against us.
    fn heed_the_others(&self, judgement: Judgement) -> Judgement {
        let word = match &judgement {
            Judgement::Votes { .. } => Some(Ok(())),
            Judgement::Write { reason, .. } => (*reason != QuarantineReason::Unmarked).then_some(Ok(())),
            Judgement::Refused(
                why @ (Distrust::OtherNodeSet { .. }
                | Distrust::OtherMaxTtl { .. }
                | Distrust::Replaced { .. }),
            ) => Some(Err(why.clone())),
            Judgement::Refused(_) => None,
        };
        self.board.heard(self.me, word);
        match (&judgement, self.board.contradiction()) {
            (Judgement::Write { reason: QuarantineReason::Unmarked, .. }, Some(why)) => {
                Judgement::Refused(why)
            }
            _ => judgement,
        }
    }

    /// Votes count from the marking's time on.
    fn settle(&mut self, now: BootTime, marking: Marking) {
        let Marking { marker, mut from, mut reason, admits } = marking;
        match &self.jump {
            Some(_) if admits => self.jump = None,
            Some(jump) if self.jump_over(jump) > from => {
                (from, reason) = (self.jump_over(jump), QuarantineReason::Jumped);
            }
            _ => {}
        }
        let remembers = self.memory.as_ref().is_some_and(|known| goes_on(known, &marker));
        if !remembers {
            self.lost_memory |= self.memory.is_some();
            self.board.set_since(self.me, marker.since);
            self.begin_epoch();
        }
        self.board.set_votes_from(self.me, marker.votes_from);
        self.memory = Some(marker);
        if from <= now {
            self.give();
        } else {
            self.withhold(Some(from), Distrust::Quarantined { reason, remaining: now.until(from) });
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
        if !self.judge.setup.sabotaged(Sabotage::ForgettersCount) {
            self.board.begin_epoch(self.me);
        }
    }

    fn give(&mut self) {
        self.trust = Trust::Given;
        self.board.set_state(self.me, NodeState::Trusted);
    }

    fn withhold(&mut self, until: Option<BootTime>, why: Distrust) {
        let state = match until {
            Some(until) => NodeState::Quarantined { until, why: why.clone() },
            None => NodeState::Refused(why.clone()),
        };
        self.board.set_state(self.me, state);
        self.trust = Trust::Withheld { until, why };
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
    use crate::round::Setup;
    use std::time::Duration;

    const NOW: BootTime = BootTime::from_nanos(1_000_000_000);
    const NODE_NOW: NodeTime = NodeTime::from_micros(1_700_000_000_000_000);

    fn hello(node: usize, nodes: Option<&str>) -> Hello {
        let run_id: Arc<str> = format!("run of {node}").into();
        let marker = nodes.map(|nodes| Marker {
            run_id: Arc::clone(&run_id),
            nodes: nodes.into(),
            max_ttl: Setup::default().max_ttl,
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
        }
    }

    /// A worker that was told `a,b,c` meets them, with these node sets in their markers, in this order; each
    /// says whether a marker is to be written.
    fn meets(markers: [Option<&str>; 3]) -> ([bool; 3], Option<Distrust>) {
        let names = ["a", "b", "c"].map(Arc::from);
        let board = Arc::new(Board::new(&names));
        let judge = Arc::new(Judge { nodes: Marker::node_set(&names), setup: Setup::default() });
        let mut objection = None;
        let writes = [0, 1, 2].map(|node| {
            let mut standing = Standing::new(node, Arc::clone(&judge), Arc::clone(&board));
            standing.met(hello(node, markers[node]));
            let writes = standing.judge(NOW).is_some();
            objection = standing.objection(NOW);
            writes
        });
        (writes, objection)
    }

    /// A worker that came up with three of five nodes, two of which were flushed, marked the two and led by
    /// them, while the others led by the rest of the five. Seed 347 of the simulation's plan `mistaken`.
    #[test]
    fn who_is_contradicted_marks_no_node_that_forgot() {
        let five = Some("a,b,c,d,e");
        let (writes, why) = meets([five, None, None]);
        assert_eq!(writes, [false; 3]);
        let text = why.unwrap().to_string();
        assert!(text.contains("while a speaks against it") && text.contains("[a,b,c,d,e]"), "{text}");
    }

    #[test]
    fn one_foreign_marker_keeps_nobody_from_marking_whom_more_nodes_agree_with() {
        let ours = Some("a,b,c");
        assert_eq!(meets([None, None, None]).0, [true; 3], "a new cluster");
        assert_eq!(meets([ours, ours, None]).0, [false, false, true]);
        assert_eq!(meets([Some("a,b"), ours, None]).0, [false; 3], "one word against one");
        let (writes, _) = meets([Some("a,b"), None, ours]);
        assert_eq!(writes, [false; 3], "the order of the meetings decides nothing but when to ask again");
    }
}
