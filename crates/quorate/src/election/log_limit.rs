use crate::env::BootTime;
use std::time::Duration;

/// The pause after which the same cause is logged again.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// A limit for a log line that may repeat very often. For the same cause, it allows one line a minute.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    last: Option<(&'static str, BootTime)>,
}

impl LogLimit {
    /// Returns whether `cause` should be logged now, because it differs from the last cause or a minute has
    /// passed.
    pub(super) fn allows(&mut self, cause: &'static str, now: BootTime) -> bool {
        let repeats = self.last.is_some_and(|(last, at)| last == cause && at.until(now) < REPEAT_AFTER);
        if !repeats {
            self.last = Some((cause, now));
        }
        !repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_is_logged_once_a_minute_and_another_at_once() {
        let (mut limit, start) = (LogLimit::default(), BootTime::from_nanos(1));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(limit.allows("a", start));
        assert!(!limit.allows("a", at(1)));
        assert!(limit.allows("b", at(2)));
        assert!(!limit.allows("b", at(61)));
        assert!(limit.allows("b", at(62)));
    }
}
