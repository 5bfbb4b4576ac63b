//! The doors that take bytes, and what each promises, whatever it is given. A target panics if a promise is broken, and
//! answers in a few words how the input came out otherwise: an input that comes out as none before is worth keeping.

mod batches;
mod block;
mod expr;
mod flow;
mod ingest;
mod journal;
mod socket;

/// A door.
pub struct Target {
    /// What it is called.
    pub name: &'static str,
    /// Tries an input. The answer is short, and one of few.
    pub run: fn(&[u8]) -> String,
    /// Inputs that are made rather than written down.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What means something to it.
    pub words: &'static [&'static [u8]],
}

/// All of them.
pub static TARGETS: [Target; 7] =
    [flow::TARGET, expr::TARGET, journal::TARGET, socket::TARGET, batches::TARGET, block::TARGET, ingest::TARGET];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
