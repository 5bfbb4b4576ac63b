//! The kernel's check, with its problems translated into the words and places of the flow file.

use crate::{
    problem::{Diagnostics, Problem},
    source::{SourceFile, Span},
};
use onceflow_core::model::{CheckedFlow, Library, Mistake, check::MistakeKind};

/// Checks the whole flow. If the file has problems already, only problems that these cannot have caused are reported.
/// `None` if there are problems.
pub(crate) fn run(library: Library, main: &str, sources: &[SourceFile], report: &Diagnostics) -> Option<CheckedFlow> {
    tracing::debug!(flow = main, "checking a flow");
    let errors = match CheckedFlow::check(library, main) {
        Ok(checked) => return Some(checked),
        Err(errors) => errors,
    };
    let is_clean = report.is_empty();
    let has_cycle = errors.0.iter().any(|mistake| matches!(mistake.what, MistakeKind::Cycle { .. }));
    for mistake in errors.0 {
        let sure = matches!(mistake.what, MistakeKind::Cycle { .. } | MistakeKind::Endless { .. });
        if sure || is_clean && !has_cycle {
            report.push(problem(&mistake, sources));
        }
    }
    None
}

fn problem(mistake: &Mistake, sources: &[SourceFile]) -> Problem {
    let place = match &mistake.origin {
        Some(origin) => sources.iter().find(|source| *source.file() == *origin.file).map(|source| {
            let start = source.byte_at(origin.line, origin.column);
            let rest = &source.text()[start..];
            let len = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '.');
            source.place(Span::new(start, start + len.unwrap_or(rest.len())))
        }),
        // The problem concerns the flow as a whole.
        None => sources.first().map(|source| source.place(Span::new(0, 0))),
    };
    let message = dotted(&mistake.what.to_string());
    Problem { code: mistake.what.code(), message, place, hint: mistake.hint.as_deref().map(dotted) }
}

/// Rewrites ports as users write them: `inputs.reads`, not `inputs-reads`.
fn dotted(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let is_name = |at: usize| letters.get(at).is_some_and(|letter| letter.is_ascii_alphanumeric() || *letter == '_');
    let dot = |(at, letter): (usize, &char)| match letter {
        '-' if at > 0 && is_name(at - 1) && is_name(at + 1) => '.',
        other => *other,
    };
    letters.iter().enumerate().map(dot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_shown_with_dots() {
        assert_eq!(dotted("port `inputs-reads` of /a -> /b"), "port `inputs.reads` of /a -> /b");
    }
}
