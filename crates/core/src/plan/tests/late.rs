//! Answers questions late and out of order.

use super::rng::Rng;
use crate::plan::{Frontier, MissingValues, Resume, Vertex};

/// Runs with answers delayed at random, and given in random order.
pub(super) fn run_late<'g>(
    mut resume: Resume<'g>,
    rng: &mut Rng,
    has: impl Fn(Vertex) -> bool,
) -> Result<Frontier<'g>, MissingValues> {
    let mut open = Vec::new();
    while let Some(questions) = resume.questions() {
        open.extend(questions);
        for _ in 0..=rng.below(open.len() as u64) {
            let vertex = open.swap_remove(rng.below(open.len() as u64) as usize);
            resume.answer(vertex, has(vertex));
            if open.is_empty() {
                break;
            }
        }
    }
    resume.finish()
}
