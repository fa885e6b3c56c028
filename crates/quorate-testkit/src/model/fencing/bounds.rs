/// Attempts at most.
pub const ATTEMPTS: usize = 3;
/// The step of time, in microseconds.
pub(super) const STEP: u32 = 1_000_000;
/// `max_clock_offset`: clocks are off by whole steps, and what is left over is for counts, which take no time
/// here, as they would.
pub(super) const OFFSET: u32 = STEP + 100;
/// The true time when a history begins.
pub(super) const BEGIN: u32 = 100 * STEP;

/// The property: no token is given twice.
pub const UNIQUE: &str = "tokens are unique";
/// The property: who begins after a grant has the larger token.
pub const GROWING: &str = "a later grant has the larger token";

/// One model, within these bounds.
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    /// Attempts that begin.
    pub attempts: usize,
    /// Acquires that run twice.
    pub doubles: u8,
    /// Whether a reply comes at once or never; without that, at any later moment or never.
    pub prompt: bool,
    /// By how many steps workers' clocks may be off; it matters only to missing counters.
    pub offs: &'static [i8],
    /// Whether who has won repairs nodes.
    pub repair: bool,
    /// By how much counters may differ at first; without that, none has been seeded.
    pub apart: Option<u8>,
    /// Whether any counter may be missing at first as well.
    pub missing: bool,
    /// By how many steps the clock was ahead that seeded them.
    pub seeded: u8,
    /// By how many steps a node's clock may be ahead.
    pub ahead: u8,
    /// How often time goes on.
    pub steps: u8,
    /// By how many steps at once.
    pub stride: u8,
    /// How long a quarantine is, in steps: `max_ttl`.
    pub quarantine: u8,
    /// How long a counter lives after its last use, in steps.
    pub keep: u8,
    /// How often a node forgets everything.
    pub forgets: u8,
    /// How often a node comes back with an earlier memory.
    pub returns: u8,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// What keeps tokens unique and growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An acquire counts one more grant.
    Increment,
    /// A majority's counters are raised to the token.
    Raise,
    /// Only the owner raises.
    RaiseByOwner,
    /// A repair never lowers a counter.
    RepairKeepsMore,
    /// A forgotten counter starts at the time, by a clock within `max_clock_offset`.
    Seed,
    /// A node that has forgotten votes again only after a quarantine.
    Quarantine,
    /// A counter older than its node's memory counts like a forgotten one.
    OldCounters,
    /// The memory of a node that came back begins later than its clock says, by as much as a seed in what came
    /// back may have been ahead of that clock.
    LateMemory,
}

impl Fencing {
    /// Two attempts and no time: nothing is forgotten.
    pub fn plain() -> Self {
        Self {
            attempts: 2,
            doubles: 1,
            prompt: false,
            offs: &[0],
            repair: true,
            apart: Some(2),
            missing: false,
            seeded: 0,
            ahead: 0,
            steps: 0,
            stride: 4,
            quarantine: 4,
            keep: u8::MAX,
            forgets: 0,
            returns: 0,
            without: None,
        }
    }

    /// A node forgets, clocks are off, and time goes on by a quarantine.
    pub fn forgetful() -> Self {
        Self { forgets: 1, repair: false, missing: true, apart: Some(0), ..Self::timed() }
    }

    /// A node comes back with an earlier memory, and counters were seeded by a clock far ahead.
    pub fn returning() -> Self {
        Self { returns: 1, offs: &[0], apart: Some(0), seeded: 2, repair: false, ..Self::timed() }
    }

    /// Counters end, which have not been used for a while.
    pub fn retiring() -> Self {
        Self { keep: 4, apart: Some(0), missing: true, repair: false, ..Self::timed() }
    }

    fn timed() -> Self {
        Self { doubles: 0, prompt: true, offs: &[-1, 2], ahead: 1, steps: 1, ..Self::plain() }
    }
}
