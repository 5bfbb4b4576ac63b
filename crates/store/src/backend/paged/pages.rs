//! The file of pages: redb on the [`Files`] of a directory, so that a test can stand in for the disk.
//!
//! | table | key | value |
//! |---|---|---|
//! | `rows` | kind, shard, length of the group's id, id, name | CRC-32 of key and row, row |
//! | `meta` | `format`, `store`, `time` | numbers |
//!
//! Keys are in order of group and name, so that a scan is a range. redb does not verify pages that it reads, so every row
//! carries a checksum of its own.

use super::{
    OpenError,
    layer::{Layer, PageChanges},
};
use crate::{
    backend::journal::{
        ExpectedStore,
        files::{Files, StoreFile},
    },
    records::{Error, Page, Scan},
    state::{StoreState, just_past},
};
use onceflow_core::{Group, Key, Kind, Name, Row, Shard, Timestamp};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::{
    fmt, io,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

/// The format of the tables this code writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// The name of the file.
pub(super) const NAME: &str = "pages";
/// The file that holds the rows, for messages.
const FILE_NAMES: &str = "the file `pages`";
/// Its name until it is a store.
const NAME_UNTIL_READY: &str = "pages.new";

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Bytes of a row's checksum.
const CRC_BYTES: usize = 4;

/// The file, open for writing.
pub(super) struct Pages {
    database: Database,
}

/// The content of a file that was opened.
pub(super) struct Found {
    pub(super) is_new: bool,
    pub(super) store: u128,
    pub(super) time: Timestamp,
    pub(super) rows: u64,
    /// All ready rows.
    pub(super) queues: StoreState,
    pub(super) snapshot: Arc<Snapshot>,
}

/// The rows as they were after a transaction.
pub(super) struct Snapshot {
    rows: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

/// Why redb did not do what it was asked.
enum Trouble {
    Redb(redb::Error),
    /// redb found pages that make no sense.
    Panicked(String),
}

impl<E: Into<redb::Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Trouble::Redb(error.into())
    }
}

impl Trouble {
    fn into_error(self) -> Error {
        match self {
            Trouble::Redb(redb::Error::Corrupted(what)) | Trouble::Panicked(what) => {
                Error::Damaged(format!("a page is not as it was written: {what}").into())
            }
            Trouble::Redb(other) => Error::Unavailable(other.to_string().into()),
        }
    }

    fn into_open_error(self, file: PathBuf) -> OpenError {
        match self {
            Trouble::Redb(redb::Error::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
                OpenError::Io { what: "read", path: file, source }
            }
            Trouble::Redb(redb::Error::UpgradeRequired(found)) => {
                damaged_file(format!("the file has the old page format {found}"), file)
            }
            Trouble::Redb(other) => damaged_file(other.to_string(), file),
            Trouble::Panicked(what) => damaged_file(what, file),
        }
    }
}

fn damaged_file(what: String, file: PathBuf) -> OpenError {
    OpenError::Damaged { what, file, offset: None, hint: "keep a copy of the directory, then restore a backup" }
}

/// Calls redb, which panics on some pages that make no sense.
fn guarded<T>(call: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Trouble::Panicked(text.unwrap_or_default()))
    })
}

impl Pages {
    /// Opens the file, or makes one if none is there and none is expected.
    pub(super) fn open(
        files: &Arc<dyn Files>,
        cache_bytes: usize,
        known: ExpectedStore,
        random: impl FnOnce() -> u128,
    ) -> Result<(Pages, Found), OpenError> {
        let names = files.list().map_err(OpenError::io("list", files.path("")))?;
        let is_there = |name: &str| names.iter().any(|there| there == name);
        let is_new = !is_there(NAME);
        if is_there(NAME_UNTIL_READY) {
            files.remove(NAME_UNTIL_READY).map_err(OpenError::io("remove", files.path(NAME_UNTIL_READY)))?;
        }
        if is_new {
            if known != ExpectedStore::Unknown {
                let what = match known {
                    ExpectedStore::Id(id) => format!("store {id:032x} was here, but its file `{NAME}` is gone"),
                    _ => format!("a store was here, but its file `{NAME}` is gone; its objects are there"),
                };
                return Err(OpenError::NotThisStore { what, file: files.path(""), files: FILE_NAMES });
            }
            create(&**files, cache_bytes, random())?;
        }
        let path = files.path(NAME);
        let file = files.open(NAME).map_err(OpenError::io("open", path.clone()))?;
        // Pages that a killed process wrote and did not sync are shown from now on, so they must last.
        file.sync().map_err(OpenError::io("sync", path.clone()))?;
        files.sync().map_err(OpenError::io("sync", files.path("")))?;
        let length = file.len().map_err(OpenError::io("read", path.clone()))?;
        if length == 0 {
            return Err(damaged_file(String::from("the file is empty"), path));
        }
        let pages = guarded(|| Ok(Pages { database: database(file, cache_bytes)? }));
        let pages = pages.map_err(|trouble| trouble.into_open_error(path.clone()))?;
        let found = guarded(|| pages.find(is_new)).map_err(|trouble| trouble.into_open_error(path.clone()))?;
        let found = found.map_err(|wrong| match wrong {
            Wrong::Damaged(what) => damaged_file(what, path.clone()),
            Wrong::TooNew(found) => OpenError::TooNew { file: path.clone(), found, known: FORMAT },
        })?;
        match known {
            ExpectedStore::Id(id) if id != found.store => {
                let what =
                    format!("{NAME} belongs to store {:032x}, and this directory to store {id:032x}", found.store);
                Err(OpenError::NotThisStore { what, file: path, files: FILE_NAMES })
            }
            _ => Ok((pages, found)),
        }
    }

    fn find(&self, is_new: bool) -> Result<Result<Found, Wrong>, Trouble> {
        let reading = self.database.begin_read()?;
        let meta = reading.open_table(META)?;
        let number = |name: &str| -> Result<Option<u128>, Trouble> {
            let bytes = meta.get(name)?.map(|value| value.value().to_vec());
            Ok(bytes.and_then(|bytes| Some(u128::from_le_bytes(bytes.try_into().ok()?))))
        };
        let (format, store, time) = (number("format")?, number("store")?, number("time")?);
        let format = format.and_then(|format| u32::try_from(format).ok());
        let (Some(format), Some(store), Some(time)) = (format, store, time.and_then(|time| u64::try_from(time).ok()))
        else {
            return Ok(Err(Wrong::Damaged(String::from("its format, id or time is gone"))));
        };
        if format > FORMAT {
            return Ok(Err(Wrong::TooNew(format)));
        }
        let snapshot = self.snapshot_now()?;
        let mut queues = StoreState::new();
        for entry in snapshot.rows.range::<&[u8]>(&[Kind::Queue as u8][..]..&[Kind::Queue as u8 + 1][..])? {
            let (key, value) = entry?;
            let Some((shard, key_of_row)) = decode_key(key.value()) else {
                return Ok(Err(Wrong::Damaged(String::from("a key of a ready row makes no sense"))));
            };
            match unsealed(key.value(), value.value()) {
                Ok(row) => drop(queues.set(shard, &key_of_row, Some(row))),
                Err(what) => return Ok(Err(Wrong::Damaged(what))),
            }
        }
        let rows = snapshot.rows.len()?;
        let time = Timestamp::from_ms(time);
        Ok(Ok(Found { is_new, store, time, rows, queues, snapshot: Arc::new(snapshot) }))
    }

    fn snapshot_now(&self) -> Result<Snapshot, Trouble> {
        Ok(Snapshot { rows: self.database.begin_read()?.open_table(ROWS)? })
    }

    /// The rows as last written.
    pub(super) fn snapshot(&self) -> Result<Snapshot, Error> {
        guarded(|| self.snapshot_now()).map_err(Trouble::into_error)
    }

    /// Writes changes in one transaction, and returns when they are on the disk.
    pub(super) fn write(&self, layer: &Layer, time: Timestamp) -> Result<(), Error> {
        guarded(|| self.write_now(layer, time)).map_err(Trouble::into_error)
    }

    fn write_now(&self, layer: &Layer, time: Timestamp) -> Result<(), Trouble> {
        let mut writing = self.database.begin_write()?;
        writing.set_durability(Durability::Immediate).expect("no savepoint forbids it");
        {
            let mut rows = writing.open_table(ROWS)?;
            let (mut key, mut value) = (Vec::new(), Vec::new());
            for (shard, groups) in &layer.shards {
                for (group, changes) in groups {
                    encode_group(*shard, group, &mut key);
                    let group_bytes = key.len();
                    if changes.cleared {
                        let end = just_past(&key);
                        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                        rows.retain_in::<&[u8], _>((Bound::Included(&key[..]), end), |_, _| false)?;
                    }
                    for (name, row) in &changes.rows {
                        key.truncate(group_bytes);
                        key.extend_from_slice(name.as_bytes());
                        match row {
                            Some(row) => {
                                seal(&key, row, &mut value);
                                rows.insert(&key[..], &value[..])?;
                            }
                            // A group that was emptied has nothing to remove.
                            None if changes.cleared => {}
                            None => drop(rows.remove(&key[..])?),
                        }
                    }
                }
            }
            writing.open_table(META)?.insert("time", &u128::from(time.as_ms()).to_le_bytes()[..])?;
        }
        writing.commit()?;
        Ok(())
    }
}

enum Wrong {
    Damaged(String),
    TooNew(u32),
}

/// Makes a file that gets its name when it is a store: one that was being made when the power went is no store.
fn create(files: &dyn Files, cache_bytes: usize, store: u128) -> Result<(), OpenError> {
    let path = files.path(NAME_UNTIL_READY);
    let file = files.create(NAME_UNTIL_READY).map_err(OpenError::io("create", path.clone()))?;
    let made = guarded(|| {
        let database = database(file, cache_bytes)?;
        let writing = database.begin_write()?;
        writing.open_table(ROWS)?;
        {
            let mut meta = writing.open_table(META)?;
            for (name, number) in [("format", u128::from(FORMAT)), ("store", store), ("time", 0)] {
                meta.insert(name, &number.to_le_bytes()[..])?;
            }
        }
        writing.commit()?;
        Ok(())
    });
    made.map_err(|trouble| trouble.into_open_error(path))?;
    files.rename(NAME_UNTIL_READY, NAME).map_err(OpenError::io("rename", files.path(NAME)))
}

fn database(file: Box<dyn StoreFile>, cache_bytes: usize) -> Result<Database, Trouble> {
    Ok(Database::builder().set_cache_size(cache_bytes).create_with_backend(FileOfPages(file))?)
}

impl Snapshot {
    /// A row.
    pub(super) fn get(&self, shard: Shard, key: &Key) -> Result<Option<Row>, Error> {
        let mut place = Vec::new();
        encode_group(shard, &key.group, &mut place);
        place.extend_from_slice(key.name.as_bytes());
        let found = guarded(|| Ok(self.rows.get(&place[..])?)).map_err(Trouble::into_error)?;
        found.map(|value| unsealed(&place, value.value()).map_err(damaged)).transpose()
    }

    /// The first rows of a group under these changes.
    pub(super) fn page(&self, shard: Shard, scan: &Scan, changes: PageChanges, limit: usize) -> Result<Page, Error> {
        guarded(|| Ok(self.page_now(shard, scan, changes, limit))).map_err(Trouble::into_error)?
    }

    fn page_now(&self, shard: Shard, scan: &Scan, changes: PageChanges, limit: usize) -> Result<Page, Error> {
        let mut start = Vec::new();
        encode_group(shard, &scan.group, &mut start);
        let group_bytes = start.len();
        let end = just_past(&[&start[..], scan.prefix.as_bytes()].concat());
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let after = scan.after.as_ref().filter(|after| **after >= scan.prefix);
        start.extend_from_slice(after.unwrap_or(&scan.prefix).as_bytes());
        let start = if after.is_some() { Bound::Excluded(&start[..]) } else { Bound::Included(&start[..]) };
        let trouble = |error: redb::StorageError| Trouble::from(error).into_error();
        let mut below = match changes.hides_all {
            true => None,
            false => Some(self.rows.range::<&[u8]>((start, end)).map_err(trouble)?),
        };
        let mut next_below = || -> Result<Option<(Name, Row)>, Error> {
            let Some(entry) = below.as_mut().and_then(Iterator::next) else { return Ok(None) };
            let (key, value) = entry.map_err(trouble)?;
            let row = unsealed(key.value(), value.value()).map_err(damaged)?;
            Ok(Some((Name::new(&key.value()[group_bytes..]), row)))
        };
        let mut above = changes.rows.into_iter().peekable();
        let mut under = next_below()?;
        let mut page = Page::default();
        loop {
            let is_above = match (above.peek(), &under) {
                (None, None) => return Ok(page),
                (Some((name, _)), Some((other, _))) if name == other => {
                    under = next_below()?;
                    true
                }
                (Some((name, _)), Some((other, _))) => name < other,
                (above, _) => above.is_some(),
            };
            let (name, row) = match is_above {
                true => above.next().expect("it was seen just now"),
                false => {
                    let (name, row) = under.take().expect("it was seen just now");
                    under = next_below()?;
                    (name, Some(row))
                }
            };
            let Some(row) = row else { continue };
            if page.rows.len() == limit {
                page.more = true;
                return Ok(page);
            }
            page.rows.push((name, row));
        }
    }
}

fn damaged(what: String) -> Error {
    Error::Damaged(what.into())
}

/// Begins a key with everything before the name.
fn encode_group(shard: Shard, group: &Group, key: &mut Vec<u8>) {
    key.clear();
    key.push(group.kind() as u8);
    key.extend_from_slice(&shard.0.to_be_bytes());
    let length = u16::try_from(group.id().len()).expect("ids are bounded by limits.rs");
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(group.id());
}

fn decode_key(key: &[u8]) -> Option<(Shard, Key)> {
    let (kind, rest) = key.split_first()?;
    let (shard, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (id, name) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let group = Group::of_kind(Kind::from_number(*kind)?, id);
    Some((Shard(u16::from_be_bytes(*shard)), group.key(name)))
}

fn checksum(key: &[u8], row: &[u8]) -> [u8; CRC_BYTES] {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(row);
    crc.finalize().to_le_bytes()
}

/// The value that a row is stored as.
fn seal(key: &[u8], row: &[u8], value: &mut Vec<u8>) {
    value.clear();
    value.extend_from_slice(&checksum(key, row));
    value.extend_from_slice(row);
}

/// The row that a value holds.
fn unsealed(key: &[u8], value: &[u8]) -> Result<Row, String> {
    match value.split_first_chunk::<CRC_BYTES>() {
        Some((crc, row)) if *crc == checksum(key, row) => Ok(Row::from(row)),
        _ => {
            let name = decode_key(key).map_or_else(|| key.escape_ascii().to_string(), |(_, key)| key.to_string());
            Err(format!("row {name} is not as it was written"))
        }
    }
}

/// A file, as redb wants one.
struct FileOfPages(Box<dyn StoreFile>);

impl fmt::Debug for FileOfPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileOfPages")
    }
}

impl redb::StorageBackend for FileOfPages {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.read_at(out, offset)? {
            read if read == out.len() => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the file ends within a page")),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}
