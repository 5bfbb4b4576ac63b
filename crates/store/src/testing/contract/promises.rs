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
                a_batch_found_wrong_half_way_leaves_no_trace
                computing_with_another_row_is_refused
                a_counter_that_overflows_is_refused
                deleting_a_group_deletes_its_rows_and_no_others
                shards_are_independent
            }
            bits {
                the_last_bit_fires_once_and_the_set_goes
                a_set_of_one_fires_at_once
                all_bits_in_one_batch_fire_once
                a_set_that_was_full_begins_again
                sets_of_every_size_fill
                a_set_that_is_gone_at_the_end_does_not_fire
            }
            claims {
                a_claim_leaves_its_fence_and_its_deadline
                a_deadline_is_now_and_the_time_to_live
                a_new_claim_has_a_new_deadline
                a_claim_answers_the_inbox_in_order
                an_inbox_may_be_anywhere
                a_long_inbox_is_cut_and_says_so
                a_stale_fence_is_refused
            }
            contention {
                a_contended_counter_is_exact_and_fires_once
                a_contended_set_fires_once
                one_of_many_has_the_permission
                every_row_is_claimed_by_one
                every_batch_has_a_position_of_its_own
                reads_see_whole_batches_only
            }
            counters {
                a_counter_adds_up_and_goes_at_zero
                a_counter_may_come_from_below
                passing_through_zero_does_not_fire
                several_changes_that_end_at_zero_fire_once
                adding_nothing_to_nothing_fires
                only_what_stands_at_the_end_counts
            }
            limits {
                a_batch_with_too_many_parts_is_refused
                triggers_that_are_too_deep_are_refused
                rows_may_be_as_large_as_the_limit
                names_may_be_as_long_as_the_limit
                a_bit_lies_inside_its_bitmap
                a_get_has_a_most
                a_queue_holds_inboxes_only
                triggers_of_one_row_must_agree
            }
            queues {
                a_row_is_claimed_once_and_a_claim_never_refuses
                deleting_a_claim_frees_its_row
                a_row_that_is_done_is_never_claimed_again
                a_claim_stands_without_its_row_and_holds_it_when_it_comes
                a_claim_put_by_hand_holds_its_row
                deleting_a_queue_leaves_no_free_row
                a_claim_sees_what_its_own_batch_did
                an_earlier_queue_comes_first
            }
            reads {
                get_answers_in_the_order_of_the_question
                any_bytes_survive
                names_sort_as_their_bytes
                scans_answer_what_a_loop_over_all_rows_would
                a_scan_sees_its_own_group_only
                a_long_group_is_read_page_by_page
            }
            repeats {
                a_repeated_batch_is_harmless
                fixed_rows_need_no_permission
                a_batch_that_would_act_twice_is_refused
            }
            requires {
                absent_present_and_equals_mean_what_they_say
                counters_and_bitmaps_compare_as_their_bytes
                a_refusal_names_the_first_that_does_not_hold_and_what_is_there
                a_refused_batch_changes_nothing
                requires_see_the_rows_before_the_batch
                an_empty_batch_happens_and_changes_nothing
            }
            rounds {
                triggers_fire_after_all_plain_operations
                a_later_operation_keeps_a_trigger_from_firing
                triggers_fire_triggers
                fired_rows_are_answered_round_by_round_in_order
                a_counter_that_a_full_set_raises_does_not_fire
                counters_fire_only_when_no_set_is_full
                after_counters_fired_sets_come_first_again
                one_round_is_counted_together
                a_row_may_fire_in_one_round_and_be_born_again_in_the_next
                what_is_complete_goes_before_triggers_act
                a_trigger_makes_work_ready_and_the_batch_claims_it
            }
            time {
                positions_grow_with_every_change
                a_refusal_has_the_position_it_was_decided_on
                every_answer_becomes_durable
                many_may_wait_for_durability
                now_never_goes_back
                now_goes_on
            }
            turns {
                lanes_take_turns
                short_names_are_lanes_of_their_own
                turns_go_round_at_the_end_of_all_names
                a_lane_that_is_always_ready_does_not_starve_another
                a_turn_taken_by_a_fresh_row_counts
                a_fresh_row_comes_first_if_asked_for
                the_first_fresh_row_is_the_first_in_the_batch
                a_row_given_back_is_fresh
            }
            waits {
                work_that_becomes_ready_wakes
                the_second_of_two_rows_wakes
                what_became_ready_before_the_call_is_not_missed
                a_wait_ends_at_its_time
                all_who_wait_wake_and_those_who_left_do_not_matter
                every_shard_wakes_its_own
            }
        }
    };
}

/// Makes a module of tests, one for every promise.
#[doc(hidden)]
#[macro_export]
macro_rules! __promise_tests {
    ([$make:expr] $($file:ident { $($promise:ident)* })*) => {
        $(mod $file {
            #[allow(unused_imports, reason = "what the closure needs is known to its writer")]
            use super::*;
            $(#[test]
            fn $promise() {
                $crate::testing::contract::hold($make, $crate::testing::contract::$file::$promise);
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
            $crate::__each_promise! { [$crate::__promise_tests] $make }
            #[test]
            fn random_batches_do_what_the_model_does() {
                $crate::testing::oracle::hold($make, $seeds);
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every promise that is written is also listed, or nobody would be held to it.
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
