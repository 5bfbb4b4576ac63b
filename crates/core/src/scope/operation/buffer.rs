//! Stores messages for the session. Its entries outlive the end of the operations, so that cleanup flows find them.

use crate::scope::{
    cause::DisposalCause,
    check::{ScopeFault, Setup},
    definition::{BufferKeep, OpId, OpKind},
    effect::{Contents, ScopeEffect},
    operation::join,
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, keep: BufferKeep) {
    setup.ports(at, 0, 0);
    if matches!(keep, BufferKeep::Last(0) | BufferKeep::First(0)) {
        setup.fault(ScopeFault::Bounds(setup.op(at).name.clone()));
    }
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    put(machine, op, message);
    machine.changed(op, None, true);
}

/// Stores a message as far as the buffer keeps it; wakes no readers.
pub(crate) fn put<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, buffer: OpId, message: M) {
    let OpKind::Buffer { keep } = machine.scope.op(buffer).kind else { unreachable!("asked of buffers only") };
    let store = machine.store_mut(buffer);
    if matches!(keep, BufferKeep::First(most) if store.entries.len() >= most as usize) {
        machine.effects.push_back(ScopeEffect::Drop(message));
        machine.dispose(buffer, 0, DisposalCause::BufferFull);
        return;
    }
    let (was_empty, is_closed) = (store.entries.is_empty(), store.is_closed);
    store.entries.push(message);
    if matches!(keep, BufferKeep::Last(most) if store.entries.len() > most as usize)
        && let Some(oldest) = store.entries.remove(0)
    {
        machine.effects.push_back(ScopeEffect::Drop(oldest));
    }
    if was_empty && !is_closed {
        join::input_gained(machine, buffer);
    }
}
