//! The queries of Nexmark, an auction house, against a naive evaluation of the same events, all at once.
//!
//! The events are made here, in Nexmark's proportions: of fifty, one is a person, three are auctions, the others bids.
//! Query 12 is over the time of arrival in Nexmark; here it is over the time of the events, as the others are, so that its
//! result does not depend on the clock.

use super::bed::{Bed, MemorySink, line, options};
use onceflow_stream::{
    EdgeMode, EventTime, Generator, Pipeline, Stream, StreamOptions,
    combine::{Count, Max, Mean, TopN},
    step::join::JoinRange,
    window::Windowing,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const EVENTS: u64 = 900;

/// Times are so much out of order at most.
const DISORDER_MS: i64 = 40;

/// How long an auction is open.
const OPEN_MS: i64 = 900;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Person {
    id: u64,
    state: String,
    time: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Auction {
    id: u64,
    seller: u64,
    category: u64,
    time: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Bid {
    auction: u64,
    bidder: u64,
    price: u64,
    time: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum NexmarkEvent {
    Person(Person),
    Auction(Auction),
    Bid(Bid),
}

fn event(n: u64) -> NexmarkEvent {
    let (round, slot, mixed) = (n / 50, n % 50, n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33);
    let time = n as i64 * 10 + (mixed % DISORDER_MS as u64) as i64;
    let (persons, auctions) = (round + 1, round * 3 + slot.min(3));
    match slot {
        0 => {
            let state = ["OR", "ID", "CA", "NY", "WA"][(mixed % 5) as usize].to_owned();
            NexmarkEvent::Person(Person { id: round, state, time })
        }
        1..=3 => {
            NexmarkEvent::Auction(Auction { id: auctions - 1, seller: mixed % persons, category: 10 + mixed % 3, time })
        }
        _ => {
            // Most bids are on the last few auctions.
            let auction = auctions - 1 - (mixed % 4).min(auctions - 1);
            NexmarkEvent::Bid(Bid { auction, bidder: mixed / 7 % persons, price: 100 + mixed % 977, time })
        }
    }
}

fn time_of(event: &NexmarkEvent) -> EventTime {
    EventTime(match event {
        NexmarkEvent::Person(person) => person.time,
        NexmarkEvent::Auction(auction) => auction.time,
        NexmarkEvent::Bid(bid) => bid.time,
    })
}

fn bid(event: NexmarkEvent) -> Option<Bid> {
    if let NexmarkEvent::Bid(bid) = event { Some(bid) } else { None }
}

fn auction(event: NexmarkEvent) -> Option<Auction> {
    if let NexmarkEvent::Auction(auction) = event { Some(auction) } else { None }
}

fn person(event: NexmarkEvent) -> Option<Person> {
    if let NexmarkEvent::Person(person) = event { Some(person) } else { None }
}

fn bids() -> Vec<Bid> {
    (0..EVENTS).map(event).filter_map(bid).collect()
}

fn auctions() -> Vec<Auction> {
    (0..EVENTS).map(event).filter_map(auction).collect()
}

fn persons() -> Vec<Person> {
    (0..EVENTS).map(event).filter_map(person).collect()
}

/// Runs a query on every kind of edge, and compares its lines with those of the naive evaluation.
async fn check(name: &str, query: impl Fn(&Stream<NexmarkEvent>) -> Stream<String>, expected: Vec<String>) {
    let mut expected = expected;
    expected.sort();
    assert!(expected.len() > 3, "{name} has {} results", expected.len());
    for edges in [EdgeMode::Local, EdgeMode::Retry] {
        let (bed, sink) = (Bed::new(), MemorySink::default());
        let pipeline = Pipeline::new(name).options(StreamOptions { bundle_records: 40, ..options(edges) });
        let make = |n| {
            let event = event(n);
            let time = time_of(&event);
            (event, time)
        };
        let events = pipeline.source("events", Generator::new(EVENTS, make).splits(2).out_of_order_ms(DISORDER_MS));
        query(&events).sink("lines", sink.clone(), |text, bytes| line(text, bytes));
        let result = bed.run(&pipeline).await.unwrap();
        assert_eq!(sink.lines(), expected, "{name} {edges:?}");
        assert!(result.stages.iter().all(|stage| stage.counts.late == 0), "{name} {edges:?}");
    }
}

fn floor(time: i64, size: i64) -> i64 {
    time.div_euclid(size) * size
}

#[tokio::test(flavor = "current_thread")]
async fn queries_0_to_2_pass_convert_and_select_bids() {
    let shown = |bid: &Bid| format!("{} {} {}", bid.auction, bid.bidder, bid.price);
    let all = bids().iter().map(shown).collect();
    check("q0", |events| events.flat_map("bids", bid).map("shown", move |bid| shown(&bid)), all).await;
    let euros = |bid: &Bid| format!("{} {}", bid.auction, bid.price * 908 / 1000);
    let all = bids().iter().map(euros).collect();
    check("q1", |events| events.flat_map("bids", bid).map("euros", move |bid| euros(&bid)), all).await;
    let some = bids().iter().filter(|bid| bid.auction % 7 == 0).map(shown).collect();
    let query = |events: &Stream<NexmarkEvent>| {
        let selected = events.flat_map("bids", bid).filter("selected", |bid| bid.auction % 7 == 0);
        selected.map("shown", move |bid| shown(&bid))
    };
    check("q2", query, some).await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_3_joins_sellers_of_some_states_with_their_auctions() {
    let is_near = |person: &Person| ["OR", "ID", "CA"].contains(&person.state.as_str());
    let persons: Vec<_> = persons().into_iter().filter(is_near).collect();
    let mut expected = Vec::new();
    for auction in auctions().iter().filter(|auction| auction.category == 10) {
        let sellers = persons.iter().filter(|person| person.id == auction.seller);
        expected.extend(sellers.map(|person| format!("{} {} {}", person.id, person.state, auction.id)));
    }
    let query = |events: &Stream<NexmarkEvent>| {
        let near = events.flat_map("persons", person).filter("near", move |person| is_near(person));
        let sold = events.flat_map("auctions", auction).filter("category", |auction| auction.category == 10);
        let ever = JoinRange::Interval { before_ms: 1 << 40, after_ms: 1 << 40 };
        let sellers = near.key_by("id", |person| person.id);
        let joined = sellers.join("join", &sold.key_by("seller", |auction| auction.seller), ever);
        joined.map("shown", |(_, person, auction)| format!("{} {} {}", person.id, person.state, auction.id))
    };
    check("q3", query, expected).await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_4_is_the_mean_closing_price_of_a_category() {
    let mut closing: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for auction in auctions() {
        let open =
            |bid: &&Bid| bid.auction == auction.id && (auction.time..=auction.time + OPEN_MS).contains(&bid.time);
        if let Some(price) = bids().iter().filter(open).map(|bid| bid.price).max() {
            closing.entry(auction.category).or_default().push(price);
        }
    }
    let mean = |prices: &Vec<u64>| prices.iter().sum::<u64>() as f64 / prices.len() as f64;
    let mut expected: Vec<_> =
        closing.iter().map(|(category, prices)| format!("{category} {}", mean(prices))).collect();
    let count = closing.values().map(Vec::len).sum::<usize>();
    expected.push(format!("all {count}"));
    let query = |events: &Stream<NexmarkEvent>| {
        let auctions = events.flat_map("auctions", auction).key_by("id", |auction| auction.id);
        let bids = events.flat_map("bids", bid).key_by("auction", |bid| bid.auction);
        let open = JoinRange::Interval { before_ms: 0, after_ms: OPEN_MS };
        let pairs = auctions.join("open", &bids, open);
        let price = pairs.key_value("price", |(id, auction, bid)| ((id, auction.category), bid.price));
        let closing = price.combine("closing", Windowing::global(), Max::new());
        let category = closing.key_value("category", |pane| (pane.key.1, pane.value.unwrap_or(0) as f64));
        let means = category.combine("mean", Windowing::global(), Mean);
        let all = closing.key_value("all", |pane| ((), pane.key.0)).combine("count", Windowing::global(), Count::new());
        let means = means.map("shown", |pane| format!("{} {}", pane.key, pane.value.unwrap_or(0.0)));
        means.merge("both", &[all.map("all shown", |pane| format!("all {}", pane.value))])
    };
    check("q4", query, expected).await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_5_is_the_auction_with_the_most_bids_of_a_sliding_window() {
    const SIZE: i64 = 1000;
    const SLIDE: i64 = 250;
    let mut counts: BTreeMap<i64, BTreeMap<u64, u64>> = BTreeMap::new();
    for bid in bids() {
        let last = floor(bid.time, SLIDE);
        for start in (0..SIZE / SLIDE).map(|back| last - back * SLIDE) {
            *counts.entry(start).or_default().entry(bid.auction).or_default() += 1;
        }
    }
    let hottest = |(start, counts): (&i64, &BTreeMap<u64, u64>)| {
        let (auction, count) = counts.iter().max_by_key(|(auction, count)| (**count, **auction))?;
        Some(format!("{start} {auction} {count}"))
    };
    let expected = counts.iter().filter_map(hottest).collect();
    let query = |events: &Stream<NexmarkEvent>| {
        let bids = events.flat_map("bids", bid).key_by("auction", |bid| bid.auction);
        let counts = bids.combine("count", Windowing::sliding(SIZE, SLIDE), Count::new());
        let window = counts.key_value("window", |pane| (pane.window.start.0, (pane.value, pane.key)));
        let hottest = window.combine("hottest", Windowing::tumbling(SLIDE), TopN::new(1));
        hottest.flat_map("shown", |pane| {
            let start = pane.key;
            pane.value.into_iter().map(move |(count, auction)| format!("{start} {auction} {count}"))
        })
    };
    check("q5", query, expected).await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_7_is_the_highest_bid_of_a_window() {
    const SIZE: i64 = 500;
    let mut highest: BTreeMap<i64, (u64, u64, u64)> = BTreeMap::new();
    for bid in bids() {
        let best = highest.entry(floor(bid.time, SIZE)).or_default();
        *best = (*best).max((bid.price, bid.auction, bid.bidder));
    }
    let expected = highest.iter().map(|(start, best)| format!("{start} {best:?}")).collect();
    let query = |events: &Stream<NexmarkEvent>| {
        let bids = events.flat_map("bids", bid).key_value("all", |bid| ((), (bid.price, bid.auction, bid.bidder)));
        let highest = bids.combine("highest", Windowing::tumbling(SIZE), Max::new());
        highest.flat_map("shown", |pane| pane.value.map(|best| format!("{} {best:?}", pane.window.start.0)))
    };
    check("q7", query, expected).await;
}

#[tokio::test(flavor = "current_thread")]
async fn query_8_is_persons_who_are_new_and_sell_in_the_same_window() {
    const SIZE: i64 = 3000;
    let mut expected = BTreeSet::new();
    for person in persons() {
        for auction in auctions() {
            if auction.seller == person.id && floor(auction.time, SIZE) == floor(person.time, SIZE) {
                expected.insert(format!("{} {}", person.id, floor(person.time, SIZE)));
            }
        }
    }
    let query = |events: &Stream<NexmarkEvent>| {
        let persons = events.flat_map("persons", person).key_by("id", |person| person.id);
        let sellers = events.flat_map("auctions", auction).key_by("seller", |auction| auction.seller);
        let pairs = persons.join("new", &sellers, JoinRange::Window { size_ms: SIZE });
        let once = pairs.key_value("person", |(id, person, _)| ((id, floor(person.time, SIZE)), ()));
        let once = once.combine("once", Windowing::tumbling(SIZE), Count::new());
        once.map("shown", |pane| format!("{} {}", pane.key.0, pane.key.1))
    };
    check("q8", query, expected.into_iter().collect()).await;
}

#[tokio::test(flavor = "current_thread")]
async fn queries_11_and_12_count_the_bids_of_a_bidder_per_session_and_window() {
    const GAP: i64 = 150;
    let mut bidders: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    bids().iter().for_each(|bid| bidders.entry(bid.bidder).or_default().push(bid.time));
    let mut sessions = Vec::new();
    for (bidder, times) in &mut bidders {
        times.sort_unstable();
        for session in times.chunk_by(|one, next| next - one < GAP) {
            sessions.push(format!("{bidder} {} {}", session[0], session.len()));
        }
    }
    let query = |windowing: Windowing| {
        move |events: &Stream<NexmarkEvent>| {
            let bids = events.flat_map("bids", bid).key_by("bidder", |bid| bid.bidder);
            let counts = bids.combine("count", windowing, Count::new());
            counts.map("shown", |pane| format!("{} {} {}", pane.key, pane.window.start.0, pane.value))
        }
    };
    check("q11", query(Windowing::sessions(GAP)), sessions).await;
    let mut windows: BTreeMap<(u64, i64), u64> = BTreeMap::new();
    bids().iter().for_each(|bid| *windows.entry((bid.bidder, floor(bid.time, 1000))).or_default() += 1);
    let windows = windows.iter().map(|((bidder, start), count)| format!("{bidder} {start} {count}")).collect();
    check("q12", query(Windowing::tumbling(1000)), windows).await;
}
