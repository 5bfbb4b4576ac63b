//! Which step of a run a word on the command line means.

use crate::{codes, exit::Exit, fault::Fault, verbs::ls::shell_word, words};
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
    Fault::new(Exit::No, codes::NO_STEP, format!("run `{run}` has no step `{word}`")).hint(hint)
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
}
