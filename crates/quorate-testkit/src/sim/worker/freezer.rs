//! Freezes the second group ([`POOL`](super::POOL)) in some seeds.

use super::operator::{CALM_WAIT, CLOCKS_APART, Operator, VALID_FOR};
use crate::sim::{SeedRng, Told};
use quorate::{env::WallTime, internals::JobAction, scheduler::Jobs};
use std::time::Duration;

/// The number of seeds in a thousand in which the operator freezes the second group. All other seeds have the same
/// history as without freezes.
const FREEZE_SEEDS: u64 = 500;

/// The part of the operator that freezes the group. It sends its requests beside those for single jobs.
#[derive(Debug)]
pub(in super::super) struct Freezer {
    operator: Operator,
    rng: SeedRng,
    /// The latest end of the freezes that a leader may have accepted.
    ends: WallTime,
}

impl Freezer {
    pub(in super::super) fn new(operator: Operator) -> Self {
        let rng = SeedRng::new(operator.seed, "freezes of the second group");
        Self { operator, rng, ends: WallTime::default() }
    }

    /// Freezes the group now and then until the faults end. Returns once no freeze is left.
    pub(in super::super) async fn work(mut self) {
        if self.rng.chance(FREEZE_SEEDS)
            && let Some(jobs) = self.operator.jobs()
        {
            self.freeze_until_the_faults_end(&jobs).await;
            self.end_freezes(&jobs).await;
        }
        self.operator.has_finished();
    }

    async fn freeze_until_the_faults_end(&mut self, jobs: &Jobs) {
        while !self.operator.referee.is_calm() {
            let pause = self.rng.millis_up_to(&[500, 1_500, 4_000]);
            self.operator.env.sleep(pause).await;
            if self.operator.referee.is_calm() {
                break;
            }
            let ask = self.draw();
            let patience = self.rng.millis(1_500..=3_500);
            let valid_for = self.rng.millis(1_500..=VALID_FOR.as_millis() as u64);
            let jobs = jobs.clone().wait(patience).valid_for(valid_for);
            let drops_after = self.rng.chance(120).then(|| self.rng.millis(0..=60));
            self.operator.ask(&jobs, ask, drops_after).await;
        }
    }

    /// Draws a freeze. While the group may be frozen, this is sometimes the end of the freeze.
    fn draw(&mut self) -> JobAction {
        let now = self.operator.quorum.wall();
        if now < self.ends && self.rng.chance(350) {
            return JobAction::Unfreeze;
        }
        let until = now + self.rng.millis_up_to(&[4_000, 9_000, 14_000]);
        self.ends = self.ends.max(until);
        JobAction::Freeze { reason: Some("a migration".into()), until }
    }

    /// Ends the freeze by a request, unless it has ended by itself. Begins when every earlier request has expired, so
    /// that no leader accepts an earlier freeze afterwards.
    async fn end_freezes(&mut self, jobs: &Jobs) {
        let env = &self.operator.env;
        env.sleep(VALID_FOR + CLOCKS_APART).await;
        if self.ends <= self.operator.quorum.wall() {
            return;
        }
        let jobs = jobs.clone().wait(CALM_WAIT).valid_for(VALID_FOR);
        while !env.stopped().is_cancelled() {
            if matches!(self.operator.ask(&jobs, JobAction::Unfreeze, None).await, Told::Accepted { .. }) {
                break;
            }
            env.sleep(Duration::from_millis(50)).await;
        }
    }
}
