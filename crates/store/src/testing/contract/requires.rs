//! A batch happens if all it requires is so.

use super::Bed;
use crate::testing::batches::{add, batch, bit, bits, count, key, put, row};
use onceflow_core::{Require, Require::*, Row};

/// A batch that requires this is applied.
async fn holds(bed: &Bed, require: Require) -> bool {
    let mut asks = batch([]);
    asks.requires.push(require);
    bed.commit(asks).await.is_applied()
}

/// Each kind of require means what it says, for rows that are there, that are empty, and that are not there.
pub async fn absent_present_and_equals_test_the_row(bed: Bed) {
    bed.apply(batch([put(key("a"), row("1")), put(key("empty"), row(""))])).await;
    let table = [
        ("a", false, true, [("1", true), ("2", false), ("", false), ("1\0", false)]),
        ("empty", false, true, [("", true), ("\0", false), ("1", false), ("2", false)]),
        ("gone", true, false, [("", false), ("\0", false), ("1", false), ("2", false)]),
    ];
    for (name, absent, present, equals) in table {
        assert_eq!(holds(&bed, Absent(key(name))).await, absent, "{name} absent");
        assert_eq!(holds(&bed, Present(key(name))).await, present, "{name} present");
        for (content, equal) in equals {
            assert_eq!(holds(&bed, Equals(key(name), row(content))).await, equal, "{name} equals {content:?}");
        }
    }
}

/// Counters and bitmaps are compared like any other rows.
pub async fn counters_and_bitmaps_compare_as_bytes(bed: Bed) {
    bed.run([add(key("n"), -3, []), bit(key("b"), 9, 10, []), bit(key("b"), 0, 10, [])]).await;
    let set = bits(&[0, 9], 10).unwrap();
    for (name, is, is_not) in [("n", count(-3), count(3)), ("b", set, bits(&[0, 8], 10).unwrap())] {
        assert_eq!(bed.get(key(name)).await.as_ref(), Some(&is), "{name}");
        assert!(holds(&bed, Present(key(name))).await, "{name}");
        assert!(holds(&bed, Equals(key(name), is)).await, "{name}");
        assert!(!holds(&bed, Equals(key(name), is_not)).await, "{name}");
        assert!(!holds(&bed, Absent(key(name))).await, "{name}");
    }
}

/// The answer names the first require that does not hold and the content of its row, so that the caller need not read
/// it.
pub async fn a_refusal_returns_the_first_failed_require_and_its_row(bed: Bed) {
    bed.apply(batch([put(key("a"), row("1")), put(key("b"), row("2"))])).await;
    let refused = async |requires: Vec<Require>| -> (usize, Option<Row>) {
        let mut asks = batch([]);
        asks.requires = requires;
        let refused = bed.refuse(asks).await;
        (refused.which, refused.found)
    };
    assert_eq!(refused(vec![Absent(key("a"))]).await, (0, Some(row("1"))));
    assert_eq!(refused(vec![Present(key("c"))]).await, (0, None));
    assert_eq!(refused(vec![Equals(key("b"), row("1"))]).await, (0, Some(row("2"))));
    assert_eq!(refused(vec![Equals(key("c"), row(""))]).await, (0, None));
    let two = vec![Present(key("a")), Equals(key("b"), row("2")), Present(key("c")), Absent(key("a"))];
    assert_eq!(refused(two).await, (2, None));
}

/// A refused batch changed nothing: no row, no trigger, no claim.
pub async fn a_refused_batch_changes_nothing(bed: Bed) {
    use crate::testing::batches::{SHARD, delete, delete_group, group, ready};
    bed.run([put(key("a"), row("1")), add(key("n"), 1, []), ready("lane")]).await;
    let before = bed.everything(SHARD).await;
    let mut batch = bed.once([
        put(key("a"), row("2")),
        add(key("n"), -1, [put(key("fired"), row(""))]),
        bit(key("b"), 0, 2, []),
        delete_group(group()),
        delete(crate::testing::batches::queue().key("lane")),
        ready("other"),
    ]);
    batch.require_absent(key("a")).claim(bed.claim(onceflow_core::Pick::EnabledFirst));
    assert_eq!(bed.refuse(batch).await.which, 1);
    assert_eq!(bed.everything(SHARD).await, before);
    assert_eq!(bed.take_all().await, "lane");
}

/// Requires see the rows as they were before the batch, not as its operations leave them.
pub async fn requires_see_the_rows_before_the_batch(bed: Bed) {
    let mut first = batch([put(key("a"), row("1"))]);
    first.require_absent(key("a"));
    bed.apply(first.clone()).await;
    assert_eq!(bed.refuse(first).await.found, Some(row("1")));
    let mut second = batch([put(key("b"), row("1"))]);
    second.require_present(key("b"));
    assert_eq!(bed.refuse(second).await.found, None);
}

/// A batch without operations asks; a batch without anything happens too.
pub async fn an_empty_batch_is_applied_and_changes_nothing(bed: Bed) {
    bed.apply(batch([put(key("a"), row("1"))])).await;
    let done = bed.apply(batch([])).await;
    assert!(done.fired.is_empty() && done.claimed.is_none());
    assert_eq!(bed.get(key("a")).await, Some(row("1")));
}
