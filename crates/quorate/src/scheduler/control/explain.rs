//! Explains why a job did or did not run at a time. All functions here are pure.

mod facts;
#[cfg(test)]
mod tests;
mod texts;

pub(super) use facts::{JobFacts, LedgerFacts, NodeFacts};

use crate::{
    env::WallTime,
    scheduler::{job::RunOutcome, policy::Placement, schedule::Zone, store::HistoryEntry},
};
use facts::Due;
use std::{fmt, time::Duration};

/// The leader writes the outcome of a tick a little after the end of the run. If the tick is less than this
/// time ago, a missing outcome is normal.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);

/// The answer to the question why a job did or did not run.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The reason.
    pub reason: Reason,
    /// The tick that the explanation is about; `None` if no tick is known.
    pub tick: Option<WallTime>,
    /// The explanation in one sentence, for people.
    pub text: String,
    /// The facts that support the explanation, for people.
    pub evidence: Vec<String>,
    /// The action that the operator can take.
    pub action: String,
    /// The entry of the tick in the job's history.
    pub entry: Option<HistoryEntry>,
    /// The job's next tick, if it is known.
    pub next: Option<WallTime>,
    /// The zone of the times in the texts: that of the job's schedule, unless [`Jobs::times_in`](super::Jobs::times_in) names another.
    pub zone: Zone,
}

/// The reason why a job did or did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The tick has run. Its outcome may be a failure.
    Ran,
    /// The run of the tick is active.
    Running,
    /// The tick is due, and the run of the tick has not started yet.
    Waiting,
    /// No live worker can run the job: none has its handler or its labels, or the leader does not have the job.
    NoWorker,
    /// The job is paused, or was paused at the time of the tick.
    Paused,
    /// The group is frozen, or was frozen then.
    Frozen,
    /// The group has no leader.
    NoLeader,
    /// Too few nodes answer or may vote.
    NoQuorum,
    /// Too few nodes have a complete copy of the group's ledger.
    Incomplete,
    /// The clocks of nodes, or of this machine, are wrong.
    Clock,
    /// The tick was not run in time.
    Misfire,
    /// An earlier run was active, or a later tick replaced this one.
    Overlap,
    /// The run was cancelled before it started.
    Cancelled,
    /// The job was not due at that time.
    Schedule,
    /// No leader had registered the job with its present schedule and placement at that time.
    NotRegistered,
    /// The tick was due, and the nodes have no outcome of it.
    NoRecord,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 16] = [
        Self::Ran,
        Self::Running,
        Self::Waiting,
        Self::NoWorker,
        Self::Paused,
        Self::Frozen,
        Self::NoLeader,
        Self::NoQuorum,
        Self::Incomplete,
        Self::Clock,
        Self::Misfire,
        Self::Overlap,
        Self::Cancelled,
        Self::Schedule,
        Self::NotRegistered,
        Self::NoRecord,
    ];

    /// Returns the name of the reason in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::NoWorker => "no-worker",
            Self::Paused => "paused",
            Self::Frozen => "frozen",
            Self::NoLeader => "no-leader",
            Self::NoQuorum => "no-quorum",
            Self::Incomplete => "incomplete",
            Self::Clock => "clock",
            Self::Misfire => "misfire",
            Self::Overlap => "overlap",
            Self::Cancelled => "cancelled",
            Self::Schedule => "schedule",
            Self::NotRegistered => "not-registered",
            Self::NoRecord => "no-record",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns the explanation. The rules are checked in a fixed order, and the first rule that applies gives the
/// reason.
///
/// Without a time, the question is why the job does not run now. A pause, a missing leader and an active run
/// are then checked before the outcome of the latest tick. With a time, the recorded outcome of the tick at
/// that time is checked first.
pub(super) fn explain(facts: &JobFacts) -> Explanation {
    let Some(ledger) = &facts.ledger else { return facts.unread() };
    match facts.asked {
        Some(at) => at_time(facts, ledger, at),
        None => now(facts, ledger),
    }
}

fn now(facts: &JobFacts, ledger: &LedgerFacts) -> Explanation {
    let Some(job) = &ledger.job else { return facts.not_registered(ledger) };
    let due = facts.latest_due(job);
    if let Some(frozen) = facts.freeze_at(job, facts.now) {
        return facts.frozen(frozen, job, due);
    }
    if let Some(paused) = facts.pause_at(job, facts.now) {
        return facts.paused(paused, due);
    }
    // A leader may hold its lease for a while on nodes that refuse what it has to write, such as the end of a run.
    if ledger.leader.is_none() || !facts.nodes.serve_a_leader() {
        return facts.leaderless(due, job.running.first());
    }
    if let Some(waiting) = &ledger.waiting {
        return facts.incomplete(due, waiting);
    }
    // The run of a tick says more about the schedule than one that was requested.
    if let Some(run) = job.running.iter().min_by_key(|run| run.request.is_some()) {
        return facts.running(run);
    }
    if let Some(why) = &job.waits_for {
        return facts.no_worker(due, why, job);
    }
    if let Some(decided) = job.decided {
        return facts.clock_set_back(decided, job, ledger);
    }
    // The ticks of the row count from the end of the last pause or freeze, which may be later than the latest tick.
    let recorded = ledger.history.iter().filter(|entry| entry.cause.request().is_none());
    match due.max(recorded.map(|entry| entry.until.unwrap_or(entry.tick)).max()) {
        Some(tick) => at_time(facts, ledger, tick),
        None => facts.not_due(None, job, ledger),
    }
}

fn at_time(facts: &JobFacts, ledger: &LedgerFacts, at: WallTime) -> Explanation {
    if let Some(entry) = decisive(&ledger.history, at) {
        return facts.recorded(at, entry, ran_since(&ledger.history, at));
    }
    let Some(job) = &ledger.job else { return facts.not_registered(ledger) };
    let run = job.running.iter().find(|run| run.request.is_none() && run.tick == at);
    if let Some(run) = run {
        let is_alone = ledger.leader.is_none() && job.row.placement == Placement::Leader;
        return if is_alone { facts.leaderless(Some(at), Some(run)) } else { facts.running(run) };
    }
    if at > facts.now && at <= facts.local {
        return facts.clocks_differ(at);
    }
    match facts.is_due(job, at) {
        Due::No => return facts.not_due(Some(at), job, ledger),
        Due::LeftOut(why) => return facts.left_out(at, &why, job, ledger),
        Due::BeforeRegistration if ledger.history.first().is_some_and(|oldest| at < oldest.tick) => {
            return facts.older_than_the_history(at, job, ledger);
        }
        Due::BeforeRegistration => return facts.registered_later(at, job),
        Due::Yes | Due::Unknown => {}
    }
    if let Some(frozen) = facts.freeze_at(job, at) {
        return facts.frozen(frozen, job, Some(at));
    }
    if let Some(paused) = facts.pause_at(job, at) {
        return facts.paused(paused, Some(at));
    }
    if at > facts.now {
        return facts.not_due(Some(at), job, ledger);
    }
    if ledger.leader.is_none() {
        return facts.leaderless(Some(at), None);
    }
    let window = job.row.window.unwrap_or_default().max(RECORDED_WITHIN);
    let is_about_now = at.until(facts.now) <= window;
    if is_about_now && !facts.nodes.serve_a_leader() {
        return facts.leaderless(Some(at), None);
    }
    if let Some(waiting) = ledger.waiting.as_ref().filter(|_| is_about_now) {
        return facts.incomplete(Some(at), waiting);
    }
    let is_waiting = is_about_now || job.waiting.contains(&at);
    if let Some(why) = job.waits_for.as_ref().filter(|_| is_waiting) {
        return facts.no_worker(Some(at), why, job);
    }
    if let Some(of) = job.row.concurrency.as_ref().filter(|of| is_waiting && ledger.holders.len() >= of.limit)
    {
        return facts.waits_for_key(at, of, &ledger.holders);
    }
    if is_waiting {
        return facts.waiting(at, job.waiting.contains(&at), window);
    }
    facts.no_record(at, ledger)
}

/// Returns the history entry that explains the tick. If the tick has several entries, an entry of a run counts
/// more than an entry of a skipped tick. Of the other entries, the one of the later term counts.
fn decisive(history: &[HistoryEntry], at: WallTime) -> Option<&HistoryEntry> {
    let covers = |entry: &&HistoryEntry| entry.tick <= at && at <= entry.until.unwrap_or(entry.tick);
    let rank = |entry: &&HistoryEntry| (reason_of(entry) == Reason::Ran, entry.term);
    history.iter().filter(covers).max_by_key(rank)
}

/// Returns the first run after `at` that succeeded.
fn ran_since(history: &[HistoryEntry], at: WallTime) -> Option<&HistoryEntry> {
    let later = history.iter().filter(|entry| entry.tick > at && entry.end == RunOutcome::Done);
    later.min_by_key(|entry| entry.tick)
}

/// Returns the reason that follows from the outcome of an entry.
fn reason_of(entry: &HistoryEntry) -> Reason {
    match entry.end {
        RunOutcome::SkippedPaused => Reason::Paused,
        RunOutcome::SkippedFrozen => Reason::Frozen,
        RunOutcome::SkippedOverlap => Reason::Overlap,
        RunOutcome::SkippedMisfire => Reason::Misfire,
        RunOutcome::Cancelled if entry.started.is_none() => Reason::Cancelled,
        RunOutcome::Done
        | RunOutcome::Failed
        | RunOutcome::TimedOut
        | RunOutcome::Cancelled
        | RunOutcome::Lost => Reason::Ran,
    }
}
