//! The suite that every kind of node passes: one case for each rule of [`quorate::node::engine`], and for
//! each guarantee of [`quorate::node::Session`].
//!
//! # What is not guaranteed
//!
//! A node that passes keeps the rules for which there is a case. Faults of one kind of node alone (a wrong
//! password, a full disk, a key of another type) belong to that kind's own tests.

mod acquire;
mod claim;
mod gate;
mod inbox;
mod lease;
mod ledger;
mod push;
mod queue;
mod readers;
mod reserve;
mod session;

use futures_util::FutureExt;
use inbox::Desk;
use quorate::node::Node;
use std::panic::AssertUnwindSafe;

/// Runs the named cases, each on a fresh node from `$make`.
macro_rules! run {
    ($kind:ident, $make:ident, $($module:ident: $($case:ident)+;)+) => {
        let mut run = 0;
        let mut failed = Vec::new();
        $($(
            run += 1;
            if AssertUnwindSafe($module::$case($make())).catch_unwind().await.is_err() {
                failed.push(concat!(stringify!($module), "::", stringify!($case)));
            }
        )+)+
        assert!(failed.is_empty(), "{}: {} of {run} cases failed: {}", $kind, failed.len(), failed.join(", "));
    };
}

/// Runs every case, each on a fresh node from `make`: empty, without a marker, and with data that nothing
/// deletes while the case runs.
///
/// # Panics
/// If a case failed: after all cases have run, with the names of all that failed. The message of each is
/// printed above.
pub async fn suite<N: Node>(kind: &str, mut make: impl FnMut() -> N) {
    run! {
        kind, make,
        acquire:
            a_free_resource_is_granted_and_counted
            a_held_resource_says_by_whom_and_for_how_long
            its_own_holder_does_not_acquire_again
            a_lease_ends_at_its_time_and_not_before
            a_counter_goes_on_whatever_is_proposed
            a_missing_counter_takes_no_far_proposal
            a_full_counter_grants_no_more
            a_counter_is_forgotten_at_its_time
            resources_of_different_kinds_do_not_meet
            names_and_owners_may_hold_odd_characters;
        lease:
            raise_lifts_the_holders_counter
            raise_is_for_the_holder
            raise_never_lowers
            raise_refuses_a_forgotten_counter
            extend_lengthens_and_lifts_the_counter
            extend_never_shortens
            extend_sets_the_owner_again_where_free
            extend_leaves_anothers_lease
            extend_keeps_the_counter_alive
            release_frees_its_own_and_keeps_the_counter
            release_leaves_anothers_lease
            inspect_changes_nothing;
        reserve:
            a_reserved_resource_is_its_heirs_alone
            an_heir_counts_one_more
            reserve_is_for_the_holder
            a_reservation_ends_by_itself
            who_transferred_neither_extends_nor_releases_any_more
            what_only_looks_like_a_reservation_is_nobodys;
        readers:
            many_read_and_nobody_writes
            a_writer_keeps_readers_away
            a_plain_lock_and_a_writer_are_one
            a_reader_ends_at_its_time_and_the_resource_with_the_last
            extend_share_lengthens_never_shortens
            extend_share_adds_the_reader_again_where_free
            extend_share_leaves_a_writers_lease
            release_share_frees_with_the_last_reader
            a_released_reader_shortens_nobody_else
            downgrade_turns_a_writer_into_a_reader
            downgrade_is_for_the_holder
            downgrade_is_refused_where_another_was_counted
            readers_leave_the_counter_alone
            a_node_keeps_so_many_readers;
        queue:
            places_are_ordered_by_ticket_and_not_by_arrival
            while_a_queue_stands_its_head_is_granted_alone
            readers_go_in_together_up_to_a_writer
            a_reader_does_not_pass_a_writer_who_waits
            repair_goes_past_nobody_who_waits
            a_place_ends_at_its_time_and_is_held_by_asking_again
            a_place_is_given_up_by_its_ticket
            a_wall_clock_that_is_off_gets_no_place
            a_node_keeps_so_many_places
            a_ticket_without_a_place_is_nobody;
        gate:
            what_comes_too_late_is_refused_and_changes_nothing
            another_marker_is_refused_and_named
            a_missing_marker_is_refused
            releases_and_looks_are_always_served
            mark_compares_and_sets;
        claim:
            complete_frees_the_claim_and_answers_for_it
            complete_is_refused_while_another_holds
            complete_after_the_end_needs_the_newest_count
            of_two_done_records_the_higher_stands
            a_done_claim_is_not_extended
            done_is_forgotten_at_its_time_with_its_counter
            results_may_hold_anything
            an_attempt_is_counted_by_the_holder_and_told_with_the_next_grant
            no_count_goes_down_or_stands_for_two
            an_attempt_is_taken_back_where_it_was_counted
            what_is_counted_ends_at_its_time_and_with_the_done_record
            a_record_keeps_all_that_it_was_told
            only_what_is_given_up_or_counted_is_forgiven
            claims_that_travel_together_are_served_in_their_order
            what_another_kind_of_resource_has_is_refused;
        ledger:
            a_fresh_ledger_is_empty
            a_seal_refuses_earlier_terms
            a_write_needs_what_the_leader_saw
            a_last_record_is_final
            a_later_term_seals_as_it_writes
            records_come_in_the_order_of_their_keys
            a_prune_forgets_and_refuses_what_is_before_it
            a_ledger_ends_with_its_life_and_is_not_created_by_being_kept
            ledgers_of_two_groups_do_not_meet
            a_long_ledger_is_told_in_pages
            a_later_seal_ends_the_telling
            a_long_ledger_is_pruned_in_steps;
        session:
            replies_come_in_the_order_of_the_requests
            a_batch_may_be_empty_or_long
            a_refused_item_spoils_no_other
            batches_run_in_order_though_nobody_polls
            a_batch_leaves_though_the_session_is_dropped
            an_abandoned_batch_does_not_run_after_its_time
            sessions_of_one_node_see_one_store
            a_hello_states_facts
            node_time_is_the_wall_clocks_and_goes_on;
        push:
            listening_in_any_order_spoils_no_batch;
    }
}

/// Runs the cases of nodes that push releases, like [`suite`]. Clients poll the other nodes.
///
/// # Panics
/// As [`suite`].
pub async fn pushes<N: Node>(kind: &str, mut make: impl FnMut() -> N) {
    run! {
        kind, make,
        push:
            a_listener_hears_every_release_in_turn
            a_listener_hears_its_own_release_and_others_hear_it_too
            a_completed_claim_is_told
            what_frees_nothing_is_not_told
            nothing_is_told_after_the_end
            a_session_that_is_gone_hears_nothing_and_hinders_nobody;
    }
}
