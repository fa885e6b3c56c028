//! Checks that each model holds with all its rules, and breaks if one rule is left out.

use quorate_testkit::model::{
    Found, Limits, Searchable, copies, exclusion, fencing, poison, readwrite, search, search_until,
};

/// Fails unless `model` holds in all states within its bounds, and has an example for every `sometimes`
/// property.
fn holds<M: Searchable>(name: &str, model: M) {
    let found = look(name, model, usize::MAX);
    assert!(found.holds() && found.complete, "{name}: {found}");
}

/// Fails if `model` breaks a property within this number of states. The search may end before it finds the
/// examples for the `sometimes` properties.
fn holds_so_far<M: Searchable>(name: &str, model: M, states: usize) {
    let found = look(name, model, states);
    assert!(found.broken.is_empty(), "{name}: {found}");
}

fn look<M: Searchable>(name: &str, model: M, states: usize) -> Found {
    let bounds = format!("{model:?}");
    let found = search(model, Limits { states });
    println!("{name}: {found}\n    {bounds}");
    found
}

/// Fails unless `model`, which leaves a rule out, breaks this property.
fn breaks<M: Searchable>(name: &str, property: &'static str, model: M) {
    let found = search_until(model, Limits { states: 20_000_000 }, property);
    println!("without {name}: {found}");
    assert!(found.broken.contains(&property), "without {name} it still holds that {property}: {found}");
}

mod fence {
    use super::{breaks, fencing::*, holds, holds_so_far};

    #[test]
    fn tokens_are_unique_and_grow_whatever_time_does() {
        holds("fencing, two attempts", Fencing::plain());
        let three = Fencing { attempts: 3, doubles: 0, apart: Some(1), ..Fencing::plain() };
        holds_so_far("fencing, three attempts", three, 250_000);
    }

    #[test]
    fn a_holder_does_not_return_after_a_later_grant() {
        holds("fencing, finality", Fencing::finality());
    }

    #[test]
    fn tokens_are_unique_and_grow_though_nodes_forget() {
        holds("fencing, a node forgets", Fencing::forgetful());
        holds("fencing, a node comes back", Fencing::returning());
        holds("fencing, counters end", Fencing::retiring());
    }

    #[test]
    fn plain_commands_keep_tokens_unique_and_growing() {
        holds("fencing, commands", Fencing::commands());
        holds_so_far(
            "fencing, commands, finality",
            Fencing { finality: true, ..Fencing::commands() },
            250_000,
        );
        holds("fencing, commands, a node forgets", Fencing::commands_forgetful());
        holds("fencing, commands, counters end", Fencing::commands_retiring());
    }

    #[test]
    fn claims_by_plain_commands_keep_tokens_unique_and_growing() {
        holds("fencing, claims", Fencing::claims());
        holds("fencing, claims, a node forgets", Fencing::claims_forgetful());
    }

    #[test]
    fn claims_by_plain_commands_need_each_rule() {
        for rule in [Rule::ClaimKept, Rule::ClaimClock] {
            breaks(&format!("{rule:?}"), GROWING, Fencing { without: Some(rule), ..Fencing::claims() });
        }
        let three = Fencing {
            attempts: 3,
            offs: &[0, 6],
            ahead: 0,
            missing: false,
            apart: None,
            ..Fencing::claims()
        };
        breaks("ClaimClockBefore", GROWING, Fencing { without: Some(Rule::ClaimClockBefore), ..three });
    }

    #[test]
    fn plain_commands_need_each_rule() {
        let retiring = Fencing::commands_retiring();
        let late = Fencing { attempts: 3, ..retiring };
        breaks("EndlessIsMissing", GROWING, Fencing { without: Some(Rule::EndlessIsMissing), ..late });
    }

    #[test]
    fn each_rule_is_needed() {
        let plain = Fencing::plain();
        for (rule, property) in
            [(Rule::Increment, UNIQUE), (Rule::Raise, GROWING), (Rule::RaiseByOwner, UNIQUE)]
        {
            breaks(&format!("{rule:?}"), property, Fencing { without: Some(rule), ..plain });
        }
        let three = Fencing { attempts: 3, doubles: 0, apart: Some(0), prompt: true, ..plain };
        breaks("RepairKeepsMore", GROWING, Fencing { without: Some(Rule::RepairKeepsMore), ..three });
        for rule in [Rule::RepairNoLater, Rule::Vouch] {
            breaks(&format!("{rule:?}"), FINAL, Fencing { without: Some(rule), ..Fencing::finality() });
        }
        let forgetful = Fencing::forgetful();
        breaks("Quarantine", GROWING, Fencing { without: Some(Rule::Quarantine), ..forgetful });
        breaks("Seed", GROWING, Fencing { without: Some(Rule::Seed), ..Fencing::retiring() });
        for rule in [Rule::OldCounters, Rule::LateMemory] {
            breaks(&format!("{rule:?}"), GROWING, Fencing { without: Some(rule), ..Fencing::returning() });
        }
    }

    #[test]
    fn three_clock_offsets_are_too_short() {
        let forgetful = Fencing::forgetful();
        breaks("a long quarantine", GROWING, Fencing { stride: 3, quarantine: 3, ..forgetful });
        breaks("a long retention", GROWING, Fencing { stride: 3, keep: 3, ..Fencing::retiring() });
    }
}

mod belief {
    use super::{breaks, exclusion::*, holds};

    #[test]
    fn two_never_believe_at_once() {
        holds("exclusion, late replies", Exclusion::plain());
        holds("exclusion, extended", Exclusion::extending());
        holds("exclusion, late replies, doubled", Exclusion { doubles: 1, ..Exclusion::plain() });
        holds("exclusion, extended, doubled", Exclusion::doubled());
        holds("exclusion, a node forgets", Exclusion::forgetful());
        holds("exclusion, a worker tries again", Exclusion::retrying());
        holds("exclusion, a majority first", Exclusion::majority_first());
        holds("exclusion, plain commands", Exclusion { commands: true, ..Exclusion::extending() });
        holds("exclusion, plain commands, again", Exclusion { commands: true, ..Exclusion::retrying() });
    }

    #[test]
    fn each_rule_is_needed() {
        breaks("Send", ALONE, Exclusion { without: Some(Rule::Send), ..Exclusion::plain() });
        // If no node is spared, all acquires are sent at the same time, and these rules would make no
        // difference.
        let first = Exclusion { forgets: 0, ..Exclusion::majority_first() };
        for rule in [Rule::Asked, Rule::QuorumthSend] {
            breaks(
                &format!("{rule:?} (a majority first)"),
                ALONE,
                Exclusion { without: Some(rule), ..first },
            );
        }
        let commands = Exclusion { commands: true, ..Exclusion::plain() };
        let forgets = Exclusion { forgets: 1, prompt: true, ..commands };
        breaks("MarkerAfter", ALONE, Exclusion { without: Some(Rule::MarkerAfter), ..forgets });
        breaks("LatestSend", ALONE, Exclusion { without: Some(Rule::LatestSend), ..commands });
        breaks("FreshOwner", ALONE, Exclusion { without: Some(Rule::FreshOwner), ..Exclusion::retrying() });
        for rule in [
            Rule::Quarantine,
            Rule::QuarantineOfHolders,
            Rule::QuorumthSend,
            Rule::Margin,
            Rule::EndBeforeRelease,
        ] {
            breaks(&format!("{rule:?}"), ALONE, Exclusion { without: Some(rule), ..Exclusion::forgetful() });
        }
    }
}

mod reading {
    use super::{breaks, holds, holds_so_far, readwrite::*};
    use Kind::{Downgrades, Reads, Writes};

    #[test]
    fn a_writer_is_alone() {
        let both = ReadWrite::of(&[Reads, Writes]);
        holds("read-write, extended", ReadWrite { extensions: 1, ..both });
        holds("read-write, a node forgets", ReadWrite { forgets: 1, ..both });
        let two = ReadWrite { eager: true, ..ReadWrite::of(&[Reads, Reads, Writes]) };
        holds_so_far("read-write, two readers", two, 100_000);
        let down = ReadWrite::of(&[Downgrades, Writes]);
        holds("read-write, a downgrade beside a writer", down);
        let all_at_once = ReadWrite { eager: true, extensions: 1, ..down };
        holds("read-write, a downgrade beside a writer, extended", all_at_once);
        holds("read-write, a downgrade beside a reader", ReadWrite::of(&[Downgrades, Reads]));
    }

    #[test]
    fn each_rule_is_needed() {
        let both = ReadWrite { extensions: 1, forgets: 1, ..ReadWrite::of(&[Reads, Writes]) };
        for rule in [Rule::WriterLooks, Rule::ReaderLooks, Rule::Quarantine] {
            breaks(&format!("{rule:?}"), ALONE, both.without(rule));
        }
        breaks("RepairLooks", ALONE, ReadWrite { forgets: 0, ..both }.without(Rule::RepairLooks));
        let two = ReadWrite { eager: true, ..ReadWrite::of(&[Reads, Reads, Writes]) };
        breaks("ReleasesItself", ALONE, two.without(Rule::ReleasesItself));
        let first = ReadWrite::of(&[Downgrades, Reads]);
        breaks("EndBeforeDowngrade", ALONE, first.without(Rule::EndBeforeDowngrade));
        let owner = ReadWrite::of(&[Downgrades, Writes]);
        breaks("DowngradeByOwner", BETWEEN, owner.without(Rule::DowngradeByOwner));
        // A delayed extension can set the writer as the owner again, on a node that has granted the lock to
        // another agent since.
        let late = ReadWrite { extensions: 1, ..owner };
        breaks("DowngradeByToken", BETWEEN, late.without(Rule::DowngradeByToken));
    }
}

mod count {
    use super::{breaks, holds, poison::*};

    #[test]
    fn an_id_is_poisoned_by_real_attempts_only() {
        holds("poison, one attempt may begin", Poison::plain());
        let by_anyone = Some(Rule::CountByOwner);
        holds("poison, without CountByOwner", Poison { without: by_anyone, ..Poison::plain() });
        holds("poison, a node forgets", Poison { attempts: 2, forgets: 1, ..Poison::plain() });
        holds("poison, one will not begin", Poison { leaves: 1, ..Poison::plain() });
    }

    #[test]
    fn each_rule_is_needed() {
        for (rule, property) in
            [(Rule::CountWhenWon, COUNTED), (Rule::CountByMajority, FEW), (Rule::CountIfMore, FEW)]
        {
            breaks(&format!("{rule:?}"), property, Poison { without: Some(rule), ..Poison::plain() });
        }
        for (rule, property) in [(Rule::TakeBack, EARNED), (Rule::TakeBackOwn, FEW)] {
            let leaves = Poison { leaves: 1, without: Some(rule), ..Poison::plain() };
            breaks(&format!("{rule:?}"), property, leaves);
        }
    }
}

mod copied {
    use super::{breaks, copies::*, holds, holds_so_far};

    /// Three nodes.
    type Three = Copies<3>;

    fn led(losses: u8) -> Three {
        Three { losses, ..Three::led(2) }
    }

    fn assigned(leaders: usize, losses: u8) -> Three {
        Three { begin: Begin::Assigned, losses, ..Three::assigning(leaders, 1) }
    }

    fn property(broken: Broken) -> &'static str {
        PROPERTIES.iter().find(|(any, _)| *any == broken).map_or("no such property", |(_, name)| name)
    }

    #[test]
    fn a_node_that_forgot_is_down_until_it_is_copied() {
        holds("copies, two leaders", led(0));
        holds("copies, one term twice, two losses", Three { twins: true, ..led(2) });
        holds("copies, one worker, a loss", assigned(1, 1));
        holds("copies, one worker, old data", Three { snapshot: true, ..assigned(1, 2) });
        holds_so_far("copies, two leaders, two losses", led(2), 150_000);
        holds_so_far("copies, two leaders and a worker, two losses", assigned(2, 2), 150_000);
        let two = Three { losses: 1, generations: 2, writes: 4, ..Three::assigning(2, 2) };
        let two = Three { begin: Begin::Assigned, timed: true, ..two };
        holds_so_far("copies, two workers, sessions exclude", two, 150_000);
    }

    /// Of an even number of nodes, half may have forgotten. Then a leader founds although the others are complete.
    #[test]
    fn a_ledger_of_an_even_number_of_nodes_is_founded_if_half_have_forgotten() {
        let worker = Copies::<2> { begin: Begin::Assigned, losses: 1, ..Copies::assigning(2, 1) };
        holds("copies of two nodes, two leaders, a loss", Copies::<2> { losses: 1, ..Copies::led(2) });
        holds("copies of two nodes, two leaders and a worker, a loss", worker);
        holds_so_far(
            "copies of four nodes, two leaders, two losses",
            Copies::<4> { losses: 2, ..Copies::led(2) },
            1_000_000,
        );
    }

    #[test]
    fn nodes_need_each_rule() {
        use Broken::*;
        let old_data = Three { snapshot: true, ..assigned(1, 1) };
        for (rule, broken, model) in [
            (Rule::Fence, DeposedCommits, led(0)),
            (Rule::Exact, NotRead, led(2)),
            (Rule::Complete, NotRead, led(1)),
            (Rule::First, SkippedStarts, assigned(1, 0)),
            (Rule::CopyRegister, SkippedStarts, assigned(1, 1)),
            (Rule::MarkedRegister, SkippedStarts, Three::assigning(2, 1)),
            (Rule::KeepRegister, SkippedStarts, assigned(2, 0)),
            (Rule::Empty, SkippedStarts, old_data),
        ] {
            breaks(&format!("{rule:?}"), property(broken), model.without(rule));
        }
    }

    #[test]
    fn leaders_need_each_rule() {
        use Broken::*;
        let leads = |model| Three { begin: Begin::Leads, ..model };
        let passed = leads(Three { passes: true, skips: false, writes: 2, ..Three::led(3) });
        let founding = Three { at_most_once: false, generations: 2, skips: false, writes: 2, ..led(2) };
        for (rule, broken, model) in [
            (Rule::Confirm, NotRead, led(1)),
            (Rule::NewestMark, ComesBack, passed),
            (Rule::Majority, DeposedCommits, led(0)),
            (Rule::CountMarked, NotRead, led(0)),
            (Rule::CopyAll, NotRead, leads(led(1))),
            (Rule::JoinConfirm, DeposedCommits, leads(led(1))),
            (Rule::JoinOthers, DeposedCommits, leads(led(1))),
            (Rule::FoundLatest, NotRead, founding),
            (Rule::FoundUnknown, SkippedStarts, leads(led(2))),
            (Rule::Lease, StartAfterLost, Three { timed: true, ..led(0) }),
        ] {
            breaks(&format!("{rule:?}"), property(broken), model.without(rule));
        }
    }

    #[test]
    fn runs_need_each_rule() {
        use Broken::*;
        let founding = |begin| {
            let model = Three { timed: true, direct: true, at_most_once: false, ..assigned(2, 2) };
            Three { begin, generations: 2, writes: 2, skips: false, ..model }
        };
        for (rule, broken, model) in [
            (Rule::FoundWait, TwoAtOnce, founding(Begin::Started)),
            (Rule::VoidMajority, SkippedStarts, assigned(1, 0)),
            (Rule::Session, StartAfterLost, Three { timed: true, ..assigned(1, 0) }),
            (Rule::StartMajority, SkippedStarts, assigned(1, 0)),
            (Rule::AssignmentId, SkippedStarts, Three { begin: Begin::Leads, ..Three::assigning(2, 1) }),
            (Rule::Valid, OldStarts, founding(Begin::Assigned)),
            (Rule::EndTrue, DoneWithoutHandler, assigned(1, 0)),
        ] {
            breaks(&format!("{rule:?}"), property(broken), model.without(rule));
        }
    }
}
