//! Model of readers and writers: while an agent believes in a writer's lease, no other agent believes in a
//! lease. An agent *believes* in a lease while it considers the lease valid by its own clock.
//!
//! # Not covered
//!
//! The model does not cover the queue: the order of waiters is a matter of fairness, and no grant depends on
//! it. Nor does the model cover tokens, *raise*, doubled requests and late replies. (A reply comes at once or
//! never; [`exclusion`](super::exclusion) has doubled requests and late replies.)
//!
//! # Scope
//!
//! The model has three nodes and up to three agents. Each agent reads, writes, or writes and then continues
//! as a reader. True time is in steps, without an end. Clocks are as bad as the assumptions allow, as in
//! [`exclusion`](super::exclusion). Each key ends a step early, each belief ends a step late, and the margin
//! is exactly these two steps. Requests run at any later time, in any order, or never; a release may run
//! before its acquire. Holders extend their leases. An extension also sets a key again on a node that has
//! lost it. A node may forget everything.
//!
//! # Parts that are the shipped code
//!
//! Requests run on the shipped engine. The shipped tally decides whether a round is won, and from which
//! sending the validity counts.

mod node;

use super::{NODES, Name, lease_store::tally};
use node::{Key, REQUESTS, What};
use quorate::internals::Verdict;
use stateright::{Model, Property};
use std::fmt;

/// The maximum number of agents in the model.
pub const AGENTS: usize = 3;
/// The TTL, in steps.
const TTL: u8 = 4;
/// The errors of clocks within a TTL, in steps: the time by which a key may end too early on a node, and the
/// time by which an agent may believe in its lease too long.
const EARLY: u8 = 1;
const SLOW: u8 = 1;
/// The time for which an agent believes in a lease, in steps of true time from the sending of its request.
const BELIEVED: u8 = TTL - (EARLY + SLOW) + SLOW;

/// The property that while an agent believes in a writer's lease, no other agent believes in a lease.
pub const ALONE: &str = "no other agent believes in a lease beside a writer";
/// The property that no agent writes between the beginning of a writer's downgrade and the moment at which that
/// writer is a reader.
pub const BETWEEN: &str = "no agent writes between a writer and its downgrade";

/// The kind of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The agent reads.
    Reads,
    /// The agent writes.
    Writes,
    /// The agent writes, and may then downgrade to a reader.
    Downgrades,
}

/// The model, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct ReadWrite {
    /// The kind of each agent.
    pub agents: &'static [Kind],
    /// The number of rounds of extensions, for all agents together.
    pub extensions: u8,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// True if all agents have already sent their acquires when the sequence of steps begins.
    pub eager: bool,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule that keeps writers exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A node whose key has a reader grants no writer.
    WriterLooks,
    /// A node whose key has a writer does not add a reader.
    ReaderLooks,
    /// An extension does not set a reader's lease again on a node that has granted a writer in the meantime.
    RepairLooks,
    /// A reader's release removes only that reader from the key.
    ReleasesItself,
    /// A writer's lease ends before the writer sends the first message of its downgrade.
    EndBeforeDowngrade,
    /// A node downgrades only the writer whose lease it stores, and no other agent.
    DowngradeByOwner,
    /// A node refuses to downgrade a writer if the node has counted another grant after the grant to that
    /// writer.
    DowngradeByToken,
    /// A node that forgot votes again only after a quarantine.
    Quarantine,
}

/// The state of nodes and agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sites: [Site; NODES],
    phases: [Phase; AGENTS],
    extensions: u8,
    forgets: u8,
    /// True if an agent became a writer while another agent's downgrade was in flight.
    between: bool,
    /// The fencing token of the agent that may downgrade. A model has at most one such agent.
    token: u8,
}

/// One node, the requests in flight to it, and each agent's view of it. Ages are in steps since the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Site {
    key: Key,
    /// The number of steps until the node votes again.
    quarantine: u8,
    lines: [Line; AGENTS],
    name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Line {
    /// The age of each request in flight, at the index of its kind ([`What`]).
    asked: [Option<u8>; REQUESTS],
    release: bool,
    /// The age of the agent's newest request that this node has granted, if the grant has arrived.
    vote: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Asking,
    /// The agent believes in its lease for the given number of further steps.
    Held(u8),
    /// The agent is a writer that becomes a reader. Without [`Rule::EndBeforeDowngrade`], the agent still
    /// believes in its writer's lease for the given number of steps.
    Turning(u8),
    /// The agent was a writer and is now a reader. The agent believes in its lease for the given number of
    /// further steps.
    Reading(u8),
    Over,
}

/// A step of the model.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// An agent sends its acquire to every node.
    Begin(u8),
    /// An agent sends its extensions.
    Extend(u8),
    /// An agent's lease ends, and it sends its releases.
    Release(u8),
    /// A writer's lease ends, and it sends the requests that make it a reader.
    Downgrade(u8),
    /// A request runs on a node. If the flag is `true`, its reply arrives.
    Runs(u8, Name, What, bool),
    /// A release runs on a node.
    Releases(u8, Name),
    /// A node forgets everything.
    Forget(Name),
    /// Time advances by a step.
    Step,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |agent: u8| ["A", "B", "C"][usize::from(agent)];
        match *self {
            Self::Begin(a) => write!(f, "{} begins", who(a)),
            Self::Extend(a) => write!(f, "{} extends", who(a)),
            Self::Release(a) => write!(f, "{} releases", who(a)),
            Self::Downgrade(a) => write!(f, "{} downgrades", who(a)),
            Self::Runs(a, node, what, answered) => {
                let answered = if answered { "" } else { ", unanswered" };
                write!(f, "{node:?} runs {}'s {what:?}{answered}", who(a))
            }
            Self::Releases(a, node) => write!(f, "{node:?} runs {}'s release", who(a)),
            Self::Forget(node) => write!(f, "{node:?} forgets"),
            Self::Step => write!(f, "step"),
        }
    }
}

impl ReadWrite {
    /// Returns the model of these agents, without faults.
    pub fn of(agents: &'static [Kind]) -> Self {
        Self { agents, extensions: 0, forgets: 0, eager: false, without: None }
    }

    /// Returns the same model without one rule.
    pub fn without(self, rule: Rule) -> Self {
        Self { without: Some(rule), ..self }
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Returns the kind of lease in which the agent believes: `Some(true)` for a writer's, `Some(false)` for
    /// a reader's, and `None` if it believes in none.
    fn believes(&self, state: &State, agent: usize) -> Option<bool> {
        match state.phases[agent] {
            Phase::Held(_) => Some(self.agents[agent] != Kind::Reads),
            Phase::Turning(left) if left > 0 => Some(true),
            Phase::Reading(_) => Some(false),
            _ => None,
        }
    }

    fn is_alone(&self, state: &State) -> bool {
        let believers: Vec<bool> =
            (0..self.agents.len()).filter_map(|agent| self.believes(state, agent)).collect();
        believers.len() < 2 || !believers.contains(&true)
    }

    /// Runs a request of an agent on the node at index `at`. If `answered` is true, the reply arrives at once.
    /// Otherwise it never arrives.
    fn runs(&self, state: &mut State, at: usize, agent: usize, what: What, answered: bool) -> Option<()> {
        let age = state.sites[at].lines[agent].asked[what as usize].take()?;
        let reads = self.agents[agent] == Kind::Reads;
        let token = state.token;
        let granted = state.sites[at].key.asked(agent, what, reads, TTL - EARLY, token, self.without);
        let listens = match what {
            What::Acquire => state.phases[agent] == Phase::Asking,
            What::Extend => matches!(state.phases[agent], Phase::Held(_)),
            What::Downgrade => matches!(state.phases[agent], Phase::Turning(_)),
            What::ExtendTurned => matches!(state.phases[agent], Phase::Reading(_)),
        };
        if granted && answered && listens {
            let vote = &mut state.sites[at].lines[agent].vote;
            *vote = Some(vote.map_or(age, |vote| vote.min(age)));
            self.settle(state, agent);
        }
        Some(())
    }

    fn settle(&self, state: &mut State, agent: usize) {
        const NOW: u32 = 1000;
        let votes =
            tally(state.sites.map(|s| s.lines[agent].vote.map(|age| (1, [0; 2], NOW - u32::from(age)))));
        if votes.verdict() != Verdict::Won {
            return;
        }
        let age = votes.sent_by_quorum().map_or(u64::MAX, |sent| u64::from(NOW) - sent.as_nanos());
        let left = u64::from(BELIEVED).saturating_sub(age) as u8;
        match state.phases[agent] {
            _ if left == 0 => Self::end(state, agent),
            Phase::Turning(_) | Phase::Reading(_) => state.phases[agent] = Phase::Reading(left),
            _ => {
                let turning = state.phases.iter().any(|phase| matches!(phase, Phase::Turning(_)));
                state.between |= turning && self.agents[agent] != Kind::Reads;
                if state.phases[agent] == Phase::Asking && !self.raise(state, agent) {
                    return Self::end(state, agent);
                }
                state.phases[agent] = Phase::Held(left);
            }
        }
    }

    /// Raises the counters of a majority of nodes to the token in a single step. (The model of fencing tokens
    /// covers the separate steps.) Returns `true` if a majority could be raised.
    fn raise(&self, state: &mut State, agent: usize) -> bool {
        if self.agents[agent] != Kind::Downgrades {
            return true;
        }
        let voted = |at: &usize| state.sites[*at].lines[agent].vote.is_some();
        let granted: Vec<usize> = (0..NODES).filter(voted).collect();
        let token = granted.iter().map(|&at| state.sites[at].key.count).max().unwrap_or_default();
        state.token = token;
        granted.into_iter().filter(|&at| state.sites[at].key.raised(agent, token)).count() >= 2
    }

    /// Ends an agent's lease or attempt, and sends its releases.
    fn end(state: &mut State, agent: usize) {
        state.phases[agent] = Phase::Over;
        for site in &mut state.sites {
            site.lines[agent].release = true;
        }
    }

    fn ask(state: &mut State, agent: usize, what: What) {
        state.sites.iter_mut().for_each(|site| site.lines[agent].asked[what as usize] = Some(0));
    }

    /// Adds a step to all ages, and subtracts one from all remaining times.
    fn step(&self, state: &mut State) {
        for site in &mut state.sites {
            site.quarantine = site.quarantine.saturating_sub(1);
            site.key.step();
            for line in &mut site.lines {
                // A request or a vote of this age can no longer make an agent believe in a lease. It has the
                // same effect as a lost one, and is dropped.
                let older = |age: u8| (age + 1 < BELIEVED).then_some(age + 1);
                line.asked = line.asked.map(|asked| asked.and_then(older));
                line.vote = line.vote.and_then(older);
            }
        }
        for agent in 0..self.agents.len() {
            let hopes = |site: &&Site| {
                let line = &site.lines[agent];
                line.vote.is_some() || line.asked.iter().any(Option::is_some)
            };
            let hopeful = state.sites.iter().filter(hopes).count() >= 2;
            match &mut state.phases[agent] {
                Phase::Held(left) | Phase::Reading(left) if *left > 1 => *left -= 1,
                Phase::Held(_) | Phase::Reading(_) => state.phases[agent] = Phase::Over,
                Phase::Turning(left) if hopeful => *left = left.saturating_sub(1),
                Phase::Asking | Phase::Turning(_) if !hopeful => Self::end(state, agent),
                _ => {}
            }
        }
    }
}

fn reads_on(state: &State) -> bool {
    state.phases.iter().any(|phase| matches!(phase, Phase::Reading(_)))
}

impl Model for ReadWrite {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let key = Key::counting(self.agents.contains(&Kind::Downgrades));
        let sites = std::array::from_fn(|node| Site { key, name: Name(node as u8), ..Site::default() });
        let phases = [Phase::Idle; AGENTS];
        let (extensions, forgets) = (self.extensions, self.forgets);
        let mut state = State { sites, phases, extensions, forgets, between: false, token: 0 };
        if self.eager {
            (0..self.agents.len()).for_each(|agent| {
                state.phases[agent] = Phase::Asking;
                Self::ask(&mut state, agent, What::Acquire);
            });
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, kind) in (0..).zip(self.agents) {
            let extends = state.extensions > 0;
            match state.phases[usize::from(number)] {
                Phase::Idle => actions.push(Action::Begin(number)),
                Phase::Held(_) => {
                    actions.push(Action::Release(number));
                    actions.extend(extends.then_some(Action::Extend(number)));
                    actions.extend((*kind == Kind::Downgrades).then_some(Action::Downgrade(number)));
                }
                Phase::Reading(_) => {
                    actions.push(Action::Release(number));
                    actions.extend(extends.then_some(Action::Extend(number)));
                }
                _ => {}
            }
        }
        for site in &state.sites {
            for (agent, line) in (0..).zip(&site.lines) {
                for what in What::ALL {
                    if line.asked[what as usize].is_some() && site.quarantine == 0 {
                        let runs = |answered| Action::Runs(agent, site.name, what, answered);
                        actions.extend([runs(true), runs(false)]);
                    }
                }
                if line.release {
                    actions.push(Action::Releases(agent, site.name));
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
                state.phases[usize::from(a)] = Phase::Asking;
                Self::ask(&mut state, a.into(), What::Acquire);
            }
            Action::Extend(a) => {
                state.extensions -= 1;
                let turned = matches!(last.phases[usize::from(a)], Phase::Reading(_));
                Self::ask(&mut state, a.into(), if turned { What::ExtendTurned } else { What::Extend });
            }
            Action::Release(a) => Self::end(&mut state, a.into()),
            Action::Downgrade(a) => {
                let agent = usize::from(a);
                let Phase::Held(left) = last.phases[agent] else { return None };
                let left = if self.leaves_out(Rule::EndBeforeDowngrade) { left } else { 0 };
                state.phases[agent] = Phase::Turning(left);
                state.sites.iter_mut().for_each(|site| site.lines[agent].vote = None);
                Self::ask(&mut state, agent, What::Downgrade);
            }
            Action::Runs(a, node, what, answered) => {
                self.runs(&mut state, at(node)?, a.into(), what, answered)?;
            }
            Action::Releases(a, node) => {
                let site = &mut state.sites[at(node)?];
                site.lines[usize::from(a)].release = false;
                site.key.released(a.into(), self.agents[usize::from(a)] == Kind::Reads, self.without);
            }
            Action::Forget(node) => {
                state.forgets -= 1;
                let quarantine = if self.leaves_out(Rule::Quarantine) { 0 } else { TTL };
                let site = &mut state.sites[at(node)?];
                (site.key, site.quarantine) = (Key::counting(site.key.count > 0), quarantine);
                for line in &mut site.lines {
                    (line.asked, line.release) = ([None; REQUESTS], false);
                }
            }
            Action::Step => self.step(&mut state),
        }
        for (agent, phase) in state.phases.iter().enumerate() {
            if *phase == Phase::Over {
                // If an agent's lease or attempt is over, a request of this agent has only one effect left:
                // it may keep other agents from acquiring. The model also covers the loss of the request, so
                // the request can be dropped.
                for site in &mut state.sites {
                    let line = &mut site.lines[agent];
                    *line = Line { release: line.release, ..Line::default() };
                }
            }
        }
        state.between &= state.phases.iter().any(|p| matches!(p, Phase::Turning(_) | Phase::Reading(_)));
        state.sites.sort();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ALONE, |model: &Self, state: &State| model.is_alone(state)),
            Property::sometimes("one after another", |model: &Self, state: &State| {
                let holds = (0..model.agents.len()).any(|agent| model.believes(state, agent).is_some());
                holds && state.phases.contains(&Phase::Over)
            }),
        ];
        if self.agents.contains(&Kind::Downgrades) {
            properties
                .push(Property::always(BETWEEN, |_, state: &State| !(state.between && reads_on(state))));
            properties.push(Property::sometimes("a writer reads on", |_, state: &State| reads_on(state)));
        }
        if self.agents.iter().filter(|kind| **kind != Kind::Writes).count() > 1 {
            properties.push(Property::sometimes("two read at once", |model: &Self, state: &State| {
                let reads = |agent: &usize| model.believes(state, *agent) == Some(false);
                (0..model.agents.len()).filter(reads).count() > 1
            }));
        }
        properties
    }
}
