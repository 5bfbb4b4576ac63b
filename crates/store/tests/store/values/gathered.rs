//! Gathered lists: elements are owned by a prefix from birth, so gathering costs nothing, and paged lists.

use super::{
    bed::{Bed, SHARD, each_store, puts, refused, root, stores},
    changes, crash,
};
use onceflow_store::{
    Records,
    core::{Digest, Name, Row},
    records,
    testing::{
        fault::{self, Fault, FaultPlan, Faulty},
        world::TestWorld,
    },
    values::{
        EdgeName, Element, Error, Update, ValueChange, Values,
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
        bed.update(Update::new().gather("L", "list", 20, Digest::default()).set(&root("R"), "L")).await;
        bed.set("S", "v3").await;
        assert_eq!(bed.drain().await.swept, 0);
        let to = |id: &str| Element::Ref(id.into());
        assert_eq!(bed.values.elements("list", 18, 9).await.unwrap(), [(18, to("v18")), (19, to("v19"))]);
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
        bed.update(elements(2).gather("L", "list", 2, Digest::default()).set(&root("R"), "L")).await;
        for change in [
            puts("back->L").set(&element(1), "back"),
            Update::new().set(&element(7), "v0"),
            Update::new().clear(&element(0)),
            Update::new().gather("M", "list", 2, Digest::default()),
        ] {
            refused(bed, change, "the elements under list are sealed").await;
        }
        bed.update(Update::new().set(&element(0), "v0")).await;
        bed.update(Update::new().gather("L", "list", 2, Digest::default())).await;
    })
    .await;
}

#[tokio::test]
async fn no_element_can_be_made_to_lead_back_to_its_list() {
    each_store(async |bed| {
        let gather = || Update::new().gather("L", "list", 1, Digest::default());
        refused(bed, gather().put("back", ["L"], "").set(&element(0), "back"), "sealed").await;
        refused(bed, gather().set(&element(0), "L"), "sealed").await;
    })
    .await;
}

#[tokio::test]
async fn a_prefix_can_be_gathered_again_when_its_old_life_is_over() {
    each_store(async |bed| {
        for _ in 0..2 {
            bed.update(elements(9).gather("L", "list", 9, Digest::default()).set(&root("R"), "L")).await;
            bed.clear("R").await;
            while bed.stored().await.contains('L') {
                bed.step().await;
            }
            if !bed.values.elements("list", 0, 1).await.unwrap().is_empty() {
                refused(bed, Update::new().gather("L", "list", 9, Digest::default()), "sealed").await;
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

/// One step, woven.
async fn step(values: &Values, records: &dyn Records, changes: &[ValueChange]) -> Result<(), Error> {
    let mut batch = changes::step();
    batch.ops.extend(values.blind_ops(changes));
    assert!(records.commit(batch).await?.is_applied());
    Ok(())
}

async fn steps(bed: &Bed, changes: &[ValueChange]) {
    step(&bed.values, &*bed.records, changes).await.unwrap();
    bed.fsck().await;
}

/// Nine elements, those with an odd index inline.
const MIXED: [&str; 9] = ["v0", "=1", "v0", "=", "v1", "=5", "v2", "=7", "v0"];

#[tokio::test]
async fn elements_may_hold_their_bytes_and_go_with_the_list() {
    each_store(async |bed| {
        steps(
            bed,
            &[changes::put("v0", &[]), changes::put("v1", &[]), changes::put("v2", &[]), changes::set("V", "v1")],
        )
        .await;
        steps(bed, &changes::elements(0, &MIXED[..2])).await;
        steps(bed, &changes::elements(2, &MIXED[2..])).await;
        steps(bed, &[changes::gather("L", 9), changes::set("R", "L")]).await;
        assert_eq!(bed.drain().await.swept, 0);
        let found = bed.values.elements("list", 1, 3).await.unwrap();
        let inline = |text| Element::Inline(Row::new(text));
        assert_eq!(found, [(1, inline("1")), (2, Element::Ref("v0".into())), (3, inline(""))]);
        refused(bed, Update::new().clear(&element(1)), "holds bytes, and is no edge").await;
        assert!(matches!(bed.values.edge(&element(1)).await, Err(Error::Senseless(_))));
        steps(bed, &[changes::clear("R", "L")]).await;
        assert_eq!(bed.left().await, "v1");
        steps(bed, &[changes::clear("V", "v1")]).await;
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn inline_elements_are_one_row_each_without_a_count() {
    each_store(async |bed| {
        let mut batch = changes::step();
        batch.ops.extend(bed.values.blind_ops(&changes::elements(0, &["=a"; 900])));
        assert_eq!(batch.ops.len(), 1 + 900);
        assert!(bed.records.commit(batch).await.unwrap().is_applied());
        assert_eq!(bed.values.rows().await.unwrap(), [("values.edges".to_owned(), 900)]);
        let release = ValueChange::Release { prefix: Name::new("list") };
        steps(bed, &[release]).await;
        // With a small budget that takes a while, and each step is looked at: enough of them.
        for _ in 0..20 {
            bed.step().await;
        }
        assert_eq!(bed.values.reclaim(usize::MAX).await.unwrap().paid, 0);
        bed.is_empty().await;
    })
    .await;
}

#[tokio::test]
async fn an_empty_list_is_gathered_too() {
    each_store(async |bed| {
        steps(bed, &[changes::gather("L", 0), changes::set("R", "L")]).await;
        assert_eq!(bed.left().await, "L");
        steps(bed, &[changes::clear("R", "L")]).await;
        bed.is_empty().await;
    })
    .await;
}

/// The life of a list whose elements come from many steps.
async fn life(values: &Values, records: &dyn Records, budget: usize) -> Result<(), Error> {
    for (index, element) in (0..).zip(MIXED) {
        let mut changes = changes::elements(index, &[element]);
        if let Some(id) = Some(element).filter(|id| !id.starts_with('=')) {
            // Values without a holder would be gone.
            let id = format!("{id}:{index}");
            changes = [vec![changes::put(&id, &[])], changes::elements(index, &[&id])].concat();
        }
        step(values, records, &changes).await?;
    }
    step(values, records, &[changes::gather("L", 9), changes::set("list", "L")]).await?;
    while values.reclaim(budget).await?.more {}
    step(values, records, &[changes::clear("list", "L")]).await?;
    while values.reclaim(budget).await?.more {}
    Ok(())
}

#[tokio::test]
async fn a_crash_at_any_call_leaves_no_element_behind() {
    for budget in [1, 4, usize::MAX] {
        fault::for_every_fault(async |plan| {
            let world = TestWorld::new(1);
            for (store, records) in stores(&world) {
                let at = format!("{store}, budget {budget}");
                let faulty = Faulty::new(records.clone(), plan.clone());
                let dying = Values::new(faulty.clone(), world.clone(), SHARD);
                match life(&dying, &*faulty, budget).await {
                    Ok(()) | Err(Error::Records(records::Error::Unavailable(_) | records::Error::Unknown(_))) => {}
                    Err(error) => panic!("{at}: {error}"),
                }
                let reopened = Values::new(records, world.clone(), SHARD);
                crash::is_clean(&reopened, &at).await;
                crash::finish(&reopened, &world, budget).await.unwrap();
                crash::is_clean(&reopened, &at).await;
                assert_eq!(reopened.rows().await.unwrap(), [], "{at}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn lists_of_lists_go_as_a_whole() {
    each_store(async |bed| {
        bed.update(elements(9).gather("L", "list", 9, Digest::default())).await;
        bed.update(Update::new().set(&EdgeName::element("outer", 0), "L").set(&EdgeName::element("outer", 1), "v4"))
            .await;
        bed.update(Update::new().gather("O", "outer", 2, Digest::default()).set(&root("R"), "O")).await;
        assert_eq!(bed.drain().await.swept, 0);
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
            let faulty = Faulty::new(records.clone(), FaultPlan::at(n, Fault::FailOnce));
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
