//! Products that implement [`Records`](crate::Records).

pub mod journal;
pub mod memory;

mod clock;
