//! Snippets of pages: the fenced blocks of a page, and a reader that types them, in order, in a home of its own.
//!
//! | fence | what the reader does |
//! |---|---|
//! | `console` | types the text after `$ ` (and `> `); the output must be the text below, except for what differs from
//! run to run |
//! | `sh` | types all of it; it must succeed |
//! | any, with `file=NAME` | writes it to that file; a flow must then check, and settings must be valid |
//! | `yaml` | a flow: it must check |
//! | `rust` | nothing: it is compiled and run with the documentation of the crate |
//! | `text`, `json`, none | nothing |
//! | any, with `norun=WHY` | nothing, for that reason |
//!
//! In expected output, `...` stands for any lines and `[..]` for any text in a line. A command with an exit code other
//! than 0 is marked: `# exit 4`. `UPDATE_EXPECT=1` brings a page up to date.

use super::{Bed, Said, alike};
use std::{fs, net::TcpListener, path::Path, process::Command};

/// The port on pages; a free one is used instead.
const PORT: &str = "6400";

/// The home of the reader on pages.
const HOME: &str = "/home/you";

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    pub(crate) info: String,
    pub(crate) text: String,
}

impl Block {
    /// Returns all blocks of a page.
    pub(crate) fn all(page: &str) -> Vec<Block> {
        let (mut found, mut lines) = (Vec::new(), page.lines().enumerate());
        while let Some((at, line)) = lines.next() {
            if let Some(info) = line.strip_prefix("```") {
                let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
                let text = inside.map(|line| format!("{line}\n")).collect();
                found.push(Block { line: at + 1, info: info.into(), text });
            }
        }
        found
    }

    pub(crate) fn language(&self) -> &str {
        self.info.split([',', ' ']).next().unwrap_or_default()
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.info.split([',', ' ']).find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn is_flow(&self) -> bool {
        let said = self.text.lines().find(|line| !line.starts_with('#') && !line.trim().is_empty());
        self.language() == "yaml" && said.is_some_and(|line| line.starts_with("flow:"))
    }
}

/// Runs a script as a user would type it, with the tool on the PATH.
pub(crate) fn typed(bed: &Bed, script: &str) -> Said {
    let bin = Path::new(env!("CARGO_BIN_EXE_onceflow")).parent().expect("a directory").display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").expect("a path"));
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).current_dir(bed.dir.path()).env("PATH", path);
    bash.env_remove("ONCEFLOW_STORE").env_remove("RUST_BACKTRACE").env_remove("XDG_CACHE_HOME");
    bed.said(bash.output().expect("a shell"))
}

/// A reader of one page, who types its commands.
pub(crate) struct Reader {
    bed: Bed,
    port: String,
    /// Differences between the page and the real output.
    pub(crate) wrong: Vec<String>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let bed = Bed::new();
        fs::create_dir(bed.path("home")).expect("a home");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        Reader { bed, port: free.port().to_string(), wrong: Vec::new() }
    }

    /// Follows a page; returns the page as it should be.
    pub(crate) fn read(&mut self, name: &str, page: &str) -> String {
        let lines: Vec<_> = page.lines().map(|line| format!("{line}\n")).collect();
        let (mut now, mut at) = (String::new(), 0);
        for block in Block::all(page) {
            let (first, end) = (block.line, block.line + block.text.lines().count());
            let seen = self.follow(&format!("{name}:{}", block.line), &block);
            now.push_str(&lines[at..first].concat());
            now.push_str(&seen.unwrap_or_else(|| lines[first..end].concat()));
            at = end;
        }
        now + &lines[at..].concat()
    }

    /// Returns a file of this name that the reader has made in any directory.
    pub(crate) fn made(&self, name: &str) -> Option<String> {
        let mut look = vec![self.bed.path("home")];
        while let Some(directory) = look.pop() {
            let found = directory.join(name);
            if found.is_file() {
                return fs::read_to_string(found).ok();
            }
            look.extend(fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        None
    }

    /// Follows one block; returns the text that should replace it.
    fn follow(&mut self, place: &str, block: &Block) -> Option<String> {
        if block.attribute("norun").is_some() {
            return None;
        }
        if let Some(file) = block.attribute("file") {
            self.types(&format!(
                "mkdir -p \"$(dirname '{file}')\" && cat > '{file}' <<'END OF FILE'\n{}END OF FILE",
                block.text
            ));
            if block.is_flow() {
                self.succeeds(place, &format!("onceflow check '{file}'"));
            } else if file == "onceflow.toml" {
                self.succeeds(place, "onceflow config");
            }
            return None;
        }
        match block.language() {
            "" | "text" | "json" | "rust" => None,
            "sh" => {
                self.succeeds(place, &format!("set -e\n{}", block.text));
                None
            }
            "console" => self.sees(place, block),
            "yaml" if block.is_flow() => {
                let check = format!(
                    "cat > .snippet.yaml <<'END OF FILE'\n{}END OF FILE\nonceflow check .snippet.yaml",
                    block.text
                );
                self.succeeds(place, &check);
                None
            }
            _ => {
                self.wrong
                    .push(format!("{place}: `{}` is not run; give it a `file=`, or say why: `norun=…`", block.info));
                None
            }
        }
    }

    /// Types a script where the last command left off; returns the output and the exit code.
    fn types(&self, script: &str) -> (String, i32) {
        let (home, state) = (self.bed.path("home"), self.bed.path("state"));
        let (home, state) = (home.display(), state.display());
        let script = script.replace(PORT, &self.port);
        let all = format!(
            "exec 2>&1; export HOME='{home}'; cd; if [ -f '{state}' ]; then . '{state}'; fi\n\
             trap '{{ export -p; printf \"cd %q\\n\" \"$PWD\"; }} > \"{state}\"' EXIT\n{script}\n"
        );
        let said = typed(&self.bed, &all);
        let home = self.bed.path("home").canonicalize().expect("a home").display().to_string();
        (said.stdout.replace(&home, HOME).replace(&self.port, PORT), said.code)
    }

    fn succeeds(&mut self, place: &str, script: &str) {
        let (seen, code) = self.types(script);
        if code != 0 {
            self.wrong.push(format!("{place}: ends with {code}:\n{script}\n{seen}"));
        }
    }

    fn sees(&mut self, place: &str, block: &Block) -> Option<String> {
        let (mut now, mut differs) = (String::new(), false);
        for (command, told) in exchanges(&block.text) {
            let wanted = command.rsplit_once("# exit ").map_or(0, |(_, code)| code.trim().parse().expect("a number"));
            let (seen, code) = self.types(&command);
            if code != wanted {
                self.wrong.push(format!("{place}: `{command}` ends with {code}, not {wanted}:\n{seen}"));
            }
            let same = is_as_told(&told, &seen);
            if !same {
                self.wrong.push(format!("{place}: `{command}`\n-- told\n{told}-- seen\n{seen}"));
                differs = true;
            }
            let shown =
                command.lines().enumerate().map(|(at, line)| format!("{} {line}\n", if at == 0 { '$' } else { '>' }));
            now.extend(shown);
            now.push_str(if same { &told } else { &seen });
            if !now.ends_with('\n') {
                now.push('\n');
            }
        }
        differs.then_some(now)
    }
}

/// Returns the commands, each with its expected output.
fn exchanges(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), line.strip_prefix("> "), found.last_mut()) {
            (Some(command), ..) => found.push((command.into(), String::new())),
            (None, Some(more), Some((command, told))) if told.is_empty() => {
                command.push('\n');
                command.push_str(more);
            }
            (.., Some((_, told))) => {
                told.push_str(line);
                told.push('\n');
            }
            (.., None) => panic!("a console begins with a command, not `{line}`"),
        }
    }
    found
}

fn is_as_told(told: &str, seen: &str) -> bool {
    let (told, seen) = (ageless(&alike(told)), ageless(&alike(seen)));
    let (told, seen): (Vec<_>, Vec<_>) = (told.lines().collect(), seen.lines().collect());
    lines_fit(&told, &seen)
}

fn lines_fit(told: &[&str], seen: &[&str]) -> bool {
    match (told, seen) {
        ([], []) => true,
        (["...", told @ ..], _) => (0..=seen.len()).any(|at| lines_fit(told, &seen[at..])),
        ([one, told @ ..], [line, seen @ ..]) => line_fits(one, line) && lines_fit(told, seen),
        _ => false,
    }
}

fn line_fits(told: &str, seen: &str) -> bool {
    let Some((head, mut rest)) = told.split_once("[..]") else { return told == seen };
    let Some(mut seen) = seen.strip_prefix(head) else { return false };
    while let Some((part, after)) = rest.split_once("[..]") {
        let Some(at) = seen.find(part) else { return false };
        (seen, rest) = (&seen[at + part.len()..], after);
    }
    seen.ends_with(rest)
}

/// Replaces how long ago something was, in the last column of tables.
fn ageless(text: &str) -> String {
    let is_age = |word: &str| word == "just now" || word.ends_with(" ago");
    let ageless = |line: &str| match line.trim_end().rsplit_once("  ") {
        Some((rest, age)) if is_age(age.trim()) => format!("{}  [ago]\n", rest.trim_end()),
        _ => format!("{}\n", line.trim_end()),
    };
    text.lines().map(ageless).collect()
}
