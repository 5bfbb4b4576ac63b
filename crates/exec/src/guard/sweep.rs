//! Ends processes until none is left, at once: whoever goes on with the run must not meet them.

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process_group,
};
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks that find nothing before it is believed: one that is just being started has no mark yet.
const CALM: usize = 3;

/// Looks in all. A process that cannot be ended hangs in the system itself.
const LOOKS_MAX: usize = 3_000;

/// Ends all groups, and all processes with this mark; answers whether there were any.
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

/// When a process was started, in ticks since the machine was: with its number, this says which one it is. `None` if there
/// is none, or no `/proc`.
pub(super) fn started(process: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name, which may have anything in it, is in brackets; it is the second field, and this the 22nd.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether a process with this mark is left.
pub(super) fn is_left(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.into_iter().any(|entry| has_mark(&entry.path(), mark))
}

/// Ends every process with this mark; answers whether there were any.
fn marked(mark: &str) -> bool {
    let mut found = false;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(id) = id.filter(|_| has_mark(&entry.path(), mark)) else { continue };
        // The number may have passed to another process meanwhile; what was opened has not.
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { continue };
        if has_mark(&entry.path(), mark) {
            found = true;
            let _gone = pidfd_send_signal(&process, Signal::KILL);
        }
    }
    found
}

fn has_mark(process: &std::path::Path, mark: &str) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    environment.windows(mark.len()).any(|window| window == mark.as_bytes())
}
