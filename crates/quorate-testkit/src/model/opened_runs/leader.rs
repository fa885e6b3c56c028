//! The actions of a leader in the model of opened runs.

use super::{
    action::{Action, Ask, Choice},
    bounds::{OpenedRuns, Rule},
    node::{NodeReply, Question, Row, ask},
    record::{End, Stage, first_opened, memory_needed, time_of, voided},
    state::{
        Broken, COUNTED, FORGOT, FREE, IS_FREE, IS_LATE, IS_UNTAKEN, Leader, LeaderPhase, OLD, Site, State,
        WORKERS, YOUNG,
    },
    worker::{memory, owns, turn_of},
};
use crate::model::NODES;
use quorate::{
    claim::CloseTally,
    internals::{Answer, attempts::Turn, majority},
    node::Reply,
};

impl OpenedRuns {
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
            LeaderPhase::Elected => {
                let choices = [Choice::Follow, Choice::Open, Choice::Close(End::Skipped), Choice::Direct];
                let choices = &choices[..if self.direct { 4 } else { 3 }];
                actions.extend(choices.iter().map(|choice| Action::TakesOver(number, *choice)));
            }
            LeaderPhase::Writing => {
                actions.push(Action::Writes(number));
                if self.leaves_out(Rule::ClosedFirst) && it.end().is_some() {
                    actions.push(Action::Goes(number, Choice::Follow));
                }
            }
            LeaderPhase::Written => actions.push(Action::Goes(number, Choice::Follow)),
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
        let early = it.phase == LeaderPhase::Watching && self.leaves_out(Rule::PruneClosed);
        if self.prunes && (it.phase == LeaderPhase::Ended && it.end().is_some() || early) {
            actions.push(Action::Prunes(number));
        }
    }

    fn leader_requests(&self, it: &Leader, site: &Site, actor: usize, actions: &mut Vec<Action>) {
        let (number, answered) = (actor as u8, site.lines[actor] != 0);
        let mut asks = |ask| actions.push(Action::Asks(number, ask, site.name));
        let slot = || *site.core.slot(it.generation());
        match it.phase {
            LeaderPhase::Watching => {
                if matches!(slot().row, Row::Done | Row::Void) {
                    asks(Ask::Look);
                }
                if self.looks_free() || self.leaves_out(Rule::VoidByClaim) {
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
        if it.voids > 0 || it.phase == LeaderPhase::Voiding && self.leaves_out(Rule::OwnEnd) {
            asks(Ask::Void);
        }
    }

    pub(super) fn leader_asks(&self, state: &mut State, leader: usize, what: Ask, at: usize) -> Option<()> {
        let (actor, it) = (WORKERS + leader, state.leaders[leader]);
        let (owner, generation) = (actor as u8 + 1, it.generation());
        let live = self.is_live(state, actor);
        let site = &mut state.sites[at];
        let mut serve = |question| ask(&mut site.core, question, self.keeps_horizon());
        match what {
            Ask::Acquire if live => match serve(Question::Acquire { generation, owner }) {
                NodeReply::Granted { counted } => site.lines[actor] = if counted { COUNTED } else { FREE },
                NodeReply::Done { void } => state.finds_end(leader, void),
                _ => return None,
            },
            Ask::Extend if live => {
                serve(Question::Extend { generation, owner });
            }
            Ask::Count => match serve(Question::Count { generation, owner, withdraw: false }) {
                NodeReply::Done { void } => state.finds_end(leader, void),
                NodeReply::Counted if it.phase == LeaderPhase::Voiding => {
                    let Some(Stage::Open { at, .. }) = it.target else { return None };
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
                        state.finds_end(leader, slot.row == Row::Void);
                    }
                    (Ask::LookFree, Row::None | Row::Counted) => {
                        let Some(Stage::Open { at, .. }) = it.target else { return None };
                        let free = slot.owner == 0 || self.leaves_out(Rule::HorizonFree);
                        let late = free && site.core.is_past_horizon(generation);
                        let forgot = !memory(site.since).covers(time_of(at));
                        let untaken = free && slot.row == Row::None && self.leaves_out(Rule::VoidByClaim);
                        let bits =
                            [(free, IS_FREE), (late, IS_LATE), (forgot, FORGOT), (untaken, IS_UNTAKEN)];
                        let shown = bits.iter().filter(|(shows, _)| *shows);
                        site.lines[actor] = shown.fold(0, |line, (_, bit)| line | bit);
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn leader_goes(&self, state: &mut State, leader: usize, choice: Choice) -> Option<()> {
        let it = &mut state.leaders[leader];
        match (it.phase, choice) {
            (LeaderPhase::Watching, Choice::Follow) => it.phase = LeaderPhase::Claiming,
            (LeaderPhase::Voiding, Choice::GiveUp) => it.phase = LeaderPhase::Filling,
            (LeaderPhase::Written, Choice::Follow) if it.target == Some(Stage::Started) => {
                it.phase = LeaderPhase::Running;
                self.starts(state, None, 1);
            }
            (LeaderPhase::Written | LeaderPhase::Writing, Choice::Follow) => state.enters(leader)?,
            (LeaderPhase::Running, Choice::End) => {
                state.finished = true;
                state.leaders[leader].closes(End::Done);
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
        let answered = |line: &dyn Fn(u8) -> bool| {
            let of = state.sites.iter().filter(|site| nodes >> site.name.0 & 1 == 1);
            of.filter(|site| line(site.lines[actor])).count()
        };
        match it.phase {
            LeaderPhase::Watching => {
                let shown = |bit: u8| answered(&|line| line & bit != 0) >= majority(NODES);
                if !(shown(IS_LATE) || shown(IS_FREE) && shown(FORGOT) || shown(IS_UNTAKEN)) {
                    return None;
                }
                state.leaders[leader].loses(choice)?;
            }
            LeaderPhase::Claiming => match (turn_of(state, actor, nodes)?, choice) {
                (Turn::Begins(_), Choice::Follow) if self.leaves_out(Rule::VoidByCount) => {
                    state.leaders[leader].voids();
                }
                (Turn::Begins(_), Choice::Follow) => state.leaders[leader].phase = LeaderPhase::Voiding,
                (Turn::GivenUp(_), Choice::Follow) if !self.leaves_out(Rule::LostByCount) => {
                    state.leaders[leader].phase = LeaderPhase::Filling;
                }
                (Turn::GivenUp(_), choice) if self.leaves_out(Rule::LostByCount) => {
                    state.leaders[leader].loses(choice)?;
                }
                _ => return None,
            },
            LeaderPhase::Voiding if owns(state, actor, nodes, false) => state.leaders[leader].voids(),
            LeaderPhase::Filling => {
                let mut tally = CloseTally::new(NODES);
                (0..answered(&|line| line == OLD)).for_each(|_| tally.count(&Answer::Reply(Reply::Counted)));
                if !tally.is_closed() {
                    return None;
                }
                state.leaders[leader].loses(choice)?;
            }
            _ => return None,
        }
        state.clear(actor);
        Some(())
    }

    /// Lets a leader take the ledger over and decide from the run's record. The nodes refuse a leader whose term is
    /// not the latest.
    pub(super) fn leader_takes_over(&self, state: &mut State, leader: usize, choice: Choice) -> Option<()> {
        if state.ledger.term > Self::term(leader) {
            return None;
        }
        state.ledger.term = Self::term(leader);
        if state.ledger.pruned {
            return state.finds_pruned(leader, choice);
        }
        let it = &mut state.leaders[leader];
        it.target = state.ledger.record;
        match (state.ledger.record, choice) {
            (None, Choice::Open) => it.opens(first_opened(true)),
            (None, Choice::Close(end)) => it.closes(end),
            (None, Choice::Direct) => it.writes(Stage::Started),
            // The leader that wrote this record may have started the run.
            (Some(Stage::Started), Choice::Follow) => it.closes(End::Lost),
            (Some(Stage::Started), Choice::Open) if self.generations > 1 => {
                it.opens(first_opened(self.leaves_out(Rule::UnknownNext)));
            }
            (Some(Stage::Open { generation, at }), Choice::Follow) => {
                let at = if self.leaves_out(Rule::AtStays) { it.began } else { at };
                it.writes(Stage::Open { generation, at });
            }
            (Some(Stage::Closed(_)), Choice::Follow) => it.phase = LeaderPhase::Written,
            _ => return None,
        }
        Some(())
    }

    /// Lets the record that a leader writes take effect. The nodes refuse the write if another leader has taken the
    /// ledger over since.
    pub(super) fn leader_writes(&self, state: &mut State, leader: usize) -> Option<()> {
        if state.ledger.term != Self::term(leader) && !self.leaves_out(Rule::Fence) {
            return None;
        }
        let it = &mut state.leaders[leader];
        state.ledger.record = it.target;
        let open = it.target?.is_open();
        it.phase = if open { LeaderPhase::Watching } else { LeaderPhase::Written };
        Some(())
    }

    /// Lets a leader remove the run's record.
    pub(super) fn leader_prunes(&self, state: &mut State, leader: usize) -> Option<()> {
        let refused = state.ledger.term != Self::term(leader);
        (!refused).then(|| (state.ledger.record, state.ledger.pruned) = (None, true))
    }

    fn may_open_next(&self, it: &Leader) -> bool {
        it.generation() < self.generations
    }
}

impl State {
    /// Lets a leader end the run with the end that it found in the slot on one node. One node is enough,
    /// because only the slot's owner writes an end.
    fn finds_end(&mut self, leader: usize, void: bool) {
        let it = &mut self.leaders[leader];
        it.closes(if void { voided(it.generation()) } else { End::Done });
        self.clear(WORKERS + leader);
    }

    fn finds_pruned(&mut self, leader: usize, choice: Choice) -> Option<()> {
        if self.history.is_none() {
            self.breaks(Broken::Ended);
        }
        self.leaders[leader].phase = LeaderPhase::Ended;
        (choice == Choice::Follow).then_some(())
    }

    /// Enters the run's end into the history, as this leader has written it. If the history already has an
    /// entry, that entry stays.
    fn enters(&mut self, leader: usize) -> Option<()> {
        let end = self.leaders[leader].end()?;
        match self.history {
            Some(before) if before != end => self.breaks(Broken::Agreed),
            Some(_) => {}
            None if end == End::Skipped && self.started() => self.breaks(Broken::Skipped),
            None if end == End::Done && !self.finished => self.breaks(Broken::Done),
            None => {}
        }
        self.history.get_or_insert(end);
        self.leaders[leader].phase = LeaderPhase::Ended;
        Some(())
    }
}

impl Leader {
    /// Returns the generation that the leader has opened or continued. Returns 1 if the leader's record is
    /// not *open*.
    fn generation(&self) -> u8 {
        match self.target {
            Some(Stage::Open { generation, .. }) => generation,
            _ => 1,
        }
    }

    /// Returns the end that the leader gives to the run.
    fn end(&self) -> Option<End> {
        self.target.and_then(Stage::end)
    }

    fn writes(&mut self, record: Stage) {
        (self.target, self.phase) = (Some(record), LeaderPhase::Writing);
    }

    fn opens(&mut self, generation: u8) {
        self.writes(Stage::Open { generation, at: memory_needed(self.began) });
    }

    fn closes(&mut self, end: End) {
        self.writes(Stage::Closed(end));
    }

    /// Lets the owner of the slot end the run as not started.
    fn voids(&mut self) {
        self.voids = self.generation();
        self.closes(voided(self.voids));
    }

    /// Lets the leader end the generation as lost, and open the next one or close the run.
    fn loses(&mut self, choice: Choice) -> Option<()> {
        match choice {
            Choice::Open => self.opens(self.generation() + 1),
            Choice::Close(end) => self.closes(end),
            _ => return None,
        }
        Some(())
    }
}
