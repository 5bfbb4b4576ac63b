//! Values on their way into a batch of the caller's that are too many for one batch: put ahead of it over several
//! updates, and held meanwhile by one lease, on a *spine*: a value that refers to what an update put, and to the spine
//! before it. The caller's batch refers to what it needs and lets the lease go ([`ValueChange::ReleaseHold`]); what nothing else
//! refers to goes with the spine. After a crash everything goes: at once where it is known that the process has ended, or
//! when the lease runs out.

use onceflow_core::{Fence, Name};

use super::{Content, EdgeName, Error, Expect, Update, ValueChange, ValueId, Values, limits};

/// What was put ahead of a batch, and is held for it.
#[derive(Debug)]
pub struct Hold {
    edge: EdgeName,
    spine: Option<ValueId>,
}

/// What the names of all leases begin with that hold what was put ahead; the fence of whoever did follows.
const AHEAD: &[u8] = b"ahead";

impl Hold {
    /// What the row names of all such leases begin with.
    pub(super) fn row_prefix() -> Name {
        EdgeName::root(AHEAD).to_row_name()
    }

    /// What the names of all leases of one writer begin with.
    pub(super) fn prefix_of(writer: u128) -> Vec<u8> {
        [AHEAD, &writer.to_be_bytes()].concat()
    }

    /// Who put this ahead.
    pub(super) fn writer(edge: &EdgeName) -> Option<u128> {
        let EdgeName::Root(name) = edge else { return None };
        Some(Fence::from_bytes(name.as_bytes().strip_prefix(AHEAD)?)?.incarnation())
    }

    /// The change that releases the hold in the batch that takes over its values; `None` if it holds nothing.
    pub fn release(&self) -> Option<ValueChange> {
        self.spine.as_ref().map(|_| ValueChange::ReleaseHold { edge: self.edge.clone() })
    }
}

impl Values {
    /// Holds nothing yet.
    pub fn hold(&self) -> Hold {
        let edge = [AHEAD, &self.fences.next().to_bytes()].concat();
        Hold { edge: EdgeName::root(edge), spine: None }
    }

    /// Puts what these changes put (they may not touch edges), all of it, and holds it for
    /// [`HOLD_MS`](limits::HOLD_MS) from now. Those that were put are taken from `changes`: after an error the rest can be
    /// tried again.
    ///
    /// # Errors
    /// [`LeaseLost`](Error::LeaseLost) or [`Stale`](Error::Stale) if what was put before has gone, because that was too
    /// long ago; [`Missing`](Error::Missing) if a change refers to what is not there.
    pub async fn put_ahead(&self, hold: &mut Hold, changes: &mut Vec<ValueChange>) -> Result<(), Error> {
        while !changes.is_empty() {
            let (mut ops, mut bytes) = (0, 0);
            let fits = |change: &&ValueChange| {
                // What the spine takes comes on top.
                (ops, bytes) = (ops + change.ops() + 3, bytes + bytes_of(change));
                ops <= limits::HOLD_OPS_MAX && bytes <= limits::HOLD_BYTES_MAX
            };
            let some = changes.iter().take_while(fits).count().max(1);
            self.put_some(hold, changes[..some].to_vec()).await?;
            changes.drain(..some);
        }
        Ok(())
    }

    async fn put_some(&self, hold: &mut Hold, changes: Vec<ValueChange>) -> Result<(), Error> {
        self.enlist().await?;
        let (mut update, mut refs) = (Update::new(), hold.spine.clone().into_iter().collect::<Vec<_>>());
        for change in changes {
            let (ValueChange::Put { id, .. } | ValueChange::RequireValue { id }) = &change else {
                return Err(Error::Senseless(format!("{change:?} cannot be put ahead")));
            };
            if !refs.contains(id) {
                refs.push(id.clone());
            }
            update = update.change(change);
        }
        let spine = self.fresh_id();
        let update = update.put(spine.clone(), refs, b"").change(ValueChange::Move {
            edge: hold.edge.clone(),
            to: Some(spine.clone()),
            expect: hold.spine.clone().map_or(Expect::Unset, Expect::Target),
            ttl_ms: Some(limits::HOLD_MS),
        });
        self.apply(update).await?;
        hold.spine = Some(spine);
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
