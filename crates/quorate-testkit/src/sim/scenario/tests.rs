use super::*;
use std::collections::BTreeSet;

#[test]
fn a_seed_fixes_everything_and_the_clocks_keep_the_promises() {
    let plan = Plan::default();
    for seed in 0..50 {
        let scenario = Scenario::new(seed, &plan);
        assert_eq!(scenario, Scenario::new(seed, &plan));
        assert!(scenario.faults.is_sorted_by_key(|(at, _)| *at));
        let replaced = scenario.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::ReplaceServer(_, clock) => Some(clock),
            _ => None,
        });
        let workers = scenario.workers.iter().map(|(boot, _)| boot);
        let clocks: Vec<_> = scenario.servers.iter().chain(workers).chain(replaced).collect();
        let most = clocks.iter().map(|clock| clock.rate_ppm).max().unwrap();
        let least = clocks.iter().map(|clock| clock.rate_ppm).min().unwrap();
        let apart = f64::from(1_000_000 + most) / f64::from(1_000_000 + least) - 1.0;
        assert!(apart <= plan.setup.drift_rate, "{apart}");
        let far = |fault: &Fault| matches!(fault, Fault::StepServer(_, by) if by.abs() > STEP_MS);
        assert!(!scenario.faults.iter().any(|(_, fault)| far(fault)));
    }
    assert_ne!(Scenario::new(1, &plan).faults, Scenario::new(2, &plan).faults);
}

/// Checks that wall clocks which may be `max_clock_offset` apart reach this limit, and never exceed it.
#[test]
fn wall_clocks_reach_the_edge_and_stay_within_it() {
    let plan = Plan::default();
    let (mut edges, mut widest) = (0_u64, 0);
    for seed in (0..200).filter(|seed| SeedRng::new(*seed, "wall clocks").chance(250)) {
        edges += 1;
        let scenario = Scenario::new(seed, &plan);
        let mut servers = scenario.servers.clone();
        let mut see = |clock: &SimClock| {
            for at in [Duration::ZERO, LONGEST_RUN] {
                let apart = clock.shows(at).abs_diff(true_wall(at).as_micros() * 1_000) / 1_000_000;
                assert!(apart <= EDGE_MS.unsigned_abs(), "{seed}: {apart} ms");
                widest = widest.max(apart);
            }
        };
        scenario.workers.iter().for_each(|(_, wall)| see(wall));
        servers.iter().for_each(&mut see);
        for (_, fault) in &scenario.faults {
            match *fault {
                Fault::ReplaceServer(node, clock) => servers[node] = clock,
                Fault::StepServer(node, by) => {
                    let start = servers[node].start_nanos.checked_add_signed(by * 1_000_000);
                    servers[node].start_nanos = start.unwrap();
                }
                _ => continue,
            }
            servers.iter().for_each(&mut see);
        }
    }
    assert!((30..=70).contains(&edges), "{edges} of 200 seeds");
    assert!(widest >= 499, "{widest}");
}

#[test]
fn clocks_that_step_far_are_a_minority_that_every_worker_hears() {
    let plan = Plan::named("far-steps").unwrap();
    for seed in 0..50 {
        let faults = Scenario::new(seed, &plan).faults;
        let far = faults.iter().filter_map(|(at, fault)| match fault {
            Fault::StepServer(node, by) if *by > STEP_MS => Some((*at, *node)),
            _ => None,
        });
        let far: Vec<_> = far.collect();
        let stepping: Vec<usize> =
            BTreeSet::from_iter(far.iter().map(|(_, node)| *node)).into_iter().collect();
        assert!((1..=2).contains(&stepping.len()), "{seed}: {stepping:?}");
        assert!(far.len() >= 3 && far.iter().all(|(at, _)| *at >= FAR_STEPS_FROM), "{seed}: {far:?}");
        assert!(!faults.iter().any(|(_, fault)| fault.parts_from(&stepping)), "{seed}");
    }
}

#[test]
fn every_kind_of_fault_is_drawn_and_named() {
    let mut kinds = BTreeSet::new();
    let wild = Plan { wild_clocks: true, ..Plan::default() };
    let mistaken = Plan { mistakes: true, ..Plan::default() };
    for seed in 0..50 {
        for plan in [&Plan::default(), &wild, &mistaken] {
            let faults = Scenario::new(seed, plan).faults;
            kinds.extend(faults.iter().map(|(_, fault)| fault.kind()));
            let forgets = |fault: &Fault| {
                matches!(
                    fault,
                    Fault::FlushServer(_)
                        | Fault::ReplaceServer(..)
                        | Fault::StartServer(_, Memory::Empty | Memory::Snapshot)
                )
            };
            assert!(!plan.wild_clocks || !faults.iter().any(|(_, fault)| forgets(fault)), "{seed}");
        }
    }
    let ends = [
        "road restored",
        "network whole",
        "server resumed",
        "server clock went on",
        "worker resumed",
        "worker woke",
        "worker clock went on",
        "worker started",
    ];
    let faults: Vec<_> = kinds.iter().filter(|kind| !ends.contains(kind)).collect();
    assert!(faults.iter().all(|kind| Fault::is_kind(kind)), "{faults:?}");
    assert_eq!((faults.len(), kinds.len()), (23, 23 + ends.len()), "{kinds:?}");
}
