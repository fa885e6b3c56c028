use crate::node::NodeTime;
use std::time::Duration;

/// From when on a node can answer for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// When the node's memory began, by its own clock.
    pub since: NodeTime,
    /// How far wall clocks may be apart.
    pub max_clock_offset: Duration,
}

impl Memory {
    /// Whether the node would know of a record of this time, in microseconds since the epoch.
    pub fn covers(self, at_micros: u64) -> bool {
        (self.since + self.max_clock_offset).as_micros() <= at_micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_answers_for_what_came_clearly_after_its_memory_began() {
        let since = NodeTime::from_micros(1_000_000_000);
        let memory = Memory { since, max_clock_offset: Duration::from_secs(1) };
        assert!(!memory.covers(1_000_000_000));
        assert!(!memory.covers(1_000_999_999));
        assert!(memory.covers(1_001_000_000));
    }
}
