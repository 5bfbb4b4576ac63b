//! A batch whose reply was lost is sent again. That must be harmless (rule 1 of the kernel).

use super::Bed;
use crate::testing::batches::*;
use onceflow_core::{Batch, Group, Op, Shard, batch::Invalid};

fn uses_up_what_is_there(ops: Vec<Op>) -> Batch {
    let mut batch = batch([vec![delete(key("permit"))], ops].concat());
    batch.require_present(key("permit"));
    batch
}

fn changes_what_it_compared(ops: Vec<Op>) -> Batch {
    let mut batch = batch([vec![put(key("permit"), row("used"))], ops].concat());
    batch.require_equals(key("permit"), row("unused"));
    batch
}

fn makes_what_was_not_there(ops: Vec<Op>) -> Batch {
    once("this", ops)
}

fn deletes_the_group_it_asked_about(ops: Vec<Op>) -> Batch {
    let mut batch = batch([vec![delete_group(group())], ops].concat());
    batch.require_present(key("permit"));
    batch
}

/// A second, identical batch is refused or changes nothing, whatever its shape.
pub async fn a_repeated_batch_is_refused_or_changes_nothing(bed: Bed) {
    let shapes: Vec<Vec<Op>> = vec![
        vec![],
        vec![put(key("a"), row("1")), delete(key("b"))],
        vec![add(key("n"), 1, [])],
        vec![add(key("n"), 0, [put(key("a"), row("1"))])],
        vec![bit(key("set"), 0, 1, [add(key("n"), 1, [])])],
        vec![bit(key("set"), 1, 2, []), add(key("n"), -1, [add(key("m"), 5, [])])],
        vec![add(key("n"), 0, [bit(key("set"), 0, 1, [ready("work")])]), delete(inputs().key("old"))],
        vec![ready("work"), delete(queue().key("old")), delete(queue().claims().key("old"))],
        vec![delete_group(queue()), delete_group(inputs()), ready("work")],
    ];
    let permits =
        [uses_up_what_is_there, changes_what_it_compared, makes_what_was_not_there, deletes_the_group_it_asked_about];
    let mut shards = (0..).map(Shard);
    for permit in permits {
        for shape in &shapes {
            let shard = shards.next().expect("there are more shards than shapes");
            let at = |batch: Batch| Batch { shard, ..batch };
            let old = [put(key("permit"), row("unused")), put(inputs().key("old"), row("")), ready("old")];
            bed.apply(at(batch(old))).await;
            bed.apply(at(permit(shape.clone()))).await;
            let after = bed.everything(shard).await;
            let again = bed.commit(at(permit(shape.clone()))).await;
            assert_eq!(bed.everything(shard).await, after, "{again:?}: {shape:?}");
        }
    }
}

/// Fixed puts and deletes need no permission: they may be sent twice as they are.
pub async fn puts_and_deletes_are_idempotent_without_requires(bed: Bed) {
    let fixed = batch([put(key("a"), row("1")), delete(key("b")), delete_group(Group::rows("h")), ready("work")]);
    bed.apply(fixed.clone()).await;
    let after = bed.everything(SHARD).await;
    bed.apply(fixed).await;
    assert_eq!(bed.everything(SHARD).await, after);
}

/// In debug builds, a batch that would act twice is refused before it acts once.
pub async fn a_batch_that_is_not_idempotent_is_invalid_in_debug_builds(bed: Bed) {
    if !cfg!(debug_assertions) {
        return;
    }
    bed.apply(batch([put(key("permit"), row("unused"))])).await;
    let before = bed.everything(SHARD).await;
    let bare = batch([add(key("n"), 1, [])]);
    let mut unused = batch([bit(key("set"), 0, 2, [])]);
    unused.require_present(key("permit"));
    let restored = uses_up_what_is_there(vec![put(key("permit"), row("unused")), add(key("n"), 1, [])]);
    let restored_by_trigger = uses_up_what_is_there(vec![bit(key("set"), 0, 1, [put(key("permit"), row("unused"))])]);
    for batch in [bare, unused, restored, restored_by_trigger] {
        let invalid = bed.wrong(batch).await;
        assert!(matches!(invalid, Invalid::NotRepeatable(_)), "{invalid}");
        assert_eq!(bed.everything(SHARD).await, before);
    }
}
