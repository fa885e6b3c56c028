use super::{
    script::From,
    state::{LEADERS, WORKERS},
};

/// The property: a generation is started at most once. At-least-once does not guarantee it where memory is
/// lost.
pub const ONCE: &str = "a generation starts once";
/// The property: no start before or after *skipped*.
pub const SKIPPED: &str = "a skipped run never starts";
/// The property: *done* means that a handler ended.
pub const DONE: &str = "a run that is done was executed to its end";
/// The property, while no memory is lost: leaders agree on the end.
pub const AGREED: &str = "a run has one end";
/// The property, while no memory is lost and leases exclude: nothing starts after the end.
pub const CLOSED: &str = "nothing starts after the end";
/// The property, under the same conditions: a generation starts when no other can still be running.
pub const ALONE: &str = "generations do not overlap";
/// The property: a leader that finds the run pruned finds one that has ended.
pub const ENDED: &str = "a run is not forgotten before its end";
/// The property, of any later leader: it does not find a started run as skipped.
pub const NEXT: &str = "no later leader finds a started run as skipped";
/// The property, while no memory is lost: any later leader finds the end that is in the history.
pub const FINAL: &str = "every later leader finds the end in the history";

/// One model, within these bounds.
#[derive(Clone, Copy, Debug)]
pub struct OpenedRuns {
    /// Workers, each of which makes one attempt.
    pub workers: usize,
    /// Leaders, each with a term of its own.
    pub leaders: usize,
    /// Generations: two of a job that is at-least-once, one of a job that is at-most-once.
    pub generations: u8,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// The number of times that a node comes back with the record alone, as it is now, without its seals and slots.
    pub returns: u8,
    /// If set, leases exclude each other. Otherwise they expire at any moment, without notice.
    pub timed: bool,
    /// Lets horizons pass.
    pub horizon: bool,
    /// Lets a leader run it itself.
    pub direct: bool,
    /// Lets leaders prune.
    pub prunes: bool,
    /// The history from which a search begins.
    pub from: From,
    /// The choices of each leader for a run of which it finds no record.
    pub plans: [Plan; LEADERS],
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// The choices of a leader for a run of which it finds no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Anything.
    Any,
    /// Opens it.
    Opens,
    /// Skips it.
    Skips,
}

/// A rule of the protocol. The numbers are those of the design page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// R1: a leader seals the ledger before it decides; without that, it reads.
    Seal,
    /// R2: in the answers to a seal, a node whose memory began after the tick is no evidence that there is no record.
    SealMemory,
    /// R2: a record of *skipped* counts as *lost* if the seal had no majority of nodes whose memory began before the tick.
    SkipMemory,
    /// R2: a generation that is opened without a majority of nodes whose memory began before the tick is not the first.
    UnknownNext,
    /// R3: a worker takes a run that a majority shows as open.
    OpenMajority,
    /// R3: of nodes that are older than `at`.
    OpenMemory,
    /// R3: in records of one term.
    OpenTerm,
    /// R4: the start is a count.
    Count,
    /// R4: at a majority.
    CountMajority,
    /// R4: a node with a count refuses another.
    CountOnce,
    /// R5: of nodes that are older than `at`.
    CountMemory,
    /// R6: a count is never taken back.
    Kept,
    /// R7: a leader ends a run unstarted by its slot; without that, it looks whether the slot is free.
    VoidByClaim,
    /// R7: with a count; without that, with the claim alone.
    VoidByCount,
    /// R7: at nodes that are older than `at`.
    VoidMemory,
    /// R8: before *lost*, the leader has the count at a majority.
    LostByCount,
    /// R8: a worker looks at its claim before it starts.
    Look,
    /// R9: nodes refuse to let the slot be taken after its horizon.
    Horizon,
    /// R9: after the horizon a run is lost once its claim is free.
    HorizonFree,
    /// R10: *closed* is at a majority before the history has it.
    ClosedFirst,
    /// R10: of nodes that remember.
    ClosedMemory,
    /// R11: a slot's owner alone records its end.
    OwnEnd,
    /// R11: the record of the highest term decides; without that, a closed one does.
    Latest,
    /// R14: a leader whose seal had no majority of nodes older than the tick does not overwrite a later record than it
    /// has seen, but goes on from that one.
    MeetsLater,
    /// R14: within a term, a leader's records go forward: once it has written *closed*, it never goes on from an *open*.
    Forward,
    /// R12: a run is pruned after it is closed.
    PruneClosed,
    /// R13: `at` of a generation is no later than the beginning of the term that opens it; without that, it is the time
    /// of opening.
    AtOfTerm,
    /// R13: `at` does not move within a generation; without that, a leader that adopts it sets its own.
    AtStays,
}

impl OpenedRuns {
    /// Returns the model of these numbers of workers and leaders, with leases that do not exclude, and no
    /// loss of memory.
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

    /// Returns the same model with a second generation.
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

    /// Returns `true` if the model requires that a generation starts at most once.
    pub(super) fn counts_starts(&self) -> bool {
        self.generations == 1 || self.remembers()
    }

    pub(super) fn remembers(&self) -> bool {
        self.forgets + self.returns == 0
    }
}
