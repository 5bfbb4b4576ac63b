//! Gathered lists: elements are owned by a prefix from birth, so gathering costs nothing, and paged lists.

use crate::bed::{SHARD, each_store, puts, refused, root, stores};
use onceflow_store::{
    testing::{
        fault::{Fault, Faulty, Plan},
        world::TestWorld,
    },
    values::{
        EdgeName, Update, Values,
        list::{List, ListBuilder},
    },
};
use std::sync::Arc;

fn element(index: u64) -> EdgeName {
    EdgeName::element("list", index)
}

/// Values `v0`, `v1`, … as elements of `list`.
fn elements(n: u64) -> Update {
    (0..n).fold(Update::new(), |update, index| {
        let id = format!("v{index}");
        update.leaf(id.as_str(), "").set(&element(index), id.as_str())
    })
}

#[tokio::test]
async fn a_gathered_list_owns_its_elements_and_takes_them_along() {
    each_store(async |bed| {
        bed.update(elements(20)).await;
        bed.update(Update::new().gather("L", "list", 20, [0; 32]).set(&root("R"), "L")).await;
        bed.set("S", "v3").await;
        assert_eq!(bed.drain().await.buried, 0);
        assert_eq!(bed.values.elements("list", 18, 9).await.unwrap(), [(18, "v18".into()), (19, "v19".into())]);
        bed.clear("R").await;
        assert_eq!(bed.left().await, "v3");
        assert_eq!(bed.values.elements("list", 0, 9).await.unwrap(), []);
        bed.clear("S").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn elements_of_a_gathered_list_can_no_longer_be_changed() {
    each_store(async |bed| {
        bed.update(elements(2).gather("L", "list", 2, [0; 32]).set(&root("R"), "L")).await;
        for change in [
            puts("back->L").set(&element(1), "back"),
            Update::new().set(&element(7), "v0"),
            Update::new().clear(&element(0)),
            Update::new().gather("M", "list", 2, [0; 32]),
        ] {
            refused(bed, change, "the elements under list are sealed").await;
        }
        bed.update(Update::new().set(&element(0), "v0")).await;
        bed.update(Update::new().gather("L", "list", 2, [0; 32])).await;
    })
    .await;
}

#[tokio::test]
async fn no_element_can_be_made_to_lead_back_to_its_list() {
    each_store(async |bed| {
        let gather = || Update::new().gather("L", "list", 1, [0; 32]);
        refused(bed, gather().put("back", ["L"], "").set(&element(0), "back"), "sealed").await;
        refused(bed, gather().set(&element(0), "L"), "sealed").await;
    })
    .await;
}

#[tokio::test]
async fn a_prefix_can_be_gathered_again_when_its_old_life_is_over() {
    each_store(async |bed| {
        for _ in 0..2 {
            bed.update(elements(9).gather("L", "list", 9, [0; 32]).set(&root("R"), "L")).await;
            bed.clear("R").await;
            while bed.stored().await.contains('L') {
                bed.step().await;
            }
            if !bed.values.elements("list", 0, 1).await.unwrap().is_empty() {
                refused(bed, Update::new().gather("L", "list", 9, [0; 32]), "sealed").await;
            }
            bed.is_empty().await;
        }
    })
    .await;
}

#[tokio::test]
async fn elements_that_are_never_gathered_are_released_on_request() {
    each_store(async |bed| {
        bed.update(elements(9)).await;
        bed.values.release("list").await.unwrap();
        bed.fsck().await;
        bed.values.release("list").await.unwrap();
        refused(bed, Update::new().clear(&element(0)), "sealed").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn lists_of_lists_go_as_a_whole() {
    each_store(async |bed| {
        bed.update(elements(9).gather("L", "list", 9, [0; 32])).await;
        bed.update(Update::new().set(&EdgeName::element("outer", 0), "L").set(&EdgeName::element("outer", 1), "v4"))
            .await;
        bed.update(Update::new().gather("O", "outer", 2, [0; 32]).set(&root("R"), "O")).await;
        assert_eq!(bed.drain().await.buried, 0);
        bed.clear("R").await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_paged_list_is_read_back_in_order_and_goes_with_its_root() {
    each_store(async |bed| {
        for n in [0, 1, 400, 401, 3000] {
            let mut builder = ListBuilder::new(bed.values.clone(), root("building"), 60_000);
            for index in 0..n {
                builder.push(format!("e{index}").as_str(), "").await.unwrap();
                if index % 399 == 0 && bed.budget > 2 {
                    bed.drain().await;
                }
            }
            builder.finish(&root("R")).await.unwrap();
            bed.fsck().await;
            let list = List::open(&bed.values, &root("R")).await.unwrap();
            assert_eq!(list.len(), n);
            let mut found = list.elements(&bed.values);
            for index in 0..n {
                assert_eq!(found.next().await.unwrap(), Some(format!("e{index}").as_str().into()));
            }
            assert_eq!(found.next().await.unwrap(), None);
            bed.clear("R").await;
            if bed.budget > 2 {
                bed.is_empty().await;
            } else {
                bed.values.reclaim(usize::MAX).await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_list_that_was_never_finished_goes_when_its_lease_runs_out() {
    each_store(async |bed| {
        let mut builder = ListBuilder::new(bed.values.clone(), root("building"), 60_000);
        for index in 0..900 {
            builder.push(format!("e{index}").as_str(), "").await.unwrap();
        }
        drop(builder);
        bed.values.reclaim(usize::MAX).await.unwrap();
        assert!(bed.stored().await.contains("e799"));
        bed.world.advance(60_000);
        bed.values.reclaim(usize::MAX).await.unwrap();
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn a_push_that_failed_loses_no_page() {
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        for n in 1..12 {
            let faulty = Faulty::new(records.clone(), Plan::at(n, Fault::FailOnce));
            let values = Arc::new(Values::new(faulty, world.clone(), SHARD));
            let mut builder = ListBuilder::new(values.clone(), root("building"), 60_000);
            for index in 0..2100 {
                let id = format!("e{index}");
                if builder.push(id.as_str(), "").await.is_err() {
                    builder.push(id.as_str(), "").await.unwrap();
                }
            }
            builder.finish(&root("R")).await.unwrap();
            let list = List::open(&values, &root("R")).await.unwrap();
            let mut found = list.elements(&values);
            for index in 0..2100 {
                assert_eq!(found.next().await.unwrap(), Some(format!("e{index}").as_str().into()), "call {n}");
            }
        }
    }
}
