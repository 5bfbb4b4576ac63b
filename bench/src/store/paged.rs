//! The paged backend against redb itself: the same rows in transactions of the same size, each on the disk before the
//! next begins. Ours is one batch and one wait where redb is one transaction, so the figure is what the port costs.

use anyhow::ensure;
use onceflow_bench::{
    disk::Scratch,
    report::{self, Line, Report, Target, per_second},
    rounds::{Rounds, Side, Turn, cpu_seconds, timed},
};
use onceflow_core::{Batch, Group, Shard};
use onceflow_store::{
    backend::{
        journal::{ExpectedStore, files::StoreDirectory},
        paged::{Options, Paged},
    },
    records::{Records, Scan, commit_durably},
    world::RealWorld,
};
use redb::{Database, Durability, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use serde_json::json;
use std::{ops::Range, path::Path, sync::Arc};
use tokio::runtime::Runtime;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// Rows put by a transaction; as many are deleted.
const PAIRS: u64 = 256;
/// Rows that are there at a time.
const LIVE: u64 = 100_000;
const TURN_TRANSACTIONS: u64 = 100;
const ROUNDS_MIN: usize = 10;
const ROW_BYTES: usize = 100;

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let scratch = Scratch::new("paged")?;
    let mut ours = Pages::open(runtime, scratch.path())?;
    let mut redb = Bare { database: Database::create(scratch.join("bare"))? };
    let (mut next, mut cpu) = ([0; 2], [0.0; 2]);
    let [ours_next, redb_next] = &mut next;
    let [ours_cpu, redb_cpu] = &mut cpu;
    let mut ours_turn = || turn(ours_next, ours_cpu, |keys| ours.transaction(keys));
    let mut redb_turn = || turn(redb_next, redb_cpu, |keys| redb.transaction(keys));
    // Both hold all rows before anything is counted.
    for side in [&mut ours_turn as Side<'_>, &mut redb_turn] {
        for _ in 0..LIVE / (PAIRS * TURN_TRANSACTIONS) {
            side()?;
        }
    }
    let sides: &mut [Side<'_>] = &mut [&mut ours_turn, &mut redb_turn];
    let rounds = Rounds::run("paged, ours : redb (pairs per second)", ROUNDS_MIN, sides)?;
    ensure!(ours.rows()? == LIVE && redb.rows()? == LIVE, "a store lost rows, or kept deleted ones");
    let ratio = rounds.ratio(0, 1);
    report.key(
        "paged_vs_redb",
        Line {
            what: format!("batches of {PAIRS} puts and deletes in pages, against redb"),
            ours: per_second(rounds.median(0)),
            theirs: per_second(rounds.median(1)),
            figure: ratio,
            target: Target::AtLeast(0.5),
        },
    );
    let detail = json!({
        "ratio": report::rounded(ratio),
        "ours_pairs_per_s": report::figures(rounds.figures(0)),
        "redb_pairs_per_s": report::figures(rounds.figures(1)),
        "ours_cpu_us_per_pair": report::rounded(cpu[0] * 1e6 / next[0] as f64),
        "redb_cpu_us_per_pair": report::rounded(cpu[1] * 1e6 / next[1] as f64),
    });
    report.detail("paged", detail);
    Ok(())
}

fn turn(
    next: &mut u64,
    cpu: &mut f64,
    mut transaction: impl FnMut(Range<u64>) -> anyhow::Result<()>,
) -> anyhow::Result<Turn> {
    let before = cpu_seconds();
    let (seconds, ()) = timed(|| {
        for _ in 0..TURN_TRANSACTIONS {
            transaction(*next..*next + PAIRS)?;
            *next += PAIRS;
        }
        Ok(())
    })?;
    *cpu += cpu_seconds() - before;
    Ok(Turn { figure: (TURN_TRANSACTIONS * PAIRS) as f64 / seconds, seconds })
}

/// Keys in order, as ours are by group and name.
fn name(number: u64) -> [u8; 16] {
    (u128::from(number) << 64 | 0x5a5a).to_be_bytes()
}

fn row(number: u64) -> [u8; ROW_BYTES] {
    [number as u8; ROW_BYTES]
}

struct Pages<'a> {
    runtime: &'a Runtime,
    paged: Paged,
}

impl<'a> Pages<'a> {
    fn open(runtime: &'a Runtime, directory: &Path) -> anyhow::Result<Self> {
        let _inside = runtime.enter();
        let files = Arc::new(StoreDirectory::at(directory)?);
        let (paged, _) = Paged::open(files, Options::default(), RealWorld::here(), ExpectedStore::Unknown)?;
        Ok(Pages { runtime, paged })
    }

    fn transaction(&mut self, keys: Range<u64>) -> anyhow::Result<()> {
        let group = Group::rows("rows");
        let mut batch = Batch::new(Shard(0));
        for number in keys {
            batch.put(group.key(name(number)), row(number).to_vec());
            if let Some(gone) = number.checked_sub(LIVE) {
                batch.delete(group.key(name(gone)));
            }
        }
        ensure!(self.runtime.block_on(commit_durably(&self.paged, batch))?.is_applied(), "nothing refuses a put");
        Ok(())
    }

    fn rows(&self) -> anyhow::Result<u64> {
        let (mut rows, mut after) = (0, None);
        loop {
            let scan = Scan::of(Group::rows("rows"), 4096).after(after);
            let page = self.runtime.block_on(self.paged.scan(Shard(0), scan))?;
            rows += page.rows.len() as u64;
            after = page.rows.last().map(|(name, _)| name.clone());
            if !page.more {
                return Ok(rows);
            }
        }
    }
}

struct Bare {
    database: Database,
}

impl Bare {
    fn transaction(&mut self, keys: Range<u64>) -> anyhow::Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut table = transaction.open_table(TABLE)?;
        for number in keys {
            table.insert(&name(number)[..], &row(number)[..])?;
            if let Some(gone) = number.checked_sub(LIVE) {
                table.remove(&name(gone)[..])?;
            }
        }
        drop(table);
        transaction.commit()?;
        Ok(())
    }

    fn rows(&self) -> anyhow::Result<u64> {
        Ok(self.database.begin_read()?.open_table(TABLE)?.len()?)
    }
}
