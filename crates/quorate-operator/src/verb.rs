use crate::{Field, Kind, Need, definition};
use quorate::internals::JobAction;

/// The kind of an action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Run a job once now.
    Trigger,
    /// Skip a job's ticks.
    Pause,
    /// Run a job's ticks again.
    Resume,
    /// Cancel a job's runs.
    Cancel,
    /// Run a job for each tick of a span.
    Backfill,
    /// Skip the ticks of all jobs of the group.
    Freeze,
    /// End a freeze.
    Unfreeze,
    /// Store a job on the nodes.
    Put,
    /// Remove a job from the nodes.
    Remove,
    /// Make the leader resign.
    Resign,
    /// Make a message that was given up count as new.
    Reset,
}

/// The words with which a person is asked about an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The action, in a few words.
    pub label: &'static str,
    /// The effect.
    pub effect: &'static str,
    /// The confirmation.
    pub confirm: &'static str,
}

pub(crate) const PAUSE: [Field; 3] = [
    Field::new("reason", "Reason", Kind::Text, Need::Wanted, "Why; shown beside the pause"),
    Field::new(
        "until",
        "Until",
        Kind::End,
        Need::Optional,
        "Without it, the pause lasts until the job is resumed",
    ),
    Field::new("for", "For", Kind::Length, Need::Programs, "The length of the pause, such as 30m"),
];
pub(crate) const TRIGGER: [Field; 1] = [Field::new(
    "payload",
    "Payload",
    Kind::Text,
    Need::Programs,
    "The payload of the run, up to 8 KiB, in place of the job's",
)];
pub(crate) const REMOVE: [Field; 1] = [Field::new(
    "version",
    "Version",
    Kind::Text,
    Need::Programs,
    "Only if the job is stored as this request has stored it",
)];
pub(crate) const CANCEL: [Field; 1] =
    [Field::new("tick", "Tick", Kind::Time, Need::Programs, "Only the run of this tick (RFC 3339)")];
pub(crate) const BACKFILL: [Field; 2] = [
    Field::new("from", "From", Kind::Time, Need::Required, "The start of the span, included"),
    Field::new("until", "Until", Kind::Time, Need::Required, "The end of the span, excluded"),
];
pub(crate) const FREEZE: [Field; 3] = [
    Field::new("reason", "Reason", Kind::Text, Need::Wanted, "Why; for the people who find the jobs frozen"),
    Field::new("until", "Until", Kind::End, Need::Wanted, "The end of the freeze; this or for is required"),
    Field::new("for", "For", Kind::Length, Need::Programs, "The length of the freeze, such as 30m"),
];
pub(crate) const RESIGN: [Field; 2] = [
    Field::new("term", "Term", Kind::Term, Need::Programs, "Only if the leader leads this term"),
    Field::REASON,
];
const RESET: [Field; 1] = [Field::REASON];

impl Verb {
    /// All kinds of actions.
    pub const ALL: [Self; 11] = [
        Self::Trigger,
        Self::Pause,
        Self::Resume,
        Self::Cancel,
        Self::Backfill,
        Self::Freeze,
        Self::Unfreeze,
        Self::Put,
        Self::Remove,
        Self::Resign,
        Self::Reset,
    ];

    /// Returns the name in the API and in the audit list.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Backfill => "backfill",
            Self::Freeze => "freeze",
            Self::Unfreeze => "unfreeze",
            Self::Put => "put",
            Self::Remove => "remove",
            Self::Resign => "resign",
            Self::Reset => "reset",
        }
    }

    /// Returns the kind of a request to the leader.
    pub const fn of(what: &JobAction) -> Self {
        match what {
            JobAction::Trigger { .. } => Self::Trigger,
            JobAction::Pause { .. } => Self::Pause,
            JobAction::Resume { .. } => Self::Resume,
            JobAction::Cancel { .. } => Self::Cancel,
            JobAction::Backfill { .. } => Self::Backfill,
            JobAction::Freeze { .. } => Self::Freeze,
            JobAction::Unfreeze => Self::Unfreeze,
            JobAction::Put { .. } => Self::Put,
            JobAction::Remove { .. } => Self::Remove,
        }
    }

    /// Returns whether only a group with jobs has the action.
    pub const fn is_of_jobs(self) -> bool {
        !matches!(self, Self::Resign | Self::Reset)
    }

    /// Returns whether the leader carries it out, so that its answer is waited for.
    pub const fn waits(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Returns the fields of the action, without the names of the job or the message.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Resume | Self::Unfreeze => &[],
            Self::Trigger => &TRIGGER,
            Self::Put => &definition::FIELDS,
            Self::Remove => &REMOVE,
            Self::Pause => &PAUSE,
            Self::Cancel => &CANCEL,
            Self::Backfill => &BACKFILL,
            Self::Freeze => &FREEZE,
            Self::Resign => &RESIGN,
            Self::Reset => &RESET,
        }
    }

    /// Returns the words with which a person is asked.
    pub const fn words(self) -> Words {
        let (label, effect, confirm) = match self {
            Self::Trigger => (
                "Run now",
                "It runs once, now, on the leader's order. Its schedule does not change.",
                "Run it now",
            ),
            Self::Pause => ("Pause", "Its ticks are skipped. A run that is active goes on.", "Pause it"),
            Self::Resume => (
                "Resume",
                "Its ticks run again from the next one. Those that were skipped stay skipped.",
                "Resume it",
            ),
            Self::Cancel => (
                "Cancel",
                "Its active runs are asked to stop, and end as cancelled.",
                "Cancel the active runs",
            ),
            Self::Backfill => (
                "Back-fill",
                "It runs once for each tick of its schedule in this span.",
                "Run the ticks of the span",
            ),
            Self::Freeze => (
                "Freeze all jobs",
                "The ticks of all jobs are skipped, under every leader. Runs that are active go on. A freeze that exists \
                 is replaced.",
                "Freeze all jobs",
            ),
            Self::Unfreeze => (
                "Unfreeze all jobs",
                "The ticks of all jobs of the group run again from the next one, apart from jobs that are paused \
                 themselves.",
                "End the freeze",
            ),
            Self::Put => (
                "Store a job",
                "It is stored on the nodes, and replaces a stored job of this name. Workers that have its handler run it.",
                "Store it",
            ),
            Self::Remove => (
                "Remove",
                "It is removed from the nodes. A run that is active goes on, and the history is kept.",
                "Remove it",
            ),
            Self::Resign => ("Ask it to resign", "Another worker leads then.", "Ask it to resign"),
            Self::Reset => ("Reset", "It will be claimed and handled again, from attempt 1.", "Reset it"),
        };
        Words { label, effect, confirm }
    }
}
