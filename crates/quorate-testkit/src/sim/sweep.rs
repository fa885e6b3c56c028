use super::{Excuse, Fault, Outcome, Plan, invariant, simulate, simulate_untraced};
use std::{
    collections::BTreeMap,
    ops::Range,
    panic::AssertUnwindSafe,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// A sweep over many seeds of one plan, on several threads. Each seed runs in a runtime of its own. To save
/// memory, the sweep keeps only the failures and counts.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The name of the plan, for the command that replays a seed.
    pub name: String,
    /// The plan to simulate.
    pub plan: Plan,
    /// The range of seeds.
    pub seeds: Range<u64>,
    /// Runs each seed twice and compares the traces.
    pub twice: bool,
    /// The number of threads.
    pub threads: usize,
    /// The number of failures after which the sweep starts no further seed.
    pub stop_after: u64,
}

/// The result of many seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of seeds that have run.
    pub seeds: u64,
    /// The simulated true time of all seeds. A seed that ran twice counts once.
    pub simulated: Duration,
    /// The number of times that each counted event happened, by the name of the event.
    pub coverage: BTreeMap<String, u64>,
    /// The excuses that invariants used.
    pub excuses: BTreeMap<Excuse, Uses>,
    /// The failures, by seed.
    pub failures: Vec<Failure>,
}

/// The number of times that an excuse was used in a sweep, and the number of seeds in which it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The number of times. An excuse may be used again at each event while its reason continues.
    pub times: u64,
    /// The number of seeds.
    pub seeds: u64,
}

/// A seed that failed: an invariant broke, or its two runs had different traces, or it panicked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The plan.
    pub plan: String,
    /// The name of the violated invariant, or `run` for any other failure.
    pub invariant: String,
    /// The violation and its time.
    pub violation: String,
}

impl Failure {
    /// Returns the command that runs this seed again and prints the whole trace.
    pub fn replay(&self) -> String {
        let (plan, seed) = (&self.plan, self.seed);
        format!("cargo run --release -p quorate-testkit --bin simulate -- --plan {plan} --replay {seed}")
    }
}

impl Sweep {
    /// Returns a sweep over `seeds` that uses every processor. `name` is the name of a plan of
    /// [`PLANS`](super::PLANS) or [`OPEN_PLANS`](super::OPEN_PLANS).
    pub fn over(name: &str, seeds: Range<u64>) -> Option<Self> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let plan = Plan::named(name)?;
        Some(Self { name: name.to_owned(), plan, seeds, twice: false, threads, stop_after: u64::MAX })
    }

    /// Runs the sweep. After each seed, calls `after` with the seed's failure, if it has one, on the thread
    /// that ran the seed.
    pub fn run(&self, after: impl Fn(u64, Option<&Failure>) + Sync) -> Summary {
        let (next, failed) = (AtomicU64::new(self.seeds.start), AtomicU64::new(0));
        let stopped = AtomicBool::new(false);
        let total = Mutex::new(Summary::default());
        let work = || {
            while !stopped.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.seeds.end {
                    return;
                }
                let (outcome, failure) = self.judge(seed);
                after(seed, failure.as_ref());
                if failure.is_some() && failed.fetch_add(1, Ordering::Relaxed) + 1 >= self.stop_after {
                    stopped.store(true, Ordering::Relaxed);
                }
                total.lock().unwrap_or_else(PoisonError::into_inner).add(outcome, failure);
            }
        };
        std::thread::scope(|scope| (0..self.threads.max(1)).for_each(|_| drop(scope.spawn(work))));
        let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        total.failures.sort();
        total
    }

    /// Runs a seed and returns its failure, if any.
    fn judge(&self, seed: u64) -> (Option<Outcome>, Option<Failure>) {
        let run = || {
            if !self.twice {
                return (simulate_untraced(seed, &self.plan), None);
            }
            let (one, two) = (simulate(seed, &self.plan), simulate(seed, &self.plan));
            let parted = parted(&one, &two);
            (Outcome { trace: Vec::new(), ..one }, parted)
        };
        let (outcome, wrong) = match std::panic::catch_unwind(AssertUnwindSafe(run)) {
            Ok((outcome, parted)) => {
                let wrong = outcome.violations.first().cloned().or(parted);
                (Some(outcome), wrong)
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
                (None, Some(format!("a panic: {}", text.unwrap_or_default())))
            }
        };
        let failure = wrong.map(|violation| Failure {
            seed,
            plan: self.name.clone(),
            invariant: invariant_of(&violation).to_owned(),
            violation,
        });
        (outcome, failure)
    }
}

/// Returns the first difference between two runs of one seed, or `None` if the runs are equal.
fn parted(one: &Outcome, two: &Outcome) -> Option<String> {
    let line = one.trace.iter().zip(&two.trace).position(|(one, two)| one != two);
    let line = line.or((one != two).then_some(one.trace.len().min(two.trace.len())))?;
    let says = |outcome: &Outcome| outcome.trace.get(line).cloned().unwrap_or_default();
    Some(format!("two runs part at line {line} of the trace: {:?}, {:?}", says(one), says(two)))
}

/// Returns the name of the violated invariant, which follows the time in the text of a violation. Returns
/// `run` if no invariant has this name.
pub(super) fn invariant_of(violation: &str) -> &'static str {
    let name = violation.split(": ").nth(1).unwrap_or_default();
    let known = invariant::all().into_iter().map(|invariant| invariant.name());
    known.into_iter().find(|known| *known == name).unwrap_or("run")
}

impl Summary {
    /// Adds the results of a sweep over other seeds to this summary.
    pub fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.failures.extend(other.failures);
        for (excuse, uses) in other.excuses {
            let total = self.excuses.entry(excuse).or_default();
            (total.times, total.seeds) = (total.times + uses.times, total.seeds + uses.seeds);
        }
        other.coverage.into_iter().for_each(|(what, count)| *self.coverage.entry(what).or_default() += count);
    }

    /// Returns the number of times that the event `what` was counted.
    pub fn count(&self, what: &str) -> u64 {
        self.coverage.get(what).copied().unwrap_or_default()
    }

    /// Returns the number of times that the excuse was used, and the number of seeds.
    pub fn uses(&self, excuse: Excuse) -> Uses {
        self.excuses.get(&excuse).copied().unwrap_or_default()
    }

    /// Returns the counts of the faults that happened, by kind.
    pub fn faults(&self) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.coverage.iter().map(|(what, count)| (what.as_str(), *count));
        counts.filter(|(what, _)| Fault::is_kind(what))
    }

    fn add(&mut self, outcome: Option<Outcome>, failure: Option<Failure>) {
        let (coverage, simulated, excuses) =
            outcome.map(|outcome| (outcome.coverage, outcome.simulated, outcome.excuses)).unwrap_or_default();
        let excuses = excuses.into_iter().map(|(excuse, times)| (excuse, Uses { times, seeds: 1 })).collect();
        self.merge(Self { seeds: 1, simulated, coverage, excuses, failures: failure.into_iter().collect() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::NodeFault;

    #[test]
    fn a_sweep_counts_every_seed_once_and_names_what_broke() {
        let mut sweep = Sweep::over("default", 1..4).unwrap();
        sweep.plan.length = Duration::from_secs(3);
        let seen = Mutex::new(Vec::new());
        let held = sweep.run(|seed, failure| seen.lock().unwrap().push((seed, failure.is_some())));
        assert_eq!((held.seeds, held.failures.len()), (3, 0));
        assert!(held.simulated > Duration::from_secs(9) && held.count("lease granted") > 0);
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [(1, false), (2, false), (3, false)]);

        sweep.plan.node_fault = Some(NodeFault::Generous);
        let broken = Sweep { seeds: 1..100, threads: 1, stop_after: 1, ..sweep }.run(|_, _| {});
        assert_eq!(broken.failures.len(), 1, "{broken:?}");
        assert!(broken.seeds < 99, "it stops");
        let failure = &broken.failures[0];
        assert_ne!(failure.invariant, "run", "{failure:?}");
        assert!(failure.replay().ends_with(&format!("--plan default --replay {}", failure.seed)));
    }

    #[test]
    fn two_histories_of_one_seed_are_reported() {
        let one = simulate(1, &Plan { length: Duration::from_secs(1), ..Plan::default() });
        assert_eq!(parted(&one, &one), None);
        let mut two = one.clone();
        two.trace[7].push('!');
        assert!(parted(&one, &two).unwrap().contains("line 7 "));
    }
}
