//! The end of a slot that its worker records: what the leader needs for the history and the next run.

use crate::scheduler::store::RunOutcome;
use crate::{
    env::WallTime,
    node::engine::{RESULT_MAX, cut},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest reason, in bytes.
const REASON_MAX: usize = 200;

/// The outcome of a run on a worker, which is the result of its slot: at most 1 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct SlotResult {
    pub(in crate::scheduler) worker: Arc<str>,
    /// The end of the run; `None` if it was interrupted and is to run again.
    pub(in crate::scheduler) end: Option<RunOutcome>,
    pub(in crate::scheduler) reason: Arc<str>,
    pub(in crate::scheduler) began: WallTime,
    pub(in crate::scheduler) took_ms: u64,
    pub(in crate::scheduler) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) state: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) output: Option<Arc<str>>,
}

impl SlotResult {
    /// The text of the slot's result. The reason is cut, then the output loses its beginning, until it fits.
    pub(in crate::scheduler) fn to_text(&self) -> String {
        let mut fits = self.clone();
        fits.reason = cut(&self.reason, REASON_MAX).into();
        loop {
            let text = serde_json::to_string(&fits).unwrap_or_default();
            if text.len() <= RESULT_MAX {
                return text;
            }
            match fits.output.take().filter(|output| output.len() > 1) {
                Some(output) => fits.output = Some(tail(&output, output.len() / 2).into()),
                None if !fits.reason.is_empty() => {
                    fits.reason = cut(&fits.reason, fits.reason.len() / 2).into();
                }
                None => fits.state = None,
            }
        }
    }

    pub(in crate::scheduler) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The last `most` bytes of a text, from between two characters.
pub(in crate::scheduler) fn tail(text: &str, most: usize) -> &str {
    let from = text.len().saturating_sub(most);
    (from..=text.len()).find_map(|at| text.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_goes_both_ways_and_always_fits() {
        let outcome = SlotResult {
            worker: "w".into(),
            end: Some(RunOutcome::Failed),
            reason: "exit 1".into(),
            began: WallTime::from_micros(7),
            took_ms: 12,
            attempts: 2,
            state: Some("s".into()),
            output: Some("tail".into()),
        };
        assert_eq!(SlotResult::parse(&outcome.to_text()), Some(outcome.clone()));
        let long: Arc<str> = "\"\n".repeat(3_000).into();
        let full = SlotResult { reason: long.clone(), output: Some(long), ..outcome };
        let text = full.to_text();
        let read = SlotResult::parse(&text).unwrap();
        assert!(text.len() <= RESULT_MAX && read.state == full.state && read.reason.len() >= 100, "{text}");
        assert!(full.output.unwrap().ends_with(&*read.output.unwrap()), "the end of it is kept");
    }

    #[test]
    fn a_tail_begins_between_two_characters() {
        assert_eq!(
            (tail("abc", 5), tail("abc", 2), tail("aїїb", 4), tail("abc", 0)),
            ("abc", "bc", "їb", "")
        );
    }
}
