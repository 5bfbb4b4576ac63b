//! Checks that stored data is still there and intact, before a plan reuses it.

use super::lists::elements;
use crate::Error;
use onceflow_core::payload::{Outcome, Payload};
use onceflow_store::values::{ValueId, Values};

/// Elements of a stored list that are checked. Damage to others is found, and healed, when they are read.
const ELEMENTS_MAX: u32 = 10_000;

/// The values of this outcome that are missing or damaged, as far as a cheap check can tell; none if it can be read. A
/// list that cannot be read is one of them.
pub(crate) async fn broken(values: &Values, outcome: &Outcome) -> Result<Vec<ValueId>, Error> {
    let (mut ids, mut lists) = (Vec::new(), Vec::new());
    collect(outcome.value(), &mut ids, &mut lists);
    let mut unreadable = Vec::new();
    while let Some(list) = lists.pop() {
        let Payload::StoredList(stored) = &list else { continue };
        let len = u32::try_from(stored.len).unwrap_or(u32::MAX).min(ELEMENTS_MAX);
        match elements(values, &list, 0..len).await {
            Ok(found) => found.iter().for_each(|element| collect(element.value(), &mut ids, &mut lists)),
            Err(error) if error.is_damage() => unreadable.push(stored.id.clone()),
            Err(error) => return Err(error),
        }
    }
    let mut found = if ids.is_empty() { vec![] } else { values.integrity().broken_of(&ids).await? };
    found.extend(unreadable);
    Ok(found)
}

fn collect(payload: Option<&Payload>, ids: &mut Vec<ValueId>, lists: &mut Vec<Payload>) {
    match payload {
        None | Some(Payload::Inline(_)) => {}
        // Data that was only digested is not stored yet, and has no id.
        Some(Payload::Stored(stored) | Payload::File { content: stored, .. } | Payload::StoredList(stored))
            if stored.id.as_bytes().is_empty() => {}
        Some(Payload::Stored(stored) | Payload::File { content: stored, .. }) => ids.push(stored.id.clone()),
        Some(list @ Payload::StoredList(_)) => lists.push(list.clone()),
        Some(Payload::List(elements)) => elements.iter().for_each(|element| collect(element.as_ref(), ids, lists)),
    }
}
