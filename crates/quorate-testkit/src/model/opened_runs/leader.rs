//! The actions of a leader in the model of opened runs.

use super::{
    action::{Action, Ask, Choice},
    bounds::{OpenedRuns, Plan, Rule},
    node::{NodeReply, Question, Row, ask},
    proposed::{first_opened, goes_forward, inherited, latest, memory_needed, overwrites, voided},
    record::{End, Mark, Stage, TICK},
    state::{Broken, COUNTED, FREE, Found, Leader, LeaderPhase, OLD, Site, State, WORKERS, YOUNG},
    worker::{memory, owns, time_of, turn_of},
};
use crate::model::NODES;
use quorate::{
    claim::CloseTally,
    env::WallTime,
    internals::{Answer, attempts::Turn, majority},
    internals::{NodeAnswer, RunVerdict, verdict},
    ledger::{WriteTally, WriteVerdict},
    node::{Record, Reply},
};
use std::time::Duration;

/// The state of the run, as the answers to a seal show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SealedState {
    /// A majority of the sealed nodes remembers the tick, and no node has a record.
    Absent,
    /// No majority of the sealed nodes remembers the tick, and no node has a record.
    Unknown,
    /// The tick is below the low-water mark.
    Pruned,
    /// At least one sealed node has a record of the run. The first field is the record from which the leader
    /// continues. The second field is `true` if a majority of the sealed nodes remembers the tick.
    Record(Mark, bool),
}

impl OpenedRuns {
    /// Evaluates the answers to a seal with the shipped [`verdict`], and returns the state of the run.
    /// Returns `None` if the answers are no majority.
    pub(super) fn says(&self, found: &[Found]) -> Option<SealedState> {
        let finals = self.options().finals;
        let marks = found.iter().map(|one| one.mark);
        let decides = match self.leaves_out(Rule::Latest) {
            true => marks.max_by_key(|mark| (mark.end().is_some(), *mark)).unwrap_or(Mark::NONE),
            false => latest(marks),
        };
        let decides = decides.record(finals);
        let view = |(at, one): (usize, &Found)| NodeAnswer {
            since: memory(u8::from(!one.older && !self.leaves_out(Rule::SealMemory))).since,
            low_water: if one.pruned { TICK + 1 } else { 0 },
            // The verdict depends on the deciding record, and not on the node that stores it. Here the first
            // node stores the record.
            record: decides.as_ref().filter(|_| at == 0),
        };
        let views: [NodeAnswer<'_>; NODES] = std::array::from_fn(|at| {
            found.get(at).map_or(NodeAnswer { since: memory(0).since, low_water: 0, record: None }, |one| {
                view((at, one))
            })
        });
        let remembering = found.iter().filter(|one| one.older).count() >= majority(NODES);
        let weighed = |record: &Record| Some(SealedState::Record(Mark::of_record(record), remembering));
        let views = &views[..found.len()];
        match verdict(views, majority(NODES), WallTime::from_micros(TICK), Duration::from_micros(1)) {
            RunVerdict::NotStarted => Some(SealedState::Absent),
            RunVerdict::Started { record, .. }
            | RunVerdict::Opened { record }
            | RunVerdict::Final { record } => weighed(&record),
            RunVerdict::Unknown => Some(SealedState::Unknown),
            RunVerdict::Pruned => Some(SealedState::Pruned),
            RunVerdict::NoQuorum => None,
        }
    }

    fn term(leader: usize) -> u8 {
        leader as u8 + 1
    }

    pub(super) fn leader_actions(&self, state: &State, leader: usize, actions: &mut Vec<Action>) {
        let (actor, it) = (WORKERS + leader, &state.leaders[leader]);
        for site in &state.sites {
            self.leader_requests(it, site, actor, actions);
        }
        let number = actor as u8;
        let closes = [Choice::Close(End::Lost), Choice::Open];
        // If no further generation is permitted, the leader can only close the run as *lost*.
        let closes = &closes[..if self.may_open_next(it) { 2 } else { 1 }];
        match it.phase {
            LeaderPhase::Waiting
                if leader == 0 || state.leaders[leader - 1].phase != LeaderPhase::Waiting =>
            {
                actions.push(Action::Elected(number));
            }
            LeaderPhase::Sealing => {
                let choices = [Choice::Follow, Choice::Open, Choice::Close(End::Skipped), Choice::Direct];
                self.decides(state, actor, &choices[..if self.direct { 4 } else { 3 }], actions);
            }
            LeaderPhase::Writing => {
                self.decides(state, actor, &[Choice::Follow], actions);
                if self.leaves_out(Rule::ClosedFirst) && it.target.end().is_some() {
                    actions.push(Action::Goes(number, Choice::Follow));
                }
            }
            LeaderPhase::Watching => {
                actions.push(Action::Goes(number, Choice::Follow));
                if self.leaves_out(Rule::VoidByClaim) {
                    self.decides(state, actor, &[Choice::Close(End::Skipped)], actions);
                } else if self.looks_free() {
                    self.decides(state, actor, closes, actions);
                }
            }
            LeaderPhase::Claiming => {
                self.decides(state, actor, &[Choice::Follow], actions);
                if self.leaves_out(Rule::LostByCount) {
                    self.decides(state, actor, closes, actions);
                }
            }
            LeaderPhase::Voiding => {
                self.decides(state, actor, &[Choice::Follow], actions);
                actions.push(Action::Goes(number, Choice::GiveUp));
            }
            LeaderPhase::Filling => self.decides(state, actor, closes, actions),
            LeaderPhase::Running => actions.push(Action::Goes(number, Choice::End)),
            _ => {}
        }
    }

    fn leader_requests(&self, it: &Leader, site: &Site, actor: usize, actions: &mut Vec<Action>) {
        let (number, answered) = (actor as u8, site.lines[actor] != 0);
        let mut asks = |ask| actions.push(Action::Asks(number, ask, site.name));
        let slot = || *site.core.slot(it.generation());
        match it.phase {
            LeaderPhase::Sealing if !answered => asks(Ask::Seal),
            LeaderPhase::Writing if !answered => asks(Ask::Write),
            LeaderPhase::Watching => {
                if matches!(slot().row, Row::Done | Row::Void) {
                    asks(Ask::Look);
                }
                if !answered && (self.looks_free() || self.leaves_out(Rule::VoidByClaim)) {
                    asks(Ask::LookFree);
                }
            }
            LeaderPhase::Claiming if !answered => asks(Ask::Acquire),
            LeaderPhase::Voiding | LeaderPhase::Filling => {
                if !answered {
                    asks(Ask::Count);
                }
                if slot().owner == 0 {
                    asks(Ask::Extend);
                }
            }
            _ => {}
        }
        let ended = it.phase == LeaderPhase::Ended && it.target.end().is_some();
        if it.voids > 0 && (it.phase == LeaderPhase::Writing || ended)
            || it.phase == LeaderPhase::Voiding && self.leaves_out(Rule::OwnEnd)
        {
            asks(Ask::Void);
        }
        if !it.opened[0].is_none() && (it.phase != LeaderPhase::Writing || it.target != it.opened[0]) {
            asks(Ask::WriteLate);
        }
        if it.phase == LeaderPhase::Writing
            && site.core.mark > it.seen
            && site.core.mark.term() < it.target.term()
        {
            actions.push(Action::Meets(number, site.name));
        }
        let early = it.phase == LeaderPhase::Watching && self.leaves_out(Rule::PruneClosed);
        if self.prunes && (ended || early) {
            actions.push(Action::Asks(number, Ask::Prune, site.name));
        }
    }

    pub(super) fn leader_asks(&self, state: &mut State, leader: usize, what: Ask, at: usize) -> Option<()> {
        let (actor, term, it) = (WORKERS + leader, Self::term(leader), state.leaders[leader]);
        let (owner, generation) = (actor as u8 + 1, it.generation());
        let live = self.is_live(state, actor);
        let site = &mut state.sites[at];
        let before = site.core;
        let mut serve = |question| ask(&mut site.core, question, self.options());
        match what {
            Ask::Seal => {
                let sealed =
                    serve(if self.leaves_out(Rule::Seal) { Question::Read } else { Question::Seal(term) });
                if sealed == NodeReply::Refused {
                    return None;
                }
                let found = Found { mark: site.core.mark, older: site.since == 0, pruned: site.core.pruned };
                site.lines[actor] = found.line();
            }
            Ask::Write => {
                let mut node_reply = serve(Question::Write { term, seen: it.seen, mark: it.target });
                if let NodeReply::Conflict(met) = node_reply
                    && (overwrites(it.target, it.seen, met, it.remembering)
                        || self.leaves_out(Rule::MeetsLater))
                {
                    node_reply = serve(Question::Write { term, seen: met, mark: it.target });
                }
                if node_reply != NodeReply::Written {
                    return None;
                }
                let needed = memory_needed(TICK, time_of(it.at));
                let any = self.leaves_out(Rule::ClosedMemory) && it.target.end().is_some();
                site.lines[actor] = if any || memory(site.since).covers(needed) { OLD } else { YOUNG };
            }
            Ask::WriteLate => {
                let [mark, seen] = it.opened;
                serve(Question::Write { term, seen, mark });
            }
            Ask::Acquire if live => match serve(Question::Acquire { generation, owner }) {
                NodeReply::Granted { counted } => site.lines[actor] = if counted { COUNTED } else { FREE },
                NodeReply::Done { void } => self.finds_end(state, leader, void),
                _ => return None,
            },
            Ask::Extend if live => {
                serve(Question::Extend { generation, owner });
            }
            Ask::Count => match serve(Question::Count { generation, owner, withdraw: false }) {
                NodeReply::Done { void } => self.finds_end(state, leader, void),
                NodeReply::Counted if it.phase == LeaderPhase::Voiding => {
                    let Some(Stage::Open { at, .. }) = it.target.stage() else { return None };
                    let older = memory(site.since).covers(time_of(at)) || self.leaves_out(Rule::VoidMemory);
                    site.lines[actor] = if older { OLD } else { YOUNG };
                }
                NodeReply::Counted | NodeReply::Superseded if it.phase == LeaderPhase::Filling => {
                    site.lines[actor] = OLD;
                }
                _ => return None,
            },
            Ask::Void => {
                let generation = if it.voids > 0 { it.voids } else { generation };
                serve(Question::Complete { generation, owner, void: true });
            }
            Ask::Look | Ask::LookFree => {
                serve(Question::Inspect { generation });
                let slot = *site.core.slot(generation);
                match (what, slot.row) {
                    (Ask::Look, Row::Done | Row::Void) => {
                        self.finds_end(state, leader, slot.row == Row::Void);
                    }
                    (Ask::LookFree, Row::None | Row::Counted) => {
                        let free = slot.owner == 0;
                        let late = site.core.is_past_horizon(generation);
                        let look = self.leaves_out(Rule::VoidByClaim) && free && slot.row == Row::None;
                        let Some(Stage::Open { at, .. }) = it.target.stage() else { return None };
                        let young = !memory(site.since).covers(time_of(at));
                        if !look && !((late || young) && (free || self.leaves_out(Rule::HorizonFree))) {
                            return None;
                        }
                        site.lines[actor] = FREE;
                    }
                    _ => return None,
                }
            }
            Ask::Prune => {
                serve(Question::Prune(term));
                return (site.core != before).then_some(());
            }
            _ => return None,
        }
        Some(())
    }

    /// Lets a leader that is writing continue from the record that it found on the node at index `at`.
    pub(super) fn leader_meets(&self, state: &mut State, leader: usize, at: usize) -> Option<()> {
        let (it, met) = (state.leaders[leader], state.sites[at].core.mark);
        if overwrites(it.target, it.seen, met, it.remembering) && !self.leaves_out(Rule::Forward) {
            return None;
        }
        self.takes(state, leader, met, it.remembering);
        let forward = goes_forward(it.target, state.leaders[leader].target);
        (forward || self.leaves_out(Rule::Forward)).then_some(())
    }

    pub(super) fn leader_goes(&self, state: &mut State, leader: usize, choice: Choice) -> Option<()> {
        let it = &mut state.leaders[leader];
        match (it.phase, choice) {
            (LeaderPhase::Watching, Choice::Follow) => it.phase = LeaderPhase::Claiming,
            (LeaderPhase::Voiding, Choice::GiveUp) => it.phase = LeaderPhase::Filling,
            (LeaderPhase::Writing, Choice::Follow) => self.enters(state, leader)?,
            (LeaderPhase::Running, Choice::End) => {
                state.finished = true;
                self.closes(state, leader, End::Done);
            }
            _ => return None,
        }
        state.clear(WORKERS + leader);
        Some(())
    }

    pub(super) fn leader_decides(
        &self,
        state: &mut State,
        leader: usize,
        nodes: u8,
        choice: Choice,
    ) -> Option<()> {
        let (actor, it) = (WORKERS + leader, state.leaders[leader]);
        let answered = |line: fn(u8) -> bool| {
            let of = state.sites.iter().filter(|site| nodes >> site.name.0 & 1 == 1);
            of.filter(|site| line(site.lines[actor])).count()
        };
        match it.phase {
            LeaderPhase::Sealing => self.has_sealed(state, leader, nodes, choice)?,
            LeaderPhase::Writing => {
                let mut tally = WriteTally::new(NODES, TICK);
                for line in state.sites.iter().filter(|site| nodes >> site.name.0 & 1 == 1) {
                    let line = line.lines[actor];
                    tally.count(memory(u8::from(line == YOUNG)), &Answer::Reply(Reply::Written));
                }
                if tally.verdict() != WriteVerdict::Written {
                    return None;
                }
                self.has_written(state, leader)?;
            }
            LeaderPhase::Watching if answered(|line| line == FREE) >= majority(NODES) => {
                self.loses(state, leader, choice)?;
            }
            LeaderPhase::Claiming => match (turn_of(state, actor, nodes)?, choice) {
                (Turn::Begins(_), Choice::Follow) if self.leaves_out(Rule::VoidByCount) => {
                    self.voids(state, leader);
                }
                (Turn::Begins(_), Choice::Follow) => state.leaders[leader].phase = LeaderPhase::Voiding,
                (Turn::GivenUp(_), Choice::Follow) if !self.leaves_out(Rule::LostByCount) => {
                    state.leaders[leader].phase = LeaderPhase::Filling;
                }
                (Turn::GivenUp(_), choice) if self.leaves_out(Rule::LostByCount) => {
                    self.loses(state, leader, choice)?;
                }
                _ => return None,
            },
            LeaderPhase::Voiding if owns(state, actor, nodes, false) => self.voids(state, leader),
            LeaderPhase::Filling => {
                let mut tally = CloseTally::new(NODES);
                (0..answered(|line| line == OLD)).for_each(|_| tally.count(&Answer::Reply(Reply::Counted)));
                if !tally.is_closed() {
                    return None;
                }
                self.loses(state, leader, choice)?;
            }
            _ => return None,
        }
        state.clear(actor);
        Some(())
    }

    fn has_sealed(&self, state: &mut State, leader: usize, nodes: u8, choice: Choice) -> Option<()> {
        let of = state.sites.iter().filter(|site| nodes >> site.name.0 & 1 == 1);
        let found: Vec<Found> = of.filter_map(|site| Found::of_line(site.lines[WORKERS + leader])).collect();
        let plan = self.plans[leader];
        match (self.says(&found)?, choice) {
            (SealedState::Record(mark, remembering), Choice::Follow) => {
                state.leaders[leader].remembering = remembering;
                self.takes(state, leader, mark, remembering);
            }
            (SealedState::Absent, Choice::Open) if plan != Plan::Skips => {
                state.leaders[leader].remembering = true;
                self.opens(state, leader, 1);
            }
            (SealedState::Absent, Choice::Close(end)) if plan != Plan::Opens => {
                state.leaders[leader].remembering = true;
                self.closes(state, leader, end);
            }
            (SealedState::Absent, Choice::Direct) if plan == Plan::Any => {
                let it = &mut state.leaders[leader];
                (it.remembering, it.phase) = (true, LeaderPhase::Writing);
                it.target = Mark::new(Self::term(leader), Stage::Started);
            }
            (SealedState::Unknown, Choice::Follow) => self.closes(state, leader, End::Lost),
            (SealedState::Unknown, Choice::Open) if self.generations > 1 => {
                let generation = first_opened(self.leaves_out(Rule::UnknownNext));
                self.opens(state, leader, generation);
            }
            (SealedState::Pruned, Choice::Follow) => {
                state.leaders[leader].phase = LeaderPhase::Ended;
                if state.history.is_none() {
                    state.breaks(Broken::Ended);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Lets a leader continue from `mark`, the record that it found.
    fn takes(&self, state: &mut State, leader: usize, mark: Mark, remembering: bool) {
        state.leaders[leader].target = mark;
        match mark.stage() {
            Some(Stage::Open { generation, at }) => {
                let it = &mut state.leaders[leader];
                let at = if self.leaves_out(Rule::AtStays) { it.at } else { at };
                it.target = Mark::new(Self::term(leader), Stage::Open { generation, at });
                it.seen = mark;
                it.opened = [it.target, mark];
                it.phase = LeaderPhase::Writing;
            }
            Some(Stage::Closed(end)) => {
                let remembering = remembering || self.leaves_out(Rule::SkipMemory);
                self.closes(state, leader, inherited(end, remembering));
            }
            // The leader that wrote this record may have started the run. Under at-most-once, the run must not
            // start again.
            Some(Stage::Started) | None => self.closes(state, leader, End::Lost),
        }
        state.clear(WORKERS + leader);
    }

    fn opens(&self, state: &mut State, leader: usize, generation: u8) {
        let epoch = state.epoch;
        let it = &mut state.leaders[leader];
        if self.leaves_out(Rule::AtOfTerm) {
            it.at = epoch;
        }
        it.seen = it.target;
        it.target = Mark::new(Self::term(leader), Stage::Open { generation, at: it.at });
        it.opened = [it.target, it.seen];
        it.phase = LeaderPhase::Writing;
    }

    fn closes(&self, state: &mut State, leader: usize, end: End) {
        let it = &mut state.leaders[leader];
        it.seen = it.target;
        it.target = Mark::new(Self::term(leader), Stage::Closed(end));
        it.phase = LeaderPhase::Writing;
    }

    fn voids(&self, state: &mut State, leader: usize) {
        let generation = state.leaders[leader].generation();
        state.leaders[leader].voids = generation;
        self.closes(state, leader, voided(generation));
    }

    /// Lets a leader end the run with the end that it found in the slot on one node. One node is enough,
    /// because only the slot's owner writes an end.
    fn finds_end(&self, state: &mut State, leader: usize, void: bool) {
        let end = if void { voided(state.leaders[leader].generation()) } else { End::Done };
        self.closes(state, leader, end);
        state.clear(WORKERS + leader);
    }

    fn may_open_next(&self, it: &Leader) -> bool {
        it.generation() < self.generations
    }

    fn loses(&self, state: &mut State, leader: usize, choice: Choice) -> Option<()> {
        match choice {
            Choice::Open => self.opens(state, leader, state.leaders[leader].generation() + 1),
            Choice::Close(end) => self.closes(state, leader, end),
            _ => return None,
        }
        Some(())
    }

    fn has_written(&self, state: &mut State, leader: usize) -> Option<()> {
        match state.leaders[leader].target.stage()? {
            Stage::Open { .. } => state.leaders[leader].phase = LeaderPhase::Watching,
            Stage::Started => {
                self.starts(state, None, 1);
                state.leaders[leader].phase = LeaderPhase::Running;
            }
            Stage::Closed(_) => self.enters(state, leader)?,
        }
        Some(())
    }

    /// Enters the run's end into the history, as this leader has written it. If the history already has an
    /// entry, that entry stays.
    fn enters(&self, state: &mut State, leader: usize) -> Option<()> {
        let end = state.leaders[leader].target.end()?;
        match state.history {
            Some(before) if before != end && self.remembers() => state.breaks(Broken::Agreed),
            Some(_) => {}
            None if end == End::Skipped && state.started() => state.breaks(Broken::Skipped),
            None if end == End::Done && !state.finished => state.breaks(Broken::Done),
            None => {}
        }
        state.history.get_or_insert(end);
        state.leaders[leader].phase = LeaderPhase::Ended;
        Some(())
    }
}

impl Leader {
    /// Returns the generation that the leader has opened or continued. Returns 1 if the leader's record is
    /// not *open*.
    fn generation(&self) -> u8 {
        match self.target.stage() {
            Some(Stage::Open { generation, .. }) => generation,
            _ => 1,
        }
    }
}
