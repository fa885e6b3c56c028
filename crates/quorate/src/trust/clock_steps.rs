use crate::{env::BootTime, node::NodeTime};
use std::{collections::VecDeque, time::Duration};

/// The number of parts into which a detector divides its window. In each part, only the sample with the
/// smallest offset is kept.
const PARTS: u32 = 16;

/// Detects steps of one node's clock against this worker's boot clock. The detector compares each reply with
/// the earlier replies of a time window, including those of earlier connections.
///
/// # What is not guaranteed
///
/// Only a *gain* of the node's clock on the boot clock is detected, and only if it exceeds the drift, the
/// allowance and the uncertainty of both round trips. A gain is either a forward step of the node's clock or a
/// pause of this worker's boot clock: two clocks alone cannot show which. A clock that is set back makes leases
/// last longer, which is harmless. Steps before the first reply of the window are not detected.
#[derive(Clone, Debug)]
pub(crate) struct ClockStepDetector {
    window: Duration,
    drift_rate: f64,
    allowance: Duration,
    /// The samples, the oldest first. There is at most one for each part of the window.
    past: VecDeque<ClockSample>,
}

#[derive(Clone, Copy, Debug)]
struct ClockSample {
    sent: BootTime,
    /// The upper bound of (node time − boot time), in microseconds.
    high: i128,
}

/// The result of comparing a reply with the replies before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockObservation {
    /// The node's clock has gained no more than allowed since `from`, the time at which the request of the
    /// oldest sample was sent.
    Steady { from: BootTime },
    /// The node's clock has stepped against the boot clock.
    Stepped(ClockStep),
}

/// A step of a node's clock against the boot clock, beyond drift and allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    /// The last time on the boot clock at which the step had certainly not happened.
    pub(crate) after: BootTime,
    /// The time on the boot clock at which the reply that shows the step arrived.
    pub(crate) noticed: BootTime,
    /// The node's time in that reply.
    pub(crate) node_time: NodeTime,
    /// The smallest gain of the node's clock that can explain the reply.
    pub(crate) gained: Duration,
}

impl ClockStepDetector {
    pub(crate) fn new(window: Duration, drift_rate: f64, allowance: Duration) -> Self {
        Self { window, drift_rate, allowance, past: VecDeque::new() }
    }

    /// Compares one reply with the earlier replies of the window. The node read `node_time` at some moment
    /// between `sent` and `received`. After a step, the window begins again with this reply.
    pub(crate) fn observe(
        &mut self,
        node_time: NodeTime,
        sent: BootTime,
        received: BootTime,
    ) -> ClockObservation {
        while self.past.front().is_some_and(|past| past.sent.until(received) > self.window) {
            self.past.pop_front();
        }
        let node = i128::from(node_time.as_micros());
        // The boot clock is rounded down to microseconds. The subtraction of one makes up for this.
        let low = node - micros(received) - 1;
        let step = self.past.iter().rev().find(|past| low - past.high > self.allowed(past.sent, received));
        let step = step.map(|past| ClockStep {
            after: past.sent,
            noticed: received,
            node_time,
            gained: Duration::from_micros(u64::try_from(low - past.high).unwrap_or(u64::MAX)),
        });
        if step.is_some() {
            self.past.clear();
        }
        self.remember(ClockSample { sent, high: node - micros(sent) });
        let from = self.past.front().map_or(sent, |past| past.sent);
        step.map_or(ClockObservation::Steady { from }, ClockObservation::Stepped)
    }

    fn allowed(&self, from: BootTime, to: BootTime) -> i128 {
        let allowed = from.until(to).mul_f64(self.drift_rate) + self.allowance;
        i128::try_from(allowed.as_micros()).unwrap_or(i128::MAX) + 1
    }

    /// Adds the sample `new`. In each part of the window only the sample with the smallest upper bound is kept,
    /// because that bound is the most precise.
    fn remember(&mut self, new: ClockSample) {
        let part = self.window / PARTS;
        match self.past.back_mut() {
            Some(last) if last.sent.until(new.sent) < part => {
                if new.high < last.high {
                    *last = new;
                }
            }
            _ => self.past.push_back(new),
        }
    }
}

fn micros(at: BootTime) -> i128 {
    i128::from(at.as_nanos() / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    /// Returns the time on a node's clock that is an hour ahead of the boot clock, when the boot clock shows
    /// `ms`.
    const fn node(ms: u64) -> NodeTime {
        NodeTime::from_micros((3_600_000 + ms) * 1_000)
    }

    fn detector() -> ClockStepDetector {
        ClockStepDetector::new(Duration::from_secs(30), 0.01, Duration::from_millis(200))
    }

    #[test]
    fn a_step_is_reported_once_with_its_bounds() {
        let mut detector = detector();
        assert_eq!(detector.observe(node(10), ms(10), ms(10)), ClockObservation::Steady { from: ms(10) });
        assert_eq!(
            detector.observe(node(9_000), ms(9_000), ms(9_000)),
            ClockObservation::Steady { from: ms(10) }
        );
        let ClockObservation::Stepped(step) = detector.observe(node(70_000), ms(9_990), ms(10_000)) else {
            panic!()
        };
        assert_eq!((step.after, step.noticed, step.node_time), (ms(9_000), ms(10_000), node(70_000)));
        assert!(step.gained <= Duration::from_secs(60) && step.gained > Duration::from_millis(59_900));
        assert_eq!(
            detector.observe(node(70_100), ms(10_100), ms(10_100)),
            ClockObservation::Steady { from: ms(10_100) },
            "the window begins again"
        );
    }

    #[test]
    fn drift_small_steps_and_slow_replies_are_no_step() {
        let mut detector = detector();
        detector.observe(node(0), ms(0), ms(0));
        // The node's clock runs 1 % fast, and is 199 ms ahead. Both together are still allowed.
        assert!(matches!(
            detector.observe(node(10_100 + 199), ms(10_000), ms(10_000)),
            ClockObservation::Steady { .. }
        ));
        assert!(matches!(
            detector.observe(node(10_100 + 210), ms(10_001), ms(10_001)),
            ClockObservation::Stepped(_)
        ));
        // The reply took five seconds, and the node may have read its clock at any time within them. So the
        // large difference proves no step.
        let mut detector = super::tests::detector();
        detector.observe(node(0), ms(0), ms(0));
        assert!(matches!(
            detector.observe(node(5_900), ms(1_000), ms(6_000)),
            ClockObservation::Steady { .. }
        ));
        // The first reply took five seconds. The time when its request was sent gives the upper bound of the
        // offset.
        let mut detector = super::tests::detector();
        detector.observe(node(5_000), ms(0), ms(5_000));
        assert!(matches!(
            detector.observe(node(8_000), ms(6_000), ms(6_000)),
            ClockObservation::Steady { .. }
        ));
    }

    #[test]
    fn several_small_steps_within_the_window_are_one_step() {
        let mut detector = detector();
        for at in 0..3 {
            let stepped = node(at * 1_000 + at * 190);
            let observed = detector.observe(stepped, ms(at * 1_000), ms(at * 1_000));
            assert_eq!(matches!(observed, ClockObservation::Stepped(_)), at == 2, "{at}: {observed:?}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_is_no_step_and_old_samples_are_dropped() {
        let mut detector = detector();
        detector.observe(node(100_000), ms(0), ms(0));
        assert!(matches!(
            detector.observe(node(1_000), ms(1_000), ms(1_000)),
            ClockObservation::Steady { .. }
        ));
        // The clock was set back before, and is now set forward again within the window. Leases that were
        // granted in between end early, so this counts as a step.
        assert!(matches!(
            detector.observe(node(102_000), ms(2_000), ms(2_000)),
            ClockObservation::Stepped(_)
        ));
        let observed = detector.observe(node(500_000), ms(40_000), ms(40_000));
        assert_eq!(
            observed,
            ClockObservation::Steady { from: ms(40_000) },
            "no sample of the window is left"
        );
    }

    #[test]
    fn the_number_of_samples_is_bounded() {
        let mut detector = detector();
        for at in 0..100_000 {
            assert!(matches!(
                detector.observe(node(at), ms(at), ms(at + 1)),
                ClockObservation::Steady { .. }
            ));
            assert!(detector.past.len() <= PARTS as usize + 2);
        }
    }
}
