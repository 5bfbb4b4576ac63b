//! Measures the depth of an expression before it is parsed: parser and evaluation use the stack for each level, and an
//! expression comes from a file that may come from an untrusted author.
//!
//! Text literals and comments are not counted. So this scanner must agree with the parser on what is text, to the byte:
//! a source whose brackets look like text here but not to the parser could overflow the stack and end the process.
//! After a literal that the grammar does not know, nothing is taken for text any more; that can only count too much, in
//! a source that is refused in any case.

/// The depth of nested operators and brackets. People write ten; a parser on a thread's stack bears some hundred.
const DEPTH_MAX: usize = 128;

/// Levels counted for a bracket: inside it, the grammar goes through all its rules again.
const BRACKET_LEVELS: usize = 4;

/// Returns the offset where the expression gets deeper than [`DEPTH_MAX`], if it does.
pub(super) fn exceeded(source: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut levels = Levels { open: vec![0], total: 0 };
    let (mut at, mut knows_text, mut word_at) = (0, true, 0);
    while at < bytes.len() {
        let byte = bytes[at];
        let word = &source[word_at..at];
        if knows_text && let Some(skipped) = skipped(source, at, word) {
            match skipped {
                Skipped::To(end) => {
                    (at, word_at) = (end, end);
                    continue;
                }
                Skipped::Unknown => knows_text = false,
            }
        }
        // `in` is the only operator that is a word.
        if word.is_empty() && source[at..].starts_with("in") {
            levels.add();
        }
        levels.count(byte);
        if levels.total > DEPTH_MAX {
            return Some((0..=at).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0));
        }
        at += 1;
        if !(byte.is_ascii_alphanumeric() || byte == b'_') || !source.is_char_boundary(at) {
            word_at = (at..=source.len()).find(|at| source.is_char_boundary(*at)).unwrap_or(source.len());
            at = at.max(word_at);
        }
    }
    None
}

/// Operators since the last comma, for each bracket that is open.
struct Levels {
    open: Vec<usize>,
    total: usize,
}

impl Levels {
    fn count(&mut self, byte: u8) {
        match byte {
            b'(' | b'[' | b'{' => {
                self.open.push(BRACKET_LEVELS);
                self.total += BRACKET_LEVELS;
            }
            b')' | b']' | b'}' if self.open.len() > 1 => self.total -= self.open.pop().unwrap_or(0),
            b',' => {
                let base = if self.open.len() > 1 { BRACKET_LEVELS } else { 0 };
                if let Some(level) = self.open.last_mut() {
                    self.total -= level.saturating_sub(base);
                    *level = base;
                }
            }
            _ if byte.is_ascii_punctuation() && byte != b'_' => self.add(),
            _ => {}
        }
    }

    fn add(&mut self) {
        if let Some(level) = self.open.last_mut() {
            *level += 1;
            self.total += 1;
        }
    }
}

/// A part of the source that is not counted.
enum Skipped {
    /// A text literal or a comment that ends at this offset.
    To(usize),
    /// A text literal without an end, or one that can be read in two ways.
    Unknown,
}

fn skipped(source: &str, at: usize, word: &str) -> Option<Skipped> {
    let rest = &source.as_bytes()[at..];
    match rest {
        // A name in backquotes may hold slashes.
        [b'/', b'/', ..] if !source[..at].contains('`') => {
            Some(Skipped::To(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())))
        }
        [b'/', b'/', ..] => Some(Skipped::Unknown),
        [quote @ (b'\'' | b'"'), ..] => {
            let (raw, cooked) = (text_end(rest, *quote, true), text_end(rest, *quote, false));
            let end = match word.as_bytes() {
                [b'r' | b'R'] | [b'b' | b'B', b'r' | b'R'] => raw,
                // The `r` may be the prefix of a raw literal, as after a number, or the end of a name.
                [.., b'r' | b'R'] if raw != cooked => None,
                _ => cooked,
            };
            Some(end.map_or(Skipped::Unknown, |end| Skipped::To(at + end)))
        }
        _ => None,
    }
}

/// Returns where the text literal that begins here ends, if it is one.
fn text_end(rest: &[u8], quote: u8, is_raw: bool) -> Option<usize> {
    let triple = [quote; 3];
    let is_long = rest.starts_with(&triple);
    let mut at = if is_long { 3 } else { 1 };
    loop {
        match rest.get(at)? {
            _ if is_long && rest[at..].starts_with(&triple) => return Some(at + 3),
            byte if *byte == quote && !is_long => return Some(at + 1),
            b'\n' | b'\r' if !is_long => return None,
            b'\\' if !is_raw => at += 1 + escaped(&rest[at + 1..])?,
            _ => at += 1,
        }
    }
}

/// Returns the number of bytes after a backslash that belong to the escape, if it is a valid one.
fn escaped(rest: &[u8]) -> Option<usize> {
    let digits = |count: usize| {
        let digits = rest.get(1..=count)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(1 + count)
    };
    match rest {
        [b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`', ..] => Some(1),
        [b'x' | b'X', ..] => digits(2),
        [b'u', ..] => digits(4),
        [b'U', ..] => digits(8),
        [b'0'..=b'3', b'0'..=b'7', b'0'..=b'7', ..] => Some(3),
        _ => None,
    }
}
