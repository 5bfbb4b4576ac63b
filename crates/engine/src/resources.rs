//! State that the tasks of one process share, found by its type: a connection pool, a client, settings. Resources are
//! not part of a run: they are not stored, and do not decide what runs again.

use std::{
    any::{Any, TypeId, type_name},
    collections::BTreeMap,
    fmt,
    sync::Arc,
};

/// A set of resources, one of each type.
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
    /// The need for a resource of this type.
    pub fn of<T: Send + Sync + 'static>() -> Self {
        Need { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// The name of the type, for people.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Resources {
    /// Adds a resource. Replaces one of the same type.
    pub fn add<T: Send + Sync + 'static>(&mut self, resource: T) {
        self.all.insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(resource)));
    }

    /// The resource of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let (_, found) = self.all.get(&TypeId::of::<T>())?;
        found.clone().downcast().ok()
    }

    /// A resource that meets this need is present.
    pub fn has(&self, need: &Need) -> bool {
        self.all.contains_key(&need.id)
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.values().map(|(name, _)| name)).finish()
    }
}
