//! Model of fencing tokens: they are unique, and grow in the order of the grants.
//!
//! # Not covered
//!
//! The model does not cover exclusion ([`exclusion`](super::exclusion)), the queue of waiters, and liveness.
//!
//! # Scope
//!
//! The model has three nodes, and a few attempts on one resource. A request may run at any later moment, in
//! any order, or never. An acquire may run twice, and a raise any number of times. A reply may arrive at any
//! later moment, or never.
//!
//! A key may end at any moment. Releases and attempts that give up would therefore add no further states.
//! (The model ends a key only just before a request that needs the key to be gone. A request that finds the
//! key is refused, which has the same effect as a lost request.)
//!
//! An attempt that has won may repair any node at any later moment, any number of times, even long after its
//! lease has ended. The reply to a repair arrives at once. An operator's forced release is the end of a key. The votes are evaluated as soon as a majority has granted.
//!
//! Clocks matter only where a node starts a missing counter at the time that a worker proposes. Time advances
//! in steps of about `max_clock_offset`. A node's wall clock may be ahead by up to [`ahead`](Fencing::ahead)
//! steps, and a worker's clock is wrong by one of the steps in [`offs`](Fencing::offs). A node refuses a
//! proposal that is too far from its own time.
//!
//! A node may forget everything, or come back with an earlier state. Such a node votes again after its
//! quarantine. Requests in flight to it are lost with its earlier process (in the code: the connection broke,
//! or the marker differs). Replies that had already left the node still arrive.
//!
//! # Acquires by plain commands
//!
//! A session with a Redis server may acquire by plain commands in place of a script: it sets the key if there is none,
//! increments the counter in any case, reads the marker, and then decides whether it was granted
//! ([`commands`](Fencing::commands)). In the model:
//!
//! - The commands of one acquire are one step, because they are one transaction.
//! - A loser increments the counter too.
//! - The commands also run on a node that forgot, because FLUSHALL does not end the connection. The session counts no grant,
//!   because the marker is missing. Its undo is an ordinary release, which may be lost: a key may end at any moment, or
//!   never.
//! - The commands do not prolong a counter, and may run after it has ended. They then start a counter, at one and without an
//!   end. (A session rejects a count that is not larger than an earlier one. The model counts the grant nevertheless: its
//!   raise fails.)
//! - A counter at its maximum needs no state: [`Request::is_answered_by`](quorate::node::Request::is_answered_by) accepts no
//!   larger count.
//!
//! A claim is acquired so where it is new ([`claims`](Fencing::claims)): one command sets its whole record, the lease and the
//! count, if there is none. The count follows the proposed time, and ends after the lease. A loser changes nothing, and asks
//! again by a script. A record that is set in vain stays.
//!
//! That a refused session uses scripts for a second, and never runs an acquire again, keeps the protocol making progress. The
//! model needs neither rule.
//!
//! # Parts that are the shipped code
//!
//! Requests run on the shipped engine, and the shipped tally counts votes. In the model `not_after` refuses
//! no request, because fencing must not depend on it.

mod action;
mod bounds;
mod effects;
mod state;

pub use action::Action;
pub use bounds::{ATTEMPTS, FINAL, Fencing, GROWING, Rule, UNIQUE};
pub use state::State;

use super::{NODES, Name, lease_store::LeaseStore};
use bounds::{BEGIN, OFFSET, STEP};
use quorate::internals::majority;
use state::{Attempt, Line, Phase, Site};
use stateright::{Model, Property};

impl Fencing {
    fn fence_actions(&self, state: &State, site: &Site, actions: &mut Vec<Action>) {
        let name = site.name;
        let votes = Self::votes(state, site);
        for (number, (line, attempt)) in (0..).zip(site.lines.iter().zip(&state.attempts)) {
            if line.acquire && votes {
                actions.push(Action::Acquire(number, name, false));
                if state.doubles > 0 {
                    actions.push(Action::Acquire(number, name, true));
                }
                if self.prompt && attempt.phase == Phase::Acquiring {
                    actions.push(Action::AcquireAtOnce(number, name));
                }
            }
            if line.stray || (self.commands || line.near) && line.acquire && votes {
                actions.push(Action::Commands(number, name, false));
                if self.prompt && attempt.phase == Phase::Acquiring {
                    actions.push(Action::Commands(number, name, true));
                }
                if self.commands && site.store.lease.is_some_and(|(holder, _)| holder != number) {
                    actions.push(Action::Loses(number, name));
                }
            }
            for which in 0..2 {
                if line.grants[usize::from(which)].counter > 0 {
                    actions.push(Action::Granted(number, name, which));
                }
            }
            if line.raise && votes {
                actions.push(Action::Raise(number, name));
                if self.prompt && attempt.phase == Phase::Raising {
                    actions.push(Action::RaiseAtOnce(number, name));
                }
            }
            if line.raised {
                actions.push(Action::Raised(number, name));
            }
            if attempt.phase == Phase::Won && self.repair && votes {
                actions.push(Action::Repair(number, name));
            }
        }
    }
}

fn won(state: &State) -> impl Iterator<Item = &Attempt> {
    state.attempts.iter().filter(|attempt| attempt.phase == Phase::Won)
}

impl Model for Fencing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut states = Vec::new();
        let (counters, clocks) = (u32::from(self.apart.unwrap_or(0)) + 1, u32::from(self.ahead) + 1);
        let missing = u32::from(self.missing && self.apart.is_some());
        let counters = counters + missing;
        let choices = counters * clocks;
        for choice in 0..choices.pow(NODES as u32) {
            let site = |node: usize| {
                let digit = choice / choices.pow(node as u32) % choices;
                let count = (digit % counters).checked_sub(missing);
                let count = count.filter(|_| self.apart.is_some());
                let count = count.map(|count| (BEGIN + u32::from(self.seeded) * STEP + count, u32::MAX));
                Site {
                    store: LeaseStore { lease: None, counter: count },
                    ahead: (digit / counters) as u8,
                    since: BEGIN / 2,
                    votes_from: BEGIN / 2,
                    saved: None,
                    endless: false,
                    lines: [Line::default(); ATTEMPTS],
                    name: Name(node as u8),
                }
            };
            let mut sites: [Site; NODES] = std::array::from_fn(site);
            sites.sort();
            let attempts = [Attempt::default(); ATTEMPTS];
            let Self { doubles, forgets, returns, .. } = *self;
            let state = State { sites, attempts, begun: 0, now: 0, doubles, forgets, returns };
            if !states.contains(&state) {
                states.push(state);
            }
        }
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if usize::from(state.begun) < self.attempts {
            actions.extend(self.offs.iter().copied().map(Action::Begin));
        }
        if state.now < self.steps * self.stride {
            actions.push(Action::Step);
        }
        for site in &state.sites {
            self.fence_actions(state, site, actions);
            if state.forgets > 0 {
                actions.push(Action::Forget(site.name));
            }
            if state.returns > 0 && state.sites.iter().all(|any| any.saved.is_none()) {
                actions.push(Action::Save(site.name));
            }
            if state.returns > 0 && site.saved.is_some() {
                actions.push(Action::Return(site.name));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let at = |name: Name| last.sites.iter().position(|site| site.name.0 == name.0);
        match action {
            Action::Begin(off) => self.begin(&mut state, off),
            Action::Acquire(a, node, again) => self.acquire(&mut state, at(node)?, a.into(), again),
            Action::AcquireAtOnce(a, node) => {
                self.acquire(&mut state, at(node)?, a.into(), false);
                self.granted(&mut state, at(node)?, a.into(), 1);
            }
            Action::Commands(a, node, heard) => {
                match self.claims {
                    true => self.set_record(&mut state, at(node)?, a.into()),
                    false => self.run_commands(&mut state, at(node)?, a.into()),
                }
                if heard {
                    self.granted(&mut state, at(node)?, a.into(), 1);
                }
            }
            Action::Loses(a, node) => {
                let site = &mut state.sites[at(node)?];
                let line = &mut site.lines[usize::from(a)];
                (line.acquire, line.stray) = (false, false);
                Self::increment(last, site);
            }
            Action::Granted(a, node, which) => self.granted(&mut state, at(node)?, a.into(), which.into()),
            Action::Raise(a, node) => self.raise(&mut state, at(node)?, a.into()),
            Action::RaiseAtOnce(a, node) => {
                self.raise(&mut state, at(node)?, a.into());
                self.raised(&mut state, at(node)?, a.into());
            }
            Action::Raised(a, node) => self.raised(&mut state, at(node)?, a.into()),
            Action::Repair(a, node) => self.repair(&mut state, at(node)?, a.into()),
            Action::Step => state.now += self.stride,
            Action::Forget(node) => {
                state.forgets -= 1;
                let at = at(node)?;
                let sent = state.sites[at].lines.map(|line| line.acquire && (self.commands || line.near));
                self.lose_memory(&mut state, at, LeaseStore::default(), 0);
                for (line, sent) in state.sites[at].lines.iter_mut().zip(sent) {
                    line.stray = sent;
                }
            }
            Action::Save(node) => {
                let site = &mut state.sites[at(node)?];
                site.saved = Some(LeaseStore { lease: None, ..site.store });
            }
            Action::Return(node) => {
                state.returns -= 1;
                let saved = state.sites[at(node)?].saved.take()?;
                let margin = if self.leaves_out(Rule::LateMemory) { 0 } else { 2 * OFFSET };
                self.lose_memory(&mut state, at(node)?, saved, margin);
            }
        }
        if self.prompt {
            // In this model, a reply arrives at once or never. Replies that are still in flight are dropped.
            for line in state.sites.iter_mut().flat_map(|site| &mut site.lines) {
                (line.grants, line.raised) = (Default::default(), false);
            }
        }
        state.sites.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(UNIQUE, |_, state: &State| {
                let mut tokens: Vec<u32> = won(state).map(|attempt| attempt.token).collect();
                tokens.sort_unstable();
                tokens.windows(2).all(|two| two[0] != two[1])
            }),
            Property::always(GROWING, |_, state: &State| {
                won(state).all(|attempt| attempt.token > attempt.floor)
            }),
            Property::sometimes("two leases in turn", |_, state: &State| {
                won(state).any(|attempt| attempt.floor > 0)
            }),
            Property::sometimes("a token had to be raised", |_, state: &State| {
                state.attempts.iter().any(|attempt| attempt.phase == Phase::Raising)
            }),
        ];
        if self.finality {
            properties.push(Property::sometimes("a holder vouched", |_, state: &State| {
                won(state).any(|attempt| attempt.vouched)
            }));
            properties.push(Property::always(FINAL, |_, state: &State| {
                let newest = won(state).filter(|attempt| attempt.valid).map(|attempt| attempt.token).max();
                let returned = |number: usize| {
                    let kept = state.sites.iter().filter(|site| site.lines[number].kept).count();
                    kept >= majority(NODES) && Some(state.attempts[number].token) < newest
                };
                !(0..ATTEMPTS).any(returned)
            }));
        }
        if self.forgets + self.returns > 0 {
            properties.push(Property::sometimes("a node voted again", |_, state: &State| {
                state.sites.iter().flat_map(|site| site.lines).any(|line| line.vote.since >= BEGIN)
            }));
        }
        properties
    }
}
