//! Every backend, held to the contract. To add one, add a line: a name, and a closure that makes an empty store
//! in the world it is given.

use onceflow_store::{
    Records, World,
    backend::{
        journal::{Journal, Options},
        memory::Memory,
    },
    records_contract,
    testing::disk::Disk,
};
use std::sync::Arc;

fn journal(world: Arc<dyn World>) -> Arc<dyn Records> {
    Arc::new(Journal::open(Arc::new(Disk::new()), Options::default(), world).expect("an empty disk opens").0)
}

records_contract!(memory, async |world| Arc::new(Memory::new(world)) as Arc<dyn Records>);
records_contract!(journal, async |world| journal(world));
