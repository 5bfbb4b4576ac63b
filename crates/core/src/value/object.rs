//! Names of objects: a fence, written so that names sort as fences do, with all names of one incarnation adjacent.

use crate::fence::Fence;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The name of an object. Made from a fence of its writer and never reused.
///
/// ```
/// # use onceflow_core::{Fences, value::ObjectName};
/// let name = ObjectName::new(Fences::new(7).next());
/// assert_eq!(name.to_string(), "00000000000000000000000000000007-0000000000000000");
/// assert_eq!(name.to_string().parse(), Ok(name));
/// assert_eq!(name.made_by(), 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName(Fence);

/// A text that is not the name of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of an object: 32 digits, `-`, 16 digits, all hexadecimal and lower case")]
pub struct BadName(pub String);

/// The number of digits of the incarnation, and of its count.
const MAKER: usize = 32;
const COUNT: usize = 16;

impl ObjectName {
    /// Returns the name made from this fence. A fence names at most one object.
    pub const fn new(fence: Fence) -> Self {
        ObjectName(fence)
    }

    /// Returns the fence it was made from.
    pub const fn fence(self) -> Fence {
        self.0
    }

    /// Returns the incarnation that made it.
    pub fn made_by(self) -> u128 {
        self.0.incarnation()
    }

    /// Returns the last name before all names of `incarnation`; `None` if there is none before.
    pub fn before_all_of(incarnation: u128) -> Option<Self> {
        let mut bytes = [0xff; Fence::BYTES];
        bytes[..16].copy_from_slice(&incarnation.checked_sub(1)?.to_be_bytes());
        Fence::from_bytes(&bytes).map(ObjectName)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_bytes();
        let (maker, count) = bytes.split_at(MAKER / 2);
        maker.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        count.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ObjectName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = || BadName(text.into());
        let (maker, count) = text.split_once('-').ok_or_else(bad)?;
        if maker.len() != MAKER || count.len() != COUNT {
            return Err(bad());
        }
        let digits: Option<Vec<u8>> = maker.bytes().chain(count.bytes()).map(digit).collect();
        let bytes: Vec<u8> = digits.ok_or_else(bad)?.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        Fence::from_bytes(&bytes).map(ObjectName).ok_or_else(bad)
    }
}

/// Reads a hexadecimal digit. Lower case only, so that one name has one text.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fences;

    fn names() -> Vec<ObjectName> {
        let makers = [0, 1, 0xff, u128::MAX - 1, u128::MAX].map(Fences::new);
        makers.iter().flat_map(|maker| [maker.next(), maker.next()]).map(ObjectName::new).collect()
    }

    #[test]
    fn names_and_their_texts_sort_alike() {
        for pair in names().windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_string() < pair[1].to_string());
        }
    }

    #[test]
    fn a_name_has_one_text() {
        for name in names() {
            let text = name.to_string();
            assert_eq!(text.parse(), Ok(name));
            for wrong in [&text[1..], &text[..48], &text.replace('-', "_"), &format!("{text}0"), &format!("-{text}")] {
                assert_eq!(wrong.parse::<ObjectName>(), Err(BadName(wrong.into())));
            }
        }
        let upper = "000000000000000000000000000000FF-0000000000000000";
        assert!(upper.parse::<ObjectName>().is_err() && upper.to_lowercase().parse::<ObjectName>().is_ok());
        for wrong in ["", "-", "../etc", &"é".repeat(24)] {
            assert!(wrong.parse::<ObjectName>().is_err());
        }
    }

    #[test]
    fn all_names_of_a_maker_come_after_the_last_of_the_one_before() {
        assert_eq!(ObjectName::before_all_of(0), None);
        for name in names() {
            let Some(before) = ObjectName::before_all_of(name.made_by()) else { continue };
            assert!(before < name && before.made_by() == name.made_by() - 1);
        }
    }
}
