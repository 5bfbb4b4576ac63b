//! Products that implement [`Records`](crate::Records).

pub mod memory;
#[cfg(unix)]
pub mod socket;

mod clock;
