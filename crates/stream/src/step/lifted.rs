//! The half of a lifted combine in front of the shuffle: one partial value per key, window and bundle.
//!
//! Keys keep their place from bundle to bundle, because most of them come again: a record of a key that was seen costs a
//! look-up and an addition, and no memory. Only the places that a bundle has touched are sent with it.

use super::KeyedRecord;
use crate::{
    combine::{Combine, Partial},
    data::{self, StreamData},
    event_time::EventTime,
    run::{
        bundle::Bundle,
        chain::{AnyPush, Push, any},
        hashed::{HashedMap, hash_of},
    },
    window::Windowing,
};
use onceflow_core::Name;
use std::marker::PhantomData;

/// Partial values that one bundle may have; with more, they are sent on.
const PARTIALS_MAX: usize = 1 << 16;

/// Places of keys that are kept between bundles; with more, all are forgotten.
const PLACES_KEPT_MAX: usize = 1 << 16;

/// Bytes of names that are kept between bundles: keys may be long, so their number says little.
const NAME_BYTES_KEPT_MAX: usize = 4 << 20;

/// Sends the partial values of a combine on an edge.
pub(crate) fn lifted_sender<K: StreamData, C: Combine>(combine: C, windowing: Windowing, edge: usize) -> AnyPush {
    any::<KeyedRecord<K, C::In>>(Lifted::<K, C> {
        combine,
        windowing,
        edge,
        places: HashedMap::default(),
        name_bytes: 0,
        partials: Vec::new(),
        touched: Vec::new(),
        name: Vec::new(),
        of: PhantomData,
    })
}

struct Lifted<K, C: Combine> {
    combine: C,
    windowing: Windowing,
    edge: usize,
    /// By the hash of a window's end and a key, the place of their partial value, or the first of several.
    places: HashedMap<u32>,
    name_bytes: usize,
    /// By place.
    partials: Vec<Place<C::Acc>>,
    /// The places of this bundle in order of their first record, so that equal bundles send equal blocks.
    touched: Vec<u32>,
    name: Vec<u8>,
    of: PhantomData<fn(K)>,
}

struct Place<A> {
    /// The window's end and the key.
    name: Name,
    /// The next place whose name has the same hash.
    next: Option<u32>,
    /// Of the records of this bundle, if there are any.
    partial: Option<Partial<A>>,
    earliest: EventTime,
}

impl<K: StreamData, C: Combine> Lifted<K, C> {
    /// Returns the place of the current name, which gets one if it is new.
    fn place(&mut self) -> usize {
        let hash = hash_of(&self.name);
        let first = self.places.get(&hash).copied();
        let mut found = first;
        while let Some(at) = found {
            let place = &self.partials[at as usize];
            if place.name.as_bytes() == self.name {
                return at as usize;
            }
            found = place.next;
        }
        let at = self.partials.len();
        self.name_bytes += self.name.len();
        let name = Name::new(&self.name);
        self.partials.push(Place { name, next: first, partial: None, earliest: EventTime::MAX });
        self.places.insert(hash, u32::try_from(at).expect("places are bounded"));
        at
    }
}

impl<K: StreamData, C: Combine> Push<KeyedRecord<K, C::In>> for Lifted<K, C> {
    fn push(&mut self, bundle: &mut Bundle, record: KeyedRecord<K, C::In>, time: EventTime) {
        let mut end = EventTime::MAX;
        self.windowing.kind.assign(time, |window| end = window.end);
        self.name.clear();
        self.name.extend_from_slice(&end.to_sortable());
        self.name = data::encode_into(std::mem::take(&mut self.name), &record.key);
        let at = self.place();
        let place = &mut self.partials[at];
        if place.partial.is_none() {
            self.touched.push(u32::try_from(at).expect("places are bounded"));
        }
        let partial = place.partial.get_or_insert_with(|| Partial { acc: self.combine.identity(), records: 0 });
        self.combine.add(&mut partial.acc, record.value);
        partial.records += 1;
        // The earliest is in the same window as all others, and holds the watermark for them.
        place.earliest = time.min(place.earliest);
        if self.touched.len() >= PARTIALS_MAX {
            self.flush(bundle);
        }
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        let mut value = Vec::new();
        for at in self.touched.drain(..) {
            let place = &mut self.partials[at as usize];
            let partial = place.partial.take().expect("a place that was touched has records");
            let time = std::mem::replace(&mut place.earliest, EventTime::MAX);
            value.clear();
            value = data::encode_into(value, &partial);
            bundle.send(self.edge, &place.name.as_bytes()[8..], &value, time);
        }
        if self.partials.len() > PLACES_KEPT_MAX || self.name_bytes > NAME_BYTES_KEPT_MAX {
            self.places.clear();
            self.partials.clear();
            self.name_bytes = 0;
        }
    }
}
