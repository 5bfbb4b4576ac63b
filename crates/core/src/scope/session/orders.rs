//! The orders of a session that are under way. An order is answered once: an answer to one that is not there counts for
//! nothing, so a duplicate cannot be counted twice.

use crate::{
    scope::{definition::OpId, effect::OrderId},
    seams,
};
use serde::{Deserialize, Serialize};

/// The operation or cleanup flow that an order works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderKind {
    /// An operation.
    Op(OpId),
    /// A cleanup flow.
    Cleanup(u32),
}

/// One order.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// The turn of the next order: no two orders of a session have the same.
    turns: u32,
    /// Orders that came, changed or went since they were last asked for, if they are asked for at all.
    touched: Option<Vec<OrderId>>,
    /// The turns that began before this had a row when changes were last asked for.
    stored: u32,
    /// In a session that ends: orders in the slots before this one have been told.
    untold: usize,
}

impl Orders {
    pub(crate) fn add(&mut self, kind: OrderKind) -> OrderId {
        let open = Some(Open { kind, is_cancelled: false, trims: Vec::new() });
        let turn = self.turns;
        self.turns = self.turns.wrapping_add(1);
        let id = match self.free.pop() {
            Some(slot) => {
                let place = &mut self.slots[slot as usize];
                assert!(place.1.is_none(), "slot {slot} is free and taken");
                *place = (turn, open);
                OrderId { slot, turn }
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than four billion orders at a time");
                self.slots.push((turn, open));
                OrderId { slot, turn }
            }
        };
        self.touch(id);
        id
    }

    fn touch(&mut self, id: OrderId) {
        if let Some(touched) = &mut self.touched {
            touched.push(id);
        }
    }

    /// Begins to note which orders change.
    pub(crate) fn record(&mut self) {
        self.touched = Some(Vec::new());
        self.stored = self.turns;
    }

    /// The orders that came, changed or went. One that has come and gone in between never had a row, and is left out.
    pub(crate) fn take_touched(&mut self) -> Vec<OrderId> {
        let mut touched = self.touched.as_mut().map(std::mem::take).unwrap_or_default();
        touched.sort_unstable();
        touched.dedup();
        let stored = std::mem::replace(&mut self.stored, self.turns);
        let turns = self.turns;
        let is_new = |order: &OrderId| turns.wrapping_sub(order.turn) <= turns.wrapping_sub(stored);
        touched.retain(|order| !is_new(order) || self.get(*order).is_some());
        touched
    }

    /// Begins to tell the orders that they must end.
    pub(crate) fn begin_telling(&mut self) {
        self.untold = self.next_untold(0);
    }

    /// Some orders must still be told.
    pub(crate) fn has_untold(&self) -> bool {
        self.untold < self.slots.len()
    }

    /// Tells the next orders, so many at most.
    pub(crate) fn tell(&mut self, most: usize) -> Vec<OrderId> {
        let mut told = Vec::new();
        while told.len() < most && self.untold < self.slots.len() {
            let at = self.untold;
            if let (turn, Some(open)) = &mut self.slots[at]
                && !std::mem::replace(&mut open.is_cancelled, true)
            {
                told.push(OrderId { slot: u32::try_from(at).expect("slots are numbered in 32 bits"), turn: *turn });
            }
            self.untold = self.next_untold(at + 1);
        }
        told.iter().for_each(|order| self.touch(*order));
        told
    }

    fn next_untold(&self, from: usize) -> usize {
        let is_untold = |(_, place): &(u32, Option<Open>)| place.as_ref().is_some_and(|open| !open.is_cancelled);
        let rest = self.slots.get(from..).unwrap_or_default();
        rest.iter().position(is_untold).map_or(self.slots.len(), |at| from + at)
    }

    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    pub(crate) fn set_turns(&mut self, turns: u32) {
        self.turns = turns;
    }

    /// Puts an order back into its slot.
    pub(crate) fn restore(&mut self, id: OrderId, open: Open) {
        let slot = id.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, (0, None));
        }
        self.slots[slot] = (id.turn, Some(open));
    }

    /// Finds the free slots after orders were put back.
    pub(crate) fn rebuild_free(&mut self) {
        self.free = (0..).zip(&self.slots).filter(|(_, (_, place))| place.is_none()).map(|(slot, _)| slot).collect();
    }

    /// All orders, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OrderId, &Open)> {
        (0..).zip(&self.slots).filter_map(|(slot, (turn, place))| {
            let id = OrderId { slot, turn: *turn };
            place.as_ref().map(move |open| (id, open))
        })
    }

    pub(crate) fn get_mut(&mut self, order: OrderId) -> Option<&mut Open> {
        self.get(order)?;
        self.touch(order);
        self.slots[order.slot as usize].1.as_mut()
    }

    pub(crate) fn get(&self, order: OrderId) -> Option<&Open> {
        let (turn, place) = self.slots.get(order.slot as usize)?;
        if seams::is_turn_of(*turn, order.turn) { place.as_ref() } else { None }
    }

    pub(crate) fn remove(&mut self, order: OrderId) -> Option<Open> {
        let (turn, place) = self.slots.get_mut(order.slot as usize)?;
        if !seams::is_turn_of(*turn, order.turn) {
            return None;
        }
        let open = place.take()?;
        self.free.push(order.slot);
        self.touch(order);
        Some(open)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
