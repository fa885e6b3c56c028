/// A safety mechanism that a worker leaves out, to test the simulation. If workers leave out any one of these
/// mechanisms, the quorum is unsafe, and the simulation must detect that. The comment of each variant
/// describes a worker without the mechanism.
///
/// Only the test-kit enables the feature `sabotage`. Without the feature, `QuorumConfig::sabotaged` always
/// returns false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    // --- fencing ---
    /// The worker takes the largest counter among the grants as its fencing token, even if no majority stores
    /// that value.
    NoRaise,
    /// The worker trusts the value of a counter that a node has restored from an old snapshot.
    OldCountersTrusted,

    // --- owner tokens, and requests that are late or lost ---
    /// The worker uses one owner token for all of its attempts.
    TokenReused,
    /// An attempt whose future is dropped sends no releases.
    DropsSilently,
    /// The worker sends the releases of a batch before the other requests of that batch.
    ReleasesFirst,
    /// The worker's requests have no `not_after`, so a node may execute them at any later time.
    NoNotAfter,
    /// The worker opens a new session with a node at once. It does not wait until the node refuses every
    /// request of the old session as too late.
    NoFence,
    /// The worker does not repeat a failed attempt, even if the attempt failed only because concurrent
    /// attempts split the votes.
    SplitVotesNotRetried,

    // --- the end of a lease ---
    /// The validity of a lease is its whole TTL. No allowance for clock drift and clock steps is subtracted.
    NoMargin,
    /// The validity of a lease counts from the time of the reply, not from the time at which the request was
    /// sent.
    ValidityFromReceipt,
    /// The holder checks its lease without reading the clock.
    ChecksWithoutClock,
    /// The worker notices the step-down and the loss of a lease when the next vote arrives, not when they are
    /// due.
    LossFromVotesOnly,
    /// A lease stays valid for its holder although its release was sent.
    LeaseOutlivesRelease,
    /// A leader that resigns releases its lease before the tasks of its term have ended.
    WorkOutlivesTerm,
    /// A worker that never leads campaigns like any other.
    NeverLeadIgnored,
    /// The worker extends a lease once more after it has asked the nodes to reserve it for a successor.
    ExtendedAfterTransfer,

    // --- the choice among locks and waiters ---
    /// A waiter's entry in a queue has the time at which the waiter joined, not the start of its wait.
    QueuedByArrival,
    /// A worker that acquires any of several locks tries only one of them in each pass.
    OneSlotTried,
    /// The leader of a set changes the number of shards while some of the old ones may be owned.
    ShardsNotSwept,

    // --- who may vote ---
    /// A node that lost its memory votes at once.
    NoQuarantine,
    /// A grant still counts after its node has lost its memory.
    ForgettersCount,
    /// A node whose clock jumped ahead continues to vote.
    ClockStepsIgnored,
    /// A durable node whose stamp is smaller than the one that other nodes and workers have seen keeps its memory.
    StampsIgnored,

    // --- records ---
    /// A tick is due when the worker's own wall clock reaches it. The worker does not compare the tick with
    /// the clocks of a majority of the nodes.
    OwnWallClock,
    /// The leader does not check its lease between writing the *started* record and starting the work.
    NoCheckBeforeWork,
    /// The worker starts a run as soon as one node has registered the start.
    StartUnregistered,
    /// The leader enters a skipped tick in the history, and does not close the tick in the ledger.
    SkipsNotClosed,
    /// The leader starts runs beyond the limit of their concurrency key.
    KeyIgnored,
    /// The leader gives a run to any worker, whatever labels its job requires.
    LabelsIgnored,
    /// A new leader adds a run after each recorded end, also if the ledger has the record of this run.
    FollowedAgain,
    /// A new leader does not take over the number of failed runs in a row.
    FailuresForgotten,
    /// A new leader does not take over the freeze of the group that an earlier leader stored.
    FreezeNotTakenOver,
    /// A new leader does not take over the jobs that are stored on the nodes.
    StoredJobsNotTakenOver,
    /// The leader does not remove the row of a stored job that is removed.
    StoredJobsNotRemoved,
    /// A leader does not end the freeze of the group at its end.
    FreezeWithoutEnd,
    /// A leader that freezes the group does not withdraw the runs that are open to workers.
    FrozenRunsStayOpen,
    /// The worker takes a claim that a majority granted, even if another node answered that the message is
    /// *done*.
    DoneOverruled,

    // --- attempts and dead letters ---
    /// An attempt on a message begins as soon as one node has counted it, not a majority.
    AttemptCountedByOne,
    /// The worker begins attempts on a message beyond the attempt limit.
    AttemptLimitIgnored,
    /// The worker does not compare the payload's fingerprint of a message with those that the nodes store.
    PayloadIgnored,
    /// The worker does not withdraw the count of an attempt whose handler never started.
    CountNotWithdrawn,
    /// The worker records a dead letter although the hook has failed.
    FailedHookRecorded,

    // --- replacement of the node set ---
    /// The replacement opens the new set at once. It does not wait until the leases of the old set have ended.
    ReplacesAtOnce,
    /// The replacement opens the new set although fewer than a majority of the old set are closed.
    ReplacesOpenSet,
    /// The memory of the nodes that stay remains valid, although a majority of the new set may know nothing of the old
    /// set's last grants.
    StayingMemoryKept,
}
