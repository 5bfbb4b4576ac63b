//! Buffers of a scope, and sets of them: tuples, lists and maps, to be joined, read together, or handed to cleanup flows.

use super::{
    key::BufferKey,
    medium::{Buffers, Durable, Light, Medium, Message},
};
use onceflow_core::scope::{JoinInput, OpId};
use onceflow_engine::scope::{BufferAccess, Carrier};
use std::{collections::BTreeMap, marker::PhantomData};

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
pub trait JoinPart<M: Medium>: Send + Sync + 'static {
    /// The type of its entries.
    type Item: Message<M>;
    /// Which buffer, and how.
    fn input(&self) -> JoinInput;
    /// The way to copy its entries, if it needs one.
    #[doc(hidden)]
    fn copy(&self) -> Option<M::Copy>;
}

impl<T: Message<M>, M: Medium> JoinPart<M> for BufferRef<T> {
    type Item = T;
    fn input(&self) -> JoinInput {
        JoinInput { buffer: self.op, by_clone: false }
    }
    fn copy(&self) -> Option<M::Copy> {
        None
    }
}

impl<T: Message<M> + Clone, M: Medium> JoinPart<M> for ClonedBuffer<T> {
    type Item = T;
    fn input(&self) -> JoinInput {
        JoinInput { buffer: self.0.op, by_clone: true }
    }
    fn copy(&self) -> Option<M::Copy> {
        M::copy::<T>()
    }
}

/// Buffers that are joined: a tuple, a list or a map of [`JoinPart`]s.
pub trait JoinSet<M: Medium>: Send + Sync + 'static {
    /// One entry of each.
    type Joined: Send + 'static;
    /// The inputs, in order.
    fn inputs(&self) -> Vec<JoinInput>;
    /// Names the ways to copy entries.
    #[doc(hidden)]
    fn copies(&self, add: &mut dyn FnMut(OpId, M::Copy));
    /// Puts entries together.
    #[doc(hidden)]
    fn joined(&self, entries: &mut dyn Iterator<Item = M::Packet>) -> Result<Self::Joined, String>;
}

/// Some buffers: a tuple, a list or a map of [`BufferRef`]s.
pub trait BufferSet: Send + Sync + 'static {
    /// The buffers, in order.
    fn buffers(&self) -> Vec<OpId>;
}

/// Buffers that keys are given for, in memory.
pub trait KeySet: BufferSet {
    /// A key to each.
    type Keys: Send + 'static;
    /// Makes the keys.
    fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys;
}

/// Buffers whose entries are handed over together.
pub trait EntrySet: BufferSet {
    /// A list of the entries of each.
    type Entries: Send + 'static;
    /// Takes the entries.
    #[doc(hidden)]
    fn take(&self, access: &mut BufferAccess<'_>) -> Result<Self::Entries, String>;
}

/// Buffers that a cleanup flow is given: keys to them in a scope in memory ([`KeySet`]), their entries in a durable one
/// ([`EntrySet`]).
pub trait Handed<M: Medium>: BufferSet {
    /// The first message of the flow.
    type Given: Send + 'static;
    /// The code of the flow.
    #[doc(hidden)]
    fn cleanup(self, flow: M::Compiled) -> M::Cleanup;
}

impl<B: KeySet> Handed<Light> for B {
    type Given = B::Keys;

    fn cleanup(self, scope: <Light as Medium>::Compiled) -> <Light as Medium>::Cleanup {
        let first = move |carrier: &Carrier<'_>| Box::new(self.keys(carrier)) as <Light as Medium>::Packet;
        onceflow_engine::scope::CleanupBody { scope, first: std::sync::Arc::new(first) }
    }
}

impl<B: EntrySet> Handed<Durable> for B
where
    B::Entries: Message<Durable>,
{
    type Given = B::Entries;

    fn cleanup(self, scope: <Durable as Medium>::Compiled) -> <Durable as Medium>::Cleanup {
        // A panic of it is the flow's failure.
        let first = move |access: &mut BufferAccess<'_>| {
            let packed = self.take(access).and_then(Message::<Durable>::pack);
            packed.unwrap_or_else(|why| panic!("{why}"))
        };
        onceflow_engine::scope::DurableCleanup { scope, first: std::sync::Arc::new(first) }
    }
}

/// Access to buffers of a session, for a function that ends at once: see [`Chain::access_with`].
///
/// [`Chain::access_with`]: super::Chain::access_with
pub struct Access<'a, M: Medium = Light> {
    session: &'a dyn Buffers<M>,
    /// Those that the operation has asked for.
    buffers: &'a [OpId],
}

impl<'a, M: Medium> Access<'a, M> {
    pub(super) fn new(session: &'a dyn Buffers<M>, buffers: &'a [OpId]) -> Self {
        Access { session, buffers }
    }

    /// # Panics
    /// Ends the order, if the operation has not asked for the buffer: reachability would not know of it.
    fn of<T>(&self, buffer: BufferRef<T>) -> OpId {
        assert!(self.buffers.contains(&buffer.op), "a function uses a buffer that its operation has not asked for");
        buffer.op
    }

    /// Copies all entries, the oldest first. A closed buffer shows none.
    ///
    /// # Panics
    /// Ends the order, if the operation has not asked for the buffer.
    pub fn entries<T: Message<M> + Clone>(&self, buffer: BufferRef<T>) -> Vec<T> {
        let mut entries = Vec::new();
        self.session.read(self.of(buffer), &mut |packet| entries.push(unpacked(T::look(packet, T::clone))));
        entries
    }

    /// The number of entries that the buffer shows.
    ///
    /// # Panics
    /// Ends the order, if the operation has not asked for the buffer.
    pub fn len<T>(&self, buffer: BufferRef<T>) -> usize {
        let mut count = 0;
        self.session.read(self.of(buffer), &mut |_| count += 1);
        count
    }

    /// Takes the oldest entry.
    ///
    /// # Panics
    /// Ends the order, if the operation has not asked for the buffer.
    pub fn pull<T: Message<M>>(&self, buffer: BufferRef<T>) -> Option<T> {
        self.session.pull(self.of(buffer), false).map(|packet| unpacked(T::unpack(packet)))
    }

    /// Takes the newest entry.
    ///
    /// # Panics
    /// Ends the order, if the operation has not asked for the buffer.
    pub fn pull_newest<T: Message<M>>(&self, buffer: BufferRef<T>) -> Option<T> {
        self.session.pull(self.of(buffer), true).map(|packet| unpacked(T::unpack(packet)))
    }

    /// Takes all entries, the oldest first.
    ///
    /// # Panics
    /// Ends the order, if the operation has not asked for the buffer.
    pub fn drain<T: Message<M>>(&self, buffer: BufferRef<T>) -> Vec<T> {
        std::iter::from_fn(|| self.pull(buffer)).collect()
    }

    /// Adds an entry, as far as the buffer keeps entries.
    ///
    /// # Panics
    /// Ends the order, if the operation has not asked for the buffer.
    pub fn push<T: Message<M>>(&self, buffer: BufferRef<T>, value: T) {
        self.session.push(self.of(buffer), unpacked(value.pack()));
    }
}

/// User code runs around this: a panic ends its order, with these words.
fn unpacked<T>(value: Result<T, String>) -> T {
    value.unwrap_or_else(|why| panic!("{why}"))
}

fn next<T: Message<M>, M: Medium>(entries: &mut dyn Iterator<Item = M::Packet>) -> Result<T, String> {
    T::unpack(entries.next().expect("a join has an entry of each buffer"))
}

fn add_copy<M: Medium>(part: &impl JoinPart<M>, add: &mut dyn FnMut(OpId, M::Copy)) {
    if let Some(copy) = part.copy() {
        add(part.input().buffer, copy);
    }
}

fn taken<T: Message<Durable>>(access: &mut BufferAccess<'_>, buffer: BufferRef<T>) -> Result<Vec<T>, String> {
    access.pull_all(buffer.op).into_iter().map(T::unpack).collect()
}

macro_rules! tuples {
    ($($name:ident $index:tt),+) => {
        impl<M: Medium, $($name: JoinPart<M>),+> JoinSet<M> for ($($name,)+) {
            type Joined = ($($name::Item,)+);
            fn inputs(&self) -> Vec<JoinInput> {
                vec![$(self.$index.input()),+]
            }
            fn copies(&self, add: &mut dyn FnMut(OpId, M::Copy)) {
                $(add_copy::<M>(&self.$index, add);)+
            }
            fn joined(&self, entries: &mut dyn Iterator<Item = M::Packet>) -> Result<Self::Joined, String> {
                Ok(($(next::<$name::Item, M>(entries)?,)+))
            }
        }
        impl<$($name: Send + 'static),+> BufferSet for ($(BufferRef<$name>,)+) {
            fn buffers(&self) -> Vec<OpId> {
                vec![$(self.$index.op),+]
            }
        }
        impl<$($name: Send + 'static),+> KeySet for ($(BufferRef<$name>,)+) {
            type Keys = ($(BufferKey<$name>,)+);
            fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys {
                ($(BufferKey::new(carrier.key(self.$index.op)),)+)
            }
        }
        impl<$($name: Message<Durable>),+> EntrySet for ($(BufferRef<$name>,)+) {
            type Entries = ($(Vec<$name>,)+);
            fn take(&self, access: &mut BufferAccess<'_>) -> Result<Self::Entries, String> {
                Ok(($(taken(access, self.$index)?,)+))
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

impl<M: Medium, P: JoinPart<M>> JoinSet<M> for Vec<P> {
    type Joined = Vec<P::Item>;
    fn inputs(&self) -> Vec<JoinInput> {
        self.iter().map(JoinPart::input).collect()
    }
    fn copies(&self, add: &mut dyn FnMut(OpId, M::Copy)) {
        self.iter().for_each(|part| add_copy(part, add));
    }
    fn joined(&self, entries: &mut dyn Iterator<Item = M::Packet>) -> Result<Self::Joined, String> {
        entries.map(P::Item::unpack).collect()
    }
}

impl<T: Send + 'static> BufferSet for Vec<BufferRef<T>> {
    fn buffers(&self) -> Vec<OpId> {
        self.iter().map(|buffer| buffer.op).collect()
    }
}

impl<T: Send + 'static> KeySet for Vec<BufferRef<T>> {
    type Keys = Vec<BufferKey<T>>;
    fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys {
        self.iter().map(|buffer| BufferKey::new(carrier.key(buffer.op))).collect()
    }
}

impl<T: Message<Durable>> EntrySet for Vec<BufferRef<T>> {
    type Entries = Vec<Vec<T>>;
    fn take(&self, access: &mut BufferAccess<'_>) -> Result<Self::Entries, String> {
        self.iter().map(|buffer| taken(access, *buffer)).collect()
    }
}

impl<M: Medium, K: Ord + Clone + Send + Sync + 'static, P: JoinPart<M>> JoinSet<M> for BTreeMap<K, P> {
    type Joined = BTreeMap<K, P::Item>;
    fn inputs(&self) -> Vec<JoinInput> {
        self.values().map(JoinPart::input).collect()
    }
    fn copies(&self, add: &mut dyn FnMut(OpId, M::Copy)) {
        self.values().for_each(|part| add_copy(part, add));
    }
    fn joined(&self, entries: &mut dyn Iterator<Item = M::Packet>) -> Result<Self::Joined, String> {
        self.keys().zip(entries).map(|(key, packet)| Ok((key.clone(), P::Item::unpack(packet)?))).collect()
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, T: Send + 'static> BufferSet for BTreeMap<K, BufferRef<T>> {
    fn buffers(&self) -> Vec<OpId> {
        self.values().map(|buffer| buffer.op).collect()
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, T: Send + 'static> KeySet for BTreeMap<K, BufferRef<T>> {
    type Keys = BTreeMap<K, BufferKey<T>>;
    fn keys(&self, carrier: &Carrier<'_>) -> Self::Keys {
        let key = |buffer: &BufferRef<T>| BufferKey::new(carrier.key(buffer.op));
        self.iter().map(|(name, buffer)| (name.clone(), key(buffer))).collect()
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, T: Message<Durable>> EntrySet for BTreeMap<K, BufferRef<T>> {
    type Entries = BTreeMap<K, Vec<T>>;
    fn take(&self, access: &mut BufferAccess<'_>) -> Result<Self::Entries, String> {
        self.iter().map(|(name, buffer)| Ok((name.clone(), taken(access, *buffer)?))).collect()
    }
}
