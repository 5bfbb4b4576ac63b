//! Sessions with more open orders, entries or timers than one batch of a server can change: they end all the same,
//! whatever dies meanwhile.

use super::rig::{Bed, Outside, Rig, ServerSized, row, says, words};
use onceflow_core::{
    Kind,
    scope::{CancelCause, CleanupWhen},
};
use onceflow_engine::scope::{DurableScope, ScopeHost};
use onceflow_store::{
    World,
    testing::fault::{Fault, FaultPlan, Faulty},
};
use std::sync::Arc;

/// Longer than any test.
const LONG_MS: u64 = 1_000_000_000;

/// Messages of each kind: three kinds of work, so three times as many open orders.
const EACH: i64 = 800;

/// A scope that opens thousands of orders, some at a time: activities, waits and nested sessions.
fn crowd(world: &Arc<dyn World>, outside: &Outside) -> Arc<DurableScope> {
    let mut inner = Rig::default();
    let (wait, end) = (inner.rest("wait inside", LONG_MS), inner.terminate());
    inner.chain(&[wait, end]);
    let inner = inner.build();
    let mut rig = Rig::default();
    // Ten times a tenth: a turn that opened all orders at once would be too large.
    let (tenths, pause) = (rig.spread("tenths"), rig.rest("pause", 1));
    let (many, each) = (rig.map("many", |_| EACH / 10), rig.spread("each"));
    rig.chain(&[tenths, pause, many, each]);
    let (works, waits) = (rig.activity("works", world, outside, LONG_MS), rig.rest("waits", LONG_MS));
    let (nests, kept) = (rig.nested("nests", &inner), rig.buffer("kept"));
    let copy = rig.clone_to("copy", &[works, waits, nests, kept]);
    let collect = rig.collect("collect", 0, None);
    let end = rig.terminate();
    rig.chain(&[each, copy]);
    for work in [works, waits, nests] {
        rig.chain(&[work, collect, end]);
    }
    rig.cleanup("release", CleanupWhen::Cancelled, kept, None, says("released", world, outside, 0));
    rig.build()
}

fn host_on(bed: &Bed, plan: &FaultPlan, scope: &Arc<DurableScope>) -> Arc<ScopeHost> {
    bed.host(Faulty::new(Arc::new(ServerSized(bed.proof.memory.clone())), plan.clone()), scope)
}

fn orders(bed: &Bed) -> usize {
    let is_order = |(_, key, _): &&(_, onceflow_core::Key, _)| {
        key.group.kind() == Kind::Rows && key.name.as_bytes().first() == Some(&b'o')
    };
    bed.proof.memory.state().all().iter().filter(is_order).count()
}

async fn open_crowd(bed: &Bed, host: &ScopeHost) -> onceflow_engine::scope::SessionId {
    let opened = async {
        let id = host.open("case", "key", row(10)).await.unwrap();
        // Three of the outer session each, and one of each nested session.
        while orders(bed) < usize::try_from(EACH * 4).unwrap() {
            tokio::task::yield_now().await;
        }
        id
    };
    bed.proof.drive(opened).await
}

async fn end_crowd(
    bed: &Bed,
    host: &ScopeHost,
    id: onceflow_engine::scope::SessionId,
) -> Result<String, onceflow_engine::Error> {
    if bed.proof.memory.state().all().is_empty() {
        return Ok(String::from("gone"));
    }
    host.cancel("case", id, CancelCause::Requested(String::from("enough"))).await?;
    let end = host.end(id).await?;
    host.forget(id).await?;
    Ok(words(&end))
}

/// Cancels a crowd, with a crash at the n-th call from then on; true if that call was reached.
async fn end_with_a_crash(n: u64, fault: Fault) -> bool {
    let place = format!("{fault:?} at call {n}");
    let (bed, outside) = (Bed::new(), Outside::default());
    let scope = crowd(&bed.world, &outside);
    let first = host_on(&bed, &FaultPlan::never(), &scope);
    let id = open_crowd(&bed, &first).await;
    bed.proof.drive(first.close()).await;
    let plan = FaultPlan::at(n, fault);
    let host = host_on(&bed, &plan, &scope);
    let ended = bed.proof.drive(async {
        loop {
            match end_crowd(&bed, &host, id).await {
                Ok(end) => break Some(end),
                Err(_) if plan.stopped() => break None,
                Err(_) => {}
            }
        }
    });
    let ended = ended.await;
    bed.proof.drive(host.close()).await;
    bed.proof.calm().await;
    let ended = match ended {
        Some(ended) => ended,
        None => {
            bed.proof.world.advance(3_000);
            let second = host_on(&bed, &FaultPlan::never(), &scope);
            let ended = bed.proof.drive(end_crowd(&bed, &second, id)).await.unwrap();
            bed.proof.drive(second.close()).await;
            bed.proof.calm().await;
            ended
        }
    };
    assert!(ended.starts_with("cancelled: requested: enough") || ended == "gone", "{place}: {ended}");
    let performed = outside.performed();
    assert_eq!(performed.len(), 1, "{place}: {performed:?}");
    assert!(performed[0].starts_with("released 0"), "{place}: {performed:?}");
    bed.nothing_remains(&place);
    plan.reached()
}

#[tokio::test]
async fn session_with_more_orders_than_a_batch_can_change_ends_when_it_is_cancelled() {
    assert!(!end_with_a_crash(u64::MAX, Fault::StopBefore).await);
}

/// The first calls each, then some of the others unless `ONCEFLOW_LONG` asks for all.
async fn end_with_crashes(fault: Fault) {
    let stride = if std::env::var_os("ONCEFLOW_LONG").is_some() { 1 } else { 701 };
    let mut n = 1;
    while end_with_a_crash(n, fault).await {
        n += if n < 16 { 1 } else { stride };
    }
    assert!(n > 16, "cancelling a crowd takes more calls than {n}");
}

#[tokio::test]
async fn crowded_session_ends_despite_a_crash_before_a_call() {
    end_with_crashes(Fault::StopBefore).await;
}

#[tokio::test]
async fn crowded_session_ends_despite_a_crash_after_a_call() {
    end_with_crashes(Fault::StopAfter).await;
}

#[tokio::test]
async fn crowded_session_ends_despite_a_lost_reply() {
    end_with_crashes(Fault::LoseReply).await;
}

/// Overlapping sessions: 300, or 20 000 if `ONCEFLOW_LONG` is set.
#[tokio::test]
async fn overlapping_durable_sessions_leave_no_row() {
    let sessions = if std::env::var_os("ONCEFLOW_LONG").is_some() { 20_000 } else { 300 };
    let (bed, outside) = (Bed::new(), Outside::default());
    let mut rig = Rig::default();
    let [kept, work, fork, end, cancel] = [1, 2, 3, 4, 5].map(onceflow_core::scope::OpId);
    rig.clone_to("start", &[kept, work]);
    rig.buffer("kept");
    rig.activity("work", &bed.world, &outside, 10);
    rig.fork("even", |number| number % 2 == 0);
    assert_eq!((rig.terminate(), rig.cancel()), (end, cancel));
    rig.chain(&[work, fork, end]);
    rig.link(fork, 1, cancel);
    rig.cleanup("release", CleanupWhen::Ended, kept, None, says("released", &bed.world, &outside, 0));
    let scope = rig.build();
    let host = bed.host(bed.proof.memory.clone(), &scope);
    for round in 0..sessions / 100 {
        let all = (0..100).map(|at| {
            let (host, number) = (&host, round * 100 + at);
            async move {
                let id = host.open("case", &number.to_string(), row(number)).await.unwrap();
                let end = host.end(id).await.unwrap();
                host.forget(id).await.unwrap();
                assert_eq!(end.result.is_ok(), number % 2 == 0, "{number}: {}", words(&end));
            }
        });
        bed.proof.drive(futures_util::future::join_all(all)).await;
        assert_eq!(bed.proof.memory.state().all().len(), 0, "rows are left after round {round}");
    }
    assert_eq!(outside.performed().len(), 2 * usize::try_from(sessions).unwrap());
    bed.proof.drive(host.close()).await;
    bed.proof.calm().await;
    bed.nothing_remains("soak");
}
