//! Problems with a flow file or its inputs: message, place, hint. All are reported at once.

use crate::source::{SourceFile, Span};
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, fmt};

/// A problem in a flow file or its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The code for looking it up, which never changes its meaning.
    pub code: &'static str,
    /// The problem, in plain words.
    pub message: String,
    /// Its place in a file, if it has one.
    pub place: Option<SourceLocation>,
    /// Advice how to correct it.
    pub hint: Option<String>,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// Characters that the problem covers, at least 1.
    pub len: u32,
    /// The line itself.
    pub source_line: String,
}

/// All problems; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl std::error::Error for Problems {}

impl Problem {
    /// A problem without a place.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Problem { code, message: message.into(), place: None, hint: None }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Problem { hint: Some(hint.into()), ..self }
    }
}

impl SourceLocation {
    /// Returns carets below the characters of the problem, for a line that is shown trimmed. `None` if they are outside
    /// the shown part, as at the end of a very long line.
    fn underline(&self) -> Option<String> {
        let shown = self.source_line.trim();
        let indent = self.source_line.chars().take_while(|letter| letter.is_whitespace()).count();
        let before = (self.column as usize).checked_sub(1 + indent)?;
        let left = shown.chars().count().checked_sub(before).filter(|left| *left > 0)?;
        // A tab stays a tab, so that the carets line up with the text in a terminal.
        let space = shown.chars().take(before).map(|letter| if letter == '\t' { '\t' } else { ' ' });
        let carets = (self.len as usize).clamp(1, left);
        Some(space.chain(std::iter::repeat_n('^', carets)).collect())
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Problems(vec![problem])
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(place) = &self.place {
            let SourceLocation { file, line, column, source_line, .. } = place;
            write!(f, "\n  --> {file}:{line}:{column}")?;
            if !source_line.trim().is_empty() {
                write!(f, "\n   |  {}", source_line.trim())?;
            }
            if let Some(underline) = place.underline() {
                write!(f, "\n   |  {underline}")?;
            }
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { "\n\n" };
            write!(f, "{between}{problem}")?;
        }
        Ok(())
    }
}

/// Problems reported for one file; more would not help the user.
const PROBLEMS_MAX: usize = 50;

/// A construct that is allowed but probably not intended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The warning, in plain words.
    pub message: String,
    /// The file it is in, and the line, from 1.
    pub place: (String, u32),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { message, place: (file, line) } = self;
        write!(f, "{file}:{line}: {message}")
    }
}

/// The problems so far.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Warning>>,
}

impl Diagnostics {
    pub(crate) fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Reports a problem at a span of a source; the hint may be empty.
    pub(crate) fn at(
        &self,
        source: &SourceFile,
        span: Span,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        self.push(Problem { code, message: message.into(), place: Some(source.place(span)), hint });
    }

    /// Reports a construct that is allowed but probably not intended.
    pub(crate) fn warn(&self, source: &SourceFile, span: Span, message: impl Into<String>) {
        let place = source.place(span);
        let warning = Warning { message: message.into(), place: (place.file, place.line) };
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < PROBLEMS_MAX && !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Returns the warnings so far.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.warnings.borrow().clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.problems.borrow().len()
    }

    /// Returns the problems in the order of the files and their lines; `Ok` if there are none.
    pub(crate) fn result(self) -> Result<(), Problems> {
        let mut problems = self.problems.into_inner();
        if problems.is_empty() {
            return Ok(());
        }
        let mut files: Vec<String> = Vec::new();
        for place in problems.iter().filter_map(|problem| problem.place.as_ref()) {
            if !files.contains(&place.file) {
                files.push(place.file.clone());
            }
        }
        problems.sort_by_key(|problem| {
            let place = problem.place.as_ref();
            place.map(|place| (files.iter().position(|file| *file == place.file), place.line, place.column))
        });
        Err(Problems(problems))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, column: u32, len: u32) -> String {
        let place = SourceLocation { file: "f".into(), line: 1, column, len, source_line: line.to_owned() };
        place.underline().unwrap_or_else(|| String::from("none"))
    }

    #[test]
    fn carets_stand_below_what_is_meant() {
        assert_eq!(shown("  a: bcd", 6, 3), "   ^^^");
        assert_eq!(shown("a: é", 4, 1), "   ^");
        assert_eq!(shown("a:\tb", 4, 1), "  \t^");
        assert_eq!(shown("a: bcd", 4, 99), "   ^^^", "no further than the line");
        assert_eq!(shown("a: b", 40, 3), "none", "a line that was cut before it");
        assert_eq!(shown("   a", 1, 1), "none", "the space that is not shown");
        assert_eq!(shown("", 1, 1), "none");
    }
}
