//! Commands for a shell, with holes. The value of a hole never becomes text that a shell parses: it becomes a variable,
//! and the text refers to the variable, quoted as its place needs it.
//!
//! | file | what it owns |
//! |---|---|
//! | `shell/scan.rs` and below | which quoting a hole stands in |
//! | `shell/assemble.rs` | the text and the variables, once values are known |
//! | `shell/direct.rs` | commands that need no shell |

mod assemble;
mod direct;
mod scan;
mod words;

pub(crate) use assemble::assemble;
pub(crate) use direct::direct;
pub(crate) use words::{Unfit, text as text_of, words as words_of};

use crate::action::{Shell, Template};

/// The language of a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Bash's.
    Bash,
    /// The language of every POSIX shell.
    Posix,
}

impl Shell {
    /// Returns the language of the shell.
    pub fn dialect(&self) -> Dialect {
        match self {
            Shell::Bash => Dialect::Bash,
            Shell::Sh => Dialect::Posix,
            Shell::Custom(program) => match program.first().is_some_and(|name| name.contains("bash")) {
                true => Dialect::Bash,
                false => Dialect::Posix,
            },
        }
    }
}

/// The use of a hole, determined by its place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Outside of quotes: one word for each value.
    Words {
        /// The hole is a word of its own, not a part of one, and not the target of a redirection.
        alone: bool,
    },
    /// Inside quotes: the values as one text.
    Text,
    /// In arithmetic, where the shell would take anything but a number for a program.
    Number {
        /// The hole is an index, where space would matter.
        index: bool,
    },
    /// In a comment: the value is not used.
    Nothing,
}

/// A hole where no value can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedHole {
    /// The index of the hole among the template's parts.
    pub part: usize,
    /// The reason.
    pub message: String,
    /// Advice how to write it instead.
    pub hint: String,
}

/// A command's text, with the use of each hole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text of the shell.
    Text(String),
    /// A hole: which part of the template, and how it is used.
    Hole(usize, Use),
}

impl Scanned {
    /// The parts of the template that are holes, and how each is used.
    pub fn uses(&self) -> impl Iterator<Item = (usize, Use)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Hole(part, used) => Some((*part, *used)),
            Piece::Text(_) => None,
        })
    }
}

/// Finds out which quoting each hole of a command stands in.
///
/// # Errors
/// All holes that stand where a value cannot go: inside single quotes, in the name of a variable, and so on.
pub fn scan(template: &Template, dialect: Dialect) -> Result<Scanned, Vec<RefusedHole>> {
    scan::scan(template, dialect)
}

/// As [`scan`], for bash; returns only the errors.
///
/// # Errors
/// As [`scan`].
pub fn check(template: &Template) -> Result<(), Vec<RefusedHole>> {
    scan(template, Dialect::Bash).map(|_| ())
}

#[cfg(test)]
mod tests;
