//! Results do not depend on how a pipeline is planned or on the way its records take.

use crate::bed::{Bed, MemorySink, line, options};
use onceflow_stream::{
    EdgeMode, EventTime, Generator, Pipeline,
    combine::{Count, Sum},
    plan::PlanOptions,
    window::Windowing,
};
use std::collections::BTreeMap;

pub(crate) const RECORDS: u64 = 200;

/// Key and time of a record: out of order by up to 9 ms.
pub(crate) fn record(n: u64) -> ((u64, u64), EventTime) {
    ((n % 13, n), EventTime((n as i64 / 4) * 4 + (n as i64 * 7) % 9))
}

/// Sums of numbers per key and window of 30 ms, in a file of lines; with a stateless step on either side.
pub(crate) fn sums(name: &str, sink: &MemorySink) -> Pipeline {
    let pipeline = Pipeline::new(name);
    let source = Generator::new(RECORDS, record).splits(2).out_of_order_ms(20);
    let results = pipeline
        .source("numbers", source)
        .filter("odd keys", |(key, _)| key % 2 == 1)
        .map("double", |(key, n)| (key, 2 * n))
        .key_value("by key", |(key, n)| (key, n))
        .combine("sum", Windowing::tumbling(30), Sum::new());
    results.sink("lines", sink.clone(), |sum, bytes| {
        line(&format!("{} {} {} {:?}", sum.window.start.0, sum.key, sum.value, sum.timing), bytes);
    });
    pipeline
}

/// The same, one record after the other.
pub(crate) fn expected_sums() -> Vec<String> {
    let mut sums: BTreeMap<(i64, u64), u64> = BTreeMap::new();
    for ((key, n), time) in (0..RECORDS).map(record).filter(|((key, _), _)| key % 2 == 1) {
        *sums.entry((time.0.div_euclid(30) * 30, key)).or_default() += 2 * n;
    }
    let mut lines: Vec<_> = sums.iter().map(|((start, key), sum)| format!("{start} {key} {sum} OnTime")).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "current_thread")]
async fn results_are_the_same_lifted_or_not_fused_or_not_local_or_sent() {
    for lift in [true, false] {
        for fuse in [true, false] {
            for edges in [EdgeMode::Local, EdgeMode::Retry] {
                let (bed, sink) = (Bed::new(), MemorySink::default());
                let pipeline = sums("p", &sink).options(options(edges)).planning(PlanOptions { lift, fuse });
                let result = bed.run(&pipeline).await.unwrap();
                assert_eq!(sink.lines(), expected_sums(), "lift {lift} fuse {fuse} {edges:?}");
                assert_eq!(result.stages[0].counts.records_in, RECORDS);
                assert_eq!(result.stages.iter().map(|stage| stage.counts.late).sum::<u64>(), 0);
                assert_eq!(bed.rows_left().await, 2, "the plan and the result remain");
                assert_eq!(
                    bed.run(&pipeline).await.unwrap(),
                    result,
                    "a pipeline that has ended gives its result again"
                );
            }
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_lifted_combine_sends_one_record_per_key_window_and_bundle() {
    let run = async |lift| {
        let (bed, sink) = (Bed::new(), MemorySink::default());
        let pipeline = Pipeline::new("p").planning(PlanOptions { lift, fuse: true });
        let words = pipeline.source("words", Generator::new(1000, |n| (n % 4, EventTime(0))));
        words.key_by("word", |word| *word).combine("count", Windowing::global(), Count::new()).sink(
            "lines",
            sink.clone(),
            |count, bytes| line(&format!("{} {}", count.key, count.value), bytes),
        );
        let result = bed.run(&pipeline).await.unwrap();
        assert_eq!(sink.lines(), ["0 250", "1 250", "2 250", "3 250"]);
        result.stages[0].counts.records_out
    };
    assert_eq!((run(true).await, run(false).await), (4, 1000));
}

#[tokio::test(flavor = "current_thread")]
async fn another_pipeline_under_the_name_of_one_that_has_ended_is_refused() {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    bed.run(&sums("p", &sink).options(options(EdgeMode::Local))).await.unwrap();
    let changed = sums("p", &sink).options(options(EdgeMode::Local)).planning(PlanOptions { lift: false, fuse: true });
    let error = bed.run(&changed).await.unwrap_err().to_string();
    assert!(error.contains("`p` has ended in this store, with other steps"), "{error}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_panic_of_user_code_ends_the_pipeline_with_its_message() {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let pipeline = Pipeline::new("p");
    let numbers = pipeline.source("numbers", Generator::new(10, |n| (n, EventTime(0))));
    let odd = numbers.map("halve", |n: u64| if n == 7 { panic!("seven is odd") } else { n / 2 });
    odd.sink("lines", sink, |n, bytes| line(&n.to_string(), bytes));
    let error = bed.run(&pipeline).await.unwrap_err().to_string();
    assert_eq!(error, "a function in stage 0 of the pipeline panicked: seven is odd");
}
