//! Values put ahead of a batch: held until the batch comes, reclaimed when it does not.

use super::{
    bed::{Bed, each_store_at_hand},
    changes::{put, set, step},
};
use onceflow_store::{
    CommitResult,
    values::{Error, Hold, Update, ValueChange, limits::HOLD_MS},
};

/// So many values, and one above every hundred of them.
fn many(n: usize) -> (Vec<ValueChange>, Vec<String>) {
    let names: Vec<_> = (0..n).map(|n| format!("v{n}")).collect();
    let mut changes: Vec<_> = names.iter().map(|name| put(name, &[])).collect();
    let mut tops = Vec::new();
    for (at, names) in names.chunks(100).enumerate() {
        tops.push(format!("top{at}"));
        changes.push(put(&tops[at], &names.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    (changes, tops)
}

async fn ahead(bed: &Bed, n: usize) -> (Hold, Vec<String>) {
    let (mut hold, (mut changes, tops)) = (bed.values.hold(), many(n));
    assert!(hold.release().is_none(), "nothing is held yet");
    hold.put_ahead(&bed.values, &mut changes).await.unwrap();
    bed.fsck().await;
    (hold, tops)
}

/// The batch that the values were put ahead of: refers to the first, and releases the hold.
async fn come(bed: &Bed, hold: &Hold, tops: &[String]) -> Result<CommitResult, Error> {
    let mut batch = step();
    let mut changes = vec![put("whole", &tops.iter().map(String::as_str).collect::<Vec<_>>()), set("r", "whole")];
    changes.extend(hold.release());
    bed.values.add_changes(&mut batch, &changes).await?;
    let outcome = bed.records.commit(batch).await.unwrap();
    bed.fsck().await;
    Ok(outcome)
}

#[tokio::test]
async fn values_put_ahead_last_for_their_batch_and_go_with_their_last_edge() {
    each_store_at_hand(async |bed: &Bed| {
        for n in [1, 2, 210] {
            let (hold, tops) = ahead(bed, n).await;
            bed.drain().await;
            assert!(come(bed, &hold, &tops).await.unwrap().is_applied(), "{}", bed.name);
            bed.drain().await;
            let last = format!("v{}", n - 1);
            assert!(bed.values.get(&last.as_str().into()).await.is_ok(), "{}: it is referred to", bed.name);
            bed.clear("r").await;
            bed.drain().await;
            for gone in [last.as_str(), "whole", "top0"] {
                assert!(matches!(bed.values.get(&gone.into()).await, Err(Error::Missing { .. })), "{}", bed.name);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn values_put_ahead_of_a_missing_batch_expire_and_a_late_batch_is_refused() {
    each_store_at_hand(async |bed: &Bed| {
        let (hold, tops) = ahead(bed, 150).await;
        // The sweeper may have been away, and forgives by as much.
        for _ in 0..4 {
            bed.world.advance(HOLD_MS);
            bed.drain().await;
        }
        assert!(matches!(bed.values.get(&"v0".into()).await, Err(Error::Missing { .. })), "{}", bed.name);
        assert!(matches!(come(bed, &hold, &tops).await, Err(Error::LeaseLost { .. })), "{}", bed.name);
    })
    .await;
}

#[tokio::test]
async fn a_batch_that_needs_what_is_there_is_refused_when_that_has_gone() {
    each_store_at_hand(async |bed: &Bed| {
        bed.update(Update::new().leaf("x", "text").set(&super::bed::root("a"), "x")).await;
        let changes = [ValueChange::RequireValue { id: "x".into() }, set("b", "x")];
        let (mut early, mut late) = (step(), step());
        bed.values.add_changes(&mut early, &changes).await.unwrap();
        bed.values
            .add_changes(&mut late, &[ValueChange::RequireValue { id: "x".into() }, set("c", "x")])
            .await
            .unwrap();
        assert!(bed.records.commit(early).await.unwrap().is_applied());
        bed.clear("a").await;
        bed.clear("b").await;
        bed.drain().await;
        assert!(!bed.records.commit(late).await.unwrap().is_applied(), "{}", bed.name);
        bed.fsck().await;
        let again = bed.values.add_changes(&mut step(), &changes).await;
        assert!(matches!(again, Err(Error::Missing { .. })), "{}", bed.name);
    })
    .await;
}
