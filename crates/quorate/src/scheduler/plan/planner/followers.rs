//! The jobs that run after another job.

use super::Planner;
use crate::{
    env::WallTime,
    scheduler::{
        plan::{job_id::JobId, led_job::LedJob},
        store::{
            HistoryEntry,
            recorded_ends::{FollowedEnd, ends_to_follow},
        },
    },
};

use std::sync::Arc;

impl Planner {
    /// Adds the runs that follow an end, which is recorded. `at` is the time of its record.
    pub(super) fn follow(&mut self, end: &HistoryEntry, at: WallTime, now: WallTime) {
        let followers = self.table.followers(&end.job);
        if followers.is_empty() {
            return;
        }
        let end = FollowedEnd::new(end, at, now);
        for id in followers {
            if self.table.get(id).is_some_and(|led| led.follows(&end)) {
                self.follow_one(id, &end, now);
            }
        }
    }

    /// Adds the runs of a job that has been taken over, for the ends that earlier leaders recorded and did not follow.
    pub(super) fn follow_recorded(&mut self, id: JobId, now: WallTime) {
        let Some(led) = self.table.get(id) else { return };
        let Some(after) = led.job().schedule.follows() else { return };
        let ends = ends_to_follow(&after.job, &self.sealed);
        let ends: Vec<FollowedEnd> = ends.into_iter().filter(|end| led.counts(end)).collect();
        for end in ends {
            self.follow_one(id, &end, now);
        }
    }

    fn follow_one(&mut self, id: JobId, end: &FollowedEnd, now: WallTime) {
        let sealed = &self.sealed;
        let again = self.left_out.followed;
        let follow = |led: &mut LedJob| (Arc::clone(led.job()), led.follow(sealed, end, again, now));
        if let Some((job, decisions)) = self.table.change(id, follow) {
            self.carry_out(id, &job, decisions, now);
        }
    }
}
