//! Files that are not as they were written: refused with the place and what to do, and left alone; or cut, where no batch
//! behind the place had been acknowledged.

use super::support::*;
use onceflow_store::{
    backend::journal::{OnDamage, OpenError, Options},
    testing::{disk::Disk, random::Random},
};

/// A disk with a snapshot, a log behind it, and everything on it acknowledged.
async fn full_disk() -> (Disk, Told) {
    let disk = Disk::new();
    let (journal, _) = open(&disk, eager_snapshots()).unwrap();
    let (told, failed) = work(&journal, 11, 120).await;
    assert!(failed.is_none());
    journal.close().await.unwrap();
    assert!(disk.names().iter().any(|name| name.starts_with("snap-")), "no snapshot was made: {:?}", disk.names());
    (disk, told)
}

fn contents(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.read(&name))).collect()
}

/// Opens a damaged disk: it is refused and untouched, or it holds everything all the same.
fn check_damaged(disk: &Disk, told: &Told, what: &str) -> bool {
    let before = contents(disk);
    match open(disk, Options::default()) {
        Ok((journal, _)) => {
            assert_eq!(&rows(&journal.state()), told.after.last().unwrap(), "{what}: opened with other rows");
            false
        }
        Err(error) => {
            assert_eq!(contents(disk), before, "{what}: refused, but changed");
            let error = error.to_string();
            assert!(error.contains("disk/") && error.contains("hint:"), "{what}: {error}");
            true
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_refused_or_harmless_and_never_gives_other_rows() {
    let (disk, told) = full_disk().await;
    let mut random = Random::new(1);
    let (mut tried, mut refused) = (0, 0);
    for (name, bytes) in contents(&disk) {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for at in (0..used).step_by(if std::env::var_os("ONCEFLOW_LONG").is_some() { 1 } else { 5 }) {
            let flipped = disk.after_kill();
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << random.below(8);
            flipped.overwrite(&name, bytes);
            tried += 1;
            refused += u32::from(check_damaged(&flipped, &told, &format!("{name}, byte {at}")));
        }
    }
    assert!(refused * 10 > tried * 9, "only {refused} of {tried} flipped bits were seen");
}

#[tokio::test]
async fn a_cut_or_missing_file_is_refused_while_the_marker_knows_better() {
    let (disk, told) = full_disk().await;
    for (name, bytes) in contents(&disk) {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for keep in (0..used).step_by(97) {
            let cut = disk.after_kill();
            cut.overwrite(&name, bytes[..keep].to_vec());
            let refused = check_damaged(&cut, &told, &format!("{name} cut to {keep}"));
            assert!(refused || name == "durable", "{name} cut to {keep} was accepted");
        }
        let without = disk.after_kill();
        without.lose(&name);
        let refused = check_damaged(&without, &told, &format!("{name} lost"));
        assert!(refused || name == "durable", "{name} was lost in silence");
    }
}

#[tokio::test]
async fn a_torn_tail_is_cut_and_reported_and_does_not_come_back() {
    let disk = Disk::new();
    let (journal, _) = open(&disk, Options::default()).unwrap();
    let (told, _) = work(&journal, 2, 10).await;
    journal.close().await.unwrap();
    let log = disk.names().into_iter().find(|name| name.starts_with("log-")).unwrap();
    let mut bytes = disk.read(&log);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let torn_at = end.next_multiple_of(8);
    bytes[torn_at..torn_at + 100].fill(0xAB);
    disk.overwrite(&log, bytes);
    let (journal, recovered) = open(&disk, Options::default()).unwrap();
    let torn = recovered.torn.expect("a torn tail is reported");
    assert_eq!((torn.offset, torn.bytes), (torn_at as u64, 100));
    assert_eq!(&rows(&journal.state()), told.after.last().unwrap());
    journal.close().await.unwrap();
    let (_, again) = open(&disk.after_kill(), Options::default()).unwrap();
    assert_eq!(again.torn, None);
}

#[tokio::test]
async fn damage_says_the_file_the_byte_and_what_to_do_and_the_rest_can_be_given_up() {
    let (disk, told) = full_disk().await;
    let log = disk.names().into_iter().find(|name| name.starts_with("log-")).unwrap();
    let mut bytes = disk.read(&log);
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    bytes[middle] ^= 0xFF;
    disk.overwrite(&log, bytes);
    let Err(OpenError::Damaged { file, offset: Some(offset), what, .. }) = open(&disk, Options::default()) else {
        panic!("damage in the middle was accepted")
    };
    assert!(file.ends_with(&log) && offset as usize <= middle && what.contains("was durable"), "{what}");
    let copy = disk.after_kill();
    let given_up = Options { on_damage: OnDamage::LoseTheRest, ..Options::default() };
    let (journal, _) = open(&copy, given_up).unwrap();
    let left = rows(&journal.state());
    assert!(told.after.contains(&left), "what is left is of no moment that was");
    // Once given up, it stays given up.
    journal.close().await.unwrap();
    let (again, _) = open(&copy.after_kill(), Options::default()).unwrap();
    assert_eq!(rows(&again.state()), left);
}

#[tokio::test]
async fn a_store_of_a_later_version_is_refused_by_name() {
    let (disk, _) = full_disk().await;
    let log = disk.names().into_iter().find(|name| name.starts_with("log-")).unwrap();
    let mut bytes = disk.read(&log);
    bytes[8] = 9;
    disk.overwrite(&log, bytes.clone());
    let flipped = open(&disk, Options::default()).err();
    assert!(!matches!(flipped, None | Some(OpenError::TooNew { .. })), "a version that was damaged is no later one");
    // A file of a later version has a checksum of all of the header, as this one does.
    let crc = crc32fast::hash(&[&bytes[..12], &bytes[16..64]].concat());
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    disk.overwrite(&log, bytes);
    assert!(matches!(open(&disk, Options::default()), Err(OpenError::TooNew { found: 9, .. })));
}
