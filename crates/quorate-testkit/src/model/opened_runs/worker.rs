//! The actions of a worker in the model of opened runs.

use super::{
    action::{Action, Ask, Choice},
    bounds::{OpenedRuns, Rule},
    node::{NodeReply, Question, Row, ask},
    record::{Stage, TICK, takes, time_of},
    state::{COUNTED, FREE, LEADERS, Leader, LeaderPhase, OLD, Site, State, WORKERS, WorkerPhase, YOUNG},
};
use crate::model::NODES;
use quorate::{
    claim::{Memory, SlotTally},
    env::BootTime,
    internals::{
        Answer, ClaimTally, NodeEpoch, Verdict, Vote,
        attempts::{Turn, turn},
        majority,
    },
    node::{AttemptCount, FencingToken, NodeTime, Reply},
};
use std::time::Duration;

/// Returns the memory of a node that lost its data at the beginning of the epoch `since`. If `since` is 0, the
/// memory began before the tick.
pub(super) fn memory(since: u8) -> Memory {
    let since = if since == 0 { 0 } else { time_of(since) - 5 };
    Memory { since: NodeTime::from_micros(since), max_clock_offset: Duration::from_micros(1) }
}

/// Evaluates, with the shipped code, the grants of a slot's claim that an actor received from these nodes.
/// Returns whether the attempt may begin, as a [`Turn`]. Returns `None` without a majority of grants.
pub(super) fn turn_of(state: &State, actor: usize, nodes: u8) -> Option<Turn> {
    let mut tally = ClaimTally::of_claim(NODES);
    for site in state.sites.iter().filter(|site| nodes >> site.name.0 & 1 == 1) {
        let begun = match site.lines[actor] {
            FREE => None,
            COUNTED => Some(AttemptCount { attempts: 1, payload: None }),
            _ => continue,
        };
        tally.count(&Vote {
            node: site.name.0.into(),
            ticket: 0,
            sent: Some(BootTime::from_nanos(0)),
            memory: NodeEpoch::default(),
            answer: Answer::Reply(Reply::Granted { counter: FencingToken::new(7), begun }),
        });
    }
    (tally.verdict() == Verdict::Won).then(|| turn(tally.begun().map(|begun| begun.attempts), Some(1)))
}

/// Returns `true` if the counts at these nodes make the actor the owner of a slot. A node counts only if its
/// memory is old enough. If `any` is true, every node counts.
pub(super) fn owns(state: &State, actor: usize, nodes: u8, any: bool) -> bool {
    let mut tally = SlotTally::new(NODES, TICK);
    for site in state.sites.iter().filter(|site| nodes >> site.name.0 & 1 == 1) {
        let line = site.lines[actor];
        if line != 0 {
            let since = u8::from(line == YOUNG && !any);
            tally.count(memory(since), &Answer::Reply(Reply::Counted));
        }
    }
    tally.is_taken()
}

impl OpenedRuns {
    /// Returns `true` if the actor may still act on its claim, as far as the actor itself can see.
    pub(super) fn is_live(&self, state: &State, actor: usize) -> bool {
        !self.timed || !state.is_over(actor)
    }

    pub(super) fn worker_actions(&self, state: &State, worker: usize, actions: &mut Vec<Action>) {
        let (number, it) = (worker as u8, state.workers[worker]);
        let answered = |site: &Site| site.lines[worker] != 0;
        for site in &state.sites {
            let slot = || *site.core.slot(it.generation);
            let mut asks = |ask| actions.push(Action::Asks(number, ask, site.name));
            match it.phase {
                WorkerPhase::Acquiring if !answered(site) => asks(Ask::Acquire),
                WorkerPhase::Counting => {
                    if !answered(site) {
                        asks(Ask::Count);
                    }
                    if slot().owner == 0 {
                        asks(Ask::Extend);
                    }
                }
                WorkerPhase::Running => {
                    if slot().row == Row::None {
                        asks(Ask::Count);
                    }
                    if slot().owner == 0 {
                        asks(Ask::Extend);
                    }
                }
                WorkerPhase::TakingBack => {
                    asks(Ask::TakeBack);
                    if slot().owner == 0 {
                        asks(Ask::Extend);
                    }
                }
                WorkerPhase::Completing => asks(Ask::Complete),
                _ => {}
            }
        }
        match it.phase {
            WorkerPhase::Reading => {
                let open = |stage: Option<Stage>| stage.is_some_and(Stage::is_open);
                if open(state.ledger.record) {
                    actions.push(Action::Reads(number, None));
                }
                let writes = |it: &Leader| it.phase == LeaderPhase::Writing && open(it.target);
                let writing = (0..LEADERS).filter(|leader| writes(&state.leaders[*leader]));
                actions.extend(writing.map(|leader| Action::Reads(number, Some((WORKERS + leader) as u8))));
            }
            WorkerPhase::Acquiring => self.decides(state, worker, &[Choice::Follow], actions),
            WorkerPhase::Counting => {
                self.decides(state, worker, &[Choice::Follow], actions);
                if self.leaves_out(Rule::Kept) {
                    self.decides(state, worker, &[Choice::GiveUp], actions);
                }
            }
            WorkerPhase::Running => actions.push(Action::Goes(number, Choice::End)),
            _ => {}
        }
    }

    /// Lets a worker read the record in the ledger, which a majority of the nodes shows, or the record that a leader
    /// writes, which one node shows.
    pub(super) fn worker_reads(&self, state: &mut State, worker: usize, leader: Option<usize>) -> Option<()> {
        let (record, shown) = match leader {
            None => (state.ledger.record?, majority(NODES)),
            Some(leader) => (state.leaders[leader].target?, 1),
        };
        let nodes = if self.leaves_out(Rule::OpenMajority) { 1 } else { NODES };
        let (generation, at) = takes(record, shown, nodes)?;
        let it = &mut state.workers[worker];
        (it.phase, it.generation, it.at) = (WorkerPhase::Acquiring, generation, at);
        Some(())
    }

    pub(super) fn worker_asks(&self, state: &mut State, worker: usize, what: Ask, at: usize) -> Option<()> {
        let it = state.workers[worker];
        let (generation, owner) = (it.generation, worker as u8 + 1);
        let live = self.is_live(state, worker);
        let site = &mut state.sites[at];
        let mut serve = |question| ask(&mut site.core, question, self.keeps_horizon());
        match what {
            Ask::Acquire if live => match serve(Question::Acquire { generation, owner }) {
                NodeReply::Granted { counted } => site.lines[worker] = if counted { COUNTED } else { FREE },
                NodeReply::Done { .. } => self.worker_is_off(state, worker),
                _ => return None,
            },
            Ask::Extend if live => {
                serve(Question::Extend { generation, owner });
            }
            Ask::Count => match serve(Question::Count { generation, owner, withdraw: false }) {
                NodeReply::Superseded if !self.leaves_out(Rule::CountOnce) => return None,
                NodeReply::Counted | NodeReply::Superseded if it.phase == WorkerPhase::Counting => {
                    let older = memory(site.since).covers(time_of(it.at));
                    site.lines[worker] = if older { OLD } else { YOUNG };
                }
                NodeReply::Counted => {}
                _ => return None,
            },
            Ask::TakeBack => {
                serve(Question::Count { generation, owner, withdraw: true });
            }
            Ask::Complete => {
                serve(Question::Complete { generation, owner, void: false });
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn worker_decides(
        &self,
        state: &mut State,
        worker: usize,
        nodes: u8,
        choice: Choice,
    ) -> Option<()> {
        let it = state.workers[worker];
        match it.phase {
            WorkerPhase::Acquiring => match turn_of(state, worker, nodes)? {
                Turn::Begins(_) if self.leaves_out(Rule::Count) => self.worker_starts(state, worker),
                Turn::Begins(_) => state.workers[worker].phase = WorkerPhase::Counting,
                Turn::GivenUp(_) => self.worker_is_off(state, worker),
            },
            WorkerPhase::Counting => {
                let one = self.leaves_out(Rule::CountMajority) && nodes != 0;
                if !one && !owns(state, worker, nodes, self.leaves_out(Rule::CountMemory)) {
                    return None;
                }
                if choice == Choice::GiveUp {
                    state.workers[worker].phase = WorkerPhase::TakingBack;
                } else if self.is_live(state, worker) || self.leaves_out(Rule::Look) {
                    self.worker_starts(state, worker);
                } else {
                    return None;
                }
            }
            _ => return None,
        }
        state.clear(worker);
        Some(())
    }

    /// Adds the decisions that an actor can make now: each of `choices`, with the answers of each majority.
    pub(super) fn decides(&self, state: &State, actor: usize, choices: &[Choice], actions: &mut Vec<Action>) {
        let least = match self.without {
            Some(Rule::CountMajority) => 1,
            _ => majority(NODES) as u32,
        };
        let answered = state.sites.iter().filter(|site| site.lines[actor] != 0);
        let all = answered.fold(0_u8, |all, site| all | 1 << site.name.0);
        for nodes in (1..8_u8).filter(|nodes| nodes & !all == 0 && nodes.count_ones() >= least) {
            actions.extend(choices.iter().map(|choice| Action::Decides(actor as u8, nodes, *choice)));
        }
    }

    fn worker_starts(&self, state: &mut State, worker: usize) {
        let generation = state.workers[worker].generation;
        self.starts(state, Some(worker), generation);
        state.workers[worker].phase = WorkerPhase::Running;
    }

    fn worker_is_off(&self, state: &mut State, worker: usize) {
        state.workers[worker].phase = WorkerPhase::Off;
        state.clear(worker);
    }
}
