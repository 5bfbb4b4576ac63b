//! Sends the message out of the scope, in the order of arrival.

use crate::scope::{
    check::{ScopeFault, Setup},
    definition::OpId,
    effect::{Contents, ScopeEffect},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, stream: u32) {
    setup.ports(at, 0, 0);
    if stream as usize >= setup.draft.streams.len() {
        setup.fault(ScopeFault::UnknownStream(setup.op(at).name.clone()));
    }
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, stream: u32, message: M) {
    machine.effects.push_back(ScopeEffect::Stream { stream, message });
}
