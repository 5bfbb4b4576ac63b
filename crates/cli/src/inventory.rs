//! The disk usage of a store's directory, by the purpose of its files. Files that are not onceflow's are named.

use crate::{housekeeping, location::StoreLocation, words};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// Files that are not onceflow's and are named.
const NAMED_MAX: usize = 10;

/// Bytes below a store's directory, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory {
    /// The rows (the log and its snapshots, or the pages), and the files of their owner.
    pub(crate) log: u64,
    /// Large values.
    pub(crate) objects: u64,
    /// Uploads of large values, under way or left by a process that has ended.
    pub(crate) unfinished: u64,
    /// Work directories and logs of runs.
    pub(crate) runs: u64,
    /// Files put there for steps, unpacked files, and lock files of processes.
    pub(crate) scratch: u64,
    /// Caches: digests of inputs, parsed flows; and lock files.
    pub(crate) hints: u64,
    /// Files that are not onceflow's, with their sizes.
    pub(crate) others: Vec<(String, u64)>,
}

/// The inventory of a store in a directory; of one on a server, that of its directory on this machine.
pub(crate) fn of(location: &StoreLocation) -> Inventory {
    let mut inventory = Inventory::default();
    for entry in fs::read_dir(&location.directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match name.as_str() {
            "blobs" => inventory.blobs(&entry.path()),
            _ => inventory.add(&name, &entry.path()),
        }
    }
    inventory.others.sort();
    inventory
}

impl Inventory {
    fn add(&mut self, name: &str, path: &Path) {
        let bytes = housekeeping::size(path);
        let is_log = |name: &str| ["log-", "snap-"].iter().any(|begins| name.starts_with(begins));
        match name {
            "durable" | "LOCK" | "store-id" | "store.sock" | "store.new" | "pages" | "pages.new" => self.log += bytes,
            name if is_log(name) => self.log += bytes,
            "runs" => self.runs += bytes,
            "scratch" => self.scratch += bytes,
            "workers" | "members" | "guards" | "compared" | "digests" | "flows" | ".gitignore" => self.hints += bytes,
            name if name.starts_with("digests.") || name.starts_with("flows.") => self.hints += bytes,
            name => self.others.push((name.to_owned(), bytes)),
        }
    }

    /// The objects of all shards.
    fn blobs(&mut self, path: &Path) {
        for shard in fs::read_dir(path).into_iter().flatten().flatten() {
            let number = shard.file_name().to_string_lossy().into_owned();
            if shard.file_type().is_ok_and(|kind| !kind.is_dir()) {
                match (number.as_str(), housekeeping::size(&shard.path())) {
                    ("store-id", bytes) => self.log += bytes,
                    (name, bytes) => self.others.push((format!("blobs/{name}"), bytes)),
                }
                continue;
            }
            for entry in fs::read_dir(shard.path()).into_iter().flatten().flatten() {
                let (name, bytes) =
                    (entry.file_name().to_string_lossy().into_owned(), housekeeping::size(&entry.path()));
                match name.as_str() {
                    "objects" => self.objects += bytes,
                    "unfinished" => self.unfinished += bytes,
                    "writers" => self.hints += bytes,
                    name if name.starts_with("verified") => self.hints += bytes,
                    name => self.others.push((format!("blobs/{number}/{name}"), bytes)),
                }
            }
        }
    }

    /// All bytes.
    pub(crate) fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn kinds(&self) -> [(&'static str, u64); 7] {
        let others = self.others.iter().map(|(_, bytes)| bytes).sum();
        [
            ("log", self.log),
            ("objects", self.objects),
            ("unfinished", self.unfinished),
            ("runs", self.runs),
            ("scratch", self.scratch),
            ("hints", self.hints),
            ("other", others),
        ]
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut data = json!({"total": self.total()});
        for (kind, bytes) in self.kinds() {
            data[kind] = json!(bytes);
        }
        let others = self.others.iter().map(|(path, bytes)| json!({"path": path, "bytes": bytes}));
        data["others"] = others.collect();
        data
    }

    /// One line, and another for files that are not onceflow's.
    pub(crate) fn text(&self) -> String {
        let parts = self.kinds().into_iter().filter(|(_, bytes)| *bytes > 0);
        let parts: Vec<_> = parts.map(|(kind, bytes)| format!("{kind} {}", words::bytes(bytes))).collect();
        let mut text = format!("{:>10}  in files of the directory: {}\n", words::bytes(self.total()), parts.join(", "));
        if !self.others.is_empty() {
            let named: Vec<_> = self.others.iter().take(NAMED_MAX).map(|(name, _)| name.as_str()).collect();
            let more = self.others.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.push_str(&format!("            not known to be onceflow's: {}{more}\n", named.join(", ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_directory_is_counted_and_what_is_unknown_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, len: usize| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![0; len]).unwrap();
        };
        let files = [
            ("log-0", 1),
            ("store-id", 0),
            ("guards/1", 0),
            ("blobs/store-id", 0),
            ("blobs/0/objects/a", 20),
            ("blobs/0/unfinished/a.1", 300),
            ("runs/1/work/x", 4_000),
            ("scratch/import-1/x", 50_000),
            ("digests", 600_000),
            ("notes.txt", 7_000_000),
            ("blobs/0/stray", 80_000_000),
        ];
        files.iter().for_each(|(name, len)| write(name, *len));
        let location = crate::location::find(Some(directory.path()), Path::new("/"));
        let found = of(&location);
        assert_eq!(found.total(), 87_654_321);
        assert_eq!((found.log, found.unfinished, found.hints), (1, 300, 600_000));
        assert_eq!(found.others, [(String::from("blobs/0/stray"), 80_000_000), (String::from("notes.txt"), 7_000_000)]);
        assert!(found.text().contains("not known to be onceflow's: blobs/0/stray, notes.txt"), "{}", found.text());
    }
}
