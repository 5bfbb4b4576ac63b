//! Commands that need no shell: words of harmless characters, quotes, and holes. They are split as bash would, and
//! started directly, which saves starting a shell.

use super::{Unfit, text_of, words_of};
use crate::{
    action::{Template, TemplatePart},
    value::PortValue,
};
use std::path::Path;

/// The words of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Direct {
    words: Vec<Word>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Word {
    bits: Vec<Bit>,
    /// The word has quotes, so it is a word even if it is empty.
    is_quoted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bit {
    Text(String),
    Hole { part: usize, is_quoted: bool },
}

/// Names that a shell handles itself, without looking on the PATH.
const BUILTINS: [&str; 87] = [
    ".",
    ":",
    "[",
    "[[",
    "]]",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
    "!",
    "{",
    "}",
    "chdir",
    "print",
    "whence",
    "autoload",
];

/// Splits a command into words, if it needs no shell.
pub(crate) fn direct(template: &Template) -> Option<Direct> {
    let mut split = Split::default();
    for (part, piece) in template.0.iter().enumerate() {
        match piece {
            TemplatePart::Text(text) => text.chars().try_for_each(|found| split.char(found).then_some(()))?,
            TemplatePart::Hole(_) => split.hole(part)?,
        }
    }
    split.end_word();
    let is_closed = split.quote.is_none();
    let first = match split.done.words.first()?.bits.as_slice() {
        [Bit::Text(first)] => first,
        _ => return None,
    };
    // Words with another first character may have a meaning to a shell: `%1`, `a=b`, `-`.
    let begins = first.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_'));
    let is_name = begins && !first.contains('=') && !BUILTINS.contains(&first.as_str());
    (is_closed && is_name).then_some(split.done)
}

#[derive(Default)]
struct Split {
    done: Direct,
    word: Option<Word>,
    quote: Option<char>,
    has_ended: bool,
}

impl Split {
    /// Takes a character; returns false if it needs a shell.
    fn char(&mut self, found: char) -> bool {
        match (self.quote, found) {
            (Some(open), _) if open == found => self.quote = None,
            (Some('"'), '$' | '`' | '\\' | '!') | (_, '\0') => return false,
            (Some(_), _) => self.text(found),
            (None, ' ' | '\t') => self.end_word(),
            (None, '\n') => {
                self.end_word();
                self.has_ended = !self.done.words.is_empty();
            }
            (None, '\'' | '"') if !self.has_ended => {
                self.quote = Some(found);
                self.word.get_or_insert_default().is_quoted = true;
            }
            (None, _) if self.has_ended => return false,
            (None, '_' | '-' | '.' | '/' | ':' | ',' | '+' | '@' | '%' | '=') => self.text(found),
            (None, _) if found.is_alphanumeric() => self.text(found),
            (None, _) => return false,
        }
        true
    }

    fn text(&mut self, found: char) {
        let word = self.word.get_or_insert_default();
        match word.bits.last_mut() {
            Some(Bit::Text(text)) => text.push(found),
            _ => word.bits.push(Bit::Text(String::from(found))),
        }
    }

    /// Takes a hole; returns `None` if a line has ended before it.
    fn hole(&mut self, part: usize) -> Option<()> {
        if self.has_ended || self.quote == Some('\'') {
            return None;
        }
        let is_quoted = self.quote.is_some();
        self.word.get_or_insert_default().bits.push(Bit::Hole { part, is_quoted });
        Some(())
    }

    fn end_word(&mut self) {
        self.done.words.extend(self.word.take());
    }
}

impl Direct {
    /// Returns the words, once values are known.
    pub(crate) fn words(
        &self,
        value_of: &dyn Fn(usize) -> PortValue,
        base: &Path,
    ) -> Result<Vec<String>, (usize, Unfit)> {
        let mut done = Vec::with_capacity(self.words.len());
        for word in &self.words {
            let mut current = word.is_quoted.then(String::new);
            for bit in &word.bits {
                match bit {
                    Bit::Text(text) => current.get_or_insert_default().push_str(text),
                    Bit::Hole { part, is_quoted: true } => {
                        let text = text_of(&value_of(*part), base).map_err(|unfit| (*part, unfit))?;
                        current.get_or_insert_default().push_str(&text);
                    }
                    Bit::Hole { part, is_quoted: false } => {
                        let words = words_of(&value_of(*part), base).map_err(|unfit| (*part, unfit))?;
                        for (at, word) in words.into_iter().enumerate() {
                            if at > 0 {
                                done.extend(current.take());
                            }
                            current.get_or_insert_default().push_str(&word);
                        }
                    }
                }
            }
            done.extend(current);
        }
        Ok(done)
    }
}
