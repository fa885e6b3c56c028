//! The settings that all parts of the demo share.

use std::time::Duration;

/// The longest time for which a crashed leader blocks the other workers.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(2);
/// The time that the work has after its cancellation until it must end.
pub(crate) const STEP_DOWN_GRACE: Duration = Duration::from_millis(400);
/// The time between two ticks of the job.
pub(crate) const TICK_EVERY: Duration = Duration::from_millis(250);
/// The name of the group.
pub(crate) const GROUP: &str = "demo";
/// The name of the job.
pub(crate) const JOB: &str = "heartbeat";
/// The name of the set of messages.
pub(crate) const MESSAGES: &str = "messages";
/// The number of nodes.
pub(crate) const NODES: usize = 5;
