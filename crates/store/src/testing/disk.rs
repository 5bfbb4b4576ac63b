//! A disk with the faults of disks: forgets unsynced writes, in any order and sector by sector, fills up, fails once or
//! for good, and claims to have synced bytes it has lost.
//!
//! A *power cut* leaves synced writes, and of the rest a random part: any sectors, any changes to names. A *dead
//! process* leaves all its writes. A failed sync may have dropped anything since the last one; a later sync of that
//! file succeeds and saves none of it.

mod file;

use super::random::Random;
use crate::{
    backend::journal::files::{Files, StoreFile},
    sync::{Mutex, lock},
};
use file::Content;
use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

/// A fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// This operation and all after it do not happen: the machine is gone.
    Stop,
    /// This operation fails with this error; later ones go on. A failed sync loses the writes it should have saved.
    Fail(io::ErrorKind),
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Content by number; names point at numbers.
    contents: BTreeMap<u64, Content>,
    names: BTreeMap<String, u64>,
    /// The names as a power cut leaves them, and the changes to names since.
    durable_names: BTreeMap<String, u64>,
    unsynced: Vec<Entry>,
    made: u64,
    operations: u64,
    trouble: Option<(u64, Trouble)>,
    stopped: bool,
    bytes_max: Option<u64>,
}

/// A change to the directory.
#[derive(Clone)]
enum Entry {
    Link(String, u64),
    Rename(String, String, u64),
    Unlink(String),
}

impl Disk {
    /// An empty disk without trouble.
    pub fn new() -> Self {
        Disk(Arc::default())
    }

    /// The same disk, with trouble at the n-th operation that changes something, counted from 1 and from now.
    pub fn trouble_at(&self, n: u64, trouble: Trouble) -> &Self {
        let mut inner = self.inner();
        (inner.operations, inner.trouble) = (0, Some((n, trouble)));
        self
    }

    /// The fault has occurred.
    pub fn is_in_trouble(&self) -> bool {
        let inner = self.inner();
        inner.trouble.is_some_and(|(n, _)| inner.operations >= n)
    }

    /// How many operations changed something, or tried to, since trouble was last announced.
    pub fn operations(&self) -> u64 {
        self.inner().operations
    }

    /// No file may make all files together longer than this; `None` for no bound.
    pub fn limit_bytes(&self, bytes_max: Option<u64>) {
        self.inner().bytes_max = bytes_max;
    }

    /// How long all files are together.
    pub fn bytes(&self) -> u64 {
        self.inner().bytes()
    }

    /// The disk after a power cut: synced writes, and a random part of the rest.
    pub fn after_power_cut(&self, seed: u64) -> Disk {
        let inner = self.inner();
        let mut random = Random::new(seed);
        let mut names = inner.durable_names.clone();
        for entry in inner.unsynced.iter().filter(|_| random.percent(50)) {
            entry.apply(&mut names);
        }
        let mut content = |number: &u64| inner.contents[number].after_power_cut(&mut random);
        let contents = names.values().map(|number| (*number, content(number))).collect::<BTreeMap<_, _>>();
        Disk::holding(names, contents, inner.made)
    }

    /// The disk after the process died: all its writes, synced or not.
    pub fn after_kill(&self) -> Disk {
        let inner = self.inner();
        let disk = Disk::holding(inner.durable_names.clone(), inner.contents.clone(), inner.made);
        {
            let mut left = disk.inner();
            (left.names, left.unsynced) = (inner.names.clone(), inner.unsynced.clone());
        }
        disk
    }

    fn holding(names: BTreeMap<String, u64>, contents: BTreeMap<u64, Content>, made: u64) -> Disk {
        let inner = Inner { contents, durable_names: names.clone(), names, made, ..Inner::default() };
        Disk(Arc::new(Mutex::new(inner)))
    }

    /// The names of all files, in order.
    pub fn names(&self) -> Vec<String> {
        self.inner().names.keys().cloned().collect()
    }

    /// Returns the content of a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        let inner = self.inner();
        inner.contents[&inner.names[name]].bytes().to_vec()
    }

    /// Makes a file hold something else, as damage does: it is there after a power cut too.
    pub fn overwrite(&self, name: &str, bytes: Vec<u8>) {
        let mut inner = self.inner();
        let number = inner.names[name];
        inner.contents.insert(number, Content::durable(bytes));
    }

    /// Makes a file vanish, as damage does.
    pub fn lose(&self, name: &str) {
        let mut inner = self.inner();
        inner.names.remove(name);
        inner.durable_names.remove(name);
    }

    fn inner(&self) -> crate::sync::MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    /// Does something that changes the disk, unless trouble comes first.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.inner();
        inner.next_operation()?;
        change(&mut inner)
    }
}

impl Default for Disk {
    fn default() -> Self {
        Disk::new()
    }
}

impl Inner {
    fn next_operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.trouble {
            Some((n, Trouble::Stop)) if n <= self.operations => self.stopped = true,
            Some((n, Trouble::Fail(kind))) if n == self.operations => return Err(kind.into()),
            _ => {}
        }
        if self.stopped { Err(io::Error::other("the machine is gone")) } else { Ok(()) }
    }

    fn bytes(&self) -> u64 {
        self.names.values().map(|number| self.contents[number].bytes().len() as u64).sum()
    }

    fn enter(&mut self, entry: Entry) {
        entry.apply(&mut self.names);
        self.unsynced.push(entry);
    }

    fn number(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Entry {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Entry::Link(name, number) => drop(names.insert(name.clone(), *number)),
            Entry::Rename(from, to, number) => {
                names.remove(from);
                names.insert(to.clone(), *number);
            }
            Entry::Unlink(name) => drop(names.remove(name)),
        }
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let number = self.inner().number(name)?;
        Ok(Box::new(OpenFile { disk: self.clone(), number }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let number = self.change(|inner| {
            if inner.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            inner.made += 1;
            let number = inner.made;
            inner.contents.insert(number, Content::default());
            inner.enter(Entry::Link(name.into(), number));
            Ok(number)
        })?;
        Ok(Box::new(OpenFile { disk: self.clone(), number }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(|inner| {
            let number = inner.number(from)?;
            inner.enter(Entry::Rename(from.into(), to.into(), number));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|inner| {
            inner.number(name)?;
            inner.enter(Entry::Unlink(name.into()));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|inner| {
            inner.durable_names = inner.names.clone();
            inner.unsynced.clear();
            Ok(())
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("disk").join(name)
    }
}

struct OpenFile {
    disk: Disk,
    number: u64,
}

impl OpenFile {
    fn content<T>(&self, read: impl FnOnce(&mut Content) -> T) -> T {
        read(self.disk.inner().contents.get_mut(&self.number).expect("an open file has content"))
    }
}

impl StoreFile for OpenFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.content(|content| content.bytes().len() as u64))
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.content(|content| {
            let bytes = content.bytes().get(at as usize..).unwrap_or_default();
            let length = bytes.len().min(into.len());
            into[..length].copy_from_slice(&bytes[..length]);
            Ok(length)
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.disk.change(|inner| {
            let all = inner.bytes();
            let content = inner.contents.get_mut(&self.number).expect("an open file has content");
            let longer = (at + bytes.len() as u64).saturating_sub(content.bytes().len() as u64);
            if longer > 0 && inner.bytes_max.is_some_and(|max| all + longer > max) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            content.write(at as usize, bytes);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.change(|inner| {
            let all = inner.bytes();
            let content = inner.contents.get_mut(&self.number).expect("an open file has content");
            let longer = len.saturating_sub(content.bytes().len() as u64);
            if longer > 0 && inner.bytes_max.is_some_and(|max| all + longer > max) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            content.set_len(len as usize);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.disk.inner().next_operation();
        let stopped = self.disk.inner().stopped;
        self.content(|content| match &synced {
            Ok(()) => content.sync(),
            // A stopped process sees no error; its writes are still on their way.
            Err(_) if stopped => {}
            Err(_) => content.lose_unsynced(),
        });
        synced
    }
}
