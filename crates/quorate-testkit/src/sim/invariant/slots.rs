use super::{Event, Invariant};
use crate::sim::{
    Belief, Excuse,
    worker::{SLOTS, SLOTS_NAME},
};
use std::{collections::BTreeSet, time::Duration};

/// Requires four things of numbered slots ([`Quorum::slots`](quorate::quorum::Quorum::slots)):
///
/// - At every true moment, no more workers consider a slot valid than there are slots.
/// - Each slot has one holder.
/// - The number that a worker receives is the number of the lock that it holds.
/// - In the fault-free phase, a worker that asks once finds a slot if one is free
///   ([`Locks::try_acquire_any`](quorate::lease::Locks::try_acquire_any) attempts each lock that may be free),
///   and finds none if all are held.
///
/// Two exceptions are permitted:
///
/// - A lease whose worker's boot clock stood still is not judged, because validity is measured by that clock
///   ([`Belief::clock_stood`]).
/// - While there are faults, or while other workers try, a worker may miss a free slot: concurrent attempts may
///   split the votes.
#[derive(Debug, Default)]
pub(super) struct Slots {
    full: u64,
    free: u64,
}

impl Invariant for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        vec![("full slots judged", self.full), ("free slot judged", self.free)]
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Looked(beliefs) => held_once(beliefs),
            Event::SlotGranted { worker, resource, number } => {
                let named = resource.key() == format!("{SLOTS_NAME}/slot-{number}");
                if named && *number < SLOTS {
                    return Ok(());
                }
                Err(format!("{worker} got the slot {number} of {SLOTS}, and holds {resource}"))
            }
            Event::SlotSought { worker, held, found } => {
                let is_free = *held < SLOTS;
                *(if is_free { &mut self.free } else { &mut self.full }) += 1;
                match (is_free, found) {
                    (true, false) => {
                        Err(format!("{worker} found no free slot, and {held} of {SLOTS} are held"))
                    }
                    (false, true) => Err(format!("{worker} found a slot, and all {SLOTS} are held")),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Checks that each slot has one holder, and that no more slots are held than there are.
fn held_once(beliefs: &[Belief]) -> Result<(), String> {
    let is_slot = |belief: &&Belief| {
        let number = belief.resource.key().strip_prefix(SLOTS_NAME);
        number.is_some_and(|rest| rest.starts_with("/slot-")) && belief.valid
    };
    let (mut seen, mut held) = (BTreeSet::new(), 0);
    for belief in beliefs.iter().filter(is_slot).filter(|belief| !belief.clock_stood) {
        held += 1;
        if !seen.insert(&belief.resource) {
            return Err(format!("{} has two holders, one of them {}", belief.resource, belief.worker));
        }
    }
    if held > SLOTS {
        return Err(format!("{held} workers hold one of {SLOTS} slots"));
    }
    for belief in beliefs.iter().filter(is_slot).filter(|belief| belief.clock_stood) {
        held += 1;
        let is_twin = !seen.insert(&belief.resource);
        Excuse::SlotsClock.excuses(is_twin || held > SLOTS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::belief, *};
    use quorate::node::Resource;

    fn slot(number: usize) -> Resource {
        Resource::lock(&format!("{SLOTS_NAME}/slot-{number}")).unwrap()
    }

    #[test]
    fn a_slot_has_one_holder_and_there_are_so_many() {
        let held = |lease, number| Belief { resource: slot(number), ..belief(lease, "a", lease, true) };
        let see = |beliefs: &[Belief]| Slots::default().see(Duration::ZERO, &Event::Looked(beliefs));
        let all: Vec<Belief> = (0..SLOTS).map(|number| held(number as u64, number)).collect();
        assert!(see(&all).is_ok());
        assert!(see(&[held(1, 0), held(2, 0)]).is_err());
        assert!(see(&[held(1, 0), Belief { valid: false, ..held(2, 0) }]).is_ok());
        assert!(see(&[held(1, 0), Belief { clock_stood: true, ..held(2, 0) }]).is_ok());
        let more: Vec<Belief> = all.into_iter().chain([held(99, SLOTS)]).collect();
        assert!(see(&more).is_err());
    }

    #[test]
    fn a_number_names_its_slot() {
        let see = |number, resource: &Resource| {
            let granted = Event::SlotGranted { worker: "a", resource, number };
            Slots::default().see(Duration::ZERO, &granted)
        };
        assert!(see(0, &slot(0)).is_ok());
        assert!(see(1, &slot(0)).is_err());
        assert!(see(SLOTS, &slot(SLOTS)).is_err());
    }

    #[test]
    fn a_free_slot_is_found_and_no_other() {
        let mut slots = Slots::default();
        let mut see =
            |held, found| slots.see(Duration::ZERO, &Event::SlotSought { worker: "a", held, found });
        assert!(see(SLOTS - 1, true).is_ok());
        assert!(see(SLOTS, false).is_ok());
        assert!(see(SLOTS - 1, false).is_err());
        assert!(see(SLOTS, true).is_err());
        assert_eq!(slots.judged(), [("full slots judged", 2), ("free slot judged", 2)]);
    }
}
