//! The auction house of Nexmark: its events, made of their numbers alone, and its queries as pipelines. The tests and the
//! benchmark `streams` share this file; `FlinkBench.java` of the benchmark makes the same events.
//!
//! The events are in Nexmark's proportions: of fifty, one is a person, three are auctions, the others bids; half of the
//! bids are for a hot auction, and three of four bids and auctions are a hot person's. Query 12 is over the time of
//! arrival in Nexmark; here it is over the time of the events, as the others are, so that its result does not depend on
//! the clock.

use onceflow_stream::{
    EventTime, Generator, Pipeline, Stream, StreamSource,
    combine::{Count, Max, Mean, TopN},
    step::join::JoinRange,
    window::Windowing,
};
use serde::{Deserialize, Serialize};

/// The queries, by their names in Nexmark.
pub(crate) const QUERIES: [&str; 10] = ["q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q11", "q12"];

/// Tables of rows that may still meet for ever: query 3 has no window.
const EVER_MS: i64 = 1 << 40;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) id: u64,
    pub(crate) state: String,
    pub(crate) time: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Auction {
    pub(crate) id: u64,
    pub(crate) seller: u64,
    pub(crate) category: u64,
    pub(crate) time: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bid {
    pub(crate) auction: u64,
    pub(crate) bidder: u64,
    pub(crate) price: u64,
    pub(crate) time: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum NexmarkEvent {
    Person(Person),
    Auction(Auction),
    Bid(Bid),
}

/// A house of some size, with the windows of its queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct House {
    pub(crate) events: u64,
    /// Time from an event to the next.
    pub(crate) us_per_event: u64,
    /// Times are so much out of order at most.
    pub(crate) disorder_ms: i64,
    /// Auctions that bids are for, beside the hot one.
    pub(crate) in_flight: u64,
    /// People who bid and sell, beside the hot one.
    pub(crate) active_people: u64,
    /// Every so-manieth auction and person is hot in its turn.
    pub(crate) hot_group: u64,
    /// How long an auction is open, for query 4.
    pub(crate) open_ms: i64,
    /// The sliding window of query 5.
    pub(crate) hot_ms: (i64, i64),
    /// The windows of queries 7, 8 and 12, and the pause that ends a session of query 11.
    pub(crate) highest_ms: i64,
    pub(crate) new_ms: i64,
    pub(crate) bidder_ms: i64,
    pub(crate) gap_ms: i64,
}

/// A number that looks like chance, the `k`-th one of event `n` (splitmix64).
fn draw(n: u64, k: u64) -> u64 {
    let n = n.wrapping_mul(8).wrapping_add(k + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (n ^ (n >> 31)) >> 33
}

/// The latest multiple of `size` that is not after `time`.
pub(crate) fn floor(time: i64, size: i64) -> i64 {
    time.div_euclid(size) * size
}

pub(crate) fn is_near(person: &Person) -> bool {
    ["OR", "ID", "CA"].contains(&person.state.as_str())
}

pub(crate) fn person(event: NexmarkEvent) -> Option<Person> {
    if let NexmarkEvent::Person(person) = event { Some(person) } else { None }
}

pub(crate) fn auction(event: NexmarkEvent) -> Option<Auction> {
    if let NexmarkEvent::Auction(auction) = event { Some(auction) } else { None }
}

pub(crate) fn bid(event: NexmarkEvent) -> Option<Bid> {
    if let NexmarkEvent::Bid(bid) = event { Some(bid) } else { None }
}

/// The results of queries 0 and 2, and of query 1, for a bid.
pub(crate) fn shown(bid: &Bid) -> String {
    format!("{} {} {}", bid.auction, bid.bidder, bid.price)
}

pub(crate) fn in_euros(bid: &Bid) -> String {
    format!("{} {}", bid.auction, bid.price * 908 / 1000)
}

impl House {
    /// Returns the n-th event.
    pub(crate) fn event(self, n: u64) -> NexmarkEvent {
        let (round, slot) = (n / 50, n % 50);
        let time = (n * self.us_per_event / 1000) as i64 + (draw(n, 0) % self.disorder_ms as u64) as i64;
        match slot {
            0 => {
                let state = ["OR", "ID", "CA", "NY", "WA"][(draw(n, 1) % 5) as usize].to_owned();
                NexmarkEvent::Person(Person { id: round, state, time })
            }
            1..=3 => {
                let (id, seller, category) = (round * 3 + slot - 1, self.someone(n, round + 1), 10 + draw(n, 2) % 5);
                NexmarkEvent::Auction(Auction { id, seller, category, time })
            }
            _ => {
                let last = round * 3 + 2;
                let auction = match draw(n, 1) % 2 {
                    0 => last / self.hot_group * self.hot_group,
                    _ => last - draw(n, 2) % self.in_flight.min(last + 1),
                };
                let (bidder, price) = (self.someone(n, round + 1), 100 + draw(n, 3) % 10_000);
                NexmarkEvent::Bid(Bid { auction, bidder, price, time })
            }
        }
    }

    /// Returns one of the people who have come so far.
    fn someone(self, n: u64, people: u64) -> u64 {
        match draw(n, 4) % 4 {
            0 => people - 1 - draw(n, 5) % self.active_people.min(people),
            _ => (people - 1) / self.hot_group * self.hot_group,
        }
    }

    /// Returns all events.
    pub(crate) fn all(self) -> impl Iterator<Item = NexmarkEvent> {
        (0..self.events).map(move |n| self.event(n))
    }

    /// Returns a source of all events, in two splits.
    pub(crate) fn source(self) -> impl StreamSource<Item = NexmarkEvent> {
        let make = move |n| {
            let event = self.event(n);
            let time = match &event {
                NexmarkEvent::Person(person) => person.time,
                NexmarkEvent::Auction(auction) => auction.time,
                NexmarkEvent::Bid(bid) => bid.time,
            };
            (event, EventTime(time))
        };
        Generator::new(self.events, make).splits(2).out_of_order_ms(self.disorder_ms)
    }

    /// Adds a query to a pipeline; its results are lines.
    pub(crate) fn query(self, pipeline: &Pipeline, name: &str) -> Stream<String> {
        let events = pipeline.source("events", self.source());
        match name {
            "q0" => events.flat_map("bids", bid).map("shown", |bid| shown(&bid)),
            "q1" => events.flat_map("bids", bid).map("euros", |bid| in_euros(&bid)),
            "q2" => {
                let selected = events.flat_map("bids", bid).filter("selected", |bid| bid.auction % 7 == 0);
                selected.map("shown", |bid| shown(&bid))
            }
            "q3" => local_items(&events),
            "q4" => self.mean_prices(&events),
            "q5" => self.hottest(&events),
            "q7" => self.highest_bids(&events),
            "q8" => self.new_sellers(&events),
            "q11" => bids_per_bidder(&events, Windowing::sessions(self.gap_ms)),
            "q12" => bids_per_bidder(&events, Windowing::tumbling(self.bidder_ms)),
            _ => panic!("there is no query {name}"),
        }
    }

    /// Query 4: the mean closing price of a category.
    fn mean_prices(self, events: &Stream<NexmarkEvent>) -> Stream<String> {
        let auctions = events.flat_map("auctions", auction).key_by("id", |auction| auction.id);
        let bids = events.flat_map("bids", bid).key_by("auction", |bid| bid.auction);
        let open = JoinRange::Interval { before_ms: 0, after_ms: self.open_ms };
        let pairs = auctions.join("open", &bids, open);
        let price = pairs.key_value("price", |(id, auction, bid)| ((id, auction.category), bid.price));
        let closing = price.combine("closing", Windowing::global(), Max::new());
        let category = closing.key_value("category", |pane| (pane.key.1, pane.value.unwrap_or(0) as f64));
        let means = category.combine("mean", Windowing::global(), Mean);
        let all = closing.key_value("all", |pane| ((), pane.key.0)).combine("count", Windowing::global(), Count::new());
        let means = means.map("shown", |pane| format!("{} {}", pane.key, pane.value.unwrap_or(0.0)));
        means.merge("both", &[all.map("all shown", |pane| format!("all {}", pane.value))])
    }

    /// Query 5: the auction with the most bids of a sliding window.
    fn hottest(self, events: &Stream<NexmarkEvent>) -> Stream<String> {
        let (size, slide) = self.hot_ms;
        let bids = events.flat_map("bids", bid).key_value("auction", |bid| (bid.auction, ()));
        let counts = bids.combine("count", Windowing::sliding(size, slide), Count::new());
        let window = counts.key_value("window", |pane| (pane.window.start.0, (pane.value, pane.key)));
        let hottest = window.combine("hottest", Windowing::tumbling(slide), TopN::new(1));
        hottest.flat_map("shown", |pane| {
            let start = pane.key;
            pane.value.into_iter().map(move |(count, auction)| format!("{start} {auction} {count}"))
        })
    }

    /// Query 7: the highest bid of a window.
    fn highest_bids(self, events: &Stream<NexmarkEvent>) -> Stream<String> {
        let bids = events.flat_map("bids", bid).key_value("all", |bid| ((), (bid.price, bid.auction, bid.bidder)));
        let highest = bids.combine("highest", Windowing::tumbling(self.highest_ms), Max::new());
        highest.flat_map("shown", |pane| pane.value.map(|best| format!("{} {best:?}", pane.window.start.0)))
    }

    /// Query 8: persons who are new and sell in the same window.
    fn new_sellers(self, events: &Stream<NexmarkEvent>) -> Stream<String> {
        let size_ms = self.new_ms;
        let persons = events.flat_map("persons", person).key_value("id", |person| (person.id, person.time));
        let sellers = events.flat_map("auctions", auction).key_value("seller", |auction| (auction.seller, ()));
        let pairs = persons.join("new", &sellers, JoinRange::Window { size_ms });
        let once = pairs.key_value("person", move |(id, time, ())| ((id, floor(time, size_ms)), ()));
        let once = once.combine("once", Windowing::tumbling(size_ms), Count::new());
        once.map("shown", |pane| format!("{} {}", pane.key.0, pane.key.1))
    }
}

/// Query 3: who sells in some states, and what.
fn local_items(events: &Stream<NexmarkEvent>) -> Stream<String> {
    let near = events.flat_map("persons", person).filter("near", is_near);
    let sold = events.flat_map("auctions", auction).filter("category", |auction| auction.category == 10);
    let ever = JoinRange::Interval { before_ms: EVER_MS, after_ms: EVER_MS };
    let sellers = near.key_value("id", |person| (person.id, person.state));
    let joined = sellers.join("join", &sold.key_value("seller", |auction| (auction.seller, auction.id)), ever);
    joined.map("shown", |(person, state, auction)| format!("{person} {state} {auction}"))
}

/// Queries 11 and 12: the bids of a bidder per session, or window.
fn bids_per_bidder(events: &Stream<NexmarkEvent>, windowing: Windowing) -> Stream<String> {
    let bids = events.flat_map("bids", bid).key_value("bidder", |bid| (bid.bidder, ()));
    let counts = bids.combine("count", windowing, Count::new());
    counts.map("shown", |pane| format!("{} {} {}", pane.key, pane.window.start.0, pane.value))
}
