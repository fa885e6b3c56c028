//! The bounds, the properties and the rules of the model of opened runs. A leader *opens* a run in the
//! ledger. A worker takes the run through its *slot*, a claim of which at most one attempt is counted. The
//! *open* record of a generation contains `at`: a node counts for the generation only if its memory began
//! before `at`.

use super::{
    script::From,
    state::{LEADERS, WORKERS},
};

/// The property that a generation starts at most once.
pub const ONCE: &str = "a generation starts once";
/// The property that a run which a leader ended as *skipped* never starts, neither before nor after this end.
pub const SKIPPED: &str = "a skipped run never starts";
/// The property that a run has the end *done* only if a handler of the run has ended.
pub const DONE: &str = "a run that is done was executed to its end";
/// The property that all leaders that end the run give it the same end.
pub const AGREED: &str = "a run has one end";
/// The property that no handler starts after the history has the end. It holds while no memory is lost and
/// leases exclude each other.
pub const CLOSED: &str = "nothing starts after the end";
/// The property that a generation starts only when no other generation can still be running. It holds while no
/// memory is lost and leases exclude each other.
pub const ALONE: &str = "generations do not overlap";
/// The property that a run which a leader finds pruned has ended.
pub const ENDED: &str = "a run is not forgotten before its end";
/// The property that no later leader concludes that a started run was *skipped*. It is checked for one more
/// leader that takes the ledger over now.
pub const NEXT: &str = "no later leader finds a started run as skipped";
/// The property that every later leader finds the end that the history has. It is checked for one more leader
/// that takes the ledger over now.
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
    /// True if leases exclude each other. Otherwise a lease may expire at any moment, and its holder does not
    /// notice.
    pub timed: bool,
    /// Lets the horizons of slots pass. After a slot's horizon, a node refuses requests that take the slot,
    /// and removes the slot's row.
    pub horizon: bool,
    /// Lets a leader execute the run itself.
    pub direct: bool,
    /// Lets leaders prune the run.
    pub prunes: bool,
    /// The steps that have already been taken when a search begins.
    pub from: From,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule of the protocol, with its number in `docs/design/scheduler.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// R1. The nodes refuse the write of a leader after a later leader has taken the ledger over.
    Fence,
    /// R2c. If a leader finds a *started* record, the generation that it opens is the second, because the leader that
    /// wrote the record may have started the run.
    UnknownNext,
    /// R3. A worker takes a run only if a majority shows the run as open.
    OpenMajority,
    /// R4. Before a worker starts the run, the nodes must count its attempt in the slot.
    Count,
    /// R4. A worker starts the run only if a majority has stored the count of its attempt.
    CountMajority,
    /// R4. A node that has a count refuses any other count.
    CountOnce,
    /// R5. Only nodes whose memory began before the generation's `at` count for the majority that stores the
    /// count.
    CountMemory,
    /// R6. A count is never removed.
    Kept,
    /// R7. Before a leader ends a run as not started, the leader must take the run's slot. Without this rule,
    /// the leader only checks that the slot is free.
    VoidByClaim,
    /// R7. To take the slot, the leader must let the nodes count its attempt. Without this rule, the leader
    /// only acquires the slot's claim.
    VoidByCount,
    /// R7. Only nodes whose memory began before the generation's `at` count for the majority that stores the
    /// leader's count.
    VoidMemory,
    /// R8. Before a leader ends a run as *lost*, a majority must store a count in the run's slot.
    LostByCount,
    /// R8. Before a worker starts the run, it checks that its claim is valid.
    Look,
    /// R9. After the horizon of a slot, nodes refuse requests that take the slot.
    Horizon,
    /// R9b. After the horizon, a leader treats the run as lost only once no actor holds the slot's claim.
    HorizonFree,
    /// R10. A majority stores the *closed* record before the end is entered in the history.
    ClosedFirst,
    /// R11. Only the owner of a slot records the end in the slot.
    OwnEnd,
    /// R12. A run is pruned only after it is closed.
    PruneClosed,
    /// R13. The `at` of a generation never changes. Without this rule, a leader that continues the generation
    /// sets a new `at`: the beginning of its own term.
    AtStays,
}

impl OpenedRuns {
    /// Returns a model with these numbers of workers and leaders. In this model, leases do not exclude each
    /// other, and no memory is lost.
    pub fn of(workers: usize, leaders: usize) -> Self {
        assert!(workers <= WORKERS && leaders <= LEADERS, "{workers} workers, {leaders} leaders");
        Self {
            workers,
            leaders,
            generations: 1,
            forgets: 0,
            timed: false,
            horizon: false,
            direct: false,
            prunes: false,
            from: From::Nothing,
            without: None,
        }
    }

    /// Returns the same model, but the search begins after the history `from`.
    pub fn from(self, from: From) -> Self {
        Self { from, ..self }
    }

    /// Returns the same model, but nodes forget up to the given number of times.
    pub fn forgetful(self, forgets: u8) -> Self {
        Self { forgets, ..self }
    }

    /// Returns the same model, but leases exclude each other.
    pub fn timed(self) -> Self {
        Self { timed: true, ..self }
    }

    /// Returns the same model, but of a job with two generations.
    pub fn twice(self) -> Self {
        Self { generations: 2, ..self }
    }

    /// Returns the same model without this rule.
    pub fn without(self, rule: Rule) -> Self {
        Self { without: Some(rule), ..self }
    }

    pub(super) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Returns `true` if a leader may learn from a majority of the nodes that no worker can take a slot any
    /// more. This is possible after the slot's horizon, or if these nodes have lost their memory since the
    /// generation was opened (R9c).
    pub(super) fn looks_free(&self) -> bool {
        self.horizon || self.forgets > 1
    }

    pub(super) fn remembers(&self) -> bool {
        self.forgets == 0
    }
}
