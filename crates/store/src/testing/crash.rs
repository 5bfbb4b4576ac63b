//! Power cuts, killed processes and failing disks at every operation, for every backend that writes to [`Files`]. A backend
//! is one line:
//!
//! ```ignore
//! records_crash_suite!(mine, |disk, world| Ok(Arc::new(Mine::open(Arc::new(disk), world)?)));
//! ```
//!
//! After every crash the store holds the rows after some batch, and none before the last acknowledged one; and it goes on.
//!
//! [`Files`]: crate::backend::journal::files::Files

use super::{
    disk::{Disk, Trouble},
    random::Random,
    world::{OneThread, TestWorld},
};
use crate::{
    World,
    records::{Error, Records, Scan, commit_durably},
};
use onceflow_core::{Batch, Group, Inbox, Key, Name, Row, Shard};
use std::{collections::BTreeMap, fmt::Display, sync::Arc};

/// Opens the store on a disk.
pub type OpenOnDisk<'a> = &'a dyn Fn(Disk, Arc<dyn World>) -> Result<Arc<dyn Records>, Box<dyn Display>>;

/// Batches of one scenario.
const BATCHES: usize = 14;

/// All rows that outlive a crash.
type Rows = BTreeMap<(Shard, Key), Row>;

fn open(make: OpenOnDisk<'_>, disk: &Disk) -> Result<Arc<dyn Records>, Box<dyn Display>> {
    make(disk.clone(), Arc::new(OneThread(TestWorld::new(7))))
}

fn groups() -> [Group; 6] {
    let named = ["permits", "g", "n", "bits"].map(Group::rows);
    let [permits, plain, numbers, bits] = named;
    [permits, plain, numbers, bits, Group::rows("goes"), Group::queue("q")]
}

async fn rows(records: &dyn Records) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    for shard in [Shard(0), Shard(1)] {
        for group in groups() {
            let page = records.scan(shard, Scan::of(group.clone(), 4096)).await?;
            rows.extend(page.rows.into_iter().map(|(name, row)| ((shard, group.key(name)), row)));
        }
    }
    Ok(rows)
}

/// A batch with every kind of effect in it, that uses up a permission of its own.
fn random_batch(random: &mut Random, count: usize) -> Batch {
    let [permits, plain, numbers, bits, goes, queue] = groups();
    let name = |random: &mut Random| Name::new(format!("row-{}", random.below(6)));
    let permit = permits.key(count.to_string());
    let mut batch = Batch::new(Shard(random.below(2) as u16));
    batch.require_absent(permit.clone()).put(permit, Row::new("used"));
    for _ in 0..random.below(5) {
        match random.below(6) {
            0 => batch.put(plain.key(name(random)), Row::from(vec![count as u8; random.below(120)])),
            1 => batch.delete(plain.key(name(random))),
            2 => batch.add(numbers.key(name(random)), 1 - random.below(3) as i64, vec![]),
            3 => batch.set_bit(bits.key(name(random)), random.below(3) as u32, 3, vec![]),
            4 => batch.delete_group(goes.clone()),
            _ => {
                let inbox = Inbox { group: plain.clone(), prefix: Name::new("row"), note: vec![count as u8] };
                batch.put(queue.key(name(random)), inbox.to_row())
            }
        };
    }
    batch.put(goes.key(name(random)), Row::new("member"));
    batch
}

/// The answers a caller has got.
struct Told {
    /// All rows after each batch that was applied; the first entry is the beginning.
    after: Vec<Rows>,
    acknowledged: usize,
}

async fn work(records: &dyn Records) -> Told {
    let mut told = Told { after: vec![Rows::new()], acknowledged: 0 };
    let mut random = Random::new(3);
    for count in 0..BATCHES {
        let Ok(outcome) = records.commit(random_batch(&mut random, count)).await else { return told };
        let Ok(now) = rows(records).await else { return told };
        told.after.push(now);
        // Not everyone waits: the disk has its turns while more is applied than it has.
        if count % 3 != 2 {
            tokio::task::yield_now().await;
            continue;
        }
        if records.durable(outcome.position()).await.is_err() {
            return told;
        }
        told.acknowledged = told.after.len() - 1;
    }
    told
}

async fn check_left(make: OpenOnDisk<'_>, disk: &Disk, told: &Told, what: &str) {
    let records = open(make, disk).unwrap_or_else(|error| panic!("{what}: what is left does not open: {error}"));
    let found = rows(&*records).await.expect("a reopened store answers");
    let possible = &told.after[told.acknowledged..];
    assert!(
        possible.contains(&found),
        "{what}: the rows are of no moment after the last acknowledged batch: {found:?}"
    );
    let mut batch = Batch::new(Shard(0));
    batch.put(Group::rows("g").key("afterwards"), Row::new("1"));
    let outcome = commit_durably(&*records, batch).await.expect("a reopened store takes batches");
    assert!(outcome.is_applied());
    let expected = rows(&*records).await.expect("a reopened store answers");
    let cut = disk.after_power_cut(99);
    let again = open(make, &cut).unwrap_or_else(|error| panic!("{what}: it does not open once more: {error}"));
    let found = rows(&*again).await.expect("a reopened store answers");
    assert_eq!(found, expected, "{what}: a power cut after the opening took something");
}

/// Runs to the n-th operation for every n; there the trouble is. Then checks what a kill and some power cuts leave.
///
/// # Panics
/// If anything acknowledged is lost, or anything is there that never was.
pub async fn at_every_operation(make: OpenOnDisk<'_>, trouble: Trouble) {
    let cuts = if std::env::var_os("ONCEFLOW_LONG").is_some() { 32 } else { 2 };
    for n in 1.. {
        let disk = Disk::new();
        disk.trouble_at(n, trouble);
        let told = match open(make, &disk) {
            Ok(records) => work(&*records).await,
            Err(_) => Told { after: vec![Rows::new()], acknowledged: 0 },
        };
        let cuts = (0..cuts).map(|seed| disk.after_power_cut(seed));
        for (which, left) in cuts.chain([disk.after_kill()]).enumerate() {
            check_left(make, &left, &told, &format!("{trouble:?} at operation {n}, remains {which}")).await;
        }
        if !disk.is_in_trouble() {
            assert!(n as usize > BATCHES / 3, "too few operations to have been real");
            assert_eq!(told.after.len(), BATCHES + 1, "a disk without trouble takes all batches");
            return;
        }
    }
}

/// [`at_every_operation`], on a runtime of its own.
pub fn survives(make: OpenOnDisk<'_>, trouble: Trouble) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("the system gives a runtime").block_on(at_every_operation(make, trouble));
}

/// Makes a module with a `#[test]` for each trouble of a disk: see [`crash`](crate::testing::crash).
#[macro_export]
macro_rules! records_crash_suite {
    ($name:ident, $open:expr) => {
        mod $name {
            use super::*;
            use std::io::ErrorKind;
            use $crate::testing::disk::Trouble;

            #[test]
            fn nothing_acknowledged_is_lost_when_the_machine_stops_at_any_operation() {
                $crate::testing::crash::survives(&$open, Trouble::Stop);
            }

            #[test]
            fn nothing_acknowledged_is_lost_when_any_operation_fails() {
                $crate::testing::crash::survives(&$open, Trouble::Fail(ErrorKind::Other));
            }

            #[test]
            fn nothing_acknowledged_is_lost_when_the_disk_is_full_at_any_operation() {
                $crate::testing::crash::survives(&$open, Trouble::Fail(ErrorKind::StorageFull));
            }
        }
    };
}
