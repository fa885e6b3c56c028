use crate::{
    env::WallTime,
    ledger::Waiting,
    quorum::QuorumStatus,
    scheduler::{
        control::status::RegisteredJob,
        schedule::{Schedule, Zone},
        store::{HistoryEntry, Paused},
    },
    trust::{NodeState, QuarantineReason, VoteRejection},
    vote::{NoMajority, NodeOutcome},
};
use std::{sync::Arc, time::Duration};

/// The facts about a job that any client of the nodes can read.
#[derive(Debug)]
pub(in crate::scheduler::control) struct JobFacts {
    pub(in crate::scheduler::control) job: Arc<str>,
    pub(in crate::scheduler::control) group: Arc<str>,
    /// The time that the question is about; `None` for now.
    pub(in crate::scheduler::control) asked: Option<WallTime>,
    /// The zone of the times in the texts; `None` for that of the job.
    pub(in crate::scheduler::control) zone: Option<Zone>,
    /// The time of the quorum's clock.
    pub(in crate::scheduler::control) now: WallTime,
    /// The time of this machine's clock.
    pub(in crate::scheduler::control) local: WallTime,
    /// The states of the nodes.
    pub(in crate::scheduler::control) nodes: NodeFacts,
    /// The ledger; `None` if too few nodes answered.
    pub(in crate::scheduler::control) ledger: Option<LedgerFacts>,
}

/// The facts about a job that are read from the ledger and the election.
#[derive(Debug)]
pub(in crate::scheduler::control) struct LedgerFacts {
    pub(in crate::scheduler::control) leader: Option<Arc<str>>,
    /// The reason why no leader can use the ledger, if too few copies of it are complete.
    pub(in crate::scheduler::control) waiting: Option<Waiting>,
    /// The job, if a leader has registered it.
    pub(in crate::scheduler::control) job: Option<RegisteredJob>,
    /// If the job is unknown, the most similar name of another job.
    pub(in crate::scheduler::control) nearest: Option<Arc<str>>,
    pub(in crate::scheduler::control) others: usize,
    /// The active runs of all jobs with the concurrency key of the job, each with its job and its worker.
    pub(in crate::scheduler::control) holders: Vec<(Arc<str>, Arc<str>)>,
    /// The entries of the job's history, oldest first.
    pub(in crate::scheduler::control) history: Vec<HistoryEntry>,
}

/// The number of nodes that vote, and the reasons why the other nodes do not vote or did not answer.
#[derive(Debug, Default)]
pub(in crate::scheduler::control) struct NodeFacts {
    pub(in crate::scheduler::control) voting: usize,
    pub(in crate::scheduler::control) needed: usize,
    pub(in crate::scheduler::control) total: usize,
    /// The number of nodes that do not vote because a clock is wrong.
    pub(in crate::scheduler::control) by_clock: usize,
    /// The number of these whose clock and this machine's are too far apart. They begin no lease, and extend those of a
    /// leader.
    pub(in crate::scheduler::control) far_apart: usize,
    /// For each node that does not vote, the reason.
    pub(in crate::scheduler::control) reasons: Vec<String>,
}

impl NodeFacts {
    /// Computes the facts about the nodes from the status of the quorum.
    pub(in crate::scheduler::control) fn of_status(status: &QuorumStatus) -> Self {
        let reason = |node: &crate::trust::NodeStatus| Some(format!("{}: {}", node.name, node.reason()?));
        Self {
            voting: status.voting(),
            needed: status.needed(),
            total: status.len(),
            by_clock: status.iter().filter(|node| is_clock(&node.state)).count(),
            far_apart: status.iter().filter(|node| is_far_apart(&node.state)).count(),
            reasons: status.iter().filter_map(reason).collect(),
        }
    }

    /// Computes the facts about the nodes from the report of a read that too few nodes answered.
    pub(in crate::scheduler::control) fn of_report(report: &NoMajority) -> Self {
        let failed = |outcome: &NodeOutcome| !matches!(outcome, NodeOutcome::Granted);
        let others = report.outcomes().iter().filter(|(_, outcome)| failed(outcome));
        Self {
            voting: report.outcomes().len() - report.count(failed),
            needed: report.needed(),
            total: report.outcomes().len(),
            by_clock: 0,
            far_apart: 0,
            reasons: others.map(|(name, outcome)| format!("{name}: {outcome}")).collect(),
        }
    }

    /// Returns whether a majority votes.
    pub(in crate::scheduler::control) fn has_majority(&self) -> bool {
        self.voting >= self.needed
    }

    /// Returns whether a majority serves a leader that holds its lease.
    pub(in crate::scheduler::control) fn serve_a_leader(&self) -> bool {
        self.voting + self.far_apart >= self.needed
    }
}

/// Returns whether the node does not vote because its clock and this machine's are too far apart.
fn is_far_apart(state: &NodeState) -> bool {
    matches!(state, NodeState::Refused(VoteRejection::Clock { .. }))
}

/// Returns whether the node does not vote because a clock is wrong.
fn is_clock(state: &NodeState) -> bool {
    let (NodeState::Quarantined { why, .. } | NodeState::Refused(why)) = state else { return false };
    matches!(
        why,
        VoteRejection::Clock { .. } | VoteRejection::Quarantined { reason: QuarantineReason::Jumped, .. }
    )
}

/// The relation of a time to a job's schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Yes,
    No,
    /// The schedule leaves out the day of the time, for this reason.
    LeftOut(String),
    /// The time is a tick of the schedule, but the job's ticks count only from a later time.
    BeforeRegistration,
    /// The ledger does not contain the schedule.
    Unknown,
}

impl JobFacts {
    /// Returns whether `at` is a tick of the job.
    pub(super) fn is_due(&self, job: &RegisteredJob, at: WallTime) -> Due {
        let Ok(schedule) = job.schedule() else { return Due::Unknown };
        let is_tick = match schedule.is_after_end() {
            true => after_end(&schedule, job) == Some(at),
            false => schedule.next_after(at - Duration::from_micros(1)) == Some(at),
        };
        match is_tick {
            false => schedule.left_out(at).map_or(Due::No, Due::LeftOut),
            true if at <= job.row.since && !schedule.is_after_end() => Due::BeforeRegistration,
            true => Due::Yes,
        }
    }

    /// Returns the latest tick that is due, if there is one.
    pub(super) fn latest_due(&self, job: &RegisteredJob) -> Option<WallTime> {
        let schedule = job.schedule().ok()?;
        if schedule.is_after_end() {
            return after_end(&schedule, job).filter(|tick| *tick <= self.now);
        }
        schedule.last_within(job.row.since, self.now)
    }

    /// Returns the pause that the job has at the time `at`, if there is one.
    pub(super) fn pause_at<'a>(&self, job: &'a RegisteredJob, at: WallTime) -> Option<&'a Paused> {
        // If there is no leader, the ledger may still have a pause whose end has passed.
        job.row.paused.as_ref().filter(|paused| paused.at < at && paused.ended(at).is_none())
    }

    /// Returns the freeze of the group at `at`.
    pub(super) fn freeze_at<'a>(&self, job: &'a RegisteredJob, at: WallTime) -> Option<&'a Paused> {
        job.freeze_at(at).filter(|frozen| frozen.at < at)
    }

    /// Returns the next tick that is not skipped because of a pause or a freeze, if that tick is known.
    pub(super) fn next(&self, job: &RegisteredJob) -> Option<WallTime> {
        let mut after = self.now;
        for paused in job.row.paused.iter().chain(job.freeze_at(self.now)) {
            after = after.max(paused.until? - Duration::from_micros(1));
        }
        self.neighbours(job, after).1
    }

    /// Returns the last tick before `at` and the first tick after `at`, if they are known.
    pub(super) fn neighbours(
        &self,
        job: &RegisteredJob,
        at: WallTime,
    ) -> (Option<WallTime>, Option<WallTime>) {
        let Ok(schedule) = job.schedule() else { return (None, None) };
        if schedule.is_after_end() {
            return (job.row.ended, after_end(&schedule, job).filter(|tick| *tick > at));
        }
        (
            schedule.last_within(job.row.since, at - Duration::from_micros(1)),
            schedule.next_after(at.max(job.row.since)),
        )
    }
}

/// Returns the tick that follows the end of the last run, or the first tick of the job.
fn after_end(schedule: &Schedule, job: &RegisteredJob) -> Option<WallTime> {
    match job.row.ended {
        Some(end) => schedule.next_after_end(end),
        None => schedule.first(job.row.since),
    }
}
