//! Products that implement [`Records`](crate::Records).

pub mod embedded;
pub mod journal;
pub mod memory;
pub mod socket;

mod clock;
mod shared;
