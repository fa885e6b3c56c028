//! The bounds and the rules of the model of fencing tokens. An *attempt* is one try of a worker to acquire
//! the lease. Each node has a *counter*, which grows with each grant.

/// The maximum number of attempts.
pub const ATTEMPTS: usize = 3;
/// The step of time, in microseconds.
pub(super) const STEP: u32 = 1_000_000;
/// The model's `max_clock_offset`. Clocks are wrong by whole steps. The additional 100 µs leave room for the
/// counter's increments, which take no time in the model.
pub(super) const OFFSET: u32 = STEP + 100;
/// The true time when a sequence of steps begins.
pub(super) const BEGIN: u32 = 100 * STEP;

/// The property that no token is given twice.
pub const UNIQUE: &str = "tokens are unique";
/// The property that an attempt that begins after a grant gets a larger token.
pub const GROWING: &str = "a later grant has the larger token";

/// The property that an attempt is not extended by a majority once a later attempt has won.
pub const FINAL: &str = "a holder does not return after a later grant";

/// The model, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    /// The number of attempts.
    pub attempts: usize,
    /// The number of acquires that run twice.
    pub doubles: u8,
    /// True if each reply arrives at once or never. Otherwise a reply arrives at any later moment or never.
    pub prompt: bool,
    /// The errors that the clock of an attempt's worker may have, in steps. An error matters only if a node
    /// has no counter.
    pub offs: &'static [i8],
    /// Lets an attempt that has won repair nodes: its extension sets its key again on a node that has lost the
    /// key.
    pub repair: bool,
    /// Requires [`FINAL`], and lets holders vouch for later grants. This needs much more state. Otherwise, a node that
    /// has counted later grants never sets a key again.
    pub finality: bool,
    /// The largest difference between the nodes' counters when a sequence of steps begins. `None` if the nodes have no
    /// counters yet.
    pub apart: Option<u8>,
    /// Lets any of the nodes be without a counter when a sequence of steps begins.
    pub missing: bool,
    /// The nodes' counters were started before the history, at the time on a worker's clock. That clock was
    /// ahead by this number of steps.
    pub seeded: u8,
    /// The number of steps by which a node's clock may be ahead.
    pub ahead: u8,
    /// The number of times that time advances.
    pub steps: u8,
    /// The number of steps by which time advances each time.
    pub stride: u8,
    /// The length of a quarantine, in steps. In the shipped code, the length follows from `max_ttl`.
    pub quarantine: u8,
    /// The number of steps for which a node keeps a counter after the counter's last use.
    pub keep: u8,
    /// Lets an acquire also run as plain commands, in place of a script: see the module's documentation.
    pub commands: bool,
    /// The resource is a claim, which plain commands may acquire where it is new: see the module's documentation.
    pub claims: bool,
    /// The number of times that a node forgets everything.
    pub forgets: u8,
    /// The number of times that a node comes back with an earlier state.
    pub returns: u8,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule that keeps tokens unique and growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An acquire increases the node's counter by one.
    Increment,
    /// An attempt raises the counters of a majority to its token before it uses the token.
    Raise,
    /// Only the owner of the key may raise a node's counter.
    RaiseByOwner,
    /// A repair (an extension that sets a key again) never lowers a counter.
    RepairKeepsMore,
    /// A node does not set a lease again if its counter is larger than the token of the extension.
    RepairNoLater,
    /// A holder extends with the counter that a node reported only after a majority has extended its lease by
    /// requests that were sent after this report.
    Vouch,
    /// A node without a counter starts one at the time that the worker proposes. That time must be within
    /// `max_clock_offset` of the node's clock.
    Seed,
    /// A node that has forgotten votes again only after a quarantine.
    Quarantine,
    /// A counter that was written before its node's memory began is treated as missing.
    OldCounters,
    /// If a node comes back with an earlier state, its new memory begins later than its clock shows, by at
    /// least the largest possible difference of two clocks. A restored counter may have been started from a
    /// clock that was ahead, and must count as older than the node's memory.
    LateMemory,
    /// A script treats a counter without an end as missing, because only INCRBY starts such a counter.
    EndlessIsMissing,
    /// The record of a claim that plain commands acquire outlives its lease, and so keeps the count.
    ClaimKept,
    /// Plain commands grant a claim only if the proposed time is within `max_clock_offset` of the node's clock.
    ClaimClock,
    /// Plain commands are sent only if the worker sees that the proposed time is within `max_clock_offset` of the node's clock.
    /// They set the record, and its count stays, also if the grant does not count.
    ClaimClockBefore,
}

impl Fencing {
    /// Returns the model of two attempts, in which time does not advance and no node forgets.
    pub fn plain() -> Self {
        Self {
            attempts: 2,
            doubles: 1,
            prompt: false,
            offs: &[0],
            repair: true,
            finality: false,
            apart: Some(2),
            missing: false,
            seeded: 0,
            ahead: 0,
            steps: 0,
            stride: 4,
            quarantine: 4,
            keep: u8::MAX,
            commands: false,
            claims: false,
            forgets: 0,
            returns: 0,
            without: None,
        }
    }

    /// Returns the model in which a node forgets, clocks are wrong, and time advances by a quarantine.
    pub fn forgetful() -> Self {
        Self { forgets: 1, repair: false, missing: true, apart: Some(0), ..Self::timed() }
    }

    /// Returns the model in which a node comes back with an earlier state, and counters were started from a
    /// clock far ahead.
    pub fn returning() -> Self {
        Self { returns: 1, offs: &[0], apart: Some(0), seeded: 2, repair: false, ..Self::timed() }
    }

    /// Returns the model in which nodes drop counters that have not been used for a while.
    pub fn retiring() -> Self {
        Self { keep: 4, apart: Some(0), missing: true, repair: false, ..Self::timed() }
    }

    /// Returns the model in which holders return, or do not, after later grants.
    pub fn finality() -> Self {
        Self { doubles: 0, prompt: true, finality: true, apart: Some(1), ..Self::plain() }
    }

    /// Returns the model of acquires by plain commands, in which losers increment counters too.
    pub fn commands() -> Self {
        Self { doubles: 0, prompt: true, commands: true, apart: Some(1), ..Self::plain() }
    }

    /// Returns the model of acquires by plain commands in which a node forgets.
    pub fn commands_forgetful() -> Self {
        Self { commands: true, offs: &[0], ahead: 0, missing: false, ..Self::forgetful() }
    }

    /// Returns the model of acquires by plain commands in which nodes drop counters.
    pub fn commands_retiring() -> Self {
        Self { commands: true, offs: &[0], ahead: 0, missing: false, ..Self::retiring() }
    }

    /// Returns the model of claims that plain commands acquire, in which nodes drop counters.
    pub fn claims() -> Self {
        Self { claims: true, ..Self::retiring() }
    }

    /// Returns the model of claims that plain commands acquire, in which a node forgets.
    pub fn claims_forgetful() -> Self {
        Self { claims: true, ahead: 0, ..Self::forgetful() }
    }

    fn timed() -> Self {
        Self { doubles: 0, prompt: true, offs: &[-1, 2], ahead: 1, steps: 1, ..Self::plain() }
    }
}
