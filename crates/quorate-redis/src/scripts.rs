/// The scripts, each of which serves one kind of request. See the head of each file for its KEYS and ARGV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    Raise,
    Extend,
    Release,
    Share,
    ExtendShare,
    ReleaseShare,
    Downgrade,
    Queue,
    LeaveQueue,
    Inspect,
    Complete,
    Seal,
    Write,
    Prune,
    Read,
    Reserve,
    Mark,
}

macro_rules! source {
    ($file:literal) => {
        concat!(include_str!("scripts/prelude.lua"), include_str!(concat!("scripts/", $file, ".lua")))
    };
    (shared, $file:literal) => {
        concat!(
            include_str!("scripts/prelude.lua"),
            include_str!("scripts/shared.lua"),
            include_str!(concat!("scripts/", $file, ".lua"))
        )
    };
}

impl Script {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 18] = [
        Self::Acquire,
        Self::Raise,
        Self::Extend,
        Self::Release,
        Self::Share,
        Self::ExtendShare,
        Self::ReleaseShare,
        Self::Downgrade,
        Self::Queue,
        Self::LeaveQueue,
        Self::Inspect,
        Self::Complete,
        Self::Seal,
        Self::Write,
        Self::Prune,
        Self::Read,
        Self::Reserve,
        Self::Mark,
    ];

    /// The whole text that the server runs.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Acquire => source!(shared, "acquire"),
            Self::Raise => source!("raise"),
            Self::Extend => source!(shared, "extend"),
            Self::Release => source!("release"),
            Self::Share => source!(shared, "share"),
            Self::ExtendShare => source!(shared, "extend_share"),
            Self::ReleaseShare => source!(shared, "release_share"),
            Self::Downgrade => source!(shared, "downgrade"),
            Self::Queue => source!(shared, "queue"),
            Self::LeaveQueue => source!(shared, "leave_queue"),
            Self::Inspect => source!("inspect"),
            Self::Complete => source!("complete"),
            Self::Seal => source!("seal"),
            Self::Write => source!("write"),
            Self::Prune => source!("prune"),
            Self::Read => source!("read"),
            Self::Reserve => source!("reserve"),
            Self::Mark => source!("mark"),
        }
    }

    /// How many keys an item has.
    pub(crate) fn keys_per_item(self) -> usize {
        match self {
            Self::Acquire
            | Self::Extend
            | Self::Share
            | Self::ExtendShare
            | Self::Downgrade
            | Self::Inspect
            | Self::Complete => 3,
            Self::Raise | Self::ReleaseShare => 2,
            _ => 1,
        }
    }
}

/// The names under which a server has loaded the scripts.
#[derive(Clone, Debug)]
pub(crate) struct Loaded([String; Script::ALL.len()]);

impl Loaded {
    /// From what `SCRIPT LOAD` said to each of [`Script::ALL`].
    pub(crate) fn new(names: Vec<String>) -> Option<Self> {
        names.try_into().ok().map(Self)
    }

    /// What EVALSHA calls it.
    pub(crate) fn name(&self, script: Script) -> &str {
        &self.0[script as usize]
    }
}
