use super::{Event, Invariant};
use crate::sim::Excuse;
use std::{collections::BTreeMap, time::Duration};

/// The longest time that may pass from the beginning of the grace period until a worker asks its work to
/// stop. A paused worker may take longer.
pub(super) const SOON: Duration = Duration::from_millis(5);

/// Requires that a worker asks its work to stop when the grace period of the lease begins, or at most
/// [`SOON`] later. A worker whose process is paused, or was resumed at most [`SOON`] ago, is exempt.
#[derive(Debug, Default)]
pub(super) struct StepDown {
    ending_since: BTreeMap<u64, Duration>,
}

impl Invariant for StepDown {
    fn name(&self) -> &'static str {
        "step-down"
    }

    fn is_timeless(&self) -> bool {
        true
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        let Event::Looked(beliefs) = event else { return Ok(()) };
        for belief in *beliefs {
            if !belief.ending {
                self.ending_since.remove(&belief.lease);
                continue;
            }
            let ending_for = now.saturating_sub(*self.ending_since.entry(belief.lease).or_insert(now));
            let awake = belief.awake_for.is_some_and(|awake| awake > SOON);
            if ending_for > SOON && !belief.asked_to_stop && !Excuse::StepDownPaused.excuses(!awake) {
                return Err(format!(
                    "{} works on under {} and was not asked to stop",
                    belief.worker, belief.token
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use crate::sim::Belief;

    #[test]
    fn running_work_is_asked_to_stop_before_the_end() {
        let mut step_down = StepDown::default();
        let mut see = |ms, belief| step_down.see(Duration::from_millis(ms), &Event::Looked(&[belief]));
        let unasked = Belief { asked_to_stop: false, ending: true, ..belief(1, "a", 1, true) };
        assert!(see(0, belief(1, "a", 1, true)).is_ok());
        assert!(see(1, unasked.clone()).is_ok(), "at once is soon enough");
        assert!(
            see(50, Belief { awake_for: None, ..unasked.clone() }).is_ok(),
            "a paused worker receives nothing"
        );
        assert!(see(50, Belief { asked_to_stop: true, ..unasked.clone() }).is_ok());
        assert!(see(50, unasked.clone()).is_err());
        assert!(see(60, belief(1, "a", 1, true)).is_ok(), "extended meanwhile");
        assert!(see(61, unasked).is_ok(), "the grace begins again");
    }
}
