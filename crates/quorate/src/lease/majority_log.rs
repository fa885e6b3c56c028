use crate::{env::BootTime, lease::AcquireError};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The pause after which the same fact is logged again.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// Log lines on a missing majority: one when the first acquisition begins to wait, one every minute while any waits, one when a
/// majority answers again. However many acquisitions wait, the quorum logs them once.
#[derive(Debug, Default)]
pub(crate) struct MajorityLog(Mutex<Option<Waiting>>);

#[derive(Debug)]
struct Waiting {
    since: BootTime,
    logged: BootTime,
}

/// The line to log for an acquisition that found no majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Nothing: it has been logged.
    Quiet,
    /// The wait begins. As long as this worker has never had a quorum, it is a cold start.
    Begins,
    /// The wait goes on.
    GoesOn(Duration),
}

impl MajorityLog {
    /// Logs that an acquisition waits for a majority, unless that was logged less than a minute ago.
    pub(crate) fn missing(&self, now: BootTime, had_quorum: bool, error: &AcquireError) {
        match self.line(now) {
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
        if let Some(waiting) = self.lock().take() {
            tracing::info!("a quorum answers, after a wait of {:.1?}", waiting.since.until(now));
        }
    }

    fn line(&self, now: BootTime) -> Line {
        let mut waiting = self.lock();
        match &mut *waiting {
            None => {
                *waiting = Some(Waiting { since: now, logged: now });
                Line::Begins
            }
            Some(waiting) if waiting.logged.until(now) < REPEAT_AFTER => Line::Quiet,
            Some(waiting) => {
                waiting.logged = now;
                Line::GoesOn(waiting.since.until(now))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_logged_once_and_then_every_minute() {
        let (log, second) = (MajorityLog::default(), Duration::from_secs(1));
        let start = BootTime::from_nanos(7);
        assert_eq!(log.line(start), Line::Begins);
        assert_eq!(log.line(start + second), Line::Quiet);
        assert_eq!(log.line(start + 59 * second), Line::Quiet);
        assert_eq!(log.line(start + 60 * second), Line::GoesOn(60 * second));
        assert_eq!(log.line(start + 61 * second), Line::Quiet);
        log.reached(start + 62 * second);
        assert_eq!(log.line(start + 63 * second), Line::Begins);
    }
}
