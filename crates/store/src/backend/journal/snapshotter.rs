//! The task that makes snapshots, beside the commits, and removes the log they replace.

use super::{
    ENDED, Inner,
    book::Book,
    format::{FileKind, parse_name},
    snapshot::{self, Walk, Writer},
};
use crate::{records::Position, sync::lock};
use onceflow_core::Timestamp;
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
                tracing::warn!(%error, "failed to write a snapshot; the log grows until the next one succeeds");
                snapshot::abandon(&*inner.files, position);
            }
        }
        lock(&inner.book).snapshot_due = None;
    }
}

/// Writes the snapshot and removes the log it replaces; `false` if the journal ended first.
async fn make(inner: &Inner, position: Position) -> io::Result<bool> {
    let mut writer = Writer::begin(&*inner.files, inner.store, position)?;
    if !write_rows(inner, &mut writer, |book| book.closing || book.fault.is_some())? {
        return Ok(false);
    }
    let (whole_at, time) = end_of_walk(inner, position);
    if inner.reach_durable(whole_at).await.is_err() {
        return Ok(false);
    }
    writer.finish(whole_at, time)?;
    remove_replaced(inner, position)?;
    Ok(true)
}

/// Writes the snapshot of a closed journal and removes the log it replaces. Every batch must be durable.
pub(super) fn make_last(inner: &Inner, position: Position) -> io::Result<()> {
    let mut writer = Writer::begin(&*inner.files, inner.store, position)?;
    write_rows(inner, &mut writer, |_| false)?;
    let (whole_at, time) = end_of_walk(inner, position);
    writer.finish(whole_at, time)?;
    remove_replaced(inner, position)
}

/// Walks all rows into the snapshot, a few under each lock; `false` if `stop` ended the walk.
fn write_rows(inner: &Inner, writer: &mut Writer<'_>, stop: impl Fn(&Book) -> bool) -> io::Result<bool> {
    let mut walk = Walk::default();
    loop {
        let rows = {
            let book = lock(&inner.book);
            if stop(&book) {
                return Ok(false);
            }
            walk.step(&book.state)
        };
        if rows.is_empty() {
            return Ok(true);
        }
        writer.rows(&rows)?;
    }
}

/// The last position that the walk may have seen, and its time.
fn end_of_walk(inner: &Inner, position: Position) -> (Position, Timestamp) {
    let book = lock(&inner.book);
    assert!(position <= book.position, "a snapshot of {position:?} was made of a journal at {:?}", book.position);
    (book.effective, book.clock.latest())
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
