//! Reads the timers of suspended work, in order of their deadlines. The rows are the truth: a process that dies takes no
//! timer with it, and any other process wakes the work.

use super::Kernel;
use crate::Error;
use onceflow_core::{
    Key, Name, Timestamp,
    protocol::{
        rows,
        timer::{Timer, deadline_of, timers},
    },
};
use onceflow_store::records::Scan;

/// Timers read at a time.
const PAGE: usize = 256;

/// Timers that are due, and when the next one is.
pub(crate) struct DueTimers {
    pub(crate) due: Vec<(Key, Timer)>,
    /// Where the next page begins, if all of this one is due.
    pub(crate) after: Option<Name>,
    /// The first deadline that has not passed.
    pub(crate) next: Option<Timestamp>,
}

impl Kernel {
    /// A page of the timers that are due.
    pub(crate) async fn due_timers(&self, after: Option<Name>, now: Timestamp) -> Result<DueTimers, Error> {
        let page = self.records.scan(self.shard, Scan::of(timers(), PAGE).after(after)).await?;
        let (mut due, mut next) = (Vec::new(), None);
        for (name, row) in &page.rows {
            let read = deadline_of(name).zip(rows::read::<Timer>(row));
            let (deadline, timer) = read.ok_or_else(|| Error::damaged("a timer"))?;
            if deadline > now {
                next = Some(deadline);
                break;
            }
            due.push((timers().key(name), timer));
        }
        let after = page.rows.last().filter(|_| page.more && next.is_none()).map(|(name, _)| name.clone());
        Ok(DueTimers { due, after, next })
    }
}
