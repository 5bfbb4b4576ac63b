//! The cases of `cases/scope.md`, each with its end and everything that happened outside.

use super::rig::{Bed, Case, MakeCase, Outside, Rig, enter, inline, row, says, words};
use onceflow_core::scope::{CancelCause, CleanupWhen, Emitted, GateAction, OpKind};
use onceflow_engine::scope::{DurableBody, DurableScope, ScopeHost, ScopeHostOptions};
use onceflow_store::{Store, World, world::RealWorld};
use std::sync::Arc;

fn cancelled_hands_over_its_buffer(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    let (buffer, cancel) = (OpIds::at(1), OpIds::at(2));
    rig.clone_to("start", &[buffer, cancel]);
    assert_eq!((rig.buffer("kept"), rig.cancel()), (buffer, cancel));
    rig.cleanup("send", CleanupWhen::Cancelled, buffer, None, says("found", world, &outside, 0));
    Case { scope: rig.build(), input: 5, outside, end: "cancelled at the cancel: 5", performed: &["found 5"] }
}

/// Names operations before they are made.
struct OpIds;

impl OpIds {
    fn at(number: u32) -> onceflow_core::scope::OpId {
        onceflow_core::scope::OpId(number)
    }
}

fn three_cleanups(world: &Arc<dyn World>, outside: &Outside) -> Arc<DurableScope> {
    let mut rig = Rig::default();
    let [c, t, k, fork] = [1, 2, 3, 4].map(OpIds::at);
    rig.clone_to("start", &[c, t, k, fork]);
    for name in ["c", "t", "k"] {
        rig.buffer(name);
    }
    rig.fork("large", |v| v >= 5);
    let (end, cancel) = (rig.terminate(), rig.cancel());
    rig.link(fork, 0, end);
    rig.link(fork, 1, cancel);
    rig.cleanup("on cancel", CleanupWhen::Cancelled, c, None, says("cancel", world, outside, 0));
    rig.cleanup("on terminate", CleanupWhen::Terminated, t, None, says("terminate", world, outside, 0));
    rig.cleanup("on either", CleanupWhen::Ended, k, None, says("cleanup", world, outside, 0));
    rig.build()
}

fn cleanups_of_a_cancelled_session(world: &Arc<dyn World>) -> Case {
    let outside = Outside::default();
    let scope = three_cleanups(world, &outside);
    Case { scope, input: 3, outside, end: "cancelled at the cancel: 3", performed: &["cancel 3", "cleanup 3"] }
}

fn cleanups_of_a_terminated_session(world: &Arc<dyn World>) -> Case {
    let outside = Outside::default();
    let scope = three_cleanups(world, &outside);
    Case { scope, input: 6, outside, end: "6", performed: &["cleanup 6", "terminate 6"] }
}

fn failed_cleanup_is_reported(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    let mut broken = Rig::default();
    broken.cancel();
    let buffer = OpIds::at(1);
    rig.clone_to("start", &[buffer, OpIds::at(2)]);
    rig.buffer("kept");
    rig.terminate();
    rig.cleanup("good", CleanupWhen::Ended, buffer, None, says("good", world, &outside, 0));
    rig.cleanup("bad", CleanupWhen::Ended, buffer, None, broken.build());
    let end = "7 (cleanup bad cancelled at the cancel: )";
    Case { scope: rig.build(), input: 7, outside, end, performed: &["good 7"] }
}

fn overdue_cleanup_is_cancelled(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    let buffer = OpIds::at(1);
    rig.clone_to("start", &[buffer, OpIds::at(2)]);
    rig.buffer("kept");
    rig.terminate();
    rig.cleanup("slow", CleanupWhen::Ended, buffer, Some(100), says("slow", world, &outside, 1_000_000));
    let end = "1 (cleanup slow was cancelled after 100 ms)";
    Case { scope: rig.build(), input: 1, outside, end, performed: &[] }
}

/// A nested scope that keeps its input, and works.
fn works(world: &Arc<dyn World>, outside: &Outside, ms: u64, is_uninterruptible: bool) -> Arc<DurableScope> {
    let mut rig = Rig::default();
    let [kept, work, end] = [1, 2, 3].map(OpIds::at);
    rig.clone_to("start", &[kept, work]);
    rig.buffer("kept");
    rig.activity("worked", world, outside, ms);
    rig.terminate();
    rig.chain(&[work, end]);
    rig.draft.settings.uninterruptible = is_uninterruptible;
    rig.cleanup("nested", CleanupWhen::Cancelled, kept, None, says("nested cancelled", world, outside, 0));
    rig.cleanup("done", CleanupWhen::Terminated, kept, None, says("nested done", world, outside, 0));
    rig.build()
}

fn parent_of(
    nested: &Arc<DurableScope>,
    world: &Arc<dyn World>,
    outside: &Outside,
    is_cancelled: bool,
) -> Arc<DurableScope> {
    let mut rig = Rig::default();
    let [inner, first, end] = [1, 2, 3].map(OpIds::at);
    rig.clone_to("start", &[inner, first]);
    rig.nested("inner", nested);
    rig.activity("first", world, outside, 50);
    if is_cancelled {
        rig.cancel()
    } else {
        rig.terminate()
    };
    rig.chain(&[first, end]);
    rig.build()
}

fn parent_ends_while_nested_works(world: &Arc<dyn World>) -> Case {
    let outside = Outside::default();
    let scope = parent_of(&works(world, &outside, 1_000_000, false), world, &outside, false);
    Case { scope, input: 4, outside, end: "4", performed: &["first 4", "nested cancelled 4"] }
}

fn uninterruptible_nested_is_brought_to_its_end(world: &Arc<dyn World>) -> Case {
    let outside = Outside::default();
    let scope = parent_of(&works(world, &outside, 1_000, true), world, &outside, false);
    Case { scope, input: 4, outside, end: "4", performed: &["first 4", "nested done 4", "worked 4"] }
}

fn uninterruptible_nested_of_a_cancelled_parent(world: &Arc<dyn World>) -> Case {
    let outside = Outside::default();
    let scope = parent_of(&works(world, &outside, 1_000, true), world, &outside, true);
    Case {
        scope,
        input: 4,
        outside,
        end: "cancelled at the cancel: 4",
        performed: &["first 4", "nested done 4", "worked 4"],
    }
}

fn nested_that_cleans_already(world: &Arc<dyn World>) -> Case {
    let outside = Outside::default();
    let mut inner = Rig::default();
    let kept = OpIds::at(1);
    inner.clone_to("start", &[kept, OpIds::at(2)]);
    inner.buffer("kept");
    inner.cancel();
    inner.cleanup("slow", CleanupWhen::Ended, kept, None, says("cleaned", world, &outside, 100_000));
    let scope = parent_of(&inner.build(), world, &outside, false);
    // It failed by itself, and is waited for; the parent says so.
    let end = "4 (inner cancelled at the cancel: 4 while the session was cleaned)";
    Case { scope, input: 4, outside, end, performed: &["cleaned 4", "first 4"] }
}

fn cleanup_with_a_cleanup(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    let mut outer = Rig::default();
    let kept = OpIds::at(1);
    outer.clone_to("start", &[kept, OpIds::at(2)]);
    outer.buffer("kept");
    outer.activity("outer", world, &outside, 0);
    let end = outer.terminate();
    outer.chain(&[OpIds::at(2), end]);
    outer.cleanup("inner", CleanupWhen::Ended, kept, None, says("inner", world, &outside, 0));
    rig.clone_to("start", &[kept, OpIds::at(2)]);
    rig.buffer("kept");
    rig.terminate();
    rig.cleanup("outer", CleanupWhen::Ended, kept, None, outer.build());
    Case { scope: rig.build(), input: 9, outside, end: "9", performed: &["inner 9", "outer 9"] }
}

fn two_cleanups_on_one_buffer(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    let kept = OpIds::at(1);
    rig.clone_to("start", &[kept, OpIds::at(2)]);
    rig.buffer("kept");
    rig.terminate();
    rig.cleanup("one", CleanupWhen::Ended, kept, None, says("one", world, &outside, 0));
    rig.cleanup("two", CleanupWhen::Ended, kept, None, says("two", world, &outside, 0));
    Case { scope: rig.build(), input: 7, outside, end: "7", performed: &["one 7", "two "] }
}

fn spread_through_a_nested_scope(_: &Arc<dyn World>) -> Case {
    let mut inner = Rig::default();
    let fork = inner.fork("small", |v| v < 3);
    let (end, cancel) = (inner.terminate(), inner.cancel());
    inner.link(fork, 0, end);
    inner.link(fork, 1, cancel);
    let mut rig = Rig::default();
    let spread = rig.spread("spread");
    let (nested, collect, end) = (rig.nested("nested", &inner.build()), rig.collect("all", 0, None), rig.terminate());
    rig.chain(&[spread, nested, collect, end]);
    Case { scope: rig.build(), input: 5, outside: Outside::default(), end: "012", performed: &[] }
}

fn too_few_for_a_collect(_: &Arc<dyn World>) -> Case {
    let mut rig = Rig::default();
    let spread = rig.spread("spread");
    let (collect, end) = (rig.collect("all", 4, None), rig.terminate());
    rig.chain(&[spread, collect, end]);
    let end = "cancelled: nothing can reach the end of the scope any more; all: collected 3 of at least 4";
    Case { scope: rig.build(), input: 3, outside: Outside::default(), end, performed: &[] }
}

fn endless_side_loop_is_cut(_: &Arc<dyn World>) -> Case {
    let mut rig = Rig::default();
    let times = rig.map("x3", |v| v * 3);
    let (again, end) = (rig.map("x3 too", |v| v * 3), rig.terminate());
    let copy = rig.clone_to("copy", &[times, again]);
    rig.chain(&[times, copy]);
    rig.link(again, 0, end);
    Case { scope: rig.build(), input: 4, outside: Outside::default(), end: "36", performed: &[] }
}

fn join_after_activities(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    let [one, two] = [1, 2].map(OpIds::at);
    rig.clone_to("start", &[one, two]);
    rig.activity("one", world, &outside, 20);
    rig.activity("two", world, &outside, 10);
    let (left, right) = (rig.buffer("left"), rig.buffer("right"));
    let (join, end) = (rig.join("both", &[left, right]), rig.terminate());
    rig.chain(&[one, left]);
    rig.chain(&[two, right]);
    rig.chain(&[join, end]);
    Case { scope: rig.build(), input: 8, outside, end: "88", performed: &["one 8", "two 8"] }
}

fn sleep_passes_the_message_on(_: &Arc<dyn World>) -> Case {
    let mut rig = Rig::default();
    let kind = OpKind::Task { mode: onceflow_core::scope::TaskMode::Async, streams: 0 };
    let sleep = rig.op("sleep", kind, DurableBody::Sleep { ms: 10_000 }, 1);
    let end = rig.terminate();
    rig.chain(&[sleep, end]);
    Case { scope: rig.build(), input: 2, outside: Outside::default(), end: "2", performed: &[] }
}

fn streams_in_order_before_the_result(_: &Arc<dyn World>) -> Case {
    let mut inner = Rig::default();
    let spread = OpIds::at(1);
    inner.clone_to("start", &[spread, OpIds::at(3)]);
    inner.spread("spread");
    let out = inner.op("out", OpKind::StreamOut { stream: 0 }, DurableBody::None, 0);
    inner.chain(&[spread, out]);
    let later = inner.map("later", |v| v);
    let later = {
        let end = inner.terminate();
        inner.chain(&[later, end]);
        later
    };
    assert_eq!(later, OpIds::at(3));
    inner.draft.streams.push(String::from("numbers"));
    let mut rig = Rig::default();
    let nested = rig.nested("nested", &inner.build());
    let end = rig.terminate();
    rig.chain(&[nested, end]);
    let out = rig.op("out", OpKind::StreamOut { stream: 0 }, DurableBody::None, 0);
    rig.link(nested, 1, out);
    rig.draft.streams.push(String::from("numbers"));
    Case { scope: rig.build(), input: 3, outside: Outside::default(), end: "3 0=0 0=1 0=2", performed: &[] }
}

fn gate_holds_entries_back(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    // Closes the gate of a buffer, stores, works, opens it.
    let close =
        rig.op("close", OpKind::Gate { buffers: vec![OpIds::at(2)], action: GateAction::Close }, DurableBody::None, 1);
    let copy = rig.clone_to("copy", &[OpIds::at(2), OpIds::at(3)]);
    let kept = rig.buffer("kept");
    let work = rig.activity("work", world, &outside, 10);
    let open = rig.op("open", OpKind::Gate { buffers: vec![kept], action: GateAction::Open }, DurableBody::None, 1);
    let (join, end) = (rig.join("read", &[kept]), rig.terminate());
    rig.chain(&[close, copy]);
    rig.chain(&[work, open]);
    rig.chain(&[join, end]);
    Case { scope: rig.build(), input: 6, outside, end: "6", performed: &["work 6"] }
}

fn inline_cycle_is_bounded(_: &Arc<dyn World>) -> Case {
    let mut rig = Rig::default();
    let (up, fork) = (rig.map("up", |v| v + 1), rig.fork("many", |v| v > 2_000));
    let end = rig.terminate();
    rig.chain(&[up, fork, end]);
    rig.link(fork, 1, up);
    Case { scope: rig.build(), input: 0, outside: Outside::default(), end: "2001", performed: &[] }
}

fn panics_stay_inside(_: &Arc<dyn World>) -> Case {
    let mut rig = Rig::default();
    let broken = inline(|_| -> Emitted<onceflow_core::Row> { panic!("broken") });
    let kind = OpKind::Task { mode: onceflow_core::scope::TaskMode::Blocking, streams: 0 };
    let task = rig.op("task", kind, broken, 1);
    let end = rig.terminate();
    rig.chain(&[task, end]);
    Case {
        scope: rig.build(),
        input: 0,
        outside: Outside::default(),
        end: "cancelled at task: panicked: broken",
        performed: &[],
    }
}

/// The cases, by name.
fn serial_activities(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    let (spread, work) = (rig.spread("spread"), rig.activity("work", world, &outside, 100));
    let (collect, end) = (rig.collect("collect", 0, None), rig.terminate());
    rig.in_turn(work, false);
    rig.chain(&[spread, work, collect, end]);
    let performed = &["work 0", "work 1", "work 2"];
    Case { scope: rig.build(), input: 3, outside, end: "012", performed }
}

fn later_message_takes_the_place_of_one_at_work(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    rig.clone_to("start", &[1, 2].map(OpIds::at));
    let (work, rest) = (rig.activity("work", world, &outside, 10_000), rig.rest("rest", 50));
    let (next, end) = (rig.map("next", |n| n + 1), rig.terminate());
    rig.in_turn(work, true);
    rig.chain(&[rest, next, work, end]);
    Case { scope: rig.build(), input: 7, outside, end: "8", performed: &["work 8"] }
}

fn end_while_messages_wait_for_their_turn(world: &Arc<dyn World>) -> Case {
    let (outside, mut rig) = (Outside::default(), Rig::default());
    rig.clone_to("start", &[1, 2].map(OpIds::at));
    let (spread, fast) = (rig.spread("spread"), rig.activity("fast", world, &outside, 50));
    let (work, held, end) = (rig.activity("work", world, &outside, 60_000), rig.buffer("held"), rig.terminate());
    rig.in_turn(work, false);
    rig.chain(&[spread, work, held]);
    rig.chain(&[fast, end]);
    Case { scope: rig.build(), input: 4, outside, end: "4", performed: &["fast 4"] }
}

pub(super) const CASES: &[(&str, MakeCase)] = &[
    ("cancelled hands over its buffer", cancelled_hands_over_its_buffer),
    ("cleanups of a cancelled session", cleanups_of_a_cancelled_session),
    ("cleanups of a terminated session", cleanups_of_a_terminated_session),
    ("failed cleanup is reported", failed_cleanup_is_reported),
    ("overdue cleanup is cancelled", overdue_cleanup_is_cancelled),
    ("parent ends while nested works", parent_ends_while_nested_works),
    ("uninterruptible nested is brought to its end", uninterruptible_nested_is_brought_to_its_end),
    ("uninterruptible nested of a cancelled parent", uninterruptible_nested_of_a_cancelled_parent),
    ("nested that cleans already", nested_that_cleans_already),
    ("cleanup with a cleanup", cleanup_with_a_cleanup),
    ("two cleanups on one buffer", two_cleanups_on_one_buffer),
    ("spread through a nested scope", spread_through_a_nested_scope),
    ("too few for a collect", too_few_for_a_collect),
    ("endless side loop is cut", endless_side_loop_is_cut),
    ("join after activities", join_after_activities),
    ("sleep passes the message on", sleep_passes_the_message_on),
    ("streams in order before the result", streams_in_order_before_the_result),
    ("gate holds entries back", gate_holds_entries_back),
    ("inline cycle is bounded", inline_cycle_is_bounded),
    ("panics stay inside", panics_stay_inside),
    ("serial activities", serial_activities),
    ("later message takes the place of one at work", later_message_takes_the_place_of_one_at_work),
    ("end while messages wait for their turn", end_while_messages_wait_for_their_turn),
];

#[tokio::test]
async fn durable_scope_ends_as_a_light_one_and_leaves_no_row() {
    for (name, make) in CASES {
        let bed = Bed::new();
        let case = make(&bed.world);
        let host = bed.host(bed.proof.memory.clone(), &case.scope);
        let end = bed.proof.drive(enter(&host, case.input)).await.unwrap();
        assert_eq!(words(&end), case.end, "{name}");
        assert_eq!(case.outside.performed(), case.performed, "{name}");
        bed.proof.drive(host.close()).await;
        bed.nothing_remains(name);
    }
}

#[tokio::test]
async fn cancelled_from_outside_ends_with_that_cause() {
    let (bed, outside) = (Bed::new(), Outside::default());
    let scope = works(&bed.world, &outside, 1_000_000, false);
    let host = bed.host(bed.proof.memory.clone(), &scope);
    let end = bed.proof.drive(async {
        let id = host.open("case", "key", row(1)).await.unwrap();
        host.cancel("case", id, CancelCause::Requested(String::from("enough"))).await.unwrap();
        let end = host.end(id).await.unwrap();
        host.forget(id).await.unwrap();
        end
    });
    assert_eq!(words(&end.await), "cancelled: requested: enough");
    assert_eq!(outside.performed(), ["nested cancelled 1"]);
    bed.proof.drive(host.close()).await;
    bed.nothing_remains("cancelled from outside");
}

#[tokio::test]
async fn deadline_is_kept_by_the_host_that_takes_over() {
    let (bed, outside) = (Bed::new(), Outside::default());
    let mut rig = Rig::default();
    let (work, end) = (rig.activity("work", &bed.world, &outside, 1_000_000), rig.terminate());
    rig.chain(&[work, end]);
    rig.draft.settings.deadline_ms = Some(60_000);
    let scope = rig.build();
    let first = bed.host(bed.proof.memory.clone(), &scope);
    bed.proof.drive(first.open("case", "key", row(1))).await.unwrap();
    bed.proof.calm().await;
    bed.proof.drive(first.close()).await;
    bed.proof.world.advance(50_000);
    let second = bed.host(bed.proof.memory.clone(), &scope);
    let began = bed.world.clock();
    let end = bed.proof.drive(enter(&second, 1)).await.unwrap();
    assert_eq!(words(&end), "cancelled: not done within 60000 ms");
    assert!(bed.world.clock().ms_since(began) <= 11_000, "the deadline began anew");
    bed.proof.drive(second.close()).await;
    bed.nothing_remains("deadline");
}

/// Cases that take long on a real clock.
const IN_REAL_TIME: [&str; 2] = ["sleep passes the message on", "nested that cleans already"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_end_the_same_on_a_journal() {
    for (name, make) in CASES.iter().filter(|(name, _)| !IN_REAL_TIME.contains(name)) {
        let directory = tempfile::tempdir().unwrap();
        let world: Arc<dyn World> = RealWorld::here();
        let store = Store::open(directory.path()).await.unwrap();
        let case = make(&world);
        let values = Arc::new(onceflow_store::values::Values::new(store.records(), world.clone(), Default::default()));
        let options = ScopeHostOptions::default();
        let scopes = [(String::from("case"), case.scope.clone())];
        let host = ScopeHost::start(store.records(), values, world, options, scopes);
        let end = enter(&host, case.input).await.unwrap();
        assert_eq!(words(&end), case.end, "{name}");
        assert_eq!(case.outside.performed(), case.performed, "{name}");
        host.close().await;
        drop(store);
    }
}
