//! A number that is changed by batches; when a batch leaves it at zero, its trigger fires once.

use super::Bed;
use crate::testing::batches::*;

/// Absent is zero; the row is there while the number is another.
pub async fn a_counter_starts_at_zero_and_is_deleted_at_zero(bed: Bed) {
    let mut sum = 0;
    for delta in [5, -2, i64::from(i32::MAX), -1000, 7] {
        sum += delta;
        assert_eq!(bed.run([add(key("n"), delta, [put(key("zero"), row(""))])]).await.fired, []);
        assert_eq!(bed.get(key("n")).await, Some(count(sum)));
    }
    assert_eq!(bed.run([add(key("n"), -sum, [put(key("zero"), row(""))])]).await.fired, [key("n")]);
    assert_eq!(bed.names(group()).await, "zero");
}

/// A number below zero is a number like others.
pub async fn a_counter_may_be_negative(bed: Bed) {
    bed.run([add(key("n"), -1, [])]).await;
    assert_eq!(bed.get(key("n")).await, Some(count(-1)));
    assert_eq!(bed.run([add(key("n"), 1, [])]).await.fired, [key("n")]);
}

/// On the way through a batch, zero is a number like others.
pub async fn passing_through_zero_within_a_batch_does_not_fire(bed: Bed) {
    let step = |delta| add(key("n"), delta, [put(key("zero"), row(""))]);
    bed.run([step(2)]).await;
    for (deltas, left) in [(vec![-2, 1], 1), (vec![-1, 2], 2), (vec![-5, 4, -1, 3], 3)] {
        assert_eq!(bed.run(deltas.iter().map(|delta| step(*delta))).await.fired, [], "{deltas:?}");
        assert_eq!(bed.get(key("n")).await, Some(count(left)), "{deltas:?}");
    }
    assert_eq!(bed.get(key("zero")).await, None);
}

/// However often a batch changes it, it fires once.
pub async fn several_changes_that_end_at_zero_fire_once(bed: Bed) {
    let step = |delta| add(key("n"), delta, [add(key("fired"), 1, [])]);
    assert_eq!(bed.run([step(3), step(-3), step(1), step(-1)]).await.fired, [key("n")]);
    assert_eq!(bed.get(key("fired")).await, Some(count(1)));
}

/// Adding nothing to nothing is zero: a fan-in of none is complete in the batch that makes it.
pub async fn adding_zero_to_an_absent_counter_fires(bed: Bed) {
    assert_eq!(bed.run([add(key("n"), 0, [put(key("zero"), row(""))])]).await.fired, [key("n")]);
    assert_eq!(bed.names(group()).await, "zero");
    bed.run([add(key("n"), 1, [])]).await;
    assert_eq!(bed.run([add(key("n"), 0, [])]).await.fired, []);
}

/// A put or a delete after the last change, in the same batch, counts.
pub async fn a_trigger_depends_on_the_row_at_the_end_of_the_batch(bed: Bed) {
    let zero = || add(key("n"), 0, [put(key("zero"), row(""))]);
    assert_eq!(bed.run([zero(), delete(key("n"))]).await.fired, []);
    assert_eq!(bed.run([zero(), put(key("n"), count(4))]).await.fired, []);
    assert_eq!(bed.run([zero(), put(key("n"), row("text"))]).await.fired, []);
    assert_eq!(bed.run([delete_group(group()), zero(), delete_group(group())]).await.fired, []);
    assert_eq!(bed.names(group()).await, "");
}
