//! The end of an open run, as the run's slot stores it. The leader reads it, and writes the history entry and the
//! state of the job.

use crate::{
    env::WallTime,
    node::engine::{RESULT_MAX, cut},
    scheduler::job::{RunOutcome, tail},
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The largest number of bytes of the reason, and of the error, in a slot's result.
const SLOT_REASON_MAX: usize = 200;

/// The end of an open run, in at most 1 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::scheduler) enum SlotRow {
    /// A worker took the run, and recorded this result.
    Done(SlotResult),
    /// A leader ended the run before a worker started it. A later leader writes the same end and reason to the history.
    Void { end: RunOutcome, why: Arc<str> },
}

/// The result of a run on a worker.
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

impl SlotRow {
    /// Returns the text for the slot, shortened to the limit.
    pub(in crate::scheduler) fn to_text(&self) -> String {
        let mut fits = self.clone();
        fits.cut_reasons();
        loop {
            let text = serde_json::to_string(&fits).unwrap_or_default();
            if text.len() <= RESULT_MAX {
                return text;
            }
            match &mut fits {
                Self::Done(result) => result.shorten(),
                Self::Void { why, .. } => *why = cut(why, why.len() / 2).into(),
            }
        }
    }

    /// Reads the text of a slot.
    pub(in crate::scheduler) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Cuts the reason and the error to their own limits.
    fn cut_reasons(&mut self) {
        let (reason, error) = match self {
            Self::Done(SlotResult { reason, error, .. }) => (reason, error.as_mut()),
            Self::Void { why, .. } => (why, None),
        };
        for text in std::iter::once(reason).chain(error) {
            *text = cut(text, SLOT_REASON_MAX).into();
        }
    }
}

impl SlotResult {
    /// Makes a result that is too long shorter. First the output loses its beginning, then the error loses its end, then
    /// the reason loses its end. As the last step, the state is dropped.
    fn shorten(&mut self) {
        if let Some(output) = self.output.take().filter(|output| output.len() > 1) {
            self.output = Some(tail(&output, output.len() / 2).into());
        } else if let Some(error) = self.error.take().filter(|error| error.len() > 1) {
            self.error = Some(cut(&error, error.len() / 2).into());
        } else if !self.reason.is_empty() {
            self.reason = cut(&self.reason, self.reason.len() / 2).into();
        } else {
            self.state = None;
        }
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
        let to_text = |result: &SlotResult| SlotRow::Done(result.clone()).to_text();
        let parse = |text: &str| match SlotRow::parse(text) {
            Some(SlotRow::Done(result)) => result,
            other => panic!("{other:?}"),
        };
        assert_eq!(parse(&to_text(&outcome)), outcome);
        let long: Arc<str> = "\"\n".repeat(3_000).into();
        let error = Some(long.clone());
        let full = SlotResult { reason: long.clone(), error, output: Some(long), ..outcome };
        let text = to_text(&full);
        let read = parse(&text);
        assert!(text.len() <= RESULT_MAX && read.state == full.state && read.reason.len() >= 100, "{text}");
        assert!(full.output.unwrap().ends_with(&*read.output.unwrap()), "its end is stored");
        let state = Some("\u{1}".repeat(85).into());
        let short = SlotResult { state, output: None, ..full };
        let read = parse(&to_text(&short));
        assert!(read.state == short.state && read.reason.len() >= 100, "the state is stored: {read:?}");
    }

    #[test]
    fn a_void_slot_has_its_reason() {
        let void = |why: &str| SlotRow::Void { end: RunOutcome::Cancelled, why: why.into() };
        let text = void("on request of w3").to_text();
        assert_eq!(text, r#"{"void":{"end":"cancelled","why":"on request of w3"}}"#);
        assert_eq!(SlotRow::parse(&text), Some(void("on request of w3")));
        let text = void(&"\u{1}".repeat(3_000)).to_text();
        assert_eq!(SlotRow::parse(&text), Some(void(&"\u{1}".repeat(SLOT_REASON_MAX / 2))));
        assert!(text.len() <= RESULT_MAX, "{text}");
        assert_eq!(SlotRow::parse("{}"), None);
    }
}
