//! Peers that a benchmark installs for itself: Python packages, each in an environment of its own under `bench/target`.

use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where the environment of a peer is.
pub(super) fn home(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(name)
}

/// Installs a package from PyPI, unless it is there; answers its environment.
pub(super) fn from_pypi(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let home = home(name);
    let done = home.join(format!("{package}.installed"));
    if !done.exists() {
        eprintln!("installing {package} from PyPI");
        quietly(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        quietly(Command::new(home.join("bin/pip")).args(["install", "-q", package]))?;
        fs::write(done, "")?;
    }
    Ok(home)
}

/// Runs a program; answers what it printed.
pub(super) fn quietly(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
