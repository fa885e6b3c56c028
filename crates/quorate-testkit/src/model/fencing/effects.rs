//! The effects of the actions on the state of the model of fencing tokens.

use super::{
    bounds::{BEGIN, Fencing, OFFSET, Rule, STEP},
    state::{Attempt, Grant, Line, Phase, Site, State},
};
use crate::model::lease_store::{LeaseStore, owner, pack, resource, tally};
use quorate::{
    internals::{Tally, Verdict, majority},
    node::{FencingToken, NodeTime, Refusal, Reply, Request, engine::Clocks},
};
use std::time::Duration;

impl Fencing {
    pub(super) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn wall(state: &State, site: &Site) -> u32 {
        BEGIN + u32::from(state.now + site.ahead) * STEP
    }

    fn quarantine(&self) -> u32 {
        if self.leaves_out(Rule::Quarantine) { 0 } else { u32::from(self.quarantine) * STEP }
    }

    pub(super) fn votes(state: &State, site: &Site) -> bool {
        Self::wall(state, site) >= site.votes_from
    }

    fn ask(&self, state: &State, site: &mut Site, request: Request) -> Reply {
        if !matches!(request, Request::Raise { .. })
            && let Some((holder, _)) = site.store.lease.take()
        {
            // A key may end at any moment. The validity of its lease has ended before.
            site.lines[usize::from(holder)].lapsed = self.finality;
        }
        let clocks = Clocks { wall: NodeTime::from_micros(Self::wall(state, site).into()), lease_nanos: 0 };
        let started = if site.endless && !self.leaves_out(Rule::EndlessIsMissing) {
            site.store.counter.take()
        } else {
            None
        };
        let before = site.store.counter;
        let reply = site.store.ask(request, clocks, NodeTime::from_micros(u64::MAX));
        site.endless &= site.store.counter == before;
        site.store.counter = site.store.counter.or(started);
        reply
    }

    fn keep(&self) -> Duration {
        if self.keep == u8::MAX { Duration::from_secs(1 << 30) } else { micros(u32::from(self.keep) * STEP) }
    }

    /// Runs INCRBY on the node's counter. Returns the count.
    pub(super) fn increment(state: &State, site: &mut Site) -> u32 {
        let live = site.store.counter.filter(|(_, until)| *until > Self::wall(state, site));
        site.endless |= live.is_none();
        let (count, until) = live.unwrap_or((0, u32::MAX));
        site.store.counter = Some((count + 1, until));
        count + 1
    }

    /// Runs an acquire as plain commands, after the node's key has ended.
    pub(super) fn run_commands(&self, state: &mut State, at: usize, attempt: usize) {
        let mut site = state.sites[at];
        if let Some((holder, _)) = site.store.lease.replace((attempt as u8, u32::MAX)) {
            site.lines[usize::from(holder)].lapsed = self.finality;
        }
        let counter = Self::increment(state, &mut site);
        let line = &mut site.lines[attempt];
        if !line.stray && state.attempts[attempt].phase == Phase::Acquiring {
            line.grants[0] = Grant { counter, since: site.since, votes_from: site.votes_from };
            line.grants.sort_unstable();
        }
        (line.acquire, line.stray, line.lapsed) = (false, false, false);
        state.sites[at] = site;
    }

    /// Sets the record of a claim by a plain command, if there is none, and judges the grant.
    pub(super) fn set_record(&self, state: &mut State, at: usize, attempt: usize) {
        let (mut site, propose) = (state.sites[at], state.attempts[attempt].propose);
        let wall = Self::wall(state, &site);
        if !site.lines[attempt].near || site.store.counter.is_some_and(|(_, until)| until > wall) {
            return;
        }
        if let Some((holder, _)) = site.store.lease.replace((attempt as u8, u32::MAX)) {
            site.lines[usize::from(holder)].lapsed = self.finality;
        }
        let until = wall.saturating_add(pack(micros_of(self.keep())));
        site.store.counter = (!self.leaves_out(Rule::ClaimKept)).then_some((propose + 1, until));
        let is_near = wall.abs_diff(propose) <= OFFSET || self.leaves_out(Rule::ClaimClock);
        let line = &mut site.lines[attempt];
        if is_near && !line.stray && state.attempts[attempt].phase == Phase::Acquiring {
            line.grants[0] = Grant { counter: propose + 1, since: site.since, votes_from: site.votes_from };
            line.grants.sort_unstable();
        }
        (line.acquire, line.near, line.stray, line.lapsed) = (false, false, false, false);
        state.sites[at] = site;
    }

    pub(super) fn begin(&self, state: &mut State, off: i8) {
        let number = usize::from(state.begun);
        let floor = state.attempts.iter().filter(|one| one.phase == Phase::Won).map(|one| one.token).max();
        let true_time = BEGIN + u32::from(state.now) * STEP;
        let propose = match self.leaves_out(Rule::Seed) {
            false => true_time.wrapping_add_signed(i32::from(off) * STEP.cast_signed()),
            true => BEGIN / 2,
        };
        let floor = floor.unwrap_or_default();
        state.attempts[number] = Attempt { phase: Phase::Acquiring, propose, floor, ..Attempt::default() };
        state.begun += 1;
        for at in 0..state.sites.len() {
            let wall = Self::wall(state, &state.sites[at]);
            let near = wall.abs_diff(propose) <= OFFSET || self.leaves_out(Rule::ClaimClockBefore);
            let line = &mut state.sites[at].lines[number];
            (line.acquire, line.near) = (true, near && self.claims);
        }
    }

    pub(super) fn acquire(&self, state: &mut State, at: usize, attempt: usize, again: bool) {
        let mut site = state.sites[at];
        let before = site.store.counter;
        let request = Request::Acquire {
            resource: resource(),
            owner: owner(attempt as u8),
            ttl: FOR_EVER,
            propose: token_of(state.attempts[attempt].propose),
            tolerance: if self.leaves_out(Rule::Seed) { FOR_EVER } else { micros(OFFSET) },
            keep: self.keep(),
            ticket: None,
        };
        let reply = self.ask(state, &mut site, request);
        (site.lines[attempt].acquire, site.lines[attempt].near) = (again, again && site.lines[attempt].near);
        state.doubles -= u8::from(again);
        if let Reply::Granted { counter, .. } = reply {
            let mut counter = pack(counter.get());
            site.lines[attempt].lapsed = false;
            if let (true, Some((last, until))) = (self.leaves_out(Rule::Increment), before) {
                counter = last;
                site.store.counter = Some((last, until));
            }
            if state.attempts[attempt].phase == Phase::Acquiring {
                let line = &mut site.lines[attempt];
                // The array has room for two grants, and is sorted. The new grant replaces the smaller one. An
                // empty entry counts as smaller than any grant.
                line.grants[0] = Grant { counter, since: site.since, votes_from: site.votes_from };
                line.grants.sort_unstable();
            }
        }
        state.sites[at] = site;
    }

    /// Delivers a grant, if there is one in flight. Once a majority has granted, the largest counter of the
    /// grants becomes the token. (If a counter was written before its node's memory began, the time at which
    /// the node's quarantine ended counts in its place.)
    pub(super) fn granted(&self, state: &mut State, at: usize, attempt: usize, which: usize) {
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
            self.win(state, attempt);
            return;
        }
        state.attempts[attempt].phase = Phase::Raising;
        let below = votes.below(token);
        for (node, site) in state.sites.iter_mut().enumerate() {
            let line = &mut site.lines[attempt];
            line.grants = Default::default();
            // A raise is sent to the nodes that granted with a counter smaller than the token. If a node has
            // forgotten its grant since then, the raise is dropped, because the node would refuse it.
            line.raise = below.contains(&node) && line.vote.since == site.since;
        }
    }

    fn tally(&self, state: &State, attempt: usize) -> Tally {
        tally(state.sites.map(|site| {
            let vote = site.lines[attempt].vote;
            let since = if self.leaves_out(Rule::OldCounters) { 0 } else { vote.since };
            (vote.counter > 0).then_some((vote.counter, [since, vote.votes_from], 0))
        }))
    }

    /// Marks the attempt as won. The attempt needs no further replies, but its requests in flight may still
    /// run.
    fn win(&self, state: &mut State, attempt: usize) {
        let stored = state.sites.iter().filter(|site| {
            let line = &site.lines[attempt];
            line.vote.counter > 0 && !line.lapsed
        });
        let valid = self.finality && stored.count() >= majority(state.sites.len());
        (state.attempts[attempt].phase, state.attempts[attempt].valid) = (Phase::Won, valid);
        for site in &mut state.sites {
            let Line { acquire, near, stray, raise, .. } = site.lines[attempt];
            site.lines[attempt] = Line { acquire, near, stray, raise, ..Line::default() };
            for (other, line) in state.attempts.iter().zip(&mut site.lines).filter(|_| valid) {
                line.kept &= other.token > state.attempts[attempt].token;
            }
        }
    }

    pub(super) fn raise(&self, state: &mut State, at: usize, attempt: usize) {
        let mut site = state.sites[at];
        let to = token_of(state.attempts[attempt].token);
        let by = match (self.leaves_out(Rule::RaiseByOwner), site.store.lease) {
            (true, Some((holder, _))) => holder,
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

    pub(super) fn raised(&self, state: &mut State, at: usize, attempt: usize) {
        let token = state.attempts[attempt].token;
        let line = &mut state.sites[at].lines[attempt];
        if !std::mem::take(&mut line.raised) {
            return;
        }
        line.vote.counter = token;
        if self.tally(state, attempt).agrees_on(token_of(token)) {
            self.win(state, attempt);
        }
    }

    pub(super) fn repair(&self, state: &mut State, at: usize, attempt: usize) {
        let mut site = state.sites[at];
        let token = state.attempts[attempt].token;
        let extend = |token| Request::Extend {
            resource: resource(),
            owner: owner(attempt as u8),
            ttl: FOR_EVER,
            token: token_of(token),
            keep: self.keep(),
        };
        let extended = state.sites.iter().filter(|site| site.lines[attempt].extended).count();
        let vouches = extended >= majority(state.sites.len()) || self.leaves_out(Rule::Vouch);
        let refused = if vouches { site.lines[attempt].refused } else { 0 };
        let mut reply = self.ask(state, &mut site, extend(token.max(refused)));
        if self.leaves_out(Rule::RepairNoLater)
            && let Reply::Refused(Refusal::LaterGrants { counter }) = reply
        {
            reply = self.ask(state, &mut site, extend(pack(counter.get())));
        }
        if let (true, Reply::Extended | Reply::Refused(Refusal::LaterGrants { .. }), Some(counter)) =
            (self.leaves_out(Rule::RepairKeepsMore), &reply, &mut site.store.counter)
        {
            counter.0 = token;
        }
        let line = &mut site.lines[attempt];
        match reply {
            _ if !self.finality => {}
            Reply::Extended => {
                state.attempts[attempt].vouched |= refused > token;
                (line.refused, line.extended, line.kept) = (0, true, true);
            }
            Reply::Refused(Refusal::LaterGrants { counter }) => {
                let counter = pack(counter.get());
                if std::mem::replace(&mut line.refused, counter) != counter {
                    line.extended = false;
                    state.sites.iter_mut().for_each(|site| site.lines[attempt].extended = false);
                }
                site.lines[attempt].kept = false;
            }
            _ => {}
        }
        state.sites[at] = site;
    }

    /// Gives the node a new memory with the data of `store`. Requests in flight to the node are lost, because
    /// its earlier process has ended. Replies that have already left the node still arrive.
    pub(super) fn lose_memory(&self, state: &mut State, at: usize, store: LeaseStore, margin: u32) {
        let now = Self::wall(state, &state.sites[at]);
        let site = &mut state.sites[at];
        (site.store, site.since, site.votes_from) = (store, now + margin, now + self.quarantine());
        for line in &mut site.lines {
            (line.acquire, line.stray, line.raise) = (false, false, false);
        }
        site.endless = false;
    }
}

/// A time that is longer than any history of the model, and short enough to be added to another time.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn token_of(token: u32) -> FencingToken {
    FencingToken::new(token.into())
}
