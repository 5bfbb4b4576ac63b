//! The journal's promises on a disk that fails: acknowledged batches are there, refused ones are not, and damage is
//! refused rather than guessed at.

mod damage;
mod power;
mod space;
mod support;
mod together;
