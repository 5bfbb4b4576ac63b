//! The promises of planning: goldens, proofs by brute force on all small cases, and laws on seeded large ones.

mod brute;
mod every;
mod golden;
mod late;
mod notation;
mod rng;
mod sampled;
