//! Fencing tokens: unique, and growing in the order of the grants.
//!
//! # What is not looked at
//!
//! Exclusion ([`exclusion`](super::exclusion)), who waits for whom, and liveness.
//!
//! # What is in it
//!
//! Three nodes and a few attempts on one resource. A request may run at any later moment, in any order, or
//! never; an acquire may run twice, a raise as often as it likes. A reply may come at any later moment, or
//! never. A key may end at any moment; so a release has nothing to add, and neither has an attempt that gives up.
//! (It is taken to end just before whatever needs it gone. A request that finds it standing is refused, and
//! might as well be lost.) Whoever has won may repair any node at any later moment, as often as it likes, also
//! long after its lease has ended. What the votes mean is decided as soon as a majority has granted.
//!
//! Time matters only to seeds. It moves on in steps of `max_clock_offset`; each node's wall clock is right or
//! ahead by one such step, each worker's is up to `behind` or `ahead` of it; a node refuses a proposal
//! that is too far from its own time. A node may forget everything, or come back with what it knew at some
//! earlier moment. It then votes again after its quarantine. What was under way to it is gone with its run (in the code: the
//! connection broke, or its marker differs); replies that had left still arrive.
//!
//! # What stands in for the code
//!
//! Requests run on the shipped engine, votes are weighed by the shipped tally. `not_after` refuses nothing here:
//! fencing must not rest on it.

use super::{
    NODES, Name,
    shelf::{Shelf, owner, pack, resource, tally},
};
use quorate::{
    node::{FencingToken, NodeTime, Reply, Request, engine::Clocks},
    round::Verdict,
};
use stateright::{Model, Property};
use std::{fmt, time::Duration};

/// Attempts at most.
pub const ATTEMPTS: usize = 3;
/// The step of time, in microseconds.
const STEP: u32 = 1_000_000;
/// `max_clock_offset`: clocks are off by whole steps, and what is left over is for counts, which take no time
/// here, as they would.
const OFFSET: u32 = STEP + 100;
/// The true time when a history begins.
const BEGIN: u32 = 100 * STEP;

/// The property: no token is given twice.
pub const UNIQUE: &str = "tokens are unique";
/// The property: who begins after a grant has the larger token.
pub const GROWING: &str = "a later grant has the larger token";

/// One model, within these bounds.
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    /// Attempts that begin.
    pub attempts: usize,
    /// Acquires that run twice.
    pub doubles: u8,
    /// Whether a reply comes at once or never; without that, at any later moment or never.
    pub prompt: bool,
    /// By how many steps workers' clocks may be off; it matters only to missing counters.
    pub offs: &'static [i8],
    /// Whether who has won repairs nodes.
    pub repair: bool,
    /// By how much counters may differ at first; without that, none has been seeded.
    pub apart: Option<u8>,
    /// Whether any counter may be missing at first as well.
    pub missing: bool,
    /// By how many steps the clock was ahead that seeded them.
    pub seeded: u8,
    /// By how many steps a node's clock may be ahead.
    pub ahead: u8,
    /// How often time goes on.
    pub steps: u8,
    /// By how many steps at once.
    pub stride: u8,
    /// How long a quarantine is, in steps: `max_ttl`.
    pub quarantine: u8,
    /// How long a counter lives after its last use, in steps.
    pub keep: u8,
    /// How often a node forgets everything.
    pub forgets: u8,
    /// How often a node comes back with an earlier memory.
    pub returns: u8,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// What keeps tokens unique and growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An acquire counts one more grant.
    Increment,
    /// A majority's counters are raised to the token.
    Raise,
    /// Only the owner raises.
    RaiseByOwner,
    /// A repair never lowers a counter.
    RepairKeepsMore,
    /// A forgotten counter starts at the time, by a clock within `max_clock_offset`.
    Seed,
    /// A node that has forgotten votes again only after a quarantine.
    Quarantine,
    /// A counter older than its node's memory counts like a forgotten one.
    OldCounters,
    /// The memory of a node that came back begins later than its clock says, by as much as a seed in what came
    /// back may have been ahead of that clock.
    LateMemory,
}

/// Where the nodes and the attempts stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sites: [Site; NODES],
    attempts: [Attempt; ATTEMPTS],
    begun: u8,
    now: u8,
    doubles: u8,
    forgets: u8,
    returns: u8,
}

/// One node, what is under way to and from it, and what each attempt has heard of it. Kept together so that
/// sorting the nodes makes one state of all that differ only in which node is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Site {
    shelf: Shelf,
    /// By how many steps its wall clock is ahead.
    ahead: u8,
    /// When its memory began, by its own clock in microseconds.
    since: u32,
    /// From when on it votes.
    votes_from: u32,
    saved: Option<Shelf>,
    lines: [Line; ATTEMPTS],
    name: Name,
}

/// Between one attempt and one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Line {
    /// An acquire that may yet run.
    acquire: bool,
    /// A raise that may run, and run again.
    raise: bool,
    /// Grants on their way back; empty ones are zero.
    grants: [Grant; 2],
    /// A raise was done and its reply is on its way.
    raised: bool,
    /// What has arrived.
    vote: Grant,
}

/// A counter, and since when the memory lasts that it came from, and votes. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Grant {
    counter: u32,
    since: u32,
    votes_from: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Attempt {
    phase: Phase,
    /// What its worker's clock shows for a counter that is missing.
    propose: u32,
    /// Its token, or what is to be.
    token: u32,
    /// The largest token that had been given when it began.
    floor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Acquiring,
    Raising,
    Won,
}

/// What may happen.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    /// The next attempt begins, on a clock that is off by so many steps.
    Begin(i8),
    /// An attempt's acquire runs on a node; with `true` it may run again.
    Acquire(u8, Name, bool),
    /// It runs and its reply arrives.
    AcquireAtOnce(u8, Name),
    /// A grant arrives: the first or the second on its way.
    Granted(u8, Name, u8),
    /// A raise runs.
    Raise(u8, Name),
    /// It runs and its reply arrives.
    RaiseAtOnce(u8, Name),
    /// A raise's reply arrives.
    Raised(u8, Name),
    /// A repair runs.
    Repair(u8, Name),
    /// Time goes on.
    Step,
    /// A node forgets everything.
    Forget(Name),
    /// A node saves what it knows.
    Save(Name),
    /// A node comes back with what it saved.
    Return(Name),
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |attempt: u8| char::from(b'A' + attempt);
        match *self {
            Self::Begin(0) => write!(f, "begin"),
            Self::Begin(off) => write!(f, "begin({off:+})"),
            Self::Acquire(a, node, again) => {
                write!(f, "{} acquires {node:?}{}", who(a), if again { " (kept)" } else { "" })
            }
            Self::AcquireAtOnce(a, node) => write!(f, "{} acquires and hears {node:?}", who(a)),
            Self::RaiseAtOnce(a, node) => write!(f, "{} raises and hears {node:?}", who(a)),
            Self::Granted(a, node, _) => write!(f, "{} hears {node:?}", who(a)),
            Self::Raise(a, node) => write!(f, "{} raises {node:?}", who(a)),
            Self::Raised(a, node) => write!(f, "{} hears {node:?} raised", who(a)),
            Self::Repair(a, node) => write!(f, "{} repairs {node:?}", who(a)),
            Self::Step => write!(f, "step"),
            Self::Forget(node) => write!(f, "{node:?} forgets"),
            Self::Save(node) => write!(f, "{node:?} saves"),
            Self::Return(node) => write!(f, "{node:?} returns"),
        }
    }
}

impl Fencing {
    /// Two attempts and no time: nothing is forgotten.
    pub fn plain() -> Self {
        Self {
            attempts: 2,
            doubles: 1,
            prompt: false,
            offs: &[0],
            repair: true,
            apart: Some(2),
            missing: false,
            seeded: 0,
            ahead: 0,
            steps: 0,
            stride: 4,
            quarantine: 4,
            keep: u8::MAX,
            forgets: 0,
            returns: 0,
            without: None,
        }
    }

    /// A node forgets, clocks are off, and time goes on by a quarantine.
    pub fn forgetful() -> Self {
        Self { forgets: 1, repair: false, missing: true, apart: Some(0), ..Self::timed() }
    }

    /// A node comes back with an earlier memory, and counters were seeded by a clock far ahead.
    pub fn returning() -> Self {
        Self { returns: 1, offs: &[0], apart: Some(0), seeded: 2, repair: false, ..Self::timed() }
    }

    /// Counters end, which have not been used for a while.
    pub fn retiring() -> Self {
        Self { keep: 4, apart: Some(0), missing: true, repair: false, ..Self::timed() }
    }

    fn timed() -> Self {
        Self { doubles: 0, prompt: true, offs: &[-1, 2], ahead: 1, steps: 1, ..Self::plain() }
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn wall(state: &State, site: &Site) -> u32 {
        BEGIN + u32::from(state.now + site.ahead) * STEP
    }

    fn quarantine(&self) -> u32 {
        if self.leaves_out(Rule::Quarantine) { 0 } else { u32::from(self.quarantine) * STEP }
    }

    fn votes(state: &State, site: &Site) -> bool {
        Self::wall(state, site) >= site.votes_from
    }

    fn ask(&self, state: &State, site: &mut Site, request: Request) -> Reply {
        if !matches!(request, Request::Raise { .. }) {
            site.shelf.lease = None; // It has just ended.
        }
        let clocks = Clocks { wall: NodeTime::from_micros(Self::wall(state, site).into()), lease_nanos: 0 };
        site.shelf.ask(request, clocks, NodeTime::from_micros(u64::MAX))
    }

    fn keep(&self) -> Duration {
        if self.keep == u8::MAX { Duration::from_secs(1 << 30) } else { micros(u32::from(self.keep) * STEP) }
    }

    fn begin(&self, state: &mut State, off: i8) {
        let number = usize::from(state.begun);
        let floor = state.attempts.iter().filter(|one| one.phase == Phase::Won).map(|one| one.token).max();
        let true_time = BEGIN + u32::from(state.now) * STEP;
        let propose = match self.leaves_out(Rule::Seed) {
            false => true_time.wrapping_add_signed(i32::from(off) * STEP.cast_signed()),
            true => BEGIN / 2,
        };
        let floor = floor.unwrap_or_default();
        state.attempts[number] = Attempt { phase: Phase::Acquiring, propose, token: 0, floor };
        state.begun += 1;
        state.sites.iter_mut().for_each(|site| site.lines[number].acquire = true);
    }

    fn acquire(&self, state: &mut State, at: usize, attempt: usize, again: bool) {
        let mut site = state.sites[at];
        let before = site.shelf.counter;
        let request = Request::Acquire {
            resource: resource(),
            owner: owner(attempt as u8),
            ttl: FOR_EVER,
            propose: token_of(state.attempts[attempt].propose),
            tolerance: if self.leaves_out(Rule::Seed) { FOR_EVER } else { micros(OFFSET) },
            keep: self.keep(),
        };
        let reply = self.ask(state, &mut site, request);
        site.lines[attempt].acquire = again;
        state.doubles -= u8::from(again);
        if let Reply::Granted { counter } = reply {
            let mut counter = pack(counter.get());
            if let (true, Some((last, until))) = (self.leaves_out(Rule::Increment), before) {
                counter = last;
                site.shelf.counter = Some((last, until));
            }
            if state.attempts[attempt].phase == Phase::Acquiring {
                let line = &mut site.lines[attempt];
                // The smaller, which is the empty one where there is one, makes room.
                line.grants[0] = Grant { counter, since: site.since, votes_from: site.votes_from };
                line.grants.sort_unstable();
            }
        }
        state.sites[at] = site;
    }

    /// A grant arrives, if there is one. Once a majority has granted, its largest counter is to be the token.
    fn granted(&self, state: &mut State, at: usize, attempt: usize, which: usize) {
        let line = &mut state.sites[at].lines[attempt];
        line.vote = std::mem::take(&mut line.grants[which]);
        line.grants.sort_unstable();
        if line.vote.counter == 0 {
            return;
        }
        let votes = self.tally(state, attempt);
        if votes.verdict() != Verdict::Won {
            return;
        }
        let token = votes.candidate(micros(self.quarantine()));
        state.attempts[attempt].token = pack(token.get());
        if votes.agrees_on(token) || self.leaves_out(Rule::Raise) {
            Self::win(state, attempt);
            return;
        }
        state.attempts[attempt].phase = Phase::Raising;
        let below = votes.below(token);
        for (node, site) in state.sites.iter_mut().enumerate() {
            let line = &mut site.lines[attempt];
            line.grants = Default::default();
            // A raise is posted to the node that granted; had it forgotten since, the raise is refused.
            line.raise = below.contains(&node) && line.vote.since == site.since;
        }
    }

    fn tally(&self, state: &State, attempt: usize) -> quorate::round::Tally {
        tally(state.sites.map(|site| {
            let vote = site.lines[attempt].vote;
            let since = if self.leaves_out(Rule::OldCounters) { 0 } else { vote.since };
            (vote.counter > 0).then_some((vote.counter, [since, vote.votes_from], 0))
        }))
    }

    /// Nobody listens any more; what was asked may still run.
    fn win(state: &mut State, attempt: usize) {
        state.attempts[attempt].phase = Phase::Won;
        for site in &mut state.sites {
            let Line { acquire, raise, .. } = site.lines[attempt];
            site.lines[attempt] = Line { acquire, raise, ..Line::default() };
        }
    }

    fn raise(&self, state: &mut State, at: usize, attempt: usize) {
        let mut site = state.sites[at];
        let to = token_of(state.attempts[attempt].token);
        let by = match (self.leaves_out(Rule::RaiseByOwner), site.shelf.lease) {
            (true, Some((whoever, _))) => whoever,
            _ => attempt as u8,
        };
        let request = Request::Raise { resource: resource(), owner: owner(by), to, keep: self.keep() };
        if self.ask(state, &mut site, request) == Reply::Raised
            && state.attempts[attempt].phase == Phase::Raising
        {
            site.lines[attempt].raised = true;
        }
        state.sites[at] = site;
    }

    fn raised(&self, state: &mut State, at: usize, attempt: usize) {
        let token = state.attempts[attempt].token;
        let line = &mut state.sites[at].lines[attempt];
        if !std::mem::take(&mut line.raised) {
            return;
        }
        line.vote.counter = token;
        if self.tally(state, attempt).agrees_on(token_of(token)) {
            Self::win(state, attempt);
        }
    }

    fn repair(&self, state: &mut State, at: usize, attempt: usize) {
        let mut site = state.sites[at];
        let token = state.attempts[attempt].token;
        let request = Request::Extend {
            resource: resource(),
            owner: owner(attempt as u8),
            ttl: FOR_EVER,
            token: token_of(token),
            keep: self.keep(),
        };
        let reply = self.ask(state, &mut site, request);
        if let (true, Reply::Extended, Some(counter)) =
            (self.leaves_out(Rule::RepairKeepsMore), reply, &mut site.shelf.counter)
        {
            counter.0 = token;
        }
        state.sites[at] = site;
    }

    /// A new memory begins with `shelf`. What was under way to the old run is gone; replies that left are not.
    fn lose_memory(&self, state: &mut State, at: usize, shelf: Shelf, margin: u32) {
        let now = Self::wall(state, &state.sites[at]);
        let site = &mut state.sites[at];
        (site.shelf, site.since, site.votes_from) = (shelf, now + margin, now + self.quarantine());
        for line in &mut site.lines {
            (line.acquire, line.raise) = (false, false);
        }
    }

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

/// Longer than anything takes, and short enough to be added to a time.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

fn token_of(token: u32) -> FencingToken {
    FencingToken::new(token.into())
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
                    shelf: Shelf { lease: None, counter: count },
                    ahead: (digit / counters) as u8,
                    since: BEGIN / 2,
                    votes_from: BEGIN / 2,
                    saved: None,
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
                self.lose_memory(&mut state, at(node)?, Shelf::default(), 0);
            }
            Action::Save(node) => {
                let site = &mut state.sites[at(node)?];
                site.saved = Some(Shelf { lease: None, ..site.shelf });
            }
            Action::Return(node) => {
                state.returns -= 1;
                let saved = state.sites[at(node)?].saved.take()?;
                let margin = if self.leaves_out(Rule::LateMemory) { 0 } else { 2 * OFFSET };
                self.lose_memory(&mut state, at(node)?, saved, margin);
            }
        }
        if self.prompt {
            // What was not heard at once never is.
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
        if self.forgets + self.returns > 0 {
            properties.push(Property::sometimes("a node voted again", |_, state: &State| {
                state.sites.iter().flat_map(|site| site.lines).any(|line| line.vote.since >= BEGIN)
            }));
        }
        properties
    }
}
