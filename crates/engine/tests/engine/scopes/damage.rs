//! Damage to the rows of an open session, of each kind: `fsck` names it. A session without damage is reported clean, at rest and
//! between any two commits.

use super::{
    cases::CASES,
    rig::{Bed, Outside, Rig, enter, inline, row, says},
};
use onceflow_core::{
    Batch, Group, Key, Name, Row, Shard,
    protocol::rows::{read, write},
    scope::{CancelCause, CleanupWhen, Distribution, Emitted, GateAction, OpKind},
};
use onceflow_engine::{
    Options,
    scope::{DurableScope, SessionId},
};
use onceflow_store::{
    Records, World,
    testing::fault::{Fault, FaultPlan, Faulty},
};
use std::sync::Arc;

/// Longer than any test.
const LONG_MS: u64 = 1_000_000_000;

/// States of a case that are looked at.
const STATES_MAX: u64 = 40;

/// A scope that comes to rest with rows of every kind: entries of a buffer behind a gate, a collection, an activity, a wait, a
/// nested session, an inline disposal.
fn scene(world: &Arc<dyn World>, outside: &Outside) -> Arc<DurableScope> {
    let mut inner = Rig::default();
    let (wait, end) = (inner.rest("wait inside", LONG_MS), inner.terminate());
    inner.chain(&[wait, end]);
    let inner = inner.build();
    let mut rig = Rig::default();
    let each = rig.spread("each");
    let kept = rig.buffer("kept");
    let works = rig.activity("works", world, outside, LONG_MS);
    let (waits, nests) = (rig.rest("waits", LONG_MS), rig.nested("nests", &inner));
    let gather = rig.collect("gather", 0, None);
    let gate = OpKind::Gate { buffers: vec![kept], action: GateAction::Close };
    let close = rig.op("close", gate, onceflow_engine::scope::DurableBody::None, 1);
    let nothing = inline(|_| Emitted::Nothing);
    let drops = rig.op("drops", OpKind::Distribute(Distribution::Filter), nothing, 1);
    let copy = rig.clone_to("copy", &[kept, works, waits, nests, close, drops, gather]);
    let end = rig.terminate();
    rig.chain(&[each, copy]);
    for op in [works, waits, nests, close, drops] {
        rig.chain(&[op, gather, end]);
    }
    rig.cleanup("release", CleanupWhen::Ended, kept, None, says("released", world, outside, 0));
    rig.build()
}

/// All rows of the store.
fn rows(bed: &Bed) -> Vec<(Key, Row)> {
    bed.proof.memory.state().all().iter().map(|(_, key, row)| (key.clone(), row.clone())).collect()
}

fn is_session(key: &Key, kind: u8) -> bool {
    key.group.id().starts_with(b"scope/s/") && key.name.as_bytes().first() == Some(&kind)
}

/// Opens the scene and leaves it at rest, without a host.
async fn at_rest(bed: &Bed) -> (Arc<DurableScope>, Outside, SessionId) {
    let outside = Outside::default();
    let scope = scene(&bed.world, &outside);
    let host = bed.host(bed.proof.memory.clone(), &scope);
    let opened = async {
        let id = host.open("case", "key", row(2)).await.unwrap();
        // Three orders of each of two messages, and one in each nested session.
        while rows(bed).iter().filter(|(key, _)| is_session(key, b'o')).count() < 8 {
            tokio::task::yield_now().await;
        }
        id
    };
    let id = bed.proof.drive(opened).await;
    bed.proof.drive(host.close()).await;
    bed.proof.calm().await;
    (scope, outside, id)
}

async fn fsck(bed: &Bed) -> Vec<String> {
    let engine = bed.proof.engine_on(bed.proof.memory.clone(), Options { works: false, ..Options::default() });
    let found = bed.proof.drive(engine.fsck()).await.unwrap();
    bed.proof.drive(engine.close()).await.unwrap();
    found.expect("two scans of a store at rest agree")
}

async fn change(bed: &Bed, change: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new(Shard(0));
    change(&mut batch);
    let applied = bed.proof.drive(bed.proof.memory.commit(batch)).await.unwrap();
    assert!(matches!(applied, onceflow_store::CommitResult::Applied(_)), "the damage was not planted");
}

/// Plants damage, requires that it is named, and mends it.
async fn check_damage(bed: &Bed, key: &Key, damaged: Option<Row>, place: &str) -> String {
    let before = rows(bed).into_iter().find(|(found, _)| found == key).map(|(_, row)| row);
    change(bed, |batch| match damaged {
        Some(row) => drop(batch.put(key.clone(), row)),
        None => drop(batch.delete(key.clone())),
    })
    .await;
    let found = fsck(bed).await;
    change(bed, |batch| match before {
        Some(row) => drop(batch.put(key.clone(), row)),
        None => drop(batch.delete(key.clone())),
    })
    .await;
    assert!(!found.is_empty(), "{place}: nothing is reported of {key}");
    found.join("\n")
}

/// The rows of sessions and their queues, without those that name the open sessions.
fn targets(bed: &Bed) -> Vec<(Key, Row)> {
    let is_target = |(key, _): &(Key, Row)| {
        let id = key.group.id();
        id.starts_with(b"scope/") && id != b"scope/hosted"
    };
    rows(bed).into_iter().filter(is_target).collect()
}

#[tokio::test]
async fn fsck_names_every_lost_row_of_a_session() {
    let bed = Bed::new();
    at_rest(&bed).await;
    assert_eq!(fsck(&bed).await, [""; 0]);
    let targets = targets(&bed);
    for kind in *b"sbcopda" {
        assert!(targets.iter().any(|(key, _)| is_session(key, kind)), "there are rows of kind {}", char::from(kind));
    }
    for (key, _) in &targets {
        let found = check_damage(&bed, key, None, "lost").await;
        for (kind, word) in [
            (b'b', "an entry of a buffer is missing"),
            (b'c', "a message of a collection is missing"),
            (b'o', "an order is missing"),
            (b'p', "the state of an operation is missing"),
            (b'd', "a disposal is missing"),
            (b's', "the state of session"),
            (b'a', "waits for something that is missing"),
        ] {
            assert!(!is_session(key, kind) || found.contains(word), "lost {key}: {found}");
        }
    }
    assert_eq!(fsck(&bed).await, [""; 0]);
}

#[tokio::test]
async fn fsck_names_every_row_of_a_session_that_cannot_be_read() {
    let bed = Bed::new();
    at_rest(&bed).await;
    for (key, row) in targets(&bed) {
        // The end of a row is cut off. Without one byte of a text, a message may still be one.
        let cut = Row::new(&row[..row.len() / 2]);
        if !is_session(&key, b'b') && !is_session(&key, b'c') {
            check_damage(&bed, &key, Some(cut), "cut").await;
        }
        check_damage(&bed, &key, Some(Row::default()), "emptied").await;
    }
}

#[tokio::test]
async fn fsck_names_every_row_of_a_session_that_nothing_needs() {
    let bed = Bed::new();
    at_rest(&bed).await;
    for (key, row) in targets(&bed) {
        let bytes = key.name.as_bytes();
        if bytes == b"s" {
            continue;
        }
        let mut other = bytes.to_vec();
        *other.last_mut().unwrap() ^= 0x40;
        let kept = key.group.key(Name::new(other));
        check_damage(&bed, &kept, Some(row), "kept").await;
    }
    let stray = Group::rows("scope/hosted").key("eabc");
    let found = check_damage(&bed, &stray, Some(row(1)), "a kept end").await;
    assert!(found.contains("the end of a session is kept that is not open"), "{found}");
}

#[tokio::test]
async fn fsck_names_every_wrong_counter_of_a_session() {
    let bed = Bed::new();
    at_rest(&bed).await;
    for (key, row) in targets(&bed).into_iter().filter(|(key, _)| is_session(key, b's')) {
        let own: OwnRow = read(&row).expect("a session that runs");
        assert_eq!(write(&own), row, "the row is understood");
        let numbers = (0..own.4.len()).map(|kind| {
            let mut wrong = own;
            wrong.4[kind] += 1;
            (wrong, "is missing")
        });
        let mut early = own;
        early.3 = 0;
        let turn = (early, "a number that is not given yet");
        for (wrong, word) in numbers.chain([turn]) {
            let found = check_damage(&bed, &key, Some(write(&wrong)), "counter").await;
            assert!(found.contains(word), "{wrong:?}: {found}");
        }
    }
}

/// The own row of a session that runs: phase and whether its end is deferred, commits, the next turn, and the numbers of
/// eight kinds of rows.
type OwnRow = (u32, bool, u64, u32, [u32; 8]);

#[tokio::test]
async fn session_that_lost_a_row_is_not_driven_on() {
    let bed = Bed::new();
    let (scope, outside, id) = at_rest(&bed).await;
    let (key, _) = rows(&bed).into_iter().find(|(key, _)| is_session(key, b'b')).unwrap();
    let lost = rows(&bed).into_iter().find(|(found, _)| *found == key).unwrap().1;
    change(&bed, |batch| {
        batch.delete(key.clone());
    })
    .await;
    let host = bed.host(bed.proof.memory.clone(), &scope);
    bed.proof.drive(host.cancel("case", id, CancelCause::Requested(String::from("enough")))).await.unwrap();
    bed.proof.drive(bed.world.sleep(2_000)).await;
    assert_eq!(outside.performed(), [""; 0], "its cleanup would release one entry of two");
    change(&bed, |batch| {
        batch.put(key.clone(), lost);
    })
    .await;
    let end = bed.proof.drive(host.end(id)).await.unwrap();
    assert_eq!(super::rig::words(&end), "cancelled: requested: enough");
    assert_eq!(outside.performed(), ["released 01"]);
    assert_eq!(fsck(&bed).await, [""; 0], "its end is not forgotten yet");
    bed.proof.drive(host.forget(id)).await.unwrap();
    bed.proof.drive(host.close()).await;
    bed.proof.calm().await;
    bed.nothing_remains("mended");
}

#[tokio::test]
async fn fsck_finds_nothing_between_any_two_commits() {
    for (name, make) in CASES {
        for n in 1..=STATES_MAX {
            let bed = Bed::new();
            let case = make(&bed.world);
            let plan = FaultPlan::at(n, Fault::StopAfter);
            let host = bed.host(Faulty::new(bed.proof.memory.clone(), plan.clone()), &case.scope);
            let entered = bed.proof.drive(enter(&host, case.input)).await;
            bed.proof.drive(host.close()).await;
            bed.proof.calm().await;
            assert_eq!(fsck(&bed).await, [""; 0], "{name}, stopped after call {n}");
            if entered.is_ok() && !plan.reached() {
                break;
            }
        }
    }
}
