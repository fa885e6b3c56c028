//! The takeover of one job by a new leader. The leader finds the job's unfinished runs, and the time after
//! which the job's ticks are due.

use crate::{
    env::WallTime,
    scheduler::{
        job::Job,
        plan::active_run::RecordedRun,
        run::pending_run::PendingRun,
        store::{RunKey, record_life::LATE_AFTER, snapshot::LedgerSnapshot},
    },
};

/// Finds the recorded runs of a job that have no recorded end. Returns the runs to start or continue, and the runs that are
/// lost.
pub(in crate::scheduler) fn unfinished(
    job: &Job,
    sealed: &LedgerSnapshot,
) -> (Vec<PendingRun>, Vec<PendingRun>) {
    let (mut runs, mut lost) = (Vec::new(), Vec::new());
    for (tick, record) in sealed.unfinished(&job.name) {
        let key = RunKey::new(&job.name, tick).key();
        match PendingRun::recorded(key, tick, record).next_step(job.delivery) {
            RecordedRun::Continue(run) => runs.push(run),
            RecordedRun::Lost(run) => lost.push(run),
        }
    }
    (runs, lost)
}

/// Returns the time after which ticks are due for a leader that begins at `now`.
///
/// Ticks within the misfire window are due. Some earlier ticks are due too, so that the leader can report them
/// as missed. Such a tick must be later than `marked`, the time up to which the previous leader made decisions
/// on all ticks. It must also be later than the last tick before the window that has a record. No tick before
/// `since` is due.
pub(in crate::scheduler) fn due_after(
    job: &Job,
    sealed: &LedgerSnapshot,
    since: WallTime,
    marked: Option<WallTime>,
    now: WallTime,
) -> WallTime {
    // Under every misfire rule, a tick that is at most `LATE_AFTER` late is on time. So the window is at least
    // that long.
    let window = now - job.misfire.within().max(LATE_AFTER) - job.jitter;
    let before = marked.filter(|marked| *marked < window);
    let ran = before.and_then(|_| sealed.last_before(&job.name, window));
    since.max(before.unwrap_or(window)).max(ran.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::FencingToken,
        scheduler::{
            job::{RequestId, RunCause},
            plan::job_plan::JobPlan,
            policy::{Delivery, Misfire, Placement},
            schedule::every,
            store::{
                OpenRun, RunRecord,
                snapshot::tests::{SECOND, at, sealed, snapshot},
            },
        },
    };

    use std::sync::Arc;

    fn job(delivery: Delivery) -> Job {
        let job = Job::new("j", every(SECOND).unwrap(), |_| async { Ok::<(), String>(()) });
        job.delivery(delivery).misfire(Misfire::run_all(10 * SECOND))
    }

    /// Returns the snapshot of a ledger with an open record of the tick 12.
    fn opened(cause: RunCause) -> LedgerSnapshot {
        let open = OpenRun {
            generation: 2,
            at: at(11),
            not_before: at(13),
            take_by: at(22),
            delivery: Delivery::AtMostOnce,
            cause,
            term: FencingToken::new(3),
            state: None,
            cancel: None,
            token: FencingToken::new(1),
            to: None,
        };
        snapshot([(RunKey::new("j", at(12)).key(), RunRecord::Open(open).to_value())])
    }

    #[test]
    fn an_open_run_is_adopted_under_every_delivery_rule_and_placement_with_its_cause_and_its_times() {
        for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
            for placement in [Placement::Leader, Placement::AnyWorker] {
                let job = job(delivery).placement(placement);
                let (runs, lost) = unfinished(&job, &opened(RunCause::Scheduled));
                let [run] = &runs[..] else { panic!("{runs:?}") };
                assert!(lost.is_empty() && run.is_for_workers(&job) && run.is_unfinished());
                assert_eq!((run.tick, run.at, run.not_before), (at(12), at(11), at(13)));
                assert_eq!((run.cause, run.unknown), (RunCause::Scheduled, false));
                assert_eq!(run.seen.as_ref().map(|seen| seen.term().get()), Some(3));
            }
        }
    }

    #[test]
    fn an_adopted_run_is_watched_however_late_the_leader_begins() {
        let job = job(Delivery::AtMostOnce).placement(Placement::AnyWorker);
        let (runs, _) = unfinished(&job, &opened(RunCause::Scheduled));
        let mut plan = JobPlan::new(Arc::new(job), at(400), runs, false);
        let (run, skipped) = plan.start(at(500));
        assert_eq!((run.map(|run| run.tick), skipped), (Some(at(12)), vec![]), "a worker may execute it");
    }

    #[test]
    fn a_run_that_the_leader_itself_started_is_for_workers_only_under_that_placement() {
        let (runs, _) = unfinished(&job(Delivery::AtLeastOnce), &sealed(&[12], &[]));
        assert!(!runs[0].is_for_workers(&job(Delivery::AtLeastOnce)));
        assert!(runs[0].is_for_workers(&job(Delivery::AtLeastOnce).placement(Placement::AnyWorker)));
        let requested = RunCause::Triggered { id: RequestId::from_u128(7) };
        let (runs, _) = unfinished(&job(Delivery::AtMostOnce), &opened(requested));
        assert_eq!(runs[0].request(), Some(RequestId::from_u128(7)));
    }

    #[test]
    fn a_leader_goes_back_by_its_window_or_to_the_mark_of_the_last_leader() {
        let sealed = sealed(&[], &[100]);
        let once = job(Delivery::AtMostOnce);
        let from = |marked: Option<u64>| due_after(&once, &sealed, at(20), marked.map(at), at(500));
        assert_eq!(from(None), at(490));
        assert_eq!(from(Some(495)), at(490), "a tick that was decided on may not have run");
        assert_eq!(from(Some(300)), at(300), "no leader ran anything since, which the history says");
        assert_eq!(from(Some(95)), at(100), "that tick has run");
        assert_eq!(
            due_after(&once, &sealed, at(495), Some(at(300)), at(500)),
            at(495),
            "not before the job existed"
        );
    }
}
