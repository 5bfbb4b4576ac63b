//! Side outputs, and enrichment from a table: exact through every crash, and independent of the order of arrival.

use crate::bed::{Bed, MemorySink, line, options};
use onceflow_store::testing::fault::{self, Fault, FaultPlan, Faulty};
use onceflow_stream::{
    EdgeMode, EventTime, Generator, Pipeline, StreamError, StreamOptions,
    combine::Count,
    step::join::Side,
    window::{Trigger, Windowing},
};

fn sorted(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort();
    lines
}

/// Runs a pipeline with a fault at one call of its first worker, and to its end.
async fn with_fault(bed: &Bed, plan: FaultPlan, pipeline: impl Fn() -> Pipeline) {
    let faulty = Faulty::new(bed.store.clone(), plan.clone());
    match bed.run_on(&pipeline(), faulty, || plan.stopped()).await {
        Some(Ok(_)) => {}
        None | Some(Err(StreamError::Store(_))) => drop(bed.run(&pipeline()).await.unwrap()),
        Some(Err(error)) => panic!("{error}"),
    }
}

/// Every tenth record is 100 ms earlier than the latest, and the watermark 20 ms.
fn mixed(n: u64) -> (u64, EventTime) {
    let n_ms = i64::try_from(n).unwrap();
    (n, EventTime(if n % 10 == 9 { n_ms - 100 } else { n_ms }))
}

#[tokio::test(flavor = "current_thread")]
async fn late_records_come_out_apart_and_none_is_lost_or_counted_twice() {
    for windowing in [Windowing::tumbling(30), Windowing::sliding(30, 15), Windowing::sessions(3)] {
        let (bed, counts, late) = (Bed::new(), MemorySink::default(), MemorySink::default());
        let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
        let source = pipeline.source("numbers", Generator::new(300, mixed).out_of_order_ms(20));
        let (results, late_ones) =
            source.key_value("by key", |n| (n % 3, n)).combine_with_late("count", windowing, Count::new());
        results.sink("counts", counts.clone(), |pane, bytes| line(&format!("{}", pane.value), bytes));
        late_ones.sink("late", late.clone(), |late, bytes| line(&format!("{} {}", late.key, late.value), bytes));
        let plan = pipeline.explain().to_string();
        assert!(
            plan.contains("its late records are read") || plan.contains("merge") || plan.contains("several"),
            "{plan}"
        );
        let result = bed.run(&pipeline).await.unwrap();
        let counted: u64 = counts.lines().iter().map(|count| count.parse::<u64>().unwrap()).sum();
        let (apart, counted_late) = (late.lines(), result.stages[1].counts.late);
        assert!(apart.len() >= 20, "{windowing:?}: {apart:?}");
        assert!(apart.iter().all(|line| line.ends_with('9')), "only those that are late: {apart:?}");
        if windowing.kind.assigns_one() {
            assert_eq!(counted + apart.len() as u64, 300, "{windowing:?}");
            assert_eq!(counted_late, apart.len() as u64);
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_record_between_two_windows_is_not_late() {
    let (bed, counts, late) = (Bed::new(), MemorySink::default(), MemorySink::default());
    let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
    let source = pipeline.source("numbers", Generator::new(100, |n| (n, EventTime(i64::try_from(n).unwrap()))));
    let keyed = source.key_value("all", |n| ((), n));
    let (results, late_ones) = keyed.combine_with_late("count", Windowing::sliding(10, 25), Count::new());
    results.sink("counts", counts.clone(), |pane, bytes| line(&format!("{}", pane.value), bytes));
    late_ones.sink("late", late.clone(), |late, bytes| line(&format!("{}", late.value), bytes));
    bed.run(&pipeline).await.unwrap();
    assert_eq!((counts.lines(), late.lines()), (vec![String::from("10"); 4], Vec::new()));
}

/// Records of the first window come when the watermark is far past it, and others keep the pipeline going for long enough.
fn late_ones(n: u64) -> (u64, EventTime) {
    let time = if n > 30 && n.is_multiple_of(2) && n < 90 { 5 } else { i64::try_from(n).unwrap() * 10 };
    (n, EventTime(time))
}

#[tokio::test(flavor = "current_thread")]
async fn late_results_by_time_hold_all_late_records_of_that_time() {
    for windowing in [Windowing::tumbling(10), Windowing::sessions(10)] {
        for (late_after, fewest, most) in [(None, 29, 29), (Some(10), 2, 20)] {
            let (bed, sink) = (Bed::new(), MemorySink::default());
            let one = StreamOptions { partitions: 1, bundle_records: 2, ..options(EdgeMode::Local) };
            let pipeline = Pipeline::new("p").options(one);
            let source = pipeline.source("numbers", Generator::new(400, late_ones));
            let trigger = Trigger::at_end().discarding();
            let trigger = late_after.map_or(trigger, |ms| trigger.late_after(ms));
            let counts = source.key_value("all", |n| ((), n)).combine(
                "count",
                windowing.trigger(trigger).lateness(1_000_000),
                Count::new(),
            );
            counts.sink("out", sink.clone(), |pane, bytes| line(&format!("{:?} {}", pane.timing, pane.value), bytes));
            bed.run(&pipeline).await.unwrap();
            let late: Vec<_> = sink.lines().into_iter().filter(|line| line.starts_with("Late")).collect();
            let counted: u64 = late.iter().map(|line| line[5..].parse::<u64>().unwrap()).sum();
            assert_eq!(counted, 29, "{windowing:?}, after {late_after:?}: {late:?}");
            assert!((fewest..=most).contains(&late.len()), "{windowing:?}, after {late_after:?}: {late:?}");
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn records_of_two_kinds_and_failures_have_streams_of_their_own() {
    let (bed, sinks) = (Bed::new(), [(); 4].map(|()| MemorySink::default()));
    let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
    let numbers = pipeline.source("numbers", Generator::new(40, |n| (n, EventTime(0))));
    let (odd, even) = numbers.divide("parity", |n| if n % 2 == 1 { Side::Left(n) } else { Side::Right(n.to_string()) });
    let (halves, failed) =
        odd.flat_map_or_divert("by five", |n| if n % 5 == 0 { Err(format!("{n} fails")) } else { Ok([n, n]) });
    even.sink("even", sinks[0].clone(), |n, bytes| line(n, bytes));
    halves.sink("halves", sinks[1].clone(), |n, bytes| line(&n.to_string(), bytes));
    failed.sink("failed", sinks[2].clone(), |why, bytes| line(why, bytes));
    bed.run(&pipeline).await.unwrap();
    assert_eq!(sinks[0].lines(), sorted((0..40).filter(|n| n % 2 == 0).map(|n| n.to_string())));
    let odd = || (0..40).filter(|n| n % 2 == 1);
    assert_eq!(sinks[1].lines(), sorted(odd().filter(|n| n % 5 != 0).flat_map(|n| [n.to_string(), n.to_string()])));
    assert_eq!(sinks[2].lines(), sorted(odd().filter(|n| n % 5 == 0).map(|n| format!("{n} fails"))));
}

const PRICES: u64 = 40;
const ORDERS: u64 = 200;

/// The price of each of three goods changes every 30 ms; prices come mixed.
fn price(n: u64) -> ((u64, u64), EventTime) {
    let n = n ^ 1;
    ((n % 3, 1000 + n), EventTime(i64::try_from(n / 3 * 30).unwrap()))
}

fn order(n: u64) -> ((u64, u64), EventTime) {
    let time = i64::try_from(2 * n).unwrap() - i64::try_from(n % 5).unwrap();
    ((n % 4, n), EventTime(time))
}

fn priced(edges: EdgeMode, orders_first: bool, sink: &MemorySink) -> Pipeline {
    let pipeline = Pipeline::new("p").options(StreamOptions { bundle_records: 20, ..options(edges) });
    let prices =
        || pipeline.source("prices", Generator::new(PRICES, price).out_of_order_ms(60)).key_value("good", |p| p);
    let orders = || pipeline.source("orders", Generator::new(ORDERS, order).out_of_order_ms(10)).key_value("of", |o| o);
    // The order in which sources are declared is the order in which they are read.
    let (orders, prices) = match orders_first {
        true => {
            let orders = orders();
            (orders, prices())
        }
        false => {
            let prices = prices();
            (orders(), prices)
        }
    };
    orders.lookup("priced", &prices).sink("out", sink.clone(), |(good, order, price), bytes| {
        line(&format!("{order} {good} {price:?}"), bytes);
    });
    pipeline
}

/// The latest price that is not after the order, over all prices at once.
fn expected_prices() -> Vec<String> {
    sorted((0..ORDERS).map(|n| {
        let ((good, order), time) = order(n);
        let prices = (0..PRICES).map(price).filter(|((of, _), from)| *of == good && *from <= time);
        let price = prices.max_by_key(|(_, from)| *from).map(|((_, price), _)| price);
        format!("{order} {good} {price:?}")
    }))
}

#[tokio::test(flavor = "current_thread")]
async fn every_record_has_the_row_of_its_time_whatever_comes_first() {
    assert!(expected_prices().iter().any(|line| line.ends_with("None")), "a good has no price");
    for edges in [EdgeMode::Local, EdgeMode::Retry] {
        for orders_first in [true, false] {
            let (bed, sink) = (Bed::new(), MemorySink::default());
            bed.run(&priced(edges, orders_first, &sink)).await.unwrap();
            assert_eq!(sink.lines(), expected_prices(), "{edges:?}, orders first: {orders_first}");
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn rows_of_a_table_are_right_whichever_call_fails() {
    for fault in [Fault::StopBefore, Fault::StopAfter, Fault::LoseReply] {
        let calls = fault::for_every_n(fault, async |plan| {
            let (bed, sink) = (Bed::new(), MemorySink::default());
            with_fault(&bed, plan, || priced(EdgeMode::Local, true, &sink)).await;
            assert_eq!(sink.lines(), expected_prices());
        })
        .await;
        assert!(calls > 50, "{calls} calls");
    }
}
