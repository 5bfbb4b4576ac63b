//! Case 13: a million values, wide and deep, a thousand at a time.

use super::bed::{SHARD, puts, root, stores};
use onceflow_store::{
    testing::world::TestWorld,
    values::{Update, Values, list::ListBuilder},
};
use std::sync::Arc;

const MANY: u64 = 1_000_000;
const BUDGET: usize = 1_000;

/// Reclaims everything, with bounded work in each call.
async fn goes(values: &Values, at_least: u64) {
    let mut swept = 0;
    loop {
        let done = values.reclaim(BUDGET).await.unwrap();
        swept += done.swept;
        assert!(done.swept + done.paid <= 3 * BUDGET as u64, "{done:?} is too much for one call");
        if !done.more {
            break;
        }
    }
    assert!(swept >= at_least, "only {swept} were swept");
    assert_eq!(values.rows().await.unwrap(), []);
}

#[tokio::test]
async fn a_list_of_a_million_goes_a_thousand_at_a_time() {
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        let values = Arc::new(Values::new(records, world.clone(), SHARD));
        let mut builder = ListBuilder::new(values.clone(), root("building"), 60_000);
        for n in 0..MANY {
            builder.push(format!("e{n}").as_str(), "").await.unwrap();
        }
        builder.finish(&root("R")).await.unwrap();
        values.update(Update::new().clear(&root("R"))).await.unwrap();
        goes(&values, MANY).await;
    }
}

#[tokio::test]
async fn a_chain_of_a_million_goes_a_thousand_at_a_time() {
    let world = TestWorld::new(1);
    for (_, records) in stores(&world) {
        let values = Values::new(records, world.clone(), SHARD);
        values.update(puts("c0").set(&root("R"), "c0")).await.unwrap();
        for chunk in 0..MANY / 250 {
            let ids: Vec<String> = (chunk * 250..=(chunk + 1) * 250).map(|n| format!("c{n}")).collect();
            let links =
                ids.windows(2).fold(Update::new(), |update, link| update.put(link[1].as_str(), [link[0].as_str()], ""));
            values.update(links.set(&root("R"), ids[250].as_str())).await.unwrap();
        }
        values.update(Update::new().clear(&root("R"))).await.unwrap();
        goes(&values, MANY).await;
    }
}
