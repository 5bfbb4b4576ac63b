//! Effects as bytes. The log holds the rows that were put and deleted, never the batch itself: replaying checks no
//! requires, so it cannot be refused for want of a claim that was never written.

use crate::state::{Effects, StoreState};
use onceflow_core::{Batch, Group, Key, Kind, Name, Op, Row, Shard, limits::BITMAP_BITS_MAX, row::bitmap};

const SHARD: u8 = 1;
const GROUP: u8 = 2;
const PUT: u8 = 3;
const DELETE: u8 = 4;
const DELETE_GROUP: u8 = 5;
const SET_BIT: u8 = 6;

/// The longest a number below 2^32 gets.
const VARINT_BYTES_MAX: usize = 5;

/// Writes effects behind each other. Shard and group are written when they change; within one frame each effect can rely on
/// those before it.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    pub(super) bytes: Vec<u8>,
    /// The shard of the next effect, and the one written last.
    shard: Shard,
    written: Option<Shard>,
    group: Option<Group>,
}

impl Encoder {
    /// The next effects may not rely on those before.
    pub(super) fn forget(&mut self) {
        (self.written, self.group) = (None, None);
    }

    /// Removes everything written behind this length.
    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.forget();
    }

    fn enter(&mut self, group: &Group) {
        if self.written != Some(self.shard) {
            self.bytes.push(SHARD);
            self.bytes.extend_from_slice(&self.shard.0.to_le_bytes());
            self.written = Some(self.shard);
        }
        if self.group.as_ref() != Some(group) {
            self.bytes.extend_from_slice(&[GROUP, group.kind() as u8]);
            self.chunk(group.id());
            self.group = Some(group.clone());
        }
    }

    fn varint(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn chunk(&mut self, bytes: &[u8]) {
        self.varint(u32::try_from(bytes.len()).expect("rows and names are bounded by limits.rs"));
        self.bytes.extend_from_slice(bytes);
    }

    fn row(&mut self, tag: u8, key: &Key) {
        self.enter(&key.group);
        self.bytes.push(tag);
        self.chunk(key.name.as_bytes());
    }
}

impl Effects for Encoder {
    /// Written only before an effect: a batch without one, such as a claim, leaves nothing to write.
    fn shard(&mut self, shard: Shard) {
        self.shard = shard;
    }

    fn put(&mut self, key: &Key, row: &Row) {
        self.row(PUT, key);
        self.chunk(row);
    }

    fn delete(&mut self, key: &Key) {
        self.row(DELETE, key);
    }

    fn delete_group(&mut self, group: &Group) {
        self.enter(group);
        self.bytes.push(DELETE_GROUP);
    }

    fn set_bit(&mut self, key: &Key, bit: u32, of: u32) {
        self.row(SET_BIT, key);
        self.varint(bit);
        self.varint(of);
    }
}

/// The most bytes the effects of a batch can take.
pub(super) fn bytes_max(batch: &Batch) -> u64 {
    3 + ops_bytes_max(&batch.ops)
}

fn ops_bytes_max(ops: &[Op]) -> u64 {
    ops.iter().map(op_bytes_max).sum()
}

fn op_bytes_max(op: &Op) -> u64 {
    let group = |group: &Group| 3 + VARINT_BYTES_MAX + group.id().len();
    let row = |key: &Key| group(&key.group) + VARINT_BYTES_MAX + key.name.as_bytes().len();
    let own = match op {
        Op::Put(key, content) => row(key) + VARINT_BYTES_MAX + content.len(),
        Op::Delete(key) => row(key),
        Op::DeleteGroup(deleted) => group(deleted),
        // Once for itself and once for going when it is complete.
        Op::SetBit { key, .. } => 2 * row(key) + 2 * VARINT_BYTES_MAX,
        Op::Add { key, .. } => 2 * row(key) + VARINT_BYTES_MAX + size_of::<i64>(),
    };
    own as u64 + ops_bytes_max(op.trigger())
}

/// Applies encoded effects to the state. `Err` says which bytes make no sense: they were not written by an [`Encoder`].
pub(super) fn replay(effects: &[u8], state: &mut StoreState) -> Result<(), &'static str> {
    let mut bytes = effects;
    let (mut shard, mut group) = (None, None);
    while let Some((tag, rest)) = bytes.split_first() {
        bytes = rest;
        match *tag {
            SHARD => {
                let (number, rest) = bytes.split_first_chunk().ok_or("a cut shard")?;
                (shard, bytes) = (Some(Shard(u16::from_le_bytes(*number))), rest);
            }
            GROUP => {
                let (kind, rest) = bytes.split_first().ok_or("a cut group")?;
                bytes = rest;
                let kind = Kind::from_number(*kind).ok_or("an unknown kind of group")?;
                group = Some(Group::of_kind(kind, chunk(&mut bytes)?));
            }
            tag => {
                let shard = shard.ok_or("an effect on no shard")?;
                let group = group.as_ref().ok_or("an effect on no group")?;
                replay_one(tag, shard, group, &mut bytes, state)?;
            }
        }
    }
    Ok(())
}

fn replay_one(
    tag: u8,
    shard: Shard,
    group: &Group,
    bytes: &mut &[u8],
    state: &mut StoreState,
) -> Result<(), &'static str> {
    if tag == DELETE_GROUP {
        state.clear(shard, group);
        return Ok(());
    }
    let key = Key { group: group.clone(), name: Name::new(chunk(bytes)?) };
    let row = match tag {
        PUT => Some(Row::from(chunk(bytes)?)),
        DELETE => None,
        SET_BIT => {
            let (bit, of) = (varint(bytes)?, varint(bytes)?);
            let before = state.get(shard, &key).filter(|row| bitmap::fits(row, of)).map(|row| &**row);
            if bit >= of || of > BITMAP_BITS_MAX {
                return Err("a bit outside its bitmap");
            }
            Some(bitmap::with(before, bit, of).0)
        }
        _ => return Err("an unknown effect"),
    };
    state.set(shard, &key, row);
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u32, &'static str> {
    let mut number = 0u64;
    for at in 0..VARINT_BYTES_MAX {
        let (byte, rest) = bytes.split_first().ok_or("a cut number")?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return u32::try_from(number).map_err(|_| "a number too large");
        }
    }
    Err("a number too long")
}

fn chunk<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = varint(bytes)? as usize;
    let (chunk, rest) = bytes.split_at_checked(length).ok_or("a cut chunk")?;
    *bytes = rest;
    Ok(chunk)
}
