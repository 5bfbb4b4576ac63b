//! Runs the tool as a process that is killed after a random number of events, and started again.

pub(crate) mod proxy;

use serde_json::Value;
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
};

/// A small generator with a fixed seed: the tests are the same every time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number less than `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Returns a command that runs the tool in a directory.
pub(crate) fn onceflow(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceflow"));
    command.current_dir(directory).env_remove("ONCEFLOW_STORE").stdin(Stdio::null());
    command
}

/// Runs a command that must succeed, and returns the JSON it prints.
pub(crate) fn json(directory: &Path, arguments: &[String]) -> Value {
    let output = onceflow(directory).args(arguments).output().expect("the tool starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{out}\n{err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?} answers no JSON: {error}\n{out}"))
}

/// The events and the output of a run.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Steps whose code ran.
    pub(crate) ran: BTreeSet<String>,
    /// Steps that committed, once for every commit.
    pub(crate) committed: Vec<String>,
    /// The JSON that it printed.
    pub(crate) output: Value,
}

impl Told {
    fn saw(&mut self, line: &str) -> bool {
        let Ok(event) = serde_json::from_str::<Value>(line) else { return false };
        let step = event["step"].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str() {
            Some("will-run") => {
                assert!(!self.committed.contains(&step), "{step} took effect, and runs again");
                self.ran.insert(step);
            }
            Some("did-commit") if self.ran.contains(&step) => self.committed.push(step),
            _ => {}
        }
        event["event"].is_string()
    }
}

/// Runs a flow to its end.
pub(crate) fn run_once(directory: &Path, arguments: &[String]) -> Told {
    let mut told = Told::default();
    assert!(run(directory, arguments, usize::MAX, &mut told), "it ended without a kill");
    told
}

/// Runs a flow, killing the process so many times before it may finish. No step takes effect twice.
pub(crate) fn run_until_done(directory: &Path, arguments: &[String], kills: usize, seed: u64) -> Told {
    let (mut told, mut random) = (Told::default(), Random(seed));
    for _ in 0..kills {
        if run(directory, arguments, random.below(5), &mut told) {
            break;
        }
    }
    run(directory, arguments, usize::MAX, &mut told);
    let once: BTreeSet<_> = told.committed.iter().collect();
    assert_eq!(once.len(), told.committed.len(), "a step took effect twice: {:?}", told.committed);
    told
}

/// Runs a flow until it has printed so many events, then kills it; returns whether it finished.
fn run(directory: &Path, arguments: &[String], events: usize, told: &mut Told) -> bool {
    let mut command = onceflow(directory);
    command.args(["run", "--json"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool starts");
    let (mut seen, mut said) = (0, String::new());
    for line in BufReader::new(child.stderr.take().expect("its stderr")).lines() {
        let line = line.expect("text");
        seen += usize::from(told.saw(&line));
        said = format!("{said}{line}\n");
        if seen > events {
            child.kill().expect("a kill");
        }
    }
    let mut output = String::new();
    child.stdout.take().expect("its stdout").read_to_string(&mut output).expect("text");
    let ended = child.wait().expect("its end");
    match ended.code() {
        None => false,
        Some(code) => {
            assert_eq!(code, 0, "{said}");
            told.output = serde_json::from_str(&output).unwrap_or_else(|error| panic!("no JSON: {error}\n{output}"));
            true
        }
    }
}

/// Returns the steps of an explanation that would run: those without others inside.
pub(crate) fn leaves_to_run(explanation: &Value) -> BTreeSet<String> {
    let steps = explanation["steps"].as_array().expect("steps");
    let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().expect("an address")).collect();
    let is_leaf = |name: &str| {
        let inside = |other: &&&str| other.strip_prefix(name).is_some_and(|rest| rest.starts_with(['/', '[', '@']));
        !names.iter().any(|other| inside(&other))
    };
    let runs = steps.iter().zip(&names).filter(|(step, name)| step["fate"] == "run" && is_leaf(name));
    runs.map(|(_, name)| (*name).to_owned()).collect()
}

/// Checks that the store is whole, and that no step left a directory.
pub(crate) fn nothing_is_left(directory: &Path) {
    // The process that was killed last could not clean up.
    let reclaimed = onceflow(directory).args(["reclaim"]).output().expect("the tool starts");
    assert!(reclaimed.status.success(), "{}", String::from_utf8_lossy(&reclaimed.stderr));
    let found = onceflow(directory).args(["fsck"]).output().expect("the tool starts");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    for run in std::fs::read_dir(directory.join(".onceflow/runs")).expect("runs") {
        let work = run.expect("a run").path().join("work");
        let left: Vec<_> = std::fs::read_dir(&work).into_iter().flatten().collect();
        assert!(left.is_empty(), "{} holds {left:?}", work.display());
    }
}
