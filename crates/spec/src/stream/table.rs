//! Tables in files that records are enriched from: CSV, TSV, a list in JSON, or JSON on each line.
//!
//! The rows are a source: they are read once, from their first to their last, and from then on they are state of the
//! stream. A file that changes before its last row is read is refused, so that no table is half old and half new.

use crate::{
    source::Text,
    syntax::fields::{FieldReader, clipped},
};
use onceflow_core::model::Type;
use onceflow_exec::value::PortValue;
use onceflow_stream::{EventTime, NextRecord, SplitReader, StreamSource};
use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::{Error, Result},
    path::{Path, PathBuf},
};

/// The field of an enriched record that has the row.
pub(super) const ROW: &str = "row";

/// Bytes of a table in a file: it is read as a whole. A larger one is a source of its own, and `enrich: { from: … }`.
const TABLE_BYTES_MAX: u64 = 256 << 20;

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableFormat {
    Separated(u8),
    Json,
    JsonLines,
}

impl TableFormat {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_lowercase().as_str() {
            "csv" => Some(TableFormat::Separated(b',')),
            "tsv" => Some(TableFormat::Separated(b'\t')),
            "json" => Some(TableFormat::Json),
            "jsonl" | "ndjson" => Some(TableFormat::JsonLines),
            _ => None,
        }
    }
}

/// Checks the name of a table's file; `None` after reporting a problem.
pub(super) fn check(reader: FieldReader<'_>, path: &Text) -> Option<()> {
    if TableFormat::of(Path::new(&path.text)).is_some() {
        return Some(());
    }
    let hint = "a table is .csv, .tsv, .json (a list) or .jsonl; any other is a source of its own, and `from: SOURCE`";
    reader.say(path.span, "OF0112", format!("`{}` is no table", clipped(&path.text)), hint);
    None
}

/// The rows of a file. The time of a row is before every record, and a later row of the same key is the one that holds.
pub(super) struct TableFile {
    /// Its name, which says its format.
    name: PathBuf,
    path: PathBuf,
    ty: Type,
}

impl TableFile {
    pub(super) fn new(path: PathBuf, ty: Type) -> Self {
        TableFile { name: path.clone(), path, ty }
    }

    /// The rows of a file whose path does not have its name.
    pub(super) fn named(name: impl Into<PathBuf>, path: PathBuf, ty: Type) -> Self {
        TableFile { name: name.into(), path, ty }
    }

    /// Reads all rows, and the digest of the file.
    fn read(&self) -> Result<(VecDeque<PortValue>, [u8; 32])> {
        let named = |error: Error| Error::new(error.kind(), format!("table {}: {error}", self.name.display()));
        if fs::metadata(&self.path).map_err(named)?.len() > TABLE_BYTES_MAX {
            let why =
                format!("it has more than {} MiB; read it as a source, and enrich `from` that", TABLE_BYTES_MAX >> 20);
            return Err(named(Error::other(why)));
        }
        let bytes = fs::read(&self.path).map_err(named)?;
        let digest = *blake3::hash(&bytes).as_bytes();
        let rows = match TableFormat::of(&self.name) {
            Some(TableFormat::Separated(delimiter)) => self.separated(&bytes, delimiter),
            Some(TableFormat::Json) => match PortValue::parse_json(&bytes) {
                Ok(PortValue::List(rows)) => rows.into_iter().enumerate().map(|row| self.typed(row)).collect(),
                Ok(other) => Err(format!("it is {}, and not a list of rows", other.describe())),
                Err(error) => Err(format!("it is not JSON: {error}")),
            },
            _ => String::from_utf8_lossy(&bytes)
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim().is_empty())
                .map(|(at, line)| {
                    let row = PortValue::parse_json(line.as_bytes());
                    self.typed((at, row.map_err(|error| format!("line {}: {error}", at + 1))?))
                })
                .collect(),
        };
        Ok((rows.map_err(|why| named(Error::other(why)))?, digest))
    }

    fn typed(&self, (at, row): (usize, PortValue)) -> std::result::Result<PortValue, String> {
        row.conform(&self.ty).map_err(|wrong| format!("row {}: {wrong}", at + 1))
    }

    fn separated(&self, bytes: &[u8], delimiter: u8) -> std::result::Result<VecDeque<PortValue>, String> {
        let mut builder = csv::ReaderBuilder::new();
        let mut reader = builder.delimiter(delimiter).trim(csv::Trim::All).from_reader(bytes);
        let head = reader.headers().map_err(|error| error.to_string())?.clone();
        if let (Type::Record(fields), false) = (&self.ty, head.is_empty()) {
            for (field, ty) in fields {
                if !head.iter().any(|column| column == field) && !matches!(ty, Type::Option(_)) {
                    return Err(format!("it has no column `{field}`"));
                }
            }
        }
        let mut rows = VecDeque::new();
        for (at, row) in reader.records().enumerate() {
            let row = row.map_err(|error| error.to_string())?;
            let mut fields = BTreeMap::new();
            for (column, text) in head.iter().zip(row.iter()) {
                let value = match &self.ty {
                    Type::Record(types) => match types.get(column) {
                        Some(ty) => {
                            cell(text, ty).map_err(|why| format!("row {}, column `{column}`: {why}", at + 1))?
                        }
                        None => continue,
                    },
                    _ => PortValue::text(text),
                };
                fields.insert(column.to_owned(), value);
            }
            rows.push_back(self.typed((at, PortValue::Record(fields)))?);
        }
        Ok(rows)
    }
}

/// Reads the cell of a column.
fn cell(text: &str, ty: &Type) -> std::result::Result<PortValue, String> {
    let wrong = || format!("{text:?} is not {ty}");
    Ok(match ty {
        Type::Option(_) if text.is_empty() => PortValue::Null,
        Type::Option(inner) => cell(text, inner)?,
        Type::Int => PortValue::Int(text.parse().map_err(|_| wrong())?),
        Type::Float => PortValue::Float(text.parse().map_err(|_| wrong())?),
        Type::Bool => PortValue::Bool(text.parse().map_err(|_| wrong())?),
        _ => PortValue::text(text),
    })
}

struct ReadingTable {
    rows: VecDeque<PortValue>,
    digest: [u8; 32],
    read: u64,
}

impl StreamSource for TableFile {
    type Item = PortValue;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<PortValue>>> {
        let (mut rows, digest) = self.read()?;
        let read = match position.map(|position| position.split_at_checked(8)) {
            None => 0,
            Some(Some((read, stored))) if stored == digest => {
                u64::from_be_bytes(read.try_into().map_err(Error::other)?)
            }
            Some(Some((_, stored))) if stored.len() == digest.len() => {
                return Err(Error::other(format!(
                    "table {} has changed since its first rows were read: put the earlier one back, or run with `--new`",
                    self.path.display()
                )));
            }
            Some(_) => return Err(Error::other("a stored position is not one of a table")),
        };
        rows.drain(..usize::try_from(read).unwrap_or(usize::MAX).min(rows.len()));
        Ok(Box::new(ReadingTable { rows, digest, read }))
    }
}

impl SplitReader<PortValue> for ReadingTable {
    fn next(&mut self) -> Result<NextRecord<PortValue>> {
        let Some(row) = self.rows.pop_front() else { return Ok(NextRecord::Ended) };
        self.read += 1;
        Ok(NextRecord::Record(row, EventTime(i64::MIN).plus_ms(i64::try_from(self.read).unwrap_or(i64::MAX))))
    }

    fn position(&self) -> Vec<u8> {
        [&self.read.to_be_bytes()[..], &self.digest].concat()
    }

    fn watermark(&self) -> EventTime {
        EventTime::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_stream::testing::source::{self, Lateness};
    use serde_json::json;

    fn rows(name: &str, text: &str, ty: Type) -> std::result::Result<Vec<serde_json::Value>, String> {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join(name), text).expect("a table");
        let read = TableFile::new(directory.path().join(name), ty).read().map_err(|error| error.to_string())?;
        Ok(read.0.iter().map(PortValue::to_json).collect())
    }

    fn record() -> Type {
        let fields = [("id", Type::Int), ("name", Type::Text), ("rate", Type::option(Type::Float))];
        Type::Record(fields.into_iter().map(|(name, ty)| (name.to_owned(), ty)).collect())
    }

    #[test]
    fn tables_of_every_format_have_the_same_rows() {
        let expected =
            vec![json!({"id": 1, "name": "ada", "rate": 0.5}), json!({"id": 2, "name": "bob", "rate": null})];
        for (name, text) in [
            ("t.csv", "id,name,rate,other\n1, ada,0.5,x\n2,bob,,y\n"),
            ("t.TSV", "id\tname\trate\n1\tada\t0.5\n2\tbob\t\n"),
            ("t.json", r#"[{"id": 1, "name": "ada", "rate": 0.5}, {"id": 2, "name": "bob"}]"#),
            ("t.jsonl", "{\"id\": 1, \"name\": \"ada\", \"rate\": 0.5}\n\n{\"id\": 2, \"name\": \"bob\"}\n"),
        ] {
            assert_eq!(rows(name, text, record()).expect(name), expected, "{name}");
        }
        assert_eq!(rows("t.csv", "id\n07\n", Type::Json).expect("a table"), [json!({"id": "07"})], "cells are texts");
    }

    #[test]
    fn wrong_tables_name_the_file_and_the_place() {
        for (name, text, why) in [
            ("t.csv", "id,name\n1,ada\nx,bob\n", "row 2, column `id`: \"x\" is not int"),
            ("t.csv", "name\nada\n", "it has no column `id`"),
            ("t.json", "{}", "not a list of rows"),
            ("t.jsonl", "{\"id\": 1, \"name\": \"a\"}\n{\n", "line 2"),
        ] {
            let found = rows(name, text, record()).expect_err(name);
            assert!(found.contains(why) && found.contains(name), "{found}");
        }
    }

    #[test]
    fn a_table_is_a_source_as_every_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.csv");
        fs::write(&path, "id\na\nb\na\n").expect("a table");
        source::check(|| TableFile::new(path.clone(), Type::Json), Lateness::OnTime).expect("the contract holds");
    }

    #[test]
    fn a_table_goes_on_at_any_row_and_one_that_changed_meanwhile_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.csv");
        fs::write(&path, "id\na\nb\n").expect("a table");
        let table = TableFile::new(path.clone(), Type::Json);
        let mut reader = table.open(0, None).expect("a reader");
        let NextRecord::Record(_, first) = reader.next().expect("a row") else { panic!("a row") };
        let position = reader.position();
        let mut again = table.open(0, Some(&position)).expect("a reader");
        let NextRecord::Record(row, second) = again.next().expect("a row") else { panic!("a row") };
        assert!(row.to_json() == json!({"id": "b"}) && first < second);
        assert_eq!(again.next().expect("the end"), NextRecord::Ended);
        fs::write(&path, "id\na\nc\n").expect("a table");
        let refused = table.open(0, Some(&position)).err().expect("a refusal").to_string();
        assert!(refused.contains("has changed since its first rows were read"), "{refused}");
    }
}
