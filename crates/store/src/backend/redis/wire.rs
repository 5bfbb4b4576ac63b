//! Batches as the script reads them, and what it answers. A row's field in the hash is a byte for its kind and its place:
//! the length of the group's id, the id, the name. Plain rows whose names are not kept in order have a byte of their own.

use crate::records::{
    CommitResult, Committed, Error, Page, Position, Refused, Scan, SweepReport, SweepRequest, UNORDERED_GROUPS,
    UnorderedPage,
};
use onceflow_core::{
    Batch, Claim, Claimed, Group, Key, Kind, Name, Op, Pick, Require, Row, Timestamp, batch::Invalid, limits,
};
use redis::{Cmd, Value};
use rmp::encode as pack;
use std::collections::BTreeSet;

/// Claims that shall stand longer than this stand for ever: a script counts with 53 bits.
const TTL_MS_MAX: u64 = 1 << 50;

/// The first byte of a plain row whose name is not kept in order.
const HEAP: u8 = 4;

/// The first byte of a group's fields.
fn letter(group: &Group) -> u8 {
    let is_heap = group.kind() == Kind::Rows && UNORDERED_GROUPS.iter().any(|heap| heap.as_bytes() == group.id());
    if is_heap { HEAP } else { group.kind() as u8 }
}

/// The field of a row.
pub(super) fn field(key: &Key) -> Vec<u8> {
    let mut field = start(&key.group, key.name.as_bytes().len());
    field.extend_from_slice(key.name.as_bytes());
    field
}

/// The prefix of the fields of a group.
fn start(group: &Group, more: usize) -> Vec<u8> {
    let mut field = Vec::with_capacity(3 + group.id().len() + more);
    field.push(letter(group));
    let length = u16::try_from(group.id().len()).expect("ids are shorter than limits::NAME_BYTES_MAX");
    field.extend_from_slice(&length.to_be_bytes());
    field.extend_from_slice(group.id());
    field
}

/// The field is of a row whose name is not kept in order.
pub(super) fn is_heap(field: &[u8]) -> bool {
    field.first() == Some(&HEAP)
}

/// The row whose field this is.
pub(super) fn key(field: &[u8]) -> Option<Key> {
    let (kind, place) = field.split_first()?;
    let (length, rest) = place.split_first_chunk::<2>()?;
    let (id, name) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let kind = if *kind == HEAP { Kind::Rows } else { Kind::from_number(*kind)? };
    Some(Group::of_kind(kind, id).key(name))
}

/// A batch as the script reads it.
pub(super) fn batch(batch: &Batch) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let is_plain = is_plain(batch);
    array(&mut out, if is_plain { 5 } else { 4 });
    array(&mut out, batch.requires.len());
    batch.requires.iter().for_each(|require| bytes(&mut out, &field(require.key())));
    array(&mut out, batch.requires.len());
    for require in &batch.requires {
        match require {
            Require::Absent(_) => pack::write_bool(&mut out, false).expect(MEMORY),
            Require::Present(_) => pack::write_bool(&mut out, true).expect(MEMORY),
            Require::Equals(_, row) => bytes(&mut out, row),
        }
    }
    if is_plain {
        plain(&mut out, &batch.ops);
        return out;
    }
    ops(&mut out, &batch.ops);
    match &batch.claim {
        Some(one) => claim(&mut out, one),
        None => pack::write_nil(&mut out).expect(MEMORY),
    }
    out
}

/// The batch only puts and deletes plain rows, each of them once: nothing depends on their old contents.
fn is_plain(batch: &Batch) -> bool {
    let mut seen = BTreeSet::new();
    batch.claim.is_none()
        && batch.ops.iter().all(|op| match op {
            Op::Put(key, _) | Op::Delete(key) => key.group.kind() == Kind::Rows && seen.insert(key),
            Op::DeleteGroup(_) | Op::SetBit { .. } | Op::Add { .. } => false,
        })
}

/// The operations of such a batch: no claim, no others, what goes, and what is put.
fn plain(out: &mut Vec<u8>, ops: &[Op]) {
    pack::write_nil(out).expect(MEMORY);
    let puts = ops.iter().filter(|op| matches!(op, Op::Put(..))).count();
    array(out, ops.len() - puts);
    for op in ops {
        if let Op::Delete(key) = op {
            bytes(out, &field(key));
        }
    }
    array(out, 2 * puts);
    for op in ops {
        if let Op::Put(key, row) = op {
            bytes(out, &field(key));
            bytes(out, row);
        }
    }
}

const MEMORY: &str = "writing to memory does not fail";

fn array(out: &mut Vec<u8>, len: usize) {
    pack::write_array_len(out, u32::try_from(len).expect("batches are small")).expect(MEMORY);
}

fn number(out: &mut Vec<u8>, number: u64) {
    pack::write_uint(out, number).expect(MEMORY);
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    pack::write_str_len(out, u32::try_from(bytes.len()).expect("rows are small")).expect(MEMORY);
    out.extend_from_slice(bytes);
}

fn ops(out: &mut Vec<u8>, ops: &[Op]) {
    array(out, ops.len());
    for op in ops {
        match op {
            Op::Put(key, row) => {
                head(out, 3, 0, &field(key));
                bytes(out, row);
            }
            Op::Delete(key) => head(out, 2, 1, &field(key)),
            Op::DeleteGroup(group) => head(out, 2, 2, &start(group, 0)),
            Op::SetBit { key, bit, of, when_full } => {
                head(out, 5, 3, &field(key));
                number(out, u64::from(*bit));
                number(out, u64::from(*of));
                self::ops(out, when_full);
            }
            Op::Add { key, delta, at_zero } => {
                head(out, 4, 4, &field(key));
                bytes(out, &delta.to_le_bytes());
                self::ops(out, at_zero);
            }
        }
    }
}

fn head(out: &mut Vec<u8>, len: usize, what: u64, field: &[u8]) {
    array(out, len);
    number(out, what);
    bytes(out, field);
}

fn claim(out: &mut Vec<u8>, claim: &Claim) {
    array(out, 5);
    array(out, claim.queues.len());
    claim.queues.iter().for_each(|queue| bytes(out, &start(queue, 0)[1..]));
    bytes(out, &claim.fence.to_bytes());
    let ttl_ms = i64::try_from(claim.ttl_ms.min(TTL_MS_MAX)).expect("it has 50 bits");
    pack::write_sint(out, if claim.ttl_ms > TTL_MS_MAX { -1 } else { ttl_ms }).expect(MEMORY);
    number(out, u64::from(claim.pick == Pick::EnabledFirst));
    number(out, limits::CLAIM_ROWS_MAX as u64);
}

/// Where a scan begins, the place it ends before, and how many rows it wants.
pub(super) fn scan(scan: &Scan) -> [Vec<u8>; 4] {
    let group = start(&scan.group, 0);
    let place = |name: &[u8]| [&group[1..], name].concat();
    let prefix = scan.prefix.as_bytes();
    let from = match &scan.after {
        Some(after) if after.as_bytes() >= prefix => [b"(", &place(after.as_bytes())[..]].concat(),
        _ => [b"[", &place(prefix)[..]].concat(),
    };
    let past = crate::state::just_past(&place(prefix)).expect("a place begins with a small number");
    let limit = scan.limit.min(limits::SCAN_ROWS_MAX);
    [(group[0]).to_string().into_bytes(), from, past, limit.to_string().into_bytes()]
}

/// Walks on through the rows of a group that is kept in no order: the hash holds all others, too.
pub(super) fn walk(rows_key: &str, group: &Group, from: Option<&Name>, limit: usize) -> Option<Cmd> {
    let start = start(group, 0);
    if start[0] != HEAP {
        return None;
    }
    let mut command = redis::cmd("HSCAN");
    command.arg(rows_key).arg(from.map_or(&b"0"[..], Name::as_bytes));
    command.arg("MATCH").arg([&start[..], b"*"].concat()).arg("COUNT").arg(limit);
    Some(command)
}

/// Reads the answer to such a walk.
pub(super) fn walked(value: Value, group: &Group) -> Result<UnorderedPage, Error> {
    let Value::Array(parts) = value else { return Err(strange(&value)) };
    let [Value::BulkString(cursor), Value::Array(parts)] = &parts[..] else {
        return Err(strange(&Value::Array(parts)));
    };
    let (start, mut rows) = (start(group, 0), Vec::with_capacity(parts.len() / 2));
    for pair in parts.chunks(2) {
        let [Value::BulkString(field), Value::BulkString(row)] = pair else { return Err(strange(&pair[0])) };
        if let Some(name) = field.strip_prefix(&start[..]) {
            rows.push((Name::new(name), Row::new(row)));
        }
    }
    Ok(UnorderedPage { rows, next: (&cursor[..] != b"0").then(|| Name::new(cursor)) })
}

/// The arguments of the script that sweeps, but for its budget.
pub(super) fn sweep(ask: &SweepRequest) -> Vec<Vec<u8>> {
    let (key, seen, next) = &ask.turn;
    let mut arguments = vec![field(key), seen.to_vec(), next.to_vec()];
    arguments.extend(ask.groups.iter().map(|group| start(group, 0)));
    arguments.push(ask.debt.as_bytes().to_vec());
    arguments
}

/// Reads its answer.
pub(super) fn swept(value: Value) -> Result<Option<SweepReport>, Error> {
    let Value::Array(parts) = &value else { return Err(strange(&value)) };
    match parts[..] {
        [Value::Int(1), _] => Ok(None),
        [
            Value::Int(0),
            Value::Int(swept),
            Value::Int(paid),
            Value::Int(touched),
            Value::Int(more),
            Value::Int(odd),
        ] => Ok(Some(SweepReport {
            swept: swept.unsigned_abs(),
            paid: paid.unsigned_abs(),
            touched: usize::try_from(touched).unwrap_or(0),
            more: more == 1,
            odd: odd == 1,
        })),
        _ => Err(strange(&value)),
    }
}

/// The error for an answer of a script that cannot be decoded.
pub(super) fn strange(value: &Value) -> Error {
    Error::Damaged(format!("the server answered something else than its script does: {value:?}").into())
}

/// The rows of a page.
pub(super) fn page(value: Value) -> Result<Page, Error> {
    match value {
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([rows, Value::Int(more)]) => Ok(Page { rows: self::rows(rows)?, more: more == 1 }),
            Ok([rows, _]) => Err(strange(&rows)),
            Err(parts) => Err(strange(&Value::Array(parts))),
        },
        other => Err(strange(&other)),
    }
}

/// Places and rows, one after the other.
fn rows(value: Value) -> Result<Vec<(Name, Row)>, Error> {
    let Value::Array(parts) = value else { return Err(strange(&value)) };
    let (mut rows, mut parts) = (Vec::with_capacity(parts.len() / 2), parts.into_iter());
    while let (Some(place), Some(row)) = (parts.next(), parts.next()) {
        let (Value::BulkString(place), Value::BulkString(row)) = (&place, row) else { return Err(strange(&place)) };
        rows.push((name(place).ok_or_else(|| strange(&Value::Nil))?, Row::from(row)));
    }
    Ok(rows)
}

/// The name at the end of a place.
fn name(place: &[u8]) -> Option<Name> {
    let (length, rest) = place.split_first_chunk::<2>()?;
    rest.get(usize::from(u16::from_be_bytes(*length))..).map(Name::new)
}

/// The content of a row, or that there is none.
pub(super) fn row(value: Value) -> Result<Option<Row>, Error> {
    match value {
        Value::BulkString(bytes) => Ok(Some(Row::from(bytes))),
        Value::Nil => Ok(None),
        other => Err(strange(&other)),
    }
}

/// Reads the result of a batch, and whether it made a row ready.
pub(super) fn outcome(value: Value, asked: Option<&Claim>, position: Position) -> Result<(CommitResult, bool), Error> {
    let Value::Array(parts) = value else { return Err(strange(&value)) };
    let mut parts = parts.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    match (next(), next(), next()) {
        (Value::Int(0), Value::Int(enabled), Value::Array(fired)) => {
            let fired = fired.iter().map(|field| match field {
                Value::BulkString(bytes) => key(bytes).ok_or_else(|| strange(field)),
                other => Err(strange(other)),
            });
            let fired = fired.collect::<Result<_, _>>()?;
            let claimed = match (next(), asked) {
                (Value::Array(parts), Some(asked)) => Some(claimed(parts, asked)?),
                _ => None,
            };
            Ok((CommitResult::Applied(Committed { position, fired, claimed }), enabled == 1))
        }
        (Value::Int(1), Value::Int(which), found) => {
            let which = usize::try_from(which).map_err(|_| strange(&Value::Int(which)))?;
            Ok((CommitResult::Refused(Refused { position, which, found: row(found)? }), false))
        }
        (Value::Int(2), Value::BulkString(what), Value::BulkString(field)) => {
            let key = key(&field).ok_or_else(|| strange(&Value::BulkString(field)))?;
            Err(Error::Invalid(match &what[..] {
                b"overflow" => Invalid::Overflow(key),
                b"counter" => Invalid::WrongContent { key, wanted: "a counter" },
                _ => Invalid::WrongContent { key, wanted: "a bitmap of that size" },
            }))
        }
        (first, ..) => Err(strange(&first)),
    }
}

fn claimed(parts: Vec<Value>, asked: &Claim) -> Result<Claimed, Error> {
    match <[Value; 6]>::try_from(parts) {
        Ok(
            [
                Value::Int(at),
                Value::BulkString(place),
                Value::BulkString(row),
                Value::Int(deadline),
                Value::Int(more),
                inputs,
            ],
        ) => {
            let queue = usize::try_from(at).ok().and_then(|at| asked.queues.get(at));
            let (Some(queue), Some(name)) = (queue, name(&place)) else { return Err(strange(&Value::Int(at))) };
            let deadline = u64::try_from(deadline).map_or(Timestamp::NEVER, Timestamp::from_ms);
            let (queue, inputs) = (queue.clone(), rows(inputs)?);
            Ok(Claimed { queue, name, row: Row::from(row), inputs, more: more == 1, deadline })
        }
        Ok(parts) => Err(strange(&Value::Array(parts.into()))),
        Err(parts) => Err(strange(&Value::Array(parts))),
    }
}
