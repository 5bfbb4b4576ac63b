//! The least one durable append can cost: bytes written to a file whose space was prepared, and one fdatasync.

use crate::barelog;
use std::{fs, io, os::unix::fs::FileExt, path::Path};

/// The bytes a journal prepares at a time, and how few are left when it does.
const PREPARE_BYTES: u64 = 1 << 20;
const ROOM_BYTES_LOW: u64 = PREPARE_BYTES / 2;

/// A file that grows as a journal's segment does: zeros ahead, a mebibyte at a time.
pub struct Appender {
    file: fs::File,
    end: u64,
    prepared: u64,
}

impl Appender {
    pub fn create(path: &Path) -> io::Result<Appender> {
        let file = fs::File::options().read(true).write(true).create_new(true).open(path)?;
        barelog::prepare(&file, 0, PREPARE_BYTES)?;
        file.sync_all()?;
        Ok(Appender { file, end: 0, prepared: PREPARE_BYTES })
    }

    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        self.file.write_all_at(record, self.end)?;
        self.file.sync_data()?;
        self.end += record.len() as u64;
        if self.prepared - self.end < ROOM_BYTES_LOW {
            barelog::prepare(&self.file, self.prepared, self.prepared + PREPARE_BYTES)?;
            self.prepared += PREPARE_BYTES;
        }
        Ok(())
    }

    pub fn check(&self, record: &[u8]) -> anyhow::Result<()> {
        let mut last = vec![0; record.len()];
        self.file.read_exact_at(&mut last, self.end - record.len() as u64)?;
        anyhow::ensure!(last == record, "the file does not hold what was appended to it");
        Ok(())
    }
}
