//! The effects of the actions on the state of the model of exclusion.

use super::{
    bounds::{ATTEMPTS, EARLY, Exclusion, MARGIN, NOW, Rule, SLOW, TTL},
    state::{Line, Phase, Site, State},
};
use crate::model::lease_store::{LeaseStore, owner, resource, tally};
use quorate::{
    internals::{Tally, Verdict},
    node::{FencingToken, NodeTime, Reply, Request, engine::Clocks},
};
use std::time::Duration;

impl Exclusion {
    pub(super) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn owner(&self, attempt: usize) -> u8 {
        if self.leaves_out(Rule::FreshOwner) && attempt == 2 { 0 } else { attempt as u8 }
    }

    /// Returns the time for which a worker believes in a lease, in steps of true time after the sending of
    /// its request.
    fn believed(&self) -> u8 {
        if self.leaves_out(Rule::Margin) { TTL + SLOW } else { TTL - MARGIN + SLOW }
    }

    /// Returns `true` if the node runs an acquire now, or an extension if `extends` is true. A node in
    /// quarantine does neither.
    pub(super) fn serves(&self, site: &Site, extends: bool) -> bool {
        let rule = if extends { Rule::QuarantineOfHolders } else { Rule::MarkerAfter };
        site.quarantine == 0 || self.leaves_out(rule)
    }

    /// Runs `request` on the shipped engine.
    fn ask(site: &mut Site, request: Request) -> Reply {
        let now = u64::from(NOW);
        let mut store = LeaseStore {
            lease: site.key.map(|(owner, left)| (owner, NOW + u32::from(left))),
            counter: Some((1, u32::MAX)),
        };
        let clocks = Clocks { wall: NodeTime::from_micros(now), lease_nanos: now };
        let reply = store.ask(request, clocks, NodeTime::from_micros(u64::MAX));
        site.key = store.lease.map(|(owner, until)| (owner, (until - NOW) as u8));
        reply
    }

    /// Returns the remaining steps of a key that plain commands of this age set.
    fn left_of_key(&self, age: u8) -> u8 {
        (TTL - EARLY).saturating_sub(age + u8::from(self.leaves_out(Rule::LatestSend)))
    }

    pub(super) fn acquires(&self, state: &mut State, at: usize, attempt: usize, again: bool) -> Option<()> {
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
            ttl: steps(if self.commands { self.left_of_key(age) } else { TTL - EARLY }),
            propose: FencingToken::new(u64::from(NOW)),
            tolerance: Duration::ZERO,
            keep: FOR_EVER,
            ticket: None,
        };
        if matches!(Self::ask(site, request), Reply::Granted { .. })
            && state.phases[attempt] == Phase::Acquiring
        {
            site.lines[attempt].reply = Some(age);
        }
        // A key whose end has passed does not exist.
        site.key = site.key.filter(|(_, left)| *left > 0);
        Some(())
    }

    pub(super) fn extends(&self, state: &mut State, at: usize, attempt: usize, again: bool) -> Option<()> {
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

    pub(super) fn releases(&self, site: &mut Site, attempt: usize) {
        site.lines[attempt].release = false;
        let owner = owner(self.owner(attempt));
        Self::ask(site, Request::Release { resource: resource(), owner });
    }

    /// Delivers a reply. The attempt counts the reply as a vote at once.
    pub(super) fn receives(&self, state: &mut State, at: usize, attempt: usize) -> Option<()> {
        let line = &mut state.sites[at].lines[attempt];
        let age = line.reply.take()?;
        let age = if self.leaves_out(Rule::Send) { 0 } else { age };
        // Replies may arrive out of order. If a node has voted before, the vote whose request was sent later
        // is kept.
        line.vote = Some(line.vote.map_or(age, |vote| vote.min(age)));
        let votes = self.tally(state, attempt);
        if votes.verdict() == Verdict::Won {
            let left = self.left(&votes);
            match state.phases[attempt] {
                Phase::Acquiring if left == 0 => Self::end(state, attempt, Phase::Lost),
                _ => state.phases[attempt] = Phase::Held(left),
            }
        }
        Some(())
    }

    fn tally(&self, state: &State, attempt: usize) -> Tally {
        tally(
            state
                .sites
                .map(|site| self.vote(&site.lines[attempt]).map(|age| (1, [0; 2], NOW - u32::from(age)))),
        )
    }

    fn vote(&self, line: &Line) -> Option<u8> {
        let counts_unasked = line.spared && self.leaves_out(Rule::Asked);
        line.vote.or(counts_unasked.then_some(0))
    }

    /// Returns the number of further steps for which the worker may believe in the lease because of these
    /// votes.
    fn left(&self, votes: &Tally) -> u8 {
        let sent = match self.leaves_out(Rule::QuorumthSend) {
            false => votes.sent_by_quorum(),
            true => votes.granted().map(|(_, grant)| grant.sent).max(),
        };
        let age = sent.map_or(u64::MAX, |sent| u64::from(NOW) - sent.as_nanos());
        u64::from(self.believed()).saturating_sub(age) as u8
    }

    /// Ends an attempt and sends its releases.
    pub(super) fn end(state: &mut State, attempt: usize, phase: Phase) {
        state.phases[attempt] = phase;
        for site in &mut state.sites {
            let line = &mut site.lines[attempt];
            line.release = !line.spared;
        }
    }

    /// Adds a step to all ages, and subtracts one from all remaining times.
    pub(super) fn step(&self, state: &mut State) {
        for site in &mut state.sites {
            site.quarantine = site.quarantine.saturating_sub(1);
            site.key = site.key.and_then(|(owner, left)| (left > 1).then_some((owner, left - 1)));
            for line in &mut site.lines {
                // A request or a vote of this age can no longer make a worker believe in a lease. It has the
                // same effect as a lost one, and is dropped.
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
                    let hopes =
                        |line: &Line| line.spared || line.acquire.or(line.reply).or(line.vote).is_some();
                    if lines.filter(hopes).count() < 2 {
                        Self::end(state, attempt, Phase::Lost);
                    }
                }
                _ => {}
            }
        }
    }

    /// Drops messages that no longer matter, so that fewer states differ. These are replies for which no
    /// attempt waits, and acquires and extensions of attempts that have ended. The only remaining effect of
    /// such a request is that it keeps other attempts from acquiring. The model also covers the loss of the
    /// request.
    pub(super) fn drop_stale_messages(state: &mut State) {
        for (attempt, phase) in state.phases.iter().enumerate() {
            if matches!(phase, Phase::Ended | Phase::Lost) {
                for site in &mut state.sites {
                    let line = &mut site.lines[attempt];
                    *line = Line { release: line.release, ..Line::default() };
                }
            }
        }
    }
}

/// A time that is longer than any history of the model.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Returns a number of steps as a duration. The model counts a step as a nanosecond on the nodes' clocks.
fn steps(steps: u8) -> Duration {
    Duration::from_nanos(steps.into())
}
