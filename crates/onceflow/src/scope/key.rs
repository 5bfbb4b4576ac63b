//! A key to a buffer of one session.

use super::medium::{Light, Message};
use onceflow_engine::scope::{BufferChange, ErasedKey, Packet};
use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

/// Reads and writes a buffer of its own session, from anywhere. While one exists the buffer may still get messages; the
/// session notices when the last one is dropped.
pub struct BufferKey<T> {
    key: ErasedKey,
    types: PhantomData<fn() -> T>,
}

fn value<T: Send + 'static>(packet: Packet) -> T {
    <T as Message<Light>>::unpack(packet).unwrap_or_else(|why| panic!("{why}"))
}

impl<T> Clone for BufferKey<T> {
    fn clone(&self) -> Self {
        BufferKey { key: self.key.clone(), types: PhantomData }
    }
}

impl<T: Send + 'static> BufferKey<T> {
    pub(super) fn new(key: ErasedKey) -> Self {
        BufferKey { key, types: PhantomData }
    }

    /// Adds an entry, as far as the buffer keeps entries.
    ///
    /// # Errors
    /// The value, when the session is done.
    pub fn push(&self, value_: T) -> Result<(), T> {
        self.key.push(Box::new(value_)).map_err(value)
    }

    /// Takes the oldest entry. A closed buffer shows none, except to cleanup flows.
    pub fn pull(&self) -> Option<T> {
        self.key.pull(false).map(value)
    }

    /// Takes the newest entry.
    pub fn pull_newest(&self) -> Option<T> {
        self.key.pull(true).map(value)
    }

    /// Takes all entries, the oldest first.
    pub fn drain(&self) -> Vec<T> {
        std::iter::from_fn(|| self.pull()).collect()
    }

    /// Copies the oldest entry: the one that [`BufferKey::pull`], and any join, would take.
    pub fn fetch(&self) -> Option<T>
    where
        T: Clone,
    {
        self.fetch_all().into_iter().next()
    }

    /// Copies all entries, the oldest first.
    pub fn fetch_all(&self) -> Vec<T>
    where
        T: Clone,
    {
        let copy = |packet: &Packet| <T as Message<Light>>::look(packet, T::clone);
        self.key.read(|packet| copy(packet).unwrap_or_else(|why| panic!("{why}")))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.key.len()
    }

    /// There are no entries.
    pub fn is_empty(&self) -> bool {
        self.key.is_empty()
    }

    /// Ends when the buffer has changed since this was called.
    pub fn changed(&self) -> Changed {
        Changed(self.key.changed())
    }
}

/// A wait for a change of a buffer; see [`BufferKey::changed`].
pub struct Changed(BufferChange);

impl Future for Changed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}
