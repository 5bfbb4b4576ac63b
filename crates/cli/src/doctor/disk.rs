//! Checks the file system below a directory: its kind, its free space, and the cost of a sync.

use super::Finding;
use crate::words;
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

/// The number of syncs that are timed.
const SYNCS: usize = 15;

/// A slower sync is noticeable in every step.
const SLOW: Duration = Duration::from_millis(20);

/// No disk syncs faster than this.
const FAKE: Duration = Duration::from_micros(8);

/// With less free space than this a run may soon have to stop.
const ROOM_BYTES_MIN: u64 = 1_000_000_000;
const ROOM_BYTES_FAIL: u64 = 50_000_000;

/// File systems by their magic numbers, and whether a store is durable on each.
const KINDS: [(u64, &str, Lasts); 10] = [
    (0x0102_1994, "tmpfs", Lasts::Memory),
    (0x8584_58f6, "ramfs", Lasts::Memory),
    (0x6969, "nfs", Lasts::Shared),
    (0xff53_4d42, "cifs", Lasts::Shared),
    (0xfe53_4d42, "smb2", Lasts::Shared),
    (0x6573_5546, "fuse", Lasts::Shared),
    (0xef53, "ext4", Lasts::Disk),
    (0x5846_5342, "xfs", Lasts::Disk),
    (0x9123_683e, "btrfs", Lasts::Disk),
    (0x794c_7630, "overlayfs", Lasts::Disk),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lasts {
    Disk,
    Memory,
    Shared,
}

/// Checks the free space.
pub(crate) fn room(check: &'static str, directory: &Path) -> Finding {
    let shown = directory.display();
    let stat = match rustix::fs::statvfs(directory) {
        Ok(stat) => stat,
        Err(error) => {
            return Finding::fail(check, format!("{shown} cannot be looked at: {error}"), "is it there, and readable?");
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let message = format!("{} free in {shown}", words::bytes(free));
    let files = stat.f_files > 0 && stat.f_favail < 1000;
    match free {
        _ if files => Finding::warn(check, format!("{message}, but hardly any files"), "delete many small files there"),
        0..ROOM_BYTES_FAIL => {
            Finding::fail(check, message, "make room, or use another disk: `--store DIR`, `TMPDIR=DIR`")
        }
        ROOM_BYTES_FAIL..ROOM_BYTES_MIN => Finding::warn(check, message, "make room before large runs"),
        _ => Finding::ok(check, message),
    }
}

/// Checks that synced bytes are on a disk, and how long a sync takes.
pub(crate) fn sync(directory: &Path) -> Finding {
    const CHECK: &str = "disk";
    let kind = rustix::fs::statfs(directory).ok().map(|stat| stat.f_type as u64);
    let kind = kind.and_then(|number| KINDS.into_iter().find(|(known, ..)| *known == number & 0xffff_ffff));
    let name = kind.map_or("the file system", |(_, name, _)| name);
    let took = match syncs(directory) {
        Ok(took) => took,
        Err(error) => {
            let message = format!("{} cannot be written: {error}", directory.display());
            return Finding::fail(CHECK, message, "ask its owner for the right to, or give another with `--store DIR`");
        }
    };
    let message = format!("{name} syncs in {:.2} ms", took.as_secs_f64() * 1000.0);
    match kind.map_or(Lasts::Disk, |(.., lasts)| lasts) {
        Lasts::Memory => Finding::warn(
            CHECK,
            format!("{message}: it is memory, and gone when the machine stops"),
            "keep stores that matter on a disk: `--store DIR`",
        ),
        Lasts::Shared => Finding::warn(
            CHECK,
            format!("{message}: it is shared with other machines, and may not keep what it says it has"),
            "keep the store on a disk of this machine, or on a server: `--store redis://HOST`",
        ),
        Lasts::Disk if took < FAKE => Finding::warn(
            CHECK,
            format!("{message}: faster than any disk, so it may not be one"),
            "is sync switched off (eatmydata, a virtual disk with an unsafe cache)? A power cut would lose what was done",
        ),
        Lasts::Disk if took > SLOW => Finding::warn(
            CHECK,
            format!("{message}: every step waits for one"),
            "a faster disk, or fewer and larger steps",
        ),
        Lasts::Disk => Finding::ok(CHECK, message),
    }
}

/// Returns the median duration of a sync.
fn syncs(directory: &Path) -> std::io::Result<Duration> {
    let path = directory.join(format!(".doctor-{}", std::process::id()));
    let tried = (|| -> std::io::Result<Duration> {
        let mut file = File::create(&path)?;
        let mut took = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            file.write_all(&[7; 4096])?;
            let begun = Instant::now();
            file.sync_data()?;
            took.push(begun.elapsed());
        }
        took.sort();
        Ok(took[SYNCS / 2])
    })();
    let removed = match fs::remove_file(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let took = tried?;
    removed.map(|()| took)
}
