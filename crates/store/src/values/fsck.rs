//! Proves that values, edges, counts, queues and indexes fit together, and repairs those that do not.
//!
//! It reads every row and recomputes everything that follows from the truth: references, edges, debts. A row that
//! contradicts the result is a *problem* if a value could be freed too early or read wrongly, and a *leak* if something
//! would never be deleted. Repair acts only on a state that was read while nothing changed, and changes rows only if
//! they are still as they were judged: so it may run on a store in use. Garbage that a repair leaves is reclaimed as
//! usual.
//!
//! A value that cannot be saved (a flipped byte, a missing row, a cycle) becomes a placeholder that reads as
//! [`Error::Lost`], so that a step that refers to it learns of the loss when it reads it, and every other step goes on.

mod cycle;
mod deep;
mod judge;
mod read;
mod repair;

pub use judge::Finding;

use super::{Error, ValueId, Values, limits};
use crate::records::Position;
use deep::Deep;
use read::Snapshot;
use repair::Repair;
use std::fmt;

/// The two modes of [`Values::fsck`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only reads and reports.
    Check,
    /// Repairs the findings.
    Repair,
}

/// The findings of [`Values::fsck`]; with repair, those of the first pass.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of values, in use or not.
    pub values: usize,
    /// Number of edges.
    pub edges: usize,
    /// Number of objects. Their lengths were compared with those that values state.
    pub objects: usize,
    /// Objects whose bytes were read and compared with their digests: zero, except after a deep check.
    pub digests: usize,
    /// Findings because of which a value might be freed too early or read wrongly.
    pub problems: Vec<Finding>,
    /// Findings because of which something would never be deleted.
    pub leaks: Vec<Finding>,
    /// Values that earlier repairs had to give up and that others still refer to.
    pub lost: Vec<ValueId>,
    /// Nothing changed while it read. If false, the findings are those that were wrong in every reading.
    pub exact: bool,
    /// The findings of the last pass after repair; `None` if it only checked.
    pub left: Option<Vec<Finding>>,
}

impl Report {
    /// The check found nothing to repair.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.leaks.is_empty()
    }

    /// There is nothing to repair now: it found nothing, or has repaired all of it.
    pub fn is_clean_now(&self) -> bool {
        self.left.as_ref().map_or_else(|| self.is_clean(), Vec::is_empty)
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.problems.iter().chain(&self.leaks)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { values, edges, objects, digests, problems, leaks, lost, exact, left } = self;
        write!(f, "{} problems, {} leaks in {values} values and {edges} edges", problems.len(), leaks.len())?;
        match (objects, digests) {
            (0, _) => {}
            (objects, 0) => write!(f, "\nchecked: the lengths of {objects} objects, not their bytes (--deep)")?,
            (objects, digests) => write!(f, "\nchecked: the lengths of {objects} objects, the bytes of {digests}")?,
        }
        problems.iter().try_for_each(|finding| write!(f, "\nproblem: {finding}"))?;
        leaks.iter().try_for_each(|finding| write!(f, "\nleak: {finding}"))?;
        lost.iter().try_for_each(|id| write!(f, "\nnote: value {id} is lost and still referred to"))?;
        left.iter().flatten().try_for_each(|finding| write!(f, "\nleft: {finding}"))?;
        if *exact { Ok(()) } else { f.write_str("\nnote: the store changed meanwhile; look again when it is at rest") }
    }
}

impl Values {
    /// Reads everything and reports the rows that do not fit. Takes memory for all rows.
    ///
    /// With [`Mode::Repair`] it repairs until nothing is found, and [`Report::left`] lists what is left; call
    /// [`Values::reclaim`] afterwards. Safe on a store in use.
    ///
    /// # Errors
    /// [`Contended`](Error::Contended) if there is something to repair, and the store was never at rest for as long as
    /// it takes to read it. Earlier repairs stay.
    pub async fn fsck(&self, mode: Mode) -> Result<Report, Error> {
        Check { values: self, deep: Deep::default() }.run(mode).await
    }

    /// As [`Values::fsck`], after reading every object that a value names and comparing it with its digest, also those
    /// remembered as verified. Takes as long as reading them all.
    ///
    /// # Errors
    /// As [`Values::fsck`].
    pub async fn fsck_deep(&self, mode: Mode) -> Result<Report, Error> {
        Check { values: self, deep: Deep::read(self).await? }.run(mode).await
    }

    /// Counts the rows of each group, leaving out empty groups. After everything was released there are none.
    pub async fn rows(&self) -> Result<Vec<(String, usize)>, Error> {
        let mut counts = Vec::new();
        for group in self.rows.keys.all() {
            let rows = self.rows.all_rows(group).await?.len();
            if rows > 0 {
                counts.push((String::from_utf8_lossy(group.id()).into_owned(), rows));
            }
        }
        Ok(counts)
    }
}

/// One call of [`Values::fsck`]: reads and judges, and repairs until nothing is found.
struct Check<'a> {
    values: &'a Values,
    /// The result of reading the objects; empty if only their lengths are compared.
    deep: Deep,
}

impl Check<'_> {
    async fn run(&self, mode: Mode) -> Result<Report, Error> {
        /// One repair may uncover findings that it hid: a lost value the counts of its references, those their queue.
        const PASSES_MAX: usize = 16;
        if mode == Mode::Check {
            return Ok(Report { digests: self.deep.objects_read, ..self.look().await?.0 });
        }
        let (mut first, mut snapshot) = self.look_at_rest().await?;
        first.digests = self.deep.objects_read;
        let mut latest = first.clone();
        for _ in 0..PASSES_MAX {
            if latest.is_clean() {
                break;
            }
            Repair { values: self.values, judged: &snapshot }.run(&latest).await?;
            (latest, snapshot) = self.look_at_rest().await?;
        }
        self.values.rows.records.durable(self.values.rows.records.position()).await?;
        Ok(Report { left: Some(latest.findings().cloned().collect()), ..first })
    }

    /// Reads the rows again until none changed during a reading, or no problem is found.
    async fn look_at_rest(&self) -> Result<(Report, Snapshot), Error> {
        for _ in 0..limits::LOOKS_MAX {
            let (report, snapshot) = self.look().await?;
            if report.exact || report.is_clean() {
                return Ok((report, snapshot));
            }
        }
        Err(Error::Contended(limits::LOOKS_MAX))
    }

    /// Reads everything; again if something may have changed meanwhile. Then it reports only problems seen in every
    /// reading: a row that is about to change looks wrong once, and one that changes all the time looks wrong now and
    /// then.
    async fn look(&self) -> Result<(Report, Snapshot), Error> {
        let before = self.fresh_position().await?;
        let mut snapshot = self.snapshot().await?;
        let mut report = judge::judge(&snapshot);
        if self.observes_remote_commits() && self.fresh_position().await? == before {
            return Ok((Report { exact: true, ..report }, snapshot));
        }
        for _ in 0..limits::READINGS_MAX {
            let before = self.fresh_position().await?;
            let next = self.snapshot().await?;
            let mut later = judge::judge(&next);
            let exact = match self.observes_remote_commits() {
                true => self.fresh_position().await? == before,
                false => snapshot == next,
            };
            // A finding contains the row it is about, so two findings are equal only if the row is.
            later.problems.retain(|finding| report.problems.contains(finding));
            later.leaks.retain(|finding| report.leaks.contains(finding));
            (report, snapshot) = (Report { exact, ..later }, next);
            if exact || report.is_clean() {
                break;
            }
        }
        Ok((report, snapshot))
    }

    /// The store's position rises when other processes commit, at the latest with the next answer.
    fn observes_remote_commits(&self) -> bool {
        self.values.rows.records.server().is_none()
    }

    /// Returns the store's position now. A guest knows only that of the last answer it got, so it sends a request
    /// first.
    async fn fresh_position(&self) -> Result<Position, Error> {
        self.values.rows.records.now().await?;
        Ok(self.values.rows.records.position())
    }
}
