//! The end of a run that its worker reports, and the result of every run that is executed. The leader reads it, and writes the
//! history entry and the state of the job.

use crate::{
    env::WallTime,
    node::FencingToken,
    node::engine::{RESULT_MAX, cut},
    scheduler::{
        job::{RunCause, RunOutcome, tail},
        store::HistoryEntry,
    },
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The largest number of bytes of the reason, and of the error, in a worker's result.
const WORK_REASON_MAX: usize = 200;

/// The end of an assignment, in at most 1 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::scheduler) enum WorkEnd {
    /// The worker executed the run.
    Done(WorkResult),
    /// The worker did not start the run, and never will.
    NotStarted {
        /// The reason, for people.
        why: Arc<str>,
        /// True if the worker does not have the job.
        lacks_job: bool,
    },
}

/// The result of a run, on a worker or on the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::scheduler) struct WorkResult {
    pub(in crate::scheduler) worker: Arc<str>,
    /// The outcome of the run. `None` if the run was interrupted and must be executed again.
    pub(in crate::scheduler) end: Option<RunOutcome>,
    /// The last error, the reason of the cancellation, or the handler's note on a run that is done. It is empty if there
    /// is none.
    pub(in crate::scheduler) reason: Arc<str>,
    pub(in crate::scheduler) began: WallTime,
    /// The duration of the run. `None` if it is not known whether a handler ran.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::scheduler::wire::maybe_micros")]
    pub(in crate::scheduler) took: Option<Duration>,
    pub(in crate::scheduler) attempts: u32,
    /// The error of the last failed attempt, if `reason` does not contain it: the outcome is neither *failed* nor *timed out*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) error: Option<Arc<str>>,
    /// The state that the handler set for later runs of the job. Present only if the run is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) state: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::scheduler) output: Option<Arc<str>>,
}

impl WorkResult {
    /// Returns the result of a run in which no handler is known to have ended.
    pub(in crate::scheduler) fn none(worker: &Arc<str>, why: Arc<str>) -> Self {
        Self {
            worker: Arc::clone(worker),
            end: None,
            reason: why,
            began: WallTime::default(),
            took: None,
            attempts: 0,
            error: None,
            state: None,
            output: None,
        }
    }

    /// Returns the duration of the run, if a handler was called.
    pub(in crate::scheduler) fn handler_took(&self) -> Option<Duration> {
        self.took.filter(|_| self.attempts > 0)
    }

    /// Returns the history entry of a run of `job` for `tick` that ended as `end` in the term `term`.
    pub(in crate::scheduler) fn entry(
        self,
        job: &Arc<str>,
        (tick, cause): (WallTime, RunCause),
        end: RunOutcome,
        term: FencingToken,
    ) -> HistoryEntry {
        let ran = self.attempts > 0;
        HistoryEntry {
            reason: self.reason,
            started: ran.then_some(self.began),
            took: ran.then(|| self.took.unwrap_or_default()),
            attempts: self.attempts,
            attempt_error: self.error,
            output: self.output,
            ..HistoryEntry::new(job, tick, cause, end, &self.worker, term)
        }
    }
}

impl WorkEnd {
    /// Returns the text that the nodes store, shortened to the limit.
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
                Self::NotStarted { why, .. } => *why = cut(why, why.len() / 2).into(),
            }
        }
    }

    /// Reads an end. Returns `None` if [`to_text`](Self::to_text) could not have written it.
    pub(in crate::scheduler) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Cuts the reason and the error to their own limits.
    fn cut_reasons(&mut self) {
        let (reason, error) = match self {
            Self::Done(WorkResult { reason, error, .. }) => (reason, error.as_mut()),
            Self::NotStarted { why, .. } => (why, None),
        };
        for text in std::iter::once(reason).chain(error) {
            *text = cut(text, WORK_REASON_MAX).into();
        }
    }
}

impl WorkResult {
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
        let outcome = WorkResult {
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
        let to_text = |result: &WorkResult| WorkEnd::Done(result.clone()).to_text();
        let parse = |text: &str| match WorkEnd::parse(text) {
            Some(WorkEnd::Done(result)) => result,
            other => panic!("{other:?}"),
        };
        assert_eq!(parse(&to_text(&outcome)), outcome);
        let long: Arc<str> = "\"\n".repeat(3_000).into();
        let error = Some(long.clone());
        let full = WorkResult { reason: long.clone(), error, output: Some(long), ..outcome };
        let text = to_text(&full);
        let read = parse(&text);
        assert!(text.len() <= RESULT_MAX && read.state == full.state && read.reason.len() >= 100, "{text}");
        assert!(full.output.unwrap().ends_with(&*read.output.unwrap()), "its end is stored");
        let state = Some("\u{1}".repeat(85).into());
        let short = WorkResult { state, output: None, ..full };
        let read = parse(&to_text(&short));
        assert!(read.state == short.state && read.reason.len() >= 100, "the state is stored: {read:?}");
    }

    #[test]
    fn an_assignment_that_does_not_start_has_its_reason() {
        let end = |why: &str| WorkEnd::NotStarted { why: why.into(), lacks_job: true };
        let text = end("no such job").to_text();
        assert_eq!(text, r#"{"not-started":{"why":"no such job","lacks_job":true}}"#);
        assert_eq!(WorkEnd::parse(&text), Some(end("no such job")));
        let text = end(&"\u{1}".repeat(3_000)).to_text();
        assert_eq!(WorkEnd::parse(&text), Some(end(&"\u{1}".repeat(WORK_REASON_MAX / 2))));
        assert!(text.len() <= RESULT_MAX, "{text}");
        assert_eq!(WorkEnd::parse("{}"), None);
    }
}
