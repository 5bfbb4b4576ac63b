//! The parts that all databases share: the decision whether a chunk is written already, its rows, and the statements.

use super::{SqlColumnType, SqlSinkId, SqlTable};
use crate::pipeline::sink::SinkChunk;
use serde_json::{Map, Value};
use std::io::{Error, Result};

/// The table in which sinks note how far they are.
pub(super) const POSITIONS: &str = "onceflow_positions";

/// How far a partition of a sink is, as its database has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenPosition {
    /// Bytes of records that are rows, and their CRC-32.
    pub(super) written: u64,
    pub(super) crc: u32,
}

/// The decision about a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChunkDecision {
    /// Its records are no rows yet; then the position is this.
    Write(WrittenPosition),
    /// They are rows already.
    Skip,
}

impl WrittenPosition {
    /// Checks, before any chunk, that the database is where the sink may be: the pipeline has noted `written` bytes, and
    /// committed `committed`.
    pub(super) fn check(self, id: &SqlSinkId, written: u64, committed: u64) -> Result<()> {
        let SqlSinkId { stream, sink } = id;
        if (written..=committed).contains(&self.written) {
            return Ok(());
        }
        let found = match self.written {
            0 => {
                format!("knows nothing of sink `{sink}` of stream `{stream}`, which has written {written} bytes to it")
            }
            found => format!(
                "has {found} bytes of sink `{sink}` of a stream `{stream}`, and this one has written {written} and committed \
                 {committed}"
            ),
        };
        Err(Error::other(format!("the database {found}: it is another database or stream; `--new` begins anew")))
    }

    /// Decides what is to be done with a chunk.
    pub(super) fn decide(self, chunk: &SinkChunk) -> Result<ChunkDecision> {
        let mut hasher = crc32fast::Hasher::new_with_initial_len(chunk.crc_before, chunk.offset);
        hasher.update(&chunk.bytes);
        let after = WrittenPosition { written: chunk.offset + chunk.bytes.len() as u64, crc: hasher.finalize() };
        if self.written == chunk.offset && self.crc == chunk.crc_before {
            return Ok(ChunkDecision::Write(after));
        }
        // Chunks are written in order, so one that is not the next was written before.
        if self == after || self.written > after.written {
            return Ok(ChunkDecision::Skip);
        }
        Err(Error::other(format!(
            "the database has {} bytes of this sink, and the next records begin at {}: another stream writes to it",
            self.written, chunk.offset
        )))
    }
}

/// Rows with the same columns, in the order in which they came.
#[derive(Debug, PartialEq)]
pub(super) struct RowRun {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Map<String, Value>>,
}

/// Reads the rows of a chunk.
pub(super) fn rows(chunk: &SinkChunk) -> Result<Vec<RowRun>> {
    let mut runs: Vec<RowRun> = Vec::new();
    for line in chunk.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let row = match serde_json::from_slice(line) {
            Ok(Value::Object(row)) if !row.is_empty() => row,
            _ => {
                let line: String = String::from_utf8_lossy(line).chars().take(200).collect();
                return Err(Error::other(format!("a record is no row, because it has no fields: {line}")));
            }
        };
        let mut columns: Vec<String> = row.keys().cloned().collect();
        columns.sort_unstable();
        match runs.last_mut().filter(|run| run.columns == columns) {
            Some(run) => run.rows.push(row),
            None => runs.push(RowRun { columns, rows: vec![row] }),
        }
    }
    Ok(runs)
}

/// Quotes the name of a column, or of a table with its schema.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl SqlTable {
    pub(super) fn quoted(&self) -> String {
        self.name.split('.').map(quoted).collect::<Vec<_>>().join(".")
    }

    /// Returns what follows `INSERT … VALUES …`: a record replaces the one with its key.
    pub(super) fn on_conflict(&self, columns: &[String]) -> String {
        if self.key.is_empty() {
            return String::new();
        }
        let key = self.key.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ");
        let others = columns.iter().filter(|column| !self.key.contains(column));
        let set: Vec<_> = others.map(|column| format!("{0} = excluded.{0}", quoted(column))).collect();
        match set.is_empty() {
            true => format!(" ON CONFLICT ({key}) DO NOTHING"),
            false => format!(" ON CONFLICT ({key}) DO UPDATE SET {}", set.join(", ")),
        }
    }

    /// Returns the statement that creates the table, if its columns are known.
    pub(super) fn create(&self, type_of: impl Fn(SqlColumnType) -> &'static str) -> Option<String> {
        let columns = self.columns.as_ref()?;
        let mut parts: Vec<_> = columns.iter().map(|(name, ty)| format!("{} {}", quoted(name), type_of(*ty))).collect();
        if !self.key.is_empty() {
            let key = self.key.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ");
            parts.push(format!("PRIMARY KEY ({key})"));
        }
        Some(format!("CREATE TABLE IF NOT EXISTS {} ({})", self.quoted(), parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(number: u64, offset: u64, crc_before: u32, text: &str) -> SinkChunk {
        SinkChunk { part: String::new(), number, offset, crc_before, bytes: text.as_bytes().to_vec().into() }
    }

    #[test]
    fn a_chunk_is_written_once_and_one_of_another_stream_is_refused() {
        let first = chunk(0, 0, 0, "{\"a\":1}\n");
        let ChunkDecision::Write(after) = WrittenPosition::default().decide(&first).unwrap() else { panic!("new") };
        assert_eq!(after.decide(&first).unwrap(), ChunkDecision::Skip);
        let second = chunk(1, after.written, after.crc, "{\"a\":2}\n");
        assert!(matches!(after.decide(&second).unwrap(), ChunkDecision::Write(_)));
        assert!(after.decide(&chunk(1, after.written, after.crc ^ 1, "{}\n")).is_err(), "other bytes came before");
        assert!(WrittenPosition::default().decide(&second).is_err(), "a chunk is missing");
        let id = SqlSinkId { stream: "s".into(), sink: "db".into() };
        assert!(after.check(&id, 0, 8).is_ok() && after.check(&id, 8, 20).is_ok());
        assert!(after.check(&id, 0, 0).unwrap_err().to_string().contains("`--new`"));
        assert!(after.check(&id, 9, 20).is_err());
    }

    #[test]
    fn names_are_quoted_and_a_key_alone_replaces_nothing() {
        let table = SqlTable { name: "app.\"t\"".into(), key: vec!["k\"".into()], columns: None };
        assert_eq!(table.quoted(), "\"app\".\"\"\"t\"\"\"");
        assert_eq!(table.on_conflict(&["k\"".into()]), " ON CONFLICT (\"k\"\"\") DO NOTHING");
        let both = table.on_conflict(&["k\"".into(), "v".into()]);
        assert_eq!(both, " ON CONFLICT (\"k\"\"\") DO UPDATE SET \"v\" = excluded.\"v\"");
    }

    #[test]
    fn rows_keep_their_order_and_records_without_fields_are_refused() {
        let runs = rows(&chunk(0, 0, 0, "{\"b\":1,\"a\":2}\n{\"a\":3,\"b\":4}\n{\"a\":5}\n")).unwrap();
        assert_eq!(runs.iter().map(|run| run.rows.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(runs[0].columns, ["a", "b"]);
        assert!(rows(&chunk(0, 0, 0, "7\n")).is_err());
    }
}
