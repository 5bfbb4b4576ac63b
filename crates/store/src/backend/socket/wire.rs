//! Batches and errors in a form that is safe to decode. Operations stand in a flat list, each with the number of
//! those that follow from it, so bytes from outside cannot nest deeper than the stack.

use crate::records::Error;
use onceflow_core::{
    Batch, Claim, Group, Key, Op, Require, Row, Shard,
    batch::Invalid,
    limits::{PLAIN_OPS_MAX, TRIGGER_DEPTH_MAX},
};
use serde::{Deserialize, Serialize};

/// A [`Batch`] on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FlatBatch {
    shard: Shard,
    requires: Vec<Require>,
    ops: Vec<FlatOp>,
    claim: Option<Claim>,
}

/// An [`Op`]; the `then` operations of its trigger follow it in the list, each with its own behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FlatOp {
    Put(Key, Row),
    Delete(Key),
    DeleteGroup(Group),
    SetBit { key: Key, bit: u32, of: u32, then: u32 },
    Add { key: Key, delta: i64, then: u32 },
}

impl From<Batch> for FlatBatch {
    /// The batch has passed [`Batch::check`], so it is not deeper than [`FlatBatch::into_batch`] accepts.
    fn from(batch: Batch) -> Self {
        let mut ops = Vec::with_capacity(batch.ops.len());
        flatten(batch.ops, &mut ops);
        FlatBatch { shard: batch.shard, requires: batch.requires, ops, claim: batch.claim }
    }
}

fn flatten(ops: Vec<Op>, out: &mut Vec<FlatOp>) {
    for op in ops {
        match op {
            Op::Put(key, row) => out.push(FlatOp::Put(key, row)),
            Op::Delete(key) => out.push(FlatOp::Delete(key)),
            Op::DeleteGroup(group) => out.push(FlatOp::DeleteGroup(group)),
            Op::SetBit { key, bit, of, when_full } => {
                out.push(FlatOp::SetBit { key, bit, of, then: when_full.len() as u32 });
                flatten(when_full, out);
            }
            Op::Add { key, delta, at_zero } => {
                out.push(FlatOp::Add { key, delta, then: at_zero.len() as u32 });
                flatten(at_zero, out);
            }
        }
    }
}

impl FlatBatch {
    /// The batch, or what is wrong with the list.
    pub(super) fn into_batch(self) -> Result<Batch, &'static str> {
        if self.ops.len() > PLAIN_OPS_MAX {
            return Err("a batch with too many operations");
        }
        let mut flat = self.ops.into_iter();
        let mut ops = Vec::with_capacity(flat.len());
        while flat.len() > 0 {
            ops.push(unflatten(&mut flat, 0)?);
        }
        Ok(Batch { shard: self.shard, requires: self.requires, ops, claim: self.claim })
    }
}

fn unflatten(flat: &mut std::vec::IntoIter<FlatOp>, depth: usize) -> Result<Op, &'static str> {
    if depth > TRIGGER_DEPTH_MAX {
        return Err("a batch with triggers too deep");
    }
    Ok(match flat.next().ok_or("a batch that ends inside a trigger")? {
        FlatOp::Put(key, row) => Op::Put(key, row),
        FlatOp::Delete(key) => Op::Delete(key),
        FlatOp::DeleteGroup(group) => Op::DeleteGroup(group),
        FlatOp::SetBit { key, bit, of, then } => Op::SetBit { key, bit, of, when_full: follow(flat, then, depth)? },
        FlatOp::Add { key, delta, then } => Op::Add { key, delta, at_zero: follow(flat, then, depth)? },
    })
}

fn follow(flat: &mut std::vec::IntoIter<FlatOp>, count: u32, depth: usize) -> Result<Vec<Op>, &'static str> {
    (0..count).map(|_| unflatten(flat, depth + 1)).collect()
}

/// An [`Error`] on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FlatError {
    Invalid(FlatInvalid),
    Full(String),
    Unavailable(String),
    Unknown(String),
    Damaged(String),
    Lost(String),
}

/// An [`Invalid`] on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FlatInvalid {
    TooMany { what: String, found: usize, limit: usize, name: String },
    BitOutside { key: Key, bit: u32, of: u32 },
    TriggersDiffer(Key),
    NotAnInbox(Key),
    NotAQueue(Group),
    WrongContent { key: Key, wanted: String },
    Overflow(Key),
    NotRepeatable(String),
}

impl From<Error> for FlatError {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(invalid) => FlatError::Invalid(invalid.into()),
            Error::Full(why) => FlatError::Full(why.to_string()),
            Error::Unavailable(why) => FlatError::Unavailable(why.to_string()),
            Error::Unknown(why) => FlatError::Unknown(why.to_string()),
            Error::Damaged(why) => FlatError::Damaged(why.to_string()),
            Error::Lost(why) => FlatError::Lost(why.to_string()),
        }
    }
}

impl From<FlatError> for Error {
    fn from(error: FlatError) -> Self {
        match error {
            FlatError::Invalid(invalid) => Error::Invalid(invalid.into()),
            FlatError::Full(why) => Error::Full(why.into()),
            FlatError::Unavailable(why) => Error::Unavailable(why.into()),
            FlatError::Unknown(why) => Error::Unknown(why.into()),
            FlatError::Damaged(why) => Error::Damaged(why.into()),
            FlatError::Lost(why) => Error::Lost(why.into()),
        }
    }
}

impl From<Invalid> for FlatInvalid {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::TooMany { what, found, limit, name } => {
                FlatInvalid::TooMany { what: what.into(), found, limit, name: name.into() }
            }
            Invalid::BitOutside { key, bit, of } => FlatInvalid::BitOutside { key, bit, of },
            Invalid::TriggersDiffer(key) => FlatInvalid::TriggersDiffer(key),
            Invalid::NotAnInbox(key) => FlatInvalid::NotAnInbox(key),
            Invalid::NotAQueue(group) => FlatInvalid::NotAQueue(group),
            Invalid::WrongContent { key, wanted } => FlatInvalid::WrongContent { key, wanted: wanted.into() },
            Invalid::Overflow(key) => FlatInvalid::Overflow(key),
            Invalid::NotRepeatable(batch) => FlatInvalid::NotRepeatable(batch),
        }
    }
}

impl From<FlatInvalid> for Invalid {
    fn from(invalid: FlatInvalid) -> Self {
        match invalid {
            FlatInvalid::TooMany { what, found, limit, name } => {
                Invalid::TooMany { what: known(&what), found, limit, name: known(&name) }
            }
            FlatInvalid::BitOutside { key, bit, of } => Invalid::BitOutside { key, bit, of },
            FlatInvalid::TriggersDiffer(key) => Invalid::TriggersDiffer(key),
            FlatInvalid::NotAnInbox(key) => Invalid::NotAnInbox(key),
            FlatInvalid::NotAQueue(group) => Invalid::NotAQueue(group),
            FlatInvalid::WrongContent { key, wanted } => Invalid::WrongContent { key, wanted: known(&wanted) },
            FlatInvalid::Overflow(key) => Invalid::Overflow(key),
            FlatInvalid::NotRepeatable(batch) => Invalid::NotRepeatable(batch),
        }
    }
}

/// The program's own copy of a phrase. Only what depends on the rows is found by the server first (the client
/// checks the rest before it sends), so there are few of them.
fn known(phrase: &str) -> &'static str {
    const PHRASES: [&str; 6] = [
        "a bitmap of that size",
        "a counter",
        "bytes in a row",
        "ROW_BYTES_MAX",
        "bytes of an answer",
        "REPLY_BYTES_MAX",
    ];
    PHRASES.into_iter().find(|known| *known == phrase).unwrap_or("something the owner of the store says")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Group::rows("g").key(name)
    }

    fn nested(depth: usize) -> Op {
        match depth {
            0 => Op::Delete(key("leaf")),
            depth if depth % 2 == 0 => {
                let when_full = vec![nested(depth - 1), Op::DeleteGroup(Group::rows("x"))];
                Op::SetBit { key: key("bits"), bit: 1, of: 3, when_full }
            }
            depth => Op::Add { key: key("count"), delta: -1, at_zero: vec![nested(depth - 1), nested(0)] },
        }
    }

    #[test]
    fn a_batch_comes_out_as_it_went_in() {
        let mut batch = Batch::new(Shard(3));
        batch.require_absent(key("a")).put(key("a"), Row::new("1"));
        batch.ops.extend((0..=TRIGGER_DEPTH_MAX).map(nested));
        assert_eq!(FlatBatch::from(batch.clone()).into_batch(), Ok(batch));
    }

    #[test]
    fn lists_that_are_no_batch_are_refused_without_going_deep() {
        let flat = |ops| FlatBatch { shard: Shard(0), requires: vec![], ops, claim: None }.into_batch();
        let add = |then| FlatOp::Add { key: key("n"), delta: 1, then };
        assert_eq!(flat(vec![add(u32::MAX)]), Err("a batch that ends inside a trigger"));
        assert_eq!(flat(vec![add(1); 1000]), Err("a batch with triggers too deep"));
        assert_eq!(flat(vec![add(0); PLAIN_OPS_MAX + 1]), Err("a batch with too many operations"));
    }

    #[test]
    fn errors_say_the_same_on_the_other_side() {
        let key = || key("k");
        let errors = [
            Invalid::BitOutside { key: key(), bit: 1, of: 1 }.into(),
            Invalid::TriggersDiffer(key()).into(),
            Invalid::NotAnInbox(key()).into(),
            Invalid::NotAQueue(Group::rows("g")).into(),
            Invalid::WrongContent { key: key(), wanted: "a counter" }.into(),
            Invalid::WrongContent { key: key(), wanted: "a bitmap of that size" }.into(),
            Invalid::Overflow(key()).into(),
            Invalid::NotRepeatable("batch".into()).into(),
            Error::Full("disk".into()),
            Error::Unavailable("closed".into()),
            Error::Unknown("lost".into()),
            Error::Damaged("bits".into()),
            Error::Lost("all".into()),
        ];
        for error in errors {
            assert_eq!(Error::from(FlatError::from(error.clone())).to_string(), error.to_string());
        }
    }
}
