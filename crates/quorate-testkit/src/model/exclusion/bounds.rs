//! The bounds and the rules of the model of exclusion. An *attempt* is one try of a worker to acquire the
//! lease. A worker *believes* in a lease while it considers the lease valid by its own clock.

/// The maximum number of attempts.
pub const ATTEMPTS: usize = 3;
/// The TTL, in steps.
pub(super) const TTL: u8 = 4;
/// The errors of clocks within a TTL, in steps: the time by which a key may end too early on a node, and the
/// time by which a worker may believe in its lease too long.
pub(super) const EARLY: u8 = 1;
pub(super) const SLOW: u8 = 1;
/// The margin that is subtracted from a TTL.
pub(super) const MARGIN: u8 = EARLY + SLOW;
/// The present time that every call of the shipped code gets. It is a constant, because the model stores only
/// ages and remaining times.
pub(super) const NOW: u32 = 1000;

/// The property that at most one worker at a time believes in a lease.
pub const ALONE: &str = "one lease is believed in at a time";

/// The model, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// The number of attempts.
    pub attempts: usize,
    /// The number of rounds of extensions, for all attempts together.
    pub extensions: u8,
    /// The number of acquires and extensions that run twice.
    pub doubles: u8,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// True if each reply arrives at once or never. Otherwise a reply arrives at any later time or never.
    pub prompt: bool,
    /// True if an attempt asks only a majority of the nodes first. The attempt may ask the remaining node at
    /// any later time. Once the attempt holds the lease, it may also extend the lease to that node. It sends
    /// releases only to the nodes that it has asked.
    pub majority_first: bool,
    /// True if acquires run as plain commands: a key ends a TTL after its request was sent, whenever the request runs.
    pub commands: bool,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule that keeps two workers from believing in a lease at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A node that forgot votes again only after a quarantine.
    Quarantine,
    /// A node in quarantine does not count for the extension of a lease either.
    QuarantineOfHolders,
    /// Validity counts from the sending of the request. Without this rule, validity counts from the arrival
    /// of the reply.
    Send,
    /// Validity counts from the second latest sending time of the granted requests. A majority of the three
    /// nodes granted a request that was sent at this time or later. Without this rule, validity counts from
    /// the latest sending time.
    QuorumthSend,
    /// The margin for clock errors is subtracted from the TTL.
    Margin,
    /// A lease ends before its holder sends the first message of the release.
    EndBeforeRelease,
    /// A node counts only if the attempt has asked it.
    Asked,
    /// Each attempt has an owner token of its own. Without this rule, a retry uses the token of the attempt
    /// before it.
    FreshOwner,
    /// The end of a key that plain commands set counts from the latest possible time of sending. Without this rule, it
    /// counts from a step before the sending.
    LatestSend,
    /// A session reads the marker after its plain commands have set a key, and counts no grant of a node that has forgotten.
    MarkerAfter,
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
            commands: false,
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

    /// Returns the model of two workers, one of which makes a second attempt.
    pub fn retrying() -> Self {
        Self { attempts: 3, prompt: true, ..Self::plain() }
    }
}
