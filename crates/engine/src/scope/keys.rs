//! Access to the buffers of a session: a key reads and writes only its own session. The session is told when the last
//! key to a buffer is gone.

use super::{
    body::Packet,
    cell::{SessionCell, lock},
};
use onceflow_core::scope::{OpId, ScopeEvent, SessionPhase};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// The keys of a session, by buffer.
#[derive(Default)]
pub(super) struct KeyTable {
    buffers: BTreeMap<OpId, KeyState>,
}

#[derive(Default)]
struct KeyState {
    keys: u32,
    /// Counts the changes of the buffer.
    version: u64,
    waiting: Vec<Waker>,
}

impl KeyTable {
    /// Keys to a buffer exist.
    pub(super) fn exist(&self, buffer: OpId) -> bool {
        self.buffers.get(&buffer).is_some_and(|state| state.keys > 0)
    }

    pub(super) fn changed(&mut self, buffer: OpId) -> Vec<Waker> {
        let Some(state) = self.buffers.get_mut(&buffer) else { return Vec::new() };
        state.version += 1;
        std::mem::take(&mut state.waiting)
    }
}

/// A key to a buffer of one session.
pub struct ErasedKey {
    cell: Arc<SessionCell>,
    buffer: OpId,
    /// The operation that gave it out; `None` for a cleanup flow.
    by: Option<OpId>,
}

impl ErasedKey {
    pub(super) fn new(cell: Arc<SessionCell>, buffer: OpId, by: Option<OpId>) -> Self {
        lock(&cell.keys).buffers.entry(buffer).or_default().keys += 1;
        ErasedKey { cell, buffer, by }
    }

    /// Puts a message into the buffer, as far as it keeps messages.
    ///
    /// # Errors
    /// The message, when the session is done.
    pub fn push(&self, message: Packet) -> Result<(), Packet> {
        {
            let mut state = self.cell.state();
            if state.session.phase() == SessionPhase::Done {
                return Err(message);
            }
            let state = &mut *state;
            let event = ScopeEvent::Push { buffer: self.buffer, by: self.by, message };
            state.session.apply(&self.cell.scope.scope, &*self.cell.scope, event, &mut state.effects);
        }
        self.cell.kick();
        Ok(())
    }

    /// Takes the oldest entry, or the newest.
    pub fn pull(&self, is_newest: bool) -> Option<Packet> {
        let pulled = {
            let mut state = self.cell.state();
            let state = &mut *state;
            let scope = &self.cell.scope;
            let count = state.session.entries(&scope.scope, self.buffer).len();
            let index = if is_newest { count.checked_sub(1)? } else { 0 };
            state.session.pull(&scope.scope, &**scope, self.buffer, index, self.by, &mut state.effects)
        };
        self.cell.kick();
        pulled
    }

    /// Reads all entries, the oldest first. `read` must not use keys.
    pub fn read<T>(&self, read: impl FnMut(&Packet) -> T) -> Vec<T> {
        let state = self.cell.state();
        state.session.entries(&self.cell.scope.scope, self.buffer).map(read).collect()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.cell.state().session.entries(&self.cell.scope.scope, self.buffer).len()
    }

    /// The buffer has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends when the buffer has changed since this was called.
    pub fn changed(&self) -> BufferChange {
        let version = lock(&self.cell.keys).buffers.get(&self.buffer).map_or(0, |state| state.version);
        BufferChange { key: self.clone(), version }
    }
}

impl Clone for ErasedKey {
    fn clone(&self) -> Self {
        ErasedKey::new(self.cell.clone(), self.buffer, self.by)
    }
}

impl Drop for ErasedKey {
    fn drop(&mut self) {
        let is_last = {
            let mut table = lock(&self.cell.keys);
            let state = table.buffers.get_mut(&self.buffer).expect("a key is counted while it exists");
            state.keys -= 1;
            state.keys == 0
        };
        if is_last && self.by.is_some() {
            self.cell.feed(ScopeEvent::KeysReleased { buffer: self.buffer });
        }
    }
}

/// A wait for a change of a buffer. It holds a key.
pub struct BufferChange {
    key: ErasedKey,
    version: u64,
}

impl Future for BufferChange {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut table = lock(&self.key.cell.keys);
        let state = table.buffers.get_mut(&self.key.buffer).expect("a key is counted while it exists");
        if state.version != self.version {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
