//! Small real journals on a disk in memory, and all the moments they went through.

use onceflow_core::{Batch, Group, Key, Row, Shard};
use onceflow_store::{
    Records,
    backend::journal::{Journal, OpenError, Options, Recovered},
    state::StoreState,
    testing::{
        disk::Disk,
        random::Random,
        world::{OneThread, TestWorld},
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// All rows, by shard and key.
pub(super) type Rows = BTreeMap<(Shard, Key), Row>;

/// How many journals there are.
pub(super) const COUNT: usize = 3;

/// A journal as it was left.
pub(super) struct Made {
    pub(super) name: &'static str,
    pub(super) disk: Disk,
    /// The same files at earlier moments.
    pub(super) earlier: Vec<Disk>,
    /// All rows after each batch; the first entry is the beginning.
    pub(super) after: Vec<Rows>,
}

impl Made {
    /// After which batch the rows were these.
    pub(super) fn moment(&self, rows: &Rows) -> Option<usize> {
        self.after.iter().position(|then| then == rows)
    }
}

pub(super) async fn all() -> Vec<Made> {
    let snapshots = Options { snapshot_log_bytes_min: 1500, ..Options::default() };
    vec![
        make("log", Options::default(), 40, true).await,
        make("snapshots", snapshots.clone(), 90, true).await,
        make("killed", snapshots, 70, false).await,
    ]
}

async fn make(name: &'static str, options: Options, batches: usize, close: bool) -> Made {
    let disk = Disk::new();
    let (journal, _) = open(&disk, options).expect("an empty disk opens");
    let mut made = Made { name, disk: disk.clone(), earlier: vec![], after: vec![rows(&journal.state())] };
    let mut random = Random::new(5);
    for count in 0..batches {
        let outcome = journal.commit(batch(&mut random, count)).await.expect("a healthy journal");
        made.after.push(rows(&journal.state()));
        if count % 3 == 2 {
            journal.durable(outcome.position()).await.expect("a healthy disk");
        } else {
            tokio::task::yield_now().await;
        }
        if count % 12 == 7 {
            made.earlier.push(trimmed(&disk));
        }
    }
    if close {
        journal.close().await.expect("a healthy disk");
    }
    made.disk = trimmed(&disk);
    made
}

/// What a kill leaves, without the zeros that logs are prepared with.
fn trimmed(disk: &Disk) -> Disk {
    let left = disk.after_kill();
    for name in left.names().iter().filter(|name| name.starts_with("log-")) {
        let mut bytes = left.read(name);
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(used.next_multiple_of(512));
        left.overwrite(name, bytes);
    }
    left
}

/// Some rows put, some deleted, a counter, a set, a group.
fn batch(random: &mut Random, count: usize) -> Batch {
    let name = |random: &mut Random| format!("row-{}", random.below(9));
    let permit = Group::rows("permits").key(format!("{count}"));
    let mut batch = Batch::new(Shard(random.below(2) as u16));
    batch.require_absent(permit.clone()).put(permit, Row::new("used"));
    batch.put(Group::rows("g").key(name(random)), Row::from(vec![count as u8; random.below(90)]));
    match random.below(4) {
        0 => batch.delete(Group::rows("g").key(name(random))),
        1 => batch.add(Group::rows("n").key(name(random)), 1, vec![]),
        2 => batch.set_bit(Group::rows("bits").key(name(random)), random.below(3) as u32, 3, vec![]),
        _ => batch.delete_group(Group::rows("bits")),
    };
    batch
}

pub(super) fn rows(state: &StoreState) -> Rows {
    state.durable_after(None, usize::MAX).0.into_iter().map(|(shard, key, row)| ((shard, key), row)).collect()
}

pub(super) fn open(disk: &Disk, options: Options) -> Result<(Journal, Recovered), OpenError> {
    Journal::open(Arc::new(disk.clone()), options, Arc::new(OneThread(TestWorld::new(7))))
}
