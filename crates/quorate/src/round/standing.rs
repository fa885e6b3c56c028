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
        match self.judge.judge(self.hello.as_ref()?, now) {
            Judgement::Votes { marker, from, reason } => {
                self.settle(now, Marking { marker, from, reason, admits: false });
                self.jump_to_be_told()
            }
            Judgement::Write { marker, from, reason } => {
                self.lose_memory_unless(|known| known.since == marker.since);
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
        let since = marker.as_deref().and_then(|text| Marker::parse(text).ok()).map(|marker| marker.since);
        hello.marker = marker;
        hello.node_time = node_time;
        self.trust = Trust::Unknown;
        self.lose_memory_unless(|known| since == Some(known.since));
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
        // A marker that was written by the clock as it is now was written after the jump.
        let told = memory.since > jump.node_time - jump.gained;
        if told || self.judge.setup.only_looks || !self.board.most_were_steady(jump.after, jump.heard) {
            return None;
        }
        let votes_from = jump.node_time + self.judge.setup.quarantine();
        let marker = Marker { since: jump.node_time, votes_from, ..memory.clone() };
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
        let remembers = self.memory.as_ref().is_some_and(|known| known.since == marker.since);
        if !remembers {
            self.lost_memory |= self.memory.is_some();
            self.begin_epoch(marker.since);
        }
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
            self.begin_epoch(self.board.since(self.me));
        }
    }

    fn begin_epoch(&self, since: NodeTime) {
        self.board.set_since(self.me, since);
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
