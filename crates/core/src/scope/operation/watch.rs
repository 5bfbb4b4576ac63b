//! A message whenever one of the watched operations disposes of one; the disposal itself is its content.

use crate::scope::{
    check::{ScopeFault, Setup},
    definition::OpId,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, of: &[OpId]) {
    setup.ports(at, 1, 1);
    for watched in of {
        if watched.at() >= setup.draft.ops.len() {
            setup.fault(ScopeFault::UnknownOperation(setup.op(at).name.clone()));
            continue;
        }
        setup.supports(*watched, at);
        setup.wiring.watchers[watched.at()].push(at);
    }
}
