//! Keys to its buffers whenever one of them has changed. Its own keys' writes do not wake it, unless it asks for that;
//! neither does a join that takes entries.

use crate::scope::{
    check::Setup,
    definition::{OpId, OpKind},
    effect::{Contents, Feed},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, buffers: &[OpId]) {
    setup.ports(at, 1, 1);
    for buffer in setup.buffers(at, buffers) {
        setup.supports(buffer, at);
        // Its keys can write.
        setup.supports(at, buffer);
        let slot = setup.wiring.slot[buffer.at()] as usize;
        setup.wiring.listens_of[slot].push(at);
    }
}

/// A buffer has changed, by a key of the operation `by` if there is one.
pub(crate) fn woken<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, buffer: OpId, by: Option<OpId>) {
    let scope = machine.scope;
    for listen in &scope.wiring.listens_of[scope.slot(buffer)] {
        let OpKind::Listen { buffers, own_writes } = &scope.op(*listen).kind else {
            unreachable!("listed as a listen")
        };
        if by != Some(*listen) || *own_writes {
            machine.issue_keys(buffers);
            machine.run(*listen, Feed::Keys(None));
        }
    }
}
