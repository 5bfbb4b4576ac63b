//! SQLite, with a write-ahead log that is synced at every commit.

use super::{Store, gone, name, row};
use rusqlite::Connection;
use std::{ops::Range, path::Path};

pub(super) struct Churned {
    connection: Connection,
}

impl Churned {
    pub(super) fn create(directory: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(directory.join("db"))?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        anyhow::ensure!(mode == "wal", "SQLite runs in mode {mode}");
        connection.execute_batch(
            "PRAGMA synchronous = FULL; CREATE TABLE rows (name BLOB PRIMARY KEY, row BLOB) WITHOUT ROWID",
        )?;
        Ok(Churned { connection })
    }
}

impl Store for Churned {
    fn pairs(&mut self, keys: Range<u64>, live: u64) -> anyhow::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO rows VALUES (?, ?)")?;
        let mut delete = transaction.prepare_cached("DELETE FROM rows WHERE name = ?")?;
        for number in keys {
            put.execute((&name(number)[..], &row(number)[..]))?;
            if let Some(gone) = gone(number, live) {
                delete.execute((&gone[..],))?;
            }
        }
        drop((put, delete));
        transaction.commit()?;
        Ok(())
    }

    fn rows(&self) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = self.connection.prepare("SELECT name, row FROM rows ORDER BY name")?;
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
