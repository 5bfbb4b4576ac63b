//! The contract of every backend, on a server with `appendfsync always`.

use onceflow_store::{
    Records, World,
    backend::redis::{Address, Redis},
    records_contract,
    testing::{redis::shared_url, world::TestWorld},
};
use std::sync::Arc;

async fn redis(world: Arc<TestWorld>) -> Arc<dyn Records> {
    let address = Address::parse(&shared_url()).unwrap();
    Arc::new(Redis::connect(address, world as Arc<dyn World>).await.unwrap())
}

records_contract!(redis_contract, redis, seeds: 10);
