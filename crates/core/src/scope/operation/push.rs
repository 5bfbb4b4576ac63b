//! Stores the message in a buffer, then gives a trigger.

use crate::scope::{
    check::Setup,
    definition::OpId,
    effect::{Contents, Feed},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, buffer: OpId) {
    setup.ports(at, 1, 1);
    for buffer in setup.buffers(at, &[buffer]) {
        setup.supports(at, buffer);
    }
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, buffer: OpId, message: M) {
    super::buffer::execute(machine, buffer, message);
    machine.run(op, Feed::Trigger);
}
