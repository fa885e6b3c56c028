//! Model of exclusion: no two workers believe in a lease on one resource at the same true time. A worker
//! *believes* in a lease while it considers the lease valid by its own clock.
//!
//! # Not covered
//!
//! The model does not cover the following:
//!
//! - A worker's actions after it has checked its lease. The fencing token protects against a pause between
//!   the check and the use.
//! - The tokens themselves, *raise*, and an attempt that wins with too little validity left.
//! - The order in which nodes are asked first. In the model, an attempt may spare any node.
//! - A node that comes back with an earlier state. Such a node can only have more keys than one that came
//!   back empty.
//! - Clocks beyond the assumptions.
//!
//! # Scope
//!
//! The model has three nodes and a few attempts. True time passes in steps, without an end. All times are
//! relative: the time since an event, or the time that remains until one. A time that is too old to matter is
//! dropped.
//!
//! Requests run at any later time, in any order, or never. An acquire or an extension may run twice, with any
//! time between, and be answered twice. (A release that runs twice has the same effect as a late release.) A
//! release may run before its acquire. Replies arrive at any later time, or never. A third attempt is the
//! first worker's retry. A holder may be paused at any point: its belief then ends by the clock alone.
//!
//! Clocks are as bad as the assumptions allow. Each key ends a step early (its node's clock is fast, or has
//! stepped). Each worker believes for a step too long (its clock is slow). The margin that is subtracted from
//! the TTL is exactly these two steps.
//!
//! Acquires by the plain commands of a Redis session are late SETs: their key ends when that of a timely one would.
//!
//! After a node forgot, it votes again after a TTL of true time. Measured by any permitted clock, the
//! quarantine is at least as long. Requests in flight to such a node are lost with its earlier process. A
//! holder may or may not learn that the node forgot. It may continue to count the grants that the node gave
//! before.
//!
//! # Parts that are the shipped code
//!
//! Requests run on the shipped engine. The shipped tally decides whether a round of acquires or of extensions
//! is won, and from which sending the validity counts. In the model `not_after` refuses no request, because
//! exclusion must not depend on it.

mod action;
mod bounds;
mod effects;
mod state;

pub use action::Action;
pub use bounds::{ALONE, ATTEMPTS, Exclusion, Rule};
pub use state::State;

use super::Name;
use bounds::{EARLY, TTL};
use state::{Line, Phase, Site};
use stateright::{Model, Property};

impl Exclusion {
    fn may_begin(&self, state: &State, attempt: usize) -> bool {
        let over = |phase: Phase| matches!(phase, Phase::Ended | Phase::Lost);
        let turn = attempt == 0 || state.phases[attempt - 1] != Phase::Idle;
        attempt < self.attempts
            && state.phases[attempt] == Phase::Idle
            && turn
            && (attempt < 2 || over(state.phases[attempt - 2]))
    }

    fn worker_actions(&self, state: &State, attempt: usize, actions: &mut Vec<Action>) {
        let number = attempt as u8;
        match state.phases[attempt] {
            Phase::Idle if self.may_begin(state, attempt) && self.majority_first => {
                actions.extend(state.sites.iter().map(|site| Action::BeginFirst(number, site.name)));
            }
            Phase::Idle if self.may_begin(state, attempt) => actions.push(Action::Begin(number)),
            // A release of an attempt can only meet requests of the attempt's retry. In a model without a
            // retry, an attempt that gives up has the same effect as one that never continues.
            Phase::Acquiring if self.attempts > 2 => actions.push(Action::GiveUp(number)),
            Phase::Acquiring if spares(state, attempt) => actions.push(Action::AskRest(number)),
            Phase::Held(_) => {
                actions.push(Action::Release(number));
                if spares(state, attempt) {
                    actions.push(Action::Spread(number));
                }
                if state.extensions > 0 {
                    actions.push(Action::Extend(number));
                }
            }
            _ => {}
        }
    }
}

/// Returns `true` if there is a node that the attempt has not asked.
fn spares(state: &State, attempt: usize) -> bool {
    state.sites.iter().any(|site| site.lines[attempt].spared)
}

/// Returns `true` if `is` returns true for the lines of any attempt that believes in its lease.
fn any_holder(state: &State, is: fn(&[Line]) -> bool) -> bool {
    let lines = |attempt: usize| state.sites.map(|site| site.lines[attempt]);
    (0..ATTEMPTS).any(|attempt| matches!(state.phases[attempt], Phase::Held(_)) && is(&lines(attempt)))
}

fn held(state: &State) -> usize {
    state.phases.iter().filter(|phase| matches!(phase, Phase::Held(_))).count()
}

impl Model for Exclusion {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let sites = std::array::from_fn(|node| Site { name: Name(node as u8), ..Site::default() });
        let phases = [Phase::Idle; ATTEMPTS];
        vec![State {
            sites,
            phases,
            extensions: self.extensions,
            doubles: self.doubles,
            forgets: self.forgets,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        (0..ATTEMPTS).for_each(|attempt| self.worker_actions(state, attempt, actions));
        for site in &state.sites {
            for (attempt, line) in (0..).zip(&site.lines) {
                let acquires = line.acquire.is_some() && self.serves(site, false);
                let extends = line.extend.is_some() && self.serves(site, true);
                for again in [false, true].into_iter().take(1 + usize::from(state.doubles > 0)) {
                    if acquires {
                        actions.push(Action::Acquires(attempt, site.name, again));
                    }
                    if extends {
                        actions.push(Action::Extends(attempt, site.name, again));
                    }
                    let listens = match state.phases[usize::from(attempt)] {
                        Phase::Acquiring => acquires,
                        _ => extends,
                    };
                    if listens && self.prompt {
                        actions.push(Action::AtOnce(attempt, site.name, again));
                    }
                }
                if line.release {
                    actions.push(Action::Releases(attempt, site.name));
                }
                if line.reply.is_some() {
                    actions.push(Action::Receives(attempt, site.name));
                }
            }
            if state.forgets > 0 {
                actions.push(Action::Forget(site.name));
            }
        }
        actions.push(Action::Step);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let at = |name: Name| last.sites.iter().position(|site| site.name.0 == name.0);
        match action {
            Action::Begin(a) => {
                state.phases[usize::from(a)] = Phase::Acquiring;
                state.sites.iter_mut().for_each(|site| site.lines[usize::from(a)].acquire = Some(0));
            }
            Action::BeginFirst(a, node) => {
                state.phases[usize::from(a)] = Phase::Acquiring;
                let spared = at(node)?;
                for (at, site) in state.sites.iter_mut().enumerate() {
                    let line = &mut site.lines[usize::from(a)];
                    (line.spared, line.acquire) = (at == spared, (at != spared).then_some(0));
                }
            }
            Action::AskRest(a) | Action::Spread(a) => {
                let spreads = matches!(action, Action::Spread(_));
                let lines = state.sites.iter_mut().map(|site| &mut site.lines[usize::from(a)]);
                for line in lines.filter(|line| line.spared) {
                    let request = if spreads { &mut line.extend } else { &mut line.acquire };
                    *request = Some(0);
                    line.spared = false;
                }
            }
            Action::GiveUp(a) => Self::end(&mut state, a.into(), Phase::Lost),
            Action::Extend(a) => {
                state.extensions -= 1;
                for site in &mut state.sites {
                    let line = &mut site.lines[usize::from(a)];
                    (line.spared, line.extend) = (false, Some(0));
                }
            }
            Action::Release(a) => {
                let before = state.phases[usize::from(a)];
                let after = if self.leaves_out(Rule::EndBeforeRelease) { before } else { Phase::Ended };
                Self::end(&mut state, a.into(), after);
            }
            Action::Acquires(a, node, again) => self.acquires(&mut state, at(node)?, a.into(), again)?,
            Action::Extends(a, node, again) => self.extends(&mut state, at(node)?, a.into(), again)?,
            Action::AtOnce(a, node, again) => {
                let (at, attempt) = (at(node)?, usize::from(a));
                match last.phases[attempt] {
                    Phase::Acquiring => self.acquires(&mut state, at, attempt, again)?,
                    _ => self.extends(&mut state, at, attempt, again)?,
                }
                self.receives(&mut state, at, attempt)?;
            }
            Action::Releases(a, node) => self.releases(&mut state.sites[at(node)?], a.into()),
            Action::Receives(a, node) => self.receives(&mut state, at(node)?, a.into())?,
            Action::Forget(node) => {
                state.forgets -= 1;
                let quarantine = if self.leaves_out(Rule::Quarantine) { 0 } else { TTL };
                let site = &mut state.sites[at(node)?];
                (site.key, site.quarantine, site.forgot) = (None, quarantine, true);
                for line in &mut site.lines {
                    if !self.leaves_out(Rule::MarkerAfter) {
                        line.acquire = None;
                    }
                    (line.extend, line.release) = (None, false);
                }
            }
            Action::Step => self.step(&mut state),
        }
        Self::drop_stale_messages(&mut state);
        if self.prompt {
            state.sites.iter_mut().flat_map(|site| &mut site.lines).for_each(|line| line.reply = None);
        }
        state.sites.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ALONE, |_, state: &State| held(state) <= 1),
            Property::sometimes("two leases in turn", |_, state: &State| {
                held(state) == 1 && state.phases.contains(&Phase::Ended)
            }),
        ];
        if self.extensions > 0 {
            properties.push(Property::sometimes("an extension was heard", |model: &Self, state: &State| {
                let spent = state.extensions < model.extensions;
                let fresh = |attempt: usize| {
                    let lines = state.sites.iter().map(|site| site.lines[attempt]);
                    lines.filter(|line| line.vote == Some(0) && line.acquire.is_none()).count() >= 2
                };
                let old = state.sites.iter().any(|site| site.key.is_some_and(|(_, left)| left < TTL - EARLY));
                spent && old && (0..ATTEMPTS).any(|a| matches!(state.phases[a], Phase::Held(_)) && fresh(a))
            }));
        }
        if self.majority_first {
            properties.push(Property::sometimes("a lease on a bare majority", |_, state: &State| {
                any_holder(state, |lines| lines.iter().any(|line| line.spared))
            }));
            properties.push(Property::sometimes("a lease that has spread", |_, state: &State| {
                any_holder(state, |lines| lines.iter().all(|line| line.vote.is_some()))
            }));
        }
        if self.forgets > 0 {
            properties.push(Property::sometimes("a node granted again", |_, state: &State| {
                state.sites.iter().any(|site| site.forgot && site.key.is_some()) && held(state) == 1
            }));
        }
        properties
    }
}
