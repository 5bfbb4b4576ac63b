//! Objects on a server, held to the contract of all.

use onceflow_store::{
    backend::redis::{Address, Redis},
    blobs::redis::RedisObjects,
    core::Shard,
    testing::{blobs, redis::shared_url},
    world::RealWorld,
};

async fn objects() -> RedisObjects {
    let address = Address::parse(&shared_url()).unwrap();
    RedisObjects::new(Redis::connect(address, RealWorld::here()).await.unwrap(), Shard(3))
}

#[tokio::test]
async fn objects_on_a_server_keep_the_contract() {
    blobs::contract(objects).await;
    blobs::contract_of_large(objects, 3 << 20).await;
    blobs::contract_under_faults(objects).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_eight_writers_of_a_name_wins() {
    for len in [10, 1 << 20] {
        blobs::contract_of_races(objects, len).await;
    }
}
