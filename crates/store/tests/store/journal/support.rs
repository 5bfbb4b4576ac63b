//! A journal on a disk in memory, and a record of its answers.

use onceflow_store::{
    Error, Records,
    backend::journal::{Journal, OpenError, Options, Recovered},
    core::{Batch, Group, Key, Row, Shard},
    records,
    state::StoreState,
    testing::{
        disk::Disk,
        random::Random,
        world::{OneThread, TestWorld},
    },
};
use std::{collections::BTreeMap, sync::Arc};

pub(crate) const SHARD: Shard = Shard(0);

/// All rows, by shard and key.
pub(crate) type Rows = BTreeMap<(Shard, Key), Row>;

pub(crate) fn rows(state: &StoreState) -> Rows {
    let (rows, rest) = state.durable_after(None, usize::MAX);
    assert!(rest.is_none());
    rows.into_iter().map(|(shard, key, row)| ((shard, key), row)).collect()
}

pub(crate) fn key(name: &str) -> Key {
    Group::rows("g").key(name)
}

pub(crate) fn put(name: &str, row: &str) -> Batch {
    let mut batch = Batch::new(SHARD);
    batch.put(key(name), Row::new(row));
    batch
}

/// Commits a batch that nothing can refuse, durably.
pub(crate) async fn commit(journal: &Journal, batch: Batch) -> Result<(), Error> {
    let outcome = records::commit_durably(journal, batch).await?;
    assert!(outcome.is_applied(), "{outcome:?}");
    Ok(())
}

/// Snapshots after a few batches, so that small cases see them.
pub(crate) fn eager_snapshots() -> Options {
    Options { snapshot_log_bytes_min: 1500, compact_log_bytes_min: u64::MAX, ..Options::default() }
}

pub(crate) fn open(disk: &Disk, options: Options) -> Result<(Journal, Recovered), OpenError> {
    Journal::open(Arc::new(disk.clone()), options, Arc::new(OneThread(TestWorld::new(7))))
}

/// The answers a caller has got, batch by batch.
#[derive(Default)]
pub(crate) struct Told {
    /// All rows after each batch that was applied; the first entry is the beginning.
    pub(crate) after: Vec<Rows>,
    /// How many of those batches were acknowledged as durable.
    pub(crate) acknowledged: usize,
}

/// Commits `n` batches, one after the other, until one fails; records those that were applied and acknowledged.
pub(crate) async fn work(journal: &Journal, seed: u64, n: usize) -> (Told, Option<Error>) {
    let mut told = Told { after: vec![rows(&journal.state())], acknowledged: 0 };
    let mut random = Random::new(seed);
    for count in 0..n {
        let outcome = match journal.commit(random_batch(&mut random, count)).await {
            Ok(outcome) => outcome,
            Err(error) => return (told, Some(error)),
        };
        told.after.push(rows(&journal.state()));
        // Not everyone waits: the disk has its turns while more is applied than it has.
        if count % 3 != 2 && count + 1 < n {
            tokio::task::yield_now().await;
            continue;
        }
        if let Err(error) = journal.durable(outcome.position()).await {
            return (told, Some(error));
        }
        told.acknowledged = told.after.len() - 1;
    }
    (told, None)
}

/// A batch with every kind of effect in it, that uses up a permission of its own.
fn random_batch(random: &mut Random, count: usize) -> Batch {
    let name = |random: &mut Random| format!("row-{}", random.below(12));
    let mut batch = Batch::new(Shard(random.below(2) as u16));
    batch.require_absent(key(&format!("permit-{count}"))).put(key(&format!("permit-{count}")), Row::new("used"));
    if count >= 5 {
        batch.delete(key(&format!("permit-{}", count - 5)));
    }
    for _ in 0..random.below(4) {
        match random.below(6) {
            0 | 1 => {
                batch.put(key(&name(random)), Row::from(vec![count as u8; random.below(120)]));
            }
            2 => {
                batch.delete(key(&name(random)));
            }
            3 => {
                batch.add(Group::rows("n").key(name(random)), 1 - random.below(3) as i64, vec![]);
            }
            4 => {
                let bits = Group::rows("bits").key(name(random));
                batch.set_bit(bits, random.below(3) as u32, 3, vec![]);
            }
            _ => {
                batch.delete_group(Group::rows(format!("group-{}", random.below(2))));
            }
        }
    }
    batch.put(Group::rows(format!("group-{}", random.below(2))).key(name(random)), Row::new("member"));
    batch
}

/// Opens what is left and checks it against what was told: some state from the last acknowledged one on. What it shows then is
/// relied on, so it outlives a power cut.
pub(crate) async fn check_left(disk: &Disk, told: &Told, what: &str) {
    let (journal, _) = match open(disk, eager_snapshots()) {
        Ok(opened) => opened,
        Err(error) => panic!("{what}: what is left does not open: {error}"),
    };
    let found = rows(&journal.state());
    let (shown, _) = open(&disk.after_power_cut(98), eager_snapshots()).expect("it opens without having been closed");
    assert_eq!(rows(&shown.state()), found, "{what}: what a reopened journal showed was lost with the power");
    let possible = &told.after[told.acknowledged..];
    assert!(possible.contains(&found), "{what}: the rows are of no moment after the last acknowledged batch");
    // And it goes on as if nothing had been.
    commit(&journal, put("afterwards", "1")).await.expect("a reopened journal takes batches");
    let (again, _) = open(&disk.after_power_cut(99), eager_snapshots()).expect("it opens once more");
    assert_eq!(rows(&again.state()), rows(&journal.state()), "{what}: a power cut after the opening took something");
}
