//! Turns data of tasks into payloads of rows and back: small data travels in rows, large data becomes stored values.
//!
//! | module | what it owns |
//! |---|---|
//! | `look` | digests of data, without storing any of it |
//! | `outline` | the structure of data, without its content |
//! | `store` | data becomes payloads, and values to be put |
//! | `load` | payloads become data; files are where a task finds them |
//! | `small` | small files as files |
//! | `whole` | checks that stored data is still there and intact |
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
