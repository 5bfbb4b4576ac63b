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
    },
    window::Windowing,
};
use foldhash::fast::FixedState;
use std::{collections::HashMap, marker::PhantomData};

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
        places: HashMap::default(),
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
    /// The place of a partial value, by its window's end and its key.
    places: HashMap<Box<[u8]>, u32, FixedState>,
    name_bytes: usize,
    /// By place.
    partials: Vec<Place<C::Acc>>,
    /// The places of this bundle in order of their first record, so that equal bundles send equal blocks.
    touched: Vec<u32>,
    name: Vec<u8>,
    of: PhantomData<fn(K)>,
}

struct Place<A> {
    name: Box<[u8]>,
    /// Of the records of this bundle, if there are any.
    partial: Option<Partial<A>>,
    earliest: EventTime,
}

impl<K: StreamData, C: Combine> Lifted<K, C> {
    /// Returns the place of the current name, which gets one if it is new.
    fn place(&mut self) -> usize {
        if let Some(at) = self.places.get(self.name.as_slice()) {
            return *at as usize;
        }
        let at = self.partials.len();
        let name: Box<[u8]> = self.name.as_slice().into();
        self.name_bytes += name.len();
        self.partials.push(Place { name: name.clone(), partial: None, earliest: EventTime::MAX });
        self.places.insert(name, u32::try_from(at).expect("places are bounded"));
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
            bundle.send(self.edge, &place.name[8..], &value, time);
        }
        if self.partials.len() > PLACES_KEPT_MAX || self.name_bytes > NAME_BYTES_KEPT_MAX {
            self.places.clear();
            self.partials.clear();
            self.name_bytes = 0;
        }
    }
}
