//! Claims while the owner of an embedded store changes: the real table of what a process holds and the real way in which
//! that is asserted again, on simulated nodes. Until every living node has done so, or a lease has passed, no claim is
//! granted; whose claims stand is written down, so that one that is granted to another worker is noticed.

use super::SimStore;
use crate::{
    connection::Direct,
    executor::{NodeId, OUTSIDE, at_once, lock},
};
use onceflow_core::{Batch, Claimed, Group, Kind, Name, Op, Row, Shard, Timestamp, hazard};
use onceflow_store::{
    Error, Position,
    backend::held::{self, HeldClaims},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// How long it takes a node, at most, to find the next owner; on a busy machine, up to a lease.
const FIND_MS: u64 = 40;

/// Whose claims stand, and who has yet to assert theirs.
#[derive(Default)]
pub(super) struct Standing {
    /// What each node that lives knows to hold.
    helds: BTreeMap<NodeId, Arc<HeldClaims>>,
    claims: BTreeMap<(Name, Name), Claim>,
    /// Who made which fence.
    makers: BTreeMap<Row, NodeId>,
    /// Nodes that live and have not asserted their claims to this opening.
    awaited: BTreeSet<NodeId>,
    /// Until when no claim is granted for their sake.
    hold_until: Timestamp,
}

struct Claim {
    fence: Row,
    deadline: Timestamp,
}

impl Standing {
    pub(super) fn node_is_gone(&mut self, node: NodeId) {
        self.helds.remove(&node);
        self.awaited.remove(&node);
    }

    pub(super) fn holds_grants(&self, now: Timestamp) -> bool {
        !self.awaited.is_empty() && now < self.hold_until && !hazard::is_on("grants-before-reassertion")
    }

    /// A batch happened: what it did to claims; and what is wrong with what it was granted.
    pub(super) fn applied(
        &mut self,
        node: NodeId,
        batch: &Batch,
        claimed: Option<&Claimed>,
        now: Timestamp,
    ) -> Option<String> {
        for op in &batch.ops {
            match op {
                Op::Delete(key) if matches!(key.group.kind(), Kind::Claims | Kind::Queue) => {
                    self.claims.remove(&(key.group.id_name().clone(), key.name.clone()));
                }
                Op::DeleteGroup(group) if matches!(group.kind(), Kind::Claims | Kind::Queue) => {
                    self.claims.retain(|(queue, _), _| queue != group.id_name());
                }
                Op::Put(key, fence) if key.group.kind() == Kind::Claims => {
                    let claim = Claim { fence: fence.clone(), deadline: now };
                    self.claims.insert((key.group.id_name().clone(), key.name.clone()), claim);
                }
                _ => {}
            }
        }
        for op in &batch.ops {
            if let Op::Put(key, row) = op
                && key.group.kind() == Kind::Deadlines
                && let Some(claim) = self.claims.get_mut(&(key.group.id_name().clone(), key.name.clone()))
                && let Some(deadline) = Timestamp::from_sortable(row)
            {
                claim.deadline = deadline;
            }
        }
        let (claimed, claim) = (claimed?, batch.claim.as_ref()?);
        let fence = Row::new(claim.fence.to_bytes());
        self.makers.insert(fence.clone(), node);
        let place = (claimed.queue.id_name().clone(), claimed.name.clone());
        let before = self.claims.insert(place, Claim { fence, deadline: claimed.deadline })?;
        let holder = *self.makers.get(&before.fence)?;
        let knows = self.helds.get(&holder)?.has(batch.shard, &claimed.queue, &claimed.name, &before.fence);
        let step = crate::watch::name(&claimed.name);
        (knows && before.deadline > now)
            .then(|| format!("{step} was granted to node {node} while node {holder}, which lives, has it"))
    }

    /// The claims of a node that is gone.
    fn claims_of(&self, node: NodeId) -> Vec<(Name, Name, Row)> {
        let is_its = |claim: &Claim| self.makers.get(&claim.fence) == Some(&node);
        let its = self.claims.iter().filter(|(_, claim)| is_its(claim));
        its.map(|((queue, name), claim)| (queue.clone(), name.clone(), claim.fence.clone())).collect()
    }
}

impl SimStore {
    /// A node notes there what it holds.
    pub fn member(&self, node: NodeId, held: Arc<HeldClaims>) {
        lock(&self.inner).standing.helds.insert(node, held);
    }

    /// Whether a node has been to this opening of the store.
    pub fn is_welcome(&self, node: NodeId) -> Result<(), Error> {
        match lock(&self.inner).standing.awaited.contains(&node) {
            true => Err(Error::Unavailable("the owner changes".into())),
            false => Ok(()),
        }
    }

    /// The owner was killed: all nodes that live assert what they hold, each when it has found the next owner.
    pub(super) fn gather_claims(self: &Arc<Self>) {
        let (nodes, epoch) = {
            let mut inner = lock(&self.inner);
            let now = self.read_clock(&mut inner);
            let nodes: BTreeSet<_> = inner.standing.helds.keys().copied().collect();
            inner.standing.awaited.clone_from(&nodes);
            inner.standing.hold_until = now.plus_ms(self.faults.lease_ms);
            inner.owner = inner.owner.or_else(|| nodes.first().copied());
            (nodes, inner.epoch)
        };
        for node in nodes {
            let most_ms = if self.sim.per_mille(300) { self.faults.lease_ms } else { FIND_MS };
            let (store, ms) = (self.clone(), self.sim.below(most_ms));
            let arrive = async move {
                store.sim.sleep(ms).await;
                while store.opening() == epoch && store.epoch().is_err() {
                    store.sim.sleep(1 + store.sim.below(FIND_MS)).await;
                }
                store.arrives(node, epoch);
            };
            self.sim.spawn(node, "finds the next owner", Box::pin(arrive));
        }
        let (store, ms) = (self.clone(), self.faults.lease_ms + 1);
        let grace = async move {
            store.sim.sleep(ms).await;
            store.grants_again();
        };
        self.sim.spawn(OUTSIDE, "grace", Box::pin(grace));
    }

    /// A node asserts what it holds.
    fn arrives(self: &Arc<Self>, node: NodeId, epoch: u64) {
        let held = {
            let inner = lock(&self.inner);
            let held = inner.standing.helds.get(&node).cloned();
            held.filter(|_| inner.epoch == epoch && inner.standing.awaited.contains(&node))
        };
        let Some(held) = held else { return };
        let direct = Direct(self.clone());
        for claim in held.all() {
            let stands = at_once(held::reassert(&direct, &claim));
            self.sim.tell(|| format!("node {node} asserts {}: {stands:?}", crate::watch::name(&claim.name)));
        }
        lock(&self.inner).standing.awaited.remove(&node);
        self.grants_again();
    }

    fn grants_again(&self) {
        let mut inner = lock(&self.inner);
        let position = Position(inner.position.0 + 1);
        inner.state.note_enabled(Shard::default(), position);
        drop(inner);
        self.enabled.notify_waiters();
    }

    /// The owner closes in order: everything stays, but for what it had claimed itself, and the next node has the store.
    pub fn hand_over(self: &Arc<Self>, node: NodeId) {
        let mut inner = lock(&self.inner);
        inner.standing.node_is_gone(node);
        inner.owner = inner.standing.helds.keys().next().copied();
        let next = inner.owner;
        drop(inner);
        self.sim.tell(|| format!("node {node} closes the store; {next:?} has it next"));
        self.void_claims_of(node);
    }

    /// Who has the store open.
    pub fn owner(&self) -> Option<NodeId> {
        lock(&self.inner).owner.filter(|_| self.is_embedded())
    }

    /// Takes the claims of a node away that is gone, if the store is one whose processes are known to live.
    pub(super) fn void_claims_of(&self, node: NodeId) {
        if !self.is_embedded() {
            return;
        }
        let claims = lock(&self.inner).standing.claims_of(node);
        for (queue, name, fence) in claims {
            let queue = Group::queue(queue);
            let mut batch = Batch::new(Shard::default());
            batch.require_equals(queue.claims().key(&name), fence).delete(queue.claims().key(&name));
            batch.delete(queue.deadlines().key(&name));
            drop(self.apply(OUTSIDE, &batch));
        }
    }
}
