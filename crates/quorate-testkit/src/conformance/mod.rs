//! The suite that every kind of node passes. It has one case for each rule of [`quorate::node::engine`], and
//! for each guarantee of [`quorate::node::Session`].
//!
//! # What is not guaranteed
//!
//! A node that passes the suite keeps only the rules for which there is a case. Some faults exist in one kind
//! of node only, for example a wrong password, a full disk, or a key of another type. That kind's own tests
//! cover such faults.

mod acquire;
mod claim;
mod client;
mod copy;
mod gate;
mod lease;
mod ledger;
mod push;
mod queue;
mod readers;
mod reserve;
mod session;
mod stamp;

use client::TestClient;
use futures_util::{FutureExt, future::LocalBoxFuture};
use quorate::node::Node;
use std::panic::AssertUnwindSafe;

/// A case with its name. The future is in a box: one future of all cases is too large for the stack of a test.
type Case<N> = (&'static str, fn(N) -> LocalBoxFuture<'static, ()>);

/// Lists the named cases.
macro_rules! cases {
    ($($module:ident: $($case:ident)+;)+) => {
        &[$($(
            (concat!(stringify!($module), "::", stringify!($case)), |node| $module::$case(node).boxed_local()),
        )+)+]
    };
}

/// Runs every case, each on a fresh node from `make`. The node must be empty and without a marker, and
/// nothing may delete its data while the case runs.
///
/// # Panics
/// If a case failed. All cases run before the panic. The panic names the failed cases, and the message of
/// each failed case is printed above it.
pub async fn suite<N: Node>(kind: &str, make: impl FnMut() -> N) {
    let cases: &[Case<N>] = cases! {
        acquire:
            a_free_resource_is_granted_and_counted
            a_held_resource_names_the_holder_and_the_remaining_time
            its_own_holder_does_not_acquire_again
            a_lease_ends_at_its_time_and_not_before
            an_existing_counter_ignores_the_proposal
            a_missing_counter_refuses_a_far_proposal
            a_full_counter_grants_no_more
            a_counter_expires_at_its_time
            resources_of_different_kinds_are_separate
            names_and_owners_may_hold_odd_characters;
        lease:
            raise_increases_the_holders_counter
            raise_is_for_the_holder
            raise_never_lowers
            raise_refuses_a_forgotten_counter
            extend_lengthens_and_raises_the_counter
            extend_never_shortens
            extend_sets_the_owner_again_if_free
            extend_does_not_set_the_owner_after_later_grants
            extend_leaves_anothers_lease
            extend_keeps_the_counter_alive
            release_frees_its_own_and_keeps_the_counter
            release_leaves_anothers_lease
            inspect_changes_nothing;
        reserve:
            a_reserved_resource_is_for_its_successor_alone
            a_successor_counts_one_more
            reserve_is_for_the_holder
            a_reservation_ends_by_itself
            a_holder_that_transferred_neither_extends_nor_releases
            a_false_reservation_reserves_for_no_worker;
        readers:
            readers_share_and_exclude_writers
            a_writer_excludes_readers
            a_plain_lock_and_a_writer_are_the_same
            a_reader_ends_at_its_time_and_the_resource_with_the_last
            extend_share_lengthens_never_shortens
            extend_share_adds_the_reader_again_if_free
            extend_share_leaves_a_writers_lease
            release_share_frees_with_the_last_reader
            a_released_reader_shortens_no_other_reader
            downgrade_turns_a_writer_into_a_reader
            downgrade_is_for_the_holder
            downgrade_is_refused_after_another_grant
            readers_leave_the_counter_alone
            a_node_limits_the_readers_of_a_lock;
        queue:
            places_are_ordered_by_ticket_and_not_by_arrival
            while_a_queue_exists_only_its_head_is_granted
            readers_go_in_together_up_to_a_writer
            a_reader_does_not_pass_a_writer_who_waits
            a_repair_overtakes_no_waiter
            a_place_expires_and_is_kept_by_polling
            a_place_is_left_by_its_ticket
            a_wrong_wall_clock_gets_no_place
            a_node_limits_the_places_of_a_queue
            a_ticket_without_a_place_has_no_right;
        gate:
            a_late_batch_is_refused_and_changes_nothing
            another_marker_is_refused_and_named
            a_missing_marker_is_refused
            releases_and_inspections_are_always_served
            mark_compares_and_sets;
        stamp:
            a_stamp_grows_and_hides_no_loss
            the_stamps_of_other_nodes_are_merged_by_maximum
            a_stamp_needs_the_marker_and_the_time;
        claim:
            complete_frees_the_claim_and_keeps_its_result
            complete_is_refused_while_another_holds
            complete_after_the_end_needs_the_newest_count
            the_done_record_with_the_higher_token_is_kept
            a_done_claim_is_not_extended
            a_done_record_expires_with_its_counter
            results_may_hold_anything
            the_holder_counts_an_attempt_and_the_next_grant_reports_it
            no_count_decreases_or_counts_two_attempts
            an_attempt_is_taken_back_where_it_was_counted
            a_count_expires_and_ends_with_the_done_record
            a_record_keeps_the_payload_and_the_count
            only_a_dead_or_counted_claim_is_reset
            claims_that_travel_together_are_served_in_their_order
            requests_for_another_kind_of_resource_are_refused;
        ledger:
            a_fresh_ledger_is_empty
            a_write_needs_what_the_leader_saw
            a_final_record_is_never_overwritten
            records_come_in_the_order_of_their_keys
            a_prune_deletes_and_refuses_earlier_records
            a_ledger_ends_with_its_life_and_is_not_created_by_being_kept
            ledgers_of_two_groups_are_separate
            a_long_ledger_is_read_in_pages
            a_long_ledger_is_pruned_in_steps;
        copy:
            a_copy_obeys_the_leader_that_sealed_it_last
            a_seal_returns_the_copy
            an_older_write_of_one_term_changes_nothing
            one_request_writes_and_removes_several_records
            a_new_memory_needs_a_new_seal_and_mark
            of_start_and_void_the_first_wins
            a_register_stays_with_its_assignment
            a_copy_that_was_made_later_takes_no_part
            a_key_of_a_copy_begins_with_a_letter
            a_long_copy_is_read_in_pages_of_one_seal;
        session:
            replies_come_in_the_order_of_the_requests
            a_batch_may_be_empty_or_long
            a_refused_item_affects_no_other
            batches_run_in_order_without_polling
            a_batch_is_sent_though_its_session_is_dropped
            an_abandoned_batch_does_not_run_after_its_deadline
            sessions_of_one_node_see_one_store
            a_hello_states_facts
            node_time_is_the_wall_clocks_and_goes_on;
        push:
            subscriptions_in_any_order_break_no_batch;
    };
    run(kind, make, cases).await;
}

/// Runs the cases for nodes that push a message to their clients when a resource is released. (Clients poll
/// the nodes of other kinds.) The requirements for `make` are those of [`suite`].
///
/// # Panics
///
/// If a case failed, as in [`suite`].
pub async fn pushes<N: Node>(kind: &str, make: impl FnMut() -> N) {
    let cases: &[Case<N>] = cases! {
        push:
            a_listener_receives_every_release_in_order
            every_listener_receives_a_release_its_sender_too
            a_completed_claim_is_reported
            a_release_that_frees_nothing_is_not_reported
            nothing_is_reported_after_the_subscription_ends
            a_closed_session_receives_nothing_and_blocks_no_other;
    };
    run(kind, make, cases).await;
}

/// Runs the cases, each on a fresh node from `make`.
async fn run<N: Node>(kind: &str, mut make: impl FnMut() -> N, cases: &[Case<N>]) {
    let mut failed = Vec::new();
    for (name, case) in cases {
        if AssertUnwindSafe(case(make())).catch_unwind().await.is_err() {
            failed.push(*name);
        }
    }
    assert!(
        failed.is_empty(),
        "{kind}: {} of {} cases failed: {}",
        failed.len(),
        cases.len(),
        failed.join(", ")
    );
}
