use super::{
    tests::{job, planner, registry, row_of, saved, starts, take_over},
    *,
};
use crate::scheduler::store::snapshot::tests::{at, sealed};

#[test]
fn a_run_gets_the_state_that_was_saved_last_also_of_a_job_that_was_removed_meanwhile() {
    let (mut planner, _) = planner(sealed(&[], &[]), [job("j")], 10);
    let first = starts(&mut planner, 12);
    assert_eq!(first[0].state, None);
    planner.run_ended(saved(&first[0], Some("6")), false, at(12));
    assert_eq!(row_of(&planner.take_effects(), "state/j").map(|text| &**text), Some("6"));
    let second = starts(&mut planner, 13);
    assert_eq!(second[0].state.as_deref(), Some("6"));
    let add_again = |planner: &mut Planner, now| {
        planner.change(&BTreeMap::new(), at(now));
        let removed = planner.take_effects();
        planner.change(&registry([job("j")]), at(now));
        (removed, take_over(planner, now))
    };
    // The task of the active run may store a state at any moment. A row that was not removed must not replace it.
    let (removed, added) = add_again(&mut planner, 13);
    let is_state = |effect: &Effect| matches!(effect, Effect::RemoveRow { key } if **key == *"state/j");
    assert!(!removed.iter().any(is_state) && row_of(&added, "state/j").is_none(), "{removed:?} {added:?}");
    planner.run_ended(saved(&second[0], Some("7")), false, at(13));
    assert_eq!(row_of(&planner.take_effects(), "state/j").map(|text| &**text), Some("7"));
    let (removed, added) = add_again(&mut planner, 14);
    assert!(removed.iter().any(is_state), "{removed:?}");
    assert_eq!(row_of(&added, "state/j").map(|text| &**text), Some("7"));
    assert_eq!(starts(&mut planner, 16)[0].state.as_deref(), Some("7"));
}
