//! The contract of every blob store, and a blob store that fails as planned.
//!
//! ```
//! # use onceflow_store::{blobs::Objects, testing::blobs};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! blobs::contract(async || Objects::memory()).await;
//! # }
//! ```

mod contract;
mod faulty;

pub use contract::{contract, contract_of_large, contract_of_races};
pub use faulty::{Faulty, contract_under_faults};

use crate::blobs::ByteStream;
use bytes::Bytes;
use futures_util::{StreamExt, stream};

/// `len` bytes that differ by seed and place, in chunks of at most `chunk`, made while they are read.
pub fn generated(seed: u64, len: u64, chunk: usize) -> ByteStream {
    let make = move |at: u64| {
        let take = (len - at).min(chunk as u64);
        (take > 0).then(|| (Ok(generated_at(seed, at, take as usize)), at + take))
    };
    stream::unfold(0, move |at| std::future::ready(make(at))).boxed()
}

/// The bytes that [`generated`] gives from `at` on.
pub fn generated_at(seed: u64, at: u64, len: usize) -> Bytes {
    let word = |n: u64| (n ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_le_bytes();
    let words = (at / 8)..(at + len as u64).div_ceil(8);
    let bytes: Bytes = words.flat_map(word).collect::<Vec<u8>>().into();
    let skip = (at % 8) as usize;
    bytes.slice(skip..skip + len)
}
