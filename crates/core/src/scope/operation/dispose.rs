//! Disposes of the message on purpose.

use crate::scope::{
    cause::DisposalCause,
    check::Setup,
    definition::OpId,
    effect::{Contents, ScopeEffect},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId) {
    setup.ports(at, 0, 0);
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    machine.effects.push_back(ScopeEffect::Drop(message));
    machine.dispose(op, 0, DisposalCause::Disposed);
}
