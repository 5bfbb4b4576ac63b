//! What a workflow does to a store: rows come and go, few are live. Each key is put, and deleted when so many others came
//! after it; every 256 such pairs are made durable. All three stores do the same pairs with the same points of durability:
//! ours as one batch and one wait, the peers as one transaction.
//!
//! A fourth side shows ours when the wait for one point overlaps the next pairs, which the peers cannot do. The targets are
//! not about it.

mod ours;
mod redb;
mod sqlite;

use super::journal::Ours;
use anyhow::ensure;
use onceflow_bench::{
    disk::{Scratch, bytes_used},
    report::{self, Line, Report, Target, per_second},
    rounds::{Rounds, Side, Turn, cpu_seconds, timed},
};
use serde_json::json;
use std::{fs, ops::Range, path::PathBuf};
use tokio::runtime::Runtime;

const LIVE: [u64; 2] = [1_000, 100_000];
/// Pairs between two points of durability.
const DURABLE_EVERY: u64 = 256;
/// Pairs in a turn, and turns for a million of them.
const TURN_PAIRS: u64 = 400 * DURABLE_EVERY;
const ROUNDS_MIN: usize = 10;
/// How often a store's directory is looked at, in points of durability.
const LOOK_EVERY: u64 = 16;
const NAME_BYTES: usize = 16;
const ROW_BYTES: usize = 100;
/// A store may take so many times its live state, and one segment.
const DISK_OVER_LIVE_MAX: u64 = 4;
const SEGMENT_BYTES: u64 = 16 << 20;

/// A store that can be churned.
trait Store {
    /// Puts these keys, deletes those that were put `live` before, and makes all of it durable at once.
    fn pairs(&mut self, keys: Range<u64>, live: u64) -> anyhow::Result<()>;
    /// All rows, in order.
    fn rows(&self) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>>;
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let found = LIVE.map(|live| compare(runtime, live));
    let mut churned = Vec::new();
    for (live, found) in LIVE.into_iter().zip(found) {
        let Churned { rounds, disk_max, cpu_us } = found?;
        let ratios = [rounds.ratio(0, 1), rounds.ratio(0, 2)];
        let bound = DISK_OVER_LIVE_MAX * live * (NAME_BYTES + ROW_BYTES) as u64 + SEGMENT_BYTES;
        let over = disk_max[0] as f64 / bound as f64;
        let detail = json!({
            "vs_redb": report::rounded(ratios[0]),
            "vs_sqlite": report::rounded(ratios[1]),
            "ours_pairs_per_s": report::figures(rounds.figures(0)),
            "redb_pairs_per_s": report::figures(rounds.figures(1)),
            "sqlite_pairs_per_s": report::figures(rounds.figures(2)),
            "ours_overlapping_pairs_per_s": report::figures(rounds.figures(3)),
            "overlapping_vs_redb": report::rounded(rounds.ratio(3, 1)),
            "overlapping_vs_sqlite": report::rounded(rounds.ratio(3, 2)),
            "cpu_us_per_pair": { "ours": cpu_us[0], "redb": cpu_us[1], "sqlite": cpu_us[2], "overlapping": cpu_us[3] },
            "pairs": TURN_PAIRS * rounds.figures(0).len() as u64,
            "disk_bytes_max": { "ours": disk_max[0], "redb": disk_max[1], "sqlite": disk_max[2], "bound": bound },
        });
        report.detail(&format!("churn_{live}"), detail);
        churned.push((live, rounds, ratios, over));
    }
    let peers = [("churn_vs_redb", "redb", 2.0), ("churn_vs_sqlite", "SQLite", 2.0)];
    for (peer, (key, name, target)) in peers.into_iter().enumerate() {
        let mut lines: Vec<Line> = churned
            .iter()
            .map(|(live, rounds, ratios, _)| Line {
                what: format!("put then delete, {live} live, against {name}"),
                ours: per_second(rounds.median(0)),
                theirs: per_second(rounds.median(peer + 1)),
                figure: ratios[peer],
                target: Target::AtLeast(target),
            })
            .collect();
        lines.sort_by(|one, other| one.figure.total_cmp(&other.figure));
        let mut lines = lines.into_iter();
        report.key(key, lines.next().expect("there are two sizes"));
        lines.for_each(|line| report.line(line));
    }
    let over = churned.iter().map(|(.., over)| *over).fold(0.0, f64::max);
    report.key(
        "churn_disk_over_bound",
        Line {
            what: "most disk taken meanwhile, of 4 × live state and a segment".into(),
            ours: format!("{:.0} %", over * 100.0),
            theirs: String::new(),
            figure: over,
            target: Target::AtMost(1.0),
        },
    );
    report.note(format!(
        "churn: {} pairs a store and size, in turns of {TURN_PAIRS}; keys of {NAME_BYTES} bytes in order, rows of {ROW_BYTES} bytes",
        TURN_PAIRS * ROUNDS_MIN as u64
    ));
    Ok(())
}

struct Churned {
    rounds: Rounds,
    /// The most disk each store took.
    disk_max: [u64; 4],
    /// Processor time for one pair.
    cpu_us: [f64; 4],
}

fn compare(runtime: &Runtime, live: u64) -> anyhow::Result<Churned> {
    let scratch = Scratch::new("churn")?;
    let paths = ["ours", "redb", "sqlite", "overlapping"].map(|name| scratch.join(name));
    paths.iter().try_for_each(fs::create_dir)?;
    let mut churns = [
        Churn::new(Box::new(ours::Churned::new(runtime, Ours::open(runtime, &paths[0])?, false)), &paths[0], live)?,
        Churn::new(Box::new(redb::Churned::create(&paths[1])?), &paths[1], live)?,
        Churn::new(Box::new(sqlite::Churned::create(&paths[2])?), &paths[2], live)?,
        Churn::new(Box::new(ours::Churned::new(runtime, Ours::open(runtime, &paths[3])?, true)), &paths[3], live)?,
    ];
    let [ours, redb, sqlite, overlapping] = &mut churns;
    let what = format!("churn, {live} live, ours : redb : SQLite : ours overlapping (pairs per second)");
    let sides: &mut [Side<'_>] =
        &mut [&mut || ours.turn(), &mut || redb.turn(), &mut || sqlite.turn(), &mut || overlapping.turn()];
    let rounds = Rounds::run(&what, ROUNDS_MIN, sides)?;
    for churn in &churns {
        churn.check()?;
    }
    let cpu_us = churns.each_ref().map(|churn| report::rounded(churn.cpu_seconds * 1e6 / churn.next as f64));
    Ok(Churned { rounds, disk_max: churns.map(|churn| churn.disk_max), cpu_us })
}

/// A store on its way through the keys.
struct Churn<'a> {
    store: Box<dyn Store + 'a>,
    path: PathBuf,
    live: u64,
    next: u64,
    disk_max: u64,
    cpu_seconds: f64,
}

impl<'a> Churn<'a> {
    /// A store that holds the first keys already.
    fn new(store: Box<dyn Store + 'a>, path: &std::path::Path, live: u64) -> anyhow::Result<Churn<'a>> {
        let mut churn = Churn { store, path: path.to_owned(), live, next: 0, disk_max: 0, cpu_seconds: 0.0 };
        churn.advance(live)?;
        Ok(churn)
    }

    fn turn(&mut self) -> anyhow::Result<Turn> {
        let (seconds, ()) = timed(|| self.advance(TURN_PAIRS))?;
        Ok(Turn { figure: TURN_PAIRS as f64 / seconds, seconds })
    }

    fn advance(&mut self, pairs: u64) -> anyhow::Result<()> {
        let (end, cpu) = (self.next + pairs, cpu_seconds());
        for number in 0.. {
            if self.next == end {
                break;
            }
            let until = end.min(self.next + DURABLE_EVERY);
            self.store.pairs(self.next..until, self.live)?;
            self.next = until;
            if number % LOOK_EVERY == 0 {
                self.disk_max = self.disk_max.max(bytes_used(&self.path)?);
            }
        }
        self.cpu_seconds += cpu_seconds() - cpu;
        Ok(())
    }

    /// The store holds the last keys that were put, and nothing else.
    fn check(&self) -> anyhow::Result<()> {
        let rows = self.store.rows()?;
        let path = self.path.display();
        ensure!(rows.len() as u64 == self.live, "{path} holds {} rows, not {}", rows.len(), self.live);
        for ((name, row), number) in rows.iter().zip(self.next - self.live..) {
            ensure!(name[..] == self::name(number) && row[..] == self::row(number), "{path}: key {number} is wrong");
        }
        Ok(())
    }
}

/// The key that was put so many others before this one.
fn gone(number: u64, live: u64) -> Option<[u8; NAME_BYTES]> {
    number.checked_sub(live).map(name)
}

fn name(number: u64) -> [u8; NAME_BYTES] {
    let mut name = *b"row-of-a........";
    name[8..].copy_from_slice(&number.to_be_bytes());
    name
}

fn row(number: u64) -> [u8; ROW_BYTES] {
    let mut row = [0x5a; ROW_BYTES];
    row[..8].copy_from_slice(&number.to_be_bytes());
    row
}
