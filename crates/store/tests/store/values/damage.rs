//! Case 16: fsck finds every kind of damage, and repair and drain give clean.

use super::{
    bed::{Bed, SHARD, each_store, puts, root},
    changes,
};
use onceflow_store::{
    core::{Batch, Digest, Group, Name, Row, row::counter},
    records::Scan,
    values::{EdgeName, Element, Error, Update, ValueChange, fsck::Mode},
};

async fn change(bed: &Bed, change: impl for<'a> FnOnce(&'a mut Batch) -> &'a mut Batch) {
    let mut batch = Batch::new(SHARD);
    change(&mut batch);
    assert!(bed.records.commit(batch).await.unwrap().is_applied());
}

fn key(group: &str, name: &str) -> onceflow_store::core::Key {
    Group::rows(group).key(name)
}

async fn rows(bed: &Bed, group: &str) -> Vec<(Name, Row)> {
    bed.records.scan(SHARD, Scan::of(Group::rows(group), 100)).await.unwrap().rows
}

async fn flip(bed: &Bed, group: &str, name: &[u8], at: usize) {
    let key = Group::rows(group).key(name);
    let mut bytes = bed.records.get(SHARD, std::slice::from_ref(&key)).await.unwrap()[0].as_deref().unwrap().to_vec();
    bytes[at] ^= 4;
    change(bed, |batch| batch.put(key, bytes)).await;
}

/// `r -> p -> a, b, b`, root R; a lease on `b`; a gathered list of `a` and `b`, root L.
async fn build(bed: &Bed) {
    bed.update(puts("a; b; p->a,b,b; r->p").set(&root("R"), "r").lease(&root("lease"), "b", 10_000)).await;
    let element = |index| EdgeName::element("list", index);
    bed.update(Update::new().set(&element(0), "a").set(&element(1), "b")).await;
    bed.update(Update::new().gather("l", "list", 2, Digest::default()).set(&root("L"), "l")).await;
    bed.drain().await;
}

/// Damages a healthy store, expects fsck to say so, repairs, drains, and expects all of it to fit again, whether the
/// rest is then used or let go.
async fn finds(says: &str, damage: impl AsyncFn(&Bed)) {
    each_store(async |bed| {
        build(bed).await;
        damage(bed).await;
        let report = bed.values.fsck(Mode::Check).await.unwrap();
        assert!(report.to_string().contains(says), "{}: {report}", bed.name);
        assert!(!report.is_clean());
        let repaired = bed.values.fsck(Mode::Repair).await.unwrap();
        assert_eq!(repaired.to_string(), report.to_string(), "repair tells what it found");
        while bed.values.reclaim(bed.budget).await.unwrap().more {}
        let after = bed.values.fsck(Mode::Check).await.unwrap();
        assert!(after.is_clean(), "{}: {after}", bed.name);
        bed.values.update(Update::new().clear(&root("R")).clear(&root("L")).clear(&root("lease"))).await.unwrap();
        while bed.values.reclaim(bed.budget).await.unwrap().more {}
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_count_one_too_high() {
    finds("leak: the count of a is 3, and should be 2", async |bed| {
        change(bed, |batch| batch.put(key("values.counts", "a"), counter::write(3))).await;
    })
    .await;
}

#[tokio::test]
async fn a_count_one_too_low() {
    finds("problem: the count of b is 3, and should be 4", async |bed| {
        change(bed, |batch| batch.put(key("values.counts", "b"), counter::write(3))).await;
    })
    .await;
}

#[tokio::test]
async fn a_count_that_is_none() {
    finds("problem: the count of p is damaged, and should be 1", async |bed| {
        change(bed, |batch| batch.put(key("values.counts", "p"), Row::new("one"))).await;
    })
    .await;
    finds("problem: the count of p is 0, and should be 1", async |bed| {
        change(bed, |batch| batch.delete(key("values.counts", "p"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_missing_value() {
    finds("problem: value b is referred to, but missing", async |bed| {
        change(bed, |batch| batch.delete(key("values", "b"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_lost_queue_entry() {
    finds("leak: value garbage is not referred to, and not queued", async |bed| {
        bed.values.update(puts("garbage->a")).await.unwrap();
        change(bed, |batch| batch.delete(key("values.zero", "garbage"))).await;
    })
    .await;
}

#[tokio::test]
async fn an_extra_debt() {
    finds("problem: a debt of 1 too much to a", async |bed| {
        // A debt as reclaim writes it, taken from another store.
        bed.values.update(puts("q->a").set(&root("Q"), "q")).await.unwrap();
        bed.values.update(Update::new().clear(&root("Q"))).await.unwrap();
        bed.values.reclaim(1).await.unwrap();
        let debts = rows(bed, "values.owed").await;
        while bed.values.reclaim(usize::MAX).await.unwrap().more {}
        let (name, row) = debts.into_iter().next().unwrap_or_else(|| (Name::new(debt_name()), debt_row()));
        change(bed, |batch| batch.put(Group::rows("values.owed").key(name), row)).await;
    })
    .await;
}

fn debt_name() -> Vec<u8> {
    [&b"d"[..], &[0; 24]].concat()
}

/// One decrement owed to `a`.
fn debt_row() -> Row {
    let body = [&1_u32.to_le_bytes()[..], &[0], b"a"].concat();
    Row::from([&crc32fast::hash(&body).to_le_bytes()[..], &body].concat())
}

#[tokio::test]
async fn a_lost_debt() {
    finds("leak: the count of a is 3, and should be 2", async |bed| {
        bed.values.update(puts("q->a").set(&root("Q"), "q")).await.unwrap();
        bed.values.update(Update::new().clear(&root("Q"))).await.unwrap();
        change(bed, |batch| batch.delete(key("values", "q")).delete(key("values.zero", "q"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_cycle() {
    finds("problem: value z refers, through others, to itself", async |bed| {
        bed.values.update(puts("z; y->z; x->y").set(&root("X"), "x")).await.unwrap();
        // The row of a value that refers to x, under the name of z.
        bed.values.update(puts("z2->x").set(&root("Z"), "z2")).await.unwrap();
        let row = bed.records.get(SHARD, &[key("values", "z2")]).await.unwrap()[0].clone().unwrap();
        change(bed, |batch| batch.put(key("values", "z"), row).put(key("values.counts", "x"), counter::write(3))).await;
        bed.values.update(Update::new().clear(&root("X")).clear(&root("Z"))).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_flipped_byte_anywhere_in_a_value() {
    for at in [0, 4, 5, 10, 12, 16] {
        finds("problem: value p is damaged", async |bed| flip(bed, "values", b"p", at).await).await;
    }
}

#[tokio::test]
async fn a_flipped_byte_in_an_edge() {
    for at in [0, 4, 12] {
        finds("is damaged", async |bed| flip(bed, "values.edges", b"rR", at).await).await;
    }
}

#[tokio::test]
async fn a_lease_that_is_not_in_the_index() {
    finds("leak: lease lease ends at", async |bed| {
        let (name, _) = rows(bed, "values.due").await.remove(0);
        change(bed, |batch| batch.delete(Group::rows("values.due").key(name))).await;
    })
    .await;
}

#[tokio::test]
async fn an_index_row_without_a_lease() {
    finds("problem: the index says that lease ends at", async |bed| {
        let (name, _) = rows(bed, "values.due").await.remove(0);
        let mut name = name.as_bytes().to_vec();
        name[7] ^= 1;
        change(bed, |batch| batch.put(Group::rows("values.due").key(name), Row::default())).await;
    })
    .await;
}

#[tokio::test]
async fn a_list_that_is_not_sealed() {
    finds("problem: list l owns list, which is not sealed", async |bed| {
        change(bed, |batch| batch.delete(key("values.sealed", "list"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_list_without_one_of_its_elements() {
    finds("problem: list l says 2 elements, but has 1", async |bed| {
        let (name, _) = rows(bed, "values.edges").await.remove(0);
        change(bed, |batch| batch.delete(Group::rows("values.edges").key(name))).await;
    })
    .await;
}

/// A list `m` of `a` and of some bytes, root L.
async fn with_inline(bed: &Bed) {
    let mut batch = changes::step();
    let mut changes = vec![changes::clear("L", "l")];
    for (index, element) in [(0, Element::Ref("a".into())), (1, Element::Inline(Row::new("bytes")))] {
        changes.push(ValueChange::Element { prefix: Name::new("mixed"), index, element });
    }
    changes.push(ValueChange::gather("m".into(), Name::new("mixed"), 2, Digest::default()));
    changes.push(changes::set("M", "m"));
    changes.push(ValueChange::Set { edge: root("L2"), to: "l".into(), deadline: None });
    batch.ops.extend(bed.values.blind_ops(&changes));
    assert!(bed.records.commit(batch).await.unwrap().is_applied());
    // As the bed expects it: the values that R and L hold are released at the end.
    bed.values.update(Update::new().set(&root("L"), "m").clear(&root("M")).clear(&root("L2"))).await.unwrap();
    while bed.values.reclaim(usize::MAX).await.unwrap().more {}
    bed.fsck().await;
}

fn inline_name() -> Name {
    Name::join(&[b"e\0\x05mixed", &1_u64.to_be_bytes()])
}

#[tokio::test]
async fn a_flipped_byte_in_an_element() {
    for at in [0, 4, 7] {
        finds("is damaged", async |bed| {
            with_inline(bed).await;
            flip(bed, "values.edges", inline_name().as_bytes(), at).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_list_without_one_of_its_inline_elements() {
    finds("problem: list m says 2 elements, but has 1", async |bed| {
        with_inline(bed).await;
        change(bed, |batch| batch.delete(Group::rows("values.edges").key(inline_name()))).await;
    })
    .await;
}

#[tokio::test]
async fn bytes_under_the_name_of_a_root() {
    finds("row values.edges/rX is damaged", async |bed| {
        with_inline(bed).await;
        let rows = rows(bed, "values.edges").await;
        let (_, row) = rows.into_iter().find(|(name, _)| *name == inline_name()).unwrap();
        change(bed, |batch| batch.put(key("values.edges", "rX"), row)).await;
    })
    .await;
}

#[tokio::test]
async fn an_index_row_for_an_element_that_holds_its_bytes() {
    finds("problem: the index says that mixed[1] ends at", async |bed| {
        with_inline(bed).await;
        let due = Name::join(&[&7_u64.to_be_bytes(), inline_name().as_bytes()]);
        change(bed, |batch| batch.put(Group::rows("values.due").key(due), Row::default())).await;
    })
    .await;
}

#[tokio::test]
async fn fsck_finds_elements_without_an_owner() {
    finds("leak: prefix list is sealed, but it has no owner", async |bed| {
        bed.values.update(Update::new().clear(&root("L"))).await.unwrap();
        change(bed, |batch| batch.delete(key("values", "l")).delete(key("values.zero", "l"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_lost_value_reads_as_lost_until_it_is_put_again() {
    each_store(async |bed| {
        build(bed).await;
        change(bed, |batch| batch.delete(key("values", "b"))).await;
        bed.values.fsck(Mode::Repair).await.unwrap();
        assert!(matches!(bed.values.get(&"b".into()).await, Err(Error::Lost { .. })));
        let report = bed.values.fsck(Mode::Check).await.unwrap();
        assert!(report.is_clean() && report.lost == ["b".into()], "{report}");
        bed.values.update(puts("b")).await.unwrap();
        bed.reads("r").await;
        bed.fsck().await;
    })
    .await;
}
