//! Model of dead-lettered claims: a message id is dead-lettered once the limit of attempts is reached, and no
//! earlier.
//!
//! # Not covered
//!
//! The model has no *done* record, no completion, and no call of the dead-letter hook (which is itself a
//! claim). An attempt that crashes between its first count and its handler counts like one that began,
//! because its count stays. An attempt that began and is then given back is not covered.
//!
//! # Scope
//!
//! The turn of an attempt ([`turn`]), the counting rule of a node ([`counts_more`]) and [`majority`] are the
//! shipped code. The model itself contains the order of requests, as in `claim/begin.rs`. A grant reports the
//! number of attempts that its node has counted. An attempt with a majority of grants takes the largest of
//! these counts. If that count has reached the limit, the id is dead-lettered. Otherwise the attempt writes a
//! count that is higher by one. A node accepts this count if the attempt is still the owner there and the
//! stored count is lower. Once a majority has the count, the handler begins.
//!
//! An attempt that will not begin takes its count back, on each node that it knows to have stored the count.
//! The node requires that the attempt is still the owner and the stored count is exactly the attempt's own.
//! On each node the take-back runs after the count. Requests run at any later moment, in any order, or never.
//! A claim may end at any moment. Replies arrive at any later moment, or never.
//!
//! A node may forget. Then more attempts than the limit may begin. But an id is never dead-lettered too
//! early: by then, at least as many attempts as the limit have begun, or have left a count that they have not
//! taken back.

use super::{NODES, Name};
use quorate::{
    internals::{
        attempts::{Turn, turn},
        majority,
    },
    node::engine::counts_more,
};
use stateright::{Model, Property};
use std::fmt;

/// The maximum number of attempts.
pub const ATTEMPTS: usize = 4;

/// The property that no count is larger than the number of attempts that won a majority.
pub const COUNTED: &str = "no count is above the attempts that were won";
/// The property that an id is dead-lettered only after as many attempts as the limit began, or left a count
/// behind.
pub const EARNED: &str = "poisoned only after as many began, or left a count behind";
/// The property that no more attempts begin than the limit permits. It holds while no node forgets.
pub const FEW: &str = "no more begin than may";

/// The model, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Poison {
    /// The number of attempts.
    pub attempts: usize,
    /// The number of attempts that may begin.
    pub limit: u8,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// The number of attempts that have a count, and then learn that they will not begin.
    pub leaves: u8,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule that keeps the counts of attempts correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An attempt sends its count only once it has won a majority. Without this rule, each node counts the
    /// attempt when it grants the claim.
    CountWhenWon,
    /// A node accepts a count only from the claim's owner. (The model holds without this rule: [`Rule::CountIfMore`] is
    /// enough.)
    CountByOwner,
    /// The handler begins only once a majority has stored the count.
    CountByMajority,
    /// A node refuses a count that is not larger than the stored one. (The majority that stores the count may
    /// differ from the majority that granted the claim. One node of the storing majority may have counted
    /// another attempt since the grant.)
    CountIfMore,
    /// An attempt that will not begin takes its count back.
    TakeBack,
    /// An attempt takes a count back only on a node where it knows that the stored count is its own.
    TakeBackOwn,
}

/// The state of nodes and attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sites: [Site; NODES],
    phases: [Phase; ATTEMPTS],
    forgets: u8,
    leaves: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Site {
    /// The attempt that owns the claim. Attempts are numbered from one.
    owner: u8,
    /// The number of attempts that the node has counted.
    count: u8,
    lines: [Line; ATTEMPTS],
    name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Line {
    asked: bool,
    /// The count that the node's grant reported. The grant is in flight until `arrived` is set.
    granted: Option<u8>,
    arrived: bool,
    /// True if this node accepted the attempt's count. The reply is in flight until `counted` is set.
    written: bool,
    counted: bool,
    /// True if this node stores the attempt's count, and the attempt has not taken it back.
    stored: bool,
    /// True if the attempt's take-back ran on this node. No later request of the attempt runs here.
    back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Asking,
    /// The attempt has won a majority, and writes this count.
    Counting(u8),
    /// The attempt will not begin, and takes this count back.
    Left(u8),
    /// The attempt's handler has begun, and may have ended.
    Begun,
    /// The attempt found that the limit was reached.
    DeadLettered,
    /// The attempt found that the limit was reached. But the number of attempts that had begun, or had left
    /// their count behind, was below the limit. The protocol must never allow this.
    TooEarly,
}

/// A step of the model.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// An acquire runs on a node.
    Acquire(u8, Name),
    /// The grant of a node arrives.
    Granted(u8, Name),
    /// A count is written on a node.
    Count(u8, Name),
    /// The reply to a count arrives.
    Counted(u8, Name),
    /// An attempt learns that it will not begin.
    Leave(u8),
    /// An attempt takes its count back on a node.
    Back(u8, Name),
    /// A node forgets everything.
    Forget(Name),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Acquire(a, node) => write!(f, "{a} acquires {node:?}"),
            Self::Granted(a, node) => write!(f, "{a} receives the grant of {node:?}"),
            Self::Count(a, node) => write!(f, "{a} counts at {node:?}"),
            Self::Counted(a, node) => write!(f, "{a} receives the reply of {node:?} to its count"),
            Self::Leave(a) => write!(f, "{a} will not begin"),
            Self::Back(a, node) => write!(f, "{a} takes back at {node:?}"),
            Self::Forget(node) => write!(f, "{node:?} forgets"),
        }
    }
}

impl Poison {
    /// Returns the model of three attempts, of which one may begin.
    pub fn plain() -> Self {
        Self { attempts: 3, limit: 1, forgets: 0, leaves: 0, without: None }
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn acquire(&self, site: &mut Site, attempt: u8) {
        let line = &mut site.lines[usize::from(attempt) - 1];
        // The claim of the previous owner ends here, just before the next owner needs it. A claim may end at
        // any moment, so this loses no history.
        site.owner = attempt;
        (line.asked, line.granted) = (true, Some(site.count));
        site.count += u8::from(self.leaves_out(Rule::CountWhenWon));
    }

    /// Delivers a grant. If the grant completes a majority, the attempt has won.
    fn granted(&self, state: &mut State, at: usize, attempt: usize) {
        state.sites[at].lines[attempt].arrived = true;
        let arrived = state.sites.iter().map(|site| site.lines[attempt]).filter(|line| line.arrived);
        let counts: Vec<u8> = arrived.filter_map(|line| line.granted).collect();
        if counts.len() < majority(NODES) {
            return;
        }
        state.phases[attempt] = match turn(counts.into_iter().map(u32::from), Some(self.limit.into())) {
            Turn::GivenUp(_) if earned(state) >= usize::from(self.limit) => Phase::DeadLettered,
            Turn::GivenUp(_) => Phase::TooEarly,
            Turn::Begins(count) => Phase::Counting(u8::try_from(count).unwrap_or(u8::MAX)),
        };
        for site in &mut state.sites {
            site.lines[attempt] = Line { asked: true, ..Line::default() };
        }
    }

    fn count(&self, site: &mut Site, attempt: u8, count: u8) {
        let owns = site.owner == attempt || self.leaves_out(Rule::CountByOwner);
        let more = counts_more(Some(site.count.into()), count.into()) || self.leaves_out(Rule::CountIfMore);
        if owns && more {
            site.count = site.count.max(count);
            let line = &mut site.lines[usize::from(attempt) - 1];
            (line.written, line.stored) = (true, true);
        }
    }

    fn take_back(&self, site: &mut Site, attempt: u8, count: u8) {
        let known = site.lines[usize::from(attempt) - 1].counted || self.leaves_out(Rule::TakeBackOwn);
        if site.owner != attempt || !known {
            return;
        }
        if site.count == count && !self.leaves_out(Rule::TakeBack) {
            site.count = count.saturating_sub(1);
        }
        let line = &mut site.lines[usize::from(attempt) - 1];
        *line = Line { asked: true, back: true, ..Line::default() };
    }

    fn counted(&self, state: &mut State, at: usize, attempt: usize) {
        state.sites[at].lines[attempt].counted = true;
        let enough = if self.leaves_out(Rule::CountByMajority) { 1 } else { majority(NODES) };
        if state.sites.iter().filter(|site| site.lines[attempt].counted).count() < enough {
            return;
        }
        state.phases[attempt] = Phase::Begun;
        for site in &mut state.sites {
            site.lines[attempt] = Line { asked: true, ..Line::default() };
        }
    }
}

fn number(state: &State, of: impl Fn(&Phase) -> bool) -> usize {
    state.phases.iter().filter(|phase| of(phase)).count()
}

/// Returns the number of attempts that won a majority and found the limit not reached. No other attempt
/// writes a count.
fn won(state: &State) -> usize {
    number(state, |phase| matches!(phase, Phase::Counting(_) | Phase::Left(_) | Phase::Begun))
}

/// Returns the number of attempts that began, may yet begin, or left a count behind.
fn earned(state: &State) -> usize {
    let earned = |(attempt, phase): (usize, &Phase)| match phase {
        Phase::Begun => true,
        Phase::Counting(_) | Phase::Left(_) => state.sites.iter().any(|site| site.lines[attempt].stored),
        _ => false,
    };
    state.phases.iter().enumerate().filter(|one| earned(*one)).count()
}

impl Model for Poison {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let sites = std::array::from_fn(|node| Site { name: Name(node as u8), ..Site::default() });
        vec![State { sites, phases: [Phase::Asking; ATTEMPTS], forgets: self.forgets, leaves: self.leaves }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for site in &state.sites {
            for (attempt, (line, phase)) in (1..).zip(site.lines.iter().zip(state.phases)).take(self.attempts)
            {
                match phase {
                    Phase::Asking if !line.asked => actions.push(Action::Acquire(attempt, site.name)),
                    Phase::Asking if line.granted.is_some() && !line.arrived => {
                        actions.push(Action::Granted(attempt, site.name));
                    }
                    Phase::Counting(_) => {
                        actions.push(Action::Count(attempt, site.name));
                        if line.written && !line.counted {
                            actions.push(Action::Counted(attempt, site.name));
                        }
                    }
                    // The attempt will not begin, but a count that it has already sent may still run.
                    Phase::Left(_) if !line.back => {
                        actions.push(Action::Count(attempt, site.name));
                        actions.push(Action::Back(attempt, site.name));
                    }
                    _ => {}
                }
            }
            if state.forgets > 0 {
                actions.push(Action::Forget(site.name));
            }
        }
        let counting = (1..).zip(state.phases).filter(|(_, phase)| matches!(phase, Phase::Counting(_)));
        actions.extend(counting.filter(|_| state.leaves > 0).map(|(attempt, _)| Action::Leave(attempt)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let at = |name: Name| last.sites.iter().position(|site| site.name.0 == name.0);
        match action {
            Action::Acquire(a, node) => self.acquire(&mut state.sites[at(node)?], a),
            Action::Granted(a, node) => self.granted(&mut state, at(node)?, usize::from(a) - 1),
            Action::Count(a, node) => {
                let (Phase::Counting(count) | Phase::Left(count)) = state.phases[usize::from(a) - 1] else {
                    return None;
                };
                self.count(&mut state.sites[at(node)?], a, count);
            }
            Action::Counted(a, node) => self.counted(&mut state, at(node)?, usize::from(a) - 1),
            Action::Leave(a) => {
                let Phase::Counting(count) = state.phases[usize::from(a) - 1] else { return None };
                state.leaves -= 1;
                state.phases[usize::from(a) - 1] = Phase::Left(count);
            }
            Action::Back(a, node) => {
                let Phase::Left(count) = state.phases[usize::from(a) - 1] else { return None };
                self.take_back(&mut state.sites[at(node)?], a, count);
            }
            Action::Forget(node) => {
                state.forgets -= 1;
                let site = &mut state.sites[at(node)?];
                (site.owner, site.count) = (0, 0);
            }
        }
        state.sites.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(COUNTED, |_, state: &State| {
                state.sites.iter().all(|site| usize::from(site.count) <= won(state))
            }),
            Property::always(EARNED, |_, state: &State| !state.phases.contains(&Phase::TooEarly)),
            Property::sometimes("as many as may begin did, and one was poisoned", |model: &Self, state| {
                number(state, |phase| *phase == Phase::Begun) == usize::from(model.limit)
                    && state.phases.contains(&Phase::DeadLettered)
            }),
        ];
        if self.forgets == 0 {
            properties.push(Property::always(FEW, |model: &Self, state: &State| {
                number(state, |phase| *phase == Phase::Begun) <= usize::from(model.limit)
            }));
        }
        properties
    }
}
