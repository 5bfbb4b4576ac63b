//! A source file: its text, the offsets of its lines, and the line and column of a byte.

use crate::problem::SourceLocation;
use std::{ops::Range, rc::Rc};

/// A byte range of a source. Sources are smaller than 4 GiB: every value of a file of millions has its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let at = |byte: usize| u32::try_from(byte).unwrap_or(u32::MAX);
        Span { start: at(start), end: at(end.max(start)) }
    }

    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    pub(crate) fn end(self) -> usize {
        self.end as usize
    }
}

/// The notation of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarQuoting {
    Plain,
    Quoted,
    Block,
}

/// A scalar of a source: its content, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) span: Span,
    pub(crate) style: ScalarQuoting,
}

/// A file and its text. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile(Rc<SourceText>);

#[derive(Debug)]
struct SourceText {
    file: String,
    text: String,
    lines: Vec<usize>,
}

/// Characters of a line that a message shows.
const SHOWN_CHARS_MAX: usize = 160;

impl SourceFile {
    pub(crate) fn new(file: impl Into<String>, text: String) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(breaks).collect();
        SourceFile(Rc::new(SourceText { file: file.into(), lines, text }))
    }

    pub(crate) fn file(&self) -> &str {
        &self.0.file
    }

    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the start and the text of the line at a byte, its number (from 1), and the column (from 1, in
    /// characters).
    fn line_at(&self, byte: usize) -> (usize, &str, u32, u32) {
        let byte = floor(&self.0.text, byte);
        let line = self.0.lines.partition_point(|start| *start <= byte).saturating_sub(1);
        let start = self.0.lines[line];
        let end = self.0.lines.get(line + 1).map_or(self.0.text.len(), |next| next - 1);
        let column = self.0.text[start..byte].chars().count() as u32 + 1;
        (start, self.0.text[start..end].trim_end_matches('\r'), line as u32 + 1, column)
    }

    /// Line and column, both from 1.
    pub(crate) fn position(&self, byte: usize) -> (u32, u32) {
        let (_, _, line, column) = self.line_at(byte);
        (line, column)
    }

    /// The byte at a line and a column, both from 1.
    pub(crate) fn byte_at(&self, line: u32, column: u32) -> usize {
        let start = self.0.lines.get(line.saturating_sub(1) as usize).copied().unwrap_or(self.0.text.len());
        let letters = self.0.text[start..].char_indices();
        start + letters.map(|(at, _)| at).nth(column.saturating_sub(1) as usize).unwrap_or(0)
    }

    /// The place of a span; of several lines, the first.
    pub(crate) fn place(&self, span: Span) -> SourceLocation {
        let (start, text, line, column) = self.line_at(span.start());
        let rest = &text[(floor(&self.0.text, span.start()) - start).min(text.len())..];
        let len = floor(rest, (span.end() - span.start()).min(rest.len()));
        let len = (rest[..len].trim_end().chars().count() as u32).max(1);
        let source_line = text.chars().take(SHOWN_CHARS_MAX).collect();
        SourceLocation { file: self.0.file.clone(), line, column, len, source_line }
    }

    /// Maps `range` of a scalar's content to the source, by searching for its characters one after the other.
    pub(crate) fn inside(&self, text: &Text, range: Range<usize>) -> Span {
        let end = floor(&self.0.text, text.span.end());
        // An empty range, where something is missing, is shown as the text before it.
        let range = match text.text.get(range.clone()).unwrap_or_default().trim().is_empty() {
            true => {
                let last = text.text.get(..range.start).unwrap_or_default().trim_end();
                last.char_indices().last().map_or(0, |(at, _)| at)..last.len()
            }
            false => range,
        };
        let mut at = floor(&self.0.text, text.span.start());
        match text.style {
            ScalarQuoting::Plain => {}
            ScalarQuoting::Quoted => at += 1,
            // The line with `|` or `>` is not content.
            ScalarQuoting::Block if self.0.text[at..].starts_with(['|', '>']) => {
                at += self.0.text[at..].find('\n').map_or(0, |line| line + 1);
            }
            ScalarQuoting::Block => {}
        }
        let (mut first, mut last) = (None, at);
        for (offset, letter) in text.text.char_indices() {
            if offset >= range.end {
                break;
            }
            if letter.is_whitespace() {
                continue;
            }
            let found = self.0.text.get(at..end).and_then(|rest| rest.find(letter));
            let Some(found) = found else { break };
            at += found;
            if offset >= range.start && first.is_none() {
                first = Some(at);
            }
            at += letter.len_utf8();
            last = at;
        }
        match first {
            Some(first) => Span::new(first, last),
            None => text.span,
        }
    }
}

/// Returns the nearest start of a character at or before a byte.
fn floor(text: &str, byte: usize) -> usize {
    let byte = byte.min(text.len());
    (0..=byte).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_characters_from_one() {
        let source = SourceFile::new("f", String::from("ä: b\r\ncé d\n"));
        let place = source.place(Span::new(8, 12));
        assert_eq!((place.line, place.column, place.len, place.source_line.as_str()), (2, 2, 3, "cé d"));
        assert_eq!(source.position(4), (1, 4));
        assert_eq!(source.position(999), (3, 1));
    }

    #[test]
    fn part_of_a_scalar_is_found_in_every_style() {
        let whole = "a: |\n  one\n  two ${{ x }}\nb: \"q\\\"r ${{ y }}\"\n";
        let source = SourceFile::new("f", whole.to_owned());
        let block = Text { text: "one\ntwo ${{ x }}\n".into(), span: Span::new(3, 26), style: ScalarQuoting::Block };
        let found = source.inside(&block, 12..13);
        assert_eq!((&whole[found.start()..found.end()], found.start()), ("x", 21));
        let start = whole.find('"').unwrap_or(0);
        let quoted =
            Text { text: "q\"r ${{ y }}".into(), span: Span::new(start, whole.len()), style: ScalarQuoting::Quoted };
        let found = source.inside(&quoted, 8..9);
        assert_eq!(&whole[found.start()..found.end()], "y");
    }
}
