//! Kills processes until none is left: a worker that continues the run must not run next to them.

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process_group,
};
use std::{fs::File, io::Read, time::Duration};

/// The pause between two scans.
const PAUSE: Duration = Duration::from_millis(20);

/// Scans in a row that must find nothing: a process that is just being started has no mark yet.
const CALM: usize = 3;

/// Scans in all. A process that survives them hangs in the kernel.
const LOOKS_MAX: usize = 3_000;

/// Kills all groups, and all processes with this mark; returns true if there were any.
pub(super) fn sweep(groups: &[Pid], mark: &str) -> bool {
    let (mut calm, mut any) = (0, false);
    for _ in 0..LOOKS_MAX {
        let mut found = false;
        for group in groups.iter().filter(|group| test_kill_process_group(**group).is_ok()) {
            found = true;
            let _gone = kill_process_group(*group, Signal::KILL);
        }
        found |= marked(mark);
        any |= found;
        calm = if found { 0 } else { calm + 1 };
        if calm >= CALM {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    any
}

/// Returns the start time of a process, in ticks since boot: together with its id it identifies the process. `None` if
/// there is no such process, or no `/proc`.
pub(super) fn started(process: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The second field is the name in brackets, which may contain any character; the start time is the 22nd field.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// A process with this mark is left.
pub(super) fn is_left(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.into_iter().any(|entry| has_mark(&entry.path(), mark))
}

/// Kills every process with this mark; returns true if there were any.
fn marked(mark: &str) -> bool {
    let mut found = false;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(id) = id.filter(|_| has_mark(&entry.path(), mark)) else { continue };
        // The id may have been reused by another process meanwhile; the pidfd cannot be, so the mark is checked again.
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { continue };
        if has_mark(&entry.path(), mark) {
            found = true;
            let _gone = pidfd_send_signal(&process, Signal::KILL);
        }
    }
    found
}

/// Bytes of an environment that are read at once. Most fit; read from small to large, as a file of unknown size is, each
/// would take eight calls, and every run ends with a look at all processes.
const ENVIRONMENT_BYTES: usize = 8 << 10;

fn has_mark(process: &std::path::Path, mark: &str) -> bool {
    let mut environment = Vec::with_capacity(ENVIRONMENT_BYTES);
    // A process that is gone, or another user's, has no mark that could be read.
    let _read = File::open(process.join("environ")).and_then(|mut file| file.read_to_end(&mut environment));
    environment.windows(mark.len()).any(|window| window == mark.as_bytes())
}
