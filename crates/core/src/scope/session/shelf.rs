//! Messages that an operation holds, in the order they came. Each has a number that names its row, so that a durable
//! driver writes the ones that came and deletes the ones that went, and nothing else.

use std::collections::VecDeque;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Shelf<M> {
    next: u64,
    held: VecDeque<(u64, M)>,
    /// The numbers that came or went since they were last asked for, if they are asked for at all.
    touched: Option<Vec<u64>>,
    /// Messages with lower numbers had a row when changes were last asked for.
    stored: u64,
}

impl<M> Shelf<M> {
    pub(crate) fn new() -> Self {
        Shelf { next: 0, held: VecDeque::new(), touched: None, stored: 0 }
    }

    pub(crate) fn record(&mut self) {
        self.touched = Some(Vec::new());
        self.stored = self.next;
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&M> {
        self.held.front().map(|(_, message)| message)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &M> {
        self.held.iter().map(|(_, message)| message)
    }

    pub(crate) fn push(&mut self, message: M) {
        let number = self.next;
        self.next += 1;
        self.held.push_back((number, message));
        self.touch(number);
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<M> {
        let (number, message) = self.held.remove(index)?;
        self.touch(number);
        Some(message)
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = M> + use<M> {
        let held = std::mem::take(&mut self.held);
        if let Some(touched) = &mut self.touched {
            touched.extend(held.iter().map(|(number, _)| *number));
        }
        held.into_iter().map(|(_, message)| message)
    }

    /// Puts back a message under the number it was stored with. Numbers ascend.
    pub(crate) fn restore(&mut self, number: u64, message: M) {
        self.held.push_back((number, message));
        self.next = self.next.max(number + 1);
    }

    /// The numbers that came or went, with the message of those that are there. One that has come and gone in between
    /// never had a row, and is left out.
    pub(crate) fn take_touched(&mut self) -> Vec<(u64, Option<&M>)> {
        let mut touched = self.touched.as_mut().map(std::mem::take).unwrap_or_default();
        touched.sort_unstable();
        touched.dedup();
        let held = &self.held;
        let find = |number: u64| {
            let at = held.binary_search_by_key(&number, |(number, _)| *number).ok();
            (number, at.map(|at| &held[at].1))
        };
        let stored = std::mem::replace(&mut self.stored, self.next);
        touched.into_iter().map(find).filter(|(number, message)| *number < stored || message.is_some()).collect()
    }

    fn touch(&mut self, number: u64) {
        if let Some(touched) = &mut self.touched {
            touched.push(number);
        }
    }
}
