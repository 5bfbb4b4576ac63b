//! A directory to run the real command in, and gates that steps of flows wait at.

pub(crate) mod snippets;
pub(crate) mod team;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

/// A temporary directory to run commands in.
pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
}

/// The output of a command; all that differs from run to run can be normalised.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    dir: PathBuf,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Bed { dir: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file is somewhere")).expect("a directory");
        fs::write(&path, content).expect("a file");
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceflow"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("ONCEFLOW_STORE").env_remove("NO_COLOR").env_remove("RUST_BACKTRACE");
        // The settings of the user who runs the tests must not count.
        command.env_remove("ONCEFLOW_PROFILE").env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.said(self.command(args).output().expect("the command starts"))
    }

    pub(crate) fn said(&self, output: Output) -> Said {
        Said {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            dir: self.dir.path().canonicalize().expect("a directory"),
        }
    }

    /// Starts the command without waiting for it.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
    }

    /// Waits for a command that was started.
    pub(crate) fn end(&self, child: Child) -> Said {
        self.said(child.wait_with_output().expect("the command ends"))
    }

    /// Makes a gate at which a step can be met.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let gate = Gate { here: self.path(&format!("{name}.here")), go: self.path(&format!("{name}.go")) };
        for path in [&gate.here, &gate.go] {
            let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
            assert!(made.success(), "mkfifo {}", path.display());
        }
        gate
    }

    /// Returns every file below the store, with its content and modification time.
    pub(crate) fn store(&self) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        let (mut found, mut look) = (Vec::new(), vec![self.path(".onceflow")]);
        while let Some(directory) = look.pop() {
            for entry in fs::read_dir(directory).expect("a directory").flatten() {
                let metadata = entry.metadata().expect("a file");
                match metadata.is_dir() {
                    true => look.push(entry.path()),
                    false => {
                        let content = fs::read(entry.path()).unwrap_or_default();
                        found.push((entry.path(), content, metadata.modified().expect("a time")));
                    }
                }
            }
        }
        found.sort();
        found
    }
}

/// Two pipes: a step reports that it is there, and waits until it may continue.
pub(crate) struct Gate {
    here: PathBuf,
    go: PathBuf,
}

impl Gate {
    /// Returns the shell code of a step at the gate.
    pub(crate) fn shell(&self) -> String {
        format!("echo here > '{}'; read -r _ < '{}'", self.here.display(), self.go.display())
    }

    /// Waits until a step is at the gate.
    pub(crate) fn until_there(&self) {
        let mut text = String::new();
        fs::File::open(&self.here).expect("a pipe").read_to_string(&mut text).expect("a step writes");
        assert_eq!(text, "here\n");
    }

    /// Lets the step continue.
    pub(crate) fn open(&self) {
        let mut pipe = fs::File::options().write(true).open(&self.go).expect("a pipe");
        pipe.write_all(b"go\n").expect("the step reads");
    }
}

/// Makes a command that runs ours on a terminal of so many columns; stdout has what the terminal is sent.
pub(crate) fn on_terminal(bed: &Bed, columns: usize, words: &str) -> Command {
    let onceflow = env!("CARGO_BIN_EXE_onceflow");
    let shell = format!("stty cols {columns} rows 20; exec '{onceflow}' {words}");
    let mut command = Command::new("script");
    command.args(["-qec", &shell, "/dev/null"]).current_dir(bed.dir.path()).stdin(Stdio::null());
    command.env("TERM", "xterm").env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", bed.path("config"));
    command
}

/// Reads until a line contains this word; returns all lines.
pub(crate) fn until_line(from: &mut (impl Read + ?Sized), word: &str) -> String {
    let mut all = String::new();
    let mut reader = BufReader::with_capacity(1, from);
    loop {
        let before = all.len();
        if reader.read_line(&mut all).expect("a line") == 0 {
            panic!("no line has `{word}`:\n{all}");
        }
        if all[before..].contains(word) {
            return all;
        }
    }
}

/// Sends a signal.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// Sorts the lines of concurrent steps, which may come in any order, step by step.
fn step_by_step(mut lines: Vec<String>) -> Vec<String> {
    let step = |line: &String| {
        let (word, rest) = line.split_at_checked(8)?;
        ["run     ", "done    ", "reused  "].contains(&word).then(|| rest.split(' ').next().map(str::to_owned))?
    };
    for told in lines.chunk_by_mut(|one, other| step(one).is_some() && step(other).is_some()) {
        told.sort_by_key(step);
    }
    lines
}

impl Said {
    /// Returns all output, normalised, in one text.
    pub(crate) fn all(&self) -> String {
        let part = |name: &str, text: &str| {
            let text = self.alike(text);
            if text.is_empty() { String::new() } else { format!("-- {name}\n{}\n", text.trim_end()) }
        };
        format!("{}{}-- exit {}\n", part("stdout", &self.stdout), part("stderr", &self.stderr), self.code)
    }

    /// Replaces all that differs from run to run.
    fn alike(&self, text: &str) -> String {
        alike(&text.replace(&self.dir.display().to_string(), "[dir]"))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}:\n{}\n{}", self.stdout, self.stderr))
    }

    #[track_caller]
    pub(crate) fn expect(&self, expected: expect_test::Expect) {
        expected.assert_eq(&self.all());
    }

    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n{}", self.all());
        self
    }
}

/// Replaces all in a text that differs from run to run.
pub(crate) fn alike(text: &str) -> String {
    let text = text.replace(&std::env::var("PATH").expect("a path"), "[path]");
    let text = numbers(&text, "process ", "", "[pid]");
    let text = ids(&text);
    let text = numbers(&text, "(", ")", "[time]");
    let text = numbers(&text, " in ", "", "[time]");
    let lines = text.lines().map(|line| match line.split_once(' ') {
        Some(("id", _)) => String::from("id       [id]"),
        Some(("step", rest)) => match rest.rsplit_once(", ") {
            Some((told, time)) if time.ends_with('s') && time.starts_with(|c: char| c.is_ascii_digit()) => {
                format!("step {told}, [time]")
            }
            _ => line.to_owned(),
        },
        Some(("started" | "ended", _)) => format!("{} [ago]", line.split(' ').next().unwrap_or_default()),
        _ => without_age(line),
    });
    step_by_step(lines.collect()).join("\n")
}

/// Replaces the age of a run at the end of its row: on a busy machine it is not `just now`.
fn without_age(line: &str) -> String {
    let is_time = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let seconds = |line: &str| {
        line.strip_suffix(" ago")?.rsplit_once(' ').filter(|(_, time)| is_time(time)).map(|(row, _)| row.len() + 1)
    };
    let now = |line: &str| line.strip_suffix("just now").map(str::len);
    now(line).or_else(|| seconds(line)).map_or_else(|| line.to_owned(), |at| format!("{}[ago]", &line[..at]))
}

/// Replaces the id of a run in a path.
fn ids(text: &str) -> String {
    let mut parts = text.split("/runs/");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |done, part| format!("{done}/runs/[id]{}", part.get(16..).unwrap_or_default()))
}

/// Replaces the number, or the duration, that stands between two words.
fn numbers(text: &str, before: &str, after: &str, by: &str) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(before) {
        let (head, tail) = rest.split_at(at + before.len());
        done.push_str(head);
        let len = tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(tail.len());
        let is_number = tail[..len].starts_with(|c: char| c.is_ascii_digit());
        rest = match is_number && tail[len..].starts_with(after) {
            true => {
                done.push_str(by);
                &tail[len..]
            }
            false => tail,
        };
    }
    done.push_str(rest);
    done
}

/// Returns a flow of one step that copies a file, after some shell code.
pub(crate) fn copy_flow(name: &str, shell: &str) -> String {
    let shell: String = shell.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "flow: {name}\ninputs: {{ text: file }}\nsteps:\n  copy:\n    run: |\n{shell}      cat ${{{{ inputs.text }}}} > ${{{{ out.file }}}}\n    out: {{ file: {{ file: copy.txt }} }}\noutputs: {{ copy: copy.file }}\n"
    )
}
