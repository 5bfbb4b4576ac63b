//! Short words for batches, so that a test shows what it is about and nothing else. Everything is in shard 0 and in
//! a few groups with fixed names.

use onceflow_core::{
    Batch, Group, Inbox, Key, Name, Op, Row, Shard,
    row::{bitmap, counter},
};

/// The shard of all these.
pub const SHARD: Shard = Shard(0);

/// The group of plain rows.
pub fn group() -> Group {
    Group::rows("g")
}

/// A plain row's key.
pub fn key(name: impl AsRef<[u8]>) -> Key {
    group().key(name)
}

/// The queue.
pub fn queue() -> Group {
    Group::queue("q")
}

/// The group of inbox rows.
pub fn inputs() -> Group {
    Group::rows("in")
}

/// A row with this content.
pub fn row(content: impl AsRef<[u8]>) -> Row {
    Row::new(content)
}

/// A counter that stands at this.
pub fn count(number: i64) -> Row {
    counter::write(number)
}

/// A bitmap with these numbers in it; none of them is none at all.
pub fn bits(set: &[u32], of: u32) -> Option<Row> {
    set.iter().fold(None, |row: Option<Row>, bit| Some(bitmap::with(row.as_deref(), *bit, of).0))
}

/// A queue row's content: its inputs are those under this prefix.
pub fn inbox(prefix: impl AsRef<[u8]>) -> Row {
    Inbox { group: inputs(), prefix: Name::new(prefix), note: vec![] }.to_row()
}

/// [`Op::Put`].
pub fn put(key: Key, row: impl Into<Row>) -> Op {
    Op::Put(key, row.into())
}

/// Puts a row into the queue, with its own name as the prefix of its inputs.
pub fn ready(name: impl AsRef<[u8]>) -> Op {
    put(queue().key(&name), inbox(&name))
}

/// [`Op::Delete`].
pub fn delete(key: Key) -> Op {
    Op::Delete(key)
}

/// [`Op::DeleteGroup`].
pub fn delete_group(group: Group) -> Op {
    Op::DeleteGroup(group)
}

/// [`Op::SetBit`].
pub fn bit(key: Key, bit: u32, of: u32, when_full: impl Into<Vec<Op>>) -> Op {
    Op::SetBit { key, bit, of, when_full: when_full.into() }
}

/// [`Op::Add`].
pub fn add(key: Key, delta: i64, at_zero: impl Into<Vec<Op>>) -> Op {
    Op::Add { key, delta, at_zero: at_zero.into() }
}

/// A batch of these operations.
pub fn batch(ops: impl Into<Vec<Op>>) -> Batch {
    Batch { shard: SHARD, ops: ops.into(), ..Batch::default() }
}

/// A batch that happens once, whatever its operations: it uses up a permission of this name.
pub fn once(permit: impl AsRef<[u8]>, ops: impl IntoIterator<Item = Op>) -> Batch {
    let permit = Group::rows("permits").key(permit);
    let mut once = Batch::new(SHARD);
    once.require_absent(permit.clone()).put(permit, row(""));
    once.ops.extend(ops);
    once
}
