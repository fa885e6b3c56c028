use crate::node::NodeTime;
use std::time::Duration;

/// The beginning of a node's memory, which decides which records the node can remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The time on the node's clock at which its memory began.
    pub since: NodeTime,
    /// The largest difference between wall clocks
    /// ([`QuorumConfig::max_clock_offset`](crate::QuorumConfig::max_clock_offset)).
    pub max_clock_offset: Duration,
}

impl Memory {
    /// Returns whether the node would certainly still have a record of this time. The time is in microseconds
    /// since the epoch.
    pub fn covers(self, at_micros: u64) -> bool {
        (self.since + self.max_clock_offset).as_micros() <= at_micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_remembers_records_of_times_clearly_after_its_memory_began() {
        let since = NodeTime::from_micros(1_000_000_000);
        let memory = Memory { since, max_clock_offset: Duration::from_secs(1) };
        assert!(!memory.covers(1_000_000_000));
        assert!(!memory.covers(1_000_999_999));
        assert!(memory.covers(1_001_000_000));
    }
}
