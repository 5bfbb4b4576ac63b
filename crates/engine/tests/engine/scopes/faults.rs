//! A crash, a lost reply or a refusal at every call of the store: the same end, each request performed once outside, no
//! row left.

use super::{
    cases::CASES,
    rig::{Bed, MakeCase, enter, words},
};
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
