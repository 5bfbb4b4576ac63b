//! Inputs of a stream that is a step: holes that stand for the whole name of a file or directory.

use crate::{
    source::{Span, Text},
    syntax::fields::FieldReader,
};
use onceflow_core::model::Type;
use onceflow_exec::{action::TemplatePart, template};
use std::ops::Range;

/// A hole that stands for a file or a directory.
#[derive(Clone, Debug)]
pub(crate) struct InputHole {
    pub(crate) text: Text,
    /// The expression in it.
    pub(crate) range: Range<usize>,
}

impl InputHole {
    /// Returns the expression.
    pub(crate) fn source(&self) -> &str {
        &self.text.text[self.range.clone()]
    }

    /// Returns its place.
    pub(crate) fn span(&self, reader: FieldReader<'_>) -> Span {
        reader.source.inside(&self.text, self.range.clone())
    }
}

/// The use of a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUse {
    /// Files that are read as lines.
    Lines,
    /// A directory whose files are read as lines.
    Directory,
    /// The file of a table.
    Table,
}

impl GivenUse {
    /// A value of this type can be used so.
    pub(crate) fn takes(self, ty: &Type) -> bool {
        match self {
            GivenUse::Lines => *ty == Type::File || *ty == Type::list(Type::File),
            GivenUse::Directory => *ty == Type::Directory,
            GivenUse::Table => *ty == Type::File,
        }
    }

    /// Names the types that can be used so.
    pub(crate) fn wanted(self) -> &'static str {
        match self {
            GivenUse::Lines => "a file or list<file>",
            GivenUse::Directory => "a directory",
            GivenUse::Table => "a file",
        }
    }
}

/// A name of a file in a stream.
pub(super) enum PathText {
    /// As it stands.
    Literal(Text),
    Given(InputHole),
}

/// Reads the name of a file, which may be a hole; `None` after reporting a hole that is only a part of it.
pub(super) fn path(reader: FieldReader<'_>, text: Text) -> Option<PathText> {
    if !text.text.contains("${{") {
        return Some(PathText::Literal(text));
    }
    let parsed = match template::parse(&text.text) {
        Ok(parsed) => parsed,
        Err(wrong) => {
            for wrong in wrong {
                let span = reader.source.inside(&text, wrong.span);
                reader.say(span, "OF0114", wrong.message, wrong.hint.unwrap_or_default());
            }
            return None;
        }
    };
    match (&parsed.template.0[..], &parsed.spans[..]) {
        ([TemplatePart::Hole(_)], [range]) => Some(PathText::Given(InputHole { range: range.clone(), text })),
        _ => {
            let hint = "`${{ inputs.log }}`, and nothing beside it";
            reader.say(text.span, "OF0106", "a hole is the whole file here, not a part of its name", hint);
            None
        }
    }
}
