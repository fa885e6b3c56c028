use super::attendance::End;
use metrics::{Counter, Gauge, counter, gauge};

/// The measurements of the leases of clients.
pub(super) struct Measures {
    held: Gauge,
    acquired: Counter,
    contended: Counter,
    refused: Counter,
    failed: Counter,
    released: Counter,
    silent: Counter,
    lost: Counter,
    stopped: Counter,
}

/// The outcome of a request for a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Acquired,
    Contended,
    /// A limit, or a value that cannot be used.
    Refused,
    /// Too few nodes.
    Failed,
}

impl Measures {
    pub(super) fn new() -> Self {
        metrics::describe_gauge!("quorate_client_leases", "Number of leases that clients hold.");
        metrics::describe_counter!(
            "quorate_client_requests_total",
            "Number of requests of clients for locks or messages, by their outcome."
        );
        metrics::describe_counter!(
            "quorate_client_lease_ends_total",
            "Number of leases of clients that ended, by the reason."
        );
        let asked = |outcome: &'static str| counter!("quorate_client_requests_total", "outcome" => outcome);
        let ended = |reason: &'static str| counter!("quorate_client_lease_ends_total", "reason" => reason);
        Self {
            held: gauge!("quorate_client_leases"),
            acquired: asked("acquired"),
            contended: asked("contended"),
            refused: asked("refused"),
            failed: asked("failed"),
            released: ended("released"),
            silent: ended("silent"),
            lost: ended("lost"),
            stopped: ended("stopped"),
        }
    }

    pub(super) fn asked(&self, outcome: Asked) {
        let counter = match outcome {
            Asked::Acquired => &self.acquired,
            Asked::Contended => &self.contended,
            Asked::Refused => &self.refused,
            Asked::Failed => &self.failed,
        };
        counter.increment(1);
    }

    pub(super) fn began(&self) {
        self.held.increment(1);
    }

    pub(super) fn ended(&self, end: End) {
        self.held.decrement(1);
        let counter = match end {
            End::Released => &self.released,
            End::Silent => &self.silent,
            End::Lost => &self.lost,
            End::Stopped => &self.stopped,
        };
        counter.increment(1);
    }
}
