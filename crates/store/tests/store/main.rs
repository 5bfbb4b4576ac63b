//! The store and its backends against their promises, one file an idea. One binary, so that it is linked once.

mod blobs;
mod crash;
mod effects;
mod embedded;
mod journal;
mod paged;
mod records;
mod socket;
mod suite_notices;
mod values;
