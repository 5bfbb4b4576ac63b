//! Proves that values, edges, counts, queues and indexes fit together, and repairs what does not.
//!
//! It reads every row and computes again what follows from the truth: references, edges, debts. What contradicts it
//! is a *problem* if something could be freed too early or read wrongly, and a *leak* if something would stay for
//! ever. Repair changes rows only if they are as they were read; whatever should then go, the normal reclaim takes.
//!
//! A value that cannot be saved (a flipped byte, a missing row, a cycle) becomes a placeholder that reads as
//! [`Error::Lost`], so that whoever refers to it learns of it when it looks, and everyone else goes on.

mod cycle;
mod judge;
mod read;
mod repair;

pub use judge::Finding;

use super::{Error, Values, id::ValueId};
use std::fmt;

/// What [`Values::fsck`] may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only look.
    Check,
    /// Change what is wrong.
    Repair,
}

/// What [`Values::fsck`] found; when it repaired, what it found first.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Values there are, in use or not.
    pub values: usize,
    /// Edges there are.
    pub edges: usize,
    /// What might be freed too early or read wrongly.
    pub problems: Vec<Finding>,
    /// What would stay for ever.
    pub leaks: Vec<Finding>,
    /// Values that earlier repairs had to give up and that are still referred to.
    pub lost: Vec<ValueId>,
    /// Whether nothing changed while it read. If something did, findings may only look like some.
    pub exact: bool,
}

impl Report {
    /// Whether there is nothing to repair.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.leaks.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { values, edges, problems, leaks, lost, exact } = self;
        write!(f, "{} problems, {} leaks in {values} values and {edges} edges", problems.len(), leaks.len())?;
        problems.iter().try_for_each(|finding| write!(f, "\nproblem: {finding}"))?;
        leaks.iter().try_for_each(|finding| write!(f, "\nleak: {finding}"))?;
        lost.iter().try_for_each(|id| write!(f, "\nnote: value {id} is lost and still referred to"))?;
        if *exact { Ok(()) } else { f.write_str("\nnote: the store changed meanwhile; look again when it is at rest") }
    }
}

impl Values {
    /// Reads everything and says what does not fit. Takes memory for all rows.
    ///
    /// With [`Mode::Repair`] it goes on until nothing is found; call [`Values::reclaim`] afterwards.
    pub async fn fsck(&self, mode: Mode) -> Result<Report, Error> {
        /// One repair may uncover what it hid: a lost value its references' counts, those their queue.
        const PASSES_MAX: usize = 16;
        let first = self.look().await?;
        let mut latest = first.clone();
        for _ in 0..PASSES_MAX {
            if mode == Mode::Check || latest.is_clean() {
                break;
            }
            self.repair(&latest).await?;
            latest = self.look().await?;
        }
        Ok(first)
    }

    async fn look(&self) -> Result<Report, Error> {
        let before = self.records.position();
        let snapshot = self.snapshot().await?;
        let exact = self.records.position() == before;
        Ok(Report { exact, ..judge::judge(&snapshot) })
    }

    /// How many rows there are in each group, leaving out empty ones. After everything was let go: none.
    pub async fn rows(&self) -> Result<Vec<(String, usize)>, Error> {
        let mut counts = Vec::new();
        for group in self.keys.all() {
            let rows = self.all_rows(group).await?.len();
            if rows > 0 {
                counts.push((String::from_utf8_lossy(group.id()).into_owned(), rows));
            }
        }
        Ok(counts)
    }
}
