//! Random scopes, described once for both media: in memory, and in a store that fails somewhere, they end alike and perform the
//! same outside.

use super::{
    Outside,
    cases::{durable, light},
    durable_end, light_end,
};
use crate::scope::support::Clock;
use onceflow::scope::{BufferKeep, Provider};
use onceflow_store::testing::fault::Fault;

/// Scopes that are tried, unless `ONCEFLOW_LONG` asks for more.
const SCOPES: u64 = 80;
const SCOPES_LONG: u64 = 2_000;

/// One thing done to one of the chains that are still open.
#[derive(Clone, Copy, Debug)]
enum Move {
    Map(i64),
    /// Performs something outside, after so many milliseconds.
    Act(u64),
    Fork,
    /// Drops what this divides.
    Filter(i64),
    Spread(i64),
    /// Opens a nested session, which keeps what it gets, and hands it to its cleanup.
    Nest,
    /// Keeps a copy for the cleanup of the outer session.
    Keep,
    /// Runs a task that the message names.
    Choose,
}

/// A generator of numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn moves(&mut self) -> Vec<(usize, Move)> {
        let count = 2 + self.roll(7);
        let each = (0..count).map(|_| {
            let small = i64::try_from(self.roll(5)).unwrap();
            let done = match self.roll(9) {
                0 | 1 => Move::Map(small),
                2 => Move::Act(self.roll(4) * 10),
                3 => Move::Fork,
                4 => Move::Filter(small + 2),
                5 => Move::Spread(small % 3 + 1),
                6 => Move::Nest,
                7 => Move::Keep,
                _ => Move::Choose,
            };
            (usize::try_from(self.roll(8)).unwrap(), done)
        });
        each.collect()
    }
}

macro_rules! describe {
    ($medium:ident, $result:ty) => {
        fn $medium(moves: &[(usize, Move)], place: (&Clock, &Outside)) -> $result {
            use $medium::*;
            let nested = scope(|n: &Builder<i64, i64>| {
                let held = n.buffer_named("held", BufferKeep::Last(1));
                let [store, go] = n.start().fork_clone();
                store.store(held);
                act(go, place, "inside", 5).map(|v| v + 1).named("inc").terminate(n);
                n.on_terminate("t", (held,), &says(place.1, "held")).unlimited();
            });
            scope(|s: &Builder<i64, String>| {
                let kept = s.buffer_named("kept", BufferKeep::All);
                let mut chains = vec![s.start()];
                for (number, (at, done)) in moves.iter().copied().enumerate() {
                    let name = format!("op {number}");
                    let chain = chains.swap_remove(at % chains.len());
                    match done {
                        Move::Map(add) => chains.push(chain.map(move |v| (v * 3 + add) % 1_000).named(&name)),
                        Move::Act(ms) => chains.push(act(chain, place, "act", ms).named(&name)),
                        Move::Fork => chains.extend(chain.fork_clone::<2>()),
                        Move::Filter(by) => chains.push(chain.filter_map(move |v| (v % by != 0).then_some(v))),
                        Move::Spread(to) => {
                            chains.push(chain.map(move |v| (v..v + to).collect::<Vec<i64>>()).named(&name).spread());
                        }
                        Move::Nest => chains.push(chain.call(&nested).named(&name).result),
                        Move::Keep => {
                            let [store, go] = chain.fork_clone();
                            store.store(kept);
                            chains.push(go);
                        }
                        Move::Choose => {
                            let named = chain
                                .map(|v| (String::from(["even", "odd", "none"][usize::try_from(v % 3).unwrap()]), v));
                            let tasks = [
                                ("even", Provider::map(|v: i64| v + 2)),
                                ("odd", Provider::future(|v: i64| async move { v + 4 })),
                            ];
                            chains.push(named.named(&format!("{name} names")).inject_among(&name, tasks));
                        }
                    }
                }
                let (meet, all) = s.junction::<i64>();
                chains.into_iter().for_each(|chain| chain.connect(meet));
                let sorted = all.collect(0, None).named("all").map(|mut all: Vec<i64>| {
                    all.sort_unstable();
                    match all.iter().sum::<i64>() % 5 {
                        0 => Err(format!("a sum of {all:?}")),
                        _ => Ok(format!("{all:?}")),
                    }
                });
                sorted.named("sort").cancel_on_err(s).terminate(s);
                s.on_cancel("c", (kept,), &says(place.1, "cancelled")).unlimited();
                s.on_terminate("t", (kept,), &says(place.1, "terminated")).unlimited();
            })
        }
    };
}

describe!(light, onceflow::scope::Scope<i64, String>);
describe!(durable, onceflow::scope::DurableScope<i64, String>);

#[tokio::test]
async fn random_scopes_end_alike_in_memory_and_in_a_store_that_fails_somewhere() {
    let is_long = std::env::var_os("ONCEFLOW_LONG").is_some();
    for seed in 0..if is_long { SCOPES_LONG } else { SCOPES } {
        let mut dice = Dice(seed);
        let moves = dice.moves();
        let input = i64::try_from(dice.roll(20)).unwrap();
        let (clock, outside) = (Clock::new(), Outside::default());
        let wanted = light_end(&clock, &self::light(&moves, (&clock, &outside)), input).await;
        let performed = outside.performed();
        let faults = [Fault::StopBefore, Fault::StopAfter, Fault::LoseReply];
        let disturbed = (1 + dice.roll(60), faults[usize::try_from(dice.roll(3)).unwrap()]);
        let outside = Outside::default();
        let (end, _) = durable_end(&|clock| self::durable(&moves, (clock, &outside)), input, disturbed).await;
        assert_eq!(end, wanted, "seed {seed}: {moves:?}, {disturbed:?}");
        assert_eq!(outside.performed(), performed, "seed {seed}: {moves:?}, {disturbed:?}");
    }
}
