use super::facade::{Counter, Gauge, Histogram, Metric};
use std::{sync::OnceLock, time::Duration};

const ACQUIRE: Metric = Metric::seconds(
    "quorate_acquire_seconds",
    "Duration of one attempt to acquire a lock or the leadership, by its outcome.",
);
const LEADER: Metric = Metric::number("quorate_leader", "1 while this process leads the group, otherwise 0.");
const TERMS: Metric =
    Metric::number("quorate_terms_total", "Number of terms for which this process was elected.");
const REMAINING: Metric = Metric::seconds(
    "quorate_lease_remaining_seconds",
    "Time for which this process leads the group if no further extension succeeds, as of the last change.",
);
const EVENTS: Metric = Metric::number(
    "quorate_lease_events_total",
    "Number of events of this process's candidate for the group.",
);

/// The result of one attempt to acquire a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AcquireResultKind {
    Acquired,
    Contended,
    Failed,
}

/// The durations of a quorum's attempts to acquire locks.
#[derive(Debug)]
pub(crate) struct AcquireMeasures {
    acquired: Histogram,
    contended: Histogram,
    failed: Histogram,
}

impl AcquireMeasures {
    pub(crate) fn new() -> Self {
        let of = |outcome| ACQUIRE.histogram(&[("outcome", outcome)]);
        Self { acquired: of("acquired"), contended: of("contended"), failed: of("failed") }
    }

    pub(crate) fn attempted(&self, result: AcquireResultKind, took: Duration) {
        let histogram = match result {
            AcquireResultKind::Acquired => &self.acquired,
            AcquireResultKind::Contended => &self.contended,
            AcquireResultKind::Failed => &self.failed,
        };
        histogram.record_duration(took);
    }
}

/// The counters and gauges of one candidate.
#[derive(Debug)]
pub(crate) struct ElectionMeasures {
    terms: Counter,
    /// Empty without the feature.
    events: Vec<(&'static str, Counter)>,
    leader: Gauge,
    remaining: Gauge,
}

impl ElectionMeasures {
    /// Creates the measures of a candidate of `group`, which may report these `events`.
    pub(crate) fn new(group: &str, events: &[&'static str]) -> Self {
        let labels = [("group", group)];
        let counter = |&event: &&'static str| (event, EVENTS.counter(&[("group", group), ("event", event)]));
        Self {
            terms: TERMS.counter(&labels),
            events: events.iter().filter(|_| cfg!(feature = "metrics")).map(counter).collect(),
            leader: LEADER.gauge(&labels),
            remaining: REMAINING.gauge(&labels),
        }
    }

    pub(crate) fn elected(&self) {
        self.terms.add_one();
    }

    pub(crate) fn event(&self, event: &str) {
        if let Some((_, counter)) = self.events.iter().find(|(name, _)| *name == event) {
            counter.add_one();
        }
    }

    /// Returns the gauges that change with the deadline of a term's lease.
    pub(crate) fn term(&self) -> TermGauges {
        let gauges = OnceLock::new();
        if cfg!(feature = "metrics") {
            let _ = gauges.set(Box::new((self.leader.clone(), self.remaining.clone())));
        }
        TermGauges(gauges)
    }
}

/// The gauges of the term to which a lease belongs. Empty for a lease that is not a leader's. The gauges are
/// boxed, because a process may hold many leases.
#[derive(Debug, Default)]
pub(crate) struct TermGauges(OnceLock<Box<(Gauge, Gauge)>>);

impl TermGauges {
    /// Takes over the gauges of `term`. Later calls have no effect.
    pub(crate) fn set(&self, term: Self) {
        if let Some(gauges) = term.0.into_inner() {
            let _ = self.0.set(gauges);
        }
    }

    /// Reports how long the lease is valid if it is not extended; zero once it has ended.
    pub(crate) fn remaining(&self, time: Duration) {
        if let Some((leader, remaining)) = self.0.get().map(|gauges| &**gauges) {
            leader.set_flag(!time.is_zero());
            remaining.set_duration(time);
        }
    }
}
