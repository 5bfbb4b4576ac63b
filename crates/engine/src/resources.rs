//! State that the tasks of one process share, found by its type: a pool of connections, a client, settings. It is no part of a
//! run: it is not stored, and what runs again is not decided by it.

use std::{
    any::{Any, TypeId, type_name},
    collections::BTreeMap,
    fmt,
    sync::Arc,
};

/// One of each type.
#[derive(Clone, Default)]
pub struct Resources {
    all: BTreeMap<TypeId, (&'static str, Arc<dyn Any + Send + Sync>)>,
}

/// A resource that a task takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    id: TypeId,
    name: &'static str,
}

impl Need {
    /// One of this type.
    pub fn of<T: Send + Sync + 'static>() -> Self {
        Need { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// The type, for people.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Resources {
    /// One more. One of the same type is replaced.
    pub fn add<T: Send + Sync + 'static>(&mut self, resource: T) {
        self.all.insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(resource)));
    }

    /// The one of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let (_, found) = self.all.get(&TypeId::of::<T>())?;
        found.clone().downcast().ok()
    }

    /// Whether there is one.
    pub fn has(&self, need: &Need) -> bool {
        self.all.contains_key(&need.id)
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.values().map(|(name, _)| name)).finish()
    }
}
