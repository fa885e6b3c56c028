//! The part of a run that replaces the node set, in the seeds that have a [`NodeChange`](crate::sim::NodeChange).

use super::{OPERATOR, Run};
use crate::sim::{
    Fault, NodeList,
    scenario::WORKERS,
    worker::{ChangeState, Replacer},
};
use std::{sync::Arc, time::Duration};

/// The time that the command may take in the fault-free phase, without its waits: the rest of a visit to a server that
/// does not answer, the pause after a crash, and the steps themselves.
const REPLACED_IN: Duration = Duration::from_secs(5);
/// The number of waits in that time. A server that starts again when the faults end may have to be closed again.
const WAITS: u32 = 2;
/// The time for which the workers work with the new list before the end of the run.
const NEW_LIST_FOR: Duration = Duration::from_millis(1_500);

impl Run {
    /// Starts the operator who replaces the node set, if the seed has one.
    pub(super) fn start_replacer(&mut self) {
        let Some(change) = self.scenario.change.clone() else { return };
        let state = Arc::<ChangeState>::default();
        let replacer = Replacer {
            truth: self.truth,
            trace: self.trace.clone(),
            referee: Arc::clone(&self.referee),
            machine: Arc::clone(&self.machines[OPERATOR]),
            links: self.links[OPERATOR].clone(),
            servers: self.servers.clone(),
            setup: self.plan.setup.clone(),
            seed: self.scenario.seed,
            change,
            state: Arc::clone(&state),
        };
        #[expect(clippy::disallowed_methods, reason = "the operator outlives each process of the command")]
        tokio::spawn(replacer.work());
        self.change_state = Some(state);
    }

    /// Returns the node list with which a process of this worker starts now.
    pub(super) fn list_of(&self, process: usize) -> NodeList {
        let Some(change) = &self.scenario.change else { return NodeList::default() };
        let may_use_new = change.meets_the_old_set()
            || self.change_state.as_ref().is_some_and(|state| state.are_joining_closed());
        let is_given = self.given_new_list.get(process).copied().unwrap_or_default();
        if is_given && may_use_new { change.new.clone() } else { change.old.clone() }
    }

    /// Waits until the node set is replaced, and restarts the workers that still have the old list. Does nothing in
    /// seeds without a replacement.
    pub(super) async fn finish_change(&mut self) {
        let Some(state) = self.change_state.clone() else { return };
        let began = self.truth.now();
        let waits = self.plan.setup.quarantine().mul_f64(1.0 + self.plan.setup.drift_rate) * WAITS;
        let over = || state.is_over().then_some(0);
        self.watch("the replacement", began, began + REPLACED_IN + waits, over).await;
        for worker in 0..WORKERS {
            self.inject(Fault::GiveNewList(worker));
            if !self.lists[worker].is_new {
                self.inject(Fault::CrashWorker(worker));
                self.inject(Fault::StartWorker(worker, None));
            }
        }
        self.truth.pass(NEW_LIST_FOR).await;
    }
}
