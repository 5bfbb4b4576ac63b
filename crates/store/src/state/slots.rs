//! A map whose entry found last is found again by one comparison. A batch names the same queue, the same step and the same
//! run a dozen times in a row: hashing each time was most of the work.

use super::hash::Hashing;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Slots that are kept although far fewer are used.
const SPARE_SLOTS_MAX: usize = 1024;

/// Values by key, each in a slot whose number stays the same while the key is there.
#[derive(Debug)]
pub(super) struct Slots<K, V> {
    slots: Vec<Option<(K, V)>>,
    vacant: Vec<u32>,
    index: HashMap<K, u32, Hashing>,
    /// The slot found last. Only a hint: it may be vacant or beyond the end.
    last: AtomicU32,
}

impl<K, V> Default for Slots<K, V> {
    fn default() -> Self {
        Slots { slots: Vec::new(), vacant: Vec::new(), index: HashMap::default(), last: AtomicU32::new(0) }
    }
}

impl<K: Clone, V: Clone> Clone for Slots<K, V> {
    fn clone(&self) -> Self {
        let last = AtomicU32::new(self.last.load(Relaxed));
        Slots { slots: self.slots.clone(), vacant: self.vacant.clone(), index: self.index.clone(), last }
    }
}

impl<K: Clone + Eq + Hash, V> Slots<K, V> {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The slot of a key.
    #[inline]
    pub(super) fn find(&self, key: &K) -> Option<u32> {
        let last = self.last.load(Relaxed);
        if let Some(Some((found, _))) = self.slots.get(last as usize)
            && found == key
        {
            return Some(last);
        }
        let found = *self.index.get(key)?;
        self.last.store(found, Relaxed);
        Some(found)
    }

    #[inline]
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|slot| &self.at(slot).1)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).map(|slot| self.at_mut(slot))
    }

    /// The slot of a key, which gets `make()` if it is new.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: &K, make: impl FnOnce() -> V) -> u32 {
        self.find(key).unwrap_or_else(|| self.insert(key, make()))
    }

    fn insert(&mut self, key: &K, value: V) -> u32 {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("memory ends long before the numbers of slots do")
        });
        self.slots[slot as usize] = Some((key.clone(), value));
        self.index.insert(key.clone(), slot);
        self.last.store(slot, Relaxed);
        slot
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.index.remove(key)?;
        let (_, value) = self.slots[slot as usize].take().expect("the index names only used slots");
        self.vacant.push(slot);
        Some(value)
    }

    /// The key and value of a used slot.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> &(K, V) {
        self.slots[slot as usize].as_ref().expect("a slot is asked for while its key is there")
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut V {
        &mut self.slots[slot as usize].as_mut().expect("a slot is asked for while its key is there").1
    }

    /// The value of a slot that may be vacant.
    #[inline]
    pub(super) fn if_used(&mut self, slot: u32) -> Option<(&K, &mut V)> {
        self.slots.get_mut(slot as usize)?.as_mut().map(|(key, value)| (&*key, value))
    }

    /// Far more slots are kept than are used: [`Slots::compact`] would free memory.
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.slots.len() > SPARE_SLOTS_MAX && self.index.len() < self.slots.len() / 8
    }

    /// Frees the vacant slots. Every key may get another slot; answers the new number of each old one.
    pub(super) fn compact(&mut self) -> HashMap<u32, u32, Hashing> {
        let mut moved = HashMap::default();
        let old = std::mem::take(&mut self.slots);
        self.vacant = Vec::new();
        self.index.shrink_to_fit();
        for (before, used) in (0..).zip(old) {
            let Some((key, value)) = used else { continue };
            let slot = self.slots.len() as u32;
            moved.insert(before, slot);
            *self.index.get_mut(&key).expect("a used slot is in the index") = slot;
            self.slots.push(Some((key, value)));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_slots_while_others_come_and_go() {
        let mut slots = Slots::default();
        let numbers: Vec<u32> = (0..10).map(|key| slots.find_or_insert(&key, || key * 10)).collect();
        for key in (0..10).step_by(2) {
            assert_eq!(slots.remove(&key), Some(key * 10));
            assert_eq!(slots.find(&key), None);
        }
        slots.find_or_insert(&77, || 770);
        for key in (1..10).step_by(2) {
            assert_eq!(slots.find(&key), Some(numbers[key as usize]));
            assert_eq!(slots.get(&key), Some(&(key * 10)));
        }
        assert_eq!((slots.len(), slots.get(&77)), (6, Some(&770)));
    }

    #[test]
    fn compacting_frees_the_vacant_slots_and_keeps_every_value() {
        const MANY: u32 = 10_000;
        let mut slots = Slots::default();
        for key in 0..MANY {
            slots.find_or_insert(&key, || key);
        }
        (0..MANY).filter(|key| key % 100 != 0).for_each(|key| assert_eq!(slots.remove(&key), Some(key)));
        assert!(slots.is_sparse());
        let moved = slots.compact();
        assert!(!slots.is_sparse());
        assert_eq!(moved.len(), slots.len());
        for key in (0..MANY).step_by(100) {
            assert_eq!(slots.find(&key), moved.get(&key).copied(), "at first a key's slot was the key");
            assert_eq!(slots.get(&key), Some(&key));
        }
    }
}
