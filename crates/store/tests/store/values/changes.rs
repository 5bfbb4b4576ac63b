//! Values changed inside a batch of the caller's: as if an update had done it, in the same moment as everything else.

use super::bed::{Bed, SHARD, each_store, each_store_at_hand, root};
use onceflow_store::{
    CommitResult, Committed,
    blobs::{Blobs, Objects},
    core::{Batch, Digest, Group, Name, Op, Row, payload::Stored},
    testing::random::Random,
    values::{Content, EdgeName, Element, Error, Value, ValueChange, ValueId, Values, limits::INLINE_VALUE_BYTES_MAX},
    world::World,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

static STEPS: AtomicU64 = AtomicU64::new(0);

/// The batch of a step: it uses up its permission.
pub(crate) fn step() -> Batch {
    let permit = Group::rows("steps").key(STEPS.fetch_add(1, Relaxed).to_be_bytes());
    let mut batch = Batch::new(SHARD);
    batch.require_absent(permit.clone()).put(permit, Row::default());
    batch
}

pub(crate) fn put(id: &str, refs: &[&str]) -> ValueChange {
    let refs = refs.iter().map(|id| ValueId::from(*id)).collect();
    ValueChange::Put { id: id.into(), value: Value { refs, content: Content::Inline(id.into()) } }
}

pub(crate) fn set(edge: &str, to: &str) -> ValueChange {
    ValueChange::Set { edge: root(edge), to: to.into(), deadline: None }
}

pub(crate) fn clear(edge: &str, from: &str) -> ValueChange {
    ValueChange::Clear { edge: root(edge), from: from.into(), deadline: None }
}

/// Elements 0, 1, … of `list`: `=text` is the bytes themselves.
pub(crate) fn elements(from: u64, elements: &[&str]) -> Vec<ValueChange> {
    let element = |text: &&str| match text.strip_prefix('=') {
        Some(bytes) => Element::Inline(Row::new(bytes)),
        None => Element::Ref((*text).into()),
    };
    let change = |(index, text)| ValueChange::Element { prefix: Name::new("list"), index, element: element(text) };
    (from..).zip(elements).map(change).collect()
}

pub(crate) fn gather(id: &str, n: u64) -> ValueChange {
    ValueChange::gather(id.into(), Name::new("list"), n, Digest::default())
}

fn ops(ops: &[Op]) -> usize {
    ops.iter().map(|op| 1 + self::ops(op.trigger())).sum()
}

async fn commit(bed: &Bed, batch: Batch) -> Committed {
    let CommitResult::Applied(committed) = bed.records.commit(batch).await.unwrap() else { panic!("refused") };
    bed.fsck().await;
    committed
}

async fn commit_changes(bed: &Bed, changes: &[ValueChange]) -> Committed {
    let mut batch = step();
    bed.values.add_changes(&mut batch, changes).await.unwrap();
    let most: usize = changes.iter().map(ValueChange::ops).sum();
    assert!(ops(&batch.ops[1..]) <= most, "{changes:?}");
    commit(bed, batch).await
}

#[tokio::test]
async fn a_life_of_values_woven_into_steps() {
    each_store(async |bed| {
        commit_changes(bed, &[put("a", &[]), put("p", &["a", "a"]), set("R", "p")]).await;
        commit_changes(bed, &[put("q", &["p"]), set("S", "q"), set("T", "a"), clear("R", "p")]).await;
        assert_eq!(bed.left().await, "a p q");
        commit_changes(bed, &[clear("S", "q"), set("U", "a"), clear("T", "a")]).await;
        assert_eq!(bed.left().await, "a");
        commit_changes(bed, &[clear("U", "a")]).await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn moving_a_value_between_edges_changes_no_count() {
    each_store(async |bed| {
        commit_changes(bed, &[put("a", &[]), set("R", "a")]).await;
        let mut batch = step();
        batch.ops.extend(bed.values.blind_ops(&[set("S", "a"), clear("R", "a")]));
        assert!(batch.ops.iter().all(|op| matches!(op, Op::Put(..) | Op::Delete(_))), "{batch:?}");
        assert_eq!(commit(bed, batch).await.fired, []);
        commit_changes(bed, &[clear("S", "a")]).await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn an_unreferenced_value_is_garbage_from_birth() {
    each_store(async |bed| {
        commit_changes(bed, &[put("a", &[]), put("b", &["a"]), set("R", "b"), put("c", &[])]).await;
        assert_eq!(bed.left().await, "a b");
        commit_changes(bed, &[put("d", &[]), set("S", "d"), set("T", "d")]).await;
        commit_changes(bed, &[clear("T", "d"), clear("S", "d"), clear("R", "b")]).await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_refused_step_leaves_nothing() {
    each_store(async |bed| {
        commit_changes(bed, &[put("a", &[]), set("R", "a")]).await;
        let mut batch = step();
        batch.require_present(Group::rows("steps").key("never"));
        batch.ops.extend(bed.values.blind_ops(&[put("b", &["a"]), set("S", "b"), clear("R", "a")]));
        assert!(!bed.records.commit(batch).await.unwrap().is_applied());
        assert_eq!(bed.left().await, "a");
        assert_eq!(bed.values.edge(&root("R")).await.unwrap(), Some("a".into()));
    })
    .await;
}

#[tokio::test]
async fn a_lease_is_woven_with_its_deadline() {
    each_store(async |bed| {
        let deadline = Some(bed.records.now().await.unwrap().plus_ms(1_000));
        let lease = |name: &str| ValueChange::Set { edge: root(name), to: "a".into(), deadline };
        commit_changes(bed, &[put("a", &[]), lease("L"), lease("M")]).await;
        assert_eq!(bed.drain().await.next_deadline, deadline);
        commit_changes(bed, &[ValueChange::Clear { edge: root("L"), from: "a".into(), deadline }]).await;
        bed.world.advance(1_000);
        bed.is_empty().await;
    })
    .await;
}

/// The last to acknowledge clears the producer's edge, and the same batch may set another to the same value.
#[tokio::test]
async fn changes_may_be_in_triggers() {
    each_store(async |bed| {
        commit_changes(bed, &[put("a", &[]), set("port", "a")]).await;
        let ack = |bit| {
            let mut batch = step();
            let then = bed.values.blind_ops(&[clear("port", "a")]);
            batch.set_bit(Group::rows("steps").key("acks"), bit, 2, then);
            batch
        };
        commit(bed, ack(0)).await;
        let mut last = ack(1);
        last.ops.extend(bed.values.blind_ops(&[set("next", "a")]));
        commit(bed, last).await;
        assert_eq!(bed.left().await, "a");
        // The batch clears one edge, and the trigger of a full set adds another: the count was never at zero.
        let mut passes = step();
        passes.ops.extend(bed.values.blind_ops(&[clear("next", "a")]));
        passes.set_bit(Group::rows("steps").key("join"), 0, 1, bed.values.blind_ops(&[set("last", "a")]));
        let fired = commit(bed, passes).await.fired;
        assert_eq!(fired, [Group::rows("steps").key("join")]);
        assert_eq!(bed.left().await, "a");
        commit_changes(bed, &[clear("last", "a")]).await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn the_reclaim_loop_notices_what_a_step_left() {
    each_store_at_hand(async |bed| {
        let run = bed.values.clone().reclaim_forever();
        bed.world.spawn("reclaim", Box::pin(async { panic!("the reclaim loop ended: {}", run.await) }));
        super::leases::settle().await;
        for changes in [vec![put("a", &[])], vec![put("b", &[]), set("R", "b")], vec![clear("R", "b")]] {
            let mut batch = step();
            batch.ops.extend(bed.values.blind_ops(&changes));
            let CommitResult::Applied(committed) = bed.records.commit(batch).await.unwrap() else { panic!("refused") };
            bed.values.notify_committed(&committed);
            super::leases::settle().await;
        }
        assert_eq!(bed.values.rows().await.unwrap(), []);
    })
    .await;
}

#[test]
#[cfg(debug_assertions)]
fn a_contradictory_value_change_panics_in_debug_builds() {
    let values = Values::new(
        Arc::new(onceflow_store::backend::memory::Memory::new(onceflow_store::testing::world::TestWorld::new(1))),
        onceflow_store::testing::world::TestWorld::new(1),
        SHARD,
    );
    let late = |mut first: Vec<ValueChange>| {
        first.splice(0..0, [gather("l", 1)]);
        first
    };
    for changes in [
        vec![set("R", "a"), put("a", &[])],
        vec![put("b", &["a"]), put("a", &[])],
        vec![put("a", &["a"])],
        vec![put("a", &[]), put("a", &[])],
        vec![put("a", &[]), clear("R", "a")],
        vec![set("R", "a"), clear("R", "b")],
        late(elements(0, &["=x"])),
        late(vec![gather("m", 1)]),
    ] {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| values.blind_ops(&changes)));
        assert!(outcome.is_err(), "{changes:?}");
    }
}

fn with_blobs(bed: &Bed) -> (Values, Arc<dyn Blobs>) {
    let objects: Arc<dyn Blobs> = Arc::new(Objects::memory());
    (Values::new(bed.records.clone(), bed.world.clone(), SHARD).with_blobs(objects.clone()), objects)
}

#[tokio::test]
async fn bytes_of_any_size_are_read_back() {
    each_store(async |bed| {
        let (values, objects) = with_blobs(bed);
        for (size, stored) in [(0, 0), (INLINE_VALUE_BYTES_MAX, 0), (INLINE_VALUE_BYTES_MAX + 1, 1)] {
            let bytes: Vec<u8> = (0..size).map(|n| n as u8).collect();
            let (change, value) = values.put_bytes(bytes.clone()).await.unwrap();
            assert_eq!((value.digest, value.len), (Digest::of(&bytes), size as u64));
            let id = value.id;
            let set = ValueChange::Set { edge: root("R"), to: id.clone(), deadline: None };
            let mut batch = step();
            values.add_changes(&mut batch, &[change, set]).await.unwrap();
            assert!(bed.records.commit(batch).await.unwrap().is_applied());
            while values.reclaim(bed.budget).await.unwrap().more {}
            assert_eq!(values.read_all(&id).await.unwrap(), bytes);
            assert_eq!(objects.list(None, 9).await.unwrap().objects.len(), stored);
            let mut batch = step();
            batch.ops.extend(values.blind_ops(&[ValueChange::clear(root("R"), id)]));
            assert!(bed.records.commit(batch).await.unwrap().is_applied());
            while values.reclaim(bed.budget).await.unwrap().more {}
            assert_eq!(values.rows().await.unwrap(), []);
            assert_eq!(objects.list(None, 9).await.unwrap().objects.len(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_blob_that_is_there_is_referred_to_and_one_that_went_meanwhile_is_decided_again() {
    each_store_at_hand(async |bed| {
        let (values, objects) = with_blobs(bed);
        let bytes = vec![7; INLINE_VALUE_BYTES_MAX + 1];
        let (one, Stored { id, .. }) = values.put_bytes(bytes.clone()).await.unwrap();
        let (two, ..) = values.put_bytes(bytes.clone()).await.unwrap();
        let set = |edge: &str| ValueChange::Set { edge: root(edge), to: id.clone(), deadline: None };
        // Both are decided before either happens: one of them is refused.
        let (mut first, mut second) = (step(), step());
        values.add_changes(&mut first, &[one, set("R")]).await.unwrap();
        values.add_changes(&mut second, &[two.clone(), set("S")]).await.unwrap();
        assert!(bed.records.commit(first).await.unwrap().is_applied());
        assert!(!bed.records.commit(second).await.unwrap().is_applied());
        let mut again = step();
        values.add_changes(&mut again, &[two.clone(), set("S")]).await.unwrap();
        // The one that was there goes in between.
        let mut clears = step();
        clears.ops.extend(values.blind_ops(&[ValueChange::clear(root("R"), id.clone())]));
        assert!(bed.records.commit(clears).await.unwrap().is_applied());
        while values.reclaim(usize::MAX).await.unwrap().more {}
        assert!(!bed.records.commit(again).await.unwrap().is_applied());
        let mut last = step();
        values.add_changes(&mut last, &[two, set("S")]).await.unwrap();
        assert!(bed.records.commit(last).await.unwrap().is_applied());
        while values.reclaim(usize::MAX).await.unwrap().more {}
        assert_eq!(values.read_all(&id).await.unwrap(), bytes);
        assert_eq!(objects.list(None, 9).await.unwrap().objects.len(), 1);
        let report = values.fsck(onceflow_store::values::fsck::Mode::Check).await.unwrap();
        assert!(report.is_clean(), "{report}");
    })
    .await;
}

#[tokio::test]
async fn an_upload_that_was_lost_is_said_so_and_the_batch_is_as_it_was() {
    each_store_at_hand(async |bed| {
        let (values, _) = with_blobs(bed);
        let (blob, Stored { id, .. }) = values.put_bytes(vec![1; INLINE_VALUE_BYTES_MAX + 1]).await.unwrap();
        bed.world.advance(onceflow_store::values::limits::UPLOAD_MS_MAX);
        while values.reclaim(usize::MAX).await.unwrap().more {}
        let mut batch = step();
        let before = batch.clone();
        let set = ValueChange::Set { edge: root("R"), to: id, deadline: None };
        let lost = values.add_changes(&mut batch, &[blob, set]).await;
        assert!(matches!(lost, Err(Error::UploadLost { .. })), "{lost:?}");
        assert_eq!(batch, before);
    })
    .await;
}

/// The edges and values a run holds, as an engine would know them.
#[derive(Default)]
struct Held {
    edges: BTreeMap<String, ValueId>,
    named: u64,
}

impl Held {
    /// Changes that an engine could make: they refer to held values or to values they put.
    fn changes(&mut self, values: &Values, random: &mut Random) -> Vec<ValueChange> {
        let mut changes = vec![];
        let mut known: Vec<ValueId> = self.edges.values().cloned().collect();
        for _ in 0..random.below(4) {
            let refs =
                (0..random.below(3)).filter(|_| !known.is_empty()).map(|_| random.pick(&known).clone()).collect();
            let id = values.fresh_id();
            changes.push(ValueChange::Put { id: id.clone(), value: Value { refs, content: Content::Inline(vec![]) } });
            known.push(id);
        }
        if random.percent(30) {
            self.named += 1;
            let prefix = Name::new(format!("list {}", self.named));
            let n = random.below(4) as u64;
            for index in 0..n {
                let inline = known.is_empty() || random.percent(50);
                let bytes = Row::new(index.to_be_bytes());
                let element = if inline { Element::Inline(bytes) } else { Element::Ref(random.pick(&known).clone()) };
                changes.push(ValueChange::Element { prefix: prefix.clone(), index, element });
            }
            let id = values.fresh_id();
            if random.percent(80) {
                changes.push(ValueChange::gather(id.clone(), prefix, n, Digest::default()));
                known.push(id);
            } else {
                changes.push(ValueChange::Release { prefix });
            }
        }
        let cleared: Vec<_> = self.edges.keys().filter(|_| random.percent(30)).cloned().collect();
        for _ in 0..random.below(4) {
            if known.is_empty() {
                continue;
            }
            self.named += 1;
            let (edge, to) = (format!("edge {}", self.named), random.pick(&known).clone());
            changes.push(ValueChange::Set { edge: root(&edge), to: to.clone(), deadline: None });
            self.edges.insert(edge, to);
        }
        for edge in cleared {
            let from = self.edges.remove(&edge).expect("it is held");
            changes.push(ValueChange::Clear { edge: root(&edge), from, deadline: None });
        }
        changes
    }
}

#[tokio::test]
async fn random_steps_leave_every_count_right_and_in_the_end_nothing() {
    each_store(async |bed| {
        for seed in 0..8 {
            let (mut random, mut held) = (Random::new(seed), Held::default());
            for _ in 0..30 {
                let changes = held.changes(&bed.values, &mut random);
                commit_changes(bed, &changes).await;
                if random.percent(50) {
                    bed.step().await;
                }
                for id in held.edges.values() {
                    bed.values.get(id).await.unwrap();
                }
            }
            let clear =
                |(edge, from): (String, _)| ValueChange::Clear { edge: EdgeName::root(edge), from, deadline: None };
            let last: Vec<_> = std::mem::take(&mut held.edges).into_iter().map(clear).collect();
            commit_changes(bed, &last).await;
            bed.is_empty().await;
        }
    })
    .await;
}
