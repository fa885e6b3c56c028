//! The state that a page shows: what the nodes said at one moment. Text of other parties is made plain here.

use quorate::{
    env::WallTime,
    internals::Explanation,
    ledger::{CopyState, LedgerCopies},
    plain::plain,
    quorum::{NodeState, NodeStatus},
    scheduler::{Cron, HistoryEntry, JobStatus, Placement, RunCause, RunOutcome, Schedule},
};
use std::{sync::Arc, time::Duration};

/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The longest text that is shown, in bytes.
const TEXT_MAX: usize = 2_000;
/// The number of runs in a strip.
pub(crate) const STRIP: usize = 20;
/// The length up to which the nodes' list of jobs has the newest end of each: see `quorate::scheduler::Jobs::list`.
const SHORT_LIST: usize = 256;

/// The state of a group and its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The time at which it was read.
    pub(crate) at: WallTime,
    pub(crate) group: Arc<str>,
    /// The name of the worker that serves the page.
    pub(crate) worker: Arc<str>,
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) leadership: Leadership,
    /// The TTL of the leader's lease, if it is known.
    pub(crate) ttl: Option<Duration>,
    /// `None` if the page shows no jobs. Shared, because a list may be long, and each viewer has a copy of the snapshot.
    pub(crate) jobs: Option<Arc<JobsView>>,
    pub(crate) examination: Option<Arc<crate::source::Examination>>,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) vote: Vote,
    pub(crate) reason: Option<String>,
    /// The time at which the quarantine ends.
    pub(crate) votes_at: Option<WallTime>,
    /// The time at which this process first saw the node in this state.
    pub(crate) since: WallTime,
    pub(crate) version: Option<String>,
    pub(crate) round_trip: Option<Duration>,
    /// The last round trips, the oldest first.
    pub(crate) trips: Vec<Duration>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Votes,
    Quarantine,
    Refused,
    Unreachable,
    Connecting,
}

/// The leader of the group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Leadership {
    Leader {
        worker: String,
        term: Option<u64>,
        /// The time at which this process first saw it lead.
        since: WallTime,
        remaining: Option<Duration>,
    },
    /// There is no leader, as this process has seen since then.
    Vacant { since: WallTime },
    /// Too few nodes answered.
    Unknown,
}

/// The jobs of the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobsView {
    pub(crate) list: Vec<JobView>,
    /// The time at which the list was read; `None` if it has not been read yet.
    pub(crate) read_at: Option<WallTime>,
    /// The reason why the list could not be read again.
    pub(crate) error: Option<String>,
    /// The freeze of the group, if it is frozen.
    pub(crate) freeze: Option<Paused>,
    /// The copies that the nodes have of the records of the jobs, if there are any.
    pub(crate) copies: Option<LedgerCopies>,
    /// The number of jobs whose history has not been read since a viewer looked. A long list is read in parts.
    pub(crate) unread: usize,
}

/// A job.
#[derive(Clone, Debug)]
pub(crate) struct JobView {
    /// The name, as it is stored.
    pub(crate) name: Arc<str>,
    pub(crate) schedule: String,
    /// The schedule in words, if it is a cron line.
    pub(crate) words: Option<String>,
    /// The name of the schedule's zone.
    pub(crate) zone: Option<String>,
    pub(crate) rules: String,
    pub(crate) any_worker: bool,
    pub(crate) registered: WallTime,
    /// The job's own pause, besides a freeze of the group.
    pub(crate) paused: Option<Paused>,
    /// The freeze of the group.
    pub(crate) freeze: Option<Paused>,
    /// The time since which the job is overdue.
    pub(crate) overdue: Option<WallTime>,
    /// The tick of the first run that failed since the last success, if the leader keeps it.
    pub(crate) failing: Option<WallTime>,
    pub(crate) next: Option<WallTime>,
    pub(crate) running: Vec<ActiveRun>,
    /// The newest runs that have ended, the newest first.
    pub(crate) ends: Vec<RunEnd>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Paused {
    pub(crate) at: WallTime,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    pub(crate) until: Option<WallTime>,
}

/// A run that has started and not ended.
#[derive(Clone, Debug)]
pub(crate) struct ActiveRun {
    pub(crate) tick: WallTime,
    pub(crate) worker: String,
    pub(crate) orphaned: bool,
}

/// The outcome of a tick.
#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    pub(crate) tick: WallTime,
    pub(crate) outcome: RunOutcome,
    pub(crate) cause: &'static str,
    pub(crate) reason: String,
    pub(crate) worker: String,
    pub(crate) started: Option<WallTime>,
    pub(crate) took: Option<Duration>,
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) output: Option<String>,
}

/// The word that describes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobState {
    Failed,
    Lost,
    Paused,
    Frozen,
    Running,
    Idle,
}

/// The state that only the page of one job shows.
#[derive(Clone, Debug)]
pub(crate) struct JobDetail {
    pub(crate) job: JobView,
    /// The newest ends of runs; those of the list if the history could not be read.
    pub(crate) ends: Vec<RunEnd>,
    /// The error of the history, if it could not be read.
    pub(crate) unread_history: Option<String>,
    pub(crate) next: Vec<WallTime>,
    pub(crate) why: Option<Explanation>,
}

/// A part of the state that is read only while a viewer looks at it.
#[derive(Clone, Debug)]
pub(crate) enum Detail {
    Job(Result<Box<JobDetail>, Missing>),
    Past(Result<crate::changes::Past, String>),
    Messages(Result<crate::source::Messages, String>),
    /// There is no such part, or the snapshot has it: the facts about the nodes.
    Nothing,
}

/// The reason why a job cannot be shown.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    /// There is no such job.
    Unknown(String),
    /// Its state could not be read.
    Unread(String),
}

impl Snapshot {
    pub(crate) fn needed(&self) -> usize {
        quorate::internals::majority(self.nodes.len())
    }

    pub(crate) fn voting(&self) -> usize {
        self.nodes.iter().filter(|node| node.vote == Vote::Votes).count()
    }

    pub(crate) fn has_quorum(&self) -> bool {
        self.voting() >= self.needed()
    }

    /// Returns the copies of the records of the jobs, if there are any.
    pub(crate) fn copies(&self) -> Option<&LedgerCopies> {
        self.jobs.as_ref()?.copies.as_ref()
    }

    /// Returns the copy of the node at this index. `None` if it is not known.
    pub(crate) fn copy(&self, node: usize) -> Option<CopyState> {
        let copy = self.copies()?.nodes().get(node)?.state;
        (copy != CopyState::Unknown).then_some(copy)
    }

    /// Returns the number of voting nodes that may be lost before there is no quorum.
    pub(crate) fn spare(&self) -> usize {
        self.voting().saturating_sub(self.needed())
    }
}

impl JobsView {
    /// Returns whether a list of this length comes without the ends of runs.
    pub(crate) const fn is_long(length: usize) -> bool {
        length > SHORT_LIST
    }
}

impl NodeView {
    pub(crate) fn new(node: &NodeStatus, votes_at: Option<WallTime>, since: WallTime) -> Self {
        Self {
            name: text(&node.name),
            vote: Vote::of(&node.state),
            reason: node.reason().map(|reason| text(&reason)),
            votes_at,
            since,
            version: node.version.as_deref().map(text),
            round_trip: node.round_trip,
            trips: Vec::new(),
        }
    }
}

impl Vote {
    pub(crate) fn of(state: &NodeState) -> Self {
        match state {
            NodeState::Trusted => Self::Votes,
            NodeState::Quarantined { .. } => Self::Quarantine,
            NodeState::Refused(_) => Self::Refused,
            NodeState::Connecting => Self::Connecting,
            NodeState::Unreachable(_) => Self::Unreachable,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Votes => "votes",
            Self::Quarantine => "quarantine",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Connecting => "connecting",
        }
    }
}

impl JobView {
    /// `old` is the view of the same job in the round before, which saves reading its schedule again. `freeze` is that
    /// of the group.
    pub(crate) fn new(job: &JobStatus, freeze: Option<&Paused>, old: Option<&Self>) -> Self {
        let schedule = text(&job.schedule);
        let (words, zone) = match old.filter(|old| old.schedule == schedule) {
            Some(old) => (old.words.clone(), old.zone.clone()),
            None => cron_words(&job.schedule),
        };
        let (paused, freeze) = pauses(job, freeze);
        Self {
            name: Arc::clone(&job.name),
            words,
            zone,
            schedule,
            rules: text(&job.rules),
            any_worker: job.placement == Placement::AnyWorker,
            registered: job.registered,
            paused,
            freeze,
            overdue: job.overdue_since,
            failing: job.failing_since,
            next: job.next,
            running: job
                .running
                .iter()
                .map(|run| ActiveRun { tick: run.tick, worker: name(&run.worker), orphaned: run.orphaned })
                .collect(),
            ends: job.last.iter().map(RunEnd::new).collect(),
        }
    }

    /// Returns the name for people.
    pub(crate) fn shown(&self) -> String {
        name(&self.name)
    }

    /// Returns the freeze of the group or the pause of the job, with the word for it. A freeze comes first, because
    /// the end of a pause changes nothing before the end of the freeze.
    pub(crate) fn stopped(&self) -> Option<(&'static str, &Paused)> {
        let frozen = self.freeze.as_ref().map(|freeze| ("frozen", freeze));
        frozen.or(self.paused.as_ref().map(|paused| ("paused", paused)))
    }

    /// Returns whether the row of the job, which has no ends of runs, says that an operator may be needed.
    pub(crate) const fn may_be_in_trouble(&self) -> bool {
        self.failing.is_some() || self.overdue.is_some()
    }

    /// Returns the newest end that is not a skipped tick.
    pub(crate) fn last_run(&self) -> Option<&RunEnd> {
        self.ends.iter().find(|end| !end.is_skipped())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.iter().any(|run| !run.orphaned)
    }

    /// Returns the one word for the job. A run that is active hides the end of the one before it.
    pub(crate) fn state(&self) -> JobState {
        if self.is_running() {
            return JobState::Running;
        }
        match self.last_run().map(|end| end.outcome) {
            Some(RunOutcome::Failed | RunOutcome::TimedOut) => JobState::Failed,
            None if self.failing.is_some() => JobState::Failed,
            _ if self.paused.is_some() => JobState::Paused,
            _ if self.freeze.is_some() => JobState::Frozen,
            Some(RunOutcome::Lost) => JobState::Lost,
            _ => JobState::Idle,
        }
    }
}

impl JobState {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Paused => "paused",
            Self::Frozen => "frozen",
            Self::Running => "running",
            Self::Idle => "idle",
        }
    }
}

impl RunEnd {
    pub(crate) fn new(end: &HistoryEntry) -> Self {
        Self {
            tick: end.tick,
            outcome: end.end,
            cause: match end.cause {
                RunCause::Scheduled => "scheduled",
                RunCause::CatchUp => "catch-up",
                RunCause::Triggered { .. } => "triggered",
                RunCause::Backfilled { .. } => "back-filled",
                _ => "other",
            },
            reason: text(&end.reason),
            worker: name(&end.worker),
            started: end.started,
            took: end.took,
            attempts: end.attempts,
            last_error: end.last_error().map(text),
            output: end.output.as_deref().map(lines).filter(|output| !output.trim().is_empty()),
        }
    }

    pub(crate) fn is_skipped(&self) -> bool {
        matches!(
            self.outcome,
            RunOutcome::SkippedMisfire
                | RunOutcome::SkippedOverlap
                | RunOutcome::SkippedPaused
                | RunOutcome::SkippedFrozen
        )
    }

    /// Returns the time at which the run ended, as far as it is known.
    pub(crate) fn ended(&self) -> WallTime {
        let started = self.started.unwrap_or(self.tick);
        let took = u64::try_from(self.took.unwrap_or_default().as_micros()).unwrap_or(0);
        WallTime::from_micros(started.as_micros().saturating_add(took))
    }

    /// Returns how long after its tick the run started.
    pub(crate) fn late(&self) -> Option<Duration> {
        self.started.map(|started| self.tick.until(started))
    }

    /// Returns the reason, and the error of the last failed attempt if it differs.
    pub(crate) fn explanation(&self) -> String {
        match &self.last_error {
            Some(error) if *error != self.reason && self.reason.is_empty() => error.clone(),
            Some(error) if *error != self.reason => format!("{}; last error: {error}", self.reason),
            _ => self.reason.clone(),
        }
    }
}

/// Separates the pause of a job from the freeze of its group. The status of a frozen job describes its own pause if it
/// has one, and the freeze otherwise.
fn pauses(job: &JobStatus, freeze: Option<&Paused>) -> (Option<Paused>, Option<Paused>) {
    let shown = job.paused_at.map(|at| Paused {
        at,
        by: name(job.paused_by.as_deref().unwrap_or_default()),
        reason: job.pause_reason.as_deref().map(text),
        until: job.paused_until,
    });
    match (shown, freeze.filter(|_| job.frozen)) {
        (Some(shown), Some(freeze)) if (shown.at, &shown.by) == (freeze.at, &freeze.by) => {
            (None, Some(freeze.clone()))
        }
        // The freeze may have begun between the two reads.
        (Some(shown), None) if job.frozen => (None, Some(shown)),
        (shown, freeze) => (shown, freeze.cloned()),
    }
}

/// Returns a name of another party for people.
pub(crate) fn name(text: &str) -> String {
    plain(text, NAME_MAX)
}

/// Returns a line of another party for people.
pub(crate) fn text(text: &str) -> String {
    plain(text, TEXT_MAX)
}

/// Returns the lines of another party for people.
pub(crate) fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| plain(line, usize::MAX)).collect();
    lines.join("\n")
}

/// Returns the meaning in words of a cron schedule that is written as text, such as `0 3 * * * (Europe/Kyiv)`, and the
/// name of its zone.
fn cron_words(schedule: &str) -> (Option<String>, Option<String>) {
    let Some((line, rest)) = schedule.split_once(" (") else { return (None, None) };
    let zone = rest.split([')', ',']).next().and_then(crate::time::Zone::named);
    let words = Cron::parse(line).ok().map(|cron| text(&Schedule::from(cron).words()));
    (words, zone.map(|zone| zone.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_line_has_words_and_a_zone() {
        let (words, zone) = cron_words("0 3 * * * (Europe/Kyiv)");
        assert!(words.as_deref().is_some_and(|words| words.contains("03:00")), "{words:?}");
        assert_eq!(zone.as_deref(), Some("Europe/Kyiv"));
        assert_eq!(cron_words("every 90s"), (None, None));
        assert_eq!(cron_words("my own ( table"), (None, None));
    }

    #[test]
    fn text_of_others_has_no_control_characters() {
        assert_eq!(lines("a\u{1b}[2J\nb\u{202e}c"), "a [2J\nb c");
        assert_eq!(name("x\ny"), "x y");
    }
}
