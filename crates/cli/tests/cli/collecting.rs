//! Outputs that take long to read: users who cancel or interrupt do not wait for them.

use crate::support::{self, Bed};
use std::{fs, path::Path};

/// The size of a sparse output whose bytes take many minutes to read.
const HUGE_BYTES: u64 = 1 << 40;

/// Waits until a process has a file of this size open.
fn until_open(pid: u32, bytes: u64) {
    let is_open = || {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").flatten();
        open.into_iter().any(|entry| fs::metadata(entry.path()).is_ok_and(|file| file.is_file() && file.len() == bytes))
    };
    while !is_open() {
        std::thread::yield_now();
    }
}

/// Runs a step that leaves a huge output, ends the run while the output is read, and checks that no object is left.
fn ends_while_it_is_collected(step: &str, bytes: u64) {
    for how in ["cancel", "TERM"] {
        let bed = Bed::new();
        bed.write(
            "flow.yaml",
            &format!("flow: huge\nsteps:\n  a:\n    run: {step}\n    out: {{ x: file }}\noutputs: {{ x: a.x }}\n"),
        );
        let run = bed.start(&["run", "flow.yaml"]);
        until_open(run.id(), bytes);
        match how {
            "cancel" => drop(bed.run(&["cancel", "huge"]).ends(5)),
            signal => support::signal(&run, signal),
        }
        let said = bed.end(run);
        // To read it to its end takes minutes, and would be told.
        assert!(said.code != 0 && !said.stderr.contains("done    a"), "{how}: {}", said.all());
        bed.run(&["reclaim"]).ends(0);
        let blobs = all_sizes(&bed.path(".onceflow/blobs"));
        assert!(blobs < bytes, "{how}: the object that was not finished is gone");
    }
}

#[test]
fn cancelling_and_sigterm_take_effect_while_a_huge_output_is_collected() {
    ends_while_it_is_collected(&format!("truncate -s {HUGE_BYTES} ${{{{ out.x }}}}"), HUGE_BYTES);
}

/// A file with a second name is not the engine's alone, so that its bytes are copied. The copy is not sparse: the file
/// is smaller, so that a cancel without effect cannot fill a disk of some size.
#[test]
fn cancelling_and_sigterm_take_effect_while_a_huge_output_is_copied() {
    let bytes = HUGE_BYTES >> 5;
    let step = format!("truncate -s {bytes} ${{{{ out.x }}}}; ln ${{{{ out.x }}}} second");
    ends_while_it_is_collected(&step, bytes);
}

/// Returns the sizes of all files below a directory, added up.
fn all_sizes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => all_sizes(&entry.path()),
        _ => entry.metadata().map_or(0, |file| file.len()),
    };
    entries.map(size).sum()
}
