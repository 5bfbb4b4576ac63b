//! The limits and contradictions that make an update invalid, whatever the store holds.

use super::{
    super::{Content, EdgeName, Error, ValueId, limits},
    Asked, EdgeMove,
};
use onceflow_core::{Batch, Op, limits as batch_limits};
use std::collections::BTreeSet;

pub(super) fn check(asked: &Asked<'_>) -> Result<(), Error> {
    for put in &asked.puts {
        check_id(put.id)?;
        put.value.refs.iter().try_for_each(check_id)?;
        at_most("references of a value", put.value.refs.len(), limits::REFS_PER_VALUE_MAX, "REFS_PER_VALUE_MAX")?;
        if let Content::Gathered { prefix, .. } = &put.value.content {
            at_most("bytes in a prefix", prefix.as_bytes().len(), limits::ID_BYTES_MAX, "ID_BYTES_MAX")?;
        }
    }
    let mut named = BTreeSet::new();
    for change in &asked.edges {
        check_edge(change)?;
        if !named.insert(&change.edge) {
            return Err(Error::Senseless(format!("edge {} stands twice in one update", change.edge)));
        }
    }
    Ok(())
}

fn check_id(id: &ValueId) -> Result<(), Error> {
    let bytes = id.as_bytes().len();
    if bytes == 0 {
        return Err(Error::Senseless("a value's id is empty".into()));
    }
    at_most("bytes in a value's id", bytes, limits::ID_BYTES_MAX, "ID_BYTES_MAX")
}

fn check_edge(change: &EdgeMove<'_>) -> Result<(), Error> {
    let bytes = change.edge.name().as_bytes().len();
    at_most("bytes in an edge's name", bytes, limits::ID_BYTES_MAX, "ID_BYTES_MAX")?;
    change.to.map_or(Ok(()), check_id)?;
    match (change.until, &change.edge, change.to) {
        (Some(_), EdgeName::Element { .. }, _) => {
            Err(Error::Senseless(format!("element {} cannot be a lease: its list owns it", change.edge)))
        }
        (Some(_), _, None) => Err(Error::Senseless(format!("edge {} cannot be cleared for a time", change.edge))),
        _ => Ok(()),
    }
}

/// Checks that one batch can hold the update.
pub(super) fn fits(batch: &Batch) -> Result<(), Error> {
    let ops = batch.ops.iter().map(|op| 1 + op.trigger().len()).sum();
    at_most("operations of an update", ops, limits::UPDATE_OPS_MAX, "UPDATE_OPS_MAX")?;
    let requires = batch.requires.len();
    at_most("conditions of an update", requires, batch_limits::BATCH_REQUIRES_MAX, "BATCH_REQUIRES_MAX")?;
    let bytes = batch.ops.iter().map(bytes).sum();
    at_most("bytes put by an update", bytes, batch_limits::BATCH_BYTES_MAX, "BATCH_BYTES_MAX")
}

fn bytes(op: &Op) -> usize {
    match op {
        Op::Put(_, row) => row.len(),
        _ => 0,
    }
}

pub(super) fn at_most(what: &'static str, found: usize, limit: usize, name: &'static str) -> Result<(), Error> {
    if found <= limit { Ok(()) } else { Err(Error::TooLarge { what, found, limit, name }) }
}
