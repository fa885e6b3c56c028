//! `election`: which worker should lead.

use super::{
    ConfigError,
    file::{ElectionText, FileText},
    validation::Validation,
};
use quorate::election::Election;
use std::time::Duration;

/// The largest priority of a worker.
const PRIORITY_MAX: i64 = 1_000;

/// The preference for this worker as the leader. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionConfig {
    /// A worker with a higher priority asks a leader with a lower one to hand over.
    pub priority: u32,
    /// The time for which this worker must have been healthy before it asks. `None` for the library's default.
    pub take_over_after: Option<Duration>,
    /// True if this worker never leads.
    pub never_lead: bool,
}

impl ElectionConfig {
    /// Returns `election` with these settings.
    pub(crate) fn apply(self, election: Election) -> Election {
        let election = election.priority(self.priority);
        let election = match self.take_over_after {
            Some(time) => election.take_over_after(time),
            None => election,
        };
        if self.never_lead { election.never_lead() } else { election }
    }
}

impl Validation<'_> {
    pub(super) fn election(&self) -> Result<ElectionConfig, ConfigError> {
        let FileText { election: ElectionText { priority, take_over_after, never_lead }, .. } =
            self.file_text;
        let fail = |span, text: &str| match &self.source {
            Some(source) => source.error(Some(span), text),
            None => ConfigError::bare(text),
        };
        let wanted = match priority {
            None => 0,
            Some(written) => {
                let number = *written.as_ref();
                let found = u32::try_from(number).ok().filter(|_| number <= PRIORITY_MAX);
                found.ok_or_else(|| {
                    let text = format!("election.priority is {number}; give it 0 to {PRIORITY_MAX}");
                    fail(written.span(), &text)
                })?
            }
        };
        let never_lead = never_lead.unwrap_or_default();
        if let Some(written) = priority.as_ref().filter(|_| never_lead && wanted > 0) {
            let text = format!(
                "election has priority = {wanted} and never_lead = true, and a worker that never leads needs no priority; \
                 remove one of them"
            );
            return Err(fail(written.span(), &text));
        }
        let take_over_after = take_over_after.as_ref().map(|time| (time.span(), **time.as_ref()));
        match take_over_after {
            Some((span, _)) if wanted == 0 => Err(fail(
                span,
                "election has take_over_after without a priority above 0, so that it has no effect; add priority = 10, or \
                 remove it",
            )),
            Some((span, time)) if time < Duration::from_secs(1) => {
                let text = format!("election.take_over_after is {time:?}; give it at least 1s");
                Err(fail(span, &text))
            }
            after => Ok(ElectionConfig {
                priority: wanted,
                take_over_after: after.map(|(_, time)| time),
                never_lead,
            }),
        }
    }
}
