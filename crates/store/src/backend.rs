//! Products that implement [`Records`](crate::Records).

pub mod memory;

mod clock;
