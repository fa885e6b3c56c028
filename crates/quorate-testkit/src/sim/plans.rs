use super::{Plan, Promises};
use std::time::Duration;

/// The plans under which every seed must hold, by name, so that a failure can be replayed; and what each is for.
pub const PLANS: [(&str, &str); 8] = [
    ("default", "every fault within the promises, and workers' clocks that stand still"),
    ("old-counters", "old counters come back with old snapshots, often enough that a majority of them does"),
    ("no-slack", "clocks drift by what is allowed and never step, and the margin is for just that"),
    ("crashes", "servers crash often"),
    ("durable", "servers come back with all they had, and are trusted with it"),
    ("mistaken", "workers come up with another node list or another max_ttl, and one server forgets"),
    ("wild-clocks", "servers' clocks step by hours and stand still: what rests on time is not judged"),
    (
        "far-steps",
        "the clocks of one or two servers step ahead by up to an hour, and every worker has watched: two never hold",
    ),
];

/// Plans under which Quorate promises less than is judged: for whoever wants to see what comes of it.
pub const OPEN_PLANS: [(&str, &str); 2] = [
    (
        "mistaken-and-forgotten",
        "as mistaken, and any servers forget: a wrong list whose majority forgot may elect a leader of its own",
    ),
    (
        "any-worker-promises",
        "as default, and any-worker jobs are held to all that is promised of leader-placed jobs",
    ),
];

impl Plan {
    /// The plan of [`PLANS`] or [`OPEN_PLANS`] that is called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let mut plan = Self::default();
        match name {
            "default" => {}
            "old-counters" => (plan.crashes, plan.snapshots) = (300, 1_000),
            "no-slack" => (plan.steps, plan.setup.clock_step_allowance) = (false, Duration::ZERO),
            "crashes" => plan.crashes = 250,
            "durable" => (plan.setup.durable, plan.crashes) = (true, 200),
            "mistaken" => (plan.mistakes, plan.one_forgets) = (true, true),
            "mistaken-and-forgotten" => plan.mistakes = true,
            "any-worker-promises" => plan.promises = Promises::ALL,
            "wild-clocks" => plan.wild_clocks = true,
            "far-steps" => (plan.far_steps, plan.length) = (true, Duration::from_secs(40)),
            _ => return None,
        }
        Some(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_has_its_name() {
        assert!(PLANS.iter().chain(&OPEN_PLANS).all(|(name, _)| Plan::named(name).is_some()));
        assert!(Plan::named("nothing").is_none());
    }
}
