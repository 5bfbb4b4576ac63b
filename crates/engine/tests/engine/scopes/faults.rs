//! A crash, a lost reply or a refusal at every call of the store: the same end, each request performed once outside, no
//! row left.

use super::{
    cases::CASES,
    rig::{Bed, MakeCase, Outside, enter, says, words},
};
use onceflow_core::scope::CleanupWhen;
use onceflow_engine::scope::{ScopeHost, ScopeHostOptions};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};

/// Cases with more calls are disturbed at so many of them only, unless `ONCEFLOW_LONG` asks for all.
const CALLS_MAX: u64 = 120;

/// The lease of a host in these tests.
const LEASE_MS: u64 = 3_000;

/// Disturbs a case at its n-th call; true if that call was reached.
async fn disturb(name: &str, make: MakeCase, n: u64, fault: Fault) -> bool {
    let place = format!("{name}, {fault:?} at call {n}");
    let bed = Bed::new();
    let case = make(&bed.world);
    let plan = FaultPlan::at(n, fault);
    let host = bed.host(Faulty::new(bed.proof.memory.clone(), plan.clone()), &case.scope);
    let ended = bed.proof.drive(async {
        loop {
            match enter(&host, case.input).await {
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
            bed.proof.world.advance(LEASE_MS);
            let second = bed.host(bed.proof.memory.clone(), &case.scope);
            let ended = bed.proof.drive(enter(&second, case.input)).await.unwrap();
            bed.proof.drive(second.close()).await;
            bed.proof.calm().await;
            ended
        }
    };
    assert_eq!(words(&ended), case.end, "{place}");
    assert_eq!(case.outside.performed(), case.performed, "{place}");
    bed.nothing_remains(&place);
    plan.reached()
}

async fn disturb_everywhere(fault: Fault) {
    let is_long = std::env::var_os("ONCEFLOW_LONG").is_some();
    for (name, make) in CASES {
        let mut n = 1;
        while disturb(name, *make, n, fault).await {
            n += 1;
            if n > CALLS_MAX && !is_long {
                break;
            }
        }
    }
}

#[tokio::test]
async fn durable_scope_survives_a_crash_before_every_call() {
    disturb_everywhere(Fault::StopBefore).await;
}

#[tokio::test]
async fn durable_scope_survives_a_crash_after_every_call() {
    disturb_everywhere(Fault::StopAfter).await;
}

#[tokio::test]
async fn durable_scope_survives_every_lost_reply() {
    disturb_everywhere(Fault::LoseReply).await;
}

#[tokio::test]
async fn durable_scope_survives_every_refused_call() {
    disturb_everywhere(Fault::FailOnce).await;
}

/// A scope that spreads a number over so many activities of 100 ms.
fn fan_out(world: &std::sync::Arc<dyn onceflow_store::World>, outside: &Outside) -> super::rig::Rig {
    let mut rig = super::rig::Rig::default();
    let (spread, work) = (rig.spread("spread"), rig.activity("work", world, outside, 100));
    let (collect, end) = (rig.collect("collect", 0, None), rig.terminate());
    rig.chain(&[spread, work, collect, end]);
    rig
}

#[tokio::test]
async fn host_runs_no_more_activities_at_once_than_it_has_places_for() {
    let (bed, outside) = (Bed::new(), Outside::default());
    let scope = fan_out(&bed.world, &outside).build();
    let records: std::sync::Arc<dyn onceflow_store::Records> = bed.proof.memory.clone();
    let values = bed.proof.values(records.clone());
    let options = ScopeHostOptions { lease_ms: 3_000, activities_max: 2, ..ScopeHostOptions::default() };
    let host = ScopeHost::start(records, values, bed.world.clone(), options, [(String::from("case"), scope)]);
    let begun = bed.world.clock();
    let end = bed.proof.drive(enter(&host, 6)).await.unwrap();
    assert_eq!(words(&end), "012345");
    let took_ms = bed.world.clock().ms_since(begun);
    assert!(took_ms >= 300, "six activities of 100 ms, two at a time, took {took_ms} ms");
    bed.proof.drive(host.close()).await;
    bed.proof.calm().await;
    bed.nothing_remains("places");
}

#[tokio::test]
async fn turn_that_no_batch_can_hold_cancels_its_session_and_names_the_operation() {
    let (bed, outside) = (Bed::new(), Outside::default());
    let mut rig = super::rig::Rig::default();
    let (begin, spread) = (rig.activity("begin", &bed.world, &outside, 0), rig.spread("spread"));
    let (work, collect) = (rig.activity("work", &bed.world, &outside, 100), rig.collect("collect", 0, None));
    let (end, held) = (rig.terminate(), rig.buffer("held"));
    rig.chain(&[begin, spread, work, collect, end]);
    rig.cleanup("release", CleanupWhen::Ended, held, None, says("released", &bed.world, &outside, 0));
    let scope = rig.build();
    let host = bed.host(bed.proof.memory.clone(), &scope);
    let end = bed.proof.drive(enter(&host, 60_000)).await.unwrap();
    let said = words(&end);
    assert!(said.starts_with("cancelled at work: one event changes too much for one commit"), "{said}");
    assert!(said.contains("_MAX"), "the limit is named: {said}");
    assert_eq!(outside.performed(), ["begin 60000", "released "], "the cleanup ran, and no activity behind the spread");
    bed.proof.drive(host.close()).await;
    bed.proof.calm().await;
    bed.nothing_remains("too large");
}
