//! A run may be cancelled at any moment, and the worker that removes it may die at any call: the run is done or
//! cancelled, and nothing remains either way.

use crate::support;

use onceflow_engine::{Engine, Error, Options, RunStatus, Start, Summary};
use onceflow_store::testing::fault::{Fault, FaultPlan, Faulty};
use support::{
    Kit,
    flows::{Make, SMALL},
    proof::Proof,
};

/// Cancels after so many turns; returns the run's summary.
async fn cancel_after(engine: &Engine, start: &Start, turns: usize) -> Result<Summary, Error> {
    let handle = match engine.find(&start.key).await {
        Err(Error::NoRun(_)) => engine.start(start.clone()).await?,
        found => found?,
    };
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    match handle.cancel().await {
        // The run was cancelled, or had ended before.
        Ok(()) | Err(Error::Ended { .. }) => handle.wait().await,
        Err(error) => Err(error),
    }
}

fn ended(report: &Summary) -> bool {
    matches!(report, Summary { status: RunStatus::Done, .. } | Summary { status: RunStatus::Cancelled, .. })
}

#[tokio::test]
async fn a_cancel_at_any_moment_leaves_nothing() {
    for (name, make) in SMALL {
        let mut cancelled = 0;
        for turns in 0..40 {
            let mut kit = Kit::default();
            let (start, _) = make(&mut kit);
            let proof = Proof::new(&kit);
            let engine = proof.engine_on(proof.memory.clone(), Options { steps_max: 2, ..Options::default() });
            let report = proof.drive(cancel_after(&engine, &start, turns)).await.unwrap();
            assert!(ended(&report), "{name} after {turns}: {report}");
            cancelled += usize::from(report.status != RunStatus::Done);
            proof.drive(engine.close()).await.unwrap();
            proof.once();
            proof.forget_uploads();
            proof.only_what_remains().await;
            if turns % 8 == 0 {
                proof.nothing_remains().await;
            }
        }
        assert!(cancelled > 0, "{name}: never cancelled in the middle");
    }
}

async fn disturb(make: Make, n: u64, fault: Fault) -> bool {
    let mut kit = Kit::default();
    let (start, _) = make(&mut kit);
    let (proof, plan) = (Proof::new(&kit), FaultPlan::at(n, fault));
    let records = Faulty::new(proof.memory.clone(), plan.clone());
    let engine = proof.engine_on(records, Options { steps_max: 2, ..Options::default() });
    let turns = (n % 23) as usize;
    proof
        .drive(async {
            while cancel_after(&engine, &start, turns).await.is_err() {
                if plan.stopped() {
                    break;
                }
            }
        })
        .await;
    let closed = proof.drive(engine.close()).await;
    assert!(closed.is_ok() || plan.stopped(), "{closed:?}");
    let second = proof.engine();
    let report = proof.drive(cancel_after(&second, &start, 0)).await.unwrap();
    assert!(ended(&report), "{fault:?} at {n}: {report}");
    proof.drive(second.close()).await.unwrap();
    proof.forget_uploads();
    proof.only_what_remains().await;
    if n.is_multiple_of(7) {
        proof.nothing_remains().await;
    }
    plan.reached()
}

/// After so many calls only every third is disturbed, unless `ONCEFLOW_LONG` asks for all: a shape has hundreds.
const EACH_CALL_MAX: u64 = 24;

async fn disturb_all(fault: Fault) {
    let stride = if std::env::var_os("ONCEFLOW_LONG").is_some() { 1 } else { 3 };
    for (name, make) in SMALL {
        println!("{name} {fault:?}");
        let mut n = 1;
        while disturb(make, n, fault).await {
            n += if n < EACH_CALL_MAX { 1 } else { stride };
        }
        assert!(n > 2, "{name}: a run and its cancel call the store more than {n} times");
    }
}

#[tokio::test]
async fn a_crash_before_any_call_while_a_run_is_cancelled_leaves_nothing() {
    disturb_all(Fault::StopBefore).await;
}

#[tokio::test]
async fn a_crash_after_any_call_while_a_run_is_cancelled_leaves_nothing() {
    disturb_all(Fault::StopAfter).await;
}

#[tokio::test]
async fn a_lost_reply_while_a_run_is_cancelled_leaves_nothing() {
    disturb_all(Fault::LoseReply).await;
}

#[tokio::test]
async fn a_refused_call_while_a_run_is_cancelled_leaves_nothing() {
    disturb_all(Fault::FailOnce).await;
}
