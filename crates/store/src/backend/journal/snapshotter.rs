//! The one who makes snapshots, beside the commits, and removes the log they replace.

use super::{
    ENDED, Inner,
    format::{FileKind, parse_name},
    snapshot::{self, Walk, Writer},
};
use crate::{records::Position, sync::lock};
use std::{io, sync::Arc};

/// Makes a snapshot whenever one is due, until the journal is closed.
pub(super) async fn run(inner: Arc<Inner>) {
    make_all(&inner).await;
    inner.snapshotter_ended.raise(ENDED);
}

async fn make_all(inner: &Inner) {
    loop {
        let look = || {
            let book = lock(&inner.book);
            if book.closing || book.fault.is_some() { Some(None) } else { book.snapshot_due.map(Some) }
        };
        let Some(position) = inner.snapshot.until(look).await else { return };
        match make(inner, position).await {
            Ok(true) => {}
            Ok(false) => snapshot::abandon(&*inner.files, position),
            Err(error) => {
                tracing::warn!(%error, "a snapshot could not be made; the log goes on growing until the next try");
                snapshot::abandon(&*inner.files, position);
            }
        }
        lock(&inner.book).snapshot_due = None;
    }
}

/// Writes the snapshot and removes what it replaces; `false` if the journal ended first.
async fn make(inner: &Inner, position: Position) -> io::Result<bool> {
    let mut writer = Writer::begin(&*inner.files, inner.store, position)?;
    let mut walk = Walk::default();
    loop {
        let rows = {
            let book = lock(&inner.book);
            if book.closing || book.fault.is_some() {
                return Ok(false);
            }
            walk.step(&book.state)
        };
        if rows.is_empty() {
            break;
        }
        writer.rows(&rows)?;
    }
    let (whole_at, time) = {
        let book = lock(&inner.book);
        (book.effective, book.clock.latest())
    };
    if inner.reach_durable(whole_at).await.is_err() {
        return Ok(false);
    }
    writer.finish(whole_at, time)?;
    remove_replaced(inner, position)?;
    Ok(true)
}

/// Writes the snapshot of a journal that takes nothing more, and removes what it replaces. Everything is durable.
pub(super) fn make_last(inner: &Inner, position: Position) -> io::Result<()> {
    let mut writer = Writer::begin(&*inner.files, inner.store, position)?;
    let mut walk = Walk::default();
    loop {
        let rows = walk.step(&lock(&inner.book).state);
        if rows.is_empty() {
            break;
        }
        writer.rows(&rows)?;
    }
    let (whole_at, time) = {
        let book = lock(&inner.book);
        (book.effective, book.clock.latest())
    };
    writer.finish(whole_at, time)?;
    remove_replaced(inner, position)
}

/// Removes every segment and snapshot from before the snapshot of `position`.
fn remove_replaced(inner: &Inner, position: Position) -> io::Result<()> {
    for name in inner.files.list()? {
        let replaced = match parse_name(&name) {
            Some((FileKind::Log, first)) => first <= position,
            Some((FileKind::Snapshot, older)) => older < position,
            None => false,
        };
        if replaced {
            inner.files.remove(&name)?;
        }
    }
    inner.files.sync()
}
