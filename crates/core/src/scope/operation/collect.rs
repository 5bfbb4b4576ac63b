//! Gathers messages, and gives them on together: when there are `max`, or when none can arrive any more. Fewer than
//! `min` are disposed of. On a cycle it may give again what came round.

use crate::scope::{
    cause::DisposalCause,
    check::{ScopeFault, Setup},
    definition::{OpId, OpKind},
    effect::{Contents, Feed, ScopeEffect},
    session::Machine,
};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, min: u32, max: Option<u32>) {
    setup.ports(at, 1, 1);
    if max.is_some_and(|max| max == 0 || max < min) {
        setup.fault(ScopeFault::Bounds(setup.op(at).name.clone()));
    }
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, max: Option<u32>, message: M) {
    let collection = &mut machine.session.collections[machine.scope.slot(op)];
    collection.held.push(message);
    if max.is_some_and(|max| collection.held.len() >= max as usize) {
        give(machine, op);
    }
}

fn give<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId) {
    let collection = &mut machine.session.collections[machine.scope.slot(op)];
    collection.has_given = true;
    let held = collection.held.take().collect();
    machine.run(op, Feed::Many(held));
}

/// Nothing can arrive any more: gives what there is if that is enough, or disposes of it. An empty collection is given
/// once, if none is needed.
pub(crate) fn give_what_is_there<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId) -> bool {
    let OpKind::Collect { min, .. } = machine.scope.op(op).kind else { unreachable!("asked of collects only") };
    let collection = &mut machine.session.collections[machine.scope.slot(op)];
    let held = u32::try_from(collection.held.len()).unwrap_or(u32::MAX);
    if held >= min && (held > 0 || !collection.has_given) {
        give(machine, op);
        return true;
    }
    if held > 0 || !collection.has_given {
        // A collect that found too few is settled: it would find fewer if it were asked again.
        collection.has_given = true;
        clean(machine, op);
        machine.dispose(op, 0, DisposalCause::Deficient { held, min });
    }
    false
}

pub(crate) fn clean<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId) {
    let held = machine.session.collections[machine.scope.slot(op)].held.take();
    machine.effects.extend(held.map(ScopeEffect::Drop));
}
