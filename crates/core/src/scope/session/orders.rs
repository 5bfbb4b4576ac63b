//! The orders of a session that are under way. An order is answered once: an answer to one that is not there counts for
//! nothing, so a duplicate cannot be counted twice.

use crate::scope::{definition::OpId, effect::OrderId};

/// The operation or cleanup flow that an order works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    /// An operation.
    Op(OpId),
    /// A cleanup flow.
    Cleanup(u32),
}

/// One order.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) kind: OrderKind,
    /// It was told to end.
    pub(crate) is_cancelled: bool,
    /// Trims that wait for its end, by slot.
    pub(crate) trims: Vec<u32>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    slots: Vec<(u32, Option<Open>)>,
    free: Vec<u32>,
}

impl Orders {
    pub(crate) fn add(&mut self, kind: OrderKind) -> OrderId {
        let open = Some(Open { kind, is_cancelled: false, trims: Vec::new() });
        match self.free.pop() {
            Some(slot) => {
                let (turn, place) = &mut self.slots[slot as usize];
                assert!(place.is_none(), "slot {slot} is free and taken");
                *turn = turn.wrapping_add(1);
                *place = open;
                OrderId { slot, turn: *turn }
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than four billion orders at a time");
                self.slots.push((0, open));
                OrderId { slot, turn: 0 }
            }
        }
    }

    pub(crate) fn get_mut(&mut self, order: OrderId) -> Option<&mut Open> {
        let (turn, place) = self.slots.get_mut(order.slot as usize)?;
        if *turn == order.turn { place.as_mut() } else { None }
    }

    pub(crate) fn get(&self, order: OrderId) -> Option<&Open> {
        let (turn, place) = self.slots.get(order.slot as usize)?;
        if *turn == order.turn { place.as_ref() } else { None }
    }

    pub(crate) fn remove(&mut self, order: OrderId) -> Option<Open> {
        let (turn, place) = self.slots.get_mut(order.slot as usize)?;
        if *turn != order.turn {
            return None;
        }
        let open = place.take()?;
        self.free.push(order.slot);
        Some(open)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All orders, by slot.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (OrderId, &mut Open)> {
        (0..).zip(&mut self.slots).filter_map(|(slot, (turn, place))| {
            let id = OrderId { slot, turn: *turn };
            place.as_mut().map(move |open| (id, open))
        })
    }
}
