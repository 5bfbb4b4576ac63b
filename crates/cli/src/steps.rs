//! Finds the step of a run that a word on the command line names.

use crate::{codes, exit::Exit, fault::Fault, verbs::ls::shell_word, words};
use onceflow_engine::{EventKind, Handle, Outline};
use std::collections::{BTreeMap, BTreeSet};

/// The address is the step that a word names, written as in the flow or as an address.
pub(crate) fn is(address: &str, word: &str) -> bool {
    address == word || words::step(address) == word.trim_start_matches('/')
}

/// The address is the step that a word names, or inside it.
pub(crate) fn is_within(address: &str, word: &str) -> bool {
    let (step, word) = (words::step(address), word.trim_start_matches('/'));
    is(address, word) || step.strip_prefix(word).is_some_and(|rest| rest.starts_with(['/', '[', '@']))
}

/// The known steps of a run: those of its flow, with `*` for numbers, and those that had events.
#[derive(Default)]
pub(crate) struct Known {
    addresses: BTreeSet<String>,
    /// Elements of eaches, as they were last opened.
    elements: BTreeMap<String, usize>,
    /// Iterations that loops have begun.
    iterations: BTreeMap<String, usize>,
}

impl Known {
    /// Takes the steps of a flow.
    pub(crate) fn of(outline: &[Outline]) -> Self {
        let mut known = Known::default();
        outline.iter().for_each(|line| known.add(&line.address));
        known
    }

    /// Adds an address, unless it is a helper's.
    pub(crate) fn add(&mut self, address: &str) {
        if !words::is_helper(address) {
            self.addresses.insert(address.to_owned());
        }
    }

    /// Adds the address of an event, and the elements and iterations that the event mentions.
    pub(crate) fn heard(&mut self, address: &str, what: Option<&EventKind>) {
        self.add(address);
        let step = words::step(address);
        for (at, _) in step.match_indices('@') {
            self.iterations.entry(step[..at].to_owned()).or_insert(1);
        }
        match what {
            Some(EventKind::DidOpen { elements, .. }) => drop(self.elements.insert(step, *elements as usize)),
            Some(EventKind::DidTurn { iteration, .. }) => {
                let begun = self.iterations.entry(step).or_default();
                *begun = (*begun).max(*iteration as usize + 1);
            }
            _ => {}
        }
    }

    /// Checks that a word names a step, or one around others. A word with numbers does, unless there are fewer elements
    /// or iterations.
    ///
    /// # Errors
    /// If the word names no step.
    pub(crate) fn must_be(&self, run: &str, word: &str) -> Result<(), Fault> {
        if self.addresses.iter().any(|address| is_within(address, word)) {
            return Ok(());
        }
        let unknown = unknown(run, word, self.addresses.iter().map(String::as_str));
        if !self.addresses.iter().any(|address| is_outlined(address, word)) {
            return Err(unknown);
        }
        self.beyond(word).map_or(Ok(()), |hint| Err(unknown.hint(hint)))
    }

    /// The hint for a word whose numbers are too high.
    fn beyond(&self, word: &str) -> Option<String> {
        let word = word.trim_start_matches('/');
        for (at, mark) in word.match_indices(['[', '@']) {
            let (around, rest) = (&word[..at], &word[at + 1..]);
            let number = &rest[..rest.find([']', '/', '@', '[']).unwrap_or(rest.len())];
            let (known, what, close) = match mark {
                "[" => (&self.elements, "element", "]"),
                _ => (&self.iterations, "iteration", ""),
            };
            let Some(n) = known.get(around).copied() else { continue };
            if number.parse::<usize>().is_ok_and(|number| number < n) {
                continue;
            }
            let named = |number: usize| format!("`{around}{mark}{number}{close}`");
            let has = words::count(n, what);
            return Some(match n {
                0 => format!("`{around}` has no elements"),
                1 => format!("`{around}` has {has}: {}", named(0)),
                n => format!("`{around}` has {has}: {} to {}", named(0), named(n - 1)),
            });
        }
        None
    }
}

/// The word, with its numbers, names a step that the outline has with `*`, or one around it.
fn is_outlined(outlined: &str, word: &str) -> bool {
    let (outlined, word) = (without_numbers(&words::step(outlined)), without_numbers(word.trim_start_matches('/')));
    let rest = outlined.strip_prefix(&word);
    !word.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '@']))
}

/// Writes `align[3]/sort` as `align[]/sort`, and `refine@2/half` as `refine@/half`.
fn without_numbers(text: &str) -> String {
    let (mut shown, mut skips) = (String::new(), false);
    for letter in text.chars() {
        skips &= !matches!(letter, ']' | '/' | '[' | '@');
        if !skips {
            shown.push(letter);
        }
        skips |= matches!(letter, '[' | '@');
    }
    shown
}

/// Checks that a word, if given, names a step of the flow, as long as the flow is known.
///
/// # Errors
/// If the word names no step, or the store does not answer.
pub(crate) async fn must_be_known(handle: &Handle, word: Option<&str>) -> Result<(), Fault> {
    match (word, handle.steps().outline().await?) {
        (Some(word), Some(outline)) => Known::of(&outline).must_be(handle.key(), word),
        _ => Ok(()),
    }
}

/// The error for an unknown step, with the step that was probably meant.
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
    fn a_word_with_numbers_is_a_step_unless_there_are_fewer() {
        let mut known = Known::default();
        for address in ["/two[*]/in[*]/x", "/report", "/turn@*/x", "/other[*]", "/w-when"] {
            known.add(address);
        }
        known.heard("/two", Some(&EventKind::DidOpen { address: "/two".into(), elements: 3 }));
        known.heard("/two[1]/in", Some(&EventKind::DidOpen { address: "/two[1]/in".into(), elements: 0 }));
        known.heard("/turn@0/x", Some(&EventKind::WillRun { address: "/turn@0/x".into(), attempt: 1 }));
        known.heard("/turn", Some(&EventKind::DidTurn { address: "/turn".into(), iteration: 1 }));
        let no = "no";
        for (word, wrong) in [
            ("report", None),
            ("/two", None),
            ("two[2]", None),
            ("two[2]/in", None),
            ("two[0]/in[7]/x", None),
            ("two[3]", Some("`two` has 3 elements: `two[0]` to `two[2]`")),
            ("/two[x]/in[0]", Some("`two` has 3 elements: `two[0]` to `two[2]`")),
            ("two[1]/in[0]", Some("`two[1]/in` has no elements")),
            ("turn@1/x", None),
            ("turn@2/x", Some("`turn` has 2 iterations: `turn@0` to `turn@1`")),
            ("other[9]", None),
            ("two/in", Some(no)),
            ("repor", Some(no)),
            ("w", Some(no)),
            ("", Some(no)),
        ] {
            let hint = known.must_be("r", word).map_err(|fault| fault.hint.unwrap_or_default()).err();
            match wrong {
                Some(wrong) if wrong == no => assert!(hint.is_some(), "{word}"),
                wrong => assert_eq!(hint.as_deref(), wrong, "{word}"),
            }
        }
    }
}
