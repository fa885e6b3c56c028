//! The models hold, and each of them breaks once a rule is left out.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use quorate_testkit::model::{Found, Limits, fencing, search, search_until_failure};
use stateright::Model;
use std::{fmt::Debug, hash::Hash};

/// Fails unless `model` holds in all its states, within its bounds.
fn holds<M>(name: &str, model: M)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let found = look(name, model, usize::MAX);
    assert!(found.holds() && found.complete, "{name}: {found}");
}

/// Fails if `model` breaks within so many states, which are too few for all that must happen somewhere.
fn holds_so_far<M>(name: &str, model: M, states: usize)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let found = look(name, model, states);
    assert!(found.broken.is_empty(), "{name}: {found}");
}

fn look<M>(name: &str, model: M, states: usize) -> Found
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let bounds = format!("{model:?}");
    let found = search(model, Limits { states });
    println!("{name}: {found}\n    {bounds}");
    found
}

/// Fails unless the model, with a rule left out, breaks.
fn breaks<M>(name: &str, model: M)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + PartialEq + Debug,
{
    let found = search_until_failure(model, Limits { states: 20_000_000 });
    println!("without {name}: {found}");
    assert!(!found.broken.is_empty(), "without {name} the model still holds: {found}");
}

mod fence {
    use super::{breaks, fencing::*, holds, holds_so_far};

    #[test]
    fn tokens_are_unique_and_grow_whatever_time_does() {
        holds("fencing, two attempts", Fencing::plain());
        let three = Fencing { attempts: 3, doubles: 0, apart: Some(1), ..Fencing::plain() };
        holds_so_far("fencing, three attempts", three, 500_000);
    }

    #[test]
    fn tokens_are_unique_and_grow_though_nodes_forget() {
        holds("fencing, a node forgets", Fencing::forgetful());
        holds("fencing, a node comes back", Fencing::returning());
        holds("fencing, counters end", Fencing::retiring());
    }

    #[test]
    fn each_rule_is_needed() {
        let plain = Fencing::plain();
        for rule in [Rule::Increment, Rule::Raise, Rule::RaiseByOwner] {
            breaks(&format!("{rule:?}"), Fencing { without: Some(rule), ..plain });
        }
        let three = Fencing { attempts: 3, doubles: 0, apart: Some(0), prompt: true, ..plain };
        breaks("RepairKeepsMore", Fencing { without: Some(Rule::RepairKeepsMore), ..three });
        breaks("Quarantine", Fencing { without: Some(Rule::Quarantine), ..Fencing::forgetful() });
        breaks("Seed", Fencing { without: Some(Rule::Seed), ..Fencing::retiring() });
        for rule in [Rule::OldCounters, Rule::LateMemory] {
            breaks(&format!("{rule:?}"), Fencing { without: Some(rule), ..Fencing::returning() });
        }
    }

    #[test]
    fn three_clock_offsets_are_too_short() {
        breaks("a long quarantine", Fencing { stride: 3, quarantine: 3, ..Fencing::forgetful() });
        breaks("a long retention", Fencing { stride: 3, keep: 3, ..Fencing::retiring() });
    }
}
