//! The reasons for which the leader refuses requests.

use crate::{
    env::WallTime,
    scheduler::{
        plan::led_jobs::LedJobs,
        store::{JobAction, JobRequest},
    },
};
use std::{sync::Arc, time::Duration};

/// The part of a refusal that concerns the leaders before this one.
pub(super) const FOLLOWED: &str =
    "a leader that was replaced before it could answer may have skipped ticks because of it";

/// Returns the place of the request's job in the job table.
///
/// # Errors
/// The leader does not have the job, or the request has expired. If the job's row shows that an earlier leader
/// carried the request out, an expired request is no error.
pub(super) fn place_of(request: &JobRequest, jobs: &LedJobs, now: WallTime) -> Result<usize, Arc<str>> {
    let job = request.what.job();
    let unknown = || format!("the leader {} knows no job called {job:?}", jobs.reporter().worker());
    let place = jobs.table().place(job);
    let late = request.valid_until().until(now);
    let is_done =
        |place| jobs.table().get(place).is_some_and(|entry| entry.row().requests.contains(&request.id));
    if !late.is_zero() && !place.is_some_and(is_done) {
        return Err(too_late(&request.what, late).into());
    }
    place.ok_or_else(|| unknown().into())
}

/// Returns the reason for the refusal of an expired request. `late` is the time since its validity ended. The
/// texts for cancellations, pauses and freezes say that an earlier leader may have acted on the request: it acts
/// before a majority stores the answer.
pub(super) fn too_late(what: &JobAction, late: Duration) -> String {
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

/// Returns the reason for the refusal of a request for a job that the leader no longer has.
pub(super) fn being_removed() -> Arc<str> {
    "the job is being removed".into()
}
