//! The bounds, the properties and the rules of the model of opened runs. A leader *opens* a run in the
//! ledger. A worker takes the run through its *slot*, a claim of which at most one attempt is counted. The
//! *open* record of a generation contains `at`: a node counts for the generation only if its memory began
//! before `at`.

use super::{
    script::From,
    state::{LEADERS, WORKERS},
};

/// The property: a generation starts at most once. Under at-least-once this is not guaranteed if memory is lost.
pub const ONCE: &str = "a generation starts once";
/// The property: a run that a leader ended as *skipped* never starts, before or after that.
pub const SKIPPED: &str = "a skipped run never starts";
/// The property: *done* means that a handler ended.
pub const DONE: &str = "a run that is done was executed to its end";
/// The property, while no memory is lost: all leaders that end the run give it the same end.
pub const AGREED: &str = "a run has one end";
/// The property, while no memory is lost and leases exclude each other: no handler starts after the history
/// has the end.
pub const CLOSED: &str = "nothing starts after the end";
/// The property, while no memory is lost and leases exclude each other: a generation starts only when no
/// other generation can still be running.
pub const ALONE: &str = "generations do not overlap";
/// The property: if a leader finds the run pruned, the run has ended.
pub const ENDED: &str = "a run is not forgotten before its end";
/// The property: if one more leader sealed the ledger now, it would not find a started run as *skipped*.
pub const NEXT: &str = "no later leader finds a started run as skipped";
/// The property, while no memory is lost: if one more leader sealed the ledger now, it would find the same
/// end that the history has.
pub const FINAL: &str = "every later leader finds the end in the history";

/// One model, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct OpenedRuns {
    /// The number of workers, each of which makes one attempt.
    pub workers: usize,
    /// The number of leaders, each with a term of its own.
    pub leaders: usize,
    /// The number of generations: two for an at-least-once job, one for an at-most-once job.
    pub generations: u8,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// The number of times that a node comes back with its present record alone, without its seals and slots.
    pub returns: u8,
    /// If set, leases exclude each other. Otherwise they expire at any moment, without notice.
    pub timed: bool,
    /// Lets the horizons of slots pass. After a slot's horizon, a node refuses to let the slot be taken, and
    /// removes the slot's row.
    pub horizon: bool,
    /// Lets a leader execute the run itself.
    pub direct: bool,
    /// Lets leaders prune the run.
    pub prunes: bool,
    /// The history from which a search begins.
    pub from: From,
    /// The choices of each leader for a run of which it finds no record.
    pub plans: [Plan; LEADERS],
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// The choice of a leader for a run of which it finds no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The leader may open the run or skip it, and with [`OpenedRuns::direct`] it may execute the run itself.
    Any,
    /// The leader opens the run.
    Opens,
    /// The leader skips the run.
    Skips,
}

/// A rule of the protocol, with its number in `docs/design/scheduler.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// R1: a leader seals the ledger before it decides. Without this rule, it only reads the ledger.
    Seal,
    /// R2: in the answers to a seal, a node whose memory began after the tick is no evidence that there is no record.
    SealMemory,
    /// R2b: a *skipped* record counts as *lost* if no majority of nodes whose memory began before the tick
    /// answered the seal.
    SkipMemory,
    /// R2c: if no majority of nodes whose memory began before the tick answered the seal, and no record was
    /// found, the generation that the leader opens is not the first.
    UnknownNext,
    /// R3: a worker takes a run that a majority shows as open.
    OpenMajority,
    /// R3: the majority that shows a run as open consists of nodes whose memory began before the generation's
    /// `at`.
    OpenMemory,
    /// R3: the majority that shows a run as open shows records of one term.
    OpenTerm,
    /// R4: a worker starts the run only after it has counted its attempt in the slot.
    Count,
    /// R4: a majority stores the count of an attempt that starts.
    CountMajority,
    /// R4: a node that has a count refuses another.
    CountOnce,
    /// R5: the majority that stores the count of an attempt consists of nodes whose memory began before the
    /// generation's `at`.
    CountMemory,
    /// R6: a count is never removed.
    Kept,
    /// R7: a leader ends a run unstarted only by taking the run's slot. Without this rule, it only checks
    /// that the slot is free.
    VoidByClaim,
    /// R7: the leader takes the slot with a count. Without this rule, it takes only the claim.
    VoidByCount,
    /// R7: the majority that stores the leader's count consists of nodes whose memory began before the
    /// generation's `at`.
    VoidMemory,
    /// R8: a leader ends a run as *lost* only after a majority has stored a count in the run's slot.
    LostByCount,
    /// R8: a worker checks its claim before it starts the run.
    Look,
    /// R9: nodes refuse to let the slot be taken after its horizon.
    Horizon,
    /// R9b: after the horizon a run is lost only once its claim is free.
    HorizonFree,
    /// R10: a majority stores the *closed* record before the history gets the end.
    ClosedFirst,
    /// R10: the majority that stores the *closed* record consists of nodes whose memory began before the tick
    /// and before the leader's term.
    ClosedMemory,
    /// R11: only the owner of a slot records the slot's end.
    OwnEnd,
    /// R11b: the record of the highest term decides. Without this rule, a closed record decides over all
    /// others.
    Latest,
    /// R14: if no majority of nodes whose memory began before the tick answered a leader's seal, the leader
    /// does not overwrite a later record than the one that it has seen. The leader continues from that later
    /// record.
    MeetsLater,
    /// R14: within a term, a leader's records only go forward. Once it has written *closed*, it never continues from an
    /// *open* record.
    Forward,
    /// R12: a run is pruned only after it is closed.
    PruneClosed,
    /// R13: `at` of a generation is the beginning of the term that opens it, or the time of the tick if that
    /// is later. Without this rule, `at` is the time of opening.
    AtOfTerm,
    /// R13: `at` does not change within a generation. Without this rule, a leader that adopts the generation sets its
    /// own `at`.
    AtStays,
}

impl OpenedRuns {
    /// Returns the model with these numbers of workers and leaders. In this model leases do not exclude each
    /// other, and no memory is lost.
    pub fn of(workers: usize, leaders: usize) -> Self {
        assert!(workers <= WORKERS && leaders <= LEADERS, "{workers} workers, {leaders} leaders");
        Self {
            workers,
            leaders,
            generations: 1,
            forgets: 0,
            returns: 0,
            timed: false,
            horizon: false,
            direct: false,
            prunes: false,
            from: From::Nothing,
            plans: [Plan::Any; LEADERS],
            without: None,
        }
    }

    /// Returns the same model, with a search that begins at `from`.
    pub fn from(self, from: From) -> Self {
        Self { from, ..self }
    }

    /// Returns the same model, in which nodes forget the given number of times.
    pub fn forgetful(self, forgets: u8) -> Self {
        Self { forgets, ..self }
    }

    /// Returns the same model, in which leases exclude each other.
    pub fn timed(self) -> Self {
        Self { timed: true, ..self }
    }

    /// Returns the same model of a job with two generations.
    pub fn twice(self) -> Self {
        Self { generations: 2, ..self }
    }

    /// Returns the same model with this rule left out.
    pub fn without(self, rule: Rule) -> Self {
        Self { without: Some(rule), ..self }
    }

    pub(super) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Returns `true` if the property [`ONCE`] is guaranteed within these bounds.
    pub(super) fn counts_starts(&self) -> bool {
        self.generations == 1 || self.remembers()
    }

    /// Returns `true` if a majority of the nodes may show a leader that no worker can take a slot any more: after the
    /// slot's horizon, or because these nodes lost their memory since the generation was opened (R9c).
    pub(super) fn looks_free(&self) -> bool {
        self.horizon || self.forgets > 1
    }

    pub(super) fn remembers(&self) -> bool {
        self.forgets + self.returns == 0
    }
}
