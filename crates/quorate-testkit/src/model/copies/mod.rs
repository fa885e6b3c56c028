//! Model of the copies of a ledger, version 2: a node that may have forgotten is down until a leader has copied everything
//! to it; the leader assigns runs to workers; of a worker's *start* and a leader's *void*, the first wins.
//!
//! # Scope
//!
//! There are three nodes (or five), up to three leaders of rising terms, two workers and one run. A request that was sent
//! runs at any later step, or never; requests run in any order. A leader or worker decides at any later step, on the answers
//! of any majority. A node loses its memory at any step, or comes back with an old record and an open register (`snapshot`).
//! In a *timed* history, sessions and leases exclude each other as the lease layer promises: a session ends before it is
//! known to have ended, a leader's handler stops before the next leader is elected, and a node that forgot is silent until
//! every start that was sent before has run out. In other histories, sessions and leases end unnoticed.
//!
//! # Not covered
//!
//! Several keys, pruning and requests from outside are left out. Of the wait after a founding (L6), only the effect is here.
//! Some records, which a leader may write next, and when a worker starts, are decided by the model; the decisions of nodes
//! and about takeovers are the shipped ones, in [`quorate::node::copy`] and [`quorate::ledger::copies`].

mod leader;
mod node;
mod rule;
mod state;
mod step;

use super::Name;
pub use rule::Rule;
pub use state::{Broken, State};
use state::{Session, Value};
use stateright::{Model, Property};
pub use step::Step;
use step::{Steps, What};

/// The largest number of leaders.
const LEADERS: usize = 3;
/// The number of workers.
const WORKERS: usize = 2;
/// One more than the largest number of a write.
const WRITES: usize = 7;

/// The model, within bounds, with `N` nodes.
#[derive(Clone, Copy, Debug)]
pub struct Copies<const N: usize> {
    /// The point of a usual history at which the search begins.
    pub begin: Begin,
    /// The number of leaders.
    pub leaders: usize,
    /// The number of workers to which the run may be assigned.
    pub workers: usize,
    /// True if leaders may execute the run themselves.
    pub direct: bool,
    /// The number of times that a node loses its memory.
    pub losses: u8,
    /// True if sessions and leases exclude each other.
    pub timed: bool,
    /// True if the run is to be started at most once.
    pub at_most_once: bool,
    /// The largest number of a generation.
    pub generations: u8,
    /// The largest number of a leader's write.
    pub writes: u8,
    /// True if a leader may record the run as skipped.
    pub skips: bool,
    /// True if one leader may pass over the run without a record.
    pub passes: bool,
    /// True if the run is a shard: after its owner has released it, it is assigned to another one.
    pub shard: bool,
    /// True if a node that loses its memory comes back with an old record.
    pub snapshot: bool,
    /// True if the first two leaders were given the same term.
    pub twins: bool,
    /// The rule that this model leaves out.
    pub without: Option<Rule>,
}

/// A point of a usual history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Begin {
    /// The nodes are marked by the last leader before the history.
    Nothing,
    /// The first leader leads, and all nodes are marked.
    Leads,
    /// It has assigned the run to the first worker.
    Assigned,
    /// The worker has started.
    Started,
}

/// The properties of the model, with the event that breaks each.
pub const PROPERTIES: [(Broken, &str); 12] = [
    (Broken::NotRead, "a record that a majority stored is read by every later leader"),
    (Broken::DeposedCommits, "no deposed leader's record reaches a majority after a later takeover"),
    (Broken::FoundedBeside, "no ledger is founded while the old one lives"),
    (Broken::GenerationTwice, "a generation starts once"),
    (Broken::SkippedStarts, "a skipped run does not start"),
    (Broken::DoneWithoutHandler, "a run is done only if a handler ended"),
    (Broken::TwoStarts, "at most once: a run starts once"),
    (Broken::StartAfterLost, "no run starts after it was recorded as lost"),
    (Broken::TwoAtOnce, "no two handlers run at once"),
    (Broken::PassedStarts, "no run starts that a leader had passed over"),
    (Broken::OldStarts, "the old ledger starts no run after a founding"),
    (Broken::ComesBack, "a record that a leader found absent does not come back"),
];

impl<const N: usize> Copies<N> {
    /// Returns the model of leaders that execute the run themselves, at most once.
    pub fn led(leaders: usize) -> Self {
        Self { direct: true, workers: 0, ..Self::assigning(leaders, 0) }
    }

    /// Returns the model of leaders that assign the run to workers, at most once.
    pub fn assigning(leaders: usize, workers: usize) -> Self {
        Self {
            begin: Begin::Nothing,
            leaders,
            workers,
            direct: false,
            losses: 0,
            timed: false,
            at_most_once: true,
            generations: 1,
            writes: 3,
            skips: true,
            passes: false,
            shard: false,
            snapshot: false,
            twins: false,
            without: None,
        }
    }

    /// Returns this model without a rule.
    pub fn without(self, rule: Rule) -> Self {
        Self { without: Some(rule), ..self }
    }

    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn initial(&self) -> State<N> {
        let mut state = State {
            sites: std::array::from_fn(|at| state::Site { name: Name(at as u8), ..Default::default() }),
            leaders: Default::default(),
            workers: Default::default(),
            judge: state::Judge { founded: 1, ..Default::default() },
        };
        for site in &mut state.sites {
            (site.node.seal, site.node.mark) = (1, 1);
        }
        for (at, worker) in state.workers[..self.workers].iter_mut().enumerate() {
            worker.session = if self.timed && at == 1 { Session::None } else { Session::Alive };
            worker.founding = 1;
        }
        state
    }

    /// Returns the state at the point at which the search begins. All rules are in force until then.
    fn first(&self) -> State<N> {
        let usual = Self { without: None, direct: true, ..*self };
        let mut state = self.initial();
        let mut go = |is: &dyn Fn(&What) -> bool, times: usize| {
            for _ in 0..times {
                let mut steps = Vec::new();
                usual.actions(&state, &mut steps);
                let step = steps.into_iter().find(|step| is(&step.what));
                state = step.unwrap_or_else(|| unreachable!("the usual history goes on")).state;
            }
        };
        if self.begin >= Begin::Leads {
            go(&|what| matches!(what, What::Elected(0)), 1);
            go(&|what| matches!(what, What::Seals(0, _)), N);
            go(&|what| matches!(what, What::AsksToConfirm(0)), 1);
            go(&|what| matches!(what, What::Confirms(0, _)), N);
            go(&|what| matches!(what, What::Decides(0, false)), 1);
            go(&|what| matches!(what, What::Writes(0, _, 1)), N);
            go(&|what| matches!(what, What::SendsMark(0, _)), N);
            go(&|what| matches!(what, What::Marks(0, _)), N);
        }
        if self.begin >= Begin::Assigned {
            go(&|what| matches!(what, What::Puts(0, Value::Assigned(_, 0))), 1);
            go(&|what| matches!(what, What::Writes(0, _, 2)), N);
        }
        if self.begin >= Begin::Started {
            go(&|what| matches!(what, What::Sees(0, ..)), 1);
            go(&|what| matches!(what, What::Registers(0, _)), self.majority());
            go(&|what| matches!(what, What::Starts(0)), 1);
        }
        state
    }
}

impl<const N: usize> Model for Copies<N> {
    type State = State<N>;
    type Action = Step<N>;

    fn init_states(&self) -> Vec<State<N>> {
        vec![self.first()]
    }

    fn actions(&self, state: &State<N>, actions: &mut Vec<Step<N>>) {
        if state.judge.broken.is_none() {
            Steps { model: self, now: state, out: actions }.all();
        }
    }

    fn next_state(&self, _: &State<N>, action: Step<N>) -> Option<State<N>> {
        Some(action.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(PROPERTIES[0].1, |_, state: &State<N>| state.keeps(0)),
            Property::always(PROPERTIES[1].1, |_, state: &State<N>| state.keeps(1)),
            Property::always(PROPERTIES[2].1, |_, state: &State<N>| state.keeps(2)),
            Property::always(PROPERTIES[3].1, |_, state: &State<N>| state.keeps(3)),
            Property::always(PROPERTIES[4].1, |_, state: &State<N>| state.keeps(4)),
            Property::always(PROPERTIES[5].1, |_, state: &State<N>| state.keeps(5)),
            Property::always(PROPERTIES[6].1, |_, state: &State<N>| state.keeps(6)),
            Property::always(PROPERTIES[7].1, |_, state: &State<N>| state.keeps(7)),
            Property::always(PROPERTIES[8].1, |_, state: &State<N>| state.keeps(8)),
            Property::always(PROPERTIES[9].1, |_, state: &State<N>| state.keeps(9)),
            Property::always(PROPERTIES[10].1, |_, state: &State<N>| state.keeps(10)),
            Property::always(PROPERTIES[11].1, |_, state: &State<N>| state.keeps(11)),
            Property::sometimes("a run starts", |_, state: &State<N>| state.judge.starts > 0),
        ];
        if self.losses > 0 && self.begin != Begin::Started {
            properties.push(Property::sometimes(
                "a node that forgot is complete again",
                |_, state: &State<N>| {
                    let complete = state.sites.iter().all(|site| site.node.mark > 1);
                    // Of two nodes no majority of others can let a node join: a founding completes it.
                    complete && state.judge.losses > 0 && (state.judge.founded == 1 || N == 2)
                },
            ));
        }
        properties
    }
}

impl<const N: usize> State<N> {
    fn keeps(&self, property: usize) -> bool {
        self.judge.broken != Some(PROPERTIES[property].0)
    }
}
