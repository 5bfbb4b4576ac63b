//! Ownership of a directory: the owner is the process that has its `LOCK` file locked. The kernel releases the lock
//! when that process ends, however it ends, so a lock is never stale. While the lock is held the file names the holder,
//! for people only; that outlives a killed owner. An owner that closes in order leaves there what the next one is to
//! [know](super::handover).
//!
//! The file is never removed: a process waiting for the lock of a removed file would not exclude the others. If a user
//! removes it all the same, the owner notices before it writes again, and stops; and no other process becomes the owner
//! meanwhile, because the directory itself is locked, too, where the file system can do that.

use super::handover;
use crate::world::World;
use onceflow_core::Timestamp;
use std::{
    fmt,
    fs::{File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The name of the lock file.
pub(super) const NAME: &str = "LOCK";

/// The most bytes of the file that are read.
const CONTENT_BYTES_MAX: u64 = 1024;

/// A process that owns, or owned, a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// The machine it runs on.
    pub host: String,
    /// Since when.
    pub since: Timestamp,
}

impl Holder {
    /// This process.
    fn me(world: &dyn World) -> Self {
        Holder { pid: std::process::id(), host: host(), since: world.clock() }
    }

    fn to_text(&self) -> String {
        format!("pid {}\nhost {}\nsince {}\n", self.pid, self.host, self.since.as_ms())
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut line = |word: &str| lines.next()?.strip_prefix(word)?.strip_prefix(' ');
        Some(Holder {
            pid: line("pid")?.parse().ok()?,
            host: line("host")?.into(),
            since: Timestamp::from_ms(line("since")?.parse().ok()?),
        })
    }

    /// The holder runs on this machine, as far as names tell.
    pub(super) fn is_here(&self) -> bool {
        self.host == host()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} on {} since {}", self.pid, self.host, Utc(self.since))
    }
}

/// A time as people write it.
struct Utc(Timestamp);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_ms() / 1000;
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // Years that begin in March, so that the leap day is the last; 400 of them always have as many days.
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

fn host() -> String {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let name = name.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    if name.trim().is_empty() { "an unnamed host".into() } else { name.trim().into() }
}

/// The directory, owned by this process while this lives, or until it is released.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
    /// The directory, locked as well; `None` where directories cannot be.
    dir: Option<File>,
    pub(super) holder: Holder,
    /// The handover that the last owner left in the file.
    pub(super) left: Vec<u8>,
}

/// The result of trying for the lock.
#[derive(Debug)]
pub(super) enum LockAttempt {
    Acquired(Lock),
    /// Another process has the lock; `None` in the moment before it has written who it is.
    HeldBy(Option<Holder>),
}

impl Lock {
    /// Tries for the lock. Does not wait.
    pub(super) fn take(dir: &Path, world: &dyn World) -> io::Result<LockAttempt> {
        let path = dir.join(NAME);
        let mut file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(LockAttempt::HeldBy(read(&mut file)?)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !is_at(&file, &path) {
            // Removed between opening and locking it: the one that is there now counts.
            return Ok(LockAttempt::HeldBy(None));
        }
        let Some(dir) = lock_directory(dir)? else { return Ok(LockAttempt::HeldBy(None)) };
        let left = read_all(&mut file)?;
        if let Some(gone) = holder_in(&left) {
            tracing::info!(path = %path.display(), "the last owner, {gone}, ended without closing the store");
        }
        let holder = Holder::me(world);
        write(&file, holder.to_text().as_bytes())?;
        Ok(LockAttempt::Acquired(Lock { file, path, dir, holder, left }))
    }

    /// Releases the lock, and leaves a handover to the next owner.
    pub(super) fn release(&self, left: &[u8]) -> io::Result<()> {
        write(&self.file, left)?;
        self.let_go()
    }

    /// Releases the lock and changes nothing.
    pub(super) fn let_go(&self) -> io::Result<()> {
        // The process that takes the file next takes the directory after it.
        self.dir.as_ref().map_or(Ok(()), File::unlock)?;
        self.file.unlock()
    }

    /// Refuses if the file at the path is not the one that is locked: then another process may own the directory.
    pub(super) fn check(&self) -> io::Result<()> {
        if is_at(&self.file, &self.path) {
            return Ok(());
        }
        let path = self.path.display();
        let why = format!("{path} was removed or replaced while this process owned the store; it writes nothing more");
        Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, why))
    }
}

/// Locks a directory; `None` if another process has it. The answer holds no file where directories cannot be locked.
fn lock_directory(dir: &Path) -> io::Result<Option<Option<File>>> {
    let file = File::open(dir)?;
    Ok(match file.try_lock() {
        Ok(()) => Some(Some(file)),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => {
            tracing::debug!(%error, dir = %dir.display(), "directories cannot be locked here; the file alone is");
            Some(None)
        }
    })
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn read(file: &mut File) -> io::Result<Option<Holder>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(CONTENT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(holder_in(&text))
}

/// The content of the file, cut at the longest handover an owner writes.
fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    let mut left = Vec::new();
    file.rewind()?;
    file.take(handover::BYTES_MAX as u64).read_to_end(&mut left)?;
    Ok(left)
}

fn holder_in(content: &[u8]) -> Option<Holder> {
    let most = content.len().min(CONTENT_BYTES_MAX as usize);
    Holder::from_text(&String::from_utf8_lossy(&content[..most]))
}

fn write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world::TestWorld;

    fn yours(dir: &Path) -> Lock {
        match Lock::take(dir, &*TestWorld::new(0)).unwrap() {
            LockAttempt::Acquired(lock) => lock,
            LockAttempt::HeldBy(holder) => panic!("held by {holder:?}"),
        }
    }

    #[test]
    fn one_process_has_the_lock_and_the_others_read_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let lock = yours(dir.path());
        let LockAttempt::HeldBy(Some(holder)) = Lock::take(dir.path(), &*TestWorld::new(0)).unwrap() else {
            panic!("not held")
        };
        assert_eq!((holder.pid, holder.is_here()), (std::process::id(), true));
        assert!(holder.to_string().ends_with("since 2023-11-14 22:13:20 UTC"), "{holder}");
        lock.release(b"").unwrap();
        drop(yours(dir.path()));
    }

    #[test]
    fn an_unlocked_lock_file_is_taken_over_whatever_it_says() {
        let dir = tempfile::tempdir().unwrap();
        for left_behind in ["pid 1\nhost elsewhere\nsince 5\n", "pid", "\u{0}garbage", &"x".repeat(5000)] {
            std::fs::write(dir.path().join(NAME), left_behind).unwrap();
            let lock = yours(dir.path());
            let said = std::fs::read_to_string(dir.path().join(NAME)).unwrap();
            assert_eq!(Holder::from_text(&said), Some(lock.holder.clone()));
        }
    }

    #[test]
    fn times_are_written_as_people_do() {
        let table = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199_999, "2024-02-29 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ];
        for (ms, text) in table {
            assert_eq!(Utc(Timestamp::from_ms(ms)).to_string(), text);
        }
    }
}
