//! Case 15 on a disk: the power is cut, or the disk fails, at every disk operation of a whole life. What is found afterwards
//! is in order, and nothing of it stays.

use super::{
    bed::{SHARD, puts, root},
    crash::{finish, is_clean, life},
};
use onceflow_store::{
    backend::journal::{Journal, Options},
    testing::{
        disk::{Disk, Trouble},
        world::TestWorld,
    },
    values::{
        Keeper, Values,
        list::{List, ListBuilder},
    },
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

#[tokio::test]
async fn an_update_is_durable_when_it_returns() {
    let (disk, world) = (Disk::new(), TestWorld::new(1));
    let values = Arc::new(Values::new(open(&disk, &world).unwrap(), world.clone(), SHARD));
    let after = |seed| Values::new(open(&disk.after_power_cut(seed), &world).unwrap(), world.clone(), SHARD);
    let lease = root("lease");
    values.update(puts("a").lease(&lease, "a", 1_000)).await.unwrap();
    for seed in 0..4 {
        assert_eq!(after(seed).edge(&lease).await.unwrap(), Some("a".into()));
    }
    let deadline = values.renew(&lease, 5_000).await.unwrap();
    for seed in 0..4 {
        assert_eq!(after(seed).deadline(&lease).await.unwrap(), Some(deadline));
    }
    let keeper = Keeper::start(values.clone(), lease.clone(), 5_000).await.unwrap();
    keeper.release().await.unwrap();
    for seed in 0..4 {
        assert_eq!(after(seed).edge(&lease).await.unwrap(), None);
    }
    let mut builder = ListBuilder::new(values, root("building"), 60_000);
    for n in 0..500 {
        builder.push(format!("{n}").as_str(), "").await.unwrap();
    }
    builder.finish(&root("list")).await.unwrap();
    for seed in 0..4 {
        assert_eq!(List::open(&after(seed), &root("list")).await.unwrap().len(), 500);
    }
}
