//! A queue's row is free while no claim of the same name stands.

use super::{Bed, bed::name_of};
use crate::testing::batches::*;
use onceflow_core::{Group, Pick};

/// A claimed row is not claimed again; when none is free, a claim finds nothing and its batch happens all the same.
pub async fn a_row_is_claimed_once_and_an_empty_claim_is_not_refused(bed: Bed) {
    bed.run([ready("a"), ready("b")]).await;
    assert_eq!(bed.take_all().await, "a b");
    let mut batch = bed.once([put(key("done"), row(""))]);
    batch.claim(bed.claim(Pick::EnabledFirst));
    assert_eq!(bed.apply(batch).await.claimed, None);
    assert_eq!(bed.get(key("done")).await, Some(row("")));
    let mut nowhere = bed.claim(Pick::InTurn);
    nowhere.queues.clear();
    assert_eq!(bed.take_by(nowhere).await, None);
}

/// Giving back, and taking over, is deleting the claim.
pub async fn deleting_a_claim_frees_its_row(bed: Bed) {
    bed.run([ready("a"), ready("b")]).await;
    assert_eq!(bed.take_all().await, "a b");
    bed.run([delete(queue().claims().key("a"))]).await;
    assert_eq!(bed.take_all().await, "a");
    bed.run([delete_group(queue().claims())]).await;
    assert_eq!(bed.take_all().await, "a b", "no lane waited, so the first begins");
}

/// Done is: row, claim and deadline gone, in one batch.
pub async fn a_finished_row_is_never_claimed_again(bed: Bed) {
    bed.run([ready("a")]).await;
    let claimed = bed.take(Pick::InTurn).await.expect("it is free");
    let [row_of, claim, deadline] =
        [queue(), queue().claims(), queue().deadlines()].map(|group| group.key(&claimed.name));
    bed.run([delete(row_of), delete(claim), delete(deadline)]).await;
    assert_eq!(bed.take_all().await, "");
    assert_eq!(bed.names(queue().deadlines()).await, "");
    bed.run([ready("a")]).await;
    assert_eq!(bed.take_all().await, "a");
}

/// A row put again under a standing claim is claimed; without its claim it is free, whichever went first.
pub async fn a_claim_outlives_its_row_and_holds_a_new_one(bed: Bed) {
    bed.run([ready("a")]).await;
    bed.take(Pick::InTurn).await.expect("it is free");
    bed.run([ready("a")]).await;
    assert_eq!(bed.take_all().await, "", "put again while claimed");
    bed.run([delete(queue().key("a"))]).await;
    bed.run([ready("a")]).await;
    assert_eq!(bed.take_all().await, "", "deleted and put again while claimed");
    bed.run([delete_group(queue()), delete(queue().claims().key("a"))]).await;
    assert_eq!(bed.take_all().await, "", "there is no row");
    bed.run([ready("a")]).await;
    assert_eq!(bed.take_all().await, "a");
}

/// A claim that anyone puts by hand holds its row just the same, also before the row is there.
pub async fn a_claim_written_as_a_row_holds_its_row(bed: Bed) {
    bed.run([put(queue().claims().key("a"), row("mine")), ready("a"), ready("b")]).await;
    assert_eq!(bed.take_all().await, "b");
    assert_eq!(bed.get(queue().claims().key("a")).await, Some(row("mine")));
}

/// A queue that is deleted has no free rows; its claims stand until they are deleted too.
pub async fn deleting_a_queue_deletes_its_free_rows_and_keeps_its_claims(bed: Bed) {
    bed.run([ready("a"), ready("b")]).await;
    bed.take(Pick::InTurn).await.expect("it is free");
    bed.run([delete_group(queue())]).await;
    assert_eq!(bed.take_all().await, "");
    assert_eq!(bed.names(queue().claims()).await, "a");
    bed.run([delete_group(queue()), ready("c")]).await;
    assert_eq!(bed.take_all().await, "c", "what is put after the group went is there");
}

/// Work can be taken away by the batch that would have claimed it.
pub async fn a_claim_sees_the_writes_of_its_own_batch(bed: Bed) {
    bed.run([ready("a")]).await;
    let mut batch = bed.once([delete(queue().key("a")), ready("b"), delete(queue().key("b"))]);
    batch.claim(bed.claim(Pick::EnabledFirst));
    assert_eq!(bed.apply(batch).await.claimed, None);
    let mut batch = bed.once([ready("c"), put(queue().claims().key("c"), row("held"))]);
    batch.claim(bed.claim(Pick::EnabledFirst));
    assert_eq!(bed.apply(batch).await.claimed, None);
}

/// An earlier queue is emptied before a later one is asked, and others are not asked at all.
pub async fn queues_are_tried_in_the_order_given(bed: Bed) {
    let [high, low, other] = ["z", "a", "m"].map(Group::queue);
    let work = [(&low, "1"), (&high, "2"), (&high, "1"), (&other, "1")];
    bed.run(work.map(|(queue, name)| put(queue.key(name), inbox("")))).await;
    let mut taken = Vec::new();
    for _ in 0..4 {
        let mut claim = bed.claim(Pick::InTurn);
        claim.queues = vec![high.clone(), low.clone()];
        taken.push(bed.take_by(claim).await.map(|claimed| (claimed.queue.clone(), name_of(&claimed))));
    }
    let expected = [(&high, "1"), (&high, "2"), (&low, "1")].map(|(queue, name)| Some((queue.clone(), name.into())));
    assert_eq!(taken[..3], expected);
    assert_eq!(taken[3], None);
    let mut claim = bed.claim(Pick::InTurn);
    claim.queues = vec![other.clone()];
    assert_eq!(bed.take_by(claim).await.expect("it was not asked before").queue, other);
}
