use crate::{env::BootTime, node::NodeTime};
use std::{collections::VecDeque, time::Duration};

/// Into how many parts the window is cut; of each the most telling reply is kept.
const PARTS: u32 = 16;

/// Watches one node's clock against our boot clock, over every reply of the last window and across
/// connections.
///
/// # What is not guaranteed
///
/// Only what the node's clock *gained* beyond drift and allowance is told, less the uncertainty of both round
/// trips: a gain may be a step forward there or a stand-still here, and one clock cannot tell which. A clock
/// that is set back makes leases last longer, which harms nobody. What happened before the first reply of the
/// window is not known.
#[derive(Clone, Debug)]
pub(crate) struct ClockStepDetector {
    window: Duration,
    drift_rate: f64,
    allowance: Duration,
    /// Replies by age, the oldest first, one of each part of the window at most.
    past: VecDeque<ClockSample>,
}

#[derive(Clone, Copy, Debug)]
struct ClockSample {
    sent: BootTime,
    /// The largest that (node time − boot time) can have been, in microseconds.
    high: i128,
}

/// A reply in the light of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockObservation {
    /// The node's clock has gained no more than it may since `from`, when the oldest reply that is remembered
    /// was asked for.
    Steady { from: BootTime },
    /// It has jumped.
    Jumped(ClockStep),
}

/// A gain that nothing but a jump of one clock against the other explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    /// The last moment, by our clock, at which it had certainly not happened.
    pub(crate) after: BootTime,
    /// When we heard of it.
    pub(crate) heard: BootTime,
    /// What the node's clock showed then.
    pub(crate) node_time: NodeTime,
    /// By how much at least.
    pub(crate) gained: Duration,
}

impl ClockStepDetector {
    pub(crate) fn new(window: Duration, drift_rate: f64, allowance: Duration) -> Self {
        Self { window, drift_rate, allowance, past: VecDeque::new() }
    }

    /// Looks at one reply: the node read `node_time` between `sent` and `received`. After a jump the watch
    /// begins anew.
    pub(crate) fn see(
        &mut self,
        node_time: NodeTime,
        sent: BootTime,
        received: BootTime,
    ) -> ClockObservation {
        while self.past.front().is_some_and(|past| past.sent.until(received) > self.window) {
            self.past.pop_front();
        }
        let node = i128::from(node_time.as_micros());
        // Less one: our clock is cut to whole microseconds.
        let low = node - micros(received) - 1;
        let step = self.past.iter().rev().find(|past| low - past.high > self.allowed(past.sent, received));
        let step = step.map(|past| ClockStep {
            after: past.sent,
            heard: received,
            node_time,
            gained: Duration::from_micros(u64::try_from(low - past.high).unwrap_or(u64::MAX)),
        });
        if step.is_some() {
            self.past.clear();
        }
        self.remember(ClockSample { sent, high: node - micros(sent) });
        let from = self.past.front().map_or(sent, |past| past.sent);
        step.map_or(ClockObservation::Steady { from }, ClockObservation::Jumped)
    }

    fn allowed(&self, from: BootTime, to: BootTime) -> i128 {
        let allowed = from.until(to).mul_f64(self.drift_rate) + self.allowance;
        i128::try_from(allowed.as_micros()).unwrap_or(i128::MAX) + 1
    }

    /// Of the replies of one part of the window the one with the smallest offset tells most; it may be at
    /// most a part older than the others.
    fn remember(&mut self, new: ClockSample) {
        let disconnect = self.window / PARTS;
        match self.past.back_mut() {
            Some(last) if last.sent.until(new.sent) < disconnect => {
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

    /// The node's clock is an hour ahead.
    const fn node(ms: u64) -> NodeTime {
        NodeTime::from_micros((3_600_000 + ms) * 1_000)
    }

    fn watch() -> ClockStepDetector {
        ClockStepDetector::new(Duration::from_secs(30), 0.01, Duration::from_millis(200))
    }

    #[test]
    fn a_jump_is_told_once_with_what_is_certain_of_it() {
        let mut watch = watch();
        assert_eq!(watch.see(node(10), ms(10), ms(10)), ClockObservation::Steady { from: ms(10) });
        assert_eq!(watch.see(node(9_000), ms(9_000), ms(9_000)), ClockObservation::Steady { from: ms(10) });
        let ClockObservation::Jumped(step) = watch.see(node(70_000), ms(9_990), ms(10_000)) else { panic!() };
        assert_eq!((step.after, step.heard, step.node_time), (ms(9_000), ms(10_000), node(70_000)));
        assert!(step.gained <= Duration::from_secs(60) && step.gained > Duration::from_millis(59_900));
        assert_eq!(
            watch.see(node(70_100), ms(10_100), ms(10_100)),
            ClockObservation::Steady { from: ms(10_100) },
            "begun anew"
        );
    }

    #[test]
    fn drift_and_small_steps_and_slow_replies_are_none() {
        let mut watch = watch();
        watch.see(node(0), ms(0), ms(0));
        // 1 % fast and 199 ms ahead.
        assert!(matches!(
            watch.see(node(10_100 + 199), ms(10_000), ms(10_000)),
            ClockObservation::Steady { .. }
        ));
        assert!(matches!(watch.see(node(10_100 + 210), ms(10_001), ms(10_001)), ClockObservation::Jumped(_)));
        // The reply took five seconds: the node may have read its clock at any moment of them.
        let mut watch = super::tests::watch();
        watch.see(node(0), ms(0), ms(0));
        assert!(matches!(watch.see(node(5_900), ms(1_000), ms(6_000)), ClockObservation::Steady { .. }));
        // The first reply was as slow: it bounds the offset from above by its sending.
        let mut watch = super::tests::watch();
        watch.see(node(5_000), ms(0), ms(5_000));
        assert!(matches!(watch.see(node(8_000), ms(6_000), ms(6_000)), ClockObservation::Steady { .. }));
    }

    #[test]
    fn several_small_steps_within_the_window_are_one_jump() {
        let mut watch = watch();
        for at in 0..3 {
            let stepped = node(at * 1_000 + at * 190);
            let gait = watch.see(stepped, ms(at * 1_000), ms(at * 1_000));
            assert_eq!(matches!(gait, ClockObservation::Jumped(_)), at == 2, "{at}: {gait:?}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_is_none_and_what_is_old_is_forgotten() {
        let mut watch = watch();
        watch.see(node(100_000), ms(0), ms(0));
        assert!(matches!(watch.see(node(1_000), ms(1_000), ms(1_000)), ClockObservation::Steady { .. }));
        // Set right again within the window, it gained: whoever granted meanwhile ends early.
        assert!(matches!(watch.see(node(102_000), ms(2_000), ms(2_000)), ClockObservation::Jumped(_)));
        let gait = watch.see(node(500_000), ms(40_000), ms(40_000));
        assert_eq!(
            gait,
            ClockObservation::Steady { from: ms(40_000) },
            "nothing of the window is left to compare with"
        );
    }

    #[test]
    fn memory_is_bounded_whatever_the_load() {
        let mut watch = watch();
        for at in 0..100_000 {
            assert!(matches!(watch.see(node(at), ms(at), ms(at + 1)), ClockObservation::Steady { .. }));
            assert!(watch.past.len() <= PARTS as usize + 2);
        }
    }
}
