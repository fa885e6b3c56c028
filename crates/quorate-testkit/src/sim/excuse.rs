use std::{cell::RefCell, collections::BTreeMap};

const GUARANTEES: &str = "../guide/src/understand/guarantees.md#exclusion";
const LEASES: &str = "lease-and-trust.md#guarantees-and-their-assumptions";
const VOTERS: &str = "lease-and-trust.md#which-nodes-may-vote";
const STEPS: &str = "lease-and-trust.md#steps-of-clocks";
const QUORUM_CLOCK: &str = "lease-and-trust.md#the-quorums-clock";
const LEASE_FAILURES: &str = "lease-and-trust.md#failures";
const FORGOTTEN: &str = "ledger.md#when-nodes-forget";
const CLAIMS: &str = "claims.md#rules-and-why";
const CLAIM_FAILURES: &str = "claims.md#failures";
const JOBS: &str = "scheduler.md#jobs-rows-requests-changes";
const NOT_GUARANTEED: &str = "scheduler.md#not-guaranteed";
const FAILURES: &str = "scheduler.md#failures";

/// Declares [`Excuse`]: each variant with its name, and the section that documents the promise it comes from.
macro_rules! excuses {
    ($($(#[$doc:meta])+ $variant:ident, $name:literal, $promise:ident;)+) => {
        /// A case in which an invariant permits what it otherwise reports as a violation, or does not judge it.
        /// `docs/design/excuses.md` lists the excuses. A use is counted only where it makes a difference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Excuse { $($(#[$doc])+ $variant,)+ }

        impl Excuse {
            /// All excuses, in the order of their invariants.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the excuse's name, which begins with the name of its invariant.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns the section that documents the promise from which the excuse follows, as a link from the
            /// folder `docs/design`.
            pub fn promise(self) -> &'static str {
                match self { $(Self::$variant => $promise,)+ }
            }
        }
    };
}

excuses! {
    /// Of two holders, all but one have a boot clock that stood still.
    ExclusionClock, "exclusion: a boot clock stood still", GUARANTEES;
    /// An operator released the lock of the earlier of two holders by force, and the holder has not extended it since.
    ExclusionForced, "exclusion: released by force", LEASE_FAILURES;
    /// Too few servers back a grant of a worker whose boot clock stood still.
    BackingClock, "backing: a boot clock stood still", GUARANTEES;
    /// Too few servers back a lease that was released by force and that its holder has not extended since.
    BackingForced, "backing: released by force", LEASE_FAILURES;
    /// A server that does not store the lease counts because it is down and not durable.
    BackingDown, "backing: a server is down", VOTERS;
    /// A server that does not store the lease counts because it lost data, and is in quarantine.
    BackingForgot, "backing: a server lost its data", VOTERS;
    /// A server that does not store the lease counts because its clock stepped far.
    BackingStepped, "backing: a server's clock stepped far", STEPS;
    /// The token is smaller than a newer one, and its grant had ended before the worker saw it.
    FencingEnded, "fencing: the grant had ended", LEASES;
    /// The token is smaller than a newer one, and the worker's boot clock stood still.
    FencingClock, "fencing: a boot clock stood still", GUARANTEES;
    /// The token is smaller than a newer one, and the lease was released by force before the worker saw it.
    FencingForced, "fencing: released by force", LEASE_FAILURES;
    /// The grant of a claim, whose counter is removed with its record, is not judged.
    OrderClaim, "order: a claim's counter is removed", CLAIMS;
    /// The work was not asked to stop, because its process is paused or was resumed only just now.
    StepDownPaused, "step-down: the process is paused", LEASES;
    /// Earlier work is active beside a grant that had ended before its worker saw it.
    SuccessionEnded, "succession: the grant had ended", LEASES;
    /// Earlier work is active beside a grant of a worker whose boot clock stood still.
    SuccessionClock, "succession: a boot clock stood still", GUARANTEES;
    /// Earlier work is active in a process that is paused or was resumed only just now.
    SuccessionPaused, "succession: the process is paused", LEASES;
    /// Earlier work is active at a worker whose boot clock stood still.
    SuccessionWorkClock, "succession: the work's boot clock stood still", GUARANTEES;
    /// A tick started before it was due, by clocks of a majority of the servers that were ahead.
    TicksAhead, "ticks: the servers' clocks were ahead", QUORUM_CLOCK;
    /// A tick that is done started at a worker whose boot clock stood still.
    TicksClock, "ticks: a boot clock stood still", GUARANTEES;
    /// A tick started again after servers lost its *done* record.
    TicksForgotten, "ticks: servers lost the done record", FORGOTTEN;
    /// Due ticks of a job are not judged, because a majority lost the job's registration.
    TicksRegistration, "ticks: servers lost the registration", FORGOTTEN;
    /// A tick did not start before the fault-free phase, and its job's misfire rule requires no catch-up run.
    TicksMisfire, "ticks: no catch-up is required", JOBS;
    /// A tick of an at-most-once job did not start, and was reported as lost for a true reason.
    TicksLost, "ticks: the tick was reported as lost", FORGOTTEN;
    /// A message that is done was granted, and the grant had ended before its worker saw it.
    ClaimsEnded, "claims: the grant had ended", LEASES;
    /// A message that is done was granted to a worker whose boot clock stood still.
    ClaimsClock, "claims: a boot clock stood still", GUARANTEES;
    /// A message was granted after servers lost its done record.
    ClaimsForgotten, "claims: servers lost the done record", CLAIM_FAILURES;
    /// Two attempts with one number began, because servers lost the count of the first, or reset the message.
    AttemptsForgotten, "attempts: servers lost or reset the count", CLAIM_FAILURES;
    /// A message was given up with counts that had been withdrawn or reset, and came back in a snapshot.
    AttemptsRestored, "attempts: a server came back with a snapshot", CLAIM_FAILURES;
    /// A message was given up with counts from before its reset: an attempt continued them while the reset was under way.
    AttemptsDuringReset, "attempts: one began during the reset", CLAIM_FAILURES;
    /// A message was given up with the count of an attempt that had not begun.
    AttemptsLeft, "attempts: an attempt left its count behind", CLAIM_FAILURES;
    /// A server released the claim of a cancelled attempt and kept its count: the claim was made during or soon after
    /// faults.
    AttemptsUnsteady, "attempts: the claim was made too soon", CLAIM_FAILURES;
    /// A message was given up after too few attempts, by a worker whose claim may have ended.
    AttemptsEnded, "attempts: the claim had ended", LEASES;
    /// An attempt with another payload began under a claim that had ended, or whose worker's boot clock stood still.
    PayloadsEnded, "payloads: the claim had ended", LEASES;
    /// An attempt with another payload began: servers lost the count of the earlier attempt, or reset the message.
    PayloadsForgotten, "payloads: servers lost or reset the count", CLAIM_FAILURES;
    /// A message was refused for a payload that a majority stores from several attempts, each counted by a minority.
    PayloadsLeft, "payloads: attempts left their payload behind", CLAIM_FAILURES;
    /// A worker received a message that is given up, and its claim had ended, or its boot clock stood still.
    DeadLettersEnded, "dead-letters: the claim had ended", LEASES;
    /// A worker received a message after servers lost its dead-letter record.
    DeadLettersForgotten, "dead-letters: servers lost the record", CLAIM_FAILURES;
    /// A worker that has a grant of the wrong node set, or with a small token, has a boot clock that stood still.
    NodeSetsClock, "node-sets: a boot clock stood still", GUARANTEES;
    /// A joining server lost its marker between its opening and the command's report of success.
    NodeSetsForgot, "node-sets: a joining server lost its marker", VOTERS;
    /// A skipped or lost entry of an any-worker job does not follow the rules for leader-placed jobs.
    HistoriesAnyWorker, "histories: an any-worker job's entry", FORGOTTEN;
    /// A tick may be left out as paused after its job was resumed: servers lost the end of the pause.
    PauseEndForgotten, "histories, runs: servers lost the end of a pause", FAILURES;
    /// An entry says that a run was cancelled, and a later leader refused the request to cancel it.
    HistoriesRefused, "histories: a later leader refused the cancellation", FAILURES;
    /// An entry is missing that fewer than a majority of the servers store.
    HistoriesForgotten, "histories: servers lost the entry", FORGOTTEN;
    /// A run of an any-worker job ended too late for its leader to enter it.
    HistoriesLate, "histories: the leader had no time", NOT_GUARANTEED;
    /// A tick has a second outcome after it was entered as skipped, and a server lost data since it was due.
    OutcomesForgotten, "outcomes: a server lost data since the tick", FAILURES;
    /// A tick started before it was due, by clocks of a majority of the servers that were ahead.
    RunsAhead, "runs: the servers' clocks were ahead", QUORUM_CLOCK;
    /// A run is active beside one in a process that is paused or was resumed only just now.
    RunsPaused, "runs: the process is paused", LEASES;
    /// A run is active beside another, and the boot clock of one of their workers stood still.
    RunsClock, "runs: a boot clock stood still", GUARANTEES;
    /// An any-worker job has not run after the faults: no worker can take its open run.
    RunsAsleep, "runs: no worker can take the open run", FAILURES;
    /// A tick has not ended, and the operator may have cancelled it or paused its job.
    RunsOperator, "runs: the operator cancelled or paused", JOBS;
    /// The history has no entry of a tick, of which a closed record counted: the servers have lost the entry.
    RunsForgotten, "runs: servers lost the entry", FORGOTTEN;
    /// A run started in a pause: its tick of an at-least-once job was started before.
    RequestsGoesOn, "requests: the tick was started before the pause", JOBS;
    /// Nothing came of a request that may have been cancelled.
    RequestsCancelled, "requests: the operator cancelled", JOBS;
    /// Nothing came of a request that servers lost.
    RequestsForgotten, "requests: servers lost the request", FORGOTTEN;
    /// A run that was open to workers before the freeze started in it.
    FreezesOpen, "freezes: the run was open before", JOBS;
    /// A run started in a freeze: its tick of an at-least-once job was started before.
    FreezesGoesOn, "freezes: the tick was started before", JOBS;
    /// An accepted freeze is not judged, because servers lost it.
    FreezesForgotten, "freezes: servers lost the freeze", FORGOTTEN;
    /// The ticks of a freeze are not checked for entries, because a server lost data since.
    FreezesUnentered, "freezes: servers lost data since", FORGOTTEN;
    /// A run of a removed job started that was open to workers before the removal.
    StoredOpen, "stored jobs: the run was open before", JOBS;
    /// A single run has not started: its job was frozen. The history says so, or a server lost data since.
    StoredFrozen, "stored jobs: the group was frozen", JOBS;
    /// A stored job has not run, or a removed one has, and the ledger was founded since.
    StoredForgotten, "stored jobs: servers lost the job", FORGOTTEN;
    /// A holder set its key again on a server on which an operator had released it by force.
    ReleaseForced, "release: released by force", LEASE_FAILURES;
    /// A resign request was stored again after its release.
    ReleaseResign, "release: a resign request is no attempt", LEASES;
    /// A reader and a writer hold a lock, and the boot clock of one of them stood still.
    ReadersClock, "readers: a boot clock stood still", GUARANTEES;
    /// A slot has two holders, or too many slots are held, and the boot clock of a holder stood still.
    SlotsClock, "slots: a boot clock stood still", GUARANTEES;
    /// The token is not larger than that of a transferred lease, and the worker's boot clock stood still.
    TransfersClock, "transfers: a boot clock stood still", GUARANTEES;
    /// The token is not larger than that of a transferred lease, and its grant was released by force before the worker saw it.
    TransfersForced, "transfers: released by force", LEASE_FAILURES;
    /// A worker acquired a reserved lock, and a server that lost the reservation does not count.
    ReservationsForgotten, "reservations: the server lost its data", VOTERS;
    /// A worker acquired a reserved lock, and a server that granted it to the successor does not count.
    ReservationsTaken, "reservations: a server granted to the successor", LEASES;
    /// A worker acquired a reserved lock, and its boot clock stood still.
    ReservationsClock, "reservations: a boot clock stood still", GUARANTEES;
    /// A server still stores a lease of a worker that crashed so recently that the lease has not ended.
    LeftoversCrashed, "leftovers: the worker crashed", LEASE_FAILURES;
    /// Plain commands set a lease after their deadline, and after its release. It ends one TTL after the deadline.
    LeftoversLate, "leftovers: set late by plain commands", LEASE_FAILURES;
    /// A grant that had ended before its worker saw it is no operation.
    HistoryEnded, "lock history, message history: the grant had ended", LEASES;
    /// A grant whose worker's boot clock stood still is no operation, or ends before that.
    HistoryClock, "lock history, message history: a boot clock stood still", GUARANTEES;
    /// A grant that was released by force is no operation, or ends before that.
    HistoryForced, "lock history: released by force", LEASE_FAILURES;
    /// A message or tick may begin again, or an earlier claim complete its message: a majority lost the record.
    HistoryForgotten, "message history, tick history: servers lost the record", FORGOTTEN;
    /// The start of an at-least-once tick under a term whose worker's boot clock stood still is no operation.
    TickHistoryClock, "tick history: a boot clock stood still", GUARANTEES;
}

thread_local! {
    /// The uses of excuses in the run on this thread. A run never leaves its thread.
    static USED: RefCell<BTreeMap<Excuse, u64>> = const { RefCell::new(BTreeMap::new()) };
}

impl Excuse {
    /// Counts a use of the excuse in the run on this thread.
    pub(super) fn count(self) {
        USED.with_borrow_mut(|used| *used.entry(self).or_default() += 1);
    }

    /// Returns `applies`, and counts a use if it is true. Call it last, where all else says that the invariant
    /// is broken.
    pub(super) fn excuses(self, applies: bool) -> bool {
        if applies {
            self.count();
        }
        applies
    }

    /// Returns the uses since the last call on this thread, and forgets them.
    pub(super) fn take_used() -> BTreeMap<Self, u64> {
        USED.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::invariant;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../../docs/design/excuses.md");

    /// Returns the name and the promise's link of each row of the page.
    fn rows() -> Vec<(&'static str, &'static str)> {
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
        let row = |row: &'static str| {
            let (name, rest) = row.split_once('`')?;
            let (_, link) = rest.rsplit_once("](")?;
            Some((name, link.strip_suffix(") |")?))
        };
        rows.map(|line| row(line).unwrap()).collect()
    }

    #[test]
    fn the_page_lists_every_excuse_with_its_promise_and_no_other() {
        let excuses: Vec<_> = Excuse::ALL.iter().map(|excuse| (excuse.name(), excuse.promise())).collect();
        assert_eq!(rows(), excuses);
    }

    #[test]
    fn each_excuse_has_a_name_of_its_own_that_begins_with_its_invariant() {
        let names: BTreeSet<_> = Excuse::ALL.iter().map(|excuse| excuse.name()).collect();
        assert_eq!(names.len(), Excuse::ALL.len());
        let invariants: BTreeSet<_> = invariant::all().iter().map(|invariant| invariant.name()).collect();
        for name in names {
            let of = name.split_once(": ").map_or("", |(of, _)| of);
            assert!(of.split(", ").all(|of| invariants.contains(of)), "{name}");
        }
    }

    #[test]
    fn a_use_is_counted_where_it_makes_a_difference() {
        Excuse::take_used();
        assert!(!Excuse::TicksLost.excuses(false) && Excuse::TicksLost.excuses(true));
        Excuse::TicksLost.count();
        assert_eq!(Excuse::take_used(), BTreeMap::from([(Excuse::TicksLost, 2)]));
        assert_eq!(Excuse::take_used(), BTreeMap::new());
    }
}
