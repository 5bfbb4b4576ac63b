//! How deep an expression is, found before it is parsed: parser and evaluation use the stack for each level, and an
//! expression comes from a file that anyone may have written.

/// Operators and brackets inside one another. People write ten; a parser on a thread's stack bears some hundred.
const DEPTH_MAX: usize = 128;

/// Levels that a bracket takes: the grammar goes through all its rules again.
const BRACKET_LEVELS: usize = 4;

/// Where the expression is deeper than it may be.
pub(super) fn exceeded(source: &str) -> Option<usize> {
    // Operators since the last comma, for each bracket that is open.
    let mut levels = vec![0_usize];
    let mut total = 0_usize;
    let mut bytes = source.bytes().enumerate();
    let mut word_begins = true;
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\'' | b'"' => skip_text(&mut bytes, byte),
            b'(' | b'[' | b'{' => {
                levels.push(BRACKET_LEVELS);
                total += BRACKET_LEVELS;
            }
            b')' | b']' | b'}' if levels.len() > 1 => total -= levels.pop().unwrap_or(0),
            b',' => {
                let base = if levels.len() > 1 { BRACKET_LEVELS } else { 0 };
                if let Some(level) = levels.last_mut() {
                    total -= level.saturating_sub(base);
                    *level = base;
                }
            }
            // The only operator that is a word.
            b'i' if word_begins && source[at..].starts_with("in") => add(&mut levels, &mut total),
            _ if byte.is_ascii_punctuation() && byte != b'_' => add(&mut levels, &mut total),
            _ => {}
        }
        word_begins = !(byte.is_ascii_alphanumeric() || byte == b'_');
        if total > DEPTH_MAX {
            return Some(at);
        }
    }
    None
}

fn add(levels: &mut [usize], total: &mut usize) {
    if let Some(level) = levels.last_mut() {
        *level += 1;
        *total += 1;
    }
}

/// To the end of a text literal. Where it ends too early, what follows only counts more.
fn skip_text(bytes: &mut impl Iterator<Item = (usize, u8)>, quote: u8) {
    while let Some((_, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            byte if byte == quote => return,
            _ => {}
        }
    }
}
