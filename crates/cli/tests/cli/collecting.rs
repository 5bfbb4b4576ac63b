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

#[test]
fn cancelling_and_sigterm_take_effect_while_a_huge_output_is_collected() {
    for how in ["cancel", "TERM"] {
        let bed = Bed::new();
        let step = format!("run: truncate -s {HUGE_BYTES} ${{{{ out.x }}}}\nout: {{ x: file }}");
        bed.write(
            "flow.yaml",
            &format!("flow: huge\nsteps:\n  a:\n    {}\noutputs: {{ x: a.x }}\n", step.replace('\n', "\n    ")),
        );
        let run = bed.start(&["run", "flow.yaml"]);
        until_open(run.id(), HUGE_BYTES);
        match how {
            "cancel" => drop(bed.run(&["cancel", "huge"]).ends(5)),
            signal => support::signal(&run, signal),
        }
        let said = bed.end(run);
        // To read it to its end takes minutes, and would be told.
        assert!(said.code != 0 && !said.stderr.contains("done    a"), "{how}: {}", said.all());
        bed.run(&["reclaim"]).ends(0);
        let blobs = all_sizes(&bed.path(".onceflow/blobs"));
        assert!(blobs < HUGE_BYTES, "{how}: the object that was not finished is gone");
    }
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
