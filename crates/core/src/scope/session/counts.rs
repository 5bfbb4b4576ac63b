//! The number of rows that a session has, by kind. Its own row has these numbers, so a row that was lost, or one too many, is
//! noticed: by the next writer, which does not go on with it, and by a check of the store, which names the kind.

use super::saved::{SavedOrder, SavedPhase};
use crate::{key::Name, protocol::rows::read, row::Row, scope::effect::OrderId};
use serde::{Deserialize, Serialize};

/// A kind of row: the first byte of its name, and what such a row is called.
const KINDS: [(u8, &str); 8] = [
    (b'b', "an entry of a buffer"),
    (b'c', "a message of a collection"),
    (b't', "a message that waits for a trim"),
    (b'o', "an order"),
    (b'p', "the state of an operation"),
    (b'd', "a disposal"),
    (b'm', "the mark of a stream"),
    (b'x', "a problem of the cleanup"),
];

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowCounts([u32; KINDS.len()]);

impl RowCounts {
    fn place(kind: u8) -> Option<usize> {
        KINDS.iter().position(|(of, _)| *of == kind)
    }

    /// There are so many rows of a kind.
    ///
    /// # Panics
    /// If rows of this kind are not counted.
    pub(crate) fn set(&mut self, kind: u8, count: usize) {
        let place = Self::place(kind).expect("rows of this kind are counted");
        self.0[place] = u32::try_from(count).expect("fewer than four billion rows of a session");
    }

    /// Counts a row, unless its kind is not counted.
    pub(crate) fn add(&mut self, name: &Name) {
        let place = name.as_bytes().first().and_then(|kind| Self::place(*kind));
        if let Some(place) = place {
            self.0[place] = self.0[place].saturating_add(1);
        }
    }

    /// Says how these rows differ from those that should be there.
    fn differences(&self, should: &RowCounts) -> Vec<String> {
        let each = KINDS.iter().zip(self.0.iter().zip(should.0)).filter(|(_, (is, should))| **is != *should);
        let words = |((_, what), (is, should)): (&(u8, &str), (&u32, u32))| match is.cmp(&should) {
            std::cmp::Ordering::Less => format!("{what} is missing: {is} of {should} rows are there"),
            _ => format!("{what} is kept that nothing needs: {is} rows are there, and {should} should be"),
        };
        each.map(words).collect()
    }
}

/// Reports rows of a session that are missing or too many, and a state that does not fit them.
pub fn check_rows<'a>(rows: impl IntoIterator<Item = (&'a Name, &'a Row)>) -> Vec<String> {
    let (mut counts, mut own, mut outcome) = (RowCounts::default(), None, false);
    let mut orders = Vec::new();
    for (name, row) in rows {
        counts.add(name);
        match name.as_bytes() {
            super::SESSION_ROW => own = read::<(SavedPhase, u64, u32, RowCounts)>(row),
            b"r" => outcome = true,
            [b'o', ..] => orders.extend(read::<SavedOrder>(row).map(|saved| saved.id)),
            _ => {}
        }
    }
    // Before its first turn a session has none of these rows.
    let (phase, turns, should) = match own {
        Some((phase, _, turns, should)) => (Some(phase), turns, should),
        None => (None, 0, RowCounts::default()),
    };
    let mut found = counts.differences(&should);
    let ends = matches!(phase, Some(SavedPhase::CleaningOperations | SavedPhase::CleaningBuffers));
    match (ends, outcome) {
        (true, false) => found.push(String::from("its result, or why it was cancelled, is missing")),
        (false, true) => found.push(String::from("a result is kept though it has not ended")),
        _ => {}
    }
    let ahead = orders.iter().filter(|order| !is_before(**order, turns));
    found.extend(
        ahead.map(|order| format!("order {} has a number that is not given yet: the next is {turns}", order.turn)),
    );
    found
}

/// The order was begun before the order of this turn. Turns may wrap around.
pub(crate) fn is_before(order: OrderId, turn: u32) -> bool {
    turn.wrapping_sub(order.turn) as i32 > 0
}
