//! A copy of the message to every port.

use crate::scope::{check::Setup, definition::OpId, effect::Contents, session::Machine};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId) {
    setup.ports(at, 1, usize::MAX);
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    let ports = u32::try_from(machine.scope.op(op).outputs.len()).expect("ports are numbered in 32 bits");
    for port in 0..ports - 1 {
        let copy = machine.contents.duplicate(op, &message);
        machine.send(op, port, copy);
    }
    machine.send(op, ports - 1, message);
}
