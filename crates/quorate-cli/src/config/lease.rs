use std::time::Duration;

/// The timing of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// The time for which each extension lasts. So it is also the time for which a crashed leader blocks the
    /// other workers.
    pub ttl: Duration,
    /// The time between step-down and the end of validity.
    pub step_down_grace: Duration,
}
