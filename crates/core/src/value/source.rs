//! Files of the user's that values refer to. Data only: `onceflow_store::values::source` reads and verifies them.

use crate::digest::Digest;
use std::{fs::Metadata, os::unix::fs::MetadataExt, path::PathBuf};

/// How long a file must have been unmodified for its stat to identify its content. Timestamps of file systems have a
/// resolution of milliseconds to seconds.
pub const SETTLED_NS: i128 = 2_000_000_000;

/// The fields of `stat` that change whenever a file's content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileStat {
    /// The device the file is on.
    pub device: u64,
    /// The file's inode on that device.
    pub inode: u64,
    /// The number of bytes.
    pub len: u64,
    /// Last change of the content, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Last change of the content, the name or the permissions, in nanoseconds since 1970.
    pub changed_ns: i128,
}

impl FileStat {
    /// Reads these fields from a file's metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        FileStat {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The file had been unmodified for [`SETTLED_NS`] at that time, so that a later change shows in its stat.
    pub fn is_settled(&self, at_ns: i128) -> bool {
        self.modified_ns.max(self.changed_ns) + SETTLED_NS < at_ns
    }
}

/// A file of the user's, as it was when its digest was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// The digest of its content.
    pub digest: Digest,
    /// Its stat, the same before and after the digest was taken.
    pub stat: FileStat,
    /// The file was settled when the digest was taken, so that an equal stat means equal content.
    pub is_settled: bool,
}
