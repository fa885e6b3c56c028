use crate::{env::BootTime, lease::AcquireError};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The time after which a wait that continues is logged again.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// On a cold start that still waits for a majority, the time after which the first warning is logged. A cold
/// start on healthy nodes takes less time.
const COLD_START: Duration = Duration::from_secs(1);
/// A wait that begins within this time after the end of an earlier one continues the earlier one. Under a partial
/// outage, some rounds find a majority and others do not, many times a second.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// Logs that acquisitions wait for a majority. The quorum logs each line once, however many acquisitions
/// wait:
///
/// * It logs a warning when the first acquisition begins to wait. On a *cold start*, when this worker has
///   never had a majority, it logs an info line instead.
/// * It logs a warning every minute while any acquisition waits. On a cold start, it logs the first of these
///   warnings after one second.
/// * It logs an info line when a majority answers again. If acquisitions wait again within ten seconds, that is
///   the same wait: it is not logged again before its next minute, and neither is its end.
#[derive(Debug, Default)]
pub(crate) struct MajorityLog(Mutex<Option<Waiting>>);

// The state is kept after the end of a wait, until another wait begins.

#[derive(Debug)]
struct Waiting {
    since: BootTime,
    /// The time at which the wait is logged again.
    next: BootTime,
    /// The time at which a majority answered again. `None` while an acquisition waits.
    ended: Option<BootTime>,
    /// True if the latest line says that acquisitions wait.
    is_logged: bool,
}

/// The line to log for an acquisition that found no majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// No line, because the wait was logged a short time ago.
    Quiet,
    /// The wait begins. If this worker has never had a quorum, this is a cold start.
    Begins,
    /// The wait continues.
    GoesOn(Duration),
}

impl MajorityLog {
    /// Logs that an acquisition waits for a majority. Does nothing if the wait was logged less than a minute
    /// ago, or, for the first warning of a cold start, less than a second ago.
    pub(crate) fn missing(&self, now: BootTime, had_quorum: bool, error: &AcquireError) {
        match self.line(now, had_quorum) {
            Line::Quiet => {}
            Line::Begins if had_quorum => tracing::warn!("waiting for a quorum: {error}"),
            Line::Begins => tracing::info!("waiting for a quorum: {error}"),
            Line::GoesOn(waited) => {
                tracing::warn!("still waiting for a quorum, for {waited:.0?} now: {error}");
            }
        }
    }

    /// Logs the end of the wait, if there was one.
    pub(crate) fn reached(&self, now: BootTime) {
        if let Some(waited) = self.end(now) {
            tracing::info!("a quorum answers, after a wait of {waited:.1?}");
        }
    }

    /// Ends the wait. Returns its duration if its end is to be logged.
    fn end(&self, now: BootTime) -> Option<Duration> {
        let mut state = self.lock();
        let waiting = state.as_mut()?;
        if waiting.ended.is_some() {
            return None;
        }
        waiting.ended = Some(now);
        std::mem::take(&mut waiting.is_logged).then(|| waiting.since.until(now))
    }

    fn line(&self, now: BootTime, had_quorum: bool) -> Line {
        let mut waiting = self.lock();
        let is_over = |waiting: &Waiting| waiting.ended.is_some_and(|ended| ended + SETTLED_AFTER <= now);
        match &mut *waiting {
            Some(waiting) if now < waiting.next && !is_over(waiting) => {
                waiting.ended = None;
                Line::Quiet
            }
            None => {
                *waiting = Some(Waiting::new(now, had_quorum));
                Line::Begins
            }
            Some(waiting) if is_over(waiting) => {
                *waiting = Waiting::new(now, had_quorum);
                Line::Begins
            }
            Some(waiting) => {
                waiting.next = now + REPEAT_AFTER;
                (waiting.ended, waiting.is_logged) = (None, true);
                Line::GoesOn(waiting.since.until(now))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn new(now: BootTime, had_quorum: bool) -> Self {
        let pause = if had_quorum { REPEAT_AFTER } else { COLD_START };
        Self { since: now, next: now + pause, ended: None, is_logged: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_logged_once_and_then_every_minute() {
        let (log, second) = (MajorityLog::default(), Duration::from_secs(1));
        let start = BootTime::from_nanos(7);
        assert_eq!(log.line(start, true), Line::Begins);
        assert_eq!(log.line(start + second, true), Line::Quiet);
        assert_eq!(log.line(start + 59 * second, true), Line::Quiet);
        assert_eq!(log.line(start + 60 * second, true), Line::GoesOn(60 * second));
        assert_eq!(log.line(start + 61 * second, true), Line::Quiet);
        assert_eq!(log.end(start + 62 * second), Some(62 * second));
        assert_eq!(log.line(start + 72 * second, true), Line::Begins);
    }

    /// Regression: under a partial outage, 149 pairs of lines were logged in 13 seconds.
    #[test]
    fn a_wait_that_comes_and_goes_is_one_wait() {
        let (log, ms) = (MajorityLog::default(), Duration::from_millis(1));
        let start = BootTime::from_nanos(7);
        assert_eq!(log.line(start, true), Line::Begins);
        let mut lines = Vec::new();
        for round in 1..1_000 {
            let at = start + 100 * round * ms;
            lines.extend(log.end(at).map(|_| "answers"));
            lines.extend((log.line(at + 50 * ms, true) != Line::Quiet).then_some("waits"));
        }
        assert_eq!(lines, ["answers", "waits", "answers"], "in 100 s");
        assert_eq!(log.end(start + 120_000 * ms), None, "its end was logged");
    }

    #[test]
    fn a_cold_start_is_a_warning_after_a_second() {
        let (log, second) = (MajorityLog::default(), Duration::from_secs(1));
        let start = BootTime::from_nanos(7);
        assert_eq!(log.line(start, false), Line::Begins);
        assert_eq!(log.line(start + second / 2, false), Line::Quiet);
        assert_eq!(log.line(start + second, false), Line::GoesOn(second));
        assert_eq!(log.line(start + 2 * second, false), Line::Quiet);
    }
}
