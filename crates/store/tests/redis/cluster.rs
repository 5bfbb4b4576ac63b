//! Three nodes on loopback: the contract holds there as well, with shards on different nodes.

use onceflow_store::{
    Records, World,
    backend::redis::{Address, Redis},
    core::{Batch, Group, Row, Shard},
    records::get_one,
    records_contract,
    testing::{
        redis::{Cluster, shared_cluster_url},
        world::TestWorld,
    },
    world::RealWorld,
};
use std::{collections::BTreeSet, sync::Arc};

async fn cluster(world: Arc<TestWorld>) -> Arc<dyn Records> {
    let address = Address::parse(&shared_cluster_url()).unwrap();
    Arc::new(Redis::connect(address, world as Arc<dyn World>).await.unwrap())
}

records_contract!(cluster_contract, cluster, seeds: 3);

fn put(shard: u16, name: &str) -> Batch {
    let mut batch = Batch::new(Shard(shard));
    let key = Group::rows("g").key(name);
    batch.require_absent(key.clone()).put(key, Row::new(name));
    batch
}

#[tokio::test]
async fn shards_are_on_different_nodes_and_follow_their_slots() {
    let cluster = Cluster::start();
    let redis = Redis::connect(Address::parse(&cluster.url()).unwrap(), RealWorld::here()).await.unwrap();
    for shard in 0..12 {
        assert!(redis.commit(put(shard, "before")).await.unwrap().is_applied());
    }
    let nodes: BTreeSet<_> = (0..12).map(|shard| cluster.node_of(&format!("{{onceflow:{shard}}}:rows"))).collect();
    assert_eq!(nodes.len(), 3, "twelve shards use all three nodes");
    // Slots move while they are used; callers do not notice.
    for shard in 0..12 {
        cluster.move_slot_of(&format!("{{onceflow:{shard}}}:rows"));
        assert!(redis.commit(put(shard, "after")).await.unwrap().is_applied());
        let refused = redis.commit(put(shard, "before")).await.unwrap();
        assert!(!refused.is_applied(), "what was there has moved along");
        let key = Group::rows("g").key("before");
        assert_eq!(get_one(&redis, Shard(shard), key).await.unwrap(), Some(Row::new("before")));
    }
}
