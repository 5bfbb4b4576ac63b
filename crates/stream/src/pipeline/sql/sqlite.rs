//! Rows in a file of SQLite. A transaction of another process is waited for, beside the partition's work.

use super::{
    SqlColumnType, SqlSinkId, SqlTable,
    rows::{ChunkDecision, POSITIONS, WrittenPosition, quoted, rows},
};
use crate::pipeline::sink::{SinkChunk, SinkWriter, StreamSink, WriteProgress};
use onceflow_store::{World, world::RealWorld};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params, types::Value as SqlValue};
use serde_json::Value;
use std::{
    io::{Error, Result},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How long a write waits for a transaction of another process before it waits beside the partition's work.
const BUSY_MS: u64 = 50;

/// The pause before a write is tried again.
const PAUSE_MS: u64 = 200;

/// Writes every record as a row of a table, exactly once.
#[derive(Clone, Debug)]
pub struct SqliteSink {
    path: PathBuf,
    id: SqlSinkId,
    table: SqlTable,
}

impl SqliteSink {
    /// Returns the sink that writes a table of a file, which is created if it is not there.
    pub fn new(path: impl Into<PathBuf>, id: SqlSinkId, table: SqlTable) -> Self {
        SqliteSink { path: path.into(), id, table }
    }

    /// Lets a database forget how far a sink is, so that its pipeline can begin anew; its rows stay. True if it knew.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn forget(path: &Path, id: &SqlSinkId) -> Result<bool> {
        if !path.exists() {
            return Ok(false);
        }
        let database = open(path)?;
        let named = named(path);
        database.execute_batch(&create_positions()).map_err(&named)?;
        let delete = format!("DELETE FROM {POSITIONS} WHERE stream = ?1 AND sink = ?2");
        Ok(database.execute(&delete, params![id.stream, id.sink]).map_err(&named)? > 0)
    }
}

fn named(path: &Path) -> impl Fn(rusqlite::Error) -> Error {
    move |error| {
        let busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
        let kind = if busy { std::io::ErrorKind::WouldBlock } else { std::io::ErrorKind::Other };
        Error::new(kind, format!("{}: {error}", path.display()))
    }
}

fn open(path: &Path) -> Result<Connection> {
    let named = named(path);
    let database = Connection::open(path).map_err(&named)?;
    database.busy_timeout(Duration::from_millis(BUSY_MS)).map_err(&named)?;
    // Also where the file has a write-ahead log: a row that was written outlives a power failure.
    database.pragma_update(None, "synchronous", "FULL").map_err(&named)?;
    Ok(database)
}

fn create_positions() -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {POSITIONS} (stream TEXT NOT NULL, sink TEXT NOT NULL, \
         \"partition\" INTEGER NOT NULL, written INTEGER NOT NULL, crc INTEGER NOT NULL, \
         PRIMARY KEY (stream, sink, \"partition\"))"
    )
}

fn type_of(ty: SqlColumnType) -> &'static str {
    match ty {
        SqlColumnType::Int | SqlColumnType::Bool => "INTEGER",
        SqlColumnType::Float => "REAL",
        SqlColumnType::Text | SqlColumnType::Json => "TEXT",
    }
}

struct WritingSqlite {
    database: Connection,
    sink: SqliteSink,
    partition: u16,
}

impl StreamSink for SqliteSink {
    fn open(&self, partition: u16, _: u16) -> Result<Box<dyn SinkWriter>> {
        let database = open(&self.path)?;
        let writing = WritingSqlite { database, sink: self.clone(), partition };
        Ok(Box::new(SharedSqlite(Arc::new(Mutex::new(writing)))))
    }
}

/// The connection, so that a write can go on beside the partition's work.
struct SharedSqlite(Arc<Mutex<WritingSqlite>>);

impl SinkWriter for SharedSqlite {
    fn resume(&mut self, _: &str, written: u64, committed: u64) -> Result<()> {
        let mut writing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writing.prepare()?;
        writing.position()?.check(&writing.sink.id, written, committed)
    }

    fn begin_write(&mut self, chunk: &SinkChunk) -> Result<WriteProgress> {
        let first = self.write(chunk);
        if !matches!(&first, Err(error) if is_busy(error)) {
            return first.map(|()| WriteProgress::Done);
        }
        let (shared, chunk) = (self.0.clone(), chunk.clone());
        Ok(WriteProgress::Going(Box::pin(async move {
            loop {
                RealWorld::here().sleep(PAUSE_MS).await;
                let written = shared.lock().unwrap_or_else(PoisonError::into_inner).write(&chunk);
                match written {
                    Err(error) if is_busy(&error) => {
                        tracing::warn!(%error, "waiting for another process to end its transaction");
                    }
                    written => return written,
                }
            }
        })))
    }

    fn write(&mut self, chunk: &SinkChunk) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(chunk)
    }
}

fn is_busy(error: &Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
}

impl WritingSqlite {
    /// Creates the tables. A process that has the database to itself for a moment is waited for.
    fn prepare(&mut self) -> Result<()> {
        let named = named(&self.sink.path);
        self.database.busy_timeout(Duration::from_secs(5)).map_err(&named)?;
        self.database.execute_batch(&create_positions()).map_err(&named)?;
        if let Some(create) = self.sink.table.create(type_of) {
            self.database.execute_batch(&create).map_err(&named)?;
        }
        // Tells now, and not with the first record, that there is no such table.
        let probe = format!("SELECT 1 FROM {} LIMIT 0", self.sink.table.quoted());
        self.database.prepare(&probe).map_err(&named)?;
        self.database.busy_timeout(Duration::from_millis(BUSY_MS)).map_err(&named)
    }

    fn position(&self) -> Result<WrittenPosition> {
        position(&self.database, &self.sink.id, self.partition).map_err(named(&self.sink.path))
    }

    /// Writes the rows of a chunk and the position behind it in one transaction.
    fn write(&mut self, chunk: &SinkChunk) -> Result<()> {
        let (sink, partition, named) = (&self.sink, self.partition, named(&self.sink.path));
        let runs = rows(chunk)?;
        let transaction = self.database.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&named)?;
        let position = position(&transaction, &sink.id, partition).map_err(&named)?;
        let ChunkDecision::Write(after) = position.decide(chunk)? else { return Ok(()) };
        for run in &runs {
            let columns = run.columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ");
            let places = vec!["?"; run.columns.len()].join(", ");
            let conflict = sink.table.on_conflict(&run.columns);
            let insert = format!("INSERT INTO {} ({columns}) VALUES ({places}){conflict}", sink.table.quoted());
            let mut statement = transaction.prepare_cached(&insert).map_err(&named)?;
            for row in &run.rows {
                let values = run.columns.iter().map(|column| to_sql(&row[column]));
                statement.execute(rusqlite::params_from_iter(values)).map_err(&named)?;
            }
        }
        let note = format!(
            "INSERT INTO {POSITIONS} VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (stream, sink, \"partition\") \
             DO UPDATE SET written = excluded.written, crc = excluded.crc"
        );
        let written = i64::try_from(after.written).map_err(Error::other)?;
        let of = params![sink.id.stream, sink.id.sink, partition, written, after.crc];
        transaction.execute(&note, of).map_err(&named)?;
        transaction.commit().map_err(&named)
    }
}

fn position(database: &Connection, id: &SqlSinkId, partition: u16) -> rusqlite::Result<WrittenPosition> {
    let select = format!("SELECT written, crc FROM {POSITIONS} WHERE stream = ?1 AND sink = ?2 AND \"partition\" = ?3");
    let found = database.query_row(&select, params![id.stream, id.sink, partition], |row| {
        Ok(WrittenPosition { written: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0), crc: row.get(1)? })
    });
    Ok(found.optional()?.unwrap_or_default())
}

fn to_sql(value: &Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(value) => SqlValue::Integer(i64::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => SqlValue::Integer(whole),
            (None, Some(float)) => SqlValue::Real(float),
            (None, None) => SqlValue::Text(number.to_string()),
        },
        Value::String(text) => SqlValue::Text(text.clone()),
        Value::Array(_) | Value::Object(_) => SqlValue::Text(value.to_string()),
    }
}
