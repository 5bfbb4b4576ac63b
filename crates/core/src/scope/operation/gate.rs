//! Opens or closes buffers for their readers, then passes the message on. A closed buffer keeps what it gets; opening
//! it wakes its readers once, with all that is there.

use crate::scope::{
    check::Setup,
    definition::{GateAction, OpId},
    effect::{Contents, Emitted, Feed},
    operation::{join, listen},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, buffers: &[OpId], action: GateAction) {
    setup.ports(at, 1, 1);
    let buffers = setup.buffers(at, buffers);
    if action == GateAction::Close {
        return;
    }
    // Opening wakes readers: a gate supports those of its buffers.
    let readers = setup.draft.ops.iter().zip((0..).map(OpId)).filter(|(op, _)| match &op.kind {
        crate::scope::OpKind::Join { inputs } => inputs.iter().any(|input| buffers.contains(&input.buffer)),
        crate::scope::OpKind::Listen { buffers: read, .. } => read.iter().any(|buffer| buffers.contains(buffer)),
        _ => false,
    });
    let readers: Vec<OpId> = readers.map(|(_, reader)| reader).collect();
    readers.into_iter().for_each(|reader| setup.supports(at, reader));
}

pub(crate) fn execute<M, C: Contents<M>>(
    machine: &mut Machine<'_, M, C>,
    op: OpId,
    buffers: &[OpId],
    action: GateAction,
    message: M,
) {
    match action {
        GateAction::Dynamic => machine.run(op, Feed::One(message)),
        GateAction::Open | GateAction::Close => {
            turn(machine, buffers, action == GateAction::Close);
            machine.send(op, 0, message);
        }
    }
}

/// Takes the decision of a dynamic gate's body: port 0 opens, port 1 closes.
pub(crate) fn answered<M, C: Contents<M>>(
    machine: &mut Machine<'_, M, C>,
    op: OpId,
    buffers: &[OpId],
    emitted: Emitted<M>,
) {
    match emitted {
        Emitted::Nothing => machine.dispose(op, 0, crate::scope::DisposalCause::Filtered),
        Emitted::One(port, message) => {
            turn(machine, buffers, port == 1);
            machine.send(op, 0, message);
        }
        Emitted::Many(list) => list.into_iter().for_each(|(port, message)| {
            turn(machine, buffers, port == 1);
            machine.send(op, 0, message);
        }),
    }
}

fn turn<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, buffers: &[OpId], is_closed: bool) {
    for buffer in buffers {
        let store = machine.store_mut(*buffer);
        let is_same = std::mem::replace(&mut store.is_closed, is_closed) == is_closed;
        let has_entries = !store.entries.is_empty();
        if is_same {
            continue;
        }
        if is_closed {
            if has_entries {
                join::input_lost(machine, *buffer);
            }
            if let Some(reach) = &mut machine.session.reach {
                reach.recheck(*buffer);
            }
        } else if has_entries {
            join::input_gained(machine, *buffer);
            join::woken(machine, *buffer);
            listen::woken(machine, *buffer, None);
        }
    }
}
