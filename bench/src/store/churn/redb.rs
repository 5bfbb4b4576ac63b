//! redb, with its default durability: a transaction is on the disk when it is committed.

use super::{Store, gone, name, row};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::{ops::Range, path::Path};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

pub(super) struct Churned {
    database: Database,
}

impl Churned {
    pub(super) fn create(directory: &Path) -> anyhow::Result<Self> {
        Ok(Churned { database: Database::create(directory.join("db"))? })
    }
}

impl Store for Churned {
    fn pairs(&mut self, keys: Range<u64>, live: u64) -> anyhow::Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut table = transaction.open_table(TABLE)?;
        for number in keys {
            table.insert(&name(number)[..], &row(number)[..])?;
            if let Some(gone) = gone(number, live) {
                table.remove(&gone[..])?;
            }
        }
        drop(table);
        transaction.commit()?;
        Ok(())
    }

    fn rows(&self) -> anyhow::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let rows = table.iter()?.map(|entry| {
            let (name, row) = entry?;
            Ok((name.value().to_vec(), row.value().to_vec()))
        });
        rows.collect()
    }
}
