//! A directory in which the real command is used, without a user's settings.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A directory, and the command that is run in it.
pub(crate) struct Bed {
    dir: PathBuf,
    tool: PathBuf,
}

impl Bed {
    pub(crate) fn at(dir: PathBuf, tool: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(&dir)?;
        Ok(Bed { dir: dir.canonicalize()?, tool: tool.to_owned() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a path below the directory"))?;
        fs::write(&path, content)?;
        Ok(path)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tool);
        command.args(args).current_dir(&self.dir).stdin(Stdio::null());
        command.env_remove("ONCEFLOW_STORE").env_remove("ONCEFLOW_PROFILE").env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.command(args).output().map_err(|error| anyhow::anyhow!("cannot start {}: {error}", self.tool.display()))
    }

    /// Every file below a directory of the bed.
    pub(crate) fn files(&self, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        let (mut found, mut open) = (vec![], vec![self.path(name)]);
        while let Some(dir) = open.pop() {
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            for entry in entries {
                let entry = entry?;
                match entry.file_type()? {
                    kind if kind.is_dir() => open.push(entry.path()),
                    kind if kind.is_file() => found.push(entry.path()),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Bytes of all files below a directory of the bed.
    pub(crate) fn bytes(&self, name: &str) -> anyhow::Result<u64> {
        let sizes = self.files(name)?.iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum();
        Ok(sizes)
    }
}

/// The exit status and last lines of stderr of a command, for a report.
pub(crate) fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let last: Vec<_> = text.lines().rev().take(6).collect();
    format!("{}: {}", output.status, last.into_iter().rev().collect::<Vec<_>>().join(" | "))
}

/// Lets some time pass.
#[expect(clippy::disallowed_methods, reason = "attacks run in the real world only")]
pub(crate) fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}
