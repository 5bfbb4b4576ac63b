//! A batch that exceeds a limit is refused at once, naming the limit, and changes nothing; a batch at the limit works.

use super::Bed;
use crate::{
    records::{Error, Scan},
    testing::batches::*,
};
use onceflow_core::{Batch, Group, Op, Pick, Require, batch::Invalid, limits::*};

/// The name of the limit a batch is over.
async fn over(bed: &Bed, batch: Batch) -> &'static str {
    match bed.wrong(batch).await {
        Invalid::TooMany { name, .. } => name,
        other => panic!("should have named a limit, but: {other}"),
    }
}

/// Operations, also those inside triggers; requires; queues of a claim.
pub async fn an_oversized_batch_is_invalid(bed: Bed) {
    let deletes = |many| vec![delete(key("a")); many];
    let ops_max = bed.records.batch_limits().ops_max;
    bed.apply(batch(deletes(ops_max))).await;
    let name = if ops_max == BATCH_OPS_MAX { "BATCH_OPS_MAX" } else { "PLAIN_OPS_MAX" };
    assert_eq!(over(&bed, batch(deletes(ops_max + 1))).await, name);
    let nested = bed.once([add(key("n"), 1, deletes(BATCH_OPS_MAX))]);
    assert_eq!(over(&bed, nested).await, "BATCH_OPS_MAX");
    let mut asks = batch([]);
    asks.requires = vec![Require::Absent(key("a")); BATCH_REQUIRES_MAX];
    bed.apply(asks.clone()).await;
    assert_eq!(over(&bed, asks.require_absent(key("a")).clone()).await, "BATCH_REQUIRES_MAX");
    let mut claim = bed.claim(Pick::InTurn);
    claim.queues = vec![queue(); CLAIM_QUEUES_MAX];
    assert_eq!(bed.take_by(claim.clone()).await, None);
    claim.queues.push(queue());
    assert_eq!(over(&bed, batch([]).claim(claim).clone()).await, "CLAIM_QUEUES_MAX");
    assert_eq!(bed.get(key("n")).await, None);
}

/// Triggers within triggers.
pub async fn triggers_nested_too_deep_are_invalid(bed: Bed) {
    let deep = |levels: usize| (0..levels).fold(delete(key("a")), |then, level| add(key([level as u8]), 1, [then]));
    bed.run([deep(TRIGGER_DEPTH_MAX)]).await;
    assert_eq!(over(&bed, bed.once([deep(TRIGGER_DEPTH_MAX + 1)])).await, "TRIGGER_DEPTH_MAX");
}

/// Large rows are kept as they are, up to the limit; all rows of a batch together have a limit too.
pub async fn rows_up_to_the_size_limit_are_stored(bed: Bed) {
    let content = |bytes: usize| (0..bytes).map(|n| (n % 251) as u8).collect::<Vec<_>>();
    let large = || content(ROW_BYTES_MAX);
    let many: Vec<Op> = (0..BATCH_BYTES_MAX / ROW_BYTES_MAX).map(|n| put(key([n as u8]), large())).collect();
    bed.apply(batch(many.clone())).await;
    let rows = bed.rows(SHARD, group()).await;
    assert!(rows.len() == many.len() && rows.iter().all(|(_, row)| **row == *large()));
    assert_eq!(over(&bed, batch([put(key("a"), content(ROW_BYTES_MAX + 1))])).await, "ROW_BYTES_MAX");
    assert_eq!(over(&bed, batch([many, vec![put(key("a"), content(1))]].concat())).await, "BATCH_BYTES_MAX");
    assert_eq!(bed.get(key("a")).await, None);
}

/// Names and ids may be as long as the limit, wherever they stand.
pub async fn names_up_to_the_length_limit_are_stored(bed: Bed) {
    let (longest, longer) = (vec![0xAB; NAME_BYTES_MAX], vec![0xAB; NAME_BYTES_MAX + 1]);
    let here = Group::rows(&longest).key(&longest);
    bed.apply(batch([put(here.clone(), row("1"))])).await;
    assert_eq!(bed.get(here.clone()).await, Some(row("1")));
    let scan = Scan::of(here.group.clone(), 1).prefix(&longest);
    assert_eq!(bed.records.scan(SHARD, scan).await.expect("the store answers").rows.len(), 1);
    for key in [group().key(&longer), Group::rows(&longer).key("a")] {
        for op in [put(key.clone(), row("")), delete(key.clone()), add(key.clone(), 1, []), bit(key.clone(), 0, 2, [])]
        {
            assert_eq!(over(&bed, bed.once([op])).await, "NAME_BYTES_MAX");
        }
        assert_eq!(over(&bed, batch([]).require_absent(key.clone()).clone()).await, "NAME_BYTES_MAX");
    }
    assert_eq!(over(&bed, batch([delete_group(Group::rows(&longer))])).await, "NAME_BYTES_MAX");
    let mut claim = bed.claim(Pick::InTurn);
    claim.queues = vec![Group::queue(&longer)];
    assert_eq!(over(&bed, batch([]).claim(claim).clone()).await, "NAME_BYTES_MAX");
}

/// A bitmap has a most; a bit lies inside its bitmap.
pub async fn a_bit_outside_its_bitmap_is_invalid(bed: Bed) {
    let wide = bed.once([bit(key("b"), 0, BITMAP_BITS_MAX + 1, [])]);
    assert_eq!(over(&bed, wide).await, "BITMAP_BITS_MAX");
    for (n, of) in [(0, 0), (1, 1), (8, 8), (u32::MAX, 2)] {
        let invalid = bed.wrong(bed.once([bit(key("b"), n, of, [])])).await;
        assert_eq!(invalid, Invalid::BitOutside { key: key("b"), bit: n, of });
    }
}

/// One `get` may ask for so many rows and no more.
pub async fn a_get_of_too_many_keys_is_invalid(bed: Bed) {
    bed.apply(batch([put(key("a"), row("1"))])).await;
    let found = bed.records.get(SHARD, &vec![key("a"); GET_KEYS_MAX]).await.expect("the store answers");
    assert!(found.len() == GET_KEYS_MAX && found.iter().all(|found| *found == Some(row("1"))));
    let refused = bed.records.get(SHARD, &vec![key("a"); GET_KEYS_MAX + 1]).await;
    assert!(matches!(refused, Err(Error::Invalid(Invalid::TooMany { name: "GET_KEYS_MAX", .. }))), "{refused:?}");
}

/// A queue holds inboxes and nothing else; only queues are claimed from.
pub async fn a_queue_takes_inboxes_only(bed: Bed) {
    let here = queue().key("a");
    let others = [
        put(here.clone(), row("")),
        put(here.clone(), row("text")),
        add(here.clone(), 9, []),
        bit(here.clone(), 0, 9, []),
        bit(key("b"), 0, 1, [put(here.clone(), row("text"))]),
        bit(key("b"), 0, 1, [add(here.clone(), 9, [])]),
    ];
    for op in others {
        let invalid = bed.wrong(bed.once([op.clone()])).await;
        assert_eq!(invalid, Invalid::NotAnInbox(here.clone()), "{op:?}");
    }
    for group in [group(), queue().claims(), queue().deadlines()] {
        let mut claim = bed.claim(Pick::InTurn);
        claim.queues.push(group.clone());
        assert_eq!(bed.wrong(batch([]).claim(claim).clone()).await, Invalid::NotAQueue(group));
    }
}

/// Two operations on one row that want different things when it is complete contradict each other.
pub async fn conflicting_triggers_of_one_row_are_invalid(bed: Bed) {
    let one = |then: Vec<Op>| add(key("n"), 0, then);
    let nested = add(key("m"), 0, [one(vec![delete(key("a"))])]);
    for ops in [vec![one(vec![]), one(vec![delete(key("a"))])], vec![one(vec![]), nested]] {
        assert_eq!(bed.wrong(bed.once(ops)).await, Invalid::TriggersDiffer(key("n")));
    }
    assert_eq!(bed.names(group()).await, "");
}
