//! Rows that were changed and are not written yet, by group and name. A layer hides the pages below it: a row it does not
//! mention is below, unless its group was emptied.

use crate::state::names_from;
use onceflow_core::{Group, Key, Name, Row, Shard};
use std::{collections::BTreeMap, iter::Peekable};

/// Bytes that an entry takes beside its name and row.
const ENTRY_BYTES: u64 = 96;

/// Changes to rows.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) shards: BTreeMap<Shard, BTreeMap<Group, GroupChanges>>,
    bytes: u64,
}

/// Changes to the rows of one group.
#[derive(Debug, Default)]
pub(super) struct GroupChanges {
    /// Nothing below counts any more.
    pub(super) cleared: bool,
    /// Rows put, or `None` for rows deleted.
    pub(super) rows: BTreeMap<Name, Option<Row>>,
}

/// The entry that a change replaced: none, or what it said.
pub(super) type Before = Option<Option<Row>>;

impl Layer {
    /// Nothing is to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn group(&self, shard: Shard, group: &Group) -> Option<&GroupChanges> {
        self.shards.get(&shard)?.get(group)
    }

    /// The row as this layer has it; `None` if the layer does not mention it.
    pub(super) fn find(&self, shard: Shard, key: &Key) -> Option<Option<&Row>> {
        let changes = self.group(shard, &key.group)?;
        match changes.rows.get(&key.name) {
            Some(row) => Some(row.as_ref()),
            None => changes.cleared.then_some(None),
        }
    }

    /// Makes a row hold this, or be gone.
    pub(super) fn set(&mut self, shard: Shard, key: &Key, row: Option<Row>) -> Before {
        let groups = self.shards.entry(shard).or_default();
        if !groups.contains_key(&key.group) {
            groups.insert(key.group.clone(), GroupChanges::default());
        }
        let changes = groups.get_mut(&key.group).expect("it was put there just now");
        self.bytes += bytes_of(row.as_ref());
        let before = changes.rows.insert(key.name.clone(), row);
        match &before {
            Some(row) => self.bytes -= bytes_of(row.as_ref()),
            None => self.bytes += ENTRY_BYTES + key.name.as_bytes().len() as u64,
        }
        before
    }

    /// Takes a change of a row back.
    pub(super) fn restore(&mut self, shard: Shard, key: &Key, before: Before) {
        match before {
            Some(row) => drop(self.set(shard, key, row)),
            None => {
                if let Some(changes) = self.shards.get_mut(&shard).and_then(|groups| groups.get_mut(&key.group))
                    && let Some(row) = changes.rows.remove(&key.name)
                {
                    self.bytes -= ENTRY_BYTES + key.name.as_bytes().len() as u64 + bytes_of(row.as_ref());
                    self.forget_if_unchanged(shard, &key.group);
                }
            }
        }
    }

    /// Makes a group empty.
    pub(super) fn clear(&mut self, shard: Shard, group: &Group) -> Option<GroupChanges> {
        let cleared = GroupChanges { cleared: true, rows: BTreeMap::new() };
        let before = self.shards.entry(shard).or_default().insert(group.clone(), cleared);
        self.bytes += ENTRY_BYTES;
        self.bytes -= before.as_ref().map_or(0, GroupChanges::bytes);
        before
    }

    /// Takes the clearing of a group back.
    pub(super) fn restore_group(&mut self, shard: Shard, group: &Group, before: Option<GroupChanges>) {
        let groups = self.shards.entry(shard).or_default();
        let added = before.as_ref().map_or(0, GroupChanges::bytes);
        let removed = match before {
            Some(before) => groups.insert(group.clone(), before),
            None => groups.remove(group),
        };
        self.bytes += added;
        self.bytes -= removed.as_ref().map_or(0, GroupChanges::bytes);
        self.forget_if_unchanged(shard, group);
    }

    fn forget_if_unchanged(&mut self, shard: Shard, group: &Group) {
        let Some(groups) = self.shards.get_mut(&shard) else { return };
        if groups.get(group).is_some_and(|changes| !changes.cleared && changes.rows.is_empty()) {
            groups.remove(group);
        }
        if groups.is_empty() {
            self.shards.remove(&shard);
        }
    }
}

impl GroupChanges {
    fn bytes(&self) -> u64 {
        let cleared = if self.cleared { ENTRY_BYTES } else { 0 };
        let entry =
            |(name, row): (&Name, &Option<Row>)| ENTRY_BYTES + name.as_bytes().len() as u64 + bytes_of(row.as_ref());
        cleared + self.rows.iter().map(entry).sum::<u64>()
    }
}

fn bytes_of(row: Option<&Row>) -> u64 {
    row.map_or(0, |row| row.len() as u64)
}

/// The changes that a page of a group has to respect.
#[derive(Debug, Default)]
pub(super) struct PageChanges {
    /// The pages below do not count.
    pub(super) hides_all: bool,
    /// In order; enough for as many rows as were asked for and one more.
    pub(super) rows: Vec<(Name, Option<Row>)>,
}

/// Reads the changes to rows whose names begin with `prefix` and come after `after`, from the upper layer and the one below
/// it, up to the name that `limit` rows and one more are there for.
pub(super) fn page_changes(
    (upper, lower): (&Layer, Option<&Layer>),
    (shard, group): (Shard, &Group),
    (prefix, after): (&[u8], Option<&[u8]>),
    limit: usize,
) -> PageChanges {
    let upper = upper.group(shard, group);
    let is_cleared = upper.is_some_and(|changes| changes.cleared);
    let lower = lower.filter(|_| !is_cleared).and_then(|lower| lower.group(shard, group));
    let mut upper_rows = entries(upper, prefix, after).peekable();
    let mut lower_rows = entries(lower, prefix, after).peekable();
    let (mut rows, mut puts) = (Vec::new(), 0);
    while puts <= limit
        && let Some((name, row)) = next_of(&mut upper_rows, &mut lower_rows)
        && name.as_bytes().starts_with(prefix)
    {
        puts += usize::from(row.is_some());
        rows.push((name.clone(), row.clone()));
    }
    PageChanges { hides_all: is_cleared || lower.is_some_and(|changes| changes.cleared), rows }
}

type Entry<'a> = (&'a Name, &'a Option<Row>);

fn entries<'a>(
    changes: Option<&'a GroupChanges>,
    prefix: &[u8],
    after: Option<&[u8]>,
) -> impl Iterator<Item = Entry<'a>> {
    changes.into_iter().flat_map(move |changes| changes.rows.range::<[u8], _>(names_from(prefix, after)))
}

/// The next entry in order of names; the upper one of two with the same name.
fn next_of<'a>(
    upper: &mut Peekable<impl Iterator<Item = Entry<'a>>>,
    lower: &mut Peekable<impl Iterator<Item = Entry<'a>>>,
) -> Option<Entry<'a>> {
    match (upper.peek(), lower.peek()) {
        (Some(one), Some(other)) if one.0 == other.0 => {
            lower.next();
            upper.next()
        }
        (Some(one), Some(other)) if other.0 < one.0 => lower.next(),
        (Some(_), _) => upper.next(),
        (None, _) => lower.next(),
    }
}
