//! The Redis backend on real servers: the contract, the model, and what happens when servers and connections fail.

mod contract;
mod objects;
mod server;
