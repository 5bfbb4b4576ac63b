//! Pipelines that are paused, resumed, drained and cancelled from outside, while workers come, go and are killed.

use crate::{
    bed::{Bed, MemorySink, line, options},
    upgrade::{HALF, LAST, Numbers, read},
};
use futures_util::FutureExt;
use onceflow_core::{Group, Shard};
use onceflow_store::{
    Records,
    records::Scan,
    testing::fault::{self, Fault, FaultPlan, Faulty},
};
use onceflow_stream::{
    EdgeMode, Pipeline, StreamError, StreamOptions, StreamPhase, cancel, combine::Sum, drain, pause, remove, resume,
    status, window::Windowing,
};
use std::{cell::Cell, future::Future};

/// The answer of a store in memory, which comes at once.
pub(crate) fn now<T>(future: impl Future<Output = Result<T, StreamError>>) -> Result<T, StreamError> {
    future.now_or_never().expect("a store in memory answers at once")
}

pub(crate) fn phase(store: &dyn Records) -> Option<StreamPhase> {
    now(status(store, "p", None)).unwrap().map(|status| status.phase)
}

/// Sums of numbers by their remainder.
pub(crate) fn sums(name: &str, numbers: &Numbers, options: StreamOptions, sink: &MemorySink) -> Pipeline {
    let pipeline = Pipeline::new(name).options(options);
    let keyed = pipeline.source("numbers", numbers.clone()).key_value("remainder", |n| (n % 3, n));
    keyed.combine("sum", Windowing::tumbling(100), Sum::new()).sink("lines", sink.clone(), |sum, bytes| {
        line(&format!("{} {} {}", sum.window.start.0, sum.key, sum.value), bytes);
    });
    pipeline
}

pub(crate) fn expected() -> Vec<String> {
    let sum = |window: u64, key| (window * 100..(window + 1) * 100).filter(|n| n % 3 == key).sum::<u64>();
    let windows = (0..LAST / 100).flat_map(|window| (0..3).map(move |key| (window, key)));
    let mut lines: Vec<_> =
        windows.map(|(window, key)| format!("{} {key} {}", window * 100, sum(window, key))).collect();
    lines.sort();
    lines
}

struct Case {
    bed: Bed,
    sink: MemorySink,
    numbers: Numbers,
    edges: EdgeMode,
}

impl Case {
    /// All numbers are there to be read.
    fn new(edges: EdgeMode) -> Self {
        let case = Case { bed: Bed::new(), sink: MemorySink::default(), numbers: Numbers::new(LAST), edges };
        case.numbers.give(LAST);
        case
    }

    fn pipeline(&self) -> Pipeline {
        sums("p", &self.numbers, StreamOptions { bundle_records: 20, ..options(self.edges) }, &self.sink)
    }

    /// Runs a worker, and does something once as many numbers are read; it is killed once the pipeline is in a phase.
    async fn work_until(&self, at: u64, act: impl Fn(), ends: StreamPhase) {
        let has_acted = Cell::new(false);
        let stops = || {
            if !has_acted.get() && read(&self.bed) >= at {
                has_acted.set(true);
                act();
            }
            has_acted.get() && phase(&*self.bed.store) == Some(ends)
        };
        assert!(self.bed.run_on(&self.pipeline(), self.bed.store.clone(), stops).await.is_none());
        // Its lease ends.
        self.bed.world.advance(100);
    }

    /// Lets a worker do nothing for a while.
    async fn rest(&self) {
        let turns = Cell::new(0);
        let stops = || {
            turns.set(turns.get() + 1);
            turns.get() == 200
        };
        assert!(self.bed.run_on(&self.pipeline(), self.bed.store.clone(), stops).await.is_none());
        self.bed.world.advance(100);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_paused_pipeline_finishes_what_was_read_and_rests_until_it_is_resumed() {
    for edges in [EdgeMode::Local, EdgeMode::Retry] {
        let case = Case::new(edges);
        let store = &*case.bed.store;
        case.work_until(HALF, || assert!(now(pause(store, "p")).unwrap()), StreamPhase::Paused).await;
        let (at, lines) = (read(&case.bed), case.sink.lines());
        assert!((HALF..LAST).contains(&at), "{at}");
        // Its worker was killed: the pipeline is paused for the next one, too.
        case.rest().await;
        assert_eq!((read(&case.bed), case.sink.lines()), (at, lines));
        assert!(!now(pause(store, "p")).unwrap());
        assert!(now(resume(store, "p")).unwrap());
        assert!(!now(resume(store, "p")).unwrap());
        assert_eq!(phase(store), Some(StreamPhase::Running));
        assert!(case.bed.run(&case.pipeline()).await.unwrap().has_ended);
        assert_eq!(case.sink.lines(), expected(), "{edges:?}");
        assert_eq!(case.bed.rows_left().await, 2, "the plan and the result remain");
        assert!(matches!(now(pause(store, "p")), Err(StreamError::Ended { .. })));
        assert!(matches!(now(pause(store, "q")), Err(StreamError::Unknown { .. })));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_pipeline_stays_paused_whichever_call_of_a_worker_fails() {
    for (edges, fault) in [
        (EdgeMode::Local, Fault::StopBefore),
        (EdgeMode::Local, Fault::StopAfter),
        (EdgeMode::Local, Fault::LoseReply),
        (EdgeMode::Retry, Fault::StopAfter),
    ] {
        fault::for_every_n(fault, async |plan: FaultPlan| {
            let case = Case::new(edges);
            let store = &*case.bed.store;
            let faulty = Faulty::new(case.bed.store.clone(), plan.clone());
            let stops = || {
                if read(&case.bed) >= 40 && phase(store) == Some(StreamPhase::Running) {
                    now(pause(store, "p")).unwrap();
                }
                plan.stopped() || phase(store) == Some(StreamPhase::Paused)
            };
            let _killed = case.bed.run_on(&case.pipeline(), faulty, stops).await;
            case.bed.world.advance(100);
            if read(&case.bed) >= 40 {
                case.work_until(40, || drop(now(pause(store, "p"))), StreamPhase::Paused).await;
                assert!(read(&case.bed) < LAST);
                now(resume(store, "p")).unwrap();
            }
            case.bed.run(&case.pipeline()).await.unwrap();
            assert_eq!(case.sink.lines(), expected());
        })
        .await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_pipeline_is_paused_and_cancelled_or_not_whichever_call_fails() {
    for fault in Fault::ALL {
        fault::for_every_n(fault, async |plan: FaultPlan| {
            let case = Case::new(EdgeMode::Local);
            let store = &*case.bed.store;
            case.work_until(HALF, || {}, StreamPhase::Running).await;
            let faulty = Faulty::new(case.bed.store.clone(), plan.clone());
            // Killed in the middle, or told of the failure; both may ask again.
            let _asked = pause(&*faulty, "p").now_or_never();
            let is_paused = phase(store) != Some(StreamPhase::Running);
            assert_eq!(now(pause(store, "p")).unwrap(), !is_paused);
            let _cancelled = cancel(&*faulty, "p").now_or_never();
            now(cancel(store, "p")).unwrap();
            assert_eq!(phase(store), Some(StreamPhase::Cancelled));
            assert_eq!(state_rows(store).await, 0);
        })
        .await;
    }
}

/// Rows of the states and inboxes of all partitions.
async fn state_rows(store: &dyn Records) -> usize {
    let mut rows = 0;
    for stage in 0..3u16 {
        for (partition, what) in (0..2u16).flat_map(|partition| [(partition, "/state"), (partition, "/in")]) {
            let station = [stage.to_be_bytes(), partition.to_be_bytes()].concat();
            let group = Group::rows([b"stream/p", what.as_bytes(), &station].concat());
            rows += store.scan(Shard(0), Scan::of(group, 4096)).await.unwrap().rows.len();
        }
    }
    rows
}

#[tokio::test(flavor = "current_thread")]
async fn a_cancelled_pipeline_ends_its_workers_and_can_only_begin_anew() {
    let case = Case::new(EdgeMode::Local);
    let store = &*case.bed.store;
    let stops = || {
        if read(&case.bed) >= HALF && phase(store) == Some(StreamPhase::Running) {
            assert!(now(cancel(store, "p")).unwrap());
        }
        false
    };
    let ended = case.bed.run_on(&case.pipeline(), case.bed.store.clone(), stops).await.unwrap();
    assert!(matches!(ended, Err(StreamError::Cancelled { .. })), "{ended:?}");
    assert!(state_rows(store).await == 0 && read(&case.bed) < LAST);
    assert!(!now(cancel(store, "p")).unwrap());
    assert!(matches!(now(resume(store, "p")), Err(StreamError::Cancelled { .. })));
    assert!(matches!(case.bed.run(&case.pipeline()).await, Err(StreamError::Cancelled { .. })));
    assert!(now(remove(store, "p", None)).unwrap());
    let anew = Case { sink: MemorySink::default(), ..case };
    anew.bed.run(&anew.pipeline()).await.unwrap();
    assert_eq!(anew.sink.lines(), expected());
}

#[tokio::test(flavor = "current_thread")]
async fn workers_that_are_drained_from_outside_end_and_later_ones_go_on() {
    let case = Case::new(EdgeMode::Local);
    let store = &*case.bed.store;
    let has_asked = Cell::new(false);
    let stops = || {
        if read(&case.bed) >= HALF && !has_asked.replace(true) {
            now(drain(store, "p")).unwrap();
            assert_eq!(phase(store), Some(StreamPhase::Draining));
        }
        false
    };
    let drained = case.bed.run_on(&case.pipeline(), case.bed.store.clone(), stops).await.unwrap().unwrap();
    assert!(!drained.has_ended && drained.stages[0].counts.records_in < LAST);
    assert_eq!(phase(store), Some(StreamPhase::Running));
    case.bed.world.advance(1);
    assert!(case.bed.run(&case.pipeline()).await.unwrap().has_ended);
    assert_eq!(case.sink.lines(), expected());
}
