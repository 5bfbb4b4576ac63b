//! Windows, state and joins against the definition, evaluated naively.

use crate::bed::{Bed, MemorySink, line, options};
use onceflow_stream::{
    EdgeMode, EventTime, Generator, NextRecord, Pipeline, SplitReader, StreamSource,
    combine::{Combine, Count, Sum, TopN},
    step::{
        join::JoinRange,
        process::{KeyedProcess, ProcessContext},
    },
    window::{Early, Trigger, Windowing},
};
use std::collections::BTreeMap;

fn record(n: u64) -> ((u64, u64), EventTime) {
    ((n % 5, n), EventTime((n as i64 * 3) + (n as i64 * 11) % 17))
}

/// Runs a combine over 120 records and returns its results as lines.
async fn combined<C: Combine<In = u64>>(windowing: Windowing, combine: C) -> Vec<String>
where
    C::Out: std::fmt::Debug + Sync,
{
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
    let source = pipeline.source("numbers", Generator::new(120, record).out_of_order_ms(20));
    let results = source.key_value("key", |(key, n)| (key, n)).combine("combine", windowing, combine);
    results.sink("lines", sink.clone(), |pane, bytes| {
        let (window, value) = (pane.window, &pane.value);
        line(&format!("{} {} {} {value:?} {:?}", pane.key, window.start.0, window.end.0, pane.timing), bytes);
    });
    bed.run(&pipeline).await.unwrap();
    sink.lines()
}

#[tokio::test(flavor = "current_thread")]
async fn sliding_windows_give_what_their_definition_says() {
    let mut expected: BTreeMap<(u64, i64), u64> = BTreeMap::new();
    for ((key, n), time) in (0..120).map(record) {
        for start in (-50..400).filter(|start| start % 10 == 0 && (*start..start + 40).contains(&time.0)) {
            *expected.entry((key, start)).or_default() += n;
        }
    }
    let lines = expected.iter().map(|((key, start), sum)| format!("{key} {start} {} {sum} OnTime", start + 40));
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    assert_eq!(combined(Windowing::sliding(40, 10), Sum::new()).await, lines);
}

#[tokio::test(flavor = "current_thread")]
async fn sessions_are_the_runs_of_a_key_without_a_pause() {
    let mut times: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    (0..120).map(record).for_each(|((key, _), time)| times.entry(key).or_default().push(time.0));
    let mut lines = Vec::new();
    for (key, mut times) in times {
        times.sort_unstable();
        let mut sessions: Vec<(i64, i64, u64)> = Vec::new();
        for time in times {
            match sessions.last_mut() {
                Some((_, end, count)) if time < *end => (*end, *count) = (time + 14, *count + 1),
                _ => sessions.push((time, time + 14, 1)),
            }
        }
        lines.extend(sessions.iter().map(|(start, end, count)| format!("{key} {start} {end} {count} OnTime")));
    }
    lines.sort();
    assert!(lines.len() > 10);
    assert_eq!(combined(Windowing::sessions(14), Count::new()).await, lines);
}

#[tokio::test(flavor = "current_thread")]
async fn early_results_cover_every_record_once_when_discarding() {
    let windowing = Windowing::tumbling(60).trigger(Trigger::at_end().early(Early::Count(2)).discarding());
    let lines = combined(windowing, Count::new()).await;
    let count = |line: &String| line.split(' ').nth(3).unwrap().parse::<u64>().unwrap();
    assert_eq!(lines.iter().map(count).sum::<u64>(), 120);
    assert!(lines.iter().any(|line| line.ends_with("Early")) && lines.iter().any(|line| line.ends_with("OnTime")));
    assert!(lines.iter().filter(|line| line.ends_with("Early")).all(|line| count(line) == 2));
}

#[tokio::test(flavor = "current_thread")]
async fn the_top_records_of_a_window_are_its_largest() {
    let lines = combined(Windowing::global(), TopN::new(2)).await;
    let end = i64::MAX;
    let expected: Vec<_> =
        (0..5).map(|key| format!("{key} {} {end} [{}, {}] OnTime", i64::MIN, 115 + key, 110 + key)).collect();
    assert_eq!(lines, expected);
}

#[tokio::test(flavor = "current_thread")]
async fn records_beyond_the_allowed_lateness_are_dropped_and_counted_and_others_give_late_results() {
    for (lateness, late_results, dropped) in [(0, 0, 2), (40, 1, 1), (1000, 2, 0)] {
        let (bed, sink) = (Bed::new(), MemorySink::default());
        let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
        let source = pipeline.source("times", Slow(vec![5, 30, 6, 90, 7, 200]));
        let windowing = Windowing::tumbling(10).lateness(lateness);
        source.key_by("all", |key| *key).combine("count", windowing, Count::new()).sink(
            "lines",
            sink.clone(),
            |pane, bytes| line(&format!("{} {} {:?}", pane.window.start.0, pane.value, pane.timing), bytes),
        );
        let result = bed.run(&pipeline).await.unwrap();
        assert_eq!(result.stages[1].counts.late, dropped, "lateness {lateness}");
        let late = sink.lines().iter().filter(|line| line.ends_with("Late")).count();
        assert_eq!(late, late_results, "lateness {lateness}: {:?}", sink.lines());
        assert_eq!(bed.rows_left().await, 2);
    }
}

/// Records of one key with these times, so slowly that each one's watermark has arrived before the next one.
struct Slow(Vec<i64>);

struct SlowReader(Vec<i64>, usize);

impl StreamSource for Slow {
    type Item = u8;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> std::io::Result<Box<dyn SplitReader<u8>>> {
        assert_eq!(position, None, "the worker is not restarted");
        Ok(Box::new(SlowReader(self.0.clone(), 0)))
    }
}

impl SplitReader<u8> for SlowReader {
    fn next(&mut self) -> std::io::Result<NextRecord<u8>> {
        const TURNS: usize = 20;
        self.1 += 1;
        Ok(match self.0.get(self.1 / TURNS) {
            None => NextRecord::Ended,
            Some(time) if self.1.is_multiple_of(TURNS) => NextRecord::Record(0, EventTime(*time)),
            Some(_) => NextRecord::Pending,
        })
    }

    fn position(&self) -> Vec<u8> {
        vec![]
    }

    fn watermark(&self) -> EventTime {
        self.0[..self.0.len().min(self.1 / 20 + 1)].iter().max().map_or(EventTime::MIN, |time| EventTime(*time))
    }
}

/// Emits the number of records of a key every time 50 ms of event time have passed since the first.
struct Bursts;

impl KeyedProcess for Bursts {
    type Key = u64;
    type In = u64;
    type Out = String;
    type State = (i64, u64);

    fn on_record(&mut self, context: &mut ProcessContext<'_, String>, _: &u64, state: &mut Option<(i64, u64)>, _: u64) {
        let time = context.time();
        let (until, count) = state.get_or_insert((time.0 + 50, 0));
        *count += 1;
        // Set anew for every record: a key has one timer for one time.
        context.clear_timer(EventTime(*until));
        context.set_timer(EventTime(*until));
    }

    fn on_timer(&mut self, context: &mut ProcessContext<'_, String>, key: &u64, state: &mut Option<(i64, u64)>) {
        let (until, count) = state.take().expect("a timer is set with the state");
        assert_eq!(context.time(), EventTime(until));
        context.emit(format!("{key} {count}"));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn timers_of_a_key_fire_once_in_order_and_see_its_state() {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
    let source = pipeline.source("numbers", Generator::new(100, |n| ((n % 3, n), EventTime(n as i64 * 2))));
    source.key_value("key", |(key, n)| (key, n)).process("bursts", || Bursts).sink(
        "lines",
        sink.clone(),
        |text, bytes| {
            line(text, bytes);
        },
    );
    bed.run(&pipeline).await.unwrap();
    let counts = sink.lines().iter().map(|line| line.split_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!(counts, 100);
    assert!(sink.lines().len() >= 6, "{:?}", sink.lines());
    assert_eq!(bed.rows_left().await, 2);
}

#[tokio::test(flavor = "current_thread")]
async fn joins_give_every_pair_that_belongs_together_once() {
    for range in [JoinRange::Window { size_ms: 20 }, JoinRange::Interval { before_ms: 5, after_ms: 9 }] {
        let (bed, sink) = (Bed::new(), MemorySink::default());
        let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
        let at = |n: u64, step: i64| EventTime(n as i64 * step + (n as i64 * 5) % 4);
        let source = |name, step| {
            let made = Generator::new(60, move |n| ((n % 3, n), at(n, step))).out_of_order_ms(4);
            pipeline.source(name, made).key_value("key", |(key, n)| (key, n))
        };
        let (left, right) = (source("left", 2), source("right", 3));
        left.join("join", &right, range)
            .sink("lines", sink.clone(), |(key, a, b), bytes| line(&format!("{key} {a} {b}"), bytes));
        bed.run(&pipeline).await.unwrap();
        let mut expected = Vec::new();
        for a in 0..60u64 {
            for b in (0..60u64).filter(|b| a % 3 == b % 3) {
                let (ta, tb) = (at(a, 2).0, at(b, 3).0);
                let meets = match range {
                    JoinRange::Window { size_ms } => ta.div_euclid(size_ms) == tb.div_euclid(size_ms),
                    JoinRange::Interval { before_ms, after_ms } => (ta - before_ms..=ta + after_ms).contains(&tb),
                };
                if meets {
                    expected.push(format!("{} {a} {b}", a % 3));
                }
            }
        }
        expected.sort();
        assert!(expected.len() > 50);
        assert_eq!(sink.lines(), expected, "{range:?}");
        assert_eq!(bed.rows_left().await, 2);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn split_and_merged_streams_lose_nothing() {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
    let numbers = pipeline.source("numbers", Generator::new(50, |n| (n, EventTime(n as i64))));
    let (even, odd) = numbers.split("even", |n| n % 2 == 0);
    let both = even
        .map("e", |n| format!("{n} even"))
        .merge("both", &[odd.break_stage("apart").map("o", |n| format!("{n} odd"))]);
    both.sink("lines", sink.clone(), |text, bytes| line(text, bytes));
    bed.run(&pipeline).await.unwrap();
    let mut expected: Vec<_> = (0..50).map(|n| format!("{n} {}", if n % 2 == 0 { "even" } else { "odd" })).collect();
    expected.sort();
    assert_eq!(sink.lines(), expected);
}
