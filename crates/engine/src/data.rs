//! Data as tasks see it, and payloads as rows hold it: what is small travels itself, what is large becomes a value.
//!
//! | module | what it owns |
//! |---|---|
//! | `look` | what data is, without storing any of it |
//! | `outline` | the structure of data, without its content |
//! | `store` | data becomes payloads, and values to be put |
//! | `load` | payloads become data; files are where a task finds them |
//! | `small` | small files as files |
//! | `whole` | whether data is still in the store as it was put there |
//! | `lists` | lists in the store: gathered, in one value, or in pages |

mod lists;
mod load;
mod look;
mod outline;
mod small;
mod store;
mod whole;

pub(crate) use lists::{Lists, elements, gathered};
pub(crate) use load::{Scratch, load_all, load_inputs, load_into, peek};
pub(crate) use look::{Looked, look, sources};
pub use outline::ValueOutline;
pub(crate) use outline::outline;
pub use small::ALIVE;
pub(crate) use small::SmallFiles;
pub(crate) use small::{lock_name, scratch_name};
pub(crate) use store::{Files, Storing};
pub(crate) use whole::broken;
