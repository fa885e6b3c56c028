//! Opened runs: a leader opens a run in its ledger, and a worker takes the run through a *slot*. A slot is a
//! claim of which at most one attempt is ever counted. `docs/design/scheduler.md` describes the protocol. Each
//! [`Rule`] names its number on that page.
//!
//! # Status
//!
//! These parts are the shipped code: the engine, the tallies of acquires and of slots, the turn of an attempt, the
//! memory rule, the check of an *open* record, and the decisions about generations and their ends.
//!
//! The ledger is not: here it is one record of the run, which the leader of the latest term writes in one step, and
//! which no loss of a node's memory removes. The model [`copies`](crate::model::copies) shows that the nodes' copies
//! amount to this.
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
//! * the leader's lease: no leader stops because its term is over;
//! * a run that is executed by several leaders, one after another;
//! * the founding of a new ledger, after a majority of the nodes has forgotten at once.
//!
//! # Scope
//!
//! The model has three nodes, one run, up to three workers, and up to three leaders. The terms of the leaders
//! are unique and grow. A leader's write takes effect at any later moment or never, and no longer once a later leader
//! has taken the ledger over. A worker reads the record and acts on it at any later moment. A request to a slot runs at
//! any later moment or never, and its answer arrives at once. An actor
//! decides at any later moment, on the answers of any majority. A late decision therefore covers the case of
//! a late reply. The following requests may run after the actor's phase has ended: acquires, extensions,
//! counts, *void* and *done*.
//!
//! A lease on a slot expires on each node at any moment. If the model is *timed*, the lease expires only after its
//! owner's own deadline. At that deadline the owner stops acquiring and does not start the run.
//!
//! A node may forget all its slots. Memories are ordered by number: the model stores for each node after which loss its
//! memory began. The `at` of an *open* record is such a number of losses too ([`memory_needed`]). The horizon of a slot
//! passes on each node at any moment. The node then removes the slot's row.
//!
//! The properties [`NEXT`] and [`FINAL`] ask what one more leader would find if it took the ledger over now. A model of
//! two leaders therefore covers the decision of a third one.
//!
//! [`memory_needed`]: quorate::internals::memory_needed

mod action;
mod bounds;
mod leader;
mod node;
mod record;
mod script;
mod state;
mod worker;

pub use action::{Action, Ask, Choice};
pub use bounds::{AGREED, ALONE, CLOSED, DONE, ENDED, FINAL, NEXT, ONCE, OpenedRuns, Rule, SKIPPED};
pub use record::{End, GENERATIONS};
pub use script::From;
pub use state::{LEADERS, State, WORKERS};

use super::{NODES, Name};
use node::{Core, Row};
use state::{Broken, Leader, LeaderPhase, Ledger, Site, Worker, WorkerPhase};
use stateright::{Model, Property};

impl OpenedRuns {
    fn keeps_horizon(&self) -> bool {
        !self.leaves_out(Rule::Horizon)
    }

    /// Counts the start of a handler, of a worker or of a leader. If the start breaks a property, notes that
    /// property.
    fn starts(&self, state: &mut State, worker: Option<usize>, generation: u8) {
        let starts = &mut state.starts[usize::from(generation) - 1];
        *starts = (*starts + 1).min(2);
        let excludes = self.timed && self.remembers() && worker.is_some();
        let runs = |other: usize| state.workers[other].phase == WorkerPhase::Running && !state.is_over(other);
        if state.starts[usize::from(generation) - 1] > 1 {
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
            if state.epoch < self.forgets {
                actions.push(Action::Forgets(site.name));
            }
            if self.horizon && site.core.late < self.generations {
                actions.push(Action::Horizon(site.name));
            }
        }
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
            leaders[..self.leaders].iter_mut().for_each(|leader| leader.phase = LeaderPhase::Elected);
        }
        let first = State {
            ledger: Ledger::default(),
            sites,
            workers: [Worker::default(); WORKERS],
            leaders,
            epoch: 0,
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
                (it.phase, it.began) = (LeaderPhase::Elected, last.epoch);
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
            Action::TakesOver(actor, choice) => self.leader_takes_over(&mut state, leader(actor)?, choice)?,
            Action::Writes(actor) => self.leader_writes(&mut state, leader(actor)?)?,
            Action::Prunes(actor) => self.leader_prunes(&mut state, leader(actor)?)?,
            Action::Reads(worker, by) => {
                self.worker_reads(&mut state, worker.into(), by.and_then(leader))?;
            }
            Action::Over(actor) => state.over |= 1 << actor,
            Action::Expires(generation, node) => {
                state.sites[at(node)?].core.slots[usize::from(generation) - 1].owner = 0;
            }
            Action::Forgets(node) => {
                state.epoch += 1;
                let site = &mut state.sites[at(node)?];
                site.core = Core { late: site.core.late, ..Core::default() };
                site.since = state.epoch;
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
            of(ONCE, |_, state| state.broken != Some(Broken::Once)),
            of(AGREED, |_, state| state.broken != Some(Broken::Agreed)),
            of(NEXT, |_, state| !state.finds_skipped()),
            of(FINAL, |_, state| !state.finds_other_end()),
            Property::sometimes("a worker started it", |_, state: &State| state.starts[0] == 1),
            Property::sometimes("it was closed as done", |_, state: &State| state.history == Some(End::Done)),
            Property::sometimes("it was closed as lost", |_, state: &State| state.history == Some(End::Lost)),
            Property::sometimes("it was closed as skipped", |_, state: &State| {
                state.history == Some(End::Skipped)
            }),
        ];
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
