//! Bounds the nesting depth of deserialised values that contain values of their own type: bytes from outside could
//! otherwise encode a million lists within lists, and reading them would overflow the stack and kill the process
//! instead of returning an error.
//!
//! Named by `#[serde(deserialize_with)]` at every field where a type contains itself. The serialised form does not
//! change.

use serde::{Deserialize, Deserializer, de::Error};
use std::cell::Cell;

/// The most levels that are read. A flow has at most 64 eaches within eaches, each of which makes a list, and lists of
/// its own inside; a level takes a few kilobytes of a stack that has two megabytes.
pub const DEPTH_MAX: u32 = 128;

thread_local! {
    /// The number of nested levels being read on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Holds one nesting level while it is being read; dropping it leaves the level.
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

/// Deserialises a value one nesting level deeper.
///
/// # Errors
/// The errors of deserialising the value; also if it is nested more than [`DEPTH_MAX`] levels deep.
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
    fn a_program_nested_too_deep_is_refused_and_the_next_is_read() {
        let deep = |levels: u32| (0..levels).fold(Type::Int, |inner, _| Type::list(inner));
        let comes_back = |ty: &Type| rows::read::<Type>(&rows::write(ty)).is_some_and(|read| read == *ty);
        // The row format from before rows had a checksum.
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
        // Built as bytes, in the row format from before rows had a checksum, because serialising so many levels is
        // impossible. A spec ends with the flag for its compensation, and its empty parameters.
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
