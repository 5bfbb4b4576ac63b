//! The committer writes changes to the pages. All batches applied while the last transaction was being written are in the
//! next one, and its sync serves all callers that wait.
//!
//! A failed write or sync ends the store: which bytes reached the disk is not known, and a retry would not tell.

use super::{
    book::{Book, Unwritten},
    pages::Pages,
};
use crate::{
    backend::front::{ENDED, Front},
    records::Error,
    sync::lock,
};
use std::sync::Arc;

pub(super) struct Committer {
    front: Arc<Front<Book>>,
    /// `None` when the file is closed.
    pages: Option<Pages>,
}

impl Committer {
    pub(super) fn new(front: Arc<Front<Book>>, pages: Pages) -> Self {
        Committer { front, pages: Some(pages) }
    }

    /// Works until the store is closed or the disk fails.
    pub(super) async fn run(mut self) {
        loop {
            let front = self.front.clone();
            let look = || {
                let mut book = lock(&front.book);
                match &book.fault {
                    Some(_) => Some(None),
                    None => book.take_group().map(Some).or_else(|| book.closing.then_some(None)),
                }
            };
            let Some(group) = front.work.until(look).await else { break };
            if let Err(error) = self.write(group) {
                self.fail(&error);
                break;
            }
        }
        self.pages = None;
    }

    fn write(&mut self, group: Unwritten) -> Result<(), Error> {
        let pages = self.pages.as_ref().expect("the file is closed last");
        pages.write(&group.layer, group.time)?;
        let snapshot = Arc::new(pages.snapshot()?);
        let old = {
            let mut book = lock(&self.front.book);
            let old = book.snapshot.clone();
            let reached = book.written(group.last, snapshot);
            drop(book);
            self.front.durable.raise(reached);
            old
        };
        self.front.room.notify();
        // Pages that only the old snapshot held are free from now on; not under the lock.
        drop((old, group.layer));
        Ok(())
    }

    fn fail(&mut self, error: &Error) {
        tracing::error!(%error, "the store could not be written; it takes nothing more and is to be opened again");
        let why: Arc<str> = format!("the store could not be written ({error}); open it again").into();
        let fault = match error {
            Error::Damaged(what) => Error::Damaged(what.clone()),
            _ => Error::Unavailable(why.clone()),
        };
        lock(&self.front.book).fault = Some(fault);
        self.front.durable.fail(Error::Unknown(why));
    }
}

impl Drop for Committer {
    /// However the committer ends, by closing or by a panic, no caller waits for it any more.
    fn drop(&mut self) {
        self.pages = None;
        let closed: Arc<str> = "the store is closed".into();
        let fault = lock(&self.front.book).fault.get_or_insert(Error::Unavailable(closed.clone())).clone();
        self.front.durable.fail(fault);
        self.front.room.notify();
        self.front.enabled.notify();
        self.front.committer_ended.raise(ENDED);
    }
}
