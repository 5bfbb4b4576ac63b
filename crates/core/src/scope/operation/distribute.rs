//! Operations whose ports the content of a message decides: forks, unzip, split, spread and filters. The driver looks
//! into the message; ports that got nothing are disposals.

use crate::scope::{
    cause::DisposalCause,
    check::Setup,
    definition::{Distribution, OpId},
    effect::{Contents, Emitted, Feed},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, how: Distribution) {
    match how {
        Distribution::Fork => setup.ports(at, 2, usize::MAX),
        Distribution::Unzip | Distribution::Split => setup.ports(at, 1, usize::MAX),
        Distribution::Spread | Distribution::Filter => setup.ports(at, 1, 1),
    }
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    machine.run(op, Feed::One(message));
}

pub(crate) fn answered<M, C: Contents<M>>(
    machine: &mut Machine<'_, M, C>,
    op: OpId,
    how: Distribution,
    emitted: Emitted<M>,
) {
    let ports = u32::try_from(machine.scope.op(op).outputs.len()).expect("ports are numbered in 32 bits");
    let missing = match how {
        Distribution::Fork => DisposalCause::NotTaken,
        Distribution::Unzip | Distribution::Split => DisposalCause::MissingPart,
        Distribution::Spread => DisposalCause::EmptySpread,
        Distribution::Filter => DisposalCause::Filtered,
    };
    match emitted {
        Emitted::Nothing => (0..ports).for_each(|port| machine.dispose(op, port, missing.clone())),
        Emitted::One(port, message) => {
            machine.send(op, port, message);
            (0..ports).filter(|other| *other != port).for_each(|other| machine.dispose(op, other, missing.clone()));
        }
        Emitted::Many(list) => {
            let mut has = vec![false; ports as usize];
            for (port, message) in list {
                if let Some(has) = has.get_mut(port as usize) {
                    *has = true;
                }
                machine.send(op, port, message);
            }
            let lacking = (0..ports).zip(has).filter(|(_, has)| !has);
            lacking.for_each(|(port, _)| machine.dispose(op, port, missing.clone()));
        }
    }
}
