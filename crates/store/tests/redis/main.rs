//! The Redis backend on real servers: the contract, the model, and what happens when servers and connections fail.

mod burial;
mod cluster;
mod contract;
mod objects;
mod proxy;
mod server;
mod silent;
