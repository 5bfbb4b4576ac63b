//! Words of a flow file: suggestions for misspelt ones, valid names, durations and sizes.

use onceflow_core::model::check::names::distance;
use onceflow_exec::expr::{KEYWORDS, RESERVED};

/// Words with a meaning of their own at the beginning of an expression.
const ROOTS: &[&str] = &[
    "inputs",
    "out",
    "cpus",
    "memory",
    "attempt",
    "key",
    "secrets",
    "env",
    "status",
    "headers",
    "body",
    "stdout",
    "iteration",
    "after",
    "when",
];

/// Returns every word that cannot be the name of a step or a variable; the flag is true if it cannot be the name of an
/// input, an output or a field either.
pub fn reserved_names() -> Vec<(&'static str, bool)> {
    let members = KEYWORDS.iter().chain(&RESERVED).map(|name| (*name, true));
    let mut all: Vec<_> = members.chain(ROOTS.iter().map(|name| (*name, false))).collect();
    all.sort_unstable_by_key(|(name, is_member)| (*name, !*is_member));
    all.dedup_by_key(|(name, _)| *name);
    all
}

/// Bytes of a name; bounded because addresses and ports are composed of several names.
const NAME_BYTES_MAX: usize = 60;

/// Returns the reason why this cannot be a name after a dot: of an input, an output, a field.
pub(crate) fn bad_member(name: &str) -> Option<String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty() || !name.chars().all(is_letter) || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Some(format!(
            "a name is made of letters, digits and `_`, and does not start with a digit{}",
            instead(name)
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        return Some(format!("a name has at most {NAME_BYTES_MAX} letters"));
    }
    let is_taken = KEYWORDS.contains(&name) || RESERVED.contains(&name);
    is_taken.then(|| format!("`{name}` already means something in expressions"))
}

/// Returns the reason why this cannot be the name of a step or a variable.
pub(crate) fn bad_name(name: &str) -> Option<String> {
    let is_root = || ROOTS.contains(&name).then(|| format!("`{name}` already means something in expressions"));
    bad_member(name).or_else(is_root)
}

/// Suggests a valid name for one with invalid characters.
fn instead(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let other: String = name.chars().map(plain).collect();
    let other = if other.starts_with(|first: char| first.is_ascii_digit()) { format!("_{other}") } else { other };
    match other.contains(|letter: char| letter != '_') && other.len() <= NAME_BYTES_MAX {
        true => format!("; `{other}` would do"),
        false => String::new(),
    }
}

/// Returns a hint with the known word nearest to this; else with all known words, if they are few.
pub(crate) fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let limit = word.chars().count().div_ceil(3).min(3);
    let near = known.iter().filter(|other| other.len().abs_diff(word.len()) <= limit && word.len() <= 64);
    let nearest = near.map(|other| (distance(word, other), *other)).min().filter(|(distance, _)| *distance <= limit);
    if let Some((_, other)) = nearest {
        return format!("did you mean `{other}`?");
    }
    match known.len() {
        0 => String::new(),
        1..=12 => format!("there is {}", list(known.iter().copied())),
        _ => String::new(),
    }
}

/// Formats words in backticks, separated by commas.
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

const DURATIONS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 7 * 86_400_000)];

const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The hint for an invalid duration.
pub(crate) const DURATION_RULE: &str = "a duration is a number and a unit: `500ms`, `30s`, `10m`, `1h`, `7d`, `2w`";

/// The hint for an invalid size.
pub(crate) const SIZE_RULE: &str = "a size is a number and a unit: `512MiB`, `2GB`";

/// Parses a duration to milliseconds: `500ms 1s 10m 2h 1d 1w`, several of these (`1h30m`), or a plain `0`.
pub fn duration_ms(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let (value, unit, left) = quantity(rest, DURATIONS)?;
        if unit >= last {
            return None;
        }
        last = unit;
        total = total.checked_add(value)?;
        rest = left;
    }
    (last != u64::MAX).then_some(total)
}

/// Parses a size to bytes: `512MiB`, `2GB`, `1.5GB`.
pub fn size_bytes(text: &str) -> Option<u64> {
    let (bytes, _, rest) = quantity(text.trim(), SIZES)?;
    rest.is_empty().then_some(bytes)
}

/// A number and its unit, what that unit is, and what follows.
fn quantity<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(u64, u64, &'a str)> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let whole = match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(*scale)?,
        Some((whole, part)) if !whole.is_empty() && !part.is_empty() && part.len() <= 6 && !part.contains('.') => {
            let divisor = 10_u64.pow(part.len() as u32);
            let part = part.parse::<u64>().ok()?.checked_mul(*scale)? / divisor;
            whole.parse::<u64>().ok()?.checked_mul(*scale)?.checked_add(part)?
        }
        Some(_) => return None,
    };
    Some((whole, *scale, rest))
}

/// The word can be a label of a worker.
pub fn is_label(word: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=32).contains(&word.len()) && word.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_say_what_they_say_and_nothing_else() {
        let second = 1000;
        for (text, ms) in [
            ("0", Some(0)),
            ("500ms", Some(500)),
            ("1s", Some(second)),
            ("1.5s", Some(1500)),
            ("10m", Some(600 * second)),
            ("1h30m", Some(5400 * second)),
            ("1 d", Some(86_400 * second)),
            ("2w", Some(14 * 86_400 * second)),
            ("10", None),
            ("", None),
            ("-1s", None),
            ("1m1h", None),
            ("s", None),
            ("1 year", None),
            ("1.s", None),
            ("1.2.3s", None),
            ("99999999999999999999s", None),
            ("9999999999999999w", None),
        ] {
            assert_eq!(duration_ms(text), ms, "{text}");
        }
        for (text, bytes) in [
            ("2GB", Some(2_000_000_000)),
            ("512MiB", Some(512 << 20)),
            ("1.5kB", Some(1500)),
            ("7B", Some(7)),
            ("2", None),
            ("2gb", None),
            ("2GB2", None),
            ("99999999999TB", None),
        ] {
            assert_eq!(size_bytes(text), bytes, "{text}");
        }
    }

    #[test]
    fn labels_are_plain_words() {
        assert!(["gpu", "A-1", "x_y.z"].into_iter().all(is_label));
        assert!(["", "a b", "a+b", "a/b", "ü", &"x".repeat(33)].into_iter().all(|word| !is_label(word)));
    }

    #[test]
    fn names_are_those_that_expressions_can_say() {
        for good in ["a", "_x", "read1", "A_b", "size"] {
            assert_eq!(bad_name(good), None, "{good}");
        }
        for bad in ["", "1a", "a-b", "a b", "ä", "a.b", "inputs", "while", "null", "string", "list", &"x".repeat(61)] {
            assert!(bad_name(bad).is_some(), "{bad}");
        }
        assert!(bad_name("out").is_some() && bad_member("out").is_none() && bad_member("while").is_some());
        assert!(bad_name("call-variants").is_some_and(|why| why.ends_with("`call_variants` would do")));
    }
}
