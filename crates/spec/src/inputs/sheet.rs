//! Sample sheets: a table with a header, read as a list of records. A problem is reported with its row and column.

use super::convert::{Convert, ValueSite};
use crate::{Problem, SourceLocation, TypeDecl, problem::Diagnostics, source::SourceFile, words};
use onceflow_exec::value::PortValue;
use std::{collections::BTreeMap, path::Path};

/// Returns the fields of the record, if the type is a list of records.
pub(super) fn record(shape: &TypeDecl) -> Option<&BTreeMap<String, TypeDecl>> {
    match shape.required() {
        TypeDecl::List(inner) => match &**inner {
            TypeDecl::Record(fields) => Some(fields),
            _ => None,
        },
        _ => None,
    }
}

/// The path has the extension of a table.
pub(super) fn is_sheet(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("csv") || ext.eq_ignore_ascii_case("tsv"))
}

/// Reads the rows of a table.
pub(super) fn read(
    convert: &Convert<'_>,
    source: &SourceFile,
    fields: &BTreeMap<String, TypeDecl>,
    report: &Diagnostics,
) -> Option<PortValue> {
    let is_tsv = source.file().to_lowercase().ends_with("tsv");
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(if is_tsv { b'\t' } else { b',' })
        .flexible(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(source.text().as_bytes());
    let sheet = Sheet { convert, source, fields, report };
    let head: Vec<String> = reader.headers().ok()?.iter().map(str::to_owned).collect();
    let mut whole = sheet.head(&head);
    let mut rows = Vec::new();
    for (at, row) in reader.records().enumerate() {
        match row {
            Ok(row) => match sheet.row(&head, &row, at + 1) {
                Some(row) => rows.push(row),
                None => whole = false,
            },
            Err(error) => {
                report.push(Problem::new("OF0212", format!("{}: {error}", source.file())));
                return None;
            }
        }
    }
    whole.then_some(PortValue::List(rows))
}

struct Sheet<'a> {
    convert: &'a Convert<'a>,
    source: &'a SourceFile,
    fields: &'a BTreeMap<String, TypeDecl>,
    report: &'a Diagnostics,
}

impl Sheet<'_> {
    /// Returns the line, from 1, of a row that begins at this byte or after comments and empty lines there.
    fn line_of(&self, byte: u64) -> u64 {
        let text = self.source.text();
        let from = usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
        let before = text.as_bytes()[..from].iter().filter(|byte| **byte == b'\n').count();
        let rest = text.get(from..).unwrap_or_default().lines();
        let skipped = rest.take_while(|line| line.is_empty() || line.starts_with('#')).count();
        (before + skipped) as u64 + 1
    }

    fn place(&self, line: u64, column: u32) -> Option<SourceLocation> {
        let text = self.source.text().lines().nth(line.saturating_sub(1) as usize)?;
        Some(SourceLocation {
            file: self.source.file().to_owned(),
            line: line as u32,
            column,
            len: 1,
            source_line: text.chars().take(160).collect(),
        })
    }

    fn say(&self, code: &'static str, message: String, line: u64, hint: String) {
        ValueSite { place: &|| self.place(line, 1), report: self.report }.say(code, message, hint);
    }

    fn head(&self, head: &[String]) -> bool {
        let (before, line) = (self.report.len(), self.line_of(0));
        for (at, column) in head.iter().enumerate() {
            if !self.fields.contains_key(column) {
                let message = format!("{} has no column `{column}`", self.convert.what);
                self.say("OF0208", message, line, words::meant(column, self.fields.keys().map(String::as_str)));
            } else if head[..at].contains(column) {
                self.say("OF0208", format!("the column `{column}` is here twice"), line, String::new());
            }
        }
        for (name, shape) in self.fields {
            if !head.contains(name) && !matches!(shape, TypeDecl::Option(_)) {
                let message = format!("the sheet has no column `{name}`, which is {}", shape.ty());
                self.say("OF0209", message, line, words::meant(name, head.iter().map(String::as_str)));
            }
        }
        self.report.len() == before
    }

    fn row(&self, head: &[String], row: &csv::StringRecord, number: usize) -> Option<PortValue> {
        let line = row.position().map_or(0, |position| self.line_of(position.byte()));
        if row.len() != head.len() {
            let message = format!("row {number} has {} cells, but there are {} columns", row.len(), head.len());
            self.say("OF0212", message, line, String::from("a cell with a comma in it must be quoted"));
            return None;
        }
        let mut found = BTreeMap::new();
        for (column, cell) in head.iter().zip(row) {
            let Some(shape) = self.fields.get(column) else { continue };
            let value = match (shape, cell.is_empty()) {
                (TypeDecl::Option(_), true) => Some(PortValue::Null),
                _ => self.cell(column, cell, shape, number, line),
            };
            found.insert(column.clone(), value);
        }
        for (name, shape) in self.fields {
            if matches!(shape, TypeDecl::Option(_)) {
                found.entry(name.clone()).or_insert(Some(PortValue::Null));
            }
        }
        let found: Option<BTreeMap<_, _>> = found.into_iter().map(|(name, value)| Some((name, value?))).collect();
        found.filter(|found| found.len() == self.fields.len()).map(PortValue::Record)
    }

    fn cell(&self, column: &str, cell: &str, shape: &TypeDecl, row: usize, line: u64) -> Option<PortValue> {
        let convert = Convert {
            base: self.convert.base,
            files: self.convert.files,
            what: format!("row {row}, column `{column}`"),
        };
        let inner = Diagnostics::default();
        let at = ValueSite { place: &|| self.place(line, 1), report: &inner };
        let value = convert.scalar(cell, shape.required(), &at);
        if let Err(problems) = inner.result() {
            for problem in problems.0 {
                // A value that does not fit gets the code for cells; a missing file keeps its own code.
                let code = if problem.code == "OF0203" { "OF0210" } else { problem.code };
                self.report.push(Problem { code, place: self.place(line, 1), ..problem });
            }
        }
        value
    }
}
