//! Cancels the session, for the reason that the message gives.

use crate::scope::{
    cause::CancelCause,
    check::Setup,
    definition::OpId,
    effect::{Contents, ScopeEffect},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId) {
    setup.ports(at, 0, 0);
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    let reason = machine.contents.describe(op, &message);
    machine.effects.push_back(ScopeEffect::Drop(message));
    machine.end(Err(CancelCause::Triggered { at: machine.scope.op(op).name.clone(), reason }));
}
