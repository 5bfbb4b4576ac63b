//! Proves that values, edges, counts, queues and indexes fit together, and repairs what does not.
//!
//! It reads every row and computes again what follows from the truth: references, edges, debts. What contradicts it
//! is a *problem* if something could be freed too early or read wrongly, and a *leak* if something would stay for
//! ever. Repair acts only on what was read while nothing changed, and changes rows only if they are still as they were
//! judged: so it may run on a store in use. Whatever should then go, the normal reclaim takes.
//!
//! A value that cannot be saved (a flipped byte, a missing row, a cycle) becomes a placeholder that reads as
//! [`Error::Lost`], so that whoever refers to it learns of it when it looks, and everyone else goes on.

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
    /// Objects there are. Their lengths were compared with what values say.
    pub objects: usize,
    /// Objects whose bytes were read and compared with their digests: none, unless that was asked for.
    pub digests: usize,
    /// What might be freed too early or read wrongly.
    pub problems: Vec<Finding>,
    /// What would stay for ever.
    pub leaks: Vec<Finding>,
    /// Values that earlier repairs had to give up and that are still referred to.
    pub lost: Vec<ValueId>,
    /// Whether nothing changed while it read. If something did, findings are what was wrong in two readings.
    pub exact: bool,
    /// What repair left, found when it looked for the last time; `None` if it only looked.
    pub left: Option<Vec<Finding>>,
}

impl Report {
    /// Whether it found nothing to repair.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.leaks.is_empty()
    }

    /// Whether there is nothing to repair now: it found nothing, or has repaired all of it.
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
    /// Reads everything and says what does not fit. Takes memory for all rows.
    ///
    /// With [`Mode::Repair`] it goes on until nothing is found, and [`Report::left`] says what is left; call
    /// [`Values::reclaim`] afterwards. Safe on a store in use.
    ///
    /// # Errors
    /// [`Contended`](Error::Contended) if there is something to repair, and the store never rested for as long as it
    /// takes to read it. What was repaired before is.
    pub async fn fsck(&self, mode: Mode) -> Result<Report, Error> {
        self.fsck_knowing(mode, &Deep::default()).await
    }

    /// As [`Values::fsck`], after it has read every object that a value names and compared it with its digest, whatever is
    /// remembered about it. Takes as long as it takes to read them all.
    ///
    /// # Errors
    /// As [`Values::fsck`].
    pub async fn fsck_deep(&self, mode: Mode) -> Result<Report, Error> {
        let deep = self.read_objects().await?;
        self.fsck_knowing(mode, &deep).await
    }

    async fn fsck_knowing(&self, mode: Mode, deep: &Deep) -> Result<Report, Error> {
        /// One repair may uncover what it hid: a lost value its references' counts, those their queue.
        const PASSES_MAX: usize = 16;
        if mode == Mode::Check {
            return Ok(Report { digests: deep.read, ..self.look(deep).await?.0 });
        }
        let (mut first, mut snapshot) = self.look_at_rest(deep).await?;
        first.digests = deep.read;
        let mut latest = first.clone();
        for _ in 0..PASSES_MAX {
            if latest.is_clean() {
                break;
            }
            self.repair(&latest, &snapshot).await?;
            (latest, snapshot) = self.look_at_rest(deep).await?;
        }
        self.records.durable(self.records.position()).await?;
        Ok(Report { left: Some(latest.findings().cloned().collect()), ..first })
    }

    /// Looks until nothing changed meanwhile, or nothing is found.
    async fn look_at_rest(&self, deep: &Deep) -> Result<(Report, Snapshot), Error> {
        for _ in 0..limits::LOOKS_MAX {
            let (report, snapshot) = self.look(deep).await?;
            if report.exact || report.is_clean() {
                return Ok((report, snapshot));
            }
        }
        Err(Error::Contended(limits::LOOKS_MAX))
    }

    /// Reads everything; again if something may have changed meanwhile. Then only what was wrong every time is told: a row that
    /// is about to change looks wrong once, and one that changes all the time looks wrong now and then.
    async fn look(&self, deep: &Deep) -> Result<(Report, Snapshot), Error> {
        let before = self.fresh_position().await?;
        let mut snapshot = self.snapshot(deep).await?;
        let mut report = judge::judge(&snapshot);
        if self.records.observes_remote_commits() && self.fresh_position().await? == before {
            return Ok((Report { exact: true, ..report }, snapshot));
        }
        for _ in 0..limits::READINGS_MAX {
            let before = self.fresh_position().await?;
            let next = self.snapshot(deep).await?;
            let mut later = judge::judge(&next);
            let exact = match self.records.observes_remote_commits() {
                true => self.fresh_position().await? == before,
                false => snapshot == next,
            };
            // A finding holds the row it is about, so it is the same only if that is.
            later.problems.retain(|finding| report.problems.contains(finding));
            later.leaks.retain(|finding| report.leaks.contains(finding));
            (report, snapshot) = (Report { exact, ..later }, next);
            if exact || report.is_clean() {
                break;
            }
        }
        Ok((report, snapshot))
    }

    /// The store's position now. A guest knows only that of the last answer it got, so it asks something first.
    async fn fresh_position(&self) -> Result<Position, Error> {
        self.records.now().await?;
        Ok(self.records.position())
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
