//! Every backend, held to the contract. To add one, add a line: a name, and a closure that makes an empty store
//! in the world it is given.

use onceflow_store::{Records, backend::memory::Memory, records_contract};
use std::sync::Arc;

records_contract!(memory, async |world| Arc::new(Memory::new(world)) as Arc<dyn Records>);
