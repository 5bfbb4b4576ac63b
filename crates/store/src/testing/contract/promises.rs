//! The list of all promises, from which both the tests and [`PROMISES`] are made.

use super::{Promise, *};

/// Calls a macro with all promises, by the file they stand in.
#[doc(hidden)]
#[macro_export]
macro_rules! __each_promise {
    ([$($then:tt)*] $($with:tt)*) => {
        $($then)*! { [$($with)*]
            all_or_nothing {
                operations_apply_in_order
                an_invalid_batch_is_rolled_back_wherever_it_fails
                arithmetic_on_a_row_of_another_type_is_invalid
                counter_overflow_is_invalid
                deleting_a_group_deletes_exactly_its_rows
                shards_are_isolated
            }
            bits {
                the_last_missing_bit_fires_once_and_deletes_the_bitmap
                a_bitmap_of_one_bit_fires_at_once
                all_bits_in_one_batch_fire_once
                a_bitmap_that_fired_starts_empty_again
                bitmaps_of_every_size_up_to_the_limit_fill
                a_bitmap_deleted_later_in_the_batch_does_not_fire
            }
            claims {
                a_claim_stores_its_fence_and_deadline
                a_deadline_is_store_time_plus_ttl
                a_new_claim_replaces_a_stale_deadline
                a_claim_returns_the_inbox_rows_in_order
                an_inbox_may_be_any_group_and_prefix
                a_long_inbox_is_truncated_and_reports_more
                a_stale_fence_is_refused
            }
            contention {
                concurrent_counter_updates_are_exact_and_fire_once
                concurrent_bitmap_updates_fire_once
                one_of_many_conditional_writers_wins
                concurrent_claims_take_each_row_once
                concurrent_batches_have_distinct_positions
                concurrent_reads_never_see_half_a_batch
            }
            counters {
                a_counter_starts_at_zero_and_is_deleted_at_zero
                a_counter_may_be_negative
                passing_through_zero_within_a_batch_does_not_fire
                several_changes_that_end_at_zero_fire_once
                adding_zero_to_an_absent_counter_fires
                a_trigger_depends_on_the_row_at_the_end_of_the_batch
            }
            limits {
                an_oversized_batch_is_invalid
                triggers_nested_too_deep_are_invalid
                rows_up_to_the_size_limit_are_stored
                names_up_to_the_length_limit_are_stored
                a_bit_outside_its_bitmap_is_invalid
                a_get_of_too_many_keys_is_invalid
                a_queue_takes_inboxes_only
                conflicting_triggers_of_one_row_are_invalid
            }
            queues {
                a_row_is_claimed_once_and_an_empty_claim_is_not_refused
                deleting_a_claim_frees_its_row
                a_finished_row_is_never_claimed_again
                a_claim_outlives_its_row_and_holds_a_new_one
                a_claim_written_as_a_row_holds_its_row
                deleting_a_queue_deletes_its_free_rows_and_keeps_its_claims
                a_claim_sees_the_writes_of_its_own_batch
                queues_are_tried_in_the_order_given
            }
            reads {
                get_returns_rows_in_the_order_of_the_keys
                any_bytes_round_trip
                names_sort_bytewise
                every_scan_equals_a_filter_over_all_rows
                a_scan_returns_rows_of_its_group_only
                scan_pages_are_bounded_and_resume_after_the_last_name
            }
            repeats {
                a_repeated_batch_is_refused_or_changes_nothing
                puts_and_deletes_are_idempotent_without_requires
                a_batch_that_is_not_idempotent_is_invalid_in_debug_builds
            }
            requires {
                absent_present_and_equals_test_the_row
                counters_and_bitmaps_compare_as_bytes
                a_refusal_returns_the_first_failed_require_and_its_row
                a_refused_batch_changes_nothing
                requires_see_the_rows_before_the_batch
                an_empty_batch_is_applied_and_changes_nothing
            }
            rounds {
                triggers_fire_after_all_operations_of_the_batch
                a_later_operation_can_keep_a_trigger_from_firing
                triggers_fire_nested_triggers
                fired_rows_are_returned_round_by_round_in_order
                a_counter_raised_by_a_full_bitmap_does_not_fire
                counters_fire_only_when_no_bitmap_is_full
                bitmaps_filled_by_a_counter_fire_before_further_counters
                changes_of_one_round_are_summed_before_firing
                a_row_may_fire_again_in_a_later_round
                complete_rows_are_deleted_before_their_triggers_run
                a_batch_can_claim_a_row_that_its_trigger_enabled
            }
            time {
                positions_increase_with_every_change
                a_refusal_carries_the_position_it_was_decided_at
                every_reply_becomes_durable
                durability_waits_are_concurrent_and_cancellable
                store_time_is_monotonic
                store_time_advances
            }
            turns {
                lanes_are_served_round_robin
                a_name_shorter_than_a_lane_is_its_own_lane
                round_robin_wraps_after_the_last_name
                a_busy_lane_does_not_starve_another
                claiming_an_enabled_row_advances_the_round_robin
                enabled_first_claims_the_row_the_batch_enabled
                enabled_first_follows_batch_order_not_name_order
                a_row_whose_claim_is_deleted_counts_as_enabled
            }
            waits {
                a_freed_row_ends_the_wait
                an_unclaimed_second_row_ends_the_wait
                a_row_freed_between_seen_and_wait_is_not_missed
                a_wait_ends_at_its_deadline
                all_waiters_wake_and_cancelled_ones_leave_nothing
                a_batch_that_rings_ends_the_wait
                a_freed_row_wakes_the_waiters_of_its_shard
            }
        }
    };
}

/// Makes a module of tests, one for every promise. Each is one call, so that a promise is compiled once for all backends.
#[doc(hidden)]
#[macro_export]
macro_rules! __promise_tests {
    ([] $($file:ident { $($promise:ident)* })*) => {
        $(mod $file {
            $(#[test]
            fn $promise() {
                let name = concat!(stringify!($file), "::", stringify!($promise));
                $crate::testing::contract::hold(&super::__make_records, name);
            })*
        })*
    };
}

macro_rules! list {
    ([] $($file:ident { $($promise:ident)* })*) => {
        /// Every promise, in the order of the files they stand in.
        pub const PROMISES: &[Promise] = &[$($((
            concat!(stringify!($file), "::", stringify!($promise)),
            |bed| Box::pin($file::$promise(bed)),
        ),)*)*];
    };
}
crate::__each_promise! { [list] }

/// Holds a backend to every promise of [`Records`](crate::Records): a module of that name, with a test for each.
/// See [`testing::contract`](crate::testing::contract).
#[macro_export]
macro_rules! records_contract {
    ($name:ident, $make:expr) => {
        $crate::records_contract!($name, $make, seeds: $crate::testing::oracle::SEEDS);
    };
    ($name:ident, $make:expr, seeds: $seeds:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "what the closure needs is known to its writer")]
            use super::*;
            fn __make_records(
                world: ::std::sync::Arc<$crate::testing::world::TestWorld>,
            ) -> $crate::testing::contract::Making {
                $crate::testing::contract::boxed($make, world)
            }
            $crate::__each_promise! { [$crate::__promise_tests] }
            #[test]
            fn random_batches_do_what_the_model_does() {
                $crate::testing::oracle::hold(&__make_records, $seeds);
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every promise that is written is also listed, or no backend would be held to it.
    #[test]
    fn every_promise_is_listed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing/contract");
        let mut written = Vec::new();
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let module = file.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            written.extend(names.map(|name| format!("{module}::{name}")));
        }
        let mut listed: Vec<_> = PROMISES.iter().map(|promise| promise.0.to_owned()).collect();
        written.sort();
        listed.sort();
        assert_eq!(written, listed);
    }
}
