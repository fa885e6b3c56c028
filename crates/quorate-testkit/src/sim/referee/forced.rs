//! The forced releases of the operator.

use super::{Referee, State};
use crate::sim::{Event, Forced};
use quorate::node::{Batch, Owner, Request, Resource};

impl Referee {
    /// Records that the operator is about to release the lease of `owner` by force.
    pub(in super::super) fn forces(&self, resource: &Resource, owner: &Owner) {
        self.trace.note(format_args!("the operator releases {resource} of {owner} by force"));
        self.state().forced.entry(owner.clone()).or_default();
        self.judge(&Event::Forces { owner });
    }

    /// Records the end of a forced release, and whether it was reported as final.
    pub(in super::super) fn forced(&self, owner: &Owner, is_final: bool) {
        let now = self.truth.now();
        let is = if is_final { "" } else { "not " };
        self.trace.note(format_args!("the forced release of {owner} is {is}final"));
        if let Some(forced) = self.state().forced.get_mut(owner).filter(|_| is_final) {
            forced.final_at.get_or_insert(now);
        }
        self.look();
    }

    /// Notes the leases that a server is about to remove with this batch, if an operator releases them by force.
    pub(in super::super) fn note_freed(&self, batch: &Batch) {
        let now = self.truth.now();
        let mut state = self.state();
        if state.forced.is_empty() {
            return;
        }
        for request in &batch.requests {
            if let Request::Release { owner, .. } = request
                && let Some(forced) = state.forced.get_mut(owner)
            {
                forced.freed_at = Some(now);
            }
        }
    }
}

impl State {
    pub(super) fn forced(&self, owner: Option<&Owner>) -> Forced {
        owner.and_then(|owner| self.forced.get(owner)).copied().unwrap_or_default()
    }
}
