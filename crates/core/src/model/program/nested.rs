//! Bounds how deep something is read that has more of its own kind in it: bytes from outside could otherwise say a
//! million lists within lists, and reading them would end the process instead of failing.
//!
//! Named by `#[serde(deserialize_with)]` at every field where a type holds itself. What is written does not change.

use serde::{Deserialize, Deserializer, de::Error};
use std::cell::Cell;

/// Levels that are read. A flow has at most 64 eaches within eaches, each of which makes a list, and lists of its own
/// inside; a level takes a few kilobytes of a stack that has two megabytes.
pub const DEPTH_MAX: u32 = 128;

thread_local! {
    /// Levels that are being read on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// One level, as long as it is being read.
struct Level;

impl Level {
    fn enter() -> Option<Self> {
        let depth = DEPTH.get();
        if depth == DEPTH_MAX {
            return None;
        }
        DEPTH.set(depth + 1);
        Some(Level)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Reads what is one level deeper.
///
/// # Errors
/// As reading it; also if it is more than [`DEPTH_MAX`] levels deep.
pub fn deeper<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let _level = Level::enter().ok_or_else(|| D::Error::custom("it is nested too deep"))?;
    T::deserialize(from)
}

#[cfg(test)]
mod tests {
    use super::DEPTH_MAX;
    use crate::{
        model::{TaskSpec, Type},
        protocol::rows,
    };

    #[test]
    fn what_is_nested_too_deep_is_refused_and_what_is_not_is_read_after_it() {
        let deep = |levels: u32| (0..levels).fold(Type::Int, |inner, _| Type::list(inner));
        let comes_back = |ty: &Type| rows::read::<Type>(&rows::write(ty)).is_some_and(|read| read == *ty);
        // As rows were before they had a checksum.
        let mut endless = vec![9_u8; 4 << 20];
        endless[0] = 1;
        assert_eq!(rows::write(&deep(1))[1], endless[1], "a list begins like this");
        for _ in 0..2 {
            assert!(comes_back(&deep(DEPTH_MAX)));
            assert!(!comes_back(&deep(DEPTH_MAX + 1)));
            assert_eq!(rows::read::<Type>(&endless), None);
        }
    }

    #[test]
    fn a_task_that_is_undone_by_one_that_is_undone_and_so_on_is_refused() {
        let task = || TaskSpec::new("t", vec![], vec![]);
        let deep = |levels: u32| {
            (0..levels).fold(task(), |inner, _| TaskSpec { compensation: Some(Box::new(inner)), ..task() })
        };
        let comes_back = |spec: &TaskSpec| rows::read::<TaskSpec>(&rows::write(spec)).is_some_and(|read| read == *spec);
        // As bytes, and as rows were before they had a checksum: nobody could write so many levels. It ends with whether there
        // is one that undoes it, and no parameters.
        let content = |spec: &TaskSpec| {
            let row = rows::write(spec);
            row[1..row.len() - 4].to_vec()
        };
        let plain = content(&task());
        let fields = &plain[..plain.len() - 2];
        let endless = |levels: usize| {
            [&[1], &*[fields, &[1]].concat().repeat(levels), fields, &[0, 0], &vec![0; levels]].concat()
        };
        assert_eq!(endless(2)[1..], content(&deep(2)));
        assert!(comes_back(&deep(DEPTH_MAX - 1)));
        assert!(!comes_back(&deep(DEPTH_MAX)));
        assert_eq!(rows::read::<TaskSpec>(&endless(100_000)), None);
    }
}
