//! Each target in a process of its own. A process that dies, of a stack that overflows, of memory it was not given, of a
//! loop without end, leaves the input it died of; that input is made shorter with more such processes.

use crate::{
    corpus,
    drive::{Budget, Failure, Tally, drive, tried},
    reduce::reduce,
    targets::Target,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::{
    fs,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

/// Memory that a target may have: more than any input needs, less than would hurt.
const MEMORY_BYTES_MAX: u64 = 6 << 30;

/// An input that takes longer has no end. Looked at so often.
const LOOK_MS: u64 = 15_000;

/// Processes tried to make an input shorter that kills its process.
const REDUCE_TRIES_MAX: usize = 60;

/// Tells a process that it is a child: the file in which it writes down each input before it tries it.
const INPUT_FILE: &str = "ONCEFLOW_FUZZ_INPUT";

/// Runs a target in a process of its own.
///
/// # Errors
/// If no process can be started. A broken promise is no error here.
pub fn run(target: &Target, seed: u64, budget: Budget) -> io::Result<Result<Tally, Failure>> {
    let directory = tempfile::tempdir()?;
    let input_file = directory.path().join("input");
    let output = child(target, &input_file)?.args(budget_words(budget)).args(["--seed", &seed.to_string()]).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    let last = told.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let number = |name: &str| last.as_ref().and_then(|line| line[name].as_f64());
    if output.status.success()
        && let (Some(runs), Some(classes), Some(seconds)) = (number("runs"), number("classes"), number("seconds"))
    {
        return Ok(Ok(Tally { runs: runs as u64, classes: classes as usize, seconds }));
    }
    if let Some(message) = last.as_ref().and_then(|line| line["failure"].as_str()) {
        let input = fs::read(&input_file)?;
        return Ok(Err(Failure { input, message: message.to_owned() }));
    }
    let input = read_input(&input_file)?;
    let shortest = reduce(&input, REDUCE_TRIES_MAX, |shorter| dies(target, directory.path(), shorter).unwrap_or(false));
    Ok(Err(Failure { input: shortest, message: death(output.status) }))
}

fn child(target: &Target, input_file: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(target.name).env(INPUT_FILE, input_file).stderr(Stdio::null());
    Ok(command)
}

fn budget_words(budget: Budget) -> [String; 2] {
    match budget {
        Budget::Runs(runs) => [String::from("--runs"), runs.to_string()],
        Budget::Seconds(seconds) => [String::from("--seconds"), seconds.to_string()],
    }
}

/// Whether a process dies of this input.
fn dies(target: &Target, directory: &Path, input: &[u8]) -> io::Result<bool> {
    let only = directory.join("only");
    fs::write(&only, input)?;
    let status = child(target, &directory.join("input"))?.arg("--try").arg(&only).stdout(Stdio::null()).status()?;
    Ok(!status.success())
}

fn death(status: ExitStatus) -> String {
    format!("the process died ({status}): a stack that overflowed, memory it was not given, or a loop without end")
}

/// Where this process writes down its inputs, if it is a child.
pub fn input_file() -> Option<PathBuf> {
    std::env::var_os(INPUT_FILE).map(PathBuf::from)
}

/// What a child does: runs the target, and says on one line how it went. A failing input stands in the file then.
///
/// # Errors
/// If the file cannot be written.
pub fn be_child(target: &Target, seed: u64, budget: Budget, file: &Path) -> io::Result<serde_json::Value> {
    limit();
    let mut inputs = fs::File::create(file)?;
    match drive(target, seed, budget, |input| write_input(&mut inputs, input).expect("a place for the input")) {
        Ok(Tally { runs, classes, seconds }) => {
            Ok(serde_json::json!({ "runs": runs, "classes": classes, "seconds": seconds }))
        }
        Err(Failure { input, message }) => {
            fs::write(file, input)?;
            Ok(serde_json::json!({ "failure": message }))
        }
    }
}

/// Bounds memory, and ends the process if it stays with one input.
pub fn limit() {
    let limit = Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) };
    setrlimit(Resource::As, limit).expect("less memory is always granted");
    #[expect(clippy::disallowed_methods, reason = "it watches from outside, on the real clock")]
    std::thread::spawn(|| {
        loop {
            let before = tried();
            std::thread::sleep(std::time::Duration::from_millis(LOOK_MS));
            if tried() == before {
                std::process::abort();
            }
        }
    });
}

/// The length, then the input. The file is never cut: that would take longer than all the rest.
fn write_input(file: &mut fs::File, input: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(&[&(input.len() as u64).to_le_bytes()[..], input].concat())
}

fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let mut input = vec![];
    file.take(u64::from_le_bytes(length)).read_to_end(&mut input)?;
    Ok(input)
}

/// Keeps a failing input, and says how to try it again.
///
/// # Errors
/// If it cannot be written.
pub fn keep(target: &Target, failure: &Failure) -> io::Result<String> {
    let path = corpus::keep_failure(target.name, &failure.input)?;
    let shown = path.display();
    Ok(format!(
        "{shown}\nhint: `fuzz/run {} --try {shown}`; when it is fixed, move it to fuzz/corpus/{}",
        target.name, target.name
    ))
}
