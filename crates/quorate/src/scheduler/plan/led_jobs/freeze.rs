//! The freeze of all jobs of the group.

use super::LedJobs;
use crate::{
    env::WallTime,
    scheduler::{
        job::{RequestId, RunOutcome},
        plan::{
            active_run::ActiveRun, effect::Effect, group_freeze::GroupFreeze, job_entry::JobEntry,
            job_plan::is_before, reporter::FROZEN,
        },
        store::Paused,
    },
};
use std::sync::Arc;

impl LedJobs {
    pub(in crate::scheduler) fn group_freeze(&self) -> &GroupFreeze {
        &self.freeze
    }

    /// Freezes the group on a request: no tick of its jobs is due before the end. Active and requested runs continue.
    pub(in crate::scheduler) fn freeze(
        &mut self,
        request: RequestId,
        paused: Paused,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) {
        self.freeze.freeze(request, paused);
        let Some(frozen) = self.freeze.last().cloned() else { return };
        for place in self.places() {
            self.end_pauses(place, now, out);
            let freeze = |entry: &mut JobEntry| (Arc::clone(entry.job()), entry.freeze(frozen.clone()));
            let Some((job, skipped)) = self.table.change(place, freeze) else { continue };
            let is_left_out = |run: &ActiveRun| run.request.is_none() && is_before(run.tick, frozen.until);
            self.withdraw(place, is_left_out, RunOutcome::SkippedFrozen, FROZEN, out);
            self.skip(&job, skipped, now, out);
        }
    }

    /// Ends the freeze on a request.
    pub(in crate::scheduler) fn unfreeze(
        &mut self,
        request: RequestId,
        now: WallTime,
        out: &mut Vec<Effect>,
    ) {
        self.freeze.unfreeze(request, now);
        let Some(frozen) = self.freeze.last().cloned() else { return };
        for place in self.places() {
            self.table.change(place, |entry| entry.change_freeze(&frozen));
            self.end_pauses(place, now, out);
        }
    }

    /// Freezes a job that is being taken over, if the group is frozen.
    pub(super) fn take_freeze(&self, entry: &mut JobEntry) {
        let Some(freeze) = self.freeze.last() else { return };
        let recorded = self.sealed.last_before(&entry.job().name, freeze.at);
        entry.take_freeze(freeze, self.marked.max(recorded));
    }

    fn places(&self) -> Vec<usize> {
        self.table.names().map(|(_, place)| place).collect()
    }
}
