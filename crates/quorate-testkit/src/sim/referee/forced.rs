//! The forced releases of the operator.

use super::{Referee, State};
use crate::sim::{Event, Forced};
use quorate::node::{Batch, Owner, Request, Resource};
use std::time::Duration;

impl Referee {
    /// Records that the operator is about to release the lease of `owner` by force.
    pub(in super::super) fn forces(&self, resource: &Resource, owner: &Owner) {
        self.trace.note(format_args!("the operator releases {resource} of {owner} by force"));
        self.state().forced.entry(owner.clone()).or_default();
        self.judge(&Event::Forces { owner });
    }

    /// Records the end of a forced release, and whether the operator was told that it is final.
    pub(in super::super) fn forced(&self, owner: &Owner, is_final: bool) {
        let now = self.truth.now();
        let is = if is_final { "" } else { "not " };
        self.trace.note(format_args!("the forced release of {owner} is {is}final"));
        if let Some(forced) = self.state().forced.get_mut(owner).filter(|_| is_final) {
            forced.final_at.get_or_insert(now);
        }
        self.look();
    }
}

impl State {
    /// Notes the leases that a server removes with this batch, if an operator releases them by force.
    pub(super) fn note_freed(&mut self, batch: &Batch, now: Duration) {
        if self.forced.is_empty() {
            return;
        }
        for request in &batch.requests {
            if let Request::Release { owner, .. } = request
                && let Some(forced) = self.forced.get_mut(owner)
            {
                forced.freed_at = Some(now);
            }
        }
    }

    pub(super) fn forced(&self, owner: Option<&Owner>) -> Forced {
        owner.and_then(|owner| self.forced.get(owner)).copied().unwrap_or_default()
    }
}
