/// The maximum number of attempts.
pub const ATTEMPTS: usize = 3;
/// The TTL, in steps.
pub(super) const TTL: u8 = 4;
/// The time by which a key may end early, and the time by which a worker may believe too long, within a
/// TTL.
pub(super) const EARLY: u8 = 1;
pub(super) const SLOW: u8 = 1;
/// The margin that is subtracted from a TTL.
pub(super) const MARGIN: u8 = EARLY + SLOW;
/// The present, for the shipped code: times are stored relative to it.
pub(super) const NOW: u32 = 1000;

/// The property: no two workers believe in a lease at once.
pub const ALONE: &str = "one lease is believed in at a time";

/// The model, within these bounds.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// The number of attempts.
    pub attempts: usize,
    /// The number of rounds of extensions in all.
    pub extensions: u8,
    /// The number of acquires and extensions that run twice.
    pub doubles: u8,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// If set, a reply comes at once or never; otherwise at any later time or never.
    pub prompt: bool,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule that keeps believed intervals apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A node that forgot votes again only after a quarantine.
    Quarantine,
    /// A node in quarantine does not count for a lease that is extended.
    QuarantineOfHolders,
    /// Validity counts from the send, not from the receipt.
    Send,
    /// Validity counts from the quorum-th latest send, not from the latest.
    QuorumthSend,
    /// The margin is subtracted.
    Margin,
    /// A lease ends before the first message of its release leaves.
    EndBeforeRelease,
    /// An owner token signs one attempt, and not also its retry.
    FreshOwner,
}

impl Exclusion {
    /// Two attempts, and replies that arrive at any time.
    pub fn plain() -> Self {
        Self { attempts: 2, extensions: 0, doubles: 0, forgets: 0, prompt: false, without: None }
    }

    /// Two attempts, and a round of extensions.
    pub fn extending() -> Self {
        Self { extensions: 1, prompt: true, ..Self::plain() }
    }

    /// Two attempts, a round of extensions, and a node that forgets.
    pub fn forgetful() -> Self {
        Self { forgets: 1, ..Self::extending() }
    }

    /// Two attempts, a round of extensions, and requests that run twice.
    pub fn doubled() -> Self {
        Self { doubles: 1, ..Self::extending() }
    }

    /// A worker that tries again, and another worker.
    pub fn retrying() -> Self {
        Self { attempts: 3, prompt: true, ..Self::plain() }
    }
}
