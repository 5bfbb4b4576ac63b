//! A changed pipeline goes on with the state of the earlier one, or says which step cannot, and why.

use crate::bed::{Bed, MemorySink, line, options};
use futures_util::FutureExt;
use onceflow_store::testing::{
    fault::{self, Fault, FaultPlan, Faulty},
    world::poll_once,
};
use onceflow_stream::{
    EdgeMode, EventTime, NextRecord, Pipeline, SplitReader, Stream, StreamError, StreamOptions, StreamSource,
    combine::{Count, Sum},
    status,
    upgrade::ConflictCause,
    window::Windowing,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
};

/// Numbers up to a bound that a test raises; after the last one it ends.
#[derive(Clone)]
pub(crate) struct Numbers {
    given: Arc<AtomicU64>,
    last: u64,
}

struct Counting(Numbers, u64);

impl Numbers {
    pub(crate) fn new(last: u64) -> Self {
        Numbers { given: Arc::default(), last }
    }

    /// Gives numbers below this one.
    pub(crate) fn give(&self, bound: u64) {
        self.given.store(bound, SeqCst);
    }
}

impl StreamSource for Numbers {
    type Item = u64;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let next = position.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        Ok(Box::new(Counting(self.clone(), next)))
    }
}

impl SplitReader<u64> for Counting {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        let n = self.1;
        if n == self.0.last {
            return Ok(NextRecord::Ended);
        }
        if n >= self.0.given.load(SeqCst) {
            return Ok(NextRecord::Pending);
        }
        self.1 += 1;
        Ok(NextRecord::Record(n, EventTime(n as i64)))
    }

    fn position(&self) -> Vec<u8> {
        self.1.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        EventTime(self.1 as i64)
    }
}

pub(crate) const LAST: u64 = 400;
pub(crate) const HALF: u64 = 190;

/// Sums of numbers for each remainder by three, in windows of 100 ms.
fn sums(numbers: &Stream<u64>, window_ms: i64, sink: &MemorySink) {
    let windows = Windowing::tumbling(window_ms);
    let sums = numbers.key_value("remainder", |n| (n % 3, n)).combine("sum", windows, Sum::new());
    sums.sink("lines", sink.clone(), |sum, bytes| {
        line(&format!("sum {} {} {}", sum.window.start.0, sum.key, sum.value), bytes);
    });
}

fn pipeline(edges: EdgeMode) -> Pipeline {
    Pipeline::new("p").options(StreamOptions { bundle_records: 20, ..options(edges) })
}

/// The pipeline before it is changed: sums, and a count of everything.
fn earlier(numbers: &Numbers, edges: EdgeMode, sink: &MemorySink) -> Pipeline {
    let pipeline = pipeline(edges);
    let numbers = pipeline.source("numbers", numbers.clone());
    sums(&numbers.filter("even", |n| n % 2 == 0), 100, sink);
    let all = numbers.key_by("all", |_| ()).combine("total", Windowing::global(), Count::new());
    all.sink("total lines", sink.clone(), |count, bytes| line(&format!("total {}", count.value), bytes));
    pipeline
}

/// Another filter and another order; `total` is gone, and `odd` is new.
fn changed(numbers: &Numbers, edges: EdgeMode, sink: &MemorySink) -> Pipeline {
    let pipeline = pipeline(edges);
    let numbers = pipeline.source("numbers", numbers.clone());
    let odd = numbers.filter("odd", |n| n % 2 == 1).key_by("one key", |_| ());
    let odd = odd.combine("odd count", Windowing::global(), Count::new());
    odd.sink("odd lines", sink.clone(), |count, bytes| line(&format!("odd {}", count.value), bytes));
    sums(&numbers.filter("every fourth", |n| n % 4 == 0).map("same", |n| n), 100, sink);
    pipeline
}

/// Lines of a run that is changed when half of the numbers are read.
fn expected() -> Vec<String> {
    let mut lines = Vec::new();
    for window in 0..LAST / 100 {
        for key in 0..3 {
            let numbers = window * 100..(window + 1) * 100;
            let sum: u64 = numbers.filter(|n| n % 3 == key && n % (if *n < HALF { 2 } else { 4 }) == 0).sum();
            lines.push(format!("sum {} {key} {sum}", window * 100));
        }
    }
    lines.push(format!("odd {}", (HALF..LAST).filter(|n| n % 2 == 1).count()));
    lines.sort();
    lines
}

/// Runs until everything that is given is done, then drains.
async fn drained(bed: &Bed, pipeline: &Pipeline) {
    pipeline.control().drain();
    assert!(!bed.run(pipeline).await.unwrap().has_ended);
}

/// Runs until the source has given everything below the bound.
async fn until(bed: &Bed, numbers: &Numbers, pipeline: Pipeline, bound: u64) {
    numbers.give(bound);
    let store = bed.store.clone();
    assert!(bed.run_on(&pipeline, store, || read(bed) == bound).await.is_none());
    // Its lease ends.
    bed.world.advance(100);
}

/// The numbers that were read.
pub(crate) fn read(bed: &Bed) -> u64 {
    let status = status(&*bed.store, "p", None).now_or_never().expect("a store in memory answers at once");
    status.unwrap().map_or(0, |status| status.stages[0].counts.records_in)
}

fn conflicts(error: StreamError) -> Vec<(String, ConflictCause)> {
    let StreamError::Changed { conflicts, .. } = error else { panic!("{error}") };
    conflicts.into_iter().map(|conflict| (conflict.step, conflict.cause)).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn steps_that_stay_keep_their_state_and_new_ones_begin_empty() {
    for edges in [EdgeMode::Local, EdgeMode::Retry] {
        let (bed, sink, numbers) = (Bed::new(), MemorySink::default(), Numbers::new(LAST));
        until(&bed, &numbers, earlier(&numbers, edges, &sink), HALF).await;
        drained(&bed, &earlier(&numbers, edges, &sink)).await;
        let error = bed.run(&changed(&numbers, edges, &sink)).await.unwrap_err();
        let gone = |step: &str| (step.to_owned(), ConflictCause::Removed);
        assert_eq!(conflicts(error), [gone("total"), gone("total lines")]);
        numbers.give(LAST);
        let changed = || changed(&numbers, edges, &sink).drop_state_of("total").drop_state_of("total lines");
        let result = bed.run(&changed()).await.unwrap();
        assert_eq!(sink.lines(), expected(), "{edges:?}");
        assert!(result.has_ended && result.stages[0].counts.records_in == LAST);
        assert_eq!(bed.rows_left().await, 2, "the plan and the result remain");
        assert_eq!(bed.run(&changed()).await.unwrap(), result);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_upgrade_happens_once_whichever_call_fails() {
    for fault in Fault::ALL {
        fault::for_every_n(fault, async |plan: FaultPlan| {
            let (bed, sink, numbers, edges) = (Bed::new(), MemorySink::default(), Numbers::new(LAST), EdgeMode::Local);
            until(&bed, &numbers, earlier(&numbers, edges, &sink), HALF).await;
            drained(&bed, &earlier(&numbers, edges, &sink)).await;
            numbers.give(HALF + 20);
            let changed = || changed(&numbers, edges, &sink).drop_state_of("total").drop_state_of("total lines");
            // Its first calls are those of the upgrade.
            let first = changed();
            first.control().drain();
            let faulty = Faulty::new(bed.store.clone(), plan.clone());
            match bed.run_on(&first, faulty, || plan.stopped()).await {
                None | Some(Ok(_) | Err(StreamError::Store(_))) => {}
                Some(Err(error)) => panic!("{error}"),
            }
            numbers.give(LAST);
            bed.run(&changed()).await.unwrap();
            assert_eq!(sink.lines(), expected());
        })
        .await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_step_whose_state_is_of_no_use_is_named_with_the_reason() {
    let (bed, sink, numbers, edges) = (Bed::new(), MemorySink::default(), Numbers::new(LAST), EdgeMode::Local);
    let with_window = |window_ms| {
        let pipeline = pipeline(edges);
        sums(&pipeline.source("numbers", numbers.clone()), window_ms, &sink);
        pipeline
    };
    until(&bed, &numbers, with_window(100), HALF).await;
    let error = bed.run(&with_window(200)).await.unwrap_err();
    let text = "the pipeline `p` cannot go on with the state that this store has of it:\n  \
                step `sum`: its window was tumbling, 100 ms, and is tumbling, 200 ms now";
    assert_eq!(error.to_string(), text);
    let error = bed.run(&with_window(100).options(StreamOptions { partitions: 3, ..options(edges) })).await;
    assert!(error.unwrap_err().to_string().contains("step `sum`: its number of partitions was 2, and is 3 now"));
    // The kind of a step, and of a key.
    let counted = pipeline(edges);
    let keyed = counted.source("numbers", numbers.clone()).key_value("remainder", |n| (n.to_string(), n));
    let counts = keyed.combine("sum", Windowing::tumbling(100), Count::new());
    counts.sink("lines", sink.clone(), |sum, bytes| line(&sum.key, bytes));
    let error = bed.run(&counted).await.unwrap_err().to_string();
    assert!(error.contains("its combine was Sum, and is Count now"), "{error}");
    assert!(error.contains("its key type was u64, and is String now"), "{error}");
    // Nothing has happened.
    numbers.give(LAST);
    assert!(bed.run(&with_window(100)).await.unwrap().has_ended);
}

#[tokio::test(flavor = "current_thread")]
async fn a_worker_that_slept_while_its_pipeline_was_changed_stops() {
    let (bed, sink, numbers, edges) = (Bed::new(), MemorySink::default(), Numbers::new(LAST), EdgeMode::Local);
    numbers.give(HALF);
    let mut asleep = earlier(&numbers, edges, &sink).run(bed.store.clone(), bed.world.clone());
    for _ in 0..500 {
        assert!(poll_once(&mut asleep).await.is_pending());
        bed.world.advance(1);
    }
    // Its lease ends while it sleeps.
    bed.world.advance(100);
    let changed = || changed(&numbers, edges, &sink).drop_state_of("total").drop_state_of("total lines");
    until(&bed, &numbers, changed(), HALF + 20).await;
    let stopped = loop {
        if let Poll::Ready(stopped) = poll_once(&mut asleep).await {
            break stopped;
        }
        bed.world.advance(1);
    };
    assert!(matches!(stopped, Err(StreamError::Superseded { .. })), "{stopped:?}");
    numbers.give(LAST);
    bed.world.advance(100);
    bed.run(&changed()).await.unwrap();
    assert_eq!(sink.lines(), expected());
}

#[tokio::test(flavor = "current_thread")]
async fn records_on_their_way_to_a_step_that_stays_arrive_and_others_are_refused() {
    // Killed at any commit, so that records are on their way.
    for commits in 3..40 {
        let (bed, sink, numbers, edges) = (Bed::new(), MemorySink::default(), Numbers::new(LAST), EdgeMode::Local);
        numbers.give(HALF);
        let plan = FaultPlan::at(commits * 3, Fault::StopAfter);
        let faulty = Faulty::new(bed.store.clone(), plan.clone());
        bed.run_on(&earlier(&numbers, edges, &sink), faulty, || plan.stopped()).await;
        bed.world.advance(100);
        let read = read(&bed);
        numbers.give(LAST);
        let changed = changed(&numbers, edges, &sink).drop_state_of("total").drop_state_of("total lines");
        match bed.run(&changed).await {
            Ok(_) => {
                let sums = |lines: Vec<String>| -> u64 {
                    let sums = lines.iter().filter(|line| line.starts_with("sum"));
                    sums.map(|line| line.split(' ').next_back().unwrap().parse::<u64>().unwrap()).sum()
                };
                let expected: u64 = (0..LAST).filter(|n| n % (if *n < read { 2 } else { 4 }) == 0).sum();
                assert_eq!(sums(sink.lines()), expected, "killed after {commits} commits, {read} read");
            }
            Err(error) => assert!(conflicts(error).iter().all(|(_, cause)| *cause == ConflictCause::InFlight)),
        }
    }
}
