use quorate::env::BootTime;
use std::time::Duration;

/// The shortest time between two log lines about the same kind of change.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Decides when the log reports that the collector does or does not accept data. This type performs no I/O.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// The reason of the last failure, and the time at which a failure was last logged. `None` while the
    /// collector accepts data.
    failing: Option<(String, BootTime)>,
    /// The number of lost spans that the log has reported, and the time of that report.
    reported: u64,
    reported_at: Option<BootTime>,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The collector does not accept data, for this reason.
    Fails(String),
    /// The collector accepts data again. This number of spans was lost since the last report.
    Again(u64),
    /// This number of spans was lost since the last report, although the collector accepts data.
    Lost(u64),
}

impl Health {
    /// Records the result of a request. `lost` is the number of spans that were lost so far.
    ///
    /// The first failure is logged, and a later one only if it has another reason and the last line is a
    /// minute old.
    pub(super) fn sent(&mut self, now: BootTime, result: Result<(), String>, lost: u64) -> Option<Line> {
        match (result, &mut self.failing) {
            (Err(why), None) => {
                self.failing = Some((why.clone(), now));
                Some(Line::Fails(why))
            }
            (Err(why), Some((before, logged_at))) => {
                if *before == why || now.since(*logged_at) < LOG_EVERY {
                    return None;
                }
                (*before, *logged_at) = (why.clone(), now);
                Some(Line::Fails(why))
            }
            (Ok(()), Some(_)) => {
                self.failing = None;
                Some(Line::Again(self.report(now, lost)))
            }
            (Ok(()), None) => {
                let is_due = self.reported_at.is_none_or(|at| now.since(at) >= LOG_EVERY);
                (lost > self.reported && is_due).then(|| Line::Lost(self.report(now, lost)))
            }
        }
    }

    fn report(&mut self, now: BootTime, lost: u64) -> u64 {
        self.reported_at = Some(now);
        lost - std::mem::replace(&mut self.reported, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_logged() {
        let at = |seconds: u64| BootTime::from_nanos(seconds * 1_000_000_000);
        let refused = || Err("refused".to_owned());
        let mut health = Health::default();
        assert_eq!(health.sent(at(0), Ok(()), 0), None);
        assert_eq!(health.sent(at(1), refused(), 0), Some(Line::Fails("refused".into())));
        for second in 2..600 {
            assert_eq!(health.sent(at(second), refused(), second), None, "the same again");
        }
        let other = || Err("it answered 401".to_owned());
        assert_eq!(health.sent(at(600), other(), 0), Some(Line::Fails("it answered 401".into())));
        assert_eq!(health.sent(at(601), refused(), 0), None, "two reasons in turn are not logged each time");
        assert_eq!(health.sent(at(602), other(), 0), None);
        assert_eq!(health.sent(at(603), Ok(()), 7), Some(Line::Again(7)));
        assert_eq!(health.sent(at(604), Ok(()), 7), None);
        assert_eq!(health.sent(at(605), refused(), 7), Some(Line::Fails("refused".into())));
        assert_eq!(
            health.sent(at(606), Ok(()), 9),
            Some(Line::Again(2)),
            "only those that were not reported"
        );
    }

    #[test]
    fn spans_that_a_full_queue_drops_are_logged_once_a_minute() {
        let at = |seconds: u64| BootTime::from_nanos(seconds * 1_000_000_000);
        let mut health = Health::default();
        assert_eq!(health.sent(at(1), Ok(()), 5), Some(Line::Lost(5)));
        assert_eq!(health.sent(at(30), Ok(()), 50), None);
        assert_eq!(health.sent(at(61), Ok(()), 55), Some(Line::Lost(50)));
        assert_eq!(health.sent(at(200), Ok(()), 55), None);
    }
}
