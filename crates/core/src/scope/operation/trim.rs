//! Cleans a part of the scope as the end of the session would, waits until that is done, and passes the message on.

use crate::scope::{
    cause::DisposalCause,
    check::{ScopeFault, Setup},
    definition::{OpId, TrimSpan},
    effect::{Contents, ScopeEffect},
    operation,
    session::{Machine, orders::OrderKind},
};
use std::collections::BTreeSet;

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId, span: TrimSpan) {
    setup.ports(at, 1, 1);
    let (first, last) = match span {
        TrimSpan::Point(op) | TrimSpan::Downstream(op) => (op, op),
        TrimSpan::Between(first, last) => (first, last),
    };
    if first.at().max(last.at()) >= setup.draft.ops.len() || first == at || last == at {
        setup.fault(ScopeFault::UnknownOperation(setup.op(at).name.clone()));
    }
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId, message: M) {
    let slot = machine.scope.slot(op);
    let trimmed = &machine.scope.wiring.trimmed[slot];
    let is_trimmed = |op: &OpId| trimmed.binary_search(op).is_ok();
    let mut hit: BTreeSet<OpId> = BTreeSet::new();
    for (target, message) in std::mem::take(&mut machine.session.queue) {
        if is_trimmed(&target) {
            hit.insert(target);
            operation::refuse(machine, target, message);
        } else {
            machine.session.queue.push_back((target, message));
        }
    }
    for target in trimmed {
        operation::clean(machine, *target);
    }
    let number = u32::try_from(slot).expect("operations are numbered in 32 bits");
    let mut waits = 0;
    let orders = &machine.session.orders;
    let concerned = orders.iter().filter_map(|(order, open)| match open.kind {
        OrderKind::Op(target) => (is_trimmed(&target) && !open.trims.contains(&number)).then_some((order, target)),
        OrderKind::Cleanup(_) => None,
    });
    let concerned: Vec<_> = concerned.collect();
    for (order, target) in concerned {
        hit.insert(target);
        if let Some(open) = machine.session.orders.get_mut(order) {
            open.trims.push(number);
            waits += 1;
            if !std::mem::replace(&mut open.is_cancelled, true) {
                machine.effects.push_back(ScopeEffect::Cancel { order });
            }
        }
    }
    for target in hit {
        machine.dispose(target, 0, DisposalCause::Trimmed);
    }
    let (waiting, held) = &mut machine.session.trims[slot];
    *waiting += waits;
    if *waiting == 0 {
        machine.send(op, 0, message);
    } else {
        held.push(message);
        if held.len() == 1 {
            machine.activate(op);
        }
    }
}

/// One order that a trim waits for has ended.
pub(crate) fn acknowledged<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, slot: u32) {
    let (waiting, held) = &mut machine.session.trims[slot as usize];
    *waiting -= 1;
    if *waiting > 0 || held.is_empty() {
        return;
    }
    let op = machine.scope.wiring.trims[slot as usize];
    for message in held.take().collect::<Vec<_>>() {
        machine.send(op, 0, message);
    }
    machine.deactivate(op);
}

pub(crate) fn clean<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, op: OpId) {
    let slot = machine.scope.slot(op);
    let held = &mut machine.session.trims[slot].1;
    if !held.is_empty() {
        machine.effects.extend(held.take().map(ScopeEffect::Drop));
        machine.deactivate(op);
    }
}
