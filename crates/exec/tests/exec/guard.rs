//! Commands end with their worker, however it ends: real processes, really killed. Every descendant holds a pipe open;
//! it closes when the last one is gone.

use crate::support;

use onceflow_core::model::Retry;
use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use support::{Lab, One};

/// Returns the path of the example `guarded`, which is built with the tests.
fn guarded() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/guarded");
    assert!(program.exists(), "`cargo test -p onceflow-exec` builds the examples too");
    program
}

fn fifo(directory: &Path) -> PathBuf {
    let path = directory.join("alive");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// A script that holds the pipe, with children inside and outside its group that ignore requests to end.
fn script(pipe: &Path) -> String {
    format!(
        "trap '' TERM; exec 9>{}; sleep 1000 & setsid sleep 1000 & setsid bash -c 'sleep 1000 & echo ready >&9; wait' & wait",
        pipe.display()
    )
}

fn start(directory: &Path, script: &str) -> Child {
    start_as(directory, script, "k")
}

fn start_as(directory: &Path, script: &str, key: &str) -> Child {
    let mut command = Command::new(guarded());
    command.arg("run").arg(directory.join("store")).args([script, key]).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the command is running; returns the pipe.
fn ready(pipe: &Path) -> BufReader<File> {
    let mut reader = BufReader::new(File::open(pipe).unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    reader
}

/// Waits until no process holds the pipe any more.
fn all_gone(mut reader: BufReader<File>) {
    reader.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn all_that_a_command_started_ends_when_we_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = fifo(directory.path());
    let mut child = start(directory.path(), &script(&pipe));
    let reader = ready(&pipe);
    child.kill().unwrap();
    child.wait().unwrap();
    all_gone(reader);
}

#[test]
fn orphans_of_a_command_end_with_it_or_with_us() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = fifo(directory.path());
    // The last process has left the group, and ends with the worker.
    let script = format!("exec 9>{}; sleep 1000 & setsid -f sleep 1000; echo ready >&9", pipe.display());
    let child = start(directory.path(), &script);
    let reader = ready(&pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "done\n");
    all_gone(reader);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_given_up_ends_its_processes() {
    let lab = Lab::with_guard(Some(guarded())).await;
    let pipe = fifo(lab.directory.path());
    let (at, seen) = (pipe.display(), lab.directory.path().join("seen"));
    // The first attempt hangs; the second opens the pipe only if the first was given up before it could.
    let first = format!("trap '' TERM; exec 9>{at}; touch {}; sleep 1000 & wait", seen.display());
    let second = format!("test -e {} || : > {at}", seen.display());
    let script = format!("if (( ${{{{ attempt }}}} == 1 )); then {first}; else {second}; fi");
    let one = One::command(&script).change(|spec| {
        spec.timeout_ms = Some(300);
        spec.retry = Retry { attempts: 2, backoff_ms: 1, backoff_ms_max: 1 };
    });
    let reader = tokio::task::spawn_blocking(move || all_gone(BufReader::new(File::open(pipe).unwrap())));
    lab.run("k", &one).await.unwrap();
    reader.await.unwrap();
}

/// Finds the guard of a process by its process name.
fn guard_of(process: u32) -> Option<u32> {
    let stat = |path: PathBuf| std::fs::read_to_string(path.join("stat")).unwrap_or_default();
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let stat = stat(entry.path());
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut rest = rest.split_whitespace();
        let (state, parent) = (rest.next()?, rest.next()?);
        let is_it = name == "once-guard" && state != "Z" && parent == process.to_string();
        is_it.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    })
}

/// Waits until a process has a guard that is not this one.
fn other_guard(process: u32, than: Option<u32>) -> u32 {
    loop {
        match guard_of(process) {
            Some(guard) if Some(guard) != than => return guard,
            _ => std::thread::yield_now(),
        }
    }
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

#[test]
fn commands_that_outlive_their_process_and_its_guard_end_before_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = fifo(directory.path());
    // The next worker on the store starts a guard again, which has nothing to do.
    let again = directory.path().join("again");
    let script = format!("if test -e {0}; then exit 0; fi; touch {0}; {1}", again.display(), script(&pipe));
    let mut child = start(directory.path(), &script);
    let reader = ready(&pipe);
    let guards = directory.path().join("store/guards");
    assert_eq!(std::fs::read_dir(&guards).unwrap().count(), 1);
    // The guard is killed first, then the worker before it can replace the guard: the commands survive both.
    let guard = other_guard(child.id(), None);
    let both = [guard.to_string(), child.id().to_string()];
    assert!(Command::new("kill").arg("-9").args(both).status().unwrap().success());
    child.wait().unwrap();
    let next = start_as(directory.path(), "echo nothing", "other").wait_with_output().unwrap();
    assert_eq!(String::from_utf8(next.stdout).unwrap(), "done\n");
    // The left commands were ended before the command of the next run began, and that one has ended too.
    all_gone(reader);
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = fifo(directory.path());
    let mut child = start(directory.path(), &script(&pipe));
    let reader = ready(&pipe);
    let first = other_guard(child.id(), None);
    kill(first);
    let second = other_guard(child.id(), Some(first));
    assert_ne!(first, second);
    child.kill().unwrap();
    child.wait().unwrap();
    all_gone(reader);
}
