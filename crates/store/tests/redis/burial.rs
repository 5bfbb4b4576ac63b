//! Values that a server sweeps by itself: it does what a client would do, leaves to the client what is not plain, and is not led
//! astray by damage or by clocks that differ.

use onceflow_store::{
    Records,
    backend::{
        memory::Memory,
        redis::{Address, Redis},
    },
    core::{Batch, Group, Key, Row, Shard, Timestamp},
    records::{Scan, UNORDERED_GROUPS, get_one, walk},
    testing::redis::forgetful_url,
    values::{EdgeName, Error, Update, ValueId, Values, fsck::Mode},
    world::{BoxFuture, RealWorld, World},
};
use std::{collections::BTreeSet, sync::Arc};

const SHARD: Shard = Shard(0);

async fn redis(world: Arc<dyn World>) -> Arc<dyn Records> {
    Arc::new(Redis::connect(Address::parse(&forgetful_url()).unwrap(), world).await.unwrap())
}

fn values(records: &Arc<dyn Records>) -> Values {
    Values::new(records.clone(), RealWorld::here(), SHARD)
}

/// The world with a clock that is off.
struct Skewed(Arc<RealWorld>, i64);

impl World for Skewed {
    fn clock(&self) -> Timestamp {
        Timestamp::from_ms(self.0.clock().as_ms().saturating_add_signed(self.1))
    }

    fn random(&self) -> u128 {
        self.0.random()
    }

    fn sleep(&self, ms: u64) -> BoxFuture<'static, ()> {
        self.0.sleep(ms)
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.0.spawn(name, task);
    }

    fn dedicate(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.0.dedicate(name, task);
    }
}

/// A graph without cycles: leaves, and values that refer to many of those before them, some of them more than once.
fn graph(seed: u64, many: usize) -> Vec<(ValueId, Vec<ValueId>)> {
    let mut random = seed;
    let mut below = |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % bound.max(1)
    };
    let mut all: Vec<(ValueId, Vec<ValueId>)> = vec![];
    for n in 0..many {
        let refs = match below(8) {
            0 => below(120),
            1 | 2 => below(4),
            _ => 0,
        };
        let refs = if n == 0 { 0 } else { refs };
        // Ids of every length.
        let id = ValueId::new(format!("{n:0width$}", width = 4 + below(60)));
        let refs = (0..refs).map(|_| all[all.len() - 1 - below(all.len().min(300))].0.clone()).collect();
        all.push((id, refs));
    }
    all
}

#[tokio::test]
async fn a_server_sweeps_exactly_what_a_client_does() {
    for seed in 0..6 {
        let graph = graph(seed, 700);
        let roots: Vec<_> = graph.iter().rev().step_by(97).map(|(id, _)| id.clone()).collect();
        let stores = [redis(RealWorld::here()).await, Arc::new(Memory::new(RealWorld::here()))];
        assert!(stores[0].server().is_some() && stores[1].server().is_none());
        let stores = stores.each_ref().map(values);
        for values in &stores {
            for some in graph.chunks(20) {
                let put = |update: Update, (id, refs): &(ValueId, Vec<ValueId>)| {
                    update.put(id.clone(), refs.clone(), vec![7; id.as_bytes().len()])
                };
                values.update(some.iter().fold(Update::new(), put)).await.unwrap();
            }
            for (n, root) in roots.iter().enumerate() {
                values.update(Update::new().set(&EdgeName::root(n.to_string()), root.clone())).await.unwrap();
            }
        }
        // Garbage from birth first, then one root after the other.
        for n in 0..=roots.len() {
            let mut left = vec![];
            for values in &stores {
                let done = values.reclaim(usize::MAX).await.unwrap();
                let mut there = BTreeSet::new();
                for (id, refs) in &graph {
                    match values.get(id).await {
                        Ok(value) => {
                            assert_eq!(&value.refs, refs);
                            there.insert(id.clone());
                        }
                        Err(Error::Missing { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                let fsck = values.fsck(Mode::Check).await.unwrap();
                assert!(fsck.is_clean() && fsck.exact, "seed {seed}, root {n}: {fsck}");
                left.push((there, done.swept));
                values.update(Update::new().clear(&EdgeName::root(n.to_string()))).await.unwrap();
            }
            assert_eq!(left[0], left[1], "seed {seed}, root {n}");
        }
        assert_eq!(stores[0].rows().await.unwrap(), vec![]);
    }
}

/// Flips every bit of a value's references, one after the other: the server sees it and leaves the value, and the client says so.
#[tokio::test]
async fn a_flipped_bit_in_a_reference_is_seen_before_anything_is_swept() {
    let records = redis(RealWorld::here()).await;
    let values = values(&records);
    let (root, page) = (EdgeName::root("r"), Group::rows(UNORDERED_GROUPS[0]).key("page"));
    // The ids differ by one bit, so a flipped one is another's.
    let update = Update::new().leaf("a", "").leaf("b", "").leaf("c", "").put("page", ["b", "c"], "text");
    values.update(update.set(&root, "page").set(&EdgeName::root("keeps a"), "a")).await.unwrap();
    values.update(Update::new().clear(&root)).await.unwrap();
    let row = get_one(&*records, SHARD, page.clone()).await.unwrap().unwrap();
    let head = row.len() - "text".len();
    for bit in 0..head * 8 {
        let mut bytes = row.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        write(&*records, &page, Row::from(bytes)).await;
        assert!(matches!(values.reclaim(usize::MAX).await, Err(Error::Damaged { .. })), "bit {bit}");
        for id in ["a", "b", "c"] {
            values.get(&id.into()).await.unwrap();
        }
    }
    write(&*records, &page, row).await;
    assert_eq!(values.reclaim(usize::MAX).await.unwrap().swept, 3);
    assert!(values.fsck(Mode::Check).await.unwrap().is_clean());
}

async fn write(records: &dyn Records, key: &Key, row: Row) {
    let mut batch = Batch::new(SHARD);
    batch.put(key.clone(), row);
    assert!(records.commit(batch).await.unwrap().is_applied());
}

#[tokio::test]
async fn rows_in_no_order_are_all_walked_and_a_scan_of_them_is_in_order() {
    let records = redis(RealWorld::here()).await;
    let (heap, other) = (Group::rows(UNORDERED_GROUPS[1]), Group::rows("values.edges"));
    let names: BTreeSet<Vec<u8>> =
        (0..3000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()).collect();
    for some in names.iter().collect::<Vec<_>>().chunks(500) {
        let mut batch = Batch::new(SHARD);
        for name in some {
            batch.put(heap.key(name), Row::new(name)).put(other.key(name), Row::new("other"));
        }
        assert!(records.commit(batch).await.unwrap().is_applied());
    }
    let (mut walked, mut next) = (BTreeSet::new(), None);
    loop {
        let some = walk(&*records, SHARD, heap.clone(), next, 100).await.unwrap();
        walked.extend(some.rows.into_iter().map(|(name, row)| {
            assert_eq!(name.as_bytes(), &row[..]);
            name.as_bytes().to_vec()
        }));
        next = some.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(walked, names);
    let page = records.scan(SHARD, Scan::of(heap.clone(), 1000)).await.unwrap();
    let scanned: Vec<_> = page.rows.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
    assert!(page.more);
    assert_eq!(scanned, names.iter().take(1000).cloned().collect::<Vec<_>>());
    let mut batch = Batch::new(SHARD);
    batch.delete_group(heap.clone());
    assert!(records.commit(batch).await.unwrap().is_applied());
    assert!(records.scan(SHARD, Scan::of(heap, 1)).await.unwrap().rows.is_empty());
    assert_eq!(records.scan(SHARD, Scan::of(other, 4000)).await.unwrap().rows.len(), names.len());
}

/// One machine is ten minutes early and one ten minutes late: leases end by the server's clock, whichever machine
/// looks.
#[tokio::test]
async fn clocks_that_differ_by_minutes_do_no_harm() {
    const MINUTES: i64 = 10 * 60_000;
    let url = forgetful_url();
    let connect = async |skew| {
        let world = Arc::new(Skewed(RealWorld::here(), skew));
        let records: Arc<dyn Records> =
            Arc::new(Redis::connect(Address::parse(&url).unwrap(), world.clone()).await.unwrap());
        let values = Values::new(records.clone(), world, SHARD);
        (records, values)
    };
    let (early, late) = (connect(MINUTES).await, connect(-MINUTES).await);
    let (one, other) = (early.0.now().await.unwrap(), late.0.now().await.unwrap());
    assert!(one <= other && other.ms_since(one) < 60_000, "time is the server's: {one} and {other}");
    for (setter, looker) in [(&early.1, &late.1), (&late.1, &early.1)] {
        let lease = EdgeName::root("lease");
        setter.update(Update::new().leaf("held", "text").lease(&lease, "held", 60_000)).await.unwrap();
        // A process whose clock is early would end it now.
        for values in [setter, looker] {
            assert_eq!(values.reclaim(usize::MAX).await.unwrap().expired, 0);
        }
        let ends = looker.deadline(&lease).await.unwrap().unwrap();
        assert!(ends.ms_since(one) < 120_000, "a minute from now by the server's clock: {ends}");
        // A process whose clock is late would renew it into the past.
        looker.renew(&lease, 90_000).await.unwrap();
        assert!(looker.deadline(&lease).await.unwrap().unwrap() > ends);
        assert_eq!(setter.get(&"held".into()).await.unwrap().refs.len(), 0);
        setter.update(Update::new().clear(&lease)).await.unwrap();
        assert_eq!(looker.reclaim(usize::MAX).await.unwrap().swept, 1);
    }
    // A wait until soon ends soon, whatever the clock of the machine says.
    for (records, _) in [&early, &late] {
        let soon = records.now().await.unwrap().plus_ms(50);
        records.wait(SHARD, records.position(), soon).await.unwrap();
        assert!(records.now().await.unwrap() >= soon);
    }
    assert_eq!(early.1.rows().await.unwrap(), vec![]);
}
