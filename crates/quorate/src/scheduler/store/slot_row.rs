//! The result of an open run, which its worker records in the run's slot. The leader reads the result, and
//! writes the history entry and the state of the job.

use crate::{
    env::WallTime,
    node::engine::{RESULT_MAX, cut},
    scheduler::job::RunOutcome,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The beginning of the text in a slot through which a leader ended the run before a worker started it.
const VOID: &str = "void";
/// The largest number of bytes of the reason, and of the error, in a slot's result.
const SLOT_REASON_MAX: usize = 200;

/// The result of a run on a worker. The worker stores it in the run's slot, in at most 1 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct SlotResult {
    pub(in crate::scheduler) worker: Arc<str>,
    /// The outcome of the run. `None` if the run was interrupted and must be executed again.
    pub(in crate::scheduler) end: Option<RunOutcome>,
    pub(in crate::scheduler) reason: Arc<str>,
    pub(in crate::scheduler) began: WallTime,
    /// The duration of the run. `None` if it is not known whether a handler ran.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "super::wire::maybe_micros")]
    pub(in crate::scheduler) took: Option<Duration>,
    pub(in crate::scheduler) attempts: u32,
    /// The error of the last failed attempt, if the outcome is neither *failed* nor *timed out*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) error: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) state: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) output: Option<Arc<str>>,
}

impl SlotResult {
    /// Returns the text for the slot, shortened to the limit. First, the reason and the error are cut to their
    /// own limits. If the text is still too long, the output loses its beginning, then the error loses its end,
    /// then the reason loses its end. As the last step, the state is dropped.
    pub(in crate::scheduler) fn to_text(&self) -> String {
        let mut fits = self.clone();
        fits.reason = cut(&self.reason, SLOT_REASON_MAX).into();
        fits.error = self.error.as_deref().map(|error| cut(error, SLOT_REASON_MAX).into());
        loop {
            let text = serde_json::to_string(&fits).unwrap_or_default();
            if text.len() <= RESULT_MAX {
                return text;
            }
            if let Some(output) = fits.output.take().filter(|output| output.len() > 1) {
                fits.output = Some(tail(&output, output.len() / 2).into());
            } else if let Some(error) = fits.error.take().filter(|error| error.len() > 1) {
                fits.error = Some(cut(&error, error.len() / 2).into());
            } else if !fits.reason.is_empty() {
                fits.reason = cut(&fits.reason, fits.reason.len() / 2).into();
            } else {
                fits.state = None;
            }
        }
    }

    pub(in crate::scheduler) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The end of a run that a leader ended through its slot before a worker started the run. The slot stores this
/// value, so that a later leader writes the same end and reason to the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct VoidResult {
    pub(in crate::scheduler) end: RunOutcome,
    pub(in crate::scheduler) why: Arc<str>,
}

impl VoidResult {
    /// Returns the text for the slot. A long reason is shortened.
    pub(in crate::scheduler) fn to_text(&self) -> String {
        let mut fits = Self { why: cut(&self.why, SLOT_REASON_MAX).into(), ..self.clone() };
        loop {
            let text = format!("{VOID} {}", serde_json::to_string(&fits).unwrap_or_default());
            if text.len() <= RESULT_MAX {
                return text;
            }
            fits.why = cut(&fits.why, fits.why.len() / 2).into();
        }
    }

    /// Reads the text of a slot. The outer value is `None` if no leader ended the run through the slot. The
    /// inner value is `None` if a leader ended the run, but the stored end cannot be read.
    pub(in crate::scheduler) fn parse(text: &str) -> Option<Option<Self>> {
        text.strip_prefix(VOID).map(|reason| serde_json::from_str(reason).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_a_round_trip_and_always_fits() {
        let outcome = SlotResult {
            worker: "w".into(),
            end: Some(RunOutcome::Failed),
            reason: "exit 1".into(),
            began: WallTime::from_micros(7),
            took: Some(Duration::from_micros(12)),
            attempts: 2,
            error: Some("refused".into()),
            state: Some("s".into()),
            output: Some("tail".into()),
        };
        assert_eq!(SlotResult::parse(&outcome.to_text()), Some(outcome.clone()));
        let long: Arc<str> = "\"\n".repeat(3_000).into();
        let error = Some(long.clone());
        let full = SlotResult { reason: long.clone(), error, output: Some(long), ..outcome };
        let text = full.to_text();
        let read = SlotResult::parse(&text).unwrap();
        assert!(text.len() <= RESULT_MAX && read.state == full.state && read.reason.len() >= 100, "{text}");
        assert!(full.output.unwrap().ends_with(&*read.output.unwrap()), "its end is stored");
        let state = Some("\u{1}".repeat(85).into());
        let short = SlotResult { state, output: None, ..full };
        let read = SlotResult::parse(&short.to_text()).unwrap();
        assert!(read.state == short.state && read.reason.len() >= 100, "the state is stored: {read:?}");
    }

    #[test]
    fn a_void_result_has_its_reason() {
        let void = VoidResult { end: RunOutcome::Cancelled, why: "on request of w3".into() };
        assert_eq!(VoidResult::parse(&void.to_text()), Some(Some(void.clone())));
        let long = VoidResult { why: "\u{1}".repeat(3_000).into(), ..void };
        let text = long.to_text();
        let read = VoidResult::parse(&text).unwrap().unwrap();
        assert!(text.len() <= RESULT_MAX && read.why.len() == SLOT_REASON_MAX / 2, "{text}");
        assert_eq!(VoidResult::parse(VOID), Some(None), "without a reason");
        assert_eq!(VoidResult::parse("{}"), None);
    }
}
