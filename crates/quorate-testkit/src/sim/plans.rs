use super::Plan;
use std::time::Duration;

/// The plans under which every seed must pass. Each has a name, which is needed to replay a failure, and a purpose.
pub const PLANS: [(&str, &str); 12] = [
    ("default", "every fault that the guarantees cover, and workers' clocks that stand still"),
    (
        "contact-all",
        "every round asks all servers at once, and scripts serve every acquire; in the other plans a lock asks a majority first, and plain commands serve most acquires",
    ),
    ("old-counters", "servers often come back with old snapshots and counters, sometimes a majority"),
    ("no-slack", "clocks drift as far as allowed and never step, and the margin covers the drift only"),
    ("crashes", "servers crash often"),
    ("durable", "servers come back with all their data, and are trusted with it"),
    (
        "replace",
        "an operator replaces the node set, and workers start with the new list before, during and after it",
    ),
    (
        "forced",
        "an operator releases locks by force, some of them twice, while their holders work on, extend or have crashed",
    ),
    ("stored", "an operator stores jobs of the second group on the nodes, and removes them"),
    ("mistaken", "workers start with another node list or another max_ttl, and one server forgets"),
    (
        "wild-clocks",
        "servers' clocks step by hours and stand still: time-dependent invariants are not judged",
    ),
    (
        "far-steps",
        "one or two servers' clocks, observed by every worker, step ahead by up to an hour: no lease has two holders",
    ),
];

/// Plans that require more than Quorate guarantees. Their seeds may fail, and show which violations occur. A
/// sweep runs these plans only if they are named.
pub const OPEN_PLANS: [(&str, &str); 1] = [(
    "mistaken-and-forgotten",
    "as mistaken, and any server may forget: a wrong list whose majority forgot may elect its own leader",
)];

impl Plan {
    /// Returns the plan of [`PLANS`] or [`OPEN_PLANS`] that is called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let mut plan = Self { plain_commands: name != "contact-all", ..Self::default() };
        match name {
            "default" => plan.replaces = 25,
            "contact-all" => plan.setup.ask_all_nodes = true,
            "old-counters" => (plan.crashes, plan.snapshots) = (300, 1_000),
            "no-slack" => (plan.steps, plan.setup.clock_step_allowance) = (false, Duration::ZERO),
            "crashes" => plan.crashes = 250,
            "durable" => (plan.setup.durable, plan.crashes) = (true, 200),
            "replace" => plan.replaces = 1_000,
            "forced" => plan.forces = true,
            "stored" => plan.stores = true,
            "mistaken" => (plan.mistakes, plan.one_forgets) = (true, true),
            "mistaken-and-forgotten" => plan.mistakes = true,
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
