//! Adds keys to its buffers to a passing message.

use crate::scope::{
    check::Setup,
    definition::OpId,
    effect::{Contents, Feed},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, buffers: &[OpId]) {
    setup.ports(at, 1, 1);
    for buffer in setup.buffers(at, buffers) {
        setup.supports(at, buffer);
    }
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, buffers: &[OpId], message: M) {
    machine.issue_keys(buffers);
    machine.run(op, Feed::Keys(Some(message)));
}
