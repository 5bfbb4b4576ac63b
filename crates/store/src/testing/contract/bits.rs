//! A set that fills: each number may arrive any number of times; when all have, the trigger fires once.

use super::Bed;
use crate::testing::batches::*;

/// Repeated bits change nothing, and only the last missing one fires.
pub async fn the_last_missing_bit_fires_once_and_deletes_the_bitmap(bed: Bed) {
    let arrive = async |n| bed.run([bit(key("set"), n, 3, [put(key("full"), row(""))])]).await.fired;
    for n in [2, 0, 2, 2, 0] {
        assert_eq!(arrive(n).await, []);
        assert_eq!(bed.get(key("full")).await, None);
    }
    assert_eq!(bed.get(key("set")).await, bits(&[0, 2], 3));
    assert_eq!(arrive(1).await, [key("set")]);
    assert_eq!(bed.get(key("set")).await, None);
    assert_eq!(bed.get(key("full")).await, Some(row("")));
}

/// A set of one is full at once, and nothing of it is ever seen.
pub async fn a_bitmap_of_one_bit_fires_at_once(bed: Bed) {
    let done = bed.run([bit(key("set"), 0, 1, [put(key("full"), row(""))])]).await;
    assert_eq!(done.fired, [key("set")]);
    assert_eq!(bed.names(group()).await, "full");
}

/// Several bits may arrive in one batch, some of them twice; it fires once.
pub async fn all_bits_in_one_batch_fire_once(bed: Bed) {
    let one = |n| bit(key("set"), n, 3, [add(key("fired"), 1, [])]);
    let done = bed.run([one(0), one(1), one(2), one(1)]).await;
    assert_eq!(done.fired, [key("set")]);
    assert_eq!(bed.get(key("fired")).await, Some(count(1)));
}

/// After it was full, the same row is a new, empty set.
pub async fn a_bitmap_that_fired_starts_empty_again(bed: Bed) {
    for _ in 0..2 {
        for (n, fires) in [(0, false), (1, true)] {
            assert_eq!(!bed.run([bit(key("set"), n, 2, [])]).await.fired.is_empty(), fires);
        }
    }
}

/// Every size works, also those that do not end with a byte, up to the limit.
pub async fn bitmaps_of_every_size_up_to_the_limit_fill(bed: Bed) {
    let most = onceflow_core::limits::BITMAP_BITS_MAX;
    for of in [2, 7, 8, 9, 31, 32, 33, 64, most] {
        let numbers: Vec<u32> = (0..of).rev().collect();
        let (last, others) = numbers.split_last().expect("there is one");
        for some in others.chunks(1000) {
            let done = bed.run(some.iter().map(|n| bit(key("set"), *n, of, []))).await;
            assert_eq!(done.fired, [], "of {of}");
        }
        assert_eq!(bed.get(key("set")).await, bits(others, of), "of {of}");
        assert_eq!(bed.run([bit(key("set"), *last, of, [])]).await.fired, [key("set")], "of {of}");
        assert_eq!(bed.get(key("set")).await, None, "of {of}");
    }
}

/// A set that is deleted after its last bit, in the same batch, does not fire.
pub async fn a_bitmap_deleted_later_in_the_batch_does_not_fire(bed: Bed) {
    let full = || bit(key("set"), 0, 1, [put(key("full"), row(""))]);
    assert_eq!(bed.run([full(), delete(key("set"))]).await.fired, []);
    assert_eq!(bed.run([full(), delete_group(group())]).await.fired, []);
    assert_eq!(bed.names(group()).await, "");
}
