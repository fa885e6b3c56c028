//! Opened runs: a leader opens a run in the sealed ledger, and a worker takes the run through a *slot*. A
//! slot is a claim of which at most one attempt is ever counted. `docs/design/scheduler.md` describes the
//! protocol. Each [`Rule`] names its number on that page.
//!
//! # Status
//!
//! These parts are the shipped code: the engine, the tallies of acquires, of writes and of slots, the turn of
//! an attempt, the verdict of a seal, and the memory rule. The other decisions are in `proposed.rs`, on
//! packed records. The tests of `proposed.rs` compare them with the shipped decisions for every pair of
//! records.
//!
//! # Not covered
//!
//! The model covers one run, three nodes, at most two generations, three terms and two lost memories, and one
//! attempt of each worker. It does not cover more of any of these, and it does not cover:
//!
//! * liveness, and retries of a leader that lost the claim of a slot;
//! * fencing tokens: every grant has the same token, so only the owner check can refuse a *complete*. The
//!   model thus permits more than the engine;
//! * quarantine: a node that forgot serves at once. This also permits more than the engine;
//! * the leader's lease: no leader stops because its term is over.
//!
//! # Scope
//!
//! The model has three nodes, one run, up to three workers, and up to three leaders. The terms of the leaders
//! are unique and grow. A request runs at any later moment or never, and its answer arrives at once. An actor
//! decides at any later moment, on the answers of any majority. A late decision therefore covers the case of
//! a late reply. The following requests may run after the actor's phase has ended: acquires, extensions,
//! counts, *void*, *done*, and the write of a leader's last *open* record.
//!
//! A lease on a slot expires on each node at any moment. If the model is *timed*, the lease expires only after its
//! owner's own deadline. At that deadline the owner stops acquiring and does not start the run.
//!
//! A node may forget everything, or come back with an *open* record and nothing else. Memories are ordered by
//! number: the model stores for each node after which loss its memory began. The `at` of an *open* record is
//! such a number of losses too ([`Rule::AtOfTerm`]). The horizon of a slot passes on each node at any moment.
//! The node then removes the slot's row.
//!
//! The properties [`NEXT`] and [`FINAL`] ask which state one more leader would find if it sealed any two
//! nodes now. A model of two leaders therefore covers the seal of a third leader.

mod action;
mod bounds;
mod leader;
mod node;
mod proposed;
mod record;
mod script;
mod state;
mod worker;

pub use action::{Action, Ask, Choice};
pub use bounds::{AGREED, ALONE, CLOSED, DONE, ENDED, FINAL, NEXT, ONCE, OpenedRuns, Plan, Rule, SKIPPED};
pub use record::{End, GENERATIONS};
pub use script::From;
pub use state::{LEADERS, State, WORKERS};

use super::{NODES, Name};
use leader::SealedState;
use node::{Core, RequestOptions, Row};
use proposed::inherited;
use record::{Mark, Stage};
use state::{Broken, Found, Leader, LeaderPhase, Site, Worker, WorkerPhase};
use stateright::{Model, Property};

impl OpenedRuns {
    fn options(&self) -> RequestOptions {
        RequestOptions { finals: self.leaves_out(Rule::Latest), horizon: !self.leaves_out(Rule::Horizon) }
    }

    /// Counts the start of a handler, of a worker or of a leader. If the start breaks a property, notes that
    /// property.
    fn starts(&self, state: &mut State, worker: Option<usize>, generation: u8) {
        let starts = &mut state.starts[usize::from(generation) - 1];
        *starts = (*starts + 1).min(2);
        let excludes = self.timed && self.remembers() && worker.is_some();
        let runs = |other: usize| state.workers[other].phase == WorkerPhase::Running && !state.is_over(other);
        if state.starts[usize::from(generation) - 1] > 1 && self.counts_starts() {
            state.breaks(Broken::Once);
        } else if state.history == Some(End::Skipped) {
            state.breaks(Broken::Skipped);
        } else if excludes && state.history.is_some() {
            state.breaks(Broken::Closed);
        } else if excludes && (0..WORKERS).any(runs) {
            state.breaks(Broken::Alone);
        }
    }

    fn environment(&self, state: &State, actions: &mut Vec<Action>) {
        let owns = |actor: u8| {
            let owned = |site: &Site| site.core.slots.iter().any(|slot| slot.owner == actor + 1);
            state.sites.iter().any(owned)
        };
        if self.timed {
            let over = (0..6).filter(|actor| !state.is_over(usize::from(*actor)) && owns(*actor));
            actions.extend(over.map(Action::Over));
        }
        for site in &state.sites {
            for (generation, slot) in (1..).zip(&site.core.slots) {
                if slot.owner > 0 && (!self.timed || state.is_over(usize::from(slot.owner) - 1)) {
                    actions.push(Action::Expires(generation, site.name));
                }
            }
            if state.epoch - state.returned < self.forgets {
                actions.push(Action::Forgets(site.name));
            }
            let open = matches!(site.core.mark.stage(), Some(Stage::Open { .. }));
            if state.returned < self.returns && open {
                actions.push(Action::Returns(site.name));
            }
            if self.horizon && site.core.late < self.generations {
                actions.push(Action::Horizon(site.name));
            }
        }
    }

    /// Returns `true` if one more leader could now find a state for which `wrong` returns `true`, by sealing
    /// two of the nodes.
    fn any_next(&self, state: &State, wrong: impl Fn(SealedState) -> bool) -> bool {
        let found = state.sites.map(|site| Found {
            mark: site.core.mark,
            older: site.since == 0,
            pruned: site.core.pruned,
        });
        let pairs = [[0, 1], [0, 2], [1, 2]];
        pairs.into_iter().any(|pair| self.says(&pair.map(|at| found[at])).is_some_and(&wrong))
    }

    fn finds_skipped(&self, state: &State) -> bool {
        let skipped = |site: &Site| site.core.mark.end() == Some(End::Skipped);
        state.started()
            && state.sites.iter().any(skipped)
            && self.any_next(state, |says| match says {
                SealedState::Record(mark, remembering) => {
                    let remembering = remembering || self.leaves_out(Rule::SkipMemory);
                    mark.end().map(|end| inherited(end, remembering)) == Some(End::Skipped)
                }
                _ => false,
            })
    }

    fn finds_other_end(&self, state: &State) -> bool {
        let Some(end) = state.history else { return false };
        self.any_next(state, |says| match says {
            SealedState::Record(mark, _) => mark.end() != Some(end),
            SealedState::Pruned => false,
            SealedState::Absent | SealedState::Unknown => true,
        })
    }
}

impl Model for OpenedRuns {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let sites: [Site; NODES] =
            std::array::from_fn(|node| Site { name: Name(node as u8), ..Site::default() });
        let mut leaders = [Leader::default(); LEADERS];
        if self.remembers() {
            // While no memory is lost, the moment of an election makes no difference. All leaders are
            // therefore elected at the beginning, which makes the search smaller.
            leaders[..self.leaders].iter_mut().for_each(|leader| leader.phase = LeaderPhase::Sealing);
        }
        let first = State {
            sites,
            workers: [Worker::default(); WORKERS],
            leaders,
            epoch: 0,
            returned: 0,
            over: 0,
            starts: [0; GENERATIONS],
            finished: false,
            history: None,
            broken: None,
        };
        vec![self.from.state(self, first)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        (0..self.workers).for_each(|worker| self.worker_actions(state, worker, actions));
        (0..self.leaders).for_each(|leader| self.leader_actions(state, leader, actions));
        self.environment(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let at = |name: Name| last.sites.iter().position(|site| site.name.0 == name.0);
        let leader = |actor: u8| usize::from(actor).checked_sub(WORKERS);
        match action {
            Action::Elected(actor) => {
                let it = &mut state.leaders[leader(actor)?];
                (it.phase, it.at) = (LeaderPhase::Sealing, last.epoch);
            }
            Action::Asks(actor, ask, node) => match leader(actor) {
                Some(leader) => self.leader_asks(&mut state, leader, ask, at(node)?)?,
                None => self.worker_asks(&mut state, actor.into(), ask, at(node)?)?,
            },
            Action::Decides(actor, nodes, choice) => match leader(actor) {
                Some(leader) => self.leader_decides(&mut state, leader, nodes, choice)?,
                None => self.worker_decides(&mut state, actor.into(), nodes, choice)?,
            },
            Action::Goes(actor, choice) => match leader(actor) {
                Some(leader) => self.leader_goes(&mut state, leader, choice)?,
                None => {
                    state.finished = true;
                    state.workers[usize::from(actor)].phase = WorkerPhase::Completing;
                }
            },
            Action::Meets(actor, node) => self.leader_meets(&mut state, leader(actor)?, at(node)?)?,
            Action::Over(actor) => state.over |= 1 << actor,
            Action::Expires(generation, node) => {
                state.sites[at(node)?].core.slots[usize::from(generation) - 1].owner = 0;
            }
            Action::Forgets(node) | Action::Returns(node) => {
                let returns = matches!(action, Action::Returns(_));
                state.epoch += 1;
                state.returned += u8::from(returns);
                let epoch = state.epoch;
                let site = &mut state.sites[at(node)?];
                let mark = if returns { site.core.mark } else { Mark::NONE };
                site.core = Core { mark, late: site.core.late, ..Core::default() };
                site.since = epoch;
            }
            Action::Horizon(node) => {
                let core = &mut state.sites[at(node)?].core;
                core.slots[usize::from(core.late)].row = Row::None;
                core.late += 1;
            }
        }
        state.sites.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn of(name: &'static str, condition: fn(&OpenedRuns, &State) -> bool) -> Property<OpenedRuns> {
            Property::always(name, condition)
        }
        let mut properties = vec![
            of(SKIPPED, |_, state: &State| state.broken != Some(Broken::Skipped)),
            of(DONE, |_, state: &State| state.broken != Some(Broken::Done)),
            of(NEXT, |model, state| !model.finds_skipped(state)),
            Property::sometimes("a worker started it", |_, state: &State| state.starts[0] == 1),
            Property::sometimes("it was closed as done", |_, state: &State| state.history == Some(End::Done)),
            Property::sometimes("it was closed as lost", |_, state: &State| state.history == Some(End::Lost)),
            Property::sometimes("it was closed as skipped", |_, state: &State| {
                state.history == Some(End::Skipped)
            }),
        ];
        if self.counts_starts() {
            properties.push(of(ONCE, |_, state: &State| state.broken != Some(Broken::Once)));
        }
        if self.remembers() {
            properties.push(of(AGREED, |_, state: &State| state.broken != Some(Broken::Agreed)));
            properties.push(of(FINAL, |model, state| !model.finds_other_end(state)));
        }
        if self.remembers() && self.timed {
            properties.push(of(CLOSED, |_, state: &State| state.broken != Some(Broken::Closed)));
            properties.push(of(ALONE, |_, state: &State| state.broken != Some(Broken::Alone)));
        }
        if self.prunes {
            properties.push(of(ENDED, |_, state: &State| state.broken != Some(Broken::Ended)));
        }
        if self.generations > 1 {
            properties.push(Property::sometimes("the second generation started", |_, state: &State| {
                state.starts[1] == 1
            }));
        }
        properties
    }
}
