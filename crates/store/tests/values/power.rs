//! Case 15 on a disk: the power is cut, or the disk fails, at every disk operation of a whole life. What is found afterwards
//! is in order, and nothing of it stays.

use crate::{
    bed::SHARD,
    crash::{finish, is_clean, life},
};
use onceflow_store::{
    backend::journal::{Journal, Options},
    testing::{
        disk::{Disk, Trouble},
        world::TestWorld,
    },
    values::Values,
};
use std::{io::ErrorKind, sync::Arc};

/// Snapshots after a few updates, so that this short life sees them.
fn open(disk: &Disk, world: &Arc<TestWorld>) -> Option<Arc<Journal>> {
    let options = Options { snapshot_log_bytes_min: 2_000, ..Options::default() };
    Some(Arc::new(Journal::open(Arc::new(disk.clone()), options, world.clone()).ok()?.0))
}

async fn at_every_disk_operation(trouble: Trouble) {
    for n in 1.. {
        let (disk, world) = (Disk::new(), TestWorld::new(1));
        disk.trouble_at(n, trouble);
        if let Some(journal) = open(&disk, &world) {
            let dying = Values::new(journal.clone(), world.clone(), SHARD);
            let _how_far = life(&dying, &world, 2).await;
            let _ended = journal.close().await;
        }
        for seed in 0..2 {
            let at = format!("{trouble:?} at operation {n}, seed {seed}");
            let journal = open(&disk.after_power_cut(seed), &world).unwrap_or_else(|| panic!("{at}: does not open"));
            let reopened = Values::new(journal, world.clone(), SHARD);
            is_clean(&reopened, &at).await;
            finish(&reopened, &world, 2).await.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(reopened.rows().await.unwrap(), [], "{at}");
        }
        if !disk.is_in_trouble() {
            assert!(n > 20, "a life of {n} disk operations is none");
            return;
        }
    }
}

#[tokio::test]
async fn a_power_cut_at_any_disk_operation_leaves_nothing_broken_and_nothing_behind() {
    at_every_disk_operation(Trouble::Stop).await;
}

#[tokio::test]
async fn a_failing_disk_at_any_operation_leaves_nothing_broken_and_nothing_behind() {
    at_every_disk_operation(Trouble::Fail(ErrorKind::Other)).await;
    at_every_disk_operation(Trouble::Fail(ErrorKind::StorageFull)).await;
}
