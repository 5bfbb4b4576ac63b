//! A child process that reports its resource usage when it has ended. Tokio's child processes only report the exit
//! status.

use onceflow_engine::task::Used;
use std::{
    io,
    process::{Command, ExitStatus},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use wait4::{ResourceUsage, Wait4};

/// A child process. It is reaped by [`Child::wait`], or after it was dropped.
pub(super) struct Child {
    /// The process; `None` once it is reaped.
    process: Option<std::process::Child>,
    id: u32,
    /// Notified whenever any child of this process has ended (`SIGCHLD`).
    some_ended: Signal,
}

/// Exit status and resource usage of a child.
pub(super) struct ChildExit {
    pub(super) status: ExitStatus,
    pub(super) used: Used,
}

/// Starts of a child that is killed before it becomes the program.
const STARTS_MAX: usize = 5;

impl Child {
    /// Starts the child. A terminal interrupts the worker's whole process group, and a forked child is in that group
    /// for a moment, until it has a group of its own; an interrupt then kills it before `exec`. It has done nothing
    /// yet, so it is started again.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        // Subscribed before the start, so that the end is not missed.
        let some_ended = signal(SignalKind::child())?;
        for _ in 0..STARTS_MAX {
            let mut process = command.spawn()?;
            if has_begun(process.id()) {
                return Ok(Child { id: process.id(), process: Some(process), some_ended });
            }
            process.wait()?;
        }
        Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the process was killed each time before it could execute its program",
        ))
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Waits for its end. Cancel-safe: the future may be dropped and `wait` called again until it has returned.
    pub(super) async fn wait(&mut self) -> io::Result<ChildExit> {
        loop {
            let process = self.process.as_mut().ok_or(io::ErrorKind::NotFound)?;
            if let Some(ended) = process.try_wait4()? {
                self.process = None;
                return Ok(ChildExit { status: ended.status, used: used(&ended.rusage, own_peak_bytes()) });
            }
            self.some_ended.recv().await;
        }
    }
}

/// A forked, unreaped child has become its program, or still may; also true where the system does not say.
fn has_begun(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    stat.ok().and_then(|stat| may_begin(&stat)) != Some(false)
}

/// Reads from the flags of a Linux process whether it may still become its program: not if it ends without an `exec`,
/// which shows as `PF_EXITING` and `PF_FORKNOEXEC`. The second alone is not enough: the parent continues a moment
/// before that flag is cleared.
fn may_begin(stat: &str) -> Option<bool> {
    const ENDS_UNBEGUN: u64 = 0x04 | 0x40;
    // The name in brackets may contain any character; six fields are between it and the flags.
    let (_, after) = stat.rsplit_once(')')?;
    let flags: u64 = after.split_whitespace().nth(6)?.parse().ok()?;
    Some(flags & ENDS_UNBEGUN != ENDS_UNBEGUN)
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // The child was killed before the drop, so reaping is quick; a thread does it, because `drop` must not block.
        let reap = std::thread::Builder::new().name(String::from("onceflow reaper")).spawn(move || process.wait());
        if let Err(error) = reap {
            tracing::warn!(%error, "failed to reap an ended process; it stays as a zombie until this process ends");
        }
    }
}

/// Returns the resource usage of a process. On Linux its peak memory includes the time before `exec`, when it was a
/// copy of the worker: a peak that is no higher than the worker's means nothing and is left out.
fn used(rusage: &ResourceUsage, own_peak_bytes: u64) -> Used {
    let cpu_ms = u64::try_from((rusage.utime + rusage.stime).as_millis()).unwrap_or(u64::MAX);
    Used { cpu_ms, peak_bytes: (rusage.maxrss > own_peak_bytes).then_some(rusage.maxrss) }
}

/// Returns the peak memory of this process so far; 0 where the system has no `/proc`, and does not count the copy
/// either.
fn own_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(0, |kib: u64| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(script: &str) -> (ExitStatus, Used) {
        let mut child = Child::start(Command::new("bash").args(["-c", script])).unwrap();
        let ended = child.wait().await.unwrap();
        (ended.status, ended.used)
    }

    #[tokio::test]
    async fn resource_use_includes_waited_for_children() {
        let (status, used) = run("x=0; while ((x < 200000)); do ((x += 1)); done; exit 3").await;
        assert_eq!(status.code(), Some(3));
        assert!(used.cpu_ms > 0, "{used:?}");
        let (_, below) = run("bash -c 'x=0; while ((x < 200000)); do ((x += 1)); done'; true").await;
        assert!(below.cpu_ms > 0, "{below:?}");
    }

    #[tokio::test]
    async fn the_most_memory_of_a_process_is_told_if_it_is_more_than_ours() {
        let hungry = own_peak_bytes() + (64 << 20);
        let (status, used) = run(&format!("x=$(head -c {hungry} /dev/zero | tr '\\0' x); : ${{#x}}")).await;
        assert!(status.success());
        assert!(used.peak_bytes.is_some_and(|bytes| bytes >= hungry), "{used:?}");
        assert_eq!(run(":").await.1.peak_bytes, None, "a small one has no peak of its own");
    }

    #[test]
    fn a_process_ended_before_exec_has_not_started() {
        let stat = |flags: u64| format!("17 (a) b) Z 1 17 17 0 -1 {flags} 0 0 0");
        assert_eq!(may_begin(&stat(0x40_0044)), Some(false));
        assert_eq!(may_begin(&stat(0x40_0004)), Some(true), "it was a program");
        assert_eq!(may_begin(&stat(0x40_0040)), Some(true), "it is about to be one");
        assert_eq!((may_begin(""), may_begin("17 (a) Z")), (None, None));
        let mut child = Command::new("true").spawn().unwrap();
        assert!(has_begun(child.id()));
        let ours = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(may_begin(&ours), Some(true));
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn many_that_end_at_once_are_all_seen() {
        let all = (0..50).map(|code| async move { run(&format!("exit {code}")).await.0.code() });
        let codes = futures_util::future::join_all(all).await;
        assert_eq!(codes, (0..50).map(Some).collect::<Vec<_>>());
    }
}
