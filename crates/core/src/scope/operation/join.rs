//! One message of one entry of each buffer, whenever all have one and none is closed. Entries are taken oldest first,
//! until a buffer is empty. A join that only copies gives once for each change, because it would never empty one.

use crate::scope::{
    check::Setup,
    definition::{JoinInput, OpId, OpKind},
    effect::{Contents, Feed},
    operation::Support,
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, inputs: &[JoinInput]) {
    setup.ports(at, 1, 1);
    let buffers: Vec<OpId> = inputs.iter().map(|input| input.buffer).collect();
    for buffer in setup.buffers(at, &buffers) {
        setup.supports(buffer, at);
        let slot = setup.wiring.slot[buffer.at()] as usize;
        setup.wiring.joins_of[slot].push(at);
    }
}

/// A buffer that was empty or closed has something to show: fewer are lacking.
pub(crate) fn input_gained<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, buffer: OpId) {
    for join in &machine.scope.wiring.joins_of[machine.scope.slot(buffer)] {
        machine.session.lacking[machine.scope.slot(*join)] -= 1;
    }
}

/// A buffer has nothing to show any more.
pub(crate) fn input_lost<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, buffer: OpId) {
    for join in &machine.scope.wiring.joins_of[machine.scope.slot(buffer)] {
        machine.session.lacking[machine.scope.slot(*join)] += 1;
    }
}

/// Gives as often as the buffers allow, after one of them has got an entry or was opened.
pub(crate) fn woken<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, buffer: OpId) {
    let scope = machine.scope;
    for join in &scope.wiring.joins_of[scope.slot(buffer)] {
        let OpKind::Join { inputs } = &scope.op(*join).kind else { unreachable!("listed as a join") };
        while machine.session.lacking[scope.slot(*join)] == 0 {
            let parts = inputs.iter().map(|input| part(machine, *input)).collect();
            machine.run(*join, Feed::Many(parts));
            for input in inputs.iter().filter(|input| !input.by_clone) {
                super::listen::woken(machine, input.buffer, Some(*join));
            }
            if inputs.iter().all(|input| input.by_clone) {
                break;
            }
        }
    }
}

fn part<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, input: JoinInput) -> M {
    let oldest = "a join that lacks nothing finds an entry in every buffer";
    if input.by_clone {
        let entry = machine.store(input.buffer).entries.front().expect(oldest);
        machine.contents.duplicate(input.buffer, entry)
    } else {
        machine.take_entry(input.buffer, 0).expect(oldest)
    }
}

pub(crate) fn reachable(inputs: &[JoinInput]) -> Support<'_> {
    Support::All(inputs)
}
