/// A safety mechanism that a worker leaves out. It exists to test the tests: each one makes a quorum unsafe, and the
/// simulation must detect that.
///
/// Only the test-kit enables the feature `sabotage`. Without it, `QuorumConfig::sabotaged` is a constant `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    // --- fencing ---
    /// The largest counter among the grants is the token at once, although no majority has it.
    NoRaise,
    /// A counter that was restored from an old snapshot counts with its old value.
    RelicsTrusted,

    // --- owner tokens, and requests that are late or lost ---
    /// All attempts of a worker use one owner token.
    TokenReused,
    /// A dropped attempt sends no releases.
    DropsSilently,
    /// Releases are sent before the other requests of a batch.
    ReleasesFirst,
    /// Requests may be executed at any later time.
    NoNotAfter,
    /// A new session does not wait until the old one's last request is refused as too late.
    NoFence,
    /// An attempt that was lost because of split votes is not repeated.
    SplitsStand,

    // --- the end of a lease ---
    /// Validity is not shortened for clock drift and steps.
    NoMargin,
    /// Validity counts from the reply, not from the request.
    ValidityFromReceipt,
    /// A check of a lease does not read the clock.
    LooksWithoutClock,
    /// Loss and step-down are noticed by votes only, not by a clock.
    LossFromVotesOnly,
    /// A lease stays valid for its holder although its release was sent.
    LeaseOutlivesRelease,
    /// A leader that resigns does not wait for its term's tasks.
    WorkOutlivesTerm,

    // --- who may vote ---
    /// A node that lost its memory votes at once.
    NoQuarantine,
    /// Grants that a node has forgotten still count.
    ForgettersCount,
    /// A node whose clock stepped continues to vote.
    JumpsUnseen,

    // --- records ---
    /// A new leader reads the ledger and does not seal it.
    PlainRead,
    /// A node's answer counts even for ticks before its memory began.
    NoMemoryRule,
    /// A tick is due when the worker's own wall clock reaches it.
    OwnWallClock,
    /// The lease is not checked between the *started* record and the start of the work.
    NoLookBeforeWork,
    /// A worker starts an open run as soon as it has the claim, without a count of the attempt.
    SlotUncounted,
    /// A majority of grants overrules a *done* among the answers.
    DoneOverruled,
}
