//! Which step of a run a word on the command line means.

use crate::{codes, exit::Exit, fault::Fault, picture::scene::box_id, verbs::ls::shell_word, words};
use std::collections::BTreeSet;

/// Whether an address is the step that a word means: as people write it, or as it is.
pub(crate) fn is(address: &str, word: &str) -> bool {
    address == word || words::step(address) == word.trim_start_matches('/')
}

/// Whether an address is the step that a word means, or inside it.
pub(crate) fn is_within(address: &str, word: &str) -> bool {
    let (step, word) = (words::step(address), word.trim_start_matches('/'));
    is(address, word) || step.strip_prefix(word).is_some_and(|rest| rest.starts_with(['/', '[', '@']))
}

/// Whether a word means a step of a flow, or one around others, by an outline that has `*` for numbers. A word with numbers
/// is one only if any number may be right.
pub(crate) fn is_outlined(word: &str, outline: &[String], any_number: bool) -> bool {
    let id = box_id(word);
    let is_it = |address: &String| {
        let known = box_id(address);
        known == id || known.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    (any_number || !word.contains(['[', '@'])) && outline.iter().any(is_it)
}

/// A word that is said must mean a step of the flow, if that is still known.
///
/// # Errors
/// If it does not.
pub(crate) fn must_be_outlined(run: &str, word: Option<&str>, outline: Option<&[String]>) -> Result<(), Fault> {
    match (word, outline) {
        (Some(word), Some(outline)) if !is_outlined(word, outline, true) => {
            Err(unknown(run, word, outline.iter().map(String::as_str)))
        }
        _ => Ok(()),
    }
}

/// There is no such step, but perhaps one that is meant.
pub(crate) fn unknown<'a>(run: &str, word: &str, known: impl Iterator<Item = &'a str>) -> Fault {
    const NAMED_MAX: usize = 8;
    let names: BTreeSet<String> = known.map(words::step).filter(|name| !name.is_empty()).collect();
    let hint = match words::nearest(word, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => format!("`onceflow show {}` tells what is known of the run", shell_word(run)),
        None => {
            let more = if names.len() > NAMED_MAX { ", …" } else { "" };
            let some: Vec<_> = names.iter().take(NAMED_MAX).map(|name| format!("`{name}`")).collect();
            format!("it has {}{more}", some.join(", "))
        }
    };
    Fault::new(Exit::Usage, codes::NO_STEP, format!("run `{run}` has no step `{word}`")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_known_by_its_address_and_by_its_name() {
        for (address, word, same, within) in [
            ("/align", "align", true, true),
            ("/align", "/align", true, true),
            ("/align[3]/sort", "align[3]/sort", true, true),
            ("/align[3]/sort", "align", false, true),
            ("/align[30]", "align[3]", false, false),
            ("/aligned", "align", false, false),
            ("/w/-then", "w", true, true),
        ] {
            assert_eq!((is(address, word), is_within(address, word)), (same, within), "{address} {word}");
        }
    }

    #[test]
    fn a_step_of_an_outline_is_known_without_numbers() {
        let outline = ["/align[*]/sort", "/report", "/refine@*/half"].map(str::to_owned);
        for (word, plain, with_any_number) in [
            ("report", true, true),
            ("/report", true, true),
            ("align", true, true),
            ("align/sort", true, true),
            ("align[3]", false, true),
            ("refine@2/half", false, true),
            ("alig", false, false),
            ("align/sorted", false, false),
            ("", false, false),
        ] {
            let known = (is_outlined(word, &outline, false), is_outlined(word, &outline, true));
            assert_eq!(known, (plain, with_any_number), "{word}");
        }
    }
}
