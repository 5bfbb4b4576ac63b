//! What can happen to files: bits flip, writes are lost, torn or go astray, files vanish or are those of yesterday. And what
//! only a liar does: contents with checksums that are right.

use super::made::Made;
use onceflow_store::{
    backend::journal::files::Files,
    testing::{disk::Disk, random::Random},
};

/// Kinds of damage.
pub(super) const KINDS: usize = 12;

/// Damages at a time.
const DAMAGES_MAX: usize = 12;

const HEADER_BYTES: usize = 64;
const FRAME_BYTES: usize = 40;

/// A copy of the disk with the damage that the choices stand for, and whether some of it is forged.
pub(super) fn apply(random: &mut Random, made: &Made) -> (Disk, bool) {
    let disk = made.disk.after_kill();
    let mut is_forged = false;
    for _ in 0..DAMAGES_MAX {
        if random.is_spent() || disk.names().is_empty() {
            break;
        }
        is_forged |= one(random, made, &disk);
    }
    (disk, is_forged)
}

/// Does one damage; answers whether it is forged.
fn one(random: &mut Random, made: &Made, disk: &Disk) -> bool {
    let kind = random.below(KINDS);
    let name = random.pick(&disk.names()).clone();
    let mut bytes = disk.read(&name);
    let at = random.below(bytes.len() + 1);
    match kind {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        2 => bytes.truncate(at),
        3 => zero(&mut bytes, at, random.below(2000)),
        4 => {
            disk.lose(&name);
            return false;
        }
        5 => astray(random, disk, &mut bytes, at),
        6 => return yesterday(random, made, disk, &name),
        7 => bytes.extend((0..random.below(64)).map(|_| random.below(256) as u8)),
        8 => return renamed(random, disk, &name),
        9 => fill(random, &mut bytes, at),
        10 => return forge_head(random, disk, &name, bytes),
        11 => return forge_payload(random, disk, &name, bytes),
        _ => {}
    }
    disk.overwrite(&name, bytes);
    false
}

fn zero(bytes: &mut [u8], at: usize, length: usize) {
    let end = (at + length).min(bytes.len());
    bytes[at..end].fill(0);
}

fn fill(random: &mut Random, bytes: &mut [u8], at: usize) {
    let end = (at + random.below(64)).min(bytes.len());
    bytes[at..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
}

/// A write that went to the wrong place: a piece of some file, here.
fn astray(random: &mut Random, disk: &Disk, bytes: &mut [u8], at: usize) {
    let names = disk.names();
    let from = disk.read(random.pick(&names).as_str());
    let start = random.below(from.len() + 1) & !7;
    let length = random.below(600).min(from.len() - start).min(bytes.len() - at);
    let at = if random.percent(50) { at & !7 } else { at };
    bytes[at..at + length].copy_from_slice(&from[start..start + length]);
}

/// A file as it was before, or one that was removed since.
fn yesterday(random: &mut Random, made: &Made, disk: &Disk, name: &str) -> bool {
    let then = random.pick(&made.earlier);
    let names = then.names();
    let other = if names.iter().any(|known| known == name) && random.percent(60) { name } else { random.pick(&names) };
    put(disk, other, then.read(other));
    false
}

/// A file under the name of another position, as a copy gone wrong leaves it.
fn renamed(random: &mut Random, disk: &Disk, name: &str) -> bool {
    const POSITIONS: [u64; 6] = [0, 1, 2, 40, 70, u64::MAX];
    let kind = *random.pick(&["log", "snap"]);
    put(disk, &format!("{kind}-{:016x}", random.pick(&POSITIONS)), disk.read(name));
    false
}

fn put(disk: &Disk, name: &str, bytes: Vec<u8>) {
    if !disk.names().iter().any(|known| known == name) {
        drop(disk.create(name).expect("this disk takes files"));
    }
    disk.overwrite(name, bytes);
}

/// Changes numbers of the marker, a header or a frame's head, and makes the checksum right. A header may move with its name.
fn forge_head(random: &mut Random, disk: &Disk, name: &str, mut bytes: Vec<u8>) -> bool {
    const NUMBERS: [u64; 8] = [0, 1, 2, 39, 40, 1 << 32, u64::MAX - 1, u64::MAX];
    let number = random.pick(&NUMBERS).to_le_bytes();
    if name == "durable" && bytes.len() == 12 {
        bytes[..8].copy_from_slice(&number);
        let crc = crc32fast::hash(&bytes[..8]).to_le_bytes();
        bytes[8..].copy_from_slice(&crc);
        disk.overwrite(name, bytes);
        return true;
    }
    let heads = frames(&bytes);
    if bytes.len() < HEADER_BYTES || (random.percent(30) || heads.is_empty()) {
        return forge_header(disk, name, bytes, number);
    }
    let (at, end) = *random.pick(&heads);
    let field = *random.pick(&[8, 16, 24, FRAME_BYTES]);
    bytes[at + field..at + field + 8].copy_from_slice(&number);
    seal(&mut bytes, at, end);
    disk.overwrite(name, bytes);
    true
}

fn forge_header(disk: &Disk, name: &str, mut bytes: Vec<u8>, number: [u8; 8]) -> bool {
    if bytes.len() < HEADER_BYTES {
        return false;
    }
    bytes[32..40].copy_from_slice(&number);
    let crc = crc32fast::hash(&bytes[16..HEADER_BYTES]).to_le_bytes();
    bytes[12..16].copy_from_slice(&crc);
    let kind = name.split('-').next().unwrap_or_default();
    put(disk, &format!("{kind}-{:016x}", u64::from_le_bytes(number)), bytes);
    true
}

/// Changes what a frame says, and makes the checksum right.
fn forge_payload(random: &mut Random, disk: &Disk, name: &str, mut bytes: Vec<u8>) -> bool {
    let heads = frames(&bytes);
    if heads.is_empty() {
        return false;
    }
    let (at, end) = *random.pick(&heads);
    for _ in 0..=random.below(3) {
        let place = at + FRAME_BYTES + random.below(end - at - FRAME_BYTES);
        bytes[place] = random.below(256) as u8;
    }
    seal(&mut bytes, at, end);
    disk.overwrite(name, bytes);
    true
}

/// Where frames begin and their payloads end, as far as their lengths lead.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = vec![];
    let mut at = HEADER_BYTES;
    while let Some(length) = bytes.get(at + 4..at + 8) {
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let end = at + FRAME_BYTES + length;
        if length < 8 || end > bytes.len() {
            break;
        }
        found.push((at, end));
        at = end.next_multiple_of(8);
    }
    found
}

fn seal(bytes: &mut [u8], at: usize, end: usize) {
    let crc = crc32fast::hash(&bytes[at + 4..end]).to_le_bytes();
    bytes[at..at + 4].copy_from_slice(&crc);
}
