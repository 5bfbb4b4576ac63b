//! Buffers of a scope, and sets of them: tuples, lists and maps, to be joined or to get keys for.

use super::{
    builder::{value, value_ref},
    key::BufferKey,
};
use onceflow_core::scope::{JoinInput, OpId};
use onceflow_engine::scope::{Carrier, CopyBody, Packet};
use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

/// A buffer of a scope that is being built.
pub struct BufferRef<T> {
    pub(super) op: OpId,
    types: PhantomData<fn() -> T>,
}

impl<T> Clone for BufferRef<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for BufferRef<T> {}

impl<T> BufferRef<T> {
    pub(super) fn new(op: OpId) -> Self {
        BufferRef { op, types: PhantomData }
    }

    /// As an input of a join that copies the oldest entry instead of taking it.
    pub fn by_clone(self) -> ClonedBuffer<T>
    where
        T: Clone,
    {
        ClonedBuffer(self)
    }
}

/// A buffer whose oldest entry a join copies.
pub struct ClonedBuffer<T>(BufferRef<T>);

/// One input of a join.
pub trait JoinPart: Send + Sync + 'static {
    /// The type of its entries.
    type Item: Send + 'static;
    /// Which buffer, and how.
    fn input(&self) -> JoinInput;
    /// The way to copy its entries, if it needs one.
    fn copy(&self) -> Option<CopyBody>;
}

impl<T: Send + 'static> JoinPart for BufferRef<T> {
    type Item = T;
    fn input(&self) -> JoinInput {
        JoinInput { buffer: self.op, by_clone: false }
    }
    fn copy(&self) -> Option<CopyBody> {
        None
    }
}

impl<T: Clone + Send + 'static> JoinPart for ClonedBuffer<T> {
    type Item = T;
    fn input(&self) -> JoinInput {
        JoinInput { buffer: self.0.op, by_clone: true }
    }
    fn copy(&self) -> Option<CopyBody> {
        Some(Arc::new(|packet| Box::new(value_ref::<T>(packet).clone())))
    }
}

/// Buffers that are joined: a tuple, a list or a map of [`JoinPart`]s.
pub trait JoinSet: Send + Sync + 'static {
    /// One entry of each.
    type Joined: Send + 'static;
    /// The inputs, in order.
    fn inputs(&self) -> Vec<JoinInput>;
    /// Names the ways to copy entries.
    fn copies(&self, add: &mut dyn FnMut(OpId, CopyBody));
    /// Puts entries together.
    fn joined(&self, entries: &mut dyn Iterator<Item = Packet>) -> Self::Joined;
}

/// Buffers that keys are given for: a tuple, a list or a map of [`BufferRef`]s.
pub trait KeySet: Send + Sync + 'static {
    /// A key to each.
    type Keys: Send + 'static;
    /// The buffers, in order.
    fn buffers(&self) -> Vec<OpId>;
    /// Makes the keys.
    fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys;
}

fn next<T: 'static>(entries: &mut dyn Iterator<Item = Packet>) -> T {
    value(entries.next().expect("a join has an entry of each buffer"))
}

fn add_copy(part: &impl JoinPart, add: &mut dyn FnMut(OpId, CopyBody)) {
    if let Some(copy) = part.copy() {
        add(part.input().buffer, copy);
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),+) => {
        impl<$($name: JoinPart),+> JoinSet for ($($name,)+) {
            type Joined = ($($name::Item,)+);
            fn inputs(&self) -> Vec<JoinInput> {
                vec![$(self.$index.input()),+]
            }
            fn copies(&self, add: &mut dyn FnMut(OpId, CopyBody)) {
                $(add_copy(&self.$index, add);)+
            }
            fn joined(&self, entries: &mut dyn Iterator<Item = Packet>) -> Self::Joined {
                ($(next::<$name::Item>(entries),)+)
            }
        }
        impl<$($name: Send + 'static),+> KeySet for ($(BufferRef<$name>,)+) {
            type Keys = ($(BufferKey<$name>,)+);
            fn buffers(&self) -> Vec<OpId> {
                vec![$(self.$index.op),+]
            }
            fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys {
                ($(BufferKey::new(carrier.key(self.$index.op)),)+)
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);

impl<P: JoinPart> JoinSet for Vec<P> {
    type Joined = Vec<P::Item>;
    fn inputs(&self) -> Vec<JoinInput> {
        self.iter().map(JoinPart::input).collect()
    }
    fn copies(&self, add: &mut dyn FnMut(OpId, CopyBody)) {
        self.iter().for_each(|part| add_copy(part, add));
    }
    fn joined(&self, entries: &mut dyn Iterator<Item = Packet>) -> Self::Joined {
        entries.map(value).collect()
    }
}

impl<T: Send + 'static> KeySet for Vec<BufferRef<T>> {
    type Keys = Vec<BufferKey<T>>;
    fn buffers(&self) -> Vec<OpId> {
        self.iter().map(|buffer| buffer.op).collect()
    }
    fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys {
        self.iter().map(|buffer| BufferKey::new(carrier.key(buffer.op))).collect()
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, P: JoinPart> JoinSet for BTreeMap<K, P> {
    type Joined = BTreeMap<K, P::Item>;
    fn inputs(&self) -> Vec<JoinInput> {
        self.values().map(JoinPart::input).collect()
    }
    fn copies(&self, add: &mut dyn FnMut(OpId, CopyBody)) {
        self.values().for_each(|part| add_copy(part, add));
    }
    fn joined(&self, entries: &mut dyn Iterator<Item = Packet>) -> Self::Joined {
        self.keys().cloned().zip(entries.map(value)).collect()
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, T: Send + 'static> KeySet for BTreeMap<K, BufferRef<T>> {
    type Keys = BTreeMap<K, BufferKey<T>>;
    fn buffers(&self) -> Vec<OpId> {
        self.values().map(|buffer| buffer.op).collect()
    }
    fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys {
        let key = |buffer: &BufferRef<T>| BufferKey::new(carrier.key(buffer.op));
        self.iter().map(|(name, buffer)| (name.clone(), key(buffer))).collect()
    }
}
