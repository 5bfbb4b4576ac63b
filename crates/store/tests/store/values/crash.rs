//! Case 15: the process stops before and after every call of a whole life; a new one finds everything in order,
//! finishes, and leaves nothing.

use super::bed::{SHARD, puts, root, stores, target};
use onceflow_store::{
    records,
    testing::{
        fault::{self, Faulty},
        world::TestWorld,
    },
    values::{EdgeName, Error, Update, Values, fsck::Mode},
};
use std::sync::Arc;

/// Everything that can be done, one thing after the other.
pub(crate) async fn life(values: &Values, world: &TestWorld, budget: usize) -> Result<(), Error> {
    let element = |index| EdgeName::element("list", index);
    values.update(puts("a; b; c; x->a,b,b; y->x,c").set(&root("R"), "y").lease(&root("lease"), "x", 1_000)).await?;
    values.update(puts("z->x,c").compare_and_set(&root("R"), target("y"), "z")).await?;
    values.update(puts("e; f->e").set(&element(0), "e").set(&element(1), "f").set(&element(2), "a")).await?;
    values.update(Update::new().gather("L", "list", 3, Default::default()).set(&root("list"), "L")).await?;
    drain(values, budget).await?;
    values.renew(&root("lease"), 2_000).await?;
    values.update(Update::new().clear(&root("R")).clear(&root("list"))).await?;
    drain(values, budget).await?;
    world.advance(2_000);
    drain(values, budget).await
}

async fn drain(values: &Values, budget: usize) -> Result<(), Error> {
    while values.reclaim(budget).await?.more {}
    Ok(())
}

#[tokio::test]
async fn a_crash_at_any_call_leaves_nothing_broken_and_nothing_behind() {
    for budget in [1, 7, usize::MAX] {
        fault::for_every_fault(async |plan| {
            let world = TestWorld::new(1);
            for (store, records) in stores(&world) {
                let at = format!("{store}, budget {budget}");
                let dying = Values::new(Faulty::new(records.clone(), plan.clone()), world.clone(), SHARD);
                match life(&dying, &world, budget).await {
                    Ok(()) | Err(Error::Records(records::Error::Unavailable(_) | records::Error::Unknown(_))) => {}
                    Err(error) => panic!("{at}: {error}"),
                }
                let reopened = Values::new(records, world.clone(), SHARD);
                is_clean(&reopened, &at).await;
                finish(&reopened, &world, budget).await.unwrap();
                is_clean(&reopened, &at).await;
                assert_eq!(reopened.rows().await.unwrap(), [], "{at}");
            }
        })
        .await;
    }
}

pub(crate) async fn is_clean(values: &Values, at: &str) {
    let report = values.fsck(Mode::Check).await.unwrap();
    assert!(report.is_clean(), "{at}: {report}");
}

/// Releases everything, as a run's teardown does.
pub(crate) async fn finish(values: &Values, world: &TestWorld, budget: usize) -> Result<(), Error> {
    values.update(Update::new().clear(&root("R")).clear(&root("list"))).await?;
    match values.release("list").await {
        Ok(_) | Err(Error::Sealed { .. }) => {}
        Err(error) => return Err(error),
    }
    world.advance(2_000);
    drain(values, budget).await
}

#[tokio::test]
async fn a_lost_reply_changes_nothing_for_its_caller() {
    fault::for_every_n(fault::Fault::LoseReply, async |plan| {
        let world = TestWorld::new(1);
        for (store, records) in stores(&world) {
            let values = Values::new(Faulty::new(records.clone(), plan.clone()), world.clone(), SHARD);
            match life(&values, &world, 7).await {
                // A read whose reply is lost is for the caller to repeat.
                Ok(()) | Err(Error::Records(records::Error::Unavailable(_))) => {}
                // That it is durable was not said: the store is to be opened again.
                Err(Error::Records(records::Error::Unknown(_))) if plan.stopped() => {}
                Err(error) => panic!("{store}: {error}"),
            }
            is_clean(&Values::new(records, world.clone(), SHARD), store).await;
        }
    })
    .await;
}

#[tokio::test]
async fn two_reclaimers_and_a_writer_at_once_break_nothing() {
    let world = TestWorld::new(1);
    for (store, records) in stores(&world) {
        let open = || Arc::new(Values::new(records.clone(), world.clone(), SHARD));
        let (one, two, writer) = (open(), open(), open());
        for round in 0..50 {
            let texts = [format!("a{round}; b{round}->a{round}; c{round}->a{round},b{round}"), "x; y->x".into()];
            for text in texts {
                let root = root(&format!("{}", round % 3));
                let last = text.rsplit("; ").next().unwrap().split("->").next().unwrap().to_owned();
                let (_, _, wrote) =
                    tokio::join!(one.reclaim(2), two.reclaim(3), writer.update(puts(&text).set(&root, last.as_str())));
                wrote.unwrap();
            }
            is_clean(&writer, store).await;
        }
    }
}
