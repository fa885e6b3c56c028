use stateright::{Checker, HasDiscoveries, Model};
use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    hash::Hash,
    time::{Duration, Instant},
};

/// A model that a search can go through and tell of.
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

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Stop after so many states, counted as often as they are met.
    pub states: usize,
}

/// What a search found.
#[derive(Debug)]
pub struct Found {
    /// Different states, those that differ only in the nodes' names counted once.
    pub unique: usize,
    /// Steps of the longest history looked at.
    pub depth: usize,
    /// Whether every state within the model's bounds was looked at.
    pub complete: bool,
    /// How long it took.
    pub took: Duration,
    /// By property: the steps of the example, or of the counterexample.
    pub histories: BTreeMap<&'static str, Vec<String>>,
    /// The `always` properties that were broken.
    pub broken: Vec<&'static str>,
    /// The `sometimes` properties without an example.
    pub never: Vec<&'static str>,
}

impl Found {
    /// Whether nothing was broken and everything that must happen somewhere did.
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

/// Searches breadth first, to the end or to the limit.
pub fn search<M: Searchable>(model: M, limits: Limits) -> Found {
    run(model, limits, HasDiscoveries::All)
}

/// The same, until this property has its example or counterexample.
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
    // One thread: level by level, so that equal searches find equal things.
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
