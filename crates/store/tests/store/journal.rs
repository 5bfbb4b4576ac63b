//! What the journal promises of a disk that fails: what was acknowledged is there, what was refused is not, and what is
//! damaged is refused rather than guessed at.

mod damage;
mod power;
mod space;
mod support;
mod together;
