//! Every backend, held to the contract and compared with the model. To add one, add a line: a name, and a closure
//! that makes an empty store in the world it is given. What must live as long as the store, such as its directory,
//! goes into `keep(store, directory)`.
//!
//! ```ignore
//! records_contract!(mine, async |world| {
//!     let directory = tempfile::tempdir().unwrap();
//!     keep(Arc::new(Mine::open(directory.path(), world).await.unwrap()), directory)
//! });
//! ```
//!
//! `ONCEFLOW_LONG=1` tries ten times as many seeds.

use onceflow_store::{
    Records, World,
    backend::{
        journal::{Journal, Options},
        memory::Memory,
    },
    records_contract,
    testing::{disk::Disk, keep::keep},
};
use std::sync::Arc;

fn journal(world: Arc<dyn World>) -> Arc<dyn Records> {
    Arc::new(Journal::open(Arc::new(Disk::new()), Options::default(), world).expect("an empty disk opens").0)
}

records_contract!(memory, async |world| Arc::new(Memory::new(world)) as Arc<dyn Records>);
records_contract!(journal, async |world| journal(world), seeds: 30);

// A wrapper must keep every promise that what it wraps keeps.
records_contract!(kept_memory, async |world| keep(Arc::new(Memory::new(world)), ()), seeds: 3);
