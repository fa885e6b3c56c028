//! The pace at which a worker and the leader look for what the other one has stored of a run. Neither is informed of it.

use std::time::Duration;

/// The shortest pause between two looks.
pub(super) const LEAST: Duration = Duration::from_millis(50);
/// The longest pause between two looks.
pub(super) const MOST: Duration = Duration::from_secs(1);

/// Returns the pause until the next look, if so much time has passed since there was something new. So what changes quickly is
/// seen soon, and a long run costs little.
pub(super) fn pause(since: Duration) -> Duration {
    (since / 4).clamp(LEAST, MOST)
}
