//! A workload of streams: several nodes work on one pipeline whose clients send every record one to five times, whose
//! messages are lost, repeated and reordered, and whose functions give something else every time they run. The results
//! are those of a single thread over the distinct records.

use crate::{
    connection::{Connection, Direct},
    executor::{NodeId, Sim, at_once, lock},
    faults::Faults,
    hazards::{Hazard, hazard},
    room::Room,
    store::SimStore,
    truth::{Truth, Violation},
    watch::Watch,
    workload::Workload,
    world::NodeWorld,
};
use onceflow_store::{BoxFuture, Error, Records, blobs::Objects};
use onceflow_stream::{
    EdgeMode, EventTime, Generator, NextRecord, Pipeline, SinkChunk, SinkWriter, SplitReader, Station, StreamError,
    StreamMessage, StreamOptions, StreamResult, StreamSink, StreamSource, Transport, combine::Sum, plan::PlanOptions,
    window::Windowing,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::{Arc, Mutex},
};

/// The mistakes that this workload notices, by the rules of `cases/stream.md`. Those of filters need more ids than a
/// world has, or a look into the filter: the tests of `crates/stream` notice them.
pub const HAZARDS: &[Hazard] = &[
    hazard("identity-renewed", "stream 1", "a block that is sent again after a restart has other numbers"),
    hazard("blocks-not-stored", "stream 2", "blocks are sent and not stored"),
    hazard("position-committed-later", "stream 3", "a position is committed with the bundle after its records"),
    hazard("ids-not-stored", "stream 3", "the ids of a bundle are not stored with it"),
    hazard("acknowledged-on-arrival", "stream 4", "a block is acknowledged before its bundle is durable"),
    hazard("source-told-before-durable", "stream 4", "clients are answered before their records are durable"),
    hazard("copies-not-acknowledged", "stream 4", "copies are dropped and not acknowledged"),
    hazard("bundle-without-claim", "stream 5", "a bundle does not require the claim of its worker"),
    hazard("reclaim-ignores-outbox", "stream 6", "ids go while their blocks are not acknowledged"),
    hazard("stamps-follow-the-clock", "stream 7", "stamps repeat and fall when the clock does"),
    hazard("watermark-is-a-remnant", "stream 8", "a record at the watermark is dropped without a look-up"),
    hazard("remnants-looked-up", "stream 8", "a record whose id was reclaimed is looked up, and found new"),
    hazard("filters-not-rebuilt", "stream 9", "filters are empty after a restart and say that they are complete"),
    hazard("order-assumed", "stream 10", "numbers below the greatest count as seen"),
    hazard("pending-not-consulted", "stream 11", "an id counts twice within one bundle"),
    hazard("bucket-dropped-at-its-beginning", "stream 6", "ids of clients go before their horizon has passed"),
    hazard("watermark-ignores-outbox", "stream, watermarks", "a watermark overtakes blocks under way"),
    hazard("end-overtakes-blocks", "stream, watermarks", "the end overtakes blocks under way"),
];

/// Messages that wait for one receiver, at most.
const WAITING_MAX: usize = 1000;

/// Distinct records, and the size of their windows.
const RECORDS: u64 = 60;
const WINDOW_MS: i64 = 40;

/// How long ids of clients are kept, and how much out of order records come.
const HORIZON_MS: i64 = 160;
const DISORDER_MS: i64 = 40;

/// The time of a record.
fn time_of(n: u64) -> EventTime {
    EventTime(n as i64 * 4 + (n as i64 * 7) % 9)
}

/// The records in the order in which clients send them: every one to five times, some copies beyond the horizon.
fn deliveries(sim: &Sim) -> Vec<u64> {
    let mut sent = Vec::new();
    for n in 0..RECORDS {
        let first = n * 10 + sim.below(30);
        sent.push((first, n));
        for _ in 0..sim.below(5) {
            let after = if sim.per_mille(300) { 500 + sim.below(300) } else { sim.below(150) };
            sent.push((first + 1 + after, n));
        }
    }
    sent.sort_unstable();
    sent.into_iter().map(|(_, n)| n).collect()
}

/// The sums of records per key and window, one record after the other.
fn right_sums() -> Vec<String> {
    let mut sums: BTreeMap<(i64, u64), u64> = BTreeMap::new();
    for n in 0..RECORDS {
        *sums.entry((time_of(n).0.div_euclid(WINDOW_MS) * WINDOW_MS, n % 5)).or_default() += n;
    }
    let mut lines: Vec<_> = sums.iter().map(|((start, key), sum)| format!("{start} {key} {sum}")).collect();
    lines.sort_unstable();
    lines
}

/// Everything that the nodes share, and that outlives them.
struct Shared {
    sim: Arc<Sim>,
    truth: Arc<Mutex<Truth>>,
    sent: Vec<u64>,
    /// Clients send again until they are answered; else the records can be read again from any position.
    sends_again: bool,
    /// The deliveries whose clients were answered.
    answered: Mutex<BTreeSet<usize>>,
    options: StreamOptions,
    planning: PlanOptions,
    network: Arc<Network>,
    /// Sums, and records with the number that a function gave them, twice.
    sums: Outside,
    tags: [Outside; 2],
    result: Mutex<Option<StreamResult>>,
}

impl Shared {
    fn pipeline(self: &Arc<Self>) -> Pipeline {
        let pipeline = Pipeline::new("p").options(self.options).planning(self.planning);
        let pipeline = pipeline.transport(self.network.clone());
        let (sent, count) = (self.clone(), self.sent.len() as u64);
        let make = move |at: u64| (sent.sent[at as usize], time_of(sent.sent[at as usize]));
        let records = match self.sends_again {
            true => pipeline.source("clients", Clients(self.clone())),
            false => pipeline.source("clients", Generator::new(count, make).splits(2).out_of_order_ms(DISORDER_MS)),
        };
        let once = records.once_per_id("once", HORIZON_MS, |n| format!("order-{n}"));
        let keyed = once.key_value("by key", |n| (n % 5, n));
        let sums = keyed.combine("sum", Windowing::tumbling(WINDOW_MS), Sum::new());
        sums.sink("sums", self.sums.clone(), |sum, line| {
            line.extend(format!("{} {} {}\n", sum.window.start.0, sum.key, sum.value).bytes());
        });
        let chance = self.sim.clone();
        let tagged = once.map("tag", move |n| (n, chance.below(1 << 40)));
        for (at, tags) in self.tags.iter().enumerate() {
            let apart = tagged.break_stage(&format!("apart {at}"));
            apart.sink(&format!("tags {at}"), tags.clone(), |(n, tag), line| {
                line.extend(format!("{n} {tag}\n").bytes());
            });
        }
        pipeline
    }

    /// Works on the pipeline as a process of a node, until it ends or the store fails.
    async fn work(self: Arc<Self>, store: Arc<SimStore>, node: NodeId, ahead_ms: i64) -> bool {
        let incarnation = self.sim.incarnation(node);
        let world = Arc::new(NodeWorld { sim: self.sim.clone(), node, incarnation, ahead_ms });
        let records: Arc<dyn Records> = Connection::new(store, node);
        match self.pipeline().run(records, world).await {
            Ok(result) => {
                *lock(&self.result) = Some(result);
                true
            }
            Err(StreamError::Store(error)) => {
                self.sim.tell(|| format!("node {node}: the stream stops: {error}"));
                false
            }
            Err(error) => {
                lock(&self.truth).violate("a stream stops only when its store fails", error.to_string());
                true
            }
        }
    }
}

/// Clients that send over a network that the store knows nothing of, as those of the HTTP source: what they were not
/// answered for, they send again to whichever node listens then.
struct Clients(Arc<Shared>);

struct Listening {
    shared: Arc<Shared>,
    /// Deliveries that were not answered when the node began to listen.
    waiting: VecDeque<usize>,
    /// Deliveries that were read, with the numbers behind them.
    read: VecDeque<(u64, usize)>,
    next: u64,
    latest: EventTime,
}

impl StreamSource for Clients {
    type Item = u64;

    fn splits(&self) -> u16 {
        2
    }

    fn open(&self, split: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let next = position.map_or(Ok(0), |position| position.try_into().map(u64::from_be_bytes));
        let answered = lock(&self.0.answered);
        let of_split = (0..self.0.sent.len()).filter(|at| at % 2 == usize::from(split) && !answered.contains(at));
        Ok(Box::new(Listening {
            waiting: of_split.collect(),
            shared: self.0.clone(),
            read: VecDeque::new(),
            next: next.map_err(io::Error::other)?,
            latest: EventTime::MIN,
        }))
    }
}

impl SplitReader<u64> for Listening {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        let Some(at) = self.waiting.pop_front() else { return Ok(NextRecord::Ended) };
        self.next += 1;
        self.read.push_back((self.next, at));
        let n = self.shared.sent[at];
        self.latest = self.latest.max(time_of(n));
        Ok(NextRecord::Record(n, time_of(n)))
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        if self.latest == EventTime::MIN { EventTime::MIN } else { self.latest.plus_ms(-DISORDER_MS) }
    }

    fn committed(&mut self, position: &[u8]) -> io::Result<()> {
        let durable = u64::from_be_bytes(position.try_into().map_err(io::Error::other)?);
        while let Some((_, at)) = self.read.pop_front_if(|(behind, _)| *behind <= durable) {
            lock(&self.shared.answered).insert(at);
        }
        Ok(())
    }
}

/// Messages between partitions: lost, repeated, late, in any order while there is harm.
struct Network {
    sim: Arc<Sim>,
    harm_until_ms: u64,
    waiting: Mutex<BTreeMap<Station, Vec<(u64, StreamMessage)>>>,
}

impl Transport for Network {
    fn send(&self, to: Station, message: StreamMessage) -> BoxFuture<'_, Result<(), Error>> {
        let (sim, now_ms) = (&self.sim, self.sim.now_ms());
        let has_harm = now_ms < self.harm_until_ms;
        let copies = match has_harm {
            true if sim.per_mille(150) => 0,
            true => 1 + sim.below(4),
            false => 1,
        };
        let mut waiting = lock(&self.waiting);
        let waiting = waiting.entry(to).or_default();
        // A receiver that takes nothing loses what comes, as it would on a real network.
        let copies = copies.min((WAITING_MAX as u64).saturating_sub(waiting.len() as u64));
        for _ in 0..copies {
            let delay_ms = if has_harm && sim.per_mille(200) { sim.below(1_000) } else { sim.below(5) };
            waiting.push((now_ms + delay_ms, message.clone()));
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive(&self, at: Station) -> BoxFuture<'_, Result<Vec<StreamMessage>, Error>> {
        let now_ms = self.sim.now_ms();
        let mut waiting = lock(&self.waiting);
        let (mut due, later): (Vec<_>, Vec<_>) =
            waiting.remove(&at).unwrap_or_default().into_iter().partition(|(at_ms, _)| *at_ms <= now_ms);
        waiting.insert(at, later);
        for last in (1..due.len()).rev() {
            due.swap(last, self.sim.below(last as u64 + 1) as usize);
        }
        Box::pin(std::future::ready(Ok(due.into_iter().map(|(_, message)| message).collect())))
    }
}

/// The world outside: chunks that a sink was given stay, also when nodes die.
#[derive(Clone)]
struct Outside {
    truth: Arc<Mutex<Truth>>,
    chunks: Arc<Mutex<BTreeMap<(u16, u64), Vec<u8>>>>,
}

struct Writing(Outside, u16);

impl Outside {
    fn new(truth: &Arc<Mutex<Truth>>) -> Self {
        Outside { truth: truth.clone(), chunks: Arc::default() }
    }

    /// All lines, sorted.
    fn lines(&self) -> Vec<String> {
        let chunks = lock(&self.chunks);
        let text = |chunk: &Vec<u8>| String::from_utf8_lossy(chunk).lines().map(str::to_owned).collect::<Vec<_>>();
        let mut lines: Vec<String> = chunks.values().flat_map(text).collect();
        lines.sort_unstable();
        lines
    }
}

impl StreamSink for Outside {
    fn open(&self, partition: u16, _: u16) -> io::Result<Box<dyn SinkWriter>> {
        Ok(Box::new(Writing(self.clone(), partition)))
    }
}

impl SinkWriter for Writing {
    fn write(&mut self, chunk: &SinkChunk) -> io::Result<()> {
        let Writing(outside, partition) = self;
        let earlier = lock(&outside.chunks).insert((*partition, chunk.number), chunk.bytes.to_vec());
        if earlier.is_some_and(|earlier| earlier != *chunk.bytes) {
            let seen = format!("chunk {} of partition {partition} was written again with other bytes", chunk.number);
            lock(&outside.truth).violate("what is sent again is the same", seen);
        }
        Ok(())
    }
}

/// Lets nodes and harm loose on a pipeline.
pub(crate) fn live(sim: &Arc<Sim>, faults: Faults, truth: &Arc<Mutex<Truth>>) -> (Option<Violation>, u64) {
    // A sync that takes long, at every bundle, makes long worlds of nothing new.
    let faults = Faults { sync_ms: faults.sync_ms.min(30), delay_ms: faults.delay_ms.min(50), ..faults };
    let watch = Watch { truth: truth.clone(), sim: sim.clone() };
    let store = SimStore::new(sim.clone(), faults.clone(), watch);
    let nodes = 1 + sim.below(3) as usize;
    let room = Room::new(store, Arc::new(Objects::memory()), truth.clone(), vec![], nodes);
    let options = StreamOptions {
        partitions: 1 + sim.below(2) as u16,
        bundle_records: 1 + sim.below(30) as usize,
        edges: if sim.per_mille(250) { EdgeMode::Local } else { EdgeMode::Retry },
        bucket_ms: 50 + sim.below(500),
        resend_ms: 20 + sim.below(200),
        lease_ms: faults.lease_ms,
        idle_ms: 1 + sim.below(20),
        gather_ms: 8 * sim.below(2),
        ..StreamOptions::default()
    };
    let shared = Arc::new(Shared {
        sim: sim.clone(),
        truth: truth.clone(),
        sent: deliveries(sim),
        sends_again: sim.per_mille(400),
        answered: Mutex::default(),
        options,
        planning: PlanOptions { lift: sim.per_mille(500), fuse: sim.per_mille(500) },
        network: Arc::new(Network { sim: sim.clone(), harm_until_ms: faults.until_ms, waiting: Mutex::default() }),
        sums: Outside::new(truth),
        tags: [Outside::new(truth), Outside::new(truth)],
        result: Mutex::default(),
    });
    sim.tell(|| format!("{nodes} nodes, {options:?}, {:?}, {faults:?}", shared.planning));
    let workload = Workload::new(&room);
    for node in 1..=nodes {
        let (there, shared) = (room.clone(), shared.clone());
        workload.process(node, "works on a stream", move || {
            let most = there.faults.skew_ms;
            let ahead_ms = if most == 0 { 0 } else { there.sim.below(2 * most) as i64 - most as i64 };
            shared.clone().work(there.store.clone(), node, ahead_ms)
        });
    }
    workload.drive();
    room.stop_all();
    if lock(truth).violations.is_empty() {
        check(&room, &shared);
    }
    let truth = lock(truth);
    (truth.violations.first().cloned(), truth.starts)
}

/// The pipeline has ended: are the results right, and is nothing left?
fn check(room: &Room, shared: &Shared) {
    let violate = |promise, seen: String| lock(&room.truth).violate(promise, seen);
    if shared.sums.lines() != right_sums() {
        let seen = format!("{:?} instead of {:?}", shared.sums.lines(), right_sums());
        violate("results are those of the distinct records", seen);
    }
    let [one, other] = shared.tags.each_ref().map(Outside::lines);
    let tagged: BTreeSet<u64> = one.iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    if one != other || one.len() != tagged.len() || tagged.len() as u64 != RECORDS {
        violate("a function takes effect once", format!("{one:?} and {other:?}"));
    }
    let Some(result) = lock(&shared.result).clone() else { return violate("every run ends", "no result".into()) };
    let copies = shared.sent.len() as u64 - RECORDS;
    let dropped: u64 =
        result.stages.iter().map(|stage| stage.counts.client_duplicates + stage.counts.client_remnants).sum();
    // What is sent again, because an answer was lost, is one more copy.
    let is_counted = if shared.sends_again { dropped >= copies } else { dropped == copies };
    if !is_counted {
        violate("every copy is counted", format!("{dropped} of {copies} copies: {result:?}"));
    }
    let rows = || {
        let all = room.store.state().all().into_iter();
        all.filter(|(_, key, _)| key.group.id().starts_with(b"stream")).map(|(_, key, _)| format!("{key:?}"))
    };
    // The pipeline in the list of all, its plan and its result; and workers that died as it ended, till their lease is over.
    let left: Vec<String> = rows().filter(|key| !key.contains("workers")).collect();
    if left.len() != 3 {
        violate("nothing is left behind", format!("{left:?}"));
    }
    let direct = Direct(room.store.clone());
    match at_once(onceflow_stream::remove(&direct, "p", None)) {
        Ok(true) if rows().next().is_none() => {}
        removed => violate("nothing is left behind", format!("removed {removed:?}: {:?}", rows().collect::<Vec<_>>())),
    }
}
