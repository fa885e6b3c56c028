//! The bounds and the rules of the model of exclusion. An *attempt* is one try of a worker to acquire the
//! lease. A worker *believes* in a lease while it considers the lease valid by its own clock.

/// The maximum number of attempts.
pub const ATTEMPTS: usize = 3;
/// The TTL, in steps.
pub(super) const TTL: u8 = 4;
/// The errors of clocks within a TTL, in steps. The first is the time by which a key may end too early on a
/// node. The second is the time by which a worker may believe in its lease too long.
pub(super) const EARLY: u8 = 1;
pub(super) const SLOW: u8 = 1;
/// The margin that is subtracted from a TTL.
pub(super) const MARGIN: u8 = EARLY + SLOW;
/// The present time in every call of the shipped code. It is a constant, because the model stores only ages
/// and remaining times.
pub(super) const NOW: u32 = 1000;

/// The property: at most one worker believes in a lease at a time.
pub const ALONE: &str = "one lease is believed in at a time";

/// The model, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// The number of attempts.
    pub attempts: usize,
    /// The number of rounds of extensions of all attempts together.
    pub extensions: u8,
    /// The number of acquires and extensions that run twice.
    pub doubles: u8,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// Set if a reply arrives at once or never. Otherwise it arrives at any later time or never.
    pub prompt: bool,
    /// Set if an attempt asks a majority first. It may ask the other node at any later time; once it holds the lease, it
    /// may extend it to that node. Its releases go to the nodes that it has asked.
    pub majority_first: bool,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule that keeps two workers from believing in a lease at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// After a node forgot, it votes again only after a quarantine.
    Quarantine,
    /// A node in quarantine does not count for the extension of a lease either.
    QuarantineOfHolders,
    /// Validity counts from the sending of the request. Without this rule, it counts from the receipt of the
    /// reply.
    Send,
    /// Validity counts from the sending of the second latest of the granted requests. A majority of the three
    /// nodes granted a request that was sent then or later. Without this rule, validity counts from the
    /// latest.
    QuorumthSend,
    /// The margin is subtracted from the TTL.
    Margin,
    /// A lease ends before its holder sends the first message of the release.
    EndBeforeRelease,
    /// Only a node that was asked counts.
    Asked,
    /// An owner token signs only one attempt, and not its retry too.
    FreshOwner,
}

impl Exclusion {
    /// Returns the model of two attempts, with replies that arrive at any time.
    pub fn plain() -> Self {
        Self {
            attempts: 2,
            extensions: 0,
            doubles: 0,
            forgets: 0,
            prompt: false,
            majority_first: false,
            without: None,
        }
    }

    /// Returns the model of two attempts and a round of extensions.
    pub fn extending() -> Self {
        Self { extensions: 1, prompt: true, ..Self::plain() }
    }

    /// Returns the model of two attempts, a round of extensions, and a node that forgets.
    pub fn forgetful() -> Self {
        Self { forgets: 1, ..Self::extending() }
    }

    /// Returns the model of two attempts, a round of extensions, and requests that run twice.
    pub fn doubled() -> Self {
        Self { doubles: 1, ..Self::extending() }
    }

    /// Returns the model of two attempts that ask a majority first, and a node that forgets.
    pub fn majority_first() -> Self {
        Self { majority_first: true, forgets: 1, prompt: true, ..Self::plain() }
    }

    /// Returns the model of a worker that tries again, and another worker.
    pub fn retrying() -> Self {
        Self { attempts: 3, prompt: true, ..Self::plain() }
    }
}
