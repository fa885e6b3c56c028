//! Exclusion: no two workers believe in a lease on one resource at the same true time.
//!
//! # What is not looked at
//!
//! What a worker does after it has looked: for a pause between look and use there is the fencing token. Tokens
//! themselves, *raise*, and an attempt that is won but has too little validity left. A node that comes back with
//! an earlier memory: it can only hold more keys than one that came back empty. Clocks beyond the assumptions.
//!
//! # What is in it
//!
//! Three nodes, a few attempts, and true time in steps, without an end: all times are kept as how long ago, or how
//! long yet, and what is too old to matter is forgotten. Requests run at any later time, in any order, or never; an acquire or an
//! extension may run twice, with any time between, and be answered twice (a release that runs twice does what
//! a late one does). Replies
//! arrive at any later time, or never. Nothing keeps a release behind its acquire. A third attempt is the first
//! worker's retry. A holder may be paused at any point: its belief ends by the clock alone.
//!
//! Clocks are as bad as they may be: each key ends a step early (its node's clock is fast, or has stepped), each worker believes
//! for a step too long (its clock is slow), and the margin that is taken off the TTL is just these two steps.
//! A node that forgot votes again after a TTL of true time, which the quarantine is at least by any clock allowed.
//! What was under way to it is gone with its run. Whether a holder hears of it is left open: it may go on
//! counting on what the node granted before.
//!
//! # What stands in for the code
//!
//! Requests run on the shipped engine; won or not, and since when, is the shipped tally's word, for extensions
//! too. `not_after` refuses nothing here: exclusion must not rest on it.

use super::{
    NODES, Name,
    shelf::{Shelf, owner, resource, tally},
};
use quorate::{
    node::{FencingToken, NodeTime, Reply, Request, engine::Clocks},
    round::{Tally, Verdict},
};
use stateright::{Model, Property};
use std::{fmt, time::Duration};

/// Attempts at most.
pub const ATTEMPTS: usize = 3;
/// The TTL, in steps.
const TTL: u8 = 4;
/// By how much a key may end early, and by how much a worker may believe too long, within a TTL.
const EARLY: u8 = 1;
const SLOW: u8 = 1;
/// What is taken off a TTL.
const MARGIN: u8 = EARLY + SLOW;
/// The present, for the shipped code: times are kept relative to it.
const NOW: u32 = 1000;

/// The property: nobody believes in a lease while another does.
pub const ALONE: &str = "one lease is believed in at a time";

/// One model, within these bounds.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// Attempts that begin.
    pub attempts: usize,
    /// Rounds of extensions in all.
    pub extensions: u8,
    /// Acquires and extensions that run twice.
    pub doubles: u8,
    /// How often a node forgets everything.
    pub forgets: u8,
    /// Whether a reply comes at once or never; without that, at any later time or never.
    pub prompt: bool,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// What keeps believed intervals apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A node that forgot votes again only after a quarantine.
    Quarantine,
    /// A node in quarantine does not count for a lease that is extended.
    QuarantineOfHolders,
    /// Validity counts from the send, not from the receipt.
    Send,
    /// Validity counts from the quorum-th latest send, not from the latest.
    QuorumthSend,
    /// The margin is taken off.
    Margin,
    /// A lease ends before the first message of its release leaves.
    EndBeforeRelease,
    /// An owner token signs one attempt, not a retry too.
    FreshOwner,
}

/// Where nodes and attempts stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sites: [Site; NODES],
    phases: [Phase; ATTEMPTS],
    extensions: u8,
    doubles: u8,
    forgets: u8,
}

/// One node, what is under way to and from it, and what each attempt has of it. Ages are in steps since
/// the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Site {
    /// Who has the key, and for how many steps yet.
    key: Option<(u8, u8)>,
    /// How many steps yet it does not vote.
    quarantine: u8,
    forgot: bool,
    lines: [Line; ATTEMPTS],
    name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Line {
    acquire: Option<u8>,
    extend: Option<u8>,
    release: bool,
    /// A grant, or an extension done, on its way.
    reply: Option<u8>,
    /// What has arrived: the latest request that the node granted.
    vote: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Acquiring,
    /// Believed for so many steps yet.
    Held(u8),
    /// Was held, and is over.
    Ended,
    /// Was never held.
    Lost,
}

/// What may happen.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// An attempt begins: its acquires leave.
    Begin(u8),
    /// It gives up: its releases leave.
    GiveUp(u8),
    /// Its extensions leave.
    Extend(u8),
    /// Its lease ends and its releases leave.
    Release(u8),
    /// An acquire runs; with `true` it may run again.
    Acquires(u8, Name, bool),
    /// An extension runs; with `true` it may run again.
    Extends(u8, Name, bool),
    /// An acquire or an extension runs and is heard; with `true` it may run again.
    AtOnce(u8, Name, bool),
    /// A release runs.
    Releases(u8, Name),
    /// A grant, or word of an extension, arrives.
    Hears(u8, Name),
    /// A node forgets everything.
    Forget(Name),
    /// A step of time.
    Step,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |attempt: u8| ["A", "B", "A'"][usize::from(attempt)];
        let kept = |again: bool| if again { " (kept)" } else { "" };
        match *self {
            Self::Begin(a) => write!(f, "{} begins", who(a)),
            Self::GiveUp(a) => write!(f, "{} gives up", who(a)),
            Self::Extend(a) => write!(f, "{} extends", who(a)),
            Self::Release(a) => write!(f, "{} releases", who(a)),
            Self::Acquires(a, node, again) => write!(f, "{node:?} runs {}'s acquire{}", who(a), kept(again)),
            Self::Extends(a, node, again) => write!(f, "{node:?} runs {}'s extension{}", who(a), kept(again)),
            Self::AtOnce(a, node, again) => write!(f, "{node:?} serves {}{}", who(a), kept(again)),
            Self::Releases(a, node) => write!(f, "{node:?} runs {}'s release", who(a)),
            Self::Hears(a, node) => write!(f, "{} hears {node:?}", who(a)),
            Self::Forget(node) => write!(f, "{node:?} forgets"),
            Self::Step => write!(f, "step"),
        }
    }
}

impl Exclusion {
    /// Two attempts, and replies that come whenever they like.
    pub fn plain() -> Self {
        Self { attempts: 2, extensions: 0, doubles: 0, forgets: 0, prompt: false, without: None }
    }

    /// Two attempts, and a round of extensions.
    pub fn extending() -> Self {
        Self { extensions: 1, prompt: true, ..Self::plain() }
    }

    /// Two attempts, a round of extensions, and a node that forgets.
    pub fn forgetful() -> Self {
        Self { forgets: 1, ..Self::extending() }
    }

    /// Two attempts, a round of extensions, and requests that run twice.
    pub fn doubled() -> Self {
        Self { doubles: 1, ..Self::extending() }
    }

    /// A worker that tries again, and another.
    pub fn retrying() -> Self {
        Self { attempts: 3, prompt: true, ..Self::plain() }
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn owner(&self, attempt: usize) -> u8 {
        if self.leaves_out(Rule::FreshOwner) && attempt == 2 { 0 } else { attempt as u8 }
    }

    /// For how long a lease is believed in, in true time from its send.
    fn believed(&self) -> u8 {
        if self.leaves_out(Rule::Margin) { TTL + SLOW } else { TTL - MARGIN + SLOW }
    }

    /// Whether the node serves this attempt's voting requests.
    fn serves(&self, site: &Site, extends: bool) -> bool {
        site.quarantine == 0 || (extends && self.leaves_out(Rule::QuarantineOfHolders))
    }

    /// Asks the shipped engine.
    fn ask(site: &mut Site, request: Request) -> Reply {
        let now = u64::from(NOW);
        let mut shelf = Shelf {
            lease: site.key.map(|(owner, left)| (owner, NOW + u32::from(left))),
            counter: Some((1, u32::MAX)),
        };
        let clocks = Clocks { wall: NodeTime::from_micros(now), lease_nanos: now };
        let reply = shelf.ask(request, clocks, NodeTime::from_micros(u64::MAX));
        site.key = shelf.lease.map(|(owner, until)| (owner, (until - NOW) as u8));
        reply
    }

    fn acquires(&self, state: &mut State, at: usize, attempt: usize, again: bool) -> Option<()> {
        let site = &mut state.sites[at];
        let age = site.lines[attempt].acquire?;
        if again {
            state.doubles -= 1;
        } else {
            site.lines[attempt].acquire = None;
        }
        let request = Request::Acquire {
            resource: resource(),
            owner: owner(self.owner(attempt)),
            ttl: steps(TTL - EARLY),
            propose: FencingToken::new(u64::from(NOW)),
            tolerance: Duration::ZERO,
            keep: FOR_EVER,
        };
        if matches!(Self::ask(site, request), Reply::Granted { .. })
            && state.phases[attempt] == Phase::Acquiring
        {
            site.lines[attempt].reply = Some(age);
        }
        Some(())
    }

    fn extends(&self, state: &mut State, at: usize, attempt: usize, again: bool) -> Option<()> {
        let site = &mut state.sites[at];
        let age = site.lines[attempt].extend?;
        if again {
            state.doubles -= 1;
        } else {
            site.lines[attempt].extend = None;
        }
        let request = Request::Extend {
            resource: resource(),
            owner: owner(self.owner(attempt)),
            ttl: steps(TTL - EARLY),
            token: FencingToken::new(1),
            keep: FOR_EVER,
        };
        if Self::ask(site, request) == Reply::Extended && matches!(state.phases[attempt], Phase::Held(_)) {
            site.lines[attempt].reply = Some(age);
        }
        Some(())
    }

    fn releases(&self, site: &mut Site, attempt: usize) {
        site.lines[attempt].release = false;
        let owner = owner(self.owner(attempt));
        Self::ask(site, Request::Release { resource: resource(), owner });
    }

    /// A reply arrives, and what it means is decided at once.
    fn hears(&self, state: &mut State, at: usize, attempt: usize) -> Option<()> {
        let line = &mut state.sites[at].lines[attempt];
        let age = line.reply.take()?;
        let age = if self.leaves_out(Rule::Send) { 0 } else { age };
        // Never lowers what stands.
        line.vote = Some(line.vote.map_or(age, |vote| vote.min(age)));
        let votes = Self::tally(state, attempt);
        if votes.verdict() == Verdict::Won {
            let left = self.left(&votes);
            match state.phases[attempt] {
                Phase::Acquiring if left == 0 => Self::end(state, attempt, Phase::Lost),
                _ => state.phases[attempt] = Phase::Held(left),
            }
        }
        Some(())
    }

    fn tally(state: &State, attempt: usize) -> Tally {
        tally(state.sites.map(|site| site.lines[attempt].vote.map(|age| (1, [0; 2], NOW - u32::from(age)))))
    }

    /// For how long the votes let it be believed in.
    fn left(&self, votes: &Tally) -> u8 {
        let sent = match self.leaves_out(Rule::QuorumthSend) {
            false => votes.sent_by_quorum(),
            true => votes.granted().map(|(_, grant)| grant.sent).max(),
        };
        let age = sent.map_or(u64::MAX, |sent| u64::from(NOW) - sent.as_nanos());
        u64::from(self.believed()).saturating_sub(age) as u8
    }

    /// It is over, and its releases leave.
    fn end(state: &mut State, attempt: usize, phase: Phase) {
        state.phases[attempt] = phase;
        for site in &mut state.sites {
            site.lines[attempt].release = true;
        }
    }

    /// All ages grow, and what is left shrinks.
    fn step(&self, state: &mut State) {
        for site in &mut state.sites {
            site.quarantine = site.quarantine.saturating_sub(1);
            site.key = site.key.and_then(|(owner, left)| (left > 1).then_some((owner, left - 1)));
            for line in &mut site.lines {
                // What is too old to let anyone believe in anything is as good as lost.
                let older = |age: u8| (age + 1 < self.believed()).then_some(age + 1);
                line.acquire = line.acquire.and_then(older);
                line.extend = line.extend.and_then(older);
                line.reply = line.reply.and_then(older);
                line.vote = line.vote.and_then(older);
            }
        }
        for attempt in 0..ATTEMPTS {
            match state.phases[attempt] {
                Phase::Held(1) => state.phases[attempt] = Phase::Ended,
                Phase::Held(left) => state.phases[attempt] = Phase::Held(left - 1),
                Phase::Acquiring => {
                    let lines = state.sites.iter().map(|site| site.lines[attempt]);
                    let hopes = |line: &Line| line.acquire.or(line.reply).or(line.vote).is_some();
                    if lines.filter(hopes).count() < 2 {
                        Self::end(state, attempt, Phase::Lost);
                    }
                }
                _ => {}
            }
        }
    }

    /// What nobody listens to is of no account. A request of an attempt that is over could only keep others
    /// away: it might as well be lost.
    fn tidy(state: &mut State) {
        for (attempt, phase) in state.phases.iter().enumerate() {
            if matches!(phase, Phase::Ended | Phase::Lost) {
                for site in &mut state.sites {
                    let line = &mut site.lines[attempt];
                    *line = Line { release: line.release, ..Line::default() };
                }
            }
        }
    }

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
            Phase::Idle if self.may_begin(state, attempt) => actions.push(Action::Begin(number)),
            // Its releases matter to nobody but a retry: an attempt may as well never go on.
            Phase::Acquiring if self.attempts > 2 => actions.push(Action::GiveUp(number)),
            Phase::Held(_) => {
                actions.push(Action::Release(number));
                if state.extensions > 0 {
                    actions.push(Action::Extend(number));
                }
            }
            _ => {}
        }
    }
}

/// Longer than anything takes.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// A step is a nanosecond of the clock that times leases.
fn steps(steps: u8) -> Duration {
    Duration::from_nanos(steps.into())
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
                    actions.push(Action::Hears(attempt, site.name));
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
            Action::GiveUp(a) => Self::end(&mut state, a.into(), Phase::Lost),
            Action::Extend(a) => {
                state.extensions -= 1;
                state.sites.iter_mut().for_each(|site| site.lines[usize::from(a)].extend = Some(0));
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
                self.hears(&mut state, at, attempt)?;
            }
            Action::Releases(a, node) => self.releases(&mut state.sites[at(node)?], a.into()),
            Action::Hears(a, node) => self.hears(&mut state, at(node)?, a.into())?,
            Action::Forget(node) => {
                state.forgets -= 1;
                let quarantine = if self.leaves_out(Rule::Quarantine) { 0 } else { TTL };
                let site = &mut state.sites[at(node)?];
                (site.key, site.quarantine, site.forgot) = (None, quarantine, true);
                for line in &mut site.lines {
                    (line.acquire, line.extend, line.release) = (None, None, false);
                }
            }
            Action::Step => self.step(&mut state),
        }
        Self::tidy(&mut state);
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
        if self.forgets > 0 {
            properties.push(Property::sometimes("a node granted again", |_, state: &State| {
                state.sites.iter().any(|site| site.forgot && site.key.is_some()) && held(state) == 1
            }));
        }
        properties
    }
}
