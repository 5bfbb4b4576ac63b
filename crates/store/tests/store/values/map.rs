//! Case 4: the ordered map of the example, against a sorted one.

use super::bed::{each_store_at_hand, root};
use onceflow_store::{
    testing::random::Random,
    values::{Content, EdgeName, Error, Expect, Update, Value, ValueId, Values},
};
use std::collections::BTreeMap;

#[path = "../../../examples/ordered_map/node.rs"]
mod node;
#[path = "../../../examples/ordered_map/tree.rs"]
mod tree;

use tree::OrderedMap;

#[tokio::test]
async fn an_ordered_map_equals_a_sorted_one_at_every_root_and_leaves_no_key_at_all() {
    each_store_at_hand(async |bed| {
        let mut random = Random::new(4);
        let map = OrderedMap::new(bed.values.clone(), "map");
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        let mut snapshots = Vec::new();
        for n in 0..1000 {
            if n % 5 < 4 {
                let key = format!("{:03}", random.below(900));
                map.insert(&key, &n.to_string()).await.unwrap();
                model.insert(key, n.to_string());
            } else if let Some(key) = model.keys().nth(random.below(model.len())).cloned() {
                map.delete(&key).await.unwrap();
                model.remove(&key);
            }
            if n % 10 == 9 {
                let name = format!("at {n}");
                map.snapshot(&name).await.unwrap();
                snapshots.push((name, model.clone()));
                bed.step().await;
            }
        }
        for (name, model) in &snapshots {
            let found = OrderedMap::new(bed.values.clone(), name).entries().await.unwrap();
            assert!(found.into_iter().eq(model.clone()), "{}: {name}", bed.name);
        }
        for (name, _) in &snapshots {
            bed.values.update(Update::new().clear(&root(name))).await.unwrap();
        }
        map.clear().await.unwrap();
        while bed.values.reclaim(bed.budget).await.unwrap().more {}
        bed.is_empty().await;
    })
    .await;
}
