//! The guarantees of planning: golden tests, brute-force proofs on all small cases, and laws on seeded large ones.

mod brute;
mod every;
mod fused;
mod golden;
mod interpret;
mod late;
mod law;
mod notation;
mod programs;
mod rng;
mod sampled;
mod scale;
mod special;
mod valid;
