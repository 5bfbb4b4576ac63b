//! The scopes that are measured: the same shapes as the peer's.

use anyhow::Context;
use onceflow::scope::{BufferKeep, Scope};

/// Maps that add one each, in a row.
pub(super) fn chain(maps: usize) -> anyhow::Result<Scope<u64, u64>> {
    let build = Scope::build(|s| {
        let mut chain = s.start();
        for _ in 0..maps {
            chain = chain.map(|x: u64| x + 1);
        }
        chain.terminate(s);
    });
    build.context("a chain of maps")
}

/// A clone for each branch, a map in each, and a join of all.
pub(super) fn fanout(branches: usize) -> anyhow::Result<Scope<u64, u64>> {
    let build = Scope::build(|s| {
        let chains = s.start().fork_clone_to(branches).into_iter().zip(0u64..);
        let buffers: Vec<_> = chains
            .map(|(chain, branch)| {
                let buffer = s.buffer(BufferKeep::All);
                chain.map(move |x: u64| x + branch).store(buffer);
                buffer
            })
            .collect();
        s.join(buffers).map(|all: Vec<u64>| all.iter().sum::<u64>()).terminate(s);
    });
    build.context("a fan-out with a join")
}

/// So many futures that wait for ever, beside a way to terminate that none of them takes.
pub(super) fn pending(operations: usize) -> anyhow::Result<Scope<u64, u64>> {
    let build = Scope::build(|s| {
        for chain in s.start().fork_clone_to(operations) {
            chain.map_async(|_: u64| std::future::pending::<u64>()).terminate(s);
        }
    });
    build.context("futures that wait for ever")
}

/// A list whose elements pass a row of maps and are all disposed of but the last. So every disposal asks whether the
/// session can still end, in a scope of so many operations.
pub(super) fn disposals(maps: usize) -> anyhow::Result<Scope<Vec<u64>, u64>> {
    let build = Scope::build(|s| {
        let kept = s.start().spread().filter_map(|x: u64| (x == LAST).then_some(x));
        let mut chain = kept;
        for _ in 0..maps {
            chain = chain.map(|x: u64| x + 1);
        }
        chain.terminate(s);
    });
    build.context("a row of maps behind a filter")
}

/// The only element that a filter lets through.
pub(super) const LAST: u64 = u64::MAX / 2;
