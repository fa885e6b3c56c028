use super::{NetworkConditions, Outcome, Plan, Scenario, simulate_scenario, sweep::invariant_of};

/// A failing run with as few faults as possible.
///
/// The workers, their jobs and the servers' clocks are those of the seed. Only the faults and the network conditions
/// are reduced. Without one of the remaining faults, the run does not break the same invariant.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The scenario with the faults that remain.
    pub scenario: Scenario,
    /// The run of this scenario, with its trace.
    pub outcome: Outcome,
    /// The number of faults of the seed's own scenario.
    pub faults_before: usize,
    /// The number of runs that the search needed.
    pub runs: u64,
}

/// Removes faults from the scenario of a failing seed, as long as the run still breaks the same invariant. Returns
/// `None` if the seed breaks no invariant.
///
/// The search is the *ddmin* of Zeller and Hildebrandt (*Simplifying and Isolating Failure-Inducing Input*, 2002): it
/// removes halves, quarters and so on, down to single faults, of which it tries each until none can go. Unlike *ddmin*,
/// it does not begin again at the whole after each removal. It then removes the network's conditions.
///
/// # Panics
///
/// If no runtime can be created.
pub fn shrink(seed: u64, plan: &Plan) -> Option<Shrunk> {
    let whole = Scenario::new(seed, plan);
    let faults_before = whole.faults.len();
    let first = simulate_scenario(whole.clone(), plan, false);
    let invariant = invariant_of(first.violations.first()?);
    let mut search = Search { plan, invariant, runs: 1 };
    let mut scenario = search.without_faults(whole);
    let calm = Scenario { weather: NetworkConditions::CALM, ..scenario.clone() };
    if search.still_fails(&calm) {
        scenario = search.without_faults(calm);
    }
    let outcome = simulate_scenario(scenario.clone(), plan, true);
    Some(Shrunk { scenario, outcome, faults_before, runs: search.runs + 1 })
}

struct Search<'a> {
    plan: &'a Plan,
    invariant: &'static str,
    runs: u64,
}

impl Search<'_> {
    /// Returns the scenario without the faults that the violation does not need.
    fn without_faults(&mut self, mut scenario: Scenario) -> Scenario {
        let mut size = scenario.faults.len().div_ceil(2);
        while size > 0 {
            let before = scenario.faults.len();
            self.remove_parts(&mut scenario, size);
            match size {
                1 if scenario.faults.len() == before => break,
                1 => {}
                _ => size /= 2,
            }
        }
        scenario
    }

    /// Removes each `size` consecutive faults without which the scenario still fails.
    fn remove_parts(&mut self, scenario: &mut Scenario, size: usize) {
        // Late faults are often those that do not matter.
        let mut end = scenario.faults.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let mut smaller = scenario.clone();
            smaller.faults.drain(start..end);
            if self.still_fails(&smaller) {
                *scenario = smaller;
            }
            end = start;
        }
    }

    fn still_fails(&mut self, scenario: &Scenario) -> bool {
        self.runs += 1;
        let outcome = simulate_scenario(scenario.clone(), self.plan, false);
        outcome.violations.first().is_some_and(|violation| invariant_of(violation) == self.invariant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::NodeFault;

    #[test]
    fn only_the_faults_that_the_violation_needs_remain() {
        // A node that forgets and keeps its vote breaks *exclusion* only if a server loses its data.
        let plan = Plan { node_fault: Some(NodeFault::Forgetful), ..Plan::named("crashes").expect("a plan") };
        let seed = (1..60).find(|seed| {
            let outcome = simulate_scenario(Scenario::new(*seed, &plan), &plan, false);
            outcome.violations.first().is_some_and(|violation| invariant_of(violation) == "exclusion")
        });
        let shrunk = shrink(seed.expect("a seed that breaks the invariant"), &plan).expect("a failure");
        assert!((1..shrunk.faults_before / 2).contains(&shrunk.scenario.faults.len()), "{shrunk:#?}");
        assert_eq!(
            shrunk.outcome.violations.first().map(|violation| invariant_of(violation)),
            Some("exclusion")
        );
        for left_out in 0..shrunk.scenario.faults.len() {
            let mut fewer = shrunk.scenario.clone();
            fewer.faults.remove(left_out);
            let outcome = simulate_scenario(fewer, &plan, false);
            assert_ne!(
                outcome.violations.first().map(|violation| invariant_of(violation)),
                Some("exclusion"),
                "{left_out}"
            );
        }
    }

    #[test]
    fn a_seed_that_breaks_nothing_is_not_shrunk() {
        assert!(shrink(1, &Plan::default()).is_none());
    }
}
