//! The reasons for which the leader refuses requests.

use crate::scheduler::store::JobAction;
use std::time::Duration;

/// The part of a refusal that concerns the leaders before this one.
pub(in crate::scheduler) const FOLLOWED: &str =
    "a leader that was replaced before it could answer may have skipped ticks because of it";

/// Returns the reason for the refusal of an expired request. `late` is the time since its validity ended. The
/// texts for cancellations, pauses and freezes say that an earlier leader may have acted on the request: it acts
/// before a majority stores the answer.
pub(in crate::scheduler) fn too_late(what: &JobAction, late: Duration) -> String {
    match what {
        JobAction::Cancel { .. } => format!(
            "too late, by {late:.1?}: no leader answered the request while it was valid; a leader may have cancelled \
             runs before it could answer: look at what runs, and send a new request"
        ),
        JobAction::Pause { .. } | JobAction::Freeze { .. } => {
            format!(
                "too late, by {late:.1?}: no leader accepted the request while it was valid; {FOLLOWED}; send a new \
                 request"
            )
        }
        _ => format!(
            "too late, by {late:.1?}: no leader accepted the request while it was valid; send a new request"
        ),
    }
}
