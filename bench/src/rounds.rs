//! Fair turns. A machine is never quiet for long, so the sides are measured in short turns one after the other, and two
//! sides are compared within a round only. The median over the rounds counts. The order of the sides is shuffled in every
//! round, and the disk is drained between turns, so that no side always pays for the writes of the same other.

use crate::disk;
use std::time::Instant;

/// Each side is measured for at least this long in total.
pub const SIDE_SECONDS_MIN: f64 = 3.0;
/// A median of fewer rounds says little.
const ROUNDS_MIN: usize = 5;
/// One turn of one side.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// What is compared: a rate or a time.
    pub figure: f64,
    /// How long the turn took.
    pub seconds: f64,
}

/// One who takes turns.
pub type Side<'a> = &'a mut dyn FnMut() -> anyhow::Result<Turn>;

/// The figures of all sides, round by round.
#[derive(Debug)]
pub struct Rounds {
    /// By side, then by round.
    figures: Vec<Vec<f64>>,
}

impl Rounds {
    /// Lets every side have a turn, in shuffled order, until each has been measured long enough, and `rounds_min` times.
    /// The first round warms up and is not counted.
    pub fn run(what: &str, rounds_min: usize, sides: &mut [Side<'_>]) -> anyhow::Result<Rounds> {
        let mut rounds = Rounds { figures: vec![Vec::new(); sides.len()] };
        let mut seconds = vec![0.0; sides.len()];
        for side in &mut *sides {
            side()?;
        }
        let enough = |seconds: &[f64]| seconds.iter().all(|spent| *spent >= SIDE_SECONDS_MIN);
        let mut order = Order(0x9e37_79b9_7f4a_7c15);
        for round in 0.. {
            if round >= rounds_min.max(ROUNDS_MIN) && enough(&seconds) {
                break;
            }
            for side in order.shuffled(sides.len()) {
                disk::drain()?;
                let Turn { figure, seconds: spent } = sides[side]()?;
                rounds.figures[side].push(figure);
                seconds[side] += spent;
            }
            eprintln!("{what}: round {}, {}", round + 1, rounds.last_figures());
        }
        Ok(rounds)
    }

    /// The median figure of a side.
    pub fn median(&self, side: usize) -> f64 {
        median(self.figures[side].clone())
    }

    /// The median over the rounds of one side's figure divided by another's.
    pub fn ratio(&self, side: usize, by: usize) -> f64 {
        median(self.figures[side].iter().zip(&self.figures[by]).map(|(one, other)| one / other).collect())
    }

    /// The figures of a side, round by round.
    pub fn figures(&self, side: usize) -> &[f64] {
        &self.figures[side]
    }

    fn last_figures(&self) -> String {
        let last = self.figures.iter().map(|figures| format!("{:.1}", figures[figures.len() - 1]));
        last.collect::<Vec<_>>().join(" : ")
    }
}

/// A sequence of orders, the same in every run.
struct Order(u64);

impl Order {
    fn shuffled(&mut self, many: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..many).collect();
        for last in (1..many).rev() {
            // Marsaglia's xorshift: the numbers need not be good, only different from round to round.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            order.swap(last, (self.0 % (last as u64 + 1)) as usize);
        }
        order
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(mut figures: Vec<f64>) -> f64 {
    assert!(!figures.is_empty(), "no figure has no median");
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 }
}

/// How many seconds something takes, and what it answers.
pub fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let start = Instant::now();
    let answer = work()?;
    Ok((start.elapsed().as_secs_f64(), answer))
}

/// The processor time all threads of this program have taken, in seconds. Coarse (hundredths), but without the load of other processes.
pub fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; user and system time are the twelfth and thirteenth field behind it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn every_side_has_one_turn_in_every_order() {
        let mut order = Order(1);
        let orders: std::collections::BTreeSet<Vec<usize>> = (0..100).map(|_| order.shuffled(3)).collect();
        assert_eq!(orders.len(), 6, "three sides have six orders: {orders:?}");
    }

    #[test]
    fn a_ratio_compares_within_rounds_only() {
        // The second round was slow for both; the ratio does not see it.
        let rounds = Rounds { figures: vec![vec![10.0, 1.0, 10.0], vec![5.0, 0.5, 5.0]] };
        assert_eq!(rounds.ratio(0, 1), 2.0);
    }
}
