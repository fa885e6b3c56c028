use std::time::Duration;

/// The preference for a candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preference {
    pub(super) priority: u32,
    pub(super) take_over_after: Duration,
    pub(super) never_lead: bool,
}

impl Preference {
    pub(super) const DEFAULT: Self =
        Self { priority: 0, take_over_after: Duration::from_secs(30), never_lead: false };
}
