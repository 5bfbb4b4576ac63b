//! A process and its descendants: in a process group of their own, with their output read, and ended as a whole.

mod capture;
mod child;

use crate::{
    codes,
    guard::{Guard, GuardedGroup},
    log::Log,
};
use capture::StdoutCapture;
use child::Child;
use futures_util::future::{Either, select};
use onceflow_engine::task::{Failure, Used};
use rustix::process::{Pid, Signal, getpgrp, kill_process_group, test_kill_process_group};
use std::{
    ffi::OsString,
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    pin::pin,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
};
use tokio::net::unix::pipe::Receiver;

/// The program, arguments, environment and standard streams of a process to start.
pub(crate) struct ProcessStart<'a> {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) directory: &'a Path,
    pub(crate) stdin: Option<File>,
    /// Where its standard output goes, up to a bound, if not into the log.
    pub(crate) stdout: Option<File>,
}

/// Bytes read after a process has ended, from processes that it left behind.
const LEFT_BYTES_MAX: usize = 1024 * 1024;

/// Starts a process and waits for its end. Dropping the future ends the whole group.
pub(crate) async fn run(
    start: ProcessStart<'_>,
    guard: Option<&Arc<Guard>>,
    log: &mut Log,
) -> Result<ProcessExit, Failure> {
    let program = start.program.display().to_string();
    let wrong = |error: io::Error| could_not_start(&program, &error);
    let (reader, writer) = io::pipe().map_err(wrong)?;
    let reader = Receiver::from_owned_fd(reader.into()).map_err(wrong)?;
    let mut command = Command::new(&start.program);
    command.args(&start.args).env_clear().envs(start.env).current_dir(start.directory).process_group(0);
    command.stdin(start.stdin.map_or_else(Stdio::null, Stdio::from));
    let mut capture = None;
    command.stdout(match start.stdout {
        Some(file) => {
            let (captured, writer) = StdoutCapture::new(file).map_err(wrong)?;
            capture = Some(captured);
            Stdio::from(writer)
        }
        None => Stdio::from(writer.try_clone().map_err(wrong)?),
    });
    command.stderr(writer);
    let child = Child::start(&mut command).map_err(wrong)?;
    // The command holds write ends of the pipes, which would keep them open.
    drop(command);
    let mut running = RunningProcess::new(child, guard);
    let ended = listen(&mut running, &reader, capture.as_mut(), log).await;
    let child::ChildExit { status, used } =
        ended.map_err(|error| codes::failure(codes::START, format!("`{program}` was lost: {error}")))?;
    let is_alone = running.ended();
    let (mut left, mut is_at_end) = (0, false);
    while let Some(bytes) = read(&reader, |bytes| said(log, bytes)) {
        left += bytes;
        is_at_end = bytes == 0;
        if is_at_end || left > LEFT_BYTES_MAX {
            break;
        }
    }
    let trouble = capture.and_then(|mut capture| {
        capture.take();
        capture.trouble
    });
    Ok(ProcessExit { status, used, is_alone: is_alone && is_at_end, trouble })
}

/// How a process ended.
pub(crate) struct ProcessExit {
    pub(crate) status: ExitStatus,
    pub(crate) used: Used,
    /// No process that it started is left, as far as can be seen.
    pub(crate) is_alone: bool,
    /// The failure to keep its standard output, for which the process was ended.
    pub(crate) trouble: Option<Failure>,
}

/// Reads output until the process has ended. A process whose standard output cannot be kept is ended.
async fn listen(
    running: &mut RunningProcess,
    reader: &Receiver,
    mut capture: Option<&mut StdoutCapture>,
    log: &mut Log,
) -> io::Result<child::ChildExit> {
    let (child, group) = (running.child.as_mut().expect("it runs"), running.group);
    let mut is_open = true;
    loop {
        let said_something = {
            let wait = pin!(child.wait());
            let spoken = pin!(readable(is_open.then_some(reader)));
            let captured = pin!(readable(capture.as_deref().and_then(StdoutCapture::reader)));
            match select(wait, select(spoken, captured)).await {
                Either::Left((ended, _)) => return ended,
                Either::Right((which, _)) => matches!(which, Either::Left(_)),
            }
        };
        if said_something {
            is_open = read(reader, |bytes| said(log, bytes)) != Some(0);
        } else if capture.as_mut().is_some_and(|capture| !capture.take()) {
            signal(group, Signal::KILL);
        }
    }
}

/// Waits until there is something to read, or the end is reached; without a reader, forever.
async fn readable(reader: Option<&Receiver>) {
    match reader {
        // The read that follows sees the error.
        Some(reader) => drop(reader.readable().await),
        None => std::future::pending().await,
    }
}

/// Reads once and passes the bytes to `to`, an empty slice at the end. Returns `None` if there is nothing to read yet.
fn read<T>(reader: &Receiver, to: impl FnOnce(&[u8]) -> T) -> Option<T> {
    let mut buffer = [0; 8192];
    let read = match reader.try_read(&mut buffer) {
        // The runtime has no readiness event yet; but the last output of a process may be in the pipe before the event.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            rustix::io::read(reader, &mut buffer).map_err(io::Error::from)
        }
        read => read,
    };
    match read {
        Ok(bytes) => Some(to(&buffer[..bytes])),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(to(&[])),
    }
}

/// Appends output to the log; returns its length.
fn said(log: &mut Log, bytes: &[u8]) -> usize {
    log.push(bytes);
    bytes.len()
}

fn could_not_start(program: &str, error: &io::Error) -> Failure {
    let mut failed = match error.kind() {
        io::ErrorKind::NotFound => codes::failure(codes::NOT_FOUND, format!("`{program}` was not found")),
        io::ErrorKind::ArgumentListTooLong => {
            let failed =
                codes::failure(codes::START, format!("`{program}` could not be started: its words are too long"));
            codes::because(failed, "hint: write the list to a file first, `printf '%s\\n' ${{ … }} > list`")
        }
        _ => codes::failure(codes::START, format!("`{program}` could not be started: {error}")),
    };
    failed.not_done = true;
    failed
}

/// A process that has not ended yet, and its group.
struct RunningProcess {
    child: Option<Child>,
    group: Option<Pid>,
    held: Option<GuardedGroup>,
}

impl RunningProcess {
    fn new(child: Child, guard: Option<&Arc<Guard>>) -> Self {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        assert_ne!(group, Some(getpgrp()), "a command is in the group of its worker: its end would be the worker's");
        let held = group.and_then(|group| guard.map(|guard| guard.hold(group)));
        RunningProcess { child: Some(child), group, held }
    }

    /// Notes that the process has ended, and ends what is left of its group.
    /// Returns true if nothing was left.
    fn ended(&mut self) -> bool {
        assert!(
            self.child.is_some(),
            "the group of a process is ended once: its id may belong to another process by now"
        );
        self.child = None;
        let is_alone = self.group.is_none_or(|group| test_kill_process_group(group).is_err());
        signal(self.group, Signal::KILL);
        self.held = None;
        is_alone
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // The group may be gone already.
        let _gone = kill_process_group(group, signal);
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else {
            assert!(
                self.held.is_none(),
                "a group that has ended is still in the guard's table: the guard would end another"
            );
            return;
        };
        // Killed at once: an undo or a retry of the step may start as soon as this is dropped.
        signal(self.group, Signal::KILL);
        let ending = EndingGroup { child, group: self.group, _held: self.held.take() };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(ending.end())),
            Err(_) => drop(ending),
        }
    }
}

/// A group that was killed and must still be reaped.
struct EndingGroup {
    child: Child,
    group: Option<Pid>,
    _held: Option<GuardedGroup>,
}

impl EndingGroup {
    async fn end(mut self) {
        let _reaped = self.child.wait().await;
    }
}

impl Drop for EndingGroup {
    fn drop(&mut self) {
        signal(self.group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn buffered_output_is_read_though_no_wakeup_came() {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = Receiver::from_owned_fd(reader.into()).unwrap();
        assert_eq!(read(&reader, <[u8]>::to_vec), None);
        writer.write_all(b"last words").unwrap();
        // This test never awaited, so the runtime cannot have seen a readiness event yet.
        assert_eq!(read(&reader, <[u8]>::to_vec).as_deref(), Some(&b"last words"[..]));
        drop(writer);
        assert_eq!(read(&reader, <[u8]>::to_vec).as_deref(), Some(&b""[..]));
    }
}
