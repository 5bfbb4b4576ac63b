//! User code, a nested flow or scope, or a task that the message brings along. The driver runs it; the end of the
//! session cancels its orders, and waits until they are gone.

use crate::scope::{
    cause::DisposalCause,
    check::Setup,
    definition::OpId,
    effect::{Contents, Emitted, Feed},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, streams: u32) {
    let ports = 1 + streams as usize;
    setup.ports(at, ports, ports);
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    machine.run(op, Feed::One(message));
}

/// Passes the result on; a stream that was never sent by counts as a disposal.
pub(crate) fn answered<M, C: Contents<M>>(
    machine: &mut Machine<'_, M, C>,
    op: OpId,
    streams: u32,
    emitted: Emitted<M>,
) {
    match emitted {
        Emitted::One(port, message) => machine.send(op, port, message),
        Emitted::Nothing => machine.dispose(op, 0, DisposalCause::Filtered),
        Emitted::Many(list) => {
            if !list.iter().any(|(port, _)| *port == 0) {
                machine.dispose(op, 0, DisposalCause::Filtered);
            }
            for (port, message) in list {
                if port > 0 {
                    machine.note_streamed(op, port);
                }
                machine.send(op, port, message);
            }
        }
    }
    for port in 1..=streams {
        if !machine.session.streamed.contains(&(op, port)) {
            machine.dispose(op, port, DisposalCause::UnusedStream);
        }
    }
}
