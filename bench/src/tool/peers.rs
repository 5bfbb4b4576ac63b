//! The programs that are compared, as their users call them.

use anyhow::{Context, ensure};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The store of a directory.
const STORE: &str = ".onceflow";

/// Our command, as it is released.
pub(super) struct Onceflow(PathBuf);

impl Onceflow {
    pub(super) fn build() -> anyhow::Result<Onceflow> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the repository")?;
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--quiet", "--locked", "-p", "onceflow-cli"]).current_dir(root);
        ensure!(cargo.stdout(Stdio::null()).status()?.success(), "the command could not be built");
        Ok(Onceflow(root.join("target/release/onceflow")))
    }

    /// Runs the flow in a directory on a store of its own there: a store further up would know the steps of earlier runs.
    pub(super) fn run(&self, directory: &Path, jobs: &str) -> anyhow::Result<()> {
        let arguments = ["run", "flow.yaml", "--store", STORE, "--jobs", jobs];
        quietly(Command::new(&self.0).args(arguments).current_dir(directory))
    }
}

pub(super) fn make(directory: &Path, jobs: &str) -> anyhow::Result<()> {
    quietly(Command::new("make").args(["-s", "-j", jobs]).current_dir(directory))
}

pub(super) mod snakemake {
    //! Snakemake from PyPI, in an environment of its own.

    use super::*;

    /// Its program, installed if it is not there yet.
    pub(crate) fn install() -> anyhow::Result<PathBuf> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/snakemake");
        let program = home.join("bin/snakemake");
        if !program.exists() {
            eprintln!("installing snakemake from PyPI");
            quietly(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
            quietly(Command::new(home.join("bin/pip")).args(["install", "-q", "snakemake"]))?;
        }
        Ok(program)
    }

    pub(crate) fn run(program: &Path, directory: &Path, jobs: &str) -> anyhow::Result<()> {
        quietly(Command::new(program).args(["--quiet", "all", "-c", jobs]).current_dir(directory))
    }
}

/// Runs a program; its output is shown only if it fails.
pub(super) fn quietly(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(())
}
