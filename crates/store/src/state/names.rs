//! Names in order: where a walk begins, and two walks as one.

use onceflow_core::Name;
use std::{cmp::Ordering, ops::Bound};

/// Where a walk begins that wants names that begin with a prefix and come after another. It ends with the first that
/// begins with something else.
#[inline]
pub(crate) fn from<'a>(prefix: &'a [u8], after: Option<&'a [u8]>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    (from, Bound::Unbounded)
}

/// The least bytes above everything that begins with `prefix`; `None` if there is nothing above.
pub(crate) fn just_past(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut past = prefix[..=last].to_vec();
    past[last] += 1;
    Some(past)
}

/// The names of both, in order, each once.
pub(super) fn merged<'a>(
    one: impl Iterator<Item = &'a Name>,
    other: impl Iterator<Item = &'a Name>,
) -> impl Iterator<Item = &'a Name> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || {
        let order = match (one.peek(), other.peek()) {
            (Some(one), Some(other)) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => one.next(),
            Ordering::Greater => other.next(),
            Ordering::Equal => {
                one.next();
                other.next()
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn just_past_is_above_all_that_begin_with_it_and_nothing_else() {
        assert_eq!(just_past(b"ab").unwrap(), b"ac");
        assert_eq!(just_past(&[1, 255, 255]).unwrap(), [2]);
        assert_eq!(just_past(&[255]), None);
        assert_eq!(just_past(b""), None);
    }

    #[test]
    fn two_walks_are_one_and_what_is_in_both_comes_once() {
        let names = |text: &str| text.bytes().map(|byte| Name::new([byte])).collect::<Vec<_>>();
        for (one, other, both) in [("", "", ""), ("ac", "", "ac"), ("", "b", "b"), ("acd", "bcef", "abcdef")] {
            let (one, other) = (names(one), names(other));
            assert_eq!(merged(one.iter(), other.iter()).cloned().collect::<Vec<_>>(), names(both));
        }
    }
}
