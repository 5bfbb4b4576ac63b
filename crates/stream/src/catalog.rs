//! Catalogs: the ids a receiver has seen.
//!
//! | module | the ids it holds |
//! |---|---|
//! | [`intervals`] | numbers of records per producer, between stages: absolute, and as small as there are gaps |
//! | [`segments`] | 128-bit hashes of ids that clients chose: sorted segments, merged as they grow |
//! | [`filter`] | a Bloom filter in front of a bucket of segments: answers "new" without a look-up, or "maybe" |

pub mod filter;
pub mod intervals;
pub mod segments;
