//! The other workload: random graphs of values, with roots, leases and renewals, changed by several nodes at once.

use crate::{
    connection::Connection,
    executor::{NodeId, lock},
    room::Room,
    world::NodeWorld,
};
use onceflow_core::Shard;
use onceflow_store::{
    Records,
    values::{EdgeName, Error, Keeper, Update, ValueId, Values},
};
use std::sync::Arc;

/// Roots there are.
pub const ROOTS: u64 = SHARED + COMMON;

/// Roots that all share.
const SHARED: u64 = 5;

/// Values that come and go, each with a root of its own.
const COMMON: u64 = 2;

/// A shared root.
pub fn root(at: u64) -> EdgeName {
    EdgeName::root(format!("shared {at}"))
}

/// Values as a node sees them.
pub fn values_of(room: &Room, node: NodeId) -> Arc<Values> {
    let most = room.faults.skew_ms;
    let ahead_ms = if most == 0 { 0 } else { room.sim.below(2 * most) as i64 - most as i64 };
    let incarnation = room.sim.incarnation(node);
    let world = Arc::new(NodeWorld { sim: room.sim.clone(), node, incarnation, ahead_ms });
    let records: Arc<dyn Records> = Connection::new(room.store.clone(), node);
    Arc::new(Values::new(records, world, Shard::default()).with_blobs(room.blobs_of_node()))
}

/// Changes values for a while. An error costs one change.
pub async fn change(room: Arc<Room>, node: NodeId, changes: u64, strict: bool) {
    let values = values_of(&room, node);
    for at in 0..changes {
        let name = format!("n{node}.{}.{at}", room.sim.incarnation(node));
        if let Err(error) = one(&room, &values, &name, strict).await {
            room.sim.tell(|| format!("node {node}: {name}: {error}"));
        }
        room.sim.sleep(room.sim.below(8)).await;
    }
}

async fn one(room: &Arc<Room>, values: &Arc<Values>, name: &str, strict: bool) -> Result<(), Error> {
    let sim = &room.sim;
    let edge = root(sim.below(SHARED));
    match sim.below(10) {
        0 | 1 => {
            // A new value above what a root leads to.
            let below = values.edge(&root(sim.below(SHARED))).await?;
            let refs: Vec<ValueId> = below.into_iter().flat_map(|id| [id.clone(), id]).collect();
            let refs = refs.into_iter().take(1 + sim.below(2) as usize).collect::<Vec<_>>();
            values.update(Update::new().put(name, refs, "text").set(&edge, name)).await?;
        }
        2 => {
            let leaf = format!("{name}a");
            let update = Update::new().leaf(leaf.as_str(), "x").put(name, [leaf.as_str(), leaf.as_str()], "");
            values.update(update.set(&edge, name)).await?;
        }
        3 => {
            values.update(Update::new().clear(&edge)).await?;
        }
        4 => lease(room, values, name, strict).await?,
        5 | 6 => {
            // Some id that comes and goes, and is often about to be swept.
            let at = sim.below(COMMON);
            let (id, edge) = (format!("common {at}"), root(SHARED + at));
            let update = match sim.per_mille(500) {
                true => Update::new().clear(&edge),
                false => Update::new().leaf(id.as_str(), "the same").set(&edge, id.as_str()),
            };
            values.update(update).await?;
        }
        _ => {
            let budget = [1, 2, 7, 1000][sim.below(4) as usize];
            values.reclaim(budget).await?;
        }
    }
    if sim.per_mille(150) {
        // Large, and of few different contents.
        let content = vec![sim.below(2) as u8; 200];
        let upload = values.uploads().upload(onceflow_store::blobs::content::from_bytes(content)).await?;
        values.update(Update::new().change(upload.change()).set(&edge, upload.id())).await?;
    }
    Ok(())
}

/// Holds a value by a lease that is renewed, and reads it meanwhile.
async fn lease(room: &Arc<Room>, values: &Arc<Values>, name: &str, strict: bool) -> Result<(), Error> {
    let (sim, edge) = (&room.sim, EdgeName::root(format!("lease of {name}")));
    let ttl_ms = 300 + sim.below(1_500);
    values.update(Update::new().leaf(name, "held").lease(&edge, name, ttl_ms)).await?;
    let keeper = Keeper::start(values.clone(), edge, ttl_ms).await?;
    for _ in 0..1 + sim.below(5) {
        sim.sleep(sim.below(ttl_ms)).await;
        let held = keeper.check();
        let read = values.get(&name.into()).await;
        if let (Ok(()), Err(Error::Missing { .. }), Ok(()), true) = (&held, read, keeper.check(), strict) {
            let seen = format!("{name} is held by a lease that was renewed in time, and is not there");
            lock(&room.truth).violate("nothing live is missing", seen);
        }
        held?;
    }
    if sim.per_mille(600) {
        keeper.release().await?;
    }
    Ok(())
}
