//! Words as people use them: the n-th most frequent word comes 1/n as often as the first (Zipf, exponent 1).

use anyhow::{Context, ensure};
use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::Arc,
};

/// Different words.
const WORDS: usize = 50_000;

/// Words of a line of a file.
pub(super) const WORDS_PER_LINE: usize = 10;

/// A text, as the ranks of its words. The same in every run.
#[derive(Clone)]
pub(super) struct Corpus {
    ranks: Arc<Vec<u32>>,
}

impl Corpus {
    pub(super) fn new(words: u64) -> Corpus {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=WORDS)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        let rank = |n: u64| {
            let chance = (mixed(n) >> 11) as f64 / (1u64 << 53) as f64 * sum;
            sums.partition_point(|sum| *sum <= chance) as u32
        };
        Corpus { ranks: Arc::new((0..words).map(rank).collect()) }
    }

    pub(super) fn len(&self) -> u64 {
        self.ranks.len() as u64
    }

    /// The n-th word.
    pub(super) fn word(&self, n: u64) -> String {
        word(self.ranks[n as usize])
    }

    /// `WORD COUNT` for every word, sorted.
    pub(super) fn counts(&self) -> Vec<String> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        self.ranks.iter().for_each(|rank| *counts.entry(*rank).or_default() += 1);
        let mut lines: Vec<String> = counts.iter().map(|(rank, count)| format!("{} {count}", word(*rank))).collect();
        lines.sort_unstable();
        lines
    }

    /// How many times fewer records reach the shuffle if those of a word and a bundle become one: no combiner that keeps
    /// nothing beyond its bundle can do better.
    pub(super) fn bound(&self, bundle: usize) -> f64 {
        let distinct = |words: &[u32]| words.iter().collect::<HashSet<_>>().len();
        let sent: usize = self.ranks.chunks(bundle).map(distinct).sum();
        self.ranks.len() as f64 / sent as f64
    }

    /// Writes the text into files, each with its share of the lines.
    pub(super) fn write(&self, paths: &[&Path]) -> anyhow::Result<()> {
        let lines = self.ranks.len() / WORDS_PER_LINE;
        for (at, path) in paths.iter().enumerate() {
            let (from, to) = (lines * at / paths.len(), lines * (at + 1) / paths.len());
            let mut file = BufWriter::new(File::create(path)?);
            for line in self.ranks[from * WORDS_PER_LINE..to * WORDS_PER_LINE].chunks(WORDS_PER_LINE) {
                writeln!(file, "{}", line.iter().map(|rank| word(*rank)).collect::<Vec<_>>().join(" "))?;
            }
            file.into_inner().context("a file of words")?;
        }
        Ok(())
    }
}

fn word(rank: u32) -> String {
    format!("word{rank}")
}

/// A number that looks like chance, different for every other (splitmix64).
pub(super) fn mixed(n: u64) -> u64 {
    let n = (n.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// Compares an answer with the right one.
pub(super) fn check(what: &str, found: &[String], right: &[String]) -> anyhow::Result<()> {
    let first = found.iter().zip(right).find(|(found, right)| found != right);
    ensure!(
        found == right,
        "{what}: {} lines, and {} are right; the first that differs: {first:?}",
        found.len(),
        right.len()
    );
    Ok(())
}
