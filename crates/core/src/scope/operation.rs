//! The operations, a file each, all with the same four duties: *set up* (check it, and say what it supports), *execute*
//! (take a message), *clean* (drop what it holds when the session ends or a trim asks for it), *reachable* (what must
//! be reachable for it to get a message).

pub(crate) mod access;
pub(crate) mod buffer;
pub(crate) mod cancel;
pub(crate) mod clone;
pub(crate) mod collect;
pub(crate) mod dispose;
pub(crate) mod distribute;
pub(crate) mod gate;
pub(crate) mod join;
pub(crate) mod listen;
pub(crate) mod push;
pub(crate) mod stream_out;
pub(crate) mod task;
pub(crate) mod terminate;
pub(crate) mod trim;
pub(crate) mod watch;

use super::{
    check::Setup,
    definition::{JoinInput, OpId, OpKind},
    effect::{Contents, Emitted, ScopeEffect},
    session::Machine,
};
use crate::seams;

/// The sources that an operation needs in order to get a message.
pub(crate) enum Support<'a> {
    /// One of those that lead to it.
    Any,
    /// All of its buffers.
    All(&'a [JoinInput]),
}

/// Checks an operation, and records what it supports.
pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId) {
    match setup.op(at).kind.clone() {
        OpKind::Task { streams, .. } => task::set_up(setup, at, streams),
        OpKind::Distribute(how) => distribute::set_up(setup, at, how),
        OpKind::Clone => clone::set_up(setup, at),
        OpKind::Collect { min, max } => collect::set_up(setup, at, min, max),
        OpKind::Join { inputs } => join::set_up(setup, at, &inputs),
        OpKind::Listen { buffers, .. } => listen::set_up(setup, at, &buffers),
        OpKind::Buffer { keep } => buffer::set_up(setup, at, keep),
        OpKind::Access { buffers } => access::set_up(setup, at, &buffers),
        OpKind::Push { buffer } => push::set_up(setup, at, buffer),
        OpKind::Gate { buffers, action } => gate::set_up(setup, at, &buffers, action),
        OpKind::Trim { span } => trim::set_up(setup, at, span),
        OpKind::StreamOut { stream } => stream_out::set_up(setup, at, stream),
        OpKind::Cancel { .. } => cancel::set_up(setup, at),
        OpKind::Dispose => dispose::set_up(setup, at),
        OpKind::Watch { of } => watch::set_up(setup, at, &of),
        OpKind::Terminate => terminate::set_up(setup, at),
    }
}

/// Lets an operation take a message.
pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    let scope = machine.scope;
    match &scope.op(op).kind {
        OpKind::Task { .. } => task::execute(machine, op, message),
        OpKind::Distribute(_) => distribute::execute(machine, op, message),
        OpKind::Clone => clone::execute(machine, op, message),
        OpKind::Collect { max, .. } => collect::execute(machine, op, *max, message),
        OpKind::Buffer { .. } => buffer::execute(machine, op, message),
        OpKind::Access { buffers } => access::execute(machine, op, buffers, message),
        OpKind::Push { buffer } => push::execute(machine, op, *buffer, message),
        OpKind::Gate { buffers, action } => gate::execute(machine, op, buffers, *action, message),
        OpKind::Trim { .. } => trim::execute(machine, op, message),
        OpKind::StreamOut { stream } => stream_out::execute(machine, *stream, message),
        OpKind::Cancel { .. } => cancel::execute(machine, op, message),
        OpKind::Dispose => dispose::execute(machine, op, message),
        OpKind::Terminate => terminate::execute(machine, message),
        OpKind::Join { .. } | OpKind::Listen { .. } | OpKind::Watch { .. } => {
            unreachable!("{} takes no messages, and a checked scope sends it none", scope.op(op).name)
        }
    }
}

/// Takes the answer of an operation's order.
pub(crate) fn answered<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, emitted: Emitted<M>) {
    let scope = machine.scope;
    match &scope.op(op).kind {
        OpKind::Task { streams, .. } => task::answered(machine, op, *streams, emitted),
        OpKind::Distribute(how) => distribute::answered(machine, op, *how, emitted),
        OpKind::Gate { buffers, .. } => gate::answered(machine, op, buffers, emitted),
        _ => match emitted {
            Emitted::Nothing => machine.dispose(op, 0, super::DisposalCause::Filtered),
            Emitted::One(port, message) => machine.send(op, port, message),
            Emitted::Many(list) => list.into_iter().for_each(|(port, message)| machine.send(op, port, message)),
        },
    }
}

/// Refuses a message on its way to an operation of a session that ends, or to one that is trimmed. Messages bound for a
/// buffer are kept in it.
pub(crate) fn refuse<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    match machine.scope.op(op).kind {
        OpKind::Buffer { .. } if seams::keeps_messages_for_buffers() => buffer::put(machine, op, message),
        OpKind::Push { buffer } => buffer::put(machine, buffer, message),
        _ => machine.effects.push_back(ScopeEffect::Drop(message)),
    }
}

/// Drops what an operation holds besides orders. Buffers keep their entries.
pub(crate) fn clean<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId) {
    match machine.scope.op(op).kind {
        OpKind::Collect { .. } => collect::clean(machine, op),
        OpKind::Trim { .. } => trim::clean(machine, op),
        _ => {}
    }
}

/// Says what an operation needs in order to get a message.
pub(crate) fn reachable(kind: &OpKind) -> Support<'_> {
    match kind {
        OpKind::Join { inputs } => join::reachable(inputs),
        _ => Support::Any,
    }
}
