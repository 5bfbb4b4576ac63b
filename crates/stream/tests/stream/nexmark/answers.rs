//! The answers to the queries of the auction house by a naive evaluation of all events at once, in order of lines. Shared
//! with the benchmark, as [`house`](super::house) is.

use super::house::{Bid, House, auction, bid, floor, in_euros, is_near, person, shown};
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl House {
    fn bids(self) -> impl Iterator<Item = Bid> {
        self.all().filter_map(bid)
    }

    /// Returns the lines of a query's answer, sorted.
    pub(crate) fn answer(self, name: &str) -> Vec<String> {
        let mut lines = match name {
            "q0" => self.bids().map(|bid| shown(&bid)).collect(),
            "q1" => self.bids().map(|bid| in_euros(&bid)).collect(),
            "q2" => self.bids().filter(|bid| bid.auction % 7 == 0).map(|bid| shown(&bid)).collect(),
            "q3" => self.local_items_answer(),
            "q4" => self.mean_prices_answer(),
            "q5" => self.hottest_answer(),
            "q7" => self.highest_bids_answer(),
            "q8" => self.new_sellers_answer(),
            "q11" => self.sessions_answer(),
            "q12" => self.windows_answer(),
            _ => panic!("there is no query {name}"),
        };
        lines.sort_unstable();
        lines
    }

    fn local_items_answer(self) -> Vec<String> {
        let near: HashMap<u64, String> =
            self.all().filter_map(person).filter(is_near).map(|person| (person.id, person.state)).collect();
        let sold = self.all().filter_map(auction).filter(|auction| auction.category == 10);
        sold.filter_map(|auction| Some(format!("{} {} {}", auction.seller, near.get(&auction.seller)?, auction.id)))
            .collect()
    }

    fn mean_prices_answer(self) -> Vec<String> {
        let auctions: HashMap<u64, (u64, i64)> =
            self.all().filter_map(auction).map(|auction| (auction.id, (auction.category, auction.time))).collect();
        let mut highest: BTreeMap<u64, u64> = BTreeMap::new();
        for bid in self.bids() {
            let opened = auctions[&bid.auction].1;
            if (opened..=opened + self.open_ms).contains(&bid.time) {
                let price = highest.entry(bid.auction).or_default();
                *price = bid.price.max(*price);
            }
        }
        let mut closing: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        highest.iter().for_each(|(id, price)| closing.entry(auctions[id].0).or_default().push(*price));
        let mean = |prices: &Vec<u64>| prices.iter().sum::<u64>() as f64 / prices.len() as f64;
        let means = closing.iter().map(|(category, prices)| format!("{category} {}", mean(prices)));
        means.chain([format!("all {}", highest.len())]).collect()
    }

    fn hottest_answer(self) -> Vec<String> {
        let (size, slide) = self.hot_ms;
        let mut counts: BTreeMap<i64, HashMap<u64, u64>> = BTreeMap::new();
        for bid in self.bids() {
            let last = floor(bid.time, slide);
            for start in (0..size / slide).map(|back| last - back * slide) {
                *counts.entry(start).or_default().entry(bid.auction).or_default() += 1;
            }
        }
        let hottest = |(start, counts): (&i64, &HashMap<u64, u64>)| {
            let (auction, count) = counts.iter().max_by_key(|(auction, count)| (**count, **auction))?;
            Some(format!("{start} {auction} {count}"))
        };
        counts.iter().filter_map(hottest).collect()
    }

    fn highest_bids_answer(self) -> Vec<String> {
        let mut highest: BTreeMap<i64, (u64, u64, u64)> = BTreeMap::new();
        for bid in self.bids() {
            let best = highest.entry(floor(bid.time, self.highest_ms)).or_default();
            *best = (*best).max((bid.price, bid.auction, bid.bidder));
        }
        highest.iter().map(|(start, best)| format!("{start} {best:?}")).collect()
    }

    fn new_sellers_answer(self) -> Vec<String> {
        let window = |time| floor(time, self.new_ms);
        let new: HashMap<u64, i64> =
            self.all().filter_map(person).map(|person| (person.id, window(person.time))).collect();
        let sold =
            self.all().filter_map(auction).filter(|auction| new.get(&auction.seller) == Some(&window(auction.time)));
        let sellers: BTreeSet<_> = sold.map(|auction| (auction.seller, window(auction.time))).collect();
        sellers.iter().map(|(person, start)| format!("{person} {start}")).collect()
    }

    fn sessions_answer(self) -> Vec<String> {
        let mut bidders: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        self.bids().for_each(|bid| bidders.entry(bid.bidder).or_default().push(bid.time));
        let mut sessions = Vec::new();
        for (bidder, times) in &mut bidders {
            times.sort_unstable();
            for session in times.chunk_by(|one, next| next - one < self.gap_ms) {
                sessions.push(format!("{bidder} {} {}", session[0], session.len()));
            }
        }
        sessions
    }

    fn windows_answer(self) -> Vec<String> {
        let mut windows: HashMap<(u64, i64), u64> = HashMap::new();
        self.bids().for_each(|bid| *windows.entry((bid.bidder, floor(bid.time, self.bidder_ms))).or_default() += 1);
        windows.iter().map(|((bidder, start), count)| format!("{bidder} {start} {count}")).collect()
    }
}
