/// A safety mechanism that a worker leaves out. For tests of the tests only: each of these makes a quorum unsafe,
/// and the simulation must find out.
///
/// A user's program cannot name it: without the feature `sabotage`, which nothing but the test-kit turns on,
/// `QuorumConfig::sabotaged` is a constant `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    // --- fencing ---
    /// The largest counter among the grants is the token at once, though no majority has it.
    NoRaise,
    /// A counter that came back with an old snapshot is taken at its word.
    RelicsTrusted,

    // --- who owns it ---
    /// All attempts of a worker are signed by one owner token.
    TokenReused,
    /// A dropped attempt posts no releases.
    DropsSilently,
    /// Within a batch releases go first.
    ReleasesFirst,
    /// Requests may run at any later time.
    NoNotAfter,
    /// A new session does not wait for the old one's last request to be too late.
    NoFence,
    /// An attempt that split the votes is not made again.
    SplitsStand,

    // --- until when ---
    /// Nothing is taken off a TTL for what clocks may do.
    NoMargin,
    /// Validity counts from the reply.
    ValidityFromReceipt,
    /// A look at a lease does not look at the clock.
    LooksWithoutClock,
    /// Loss and step-down are noticed when a call returns, and by no clock.
    LossFromVotesOnly,
    /// A lease stands for its holder though its release has left.
    LeaseOutlivesRelease,
    /// A leader that resigns does not wait for its term's tasks.
    WorkOutlivesTerm,

    // --- who may vote ---
    /// A node that forgot votes at once.
    NoQuarantine,
    /// What a node granted before it forgot still counts.
    ForgettersCount,
    /// A node whose clock has jumped votes on.
    JumpsUnseen,

    // --- records ---
    /// A new leader reads the ledger and does not seal it.
    PlainRead,
    /// A node answers for ticks that it has forgotten.
    NoMemoryRule,
    /// Ticks are due by the worker's own wall clock.
    OwnWallClock,
    /// The lease is not looked at between *started* and the work.
    NoLookBeforeWork,
    /// A majority of grants overrules a *done* among the answers.
    DoneOverruled,
}
