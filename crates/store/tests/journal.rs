//! What the journal promises of a disk that fails: what was acknowledged is there, what was refused is not, and what is
//! damaged is refused rather than guessed at.

#[path = "journal/damage.rs"]
mod damage;
#[path = "journal/power.rs"]
mod power;
#[path = "journal/space.rs"]
mod space;
#[path = "journal/support.rs"]
mod support;
#[path = "journal/together.rs"]
mod together;
