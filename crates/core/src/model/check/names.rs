//! Valid names, and the known name that was probably meant by an unknown one.

use crate::limits::MODULE_NAME_BYTES_MAX;

/// The hint for an invalid name.
pub(super) const RULE: &str = "a name consists of letters (a-z, A-Z), digits, `_` and `-`, at most 128 of them";

/// The text is a valid name: usable in an address, in a key, and as a word on a command line.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= MODULE_NAME_BYTES_MAX && name.chars().all(allowed)
}

/// Returns the known name nearest to `name`, as a hint; else lists the known names, if there are few.
pub(super) fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    // In a very short name every letter counts, so it must match exactly.
    let limit = name.chars().count() / 3;
    // Longer names are not worth the cost of the distance table.
    let near = known.clone().filter(|other| other.len().abs_diff(name.len()) <= 2 * limit && name.len() <= 256);
    let nearest = near.map(|other| (distance(name, other), other)).min().filter(|(distance, _)| *distance <= limit);
    if let Some((_, other)) = nearest {
        return Some(format!("did you mean `{other}`?"));
    }
    let few: Vec<_> = known.take(6).map(|other| format!("`{other}`")).collect();
    match few.len() {
        0 => None,
        1..=5 => Some(format!("there is {}", few.join(", "))),
        _ => None,
    }
}

/// Returns the edit distance of two words: letters to change, add, drop, or swap with their neighbour.
pub fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        let known = ["align", "sort", "merge_all"];
        let meant = |name: &str| meant(name, known.iter().copied());
        assert_eq!(meant("algin").as_deref(), Some("did you mean `align`?"));
        assert_eq!(meant("mergeall").as_deref(), Some("did you mean `merge_all`?"));
        assert_eq!(meant("sotr").as_deref(), Some("did you mean `sort`?"));
        assert_eq!(meant("call").as_deref(), Some("there is `align`, `sort`, `merge_all`"));
        assert_eq!(super::meant("x", std::iter::empty()), None);
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "F10", "merge_all", "x-ray", "0"] {
            assert!(is_name(good), "{good}");
        }
        let long = "x".repeat(129);
        for bad in ["", "a b", "a.b", "a/b", "a:b", "a[0]", "ä", "a@2", "~a", &long] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
