//! Clients send every record one to five times, out of order, some copies long after their id was reclaimed. The results
//! are those of a single thread over the set of distinct ids, and every copy is counted.

use crate::bed::{Bed, MemorySink, line, options};
use futures_util::FutureExt;
use onceflow_core::{Group, Shard, hazard};
use onceflow_store::{
    records::Scan,
    testing::{
        fault::{self, Fault, FaultPlan, Faulty},
        random::Random,
    },
};
use onceflow_stream::{
    Counts, EdgeMode, EventTime, Generator, NextRecord, Pipeline, SplitReader, Stream, StreamError, StreamOptions,
    StreamResult, StreamSource, combine::Sum, window::Windowing,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
};

pub(crate) const DISTINCT: u64 = 120;
const HORIZON_MS: i64 = 160;
const BUCKET_MS: i64 = HORIZON_MS / 8;

/// Records come 20 ms out of order at most; copies of old ones do not count as late, they are dropped before.
const OUT_OF_ORDER_MS: i64 = 40;

fn time_of(n: u64) -> EventTime {
    EventTime(n as i64 * 4 + (n as i64 * 7) % 9)
}

/// The records in the order in which they are sent: every one to five times, some copies beyond the horizon.
pub(crate) fn deliveries(seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut sent = Vec::new();
    for n in 0..DISTINCT {
        let first = n * 10 + random.below(30) as u64;
        sent.push((first, n));
        for _ in 0..random.below(5) {
            let after = if random.percent(30) { 500 + random.below(300) } else { random.below(150) };
            sent.push((first + 1 + after as u64, n));
        }
    }
    sent.sort_unstable();
    sent.into_iter().map(|(_, n)| n).collect()
}

/// Sums per key and window of records that count once.
fn sums_of(records: &Stream<u64>, sink: &MemorySink) {
    let once = records.once_per_id("once", HORIZON_MS, |n| format!("order-{n}"));
    let sums = once.key_value("by key", |n| (n % 5, n)).combine("sum", Windowing::tumbling(30), Sum::new());
    sums.sink("lines", sink.clone(), |sum, bytes| {
        line(&format!("{} {} {} {:?}", sum.window.start.0, sum.key, sum.value, sum.timing), bytes);
    });
}

pub(crate) fn expected_sums() -> Vec<String> {
    let mut sums: BTreeMap<(i64, u64), u64> = BTreeMap::new();
    for n in 0..DISTINCT {
        *sums.entry((time_of(n).0.div_euclid(30) * 30, n % 5)).or_default() += n;
    }
    let mut lines: Vec<_> = sums.iter().map(|((start, key), sum)| format!("{start} {key} {sum} OnTime")).collect();
    lines.sort();
    lines
}

/// Two splits send the records, so that the copies of one come from both.
pub(crate) fn sent_by_two(name: &str, sent: &[u64], sink: &MemorySink, options: StreamOptions) -> Pipeline {
    let pipeline = Pipeline::new(name).options(options);
    let (count, sent) = (sent.len() as u64, sent.to_vec());
    let make = move |at: u64| (sent[at as usize], time_of(sent[at as usize]));
    let source = Generator::new(count, make).splits(2).out_of_order_ms(OUT_OF_ORDER_MS);
    sums_of(&pipeline.source("clients", source), sink);
    pipeline
}

/// The counts of the stage that drops copies.
pub(crate) fn counts_of_once(result: &StreamResult) -> Counts {
    result.stages.iter().find(|stage| stage.name.starts_with("once")).expect("there is the stage").counts
}

/// Returns how many ids the catalog has in each of its buckets.
async fn stored_ids(bed: &Bed) -> Vec<usize> {
    let mut buckets = Vec::new();
    for partition in 0..2u16 {
        for end in (-10..100).map(|at| EventTime(at * BUCKET_MS)).chain([EventTime::MAX]) {
            let station = [1u16.to_be_bytes(), partition.to_be_bytes()].concat();
            let group = Group::rows([&b"stream/p/ids"[..], &station, &end.to_sortable()].concat());
            let rows = bed.store.scan(Shard(0), Scan::of(group, 4096)).await.unwrap().rows;
            buckets.extend((!rows.is_empty()).then(|| rows.iter().map(|(_, row)| row.len() / 16).sum::<usize>()));
        }
    }
    buckets
}

/// The catalog holds no more than the ids of a horizon, of the records out of order and of a bucket that is not over.
async fn assert_catalog_is_bounded(bed: &Bed) {
    let buckets = stored_ids(bed).await;
    let ids: usize = buckets.iter().sum();
    let kept_ms = HORIZON_MS + OUT_OF_ORDER_MS + 3 * BUCKET_MS;
    // A split may be ahead of the other by some bundles, and with it the records that hold the watermark.
    let ahead = 60;
    assert!(ids as i64 <= kept_ms / 4 + ahead, "{ids} ids in {} buckets", buckets.len());
}

#[tokio::test(flavor = "current_thread")]
async fn copies_count_once_and_every_copy_is_counted() {
    for seed in 0..10 {
        for edges in [EdgeMode::Local, EdgeMode::Retry] {
            let (bed, sink, sent) = (Bed::new(), MemorySink::default(), deliveries(seed));
            let result = bed.run(&sent_by_two("p", &sent, &sink, options(edges))).await.unwrap();
            assert_eq!(sink.lines(), expected_sums(), "seed {seed} {edges:?}");
            let counts = counts_of_once(&result);
            let copies = sent.len() as u64 - DISTINCT;
            assert_eq!(counts.client_duplicates + counts.client_remnants, copies, "{counts:?}");
            assert!(counts.client_duplicates > 0 && counts.client_remnants > 0, "{counts:?}");
            assert_eq!(counts.records_in, sent.len() as u64);
            assert_eq!(counts.lookups_saved + counts.false_positives, DISTINCT, "{counts:?}");
            assert!(counts.lookups - counts.false_positives <= counts.client_duplicates, "{counts:?}");
            assert!(counts.lookups_saved > DISTINCT * 9 / 10, "{counts:?}");
            assert_eq!((bed.rows_left().await, stored_ids(&bed).await), (2, vec![]), "a catalog was left");
        }
    }
}

/// Kills a worker at a call; a second one, whose filters are rebuilt, ends the pipeline. True if that changes nothing.
async fn with_fault(plan: FaultPlan, edges: EdgeMode) -> bool {
    let (bed, sink, sent) = (Bed::new(), MemorySink::default(), deliveries(7));
    let options = StreamOptions { bundle_records: 30, ..options(edges) };
    let pipeline = || sent_by_two("p", &sent, &sink, options);
    let faulty = Faulty::new(bed.store.clone(), plan.clone());
    let result = match bed.run_on(&pipeline(), faulty, || plan.stopped()).await {
        Some(Ok(result)) => result,
        None | Some(Err(StreamError::Store(_))) => {
            assert_catalog_is_bounded(&bed).await;
            bed.run(&pipeline()).await.unwrap()
        }
        Some(Err(error)) => panic!("{error}"),
    };
    let counts = counts_of_once(&result);
    sink.lines() == expected_sums()
        && counts.client_duplicates + counts.client_remnants == sent.len() as u64 - DISTINCT
        && (bed.rows_left().await, stored_ids(&bed).await) == (2, vec![])
}

#[tokio::test(flavor = "current_thread")]
async fn copies_count_once_whichever_call_fails_and_filters_are_lost() {
    for (faults, edges) in
        [(&Fault::ALL[..], EdgeMode::Local), (&[Fault::StopBefore, Fault::StopAfter], EdgeMode::Retry)]
    {
        for fault in faults {
            let calls = fault::for_every_n(*fault, async |plan| {
                assert!(with_fault(plan.clone(), edges).await, "{fault:?} {edges:?}");
            });
            assert!(calls.await > 50);
        }
    }
}

/// A bug changes the results or the counts for some place of a kill.
async fn is_noticed(bug: &'static str) -> bool {
    for n in (0..200).step_by(5) {
        hazard::switch(Some(bug));
        let outcome = with_fault(FaultPlan::at(n, Fault::StopAfter), EdgeMode::Local);
        let outcome = AssertUnwindSafe(outcome).catch_unwind().await;
        hazard::switch(None);
        if !outcome.unwrap_or(false) {
            return true;
        }
    }
    false
}

macro_rules! noticed {
    ($($name:ident: $bug:literal;)*) => { $(
        #[tokio::test(flavor = "current_thread")]
        async fn $name() {
            assert!(is_noticed($bug).await, "the bug {} was not noticed", $bug);
        }
    )* };
}

noticed! {
    filters_that_lost_ids_in_a_restart_are_noticed: "filters-not-rebuilt";
    ids_reclaimed_before_their_time_has_passed_are_noticed: "bucket-dropped-at-its-beginning";
    client_ids_that_are_not_stored_are_noticed: "ids-not-stored";
    client_ids_counted_twice_within_a_bundle_are_noticed: "pending-not-consulted";
    copies_beyond_the_horizon_that_are_taken_for_new_are_noticed: "remnants-looked-up";
}

/// A broker delivers again, to the next reader, everything that was not acknowledged.
#[derive(Clone, Default)]
struct Broker(Arc<Mutex<BrokerState>>);

#[derive(Default)]
struct BrokerState {
    waiting: VecDeque<u64>,
    unacknowledged: Vec<(u64, u64)>,
    delivered: u64,
    redelivered: u64,
}

impl Broker {
    fn new(sent: &[u64]) -> Self {
        let broker = Broker::default();
        broker.0.lock().unwrap().waiting.extend(sent);
        broker
    }
}

impl StreamSource for Broker {
    type Item = u64;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, _: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let mut state = self.0.lock().unwrap();
        for (_, record) in std::mem::take(&mut state.unacknowledged) {
            state.waiting.push_front(record);
            state.redelivered += 1;
        }
        Ok(Box::new(self.clone()))
    }
}

impl SplitReader<u64> for Broker {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        let mut state = self.0.lock().unwrap();
        let Some(record) = state.waiting.pop_front() else {
            return Ok(if state.unacknowledged.is_empty() { NextRecord::Ended } else { NextRecord::Pending });
        };
        let number = state.delivered;
        state.delivered += 1;
        state.unacknowledged.push((number, record));
        Ok(NextRecord::Record(record, time_of(record)))
    }

    fn position(&self) -> Vec<u8> {
        self.0.lock().unwrap().delivered.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        let state = self.0.lock().unwrap();
        let unacknowledged = state.unacknowledged.iter().map(|(_, record)| record);
        state.waiting.iter().chain(unacknowledged).map(|record| time_of(*record)).min().unwrap_or(EventTime::MIN)
    }

    fn committed(&mut self, position: &[u8]) -> io::Result<()> {
        let before = u64::from_be_bytes(position.try_into().map_err(io::Error::other)?);
        self.0.lock().unwrap().unacknowledged.retain(|(number, _)| *number >= before);
        Ok(())
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_broker_that_redelivers_what_was_not_acknowledged_has_each_record_counted_once() {
    let redelivered = Mutex::new(BTreeSet::new());
    for fault in [Fault::StopBefore, Fault::StopAfter, Fault::LoseReply] {
        let calls = fault::for_every_n(fault, async |plan| {
            let (bed, sink, sent) = (Bed::new(), MemorySink::default(), deliveries(3));
            let broker = Broker::new(&sent);
            let pipeline = || {
                let pipeline =
                    Pipeline::new("p").options(StreamOptions { bundle_records: 60, ..options(EdgeMode::Local) });
                sums_of(&pipeline.source("broker", broker.clone()), &sink);
                pipeline
            };
            let faulty = Faulty::new(bed.store.clone(), plan.clone());
            let result = match bed.run_on(&pipeline(), faulty, || plan.stopped()).await {
                Some(Ok(result)) => result,
                None | Some(Err(StreamError::Store(_))) => bed.run(&pipeline()).await.unwrap(),
                Some(Err(error)) => panic!("{error}"),
            };
            let (counts, taken) = (counts_of_once(&result), result.stages[0].counts.records_in);
            assert_eq!(sink.lines(), expected_sums());
            assert_eq!(counts.client_duplicates + counts.client_remnants, taken - DISTINCT, "{counts:?}");
            let state = broker.0.lock().unwrap();
            assert!(state.waiting.is_empty() && state.unacknowledged.is_empty(), "a copy was not acknowledged");
            assert!(taken >= sent.len() as u64 && taken <= sent.len() as u64 + state.redelivered);
            redelivered.lock().unwrap().insert(state.redelivered);
        });
        assert!(calls.await > 20);
    }
    assert!(redelivered.lock().unwrap().len() > 1, "nothing was ever delivered again");
}
