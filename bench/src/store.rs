//! The store against its peers: a bare log, one fdatasync, redb and SQLite; and against its own promises about reopening
//! and reclaiming.

mod alone;
mod barelog;
mod chain;
mod churn;
mod commits;
mod journal;
pub(crate) mod reopen;

use crate::report::Report;

/// All of it.
pub(crate) fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    commits::measure(&runtime, &mut report)?;
    alone::measure(&runtime, &mut report)?;
    churn::measure(&runtime, &mut report)?;
    reopen::measure(&runtime, &mut report)?;
    Ok(report)
}
