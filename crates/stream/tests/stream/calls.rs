//! Calls: one for every record, whatever the worker does, begun after its record is durable and forgotten after its result is.

use crate::{
    bed::{Bed, MemorySink, line, options},
    plans::{RECORDS, record},
};
use futures_util::FutureExt;
use onceflow_core::hazard;
use onceflow_store::testing::fault::{self, Fault, FaultPlan, Faulty};
use onceflow_stream::{
    BoxFuture, CallFailure, CallId, CallTarget, EdgeMode, Generator, Pipeline, RecordCall, StreamError, StreamOptions,
    combine::Sum, window::Windowing,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
};

/// Calls that were begun, with their records, and those that are forgotten.
#[derive(Clone, Default)]
struct Callee {
    state: Arc<Mutex<CalleeState>>,
    /// A record whose call fails, until the map says otherwise.
    fails: Arc<Mutex<Option<u64>>>,
}

#[derive(Default)]
struct CalleeState {
    begun: BTreeMap<CallId, u64>,
    forgotten: BTreeSet<CallId>,
    open_most: usize,
}

impl CallTarget<(u64, u64)> for Callee {
    type Out = (u64, u64);

    fn call(&self, call: RecordCall, (key, n): (u64, u64)) -> BoxFuture<'static, Result<(u64, u64), CallFailure>> {
        let (state, fails) = (self.state.clone(), self.fails.clone());
        Box::pin(async move {
            {
                let mut state = state.lock().unwrap();
                assert!(!state.forgotten.contains(&call.id), "call {} begins after it was forgotten", call.id);
                let earlier = *state.begun.entry(call.id).or_insert(n);
                assert_eq!(earlier, n, "call {} has another record", call.id);
                state.open_most = state.open_most.max(state.begun.len() - state.forgotten.len());
            }
            // The clock of the test ends the call, some turns later.
            let due = call.world.clock().plus_ms(1 + n % 3);
            while call.world.clock() < due {
                tokio::task::yield_now().await;
            }
            if *fails.lock().unwrap() == Some(n) {
                let (name, message) = (String::from("call"), String::from("no"));
                return Err(CallFailure::Stop(StreamError::Step { name, message }));
            }
            Ok((key, n))
        })
    }

    fn forget(&self, call: RecordCall) -> BoxFuture<'static, ()> {
        self.state.lock().unwrap().forgotten.insert(call.id);
        Box::pin(std::future::ready(()))
    }
}

const WINDOW_MS: i64 = 30;

/// Sums of the results of calls, per key and window.
fn called(callee: &Callee, sink: &MemorySink, options: StreamOptions) -> Pipeline {
    let pipeline = Pipeline::new("p").options(options);
    let numbers = pipeline.source("numbers", Generator::new(RECORDS / 4, record).splits(2).out_of_order_ms(20));
    let sums = numbers.call("call", 3, callee.clone()).key_value("by key", |(key, n)| (key, n)).combine(
        "sum",
        Windowing::tumbling(WINDOW_MS),
        Sum::new(),
    );
    sums.sink("lines", sink.clone(), |sum, bytes| {
        line(&format!("{} {} {}", sum.window.start.0, sum.key, sum.value), bytes);
    });
    pipeline
}

fn expected() -> Vec<String> {
    let mut sums: BTreeMap<(i64, u64), u64> = BTreeMap::new();
    for ((key, n), time) in (0..RECORDS / 4).map(record) {
        *sums.entry((time.0.div_euclid(WINDOW_MS) * WINDOW_MS, key)).or_default() += n;
    }
    let mut lines: Vec<_> = sums.iter().map(|((start, key), sum)| format!("{start} {key} {sum}")).collect();
    lines.sort();
    lines
}

/// Runs the pipeline with a fault at one call of the first worker to the store; a second worker ends it.
async fn with_fault(plan: FaultPlan, edges: EdgeMode) {
    let (bed, sink, callee) = (Bed::new(), MemorySink::default(), Callee::default());
    let pipeline = || called(&callee, &sink, StreamOptions { bundle_records: 20, ..options(edges) });
    let faulty = Faulty::new(bed.store.clone(), plan.clone());
    match bed.run_on(&pipeline(), faulty, || plan.stopped()).await {
        Some(Ok(_)) => {}
        None | Some(Err(StreamError::Store(_))) => drop(bed.run(&pipeline()).await.unwrap()),
        Some(Err(error)) => panic!("{error}"),
    }
    assert_eq!(sink.lines(), expected());
    assert_eq!(bed.rows_left().await, 2);
    let state = callee.state.lock().unwrap();
    let records: BTreeSet<u64> = state.begun.values().copied().collect();
    assert_eq!((state.begun.len(), records.len() as u64), (records.len(), RECORDS / 4), "one call for each record");
    assert_eq!(state.forgotten.len(), state.begun.len(), "no call is left");
    // Three of each of two partitions, and those that a lost partition has ended in the target alone.
    assert!(state.open_most <= 2 * 3 * 2, "{} calls were open", state.open_most);
}

async fn whichever_call_fails() {
    for fault in [Fault::StopBefore, Fault::StopAfter, Fault::LoseReply] {
        let calls = fault::for_every_n(fault, async |plan| with_fault(plan, EdgeMode::Local).await).await;
        assert!(calls > 50, "{calls} calls");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn every_record_is_called_for_once_whichever_call_to_the_store_fails() {
    whichever_call_fails().await;
    with_fault(FaultPlan::never(), EdgeMode::Retry).await;
}

#[tokio::test(flavor = "current_thread")]
async fn calls_that_begin_too_early_or_hold_no_watermark_are_noticed() {
    for bug in ["calls-begin-before-commit", "watermark-ignores-calls"] {
        hazard::switch(Some(bug));
        let ended = AssertUnwindSafe(whichever_call_fails()).catch_unwind().await;
        hazard::switch(None);
        assert!(ended.is_err(), "the bug {bug} was not noticed");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn failed_call_stops_the_pipeline_and_is_the_same_call_when_it_runs_again() {
    let (bed, sink, callee) = (Bed::new(), MemorySink::default(), Callee::default());
    *callee.fails.lock().unwrap() = Some(17);
    let pipeline = || called(&callee, &sink, options(EdgeMode::Local));
    let error = bed.run(&pipeline()).await.unwrap_err();
    assert_eq!(error.to_string(), "step `call`: no");
    *callee.fails.lock().unwrap() = None;
    bed.run(&pipeline()).await.unwrap();
    assert_eq!(sink.lines(), expected());
    assert_eq!(callee.state.lock().unwrap().begun.len() as u64, RECORDS / 4);
}
