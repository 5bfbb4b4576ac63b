//! Here-documents: their delimiters, and their bodies once the line has ended.

use super::{
    Scan, Unit,
    context::{ContextKind, ShellContext},
};

/// A here-document whose body has not come yet.
#[derive(Clone, Debug)]
pub(super) struct PendingHeredoc {
    delimiter: String,
    strips_tabs: bool,
    is_quoted: bool,
}

impl Scan {
    /// Scans `<<` and the delimiter after it.
    pub(super) fn heredoc(&mut self) {
        self.take(2);
        let strips_tabs = self.peek(0) == Some('-');
        if strips_tabs {
            self.take(1);
        }
        while matches!(self.peek(0), Some(' ' | '\t')) {
            self.take(1);
        }
        let mut pending = PendingHeredoc { delimiter: String::new(), strips_tabs, is_quoted: false };
        let mut quote = None;
        loop {
            match (self.units.get(self.at).copied(), quote) {
                (None, _) => break,
                (Some(Unit::Hole(part)), _) => {
                    self.refuse(part, "a hole cannot end a here-document", "write a fixed word, such as `EOF`");
                    self.at += 1;
                    continue;
                }
                (Some(Unit::Char(found)), Some(open)) if found == open => quote = None,
                (Some(Unit::Char(found)), Some(_)) => pending.delimiter.push(found),
                (Some(Unit::Char(found @ ('\'' | '"'))), None) => {
                    pending.is_quoted = true;
                    quote = Some(found);
                }
                (Some(Unit::Char('\\')), None) => {
                    pending.is_quoted = true;
                    self.take(1);
                    pending.delimiter.extend(self.peek(0));
                }
                (Some(Unit::Char(' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')), None) => break,
                (Some(Unit::Char(found)), None) => pending.delimiter.push(found),
            }
            self.take(1);
        }
        if self.frames.iter().any(|frame| frame.kind == ContextKind::Backtick) {
            self.top().is_murky = true;
        }
        self.pending.push(pending);
    }

    /// Reads the bodies of all here-documents of the line that has just ended.
    pub(super) fn bodies(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            let (end, next) = self.find_end(&pending);
            match pending.is_quoted {
                true => self.quoted_body(end),
                false => self.expanded_body(end),
            }
            // The delimiter itself.
            self.take(next - end);
        }
    }

    /// Returns the end of the body, and the end of its delimiter.
    fn find_end(&self, pending: &PendingHeredoc) -> (usize, usize) {
        let mut start = self.at;
        let mut continued = false;
        while start < self.units.len() {
            let line = &self.units[start..];
            let len = line.iter().position(|unit| *unit == Unit::Char('\n')).unwrap_or(line.len());
            let line = &line[..len];
            let char = |unit: &Unit| match unit {
                Unit::Char(found) => Some(*found),
                Unit::Hole(_) => None,
            };
            let text: Option<String> = line.iter().map(char).collect();
            let is_end = text.is_some_and(|text| {
                let text = if pending.strips_tabs { text.trim_start_matches('\t') } else { &text };
                text == pending.delimiter
            });
            if is_end && !continued {
                return (start, start + len);
            }
            let backslashes = line.iter().rev().take_while(|unit| **unit == Unit::Char('\\')).count();
            continued = !pending.is_quoted && backslashes % 2 == 1;
            start += len + 1;
        }
        (self.units.len(), self.units.len())
    }

    fn quoted_body(&mut self, end: usize) {
        while self.at < end {
            match self.units[self.at] {
                Unit::Char(_) => self.take(1),
                Unit::Hole(part) => {
                    let message = "a value cannot go into a here-document whose delimiter is quoted";
                    self.refuse(part, message, "write the delimiter without quotes: `<<EOF`");
                    self.at += 1;
                }
            }
        }
    }

    fn expanded_body(&mut self, end: usize) {
        let from = self.pieces.len();
        let outer = std::mem::replace(&mut self.frames, vec![ShellContext::new(ContextKind::Body)]);
        self.run(end);
        let is_closed = self.frames.len() == 1;
        self.frames = outer;
        if !is_closed {
            self.refuse_from(from, "the brackets in the here-document could not be followed to their end");
        }
    }
}
