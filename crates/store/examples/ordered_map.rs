//! An ordered map whose snapshots cost nothing: a search tree that is never changed, only copied along one path.
//!
//! Every node is a value. To insert or to delete is to put the handful of nodes from the top down to the place, each
//! referring to the old nodes it did not change, and to move the root. A snapshot is another root at the same node.
//! Values that no root reaches any more are deleted by `reclaim`.
//!
//! ```sh
//! cargo run -p onceflow-store --example ordered_map [DIRECTORY | redis://HOST:PORT]
//! ```
//!
//! Run it in two terminals on one directory, or kill it and run it again: it goes on with what is there. With the feature
//! `redis` it runs on a server just as well.

use onceflow_store::{
    Store,
    values::{Content, EdgeName, Error, Expect, Update, Value, ValueId, Values, fsck::Mode},
};

#[path = "ordered_map/node.rs"]
mod node;
#[path = "ordered_map/tree.rs"]
mod tree;

use tree::OrderedMap;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let place = std::env::args().nth(1).unwrap_or_else(|| temporary.path().join("store").display().to_string());
    let store = open(&place).await?;
    let values = store.values().await?;

    let map = OrderedMap::new(values.clone(), "map");
    for n in 0..1000_u32 {
        map.insert(&format!("key {:04}", n * 7919 % 1000), &format!("value {n}")).await?;
    }
    reclaim(&values).await?;
    let nodes = stored(&values).await?;
    println!("1000 entries are {nodes} nodes");

    map.snapshot("before").await?;
    for n in 0..10_u32 {
        map.insert(&format!("key {:04}", n * 100), "changed").await?;
    }
    for n in 0..10_u32 {
        map.delete(&format!("key {:04}", n * 100 + 50)).await?;
    }
    reclaim(&values).await?;
    let before = OrderedMap::new(values.clone(), "before");
    println!("the map has {} entries, its snapshot {}", map.entries().await?.len(), before.entries().await?.len());
    let both = stored(&values).await?;
    println!("both together are {both} nodes: all but {} are shared", both - nodes);

    map.clear().await?;
    reclaim(&values).await?;
    println!("without the map, its snapshot is {} nodes", stored(&values).await?);
    before.clear().await?;
    reclaim(&values).await?;
    println!("without either, there are {} rows of any kind", values.rows().await?.len());
    println!("fsck: {}", values.fsck(Mode::Check).await?);
    store.close().await?;
    Ok(())
}

async fn reclaim(values: &Values) -> Result<(), Error> {
    while values.reclaim(1000).await?.more {}
    Ok(())
}

async fn stored(values: &Values) -> Result<usize, Error> {
    Ok(values.fsck(Mode::Check).await?.values)
}

/// A store in a directory, or on a server.
async fn open(place: &str) -> anyhow::Result<Store> {
    #[cfg(feature = "redis")]
    if place.contains("://") {
        let store = Store::connect(place).await?;
        println!("a store on {}", onceflow_store::backend::redis::redacted(place));
        return Ok(store);
    }
    let store = Store::open(place).await?;
    println!("a store in {place}");
    Ok(store)
}
