use stateright::{Checker, HasDiscoveries, Model};
use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    hash::Hash,
    time::{Duration, Instant},
};

/// A model that a search can explore and report on.
pub trait Searchable:
    Model<State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static, Action: Clone + PartialEq + Debug>
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<M> Searchable for M where
    M: Model<
            State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static,
            Action: Clone + PartialEq + Debug,
        > + Debug
        + Send
        + Sync
        + 'static
{
}

/// The limit of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of generated states after which the search stops. A state that the search reaches several
    /// times counts each time.
    pub states: usize,
}

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    /// The number of different states. States that differ only in the names of the nodes count as one.
    pub unique: usize,
    /// The number of steps of the longest history that was explored.
    pub depth: usize,
    /// True if every state within the model's bounds was explored.
    pub complete: bool,
    /// The duration of the search.
    pub took: Duration,
    /// For each property with an example or a counterexample, the steps of the history that leads to it.
    pub histories: BTreeMap<&'static str, Vec<String>>,
    /// The `always` properties that were broken.
    pub broken: Vec<&'static str>,
    /// The `sometimes` properties without an example.
    pub never: Vec<&'static str>,
}

impl Found {
    /// Returns `true` if the model holds: no `always` property was broken, and each `sometimes` property has an
    /// example.
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && self.never.is_empty()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.complete, self.broken.is_empty()) {
            (_, false) => "broken",
            (true, true) => "exhaustive",
            (false, true) => "bounded",
        };
        write!(f, "{} states, depth {}, {how}, {:.1?}", self.unique, self.depth, self.took)?;
        for name in &self.broken {
            let steps = &self.histories[name];
            write!(f, "\n    breaks \"{name}\" in {} steps: {}", steps.len(), steps.join(" · "))?;
        }
        for name in &self.never {
            write!(f, "\n    never: \"{name}\"")?;
        }
        Ok(())
    }
}

/// Searches breadth first, until all states are explored or the limit is reached.
pub fn search<M: Searchable>(model: M, limits: Limits) -> Found {
    run(model, limits, HasDiscoveries::All)
}

/// Searches like [`search`], but stops as soon as `property` has its example or counterexample.
pub fn search_until<M: Searchable>(model: M, limits: Limits, property: &'static str) -> Found {
    run(model, limits, HasDiscoveries::AllOf([property].into()))
}

#[expect(clippy::disallowed_methods, reason = "how long the search took, by the real clock")]
fn run<M: Searchable>(model: M, limits: Limits, finish: HasDiscoveries) -> Found {
    let began = Instant::now();
    let (mut always, mut sometimes) = (Vec::new(), Vec::new());
    for property in model.properties() {
        match property.expectation {
            stateright::Expectation::Sometimes => sometimes.push(property.name),
            _ => always.push(property.name),
        }
    }
    // With one thread, the search goes level by level. Two searches of the same model then have equal
    // results.
    let checker = model.checker().threads(1).target_state_count(limits.states);
    let checker = checker.finish_when(finish).spawn_bfs().join();
    let steps = |path: stateright::Path<M::State, M::Action>| {
        path.into_actions().iter().map(|action| format!("{action:?}")).collect::<Vec<_>>()
    };
    let histories: BTreeMap<_, _> =
        checker.discoveries().into_iter().map(|(name, path)| (name, steps(path))).collect();
    Found {
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: checker.state_count() < limits.states && checker.is_done(),
        took: began.elapsed(),
        broken: always.into_iter().filter(|name| histories.contains_key(name)).collect(),
        never: sometimes.into_iter().filter(|name| !histories.contains_key(name)).collect(),
        histories,
    }
}
