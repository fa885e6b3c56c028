use crate::{
    env::{BootTime, WallTime},
    node::NodeTime,
};
use std::time::Duration;

/// The age after which a sample is replaced by any newer one, even by a less precise one.
const SAMPLE_AGE: Duration = Duration::from_secs(10);

/// Lower and upper bounds of (node time − boot time) of one node, as this worker measured them in one round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    low_micros: i128,
    high_micros: i128,
    taken: BootTime,
}

impl ClockOffset {
    /// Computes a sample from one reply. The node read `node_time` on its clock at some moment between `sent`
    /// and `received`.
    pub(crate) fn sample(node_time: NodeTime, sent: BootTime, received: BootTime) -> Self {
        let node = i128::from(node_time.as_micros());
        let micros = |at: BootTime| i128::from(at.as_nanos() / 1_000);
        Self { low_micros: node - micros(received) - 1, high_micros: node - micros(sent), taken: received }
    }

    /// Returns the better of two samples: the more precise one. The new sample is better in any case if the
    /// known one is old, or if the two contradict each other because the node's clock stepped.
    pub(crate) fn refine(self, new: Self) -> Self {
        let contradicts = new.low_micros > self.high_micros || new.high_micros < self.low_micros;
        let old = new.taken.since(self.taken) > SAMPLE_AGE;
        let tighter = new.high_micros - new.low_micros <= self.high_micros - self.low_micros;
        if contradicts || old || tighter { new } else { self }
    }

    /// Returns the time at which the sample's reply was received.
    pub(crate) const fn taken(self) -> BootTime {
        self.taken
    }

    /// Returns the earliest time that the node's clock can show when the boot clock shows `at`.
    pub(crate) fn node_time_at_least(self, at: BootTime) -> NodeTime {
        let micros = i128::from(at.as_nanos() / 1_000) + self.low_micros;
        NodeTime::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// Returns the smallest distance between the node's clock and a clock that shows `wall` when the boot clock shows `at`.
    pub(crate) fn distance(self, wall: WallTime, at: BootTime) -> Duration {
        let wall = i128::from(wall.as_micros()) - i128::from(at.as_nanos() / 1_000);
        let apart = (self.low_micros - wall).max(wall - self.high_micros).max(0);
        Duration::from_micros(u64::try_from(apart).unwrap_or(u64::MAX))
    }

    /// Returns the bound of [`ClockOffset::node_time_at_least`], less an allowance for drift. The sample of
    /// an unreachable node may be old, and the two clocks may have drifted apart in the time by which it is
    /// older than [`SAMPLE_AGE`].
    pub(crate) fn carried_to(self, at: BootTime, drift_rate: f64) -> NodeTime {
        let drift = self.taken.until(at).saturating_sub(SAMPLE_AGE).mul_f64(drift_rate);
        let micros = u64::try_from(drift.as_micros()).unwrap_or(u64::MAX);
        NodeTime::from_micros(self.node_time_at_least(at).as_micros().saturating_sub(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> BootTime {
        BootTime::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_estimate_is_never_ahead_of_the_node() {
        // The node's clock is 5,000 ms ahead. It shows 5,110 ms when the boot clock shows 110 ms.
        let wide = ClockOffset::sample(NodeTime::from_micros(5_110_000), ms(100), ms(150));
        assert!(wide.node_time_at_least(ms(200)) <= NodeTime::from_micros(5_200_000));
        let tight = ClockOffset::sample(NodeTime::from_micros(5_301_000), ms(300), ms(302));
        assert_eq!(wide.refine(tight), tight);
        assert_eq!(tight.refine(ClockOffset { taken: ms(400), ..wide }), tight);
        assert_eq!(
            tight.refine(ClockOffset { taken: ms(20_000), ..wide }).taken,
            ms(20_000),
            "old samples are replaced"
        );
        let apart = |wall| tight.distance(WallTime::from_micros(wall), ms(1_000));
        assert_eq!([5_999_000, 6_000_000].map(apart), [Duration::ZERO; 2], "within the round trip");
        assert_eq!(apart(15_999_000), Duration::from_millis(9_998));
        assert!(apart(1_000_000) > Duration::from_millis(4_998));
        let stepped = ClockOffset::sample(NodeTime::from_micros(9_500_000), ms(500), ms(590));
        assert_eq!(tight.refine(stepped), stepped, "a step replaces the known sample");
    }
}
