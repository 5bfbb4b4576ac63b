//! Cases 6 and 14: leases end at their deadline on the store's clock, unless they are renewed.

use super::bed::{Bed, each_store, each_store_at_hand, puts, root};
use onceflow_store::{
    World,
    testing::world::START,
    values::{EdgeName, Error, Keeper, Update, limits},
};

const HOUR_MS: u64 = 3_600_000;

fn lease() -> EdgeName {
    root("lease")
}

/// Stores `a -> b`, held by a lease of ten seconds.
async fn leased(bed: &Bed) {
    bed.update(puts("b; a->b").lease(&lease(), "a", 10_000)).await;
    assert_eq!(bed.drain().await.next_deadline, Some(START.plus_ms(10_000)));
}

async fn is_lost(bed: &Bed) {
    match bed.values.renew(&lease(), 10_000).await {
        Err(Error::LeaseLost { edge }) => assert_eq!(edge, lease()),
        other => panic!("{}: {other:?}", bed.name),
    }
    bed.fsck().await;
}

#[tokio::test]
async fn a_lease_ends_at_its_deadline_and_not_before() {
    each_store(async |bed| {
        leased(bed).await;
        bed.world.advance(9_999);
        assert_eq!(bed.left().await, "a b");
        bed.world.advance(1);
        assert_eq!(bed.drain().await.expired, 1);
        is_lost(bed).await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_lease_set_twice_is_one_reference_and_its_end_frees() {
    each_store(async |bed| {
        leased(bed).await;
        bed.world.advance(5_000);
        bed.update(Update::new().lease(&lease(), "a", 10_000)).await;
        bed.world.advance(9_999);
        assert_eq!(bed.left().await, "a b");
        bed.world.advance(1);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_renewal_before_the_event_wins_even_after_the_deadline() {
    each_store(async |bed| {
        leased(bed).await;
        bed.world.advance(11_000);
        bed.values.renew(&lease(), 10_000).await.unwrap();
        bed.fsck().await;
        let done = bed.drain().await;
        assert_eq!((done.expired, done.next_deadline), (0, Some(START.plus_ms(21_000))));
        assert_eq!(bed.left().await, "a b");
    })
    .await;
}

#[tokio::test]
async fn a_renewal_never_shortens_a_lease() {
    each_store(async |bed| {
        leased(bed).await;
        assert_eq!(bed.values.renew(&lease(), 1).await.unwrap(), START.plus_ms(10_000));
        assert_eq!(bed.values.deadline(&lease()).await.unwrap(), Some(START.plus_ms(10_000)));
    })
    .await;
}

#[tokio::test]
async fn a_root_is_no_lease_and_a_lease_can_become_a_root() {
    each_store(async |bed| {
        leased(bed).await;
        bed.set("lease", "a").await;
        is_lost(bed).await;
        bed.world.advance(HOUR_MS);
        let done = bed.drain().await;
        assert_eq!((done.expired, done.next_deadline), (0, None));
        assert_eq!(bed.left().await, "a b");
    })
    .await;
}

#[tokio::test]
async fn a_clock_set_back_extends_nothing() {
    each_store(async |bed| {
        leased(bed).await;
        bed.world.advance(9_000);
        bed.drain().await;
        bed.world.set_clock(START);
        bed.values.renew(&lease(), 500).await.unwrap();
        assert_eq!(bed.values.deadline(&lease()).await.unwrap(), Some(START.plus_ms(10_000)));
        bed.world.set_clock(START.plus_ms(10_000));
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_sweeper_that_was_away_for_an_hour_gives_everyone_an_hour() {
    each_store(async |bed| {
        leased(bed).await;
        bed.world.advance(10_000 + HOUR_MS);
        let back = START.plus_ms(10_000 + HOUR_MS);
        let done = bed.drain().await;
        assert_eq!((done.expired, done.next_deadline), (0, Some(back.plus_ms(HOUR_MS))));
        bed.values.renew(&lease(), 2 * HOUR_MS).await.unwrap();
        bed.update(puts("c").lease(&root("other"), "c", 1_000)).await;
        bed.world.advance(HOUR_MS - 1);
        assert_eq!(bed.left().await, "a b c");
        bed.world.advance(1);
        assert_eq!(bed.left().await, "a b");
        bed.world.advance(HOUR_MS);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_sweeper_that_never_came_gives_grace_too() {
    each_store(async |bed| {
        bed.update(puts("a").lease(&lease(), "a", 10_000)).await;
        bed.world.advance(10_000 + HOUR_MS);
        assert_eq!(bed.drain().await.expired, 0);
        bed.world.advance(HOUR_MS);
        assert_eq!(bed.drain().await.expired, 1);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_little_late_is_not_away() {
    each_store(async |bed| {
        leased(bed).await;
        bed.world.advance(10_000 + limits::SWEEPER_LATE_MS_MAX);
        assert_eq!(bed.drain().await.expired, 1);
    })
    .await;
}

#[tokio::test]
async fn two_owners_of_one_value_are_independent() {
    each_store(async |bed| {
        bed.update(puts("a").lease(&root("one"), "a", 1_000).lease(&root("two"), "a", 2_000)).await;
        bed.drain().await;
        bed.world.advance(1_000);
        assert_eq!(bed.drain().await.expired, 1);
        assert_eq!(bed.left().await, "a");
        bed.values.renew(&root("two"), 5_000).await.unwrap();
        bed.world.advance(1_000);
        assert_eq!(bed.left().await, "a");
        bed.world.advance(4_000);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn leases_that_end_together_end_together() {
    each_store_at_hand(async |bed| {
        let many = (0..20).fold(puts("a; b"), |update, n| {
            update.lease(&root(&n.to_string()), if n % 2 == 0 { "a" } else { "b" }, 1_000)
        });
        bed.update(many).await;
        bed.world.advance(1_000);
        assert_eq!(bed.drain().await.expired, 20);
        bed.is_empty().await;
    })
    .await;
}

/// Lets every task run until all of them wait.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_keeper_renews_at_a_third_of_the_lease_and_stops_when_dropped() {
    each_store_at_hand(async |bed| {
        leased(bed).await;
        let keeper = Keeper::start(bed.values.clone(), lease(), 10_000).await.unwrap();
        settle().await;
        for _ in 0..10 {
            bed.world.advance(3_333);
            settle().await;
            // The keeper sleeps when its renewal is durable, which happens on another thread.
            while bed.world.sleeping() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(bed.left().await, "a b");
            keeper.check().unwrap();
        }
        drop(keeper);
        settle().await;
        assert_eq!(bed.world.sleeping(), 0);
        bed.world.advance(10_000);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_keeper_tells_that_its_lease_is_lost() {
    each_store_at_hand(async |bed| {
        leased(bed).await;
        let keeper = Keeper::start(bed.values.clone(), lease(), 10_000).await.unwrap();
        settle().await;
        bed.clear("lease").await;
        bed.world.advance(3_333);
        assert!(matches!(keeper.lost().await, Error::LeaseLost { .. }));
        assert!(keeper.check().is_err());
    })
    .await;
}

#[tokio::test]
async fn the_reclaim_loop_sleeps_until_a_lease_ends_or_someone_rings() {
    each_store_at_hand(async |bed| {
        let run = bed.values.clone().reclaim_forever();
        bed.world.spawn("reclaim", Box::pin(async { panic!("the reclaim loop ended: {}", run.await) }));
        settle().await;
        let idle = bed.records.position();
        assert_eq!(bed.world.sleeping(), 1);
        settle().await;
        assert_eq!(bed.records.position(), idle, "an idle loop writes nothing");

        // Rung by garbage.
        bed.values.update(puts("garbage")).await.unwrap();
        settle().await;
        assert_eq!(bed.stored().await, "");

        // Rung by an earlier deadline than any it knew.
        bed.values.update(puts("a").lease(&lease(), "a", 5_000)).await.unwrap();
        settle().await;
        bed.values.update(puts("b").lease(&root("b"), "b", 1_000)).await.unwrap();
        settle().await;
        bed.world.advance(1_000);
        settle().await;
        assert_eq!(bed.stored().await, "a");
        bed.world.advance(4_000);
        settle().await;
        assert_eq!(bed.values.rows().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_keeper_leaves_a_lease_alone_that_another_holder_took_under_its_name() {
    each_store_at_hand(async |bed| {
        for released in [false, true] {
            bed.update(puts("a").lease(&lease(), "a", 10_000)).await;
            let keeper = Keeper::start(bed.values.clone(), lease(), 10_000).await.unwrap();
            settle().await;
            bed.clear("lease").await;
            bed.update(puts("a").lease(&lease(), "a", 12_000)).await;
            let theirs = bed.values.deadline(&lease()).await.unwrap();
            let told = if released {
                keeper.release().await.unwrap_err()
            } else {
                bed.world.advance(3_333);
                keeper.lost().await
            };
            assert!(matches!(told, Error::LeaseLost { .. }), "{told}");
            assert_eq!(bed.values.deadline(&lease()).await.unwrap(), theirs);
            bed.clear("lease").await;
            bed.is_empty().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_released_lease_is_gone_at_once_and_not_lost() {
    each_store_at_hand(async |bed| {
        leased(bed).await;
        let keeper = Keeper::start(bed.values.clone(), lease(), 10_000).await.unwrap();
        settle().await;
        bed.world.advance(3_333);
        tokio::task::yield_now().await;
        keeper.check().unwrap();
        keeper.release().await.unwrap();
        settle().await;
        bed.is_empty().await;
        let none = Keeper::start(bed.values.clone(), lease(), 10_000).await.map(drop);
        assert!(matches!(none, Err(Error::LeaseLost { .. })));
    })
    .await;
}
