//! Products that implement [`Records`](crate::Records).

pub mod embedded;
pub mod held;
pub mod journal;
pub mod memory;
pub mod paged;
#[cfg(feature = "redis")]
pub mod redis;
pub mod socket;

mod clock;
mod error;
mod front;
mod shared;
