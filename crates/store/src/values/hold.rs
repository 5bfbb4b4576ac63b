//! Holds values that are too many for one batch of the caller's: they are put ahead of it over several updates, and
//! held meanwhile by one lease, on a *spine*: a value that refers to the values of one update, and to the spine before
//! it. The caller's batch refers to the values it needs and releases the lease ([`ValueChange::ReleaseHold`]); values
//! that nothing else refers to are reclaimed with the spine. After a crash all of them are reclaimed: at once where the
//! end of the process is detected, else when the lease expires.

use onceflow_core::{Fence, Name};

use super::{Content, EdgeName, Error, Expect, Update, ValueChange, ValueId, Values, limits};

/// The lease on values that were put ahead of a batch.
#[derive(Debug)]
pub struct Hold {
    edge: EdgeName,
    spine: Option<ValueId>,
}

/// The prefix of the names of all such leases; the fence of the writer follows.
const AHEAD: &[u8] = b"ahead";

impl Hold {
    /// A hold of the writer that made this fence.
    pub(super) fn new(fence: Fence) -> Self {
        Hold { edge: EdgeName::root([AHEAD, &fence.to_bytes()].concat()), spine: None }
    }

    /// The prefix of the row names of all such leases.
    pub(super) fn row_prefix() -> Name {
        EdgeName::root(AHEAD).to_row_name()
    }

    /// The prefix of the names of one writer's leases.
    pub(super) fn prefix_of(writer: u128) -> Vec<u8> {
        [AHEAD, &writer.to_be_bytes()].concat()
    }

    /// The writer that put these values ahead; `None` if the edge is no such lease.
    pub(super) fn writer(edge: &EdgeName) -> Option<u128> {
        let EdgeName::Root(name) = edge else { return None };
        Some(Fence::from_bytes(name.as_bytes().strip_prefix(AHEAD)?)?.incarnation())
    }

    /// The change that releases the hold in the batch that takes over its values; `None` if it holds nothing.
    pub fn release(&self) -> Option<ValueChange> {
        self.spine.as_ref().map(|_| ValueChange::ReleaseHold { edge: self.edge.clone() })
    }

    /// Puts the values of all these changes (which may not touch edges), and holds them for
    /// [`HOLD_MS`](limits::HOLD_MS) from now. Changes whose values were put are removed from `changes`: after an error
    /// the caller can try the rest again.
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost) or [`Stale`](Error::Stale) if values put earlier were reclaimed, because that
    /// was too long ago; [`Missing`](Error::Missing) if a change refers to a value that is not stored.
    pub async fn put_ahead(&mut self, values: &Values, changes: &mut Vec<ValueChange>) -> Result<(), Error> {
        while !changes.is_empty() {
            let (mut ops, mut bytes) = (0, 0);
            let fits = |change: &&ValueChange| {
                // Three more for the spine.
                (ops, bytes) = (ops + change.ops() + 3, bytes + bytes_of(change));
                ops <= limits::HOLD_OPS_MAX && bytes <= limits::HOLD_BYTES_MAX
            };
            let some = changes.iter().take_while(fits).count().max(1);
            self.put_some(values, changes[..some].to_vec()).await?;
            changes.drain(..some);
        }
        Ok(())
    }

    async fn put_some(&mut self, values: &Values, changes: Vec<ValueChange>) -> Result<(), Error> {
        values.writer.enlist(values.blobs.as_ref()).await?;
        let (mut update, mut refs) = (Update::new(), self.spine.clone().into_iter().collect::<Vec<_>>());
        for change in changes {
            let (ValueChange::Put { id, .. } | ValueChange::RequireValue { id }) = &change else {
                return Err(Error::Senseless(format!("{change:?} cannot be put ahead")));
            };
            if !refs.contains(id) {
                refs.push(id.clone());
            }
            update = update.change(change);
        }
        let spine = values.fresh_id();
        let update = update.put(spine.clone(), refs, b"").change(ValueChange::Move {
            edge: self.edge.clone(),
            to: Some(spine.clone()),
            expect: self.spine.clone().map_or(Expect::Unset, Expect::Target),
            ttl_ms: Some(limits::HOLD_MS),
        });
        values.apply(update).await?;
        self.spine = Some(spine);
        Ok(())
    }
}

fn bytes_of(change: &ValueChange) -> usize {
    match change {
        ValueChange::Put { value, .. } => match &value.content {
            Content::Inline(bytes) => bytes.len() + 64 * value.refs.len(),
            Content::Gathered { .. } | Content::Object { .. } => 0,
            Content::Source(source) => source.path.as_os_str().len() + 128,
        },
        _ => 0,
    }
}
