//! Many at once: batches happen one after the other, and reads see the moments between them.

use super::Bed;
use crate::{
    records::{CommitResult, Scan},
    testing::batches::*,
};
use onceflow_core::{Op, row::counter};
use std::{collections::BTreeSet, sync::Arc};
use tokio::runtime::Handle;

const TASKS: u32 = 8;

/// Runs a task for each number, all at once, and collects their answers.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    bed: Bed,
    task: impl Fn(Arc<Bed>, u32) -> F,
) -> (Arc<Bed>, Vec<T>) {
    let bed = Arc::new(bed);
    let running: Vec<_> = (0..TASKS).map(|number| Handle::current().spawn(task(bed.clone(), number))).collect();
    let mut answers = Vec::new();
    for task in running {
        answers.push(task.await.expect("the task ends well"));
    }
    (bed, answers)
}

/// Many callers that count down one number get the exact sum, and exactly one of them is told that it is zero.
pub async fn concurrent_counter_updates_are_exact_and_fire_once(bed: Bed) {
    const EACH: i64 = 40;
    bed.run([put(key("n"), count(i64::from(TASKS) * EACH))]).await;
    let (bed, fired) = at_once(bed, async |bed, _| {
        let mut fired = 0;
        for _ in 0..EACH {
            let step = add(key("n"), -1, [add(key("zeros"), 1, [])]);
            fired += bed.run([step, add(key("sum"), 1, [])]).await.fired.len();
        }
        fired
    })
    .await;
    assert_eq!(fired.iter().sum::<usize>(), 1);
    assert_eq!(bed.get(key("n")).await, None);
    assert_eq!(bed.get(key("zeros")).await, Some(count(1)));
    assert_eq!(bed.get(key("sum")).await, Some(count(i64::from(TASKS) * EACH)));
}

/// Many callers add to one set: exactly one of them completes it, every time.
pub async fn concurrent_bitmap_updates_fire_once(bed: Bed) {
    let (bed, fired) = at_once(bed, async |bed, number| {
        let mut fired = 0;
        for round in 0..40 {
            let arrive = bit(key([round]), number, TASKS, [add(key("full"), 1, [])]);
            fired += bed.run([arrive]).await.fired.len();
        }
        fired
    })
    .await;
    assert_eq!(fired.iter().sum::<usize>(), 40);
    assert_eq!(bed.names(group()).await, "full");
    assert_eq!(bed.get(key("full")).await, Some(count(40)));
}

/// Many callers want the same permission: one has it, the others are told which.
pub async fn one_of_many_conditional_writers_wins(bed: Bed) {
    let (_, won) = at_once(bed, async |bed, number| {
        let mut won = 0;
        for round in 0..40u8 {
            let mut batch = batch([put(key([round]), row(number.to_be_bytes()))]);
            batch.require_absent(key([round]));
            match bed.commit(batch).await {
                CommitResult::Applied(_) => won += 1,
                CommitResult::Refused(refused) => assert_ne!(refused.found, None),
            }
        }
        won
    })
    .await;
    assert_eq!(won.iter().sum::<usize>(), 40);
}

/// Many callers claim: every row is taken once, by one of them.
pub async fn concurrent_claims_take_each_row_once(bed: Bed) {
    bed.run((0..200u8).map(|n| ready([n]))).await;
    let (_, taken) = at_once(bed, async |bed, _| bed.take_until_none().await).await;
    let taken: Vec<_> = taken.into_iter().flatten().collect();
    assert_eq!((taken.len(), taken.iter().collect::<BTreeSet<_>>().len()), (200, 200));
}

/// Positions of different batches differ, whichever caller commits them.
pub async fn concurrent_batches_have_distinct_positions(bed: Bed) {
    let (_, positions) = at_once(bed, async |bed, _| {
        let mut positions = Vec::new();
        for _ in 0..40 {
            positions.push(bed.run([add(key("n"), 1, [])]).await.position);
        }
        assert!(positions.is_sorted(), "{positions:?}");
        positions
    })
    .await;
    let positions: Vec<_> = positions.into_iter().flatten().collect();
    assert_eq!(positions.iter().collect::<BTreeSet<_>>().len(), positions.len());
}

fn both(n: i64) -> [Op; 2] {
    [put(key("a"), count(n)), put(key("z"), count(n))]
}

fn read(found: &[u8]) -> i64 {
    counter::read(found).expect("a counter")
}

/// A `get` of several rows never sees half a batch, nor does a `scan`, nor do they go back in time.
pub async fn concurrent_reads_never_see_half_a_batch(bed: Bed) {
    bed.run(both(0)).await;
    at_once(bed, async |bed, number| {
        let mut last = 0;
        for n in 1..200 {
            if number == 0 {
                bed.run(both(n)).await;
                continue;
            }
            tokio::task::yield_now().await;
            let keys = [key("a"), key("z"), key("a")];
            let rows = bed.records.get(SHARD, &keys).await.expect("the store answers");
            let seen: Vec<_> = rows.into_iter().map(|row| read(&row.expect("it is there"))).collect();
            let page = bed.records.scan(SHARD, Scan::of(group(), 10)).await.expect("the store answers");
            let then: Vec<_> = page.rows.iter().map(|(_, row)| read(row)).collect();
            assert!(seen.iter().all(|n| *n == seen[0]) && seen[0] >= last, "{seen:?} after {last}");
            assert!(then[0] == then[1] && then[0] >= seen[0], "{then:?} after {seen:?}");
            last = then[0];
        }
    })
    .await;
}
