//! Stores that cannot be used: the error, the exit code, and that nothing is changed.

use crate::support;

mod inputs;
mod objects;
mod rows;

use std::fs;
use support::{Bed, copy_flow};

const RUN: [&str; 4] = ["run", "copy.yaml", "-i", "text=in.txt"];

fn done() -> Bed {
    let bed = Bed::new();
    bed.write("in.txt", "text");
    bed.write("copy.yaml", &copy_flow("copy", ":"));
    bed.run(&RUN).ends(0);
    bed
}

/// Returns the files directly in the store's directory that are long enough to hold bytes of the journal.
fn logs(bed: &Bed) -> Vec<std::path::PathBuf> {
    let files = bed.store().into_iter().filter(|(path, content, _)| {
        path.parent().is_some_and(|parent| parent.ends_with(".onceflow")) && content.len() > 64
    });
    files.map(|(path, ..)| path).collect()
}

#[test]
fn a_store_in_no_directory_is_unusable() {
    let bed = done();
    bed.write("file", "");
    let said = bed.run(&[&["--store", "file/x"], &RUN[..]].concat()).ends(75);
    assert!(said.stderr.starts_with("error[OF0408]"), "{}", said.stderr);
}

#[test]
fn a_damaged_store_is_said_to_be_and_left_alone() {
    let bed = done();
    for path in logs(&bed) {
        let mut content = fs::read(&path).expect("a log");
        content[40..64].fill(0xff);
        fs::write(&path, &content).expect("a log");
    }
    let store = bed.store();
    for args in [&RUN[..], &["ls"], &["fsck"], &["show"]] {
        let said = bed.run(args).ends(7);
        assert!(said.stderr.starts_with("error[OF04"), "{}", said.stderr);
    }
    let changed: Vec<_> = bed.store().into_iter().filter(|file| !store.contains(file)).map(|file| file.0).collect();
    assert!(changed.iter().all(|path| path.ends_with("LOCK")), "{changed:?}");
}

#[test]
fn a_store_of_a_later_version_is_said_to_be() {
    let bed = done();
    for path in logs(&bed) {
        let mut content = fs::read(&path).expect("a log");
        content[8..12].copy_from_slice(&99_u32.to_le_bytes());
        fs::write(&path, &content).expect("a log");
    }
    let said = bed.run(&RUN).ends(7);
    assert!(said.stderr.starts_with("error[OF0407]") || said.stderr.starts_with("error[OF0406]"), "{}", said.stderr);
}

#[test]
fn results_that_cannot_be_written_are_said_and_the_run_is_done() {
    let bed = done();
    bed.write("blocked", "a file");
    let said = bed.run(&[&RUN[..], &["--out", "blocked/x"]].concat()).ends(1);
    assert!(said.stderr.starts_with("error[OF0409]"), "{}", said.stderr);
    bed.run(&[&RUN[..], &["--out", "free"]].concat()).ends(0);
    assert_eq!(bed.read("free/copy.txt"), "text");
}
