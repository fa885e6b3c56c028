use super::facade::{Counter, Gauge, Metric};

const OWNED: Metric =
    Metric::number("quorate_shards_owned", "Number of shards of the set that this process owns.");
const FAILURES: Metric = Metric::number(
    "quorate_shard_failures_total",
    "Number of times that the work of a shard of the set failed.",
);
const BALANCES: Metric = Metric::number(
    "quorate_shard_balances_total",
    "Number of times that this process, as the leader of the set, assigned its shards.",
);

/// The counters and the gauge of one set of shards.
#[derive(Debug)]
pub(crate) struct ShardMeasures {
    owned: Gauge,
    failures: Counter,
    balances: Counter,
}

impl ShardMeasures {
    pub(crate) fn new(set: &str) -> Self {
        let labels = [("set", set)];
        let owned = OWNED.gauge(&labels);
        Self { owned, failures: FAILURES.counter(&labels), balances: BALANCES.counter(&labels) }
    }

    pub(crate) fn owned(&self, count: usize) {
        self.owned.set_count(count);
    }

    pub(crate) fn failed(&self) {
        self.failures.add_one();
    }

    pub(crate) fn balanced(&self) {
        self.balances.add_one();
    }
}
