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
        embedded::{Embedded, EmbeddedBackend},
        journal::{ExpectedStore, Journal, Options},
        memory::Memory,
        paged::{Options as PagedOptions, Paged},
        socket::{Socket, Welcome, serve},
    },
    records_contract,
    testing::{disk::Disk, keep::keep, world::TestWorld},
};
use std::sync::Arc;

fn journal(world: Arc<dyn World>) -> Arc<dyn Records> {
    Arc::new(Journal::open(Arc::new(Disk::new()), Options::default(), world).expect("an empty disk opens").0)
}

fn paged(world: Arc<dyn World>) -> Arc<dyn Records> {
    let opened = Paged::open(Arc::new(Disk::new()), PagedOptions::default(), world, ExpectedStore::Unknown);
    Arc::new(opened.expect("an empty disk opens").0)
}

records_contract!(memory, async |world| Arc::new(Memory::new(world)) as Arc<dyn Records>);
records_contract!(journal, async |world| journal(world), seeds: 30);
records_contract!(paged, async |world| paged(world), seeds: 30);
records_contract!(socket, guest_of_memory, seeds: 60);
records_contract!(embedded_owner, async |world| owner_and_guest(world, Options::default()).await.0, seeds: 20);
records_contract!(embedded_guest, async |world| owner_and_guest(world, Options::default()).await.1, seeds: 20);
records_contract!(paged_owner, async |world| owner_and_guest(world, PagedOptions::default()).await.0, seeds: 10);
records_contract!(paged_guest, async |world| owner_and_guest(world, PagedOptions::default()).await.1, seeds: 10);

// A wrapper must keep every promise of the store it wraps.
records_contract!(kept_memory, async |world| keep(Arc::new(Memory::new(world)), ()), seeds: 3);

/// Memory, through a socket.
async fn guest_of_memory(world: Arc<TestWorld>) -> Arc<dyn Records> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let welcome = Welcome { opening: 0, holder: "the test".into() };
    let server = serve(listener, Arc::new(Memory::new(world.clone())), welcome, world.clone());
    let socket = Socket::connect(&path, &*world).await.unwrap();
    keep(Arc::new(socket), (server, dir))
}

/// A directory, as its owner has it and as a guest has it.
async fn owner_and_guest(
    world: Arc<TestWorld>,
    backend: impl Into<EmbeddedBackend>,
) -> (Arc<dyn Records>, Arc<dyn Records>) {
    let (dir, backend) = (Arc::new(tempfile::tempdir().unwrap()), backend.into());
    let owner = Embedded::open(dir.path(), backend.clone(), world.clone()).await.unwrap();
    let guest = Embedded::open(dir.path(), backend, world.clone()).await.unwrap();
    (keep(owner.clone(), (guest.clone(), dir.clone())), keep(guest, (owner, dir)))
}
