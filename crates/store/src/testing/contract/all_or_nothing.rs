//! A batch happens as a whole or not at all, its operations in order.

use super::Bed;
use crate::testing::batches::*;
use onceflow_core::{Op, Pick, Shard, batch::Invalid};

/// Each operation works on the rows that the ones before it left.
pub async fn operations_apply_in_order(bed: Bed) {
    let check = async |ops: Vec<Op>, left: Option<&str>| {
        bed.run([put(key("a"), row("old"))]).await;
        bed.run(ops.clone()).await;
        assert_eq!(bed.get(key("a")).await, left.map(row), "{ops:?}");
    };
    let (one, two) = (|| put(key("a"), row("1")), || put(key("a"), row("2")));
    check(vec![one(), two()], Some("2")).await;
    check(vec![one(), delete(key("a"))], None).await;
    check(vec![delete(key("a")), one()], Some("1")).await;
    check(vec![one(), delete_group(group())], None).await;
    check(vec![delete_group(group()), one()], Some("1")).await;
    check(vec![one(), delete_group(group()), two(), delete(key("b"))], Some("2")).await;
    bed.run([put(key("a"), count(5)), add(key("a"), 2, []), put(key("b"), row("")), delete(key("b"))]).await;
    assert_eq!(bed.get(key("a")).await, Some(count(7)));
    bed.run([delete(key("a")), add(key("a"), 2, []), bit(key("b"), 1, 2, [])]).await;
    assert_eq!(bed.get(key("a")).await, Some(count(2)));
}

/// A batch found wrong half-way leaves no trace, wherever the mistake is and whatever was done before it.
pub async fn an_invalid_batch_is_rolled_back_wherever_it_fails(bed: Bed) {
    let one = inputs().key("text");
    bed.run([put(one.clone(), row("1")), put(key("n"), count(1)), put(key("old"), row("")), ready("a"), ready("b")])
        .await;
    bed.run([bit(key("set"), 0, 2, [])]).await;
    bed.take(Pick::InTurn).await.expect("a row is free");
    let before = bed.everything(SHARD).await;
    let wrong = || add(one.clone(), 1, []);
    let fires_wrong = |then: Vec<Op>| vec![add(key("n"), -1, then)];
    let busy = || {
        vec![
            put(key("new"), row("")),
            delete(key("old")),
            bit(key("set"), 1, 2, [put(key("full"), row(""))]),
            delete_group(group()),
            put(key("old"), row("2")),
            ready("c"),
            delete(queue().key("a")),
            delete_group(queue().claims()),
            delete_group(queue().deadlines()),
            delete_group(queue()),
            ready("d"),
        ]
    };
    let mistakes = [
        [busy(), vec![wrong()]].concat(),
        [busy(), vec![bit(one.clone(), 0, 2, [])]].concat(),
        [busy(), vec![put(key("n"), count(1))], fires_wrong([busy(), vec![wrong()]].concat())].concat(),
        fires_wrong(vec![add(key("m"), 0, [busy(), vec![wrong()]].concat())]),
        [busy(), vec![put(key("max"), count(i64::MAX)), add(key("max"), 1, [])]].concat(),
    ];
    for ops in mistakes {
        let mut batch = bed.once(ops);
        batch.claim(bed.claim(Pick::EnabledFirst));
        bed.wrong(batch).await;
        assert_eq!(bed.everything(SHARD).await, before);
    }
    assert_eq!(bed.take_all().await, "b", "what was free is free, what was claimed is claimed");
}

/// A row that is computed with must be a counter, or a bitmap of the same size.
pub async fn arithmetic_on_a_row_of_another_type_is_invalid(bed: Bed) {
    let set = bits(&[0], 3).unwrap();
    let stray = row([2, 0, 0, 0, 0b101]);
    bed.run([put(key("text"), row("1234567")), put(key("set"), set.clone()), put(key("n"), count(4))]).await;
    bed.run([put(key("stray"), stray)]).await;
    for op in [
        add(key("text"), 1, []),
        add(key("set"), 1, []),
        bit(key("n"), 0, 3, []),
        bit(key("text"), 0, 3, []),
        bit(key("set"), 0, 4, []),
        bit(key("set"), 0, 2, []),
        bit(key("set"), 1, 30, []),
        bit(key("stray"), 0, 2, []),
    ] {
        let invalid = bed.wrong(bed.once([op])).await;
        assert!(matches!(invalid, Invalid::WrongContent { .. }), "{invalid}");
    }
    assert_eq!(bed.get(key("set")).await, Some(set));
}

/// Counters go as far as 64 bits do and no further.
pub async fn counter_overflow_is_invalid(bed: Bed) {
    bed.run([put(key("max"), count(i64::MAX)), put(key("min"), count(i64::MIN))]).await;
    for (name, delta) in [("max", 1), ("min", -1), ("max", i64::MAX), ("min", i64::MIN)] {
        let invalid = bed.wrong(bed.once([add(key(name), delta, [])])).await;
        assert_eq!(invalid, Invalid::Overflow(key(name)));
    }
    bed.run([add(key("max"), i64::MIN, [])]).await;
    assert_eq!(bed.get(key("max")).await, Some(count(-1)));
}

/// A group goes with all its rows and no other; a group of another kind or with a longer id is another group.
pub async fn deleting_a_group_deletes_exactly_its_rows(bed: Bed) {
    use onceflow_core::Group;
    let (longer, shorter) = (Group::rows("gg"), Group::rows(""));
    let same_id = Group::queue("g");
    bed.run([
        put(key(""), row("1")),
        put(key("a"), row("1")),
        put(key([0xFF]), row("1")),
        add(key("n"), 1, []),
        bit(key("b"), 0, 2, []),
        put(longer.key("a"), row("1")),
        put(shorter.key("a"), row("1")),
        put(same_id.key("a"), inbox("")),
    ])
    .await;
    bed.run([delete_group(group()), delete_group(Group::rows("never was"))]).await;
    assert_eq!(bed.names(group()).await, "");
    for other in [longer, shorter, same_id] {
        assert_eq!(bed.names(other.clone()).await, "a", "{other:?}");
    }
}

/// Changes in one shard are not visible in another.
pub async fn shards_are_isolated(bed: Bed) {
    let other = Shard(1);
    let mut there = bed.once([put(key("a"), row("there")), ready("lane")]);
    there.shard = other;
    bed.apply(there).await;
    assert_eq!(bed.get(key("a")).await, None);
    assert!(bed.take(Pick::InTurn).await.is_none());
    bed.run([put(key("a"), row("here")), delete_group(queue())]).await;
    bed.run([delete_group(group())]).await;
    assert_eq!(bed.rows(other, group()).await, [(key("a"), row("there"))]);
    let mut takes = batch([]);
    takes.claim(bed.claim(Pick::InTurn)).shard = other;
    assert!(bed.apply(takes).await.claimed.is_some());
    assert_eq!(bed.rows(SHARD, queue().claims()).await, []);
}
