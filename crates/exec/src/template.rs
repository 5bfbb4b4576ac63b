//! Text with holes: `align ${{ sample }}`. The end of a hole is found by reading the expression in it, so the
//! expression may contain quotes and braces. `$${{` is the text `${{`.

use crate::action::{Template, TemplatePart};
use std::{fmt, ops::Range};

/// A template, and the place of each part in the text: for a hole, the expression without the space around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The template.
    pub template: Template,
    /// The byte range of each part.
    pub spans: Vec<Range<usize>>,
}

/// An error in the text of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Its place in the text, in bytes.
    pub span: Range<usize>,
    /// The error, in plain words.
    pub message: String,
    /// Advice how to correct it.
    pub hint: Option<String>,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TemplateError {}

/// Begins a hole.
const OPEN: &str = "${{";

/// Ends it.
const CLOSE: &str = "}}";

/// Parses a text with holes. The expressions are not compiled.
///
/// # Errors
/// All holes that are empty or have no end.
pub fn parse(text: &str) -> Result<Parsed, Vec<TemplateError>> {
    let mut reader =
        TemplateParser { text, parsed: Parsed::default(), wrong: vec![], plain: String::new(), plain_from: 0 };
    reader.read();
    let Parsed { template, spans } = &reader.parsed;
    assert_eq!(template.0.len(), spans.len(), "every part of a template has its place in the text");
    assert!(
        spans.is_sorted_by(|one, next| one.end <= next.start),
        "a mistake would be shown at another part: {spans:?}"
    );
    assert!(
        spans.iter().all(|span| span.start <= span.end && span.end <= text.len()),
        "{spans:?} is outside of the text"
    );
    match reader.wrong.is_empty() {
        true => Ok(reader.parsed),
        false => Err(reader.wrong),
    }
}

struct TemplateParser<'a> {
    text: &'a str,
    parsed: Parsed,
    wrong: Vec<TemplateError>,
    plain: String,
    plain_from: usize,
}

impl TemplateParser<'_> {
    fn read(&mut self) {
        let mut at = 0;
        while let Some(found) = self.text[at..].find('$').map(|found| at + found) {
            self.plain.push_str(&self.text[at..found]);
            let rest = &self.text[found..];
            if rest.starts_with("$${{") {
                self.plain.push_str(OPEN);
                at = found + 4;
            } else if rest.starts_with(OPEN) {
                self.end_plain(found);
                at = self.hole(found);
                self.plain_from = at;
            } else {
                self.plain.push('$');
                at = found + 1;
            }
        }
        self.plain.push_str(&self.text[at..]);
        self.end_plain(self.text.len());
    }

    fn end_plain(&mut self, to: usize) {
        if !self.plain.is_empty() {
            let plain = std::mem::take(&mut self.plain);
            self.push(TemplatePart::Text(plain), self.plain_from..to);
        }
    }

    fn push(&mut self, part: TemplatePart, span: Range<usize>) {
        self.parsed.template.0.push(part);
        self.parsed.spans.push(span);
    }

    /// Reads the hole that begins at `from`; returns the offset where the text goes on.
    fn hole(&mut self, from: usize) -> usize {
        let inside = from + OPEN.len();
        let Some(len) = end_of_expression(&self.text[inside..]) else {
            let line = self.text[from..].find('\n').map_or(self.text.len(), |line| from + line);
            self.wrong.push(TemplateError {
                span: from..line,
                message: String::from("`${{` has no `}}`"),
                hint: Some(String::from("close the hole with `}}`, or write `$${{` for the text `${{`")),
            });
            return self.text.len();
        };
        let source = &self.text[inside..inside + len];
        let trimmed = source.trim();
        let start = inside + (source.len() - source.trim_start().len());
        let end = inside + len + CLOSE.len();
        match trimmed.is_empty() {
            true => self.wrong.push(TemplateError {
                span: from..end,
                message: String::from("there is nothing in `${{ }}`"),
                hint: Some(String::from("name what goes here, such as `${{ inputs.reads }}`")),
            }),
            false => self.push(TemplatePart::Hole(trimmed.to_owned()), start..start + trimmed.len()),
        }
        end
    }
}

/// Returns the length of an expression up to the `}}` after it; braces and quotes inside belong to the expression.
fn end_of_expression(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'}' if depth == 0 && bytes.get(at + 1) == Some(&b'}') => return Some(at),
            b'}' => depth = depth.saturating_sub(1),
            b'{' => depth += 1,
            b'\'' | b'"' => {
                at = end_of_text(bytes, at)?;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                // A comment goes on to the end of its line, or of the hole.
                while at < bytes.len() && bytes[at] != b'\n' && !bytes[at..].starts_with(b"}}") {
                    at += 1;
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the offset after the text literal that begins at `from`.
fn end_of_text(bytes: &[u8], from: usize) -> Option<usize> {
    let quote = bytes[from];
    let is_raw = from > 0
        && matches!(bytes[from - 1], b'r' | b'R')
        && (from < 2 || !bytes[from - 2].is_ascii_alphanumeric() || matches!(bytes[from - 2], b'b' | b'B'));
    let triple = [quote; 3];
    let closing: &[u8] = if bytes[from..].starts_with(&triple) { &triple } else { &triple[..1] };
    let mut at = from + closing.len();
    while at < bytes.len() {
        if bytes[at..].starts_with(closing) {
            return Some(at + closing.len());
        }
        at += if bytes[at] == b'\\' && !is_raw { 2 } else { 1 };
    }
    None
}

impl Template {
    /// Makes a template without holes.
    pub fn text(text: impl Into<String>) -> Self {
        Template(vec![TemplatePart::Text(text.into())])
    }

    /// Returns its text, if it has no holes.
    pub fn as_text(&self) -> Option<String> {
        let text = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => Some(text.clone()),
            TemplatePart::Hole(_) => None,
        };
        self.0.iter().map(text).collect()
    }

    /// Returns the expressions in its holes.
    pub fn holes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Hole(source) => Some(source.as_str()),
            TemplatePart::Text(_) => None,
        })
    }
}

/// The template as a user would write it.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => f.write_str(&text.replace(OPEN, "$${{"))?,
                TemplatePart::Hole(source) => write!(f, "${{{{ {source} }}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> Vec<TemplatePart> {
        let parsed = parse(text).unwrap();
        for (part, span) in parsed.template.0.iter().zip(&parsed.spans) {
            if let TemplatePart::Hole(source) = part {
                assert_eq!(&text[span.clone()], source);
            }
        }
        parsed.template.0
    }

    #[test]
    fn a_hole_ends_where_its_expression_does() {
        let hole = |source: &str| TemplatePart::Hole(source.into());
        let text = |text: &str| TemplatePart::Text(text.into());
        let cases = [
            ("", vec![]),
            ("a", vec![text("a")]),
            ("${{x}}", vec![hole("x")]),
            ("a${{ x }}b${{\ny\n}}", vec![text("a"), hole("x"), text("b"), hole("y")]),
            ("${{ {'a': {'b': 1}}['a'] }}}", vec![hole("{'a': {'b': 1}}['a']"), text("}")]),
            ("${{ '}}' + \"}}\\\"\" }}", vec![hole("'}}' + \"}}\\\"\"")]),
            ("${{ r'\\' + x }}", vec![hole("r'\\' + x")]),
            ("${{ '''a'}}''' }}", vec![hole("'''a'}}'''")]),
            ("$ $$ ${x} $${{ x }} $", vec![text("$ $$ ${x} ${{ x }} $")]),
            ("é${{ 'ü' }}", vec![text("é"), hole("'ü'")]),
            ("${{ a // it's }}b", vec![hole("a // it's"), text("b")]),
        ];
        for (given, expected) in cases {
            assert_eq!(parts(given), expected, "{given}");
        }
    }

    #[test]
    fn all_holes_that_are_wrong_are_told() {
        let wrong = parse("a ${{ }} b ${{}} ${{ 'x }}\n c").unwrap_err();
        let told: Vec<_> = wrong.iter().map(|wrong| (wrong.span.clone(), wrong.message.as_str())).collect();
        let empty = "there is nothing in `${{ }}`";
        assert_eq!(told, [(2..8, empty), (11..16, empty), (17..26, "`${{` has no `}}`")]);
    }

    proptest! {
        #[test]
        fn a_template_is_read_as_it_is_written(text in "[a-z${} '\"]{0,24}") {
            if let Ok(parsed) = parse(&text) {
                let again = parse(&parsed.template.to_string());
                prop_assert_eq!(again.map(|again| again.template), Ok(parsed.template));
            }
        }
    }
}
