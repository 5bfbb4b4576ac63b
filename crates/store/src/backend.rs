//! Products that implement [`Records`](crate::Records).

pub mod journal;
pub mod memory;
#[cfg(unix)]
pub mod socket;

mod clock;
