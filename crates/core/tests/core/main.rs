//! Pure decisions, one file an idea. One binary, so that it is linked once.

mod model;
mod protocol;
mod tidy;
