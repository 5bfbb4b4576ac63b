//! One graph, written down for three tools: chains of commands that count.

use anyhow::{Context, ensure};
use std::{fmt::Write, fs, path::Path};

/// Commands in a chain.
const CHAIN: usize = 10;

/// The file beside the flow that every command adds a line to: the proof of how many ran.
const RAN: &str = "ran.log";

/// The command of the flow with one step.
pub(super) const ONE: &str = "echo 1 > one.txt";

/// How many chains, and how long they are.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    chains: usize,
}

impl Shape {
    pub(super) fn of(steps: usize) -> Shape {
        Shape { chains: (steps / CHAIN).max(1) }
    }

    pub(super) fn steps(self) -> usize {
        self.chains * CHAIN
    }

    /// Chain and link of every command.
    fn each(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.chains).flat_map(|chain| (0..CHAIN).map(move |link| (chain, link)))
    }

    pub(super) fn write_flow(self, directory: &Path) -> anyhow::Result<()> {
        let ran = absolute(directory)?;
        let mut text = String::from("flow: chains\nsteps:\n");
        for (chain, link) in self.each() {
            writeln!(text, "  s{chain}_{link}:")?;
            match link {
                0 => writeln!(text, "    run: echo >> {ran}; echo 0 > ${{{{ out.n }}}}")?,
                _ => writeln!(
                    text,
                    "    run: echo >> {ran}; read -r n < ${{{{ s{chain}_{}.n }}}}; echo \"$((n + 1))\" > ${{{{ out.n }}}}",
                    link - 1
                )?,
            }
            writeln!(text, "    out: {{ n: {{ file: {chain}_{link}.txt }} }}")?;
        }
        text.push_str("outputs:\n");
        for chain in 0..self.chains {
            writeln!(text, "  n{chain}: s{chain}_{}.n", CHAIN - 1)?;
        }
        Ok(fs::write(directory.join("flow.yaml"), text)?)
    }

    pub(super) fn write_makefile(self, directory: &Path) -> anyhow::Result<()> {
        let ran = absolute(directory)?;
        let mut text = String::from("SHELL = /bin/bash\n.SHELLFLAGS = -euo pipefail -c\n.SUFFIXES:\nall:");
        for chain in 0..self.chains {
            write!(text, " {chain}_{}.txt", CHAIN - 1)?;
        }
        text.push('\n');
        for (chain, link) in self.each() {
            match link {
                0 => writeln!(text, "{chain}_0.txt:\n\techo >> {ran}; echo 0 > $@")?,
                _ => writeln!(
                    text,
                    "{chain}_{link}.txt: {chain}_{}.txt\n\techo >> {ran}; read -r n < $<; echo \"$$((n + 1))\" > $@",
                    link - 1
                )?,
            }
        }
        Ok(fs::write(directory.join("Makefile"), text)?)
    }

    pub(super) fn write_snakefile(self, directory: &Path) -> anyhow::Result<()> {
        let (chains, last, ran) = (self.chains, CHAIN - 1, absolute(directory)?);
        let text = format!(
            "shell.executable('/bin/bash')\n\
             rule all:\n    input: expand('{{chain}}_{last}.txt', chain=range({chains}))\n\
             rule first:\n    output: '{{chain,[0-9]+}}_0.txt'\n    shell: 'echo >> {ran}; echo 0 > {{output}}'\n\
             rule link:\n    input: lambda w: f'{{w.chain}}_{{int(w.link) - 1}}.txt'\n    \
             output: '{{chain,[0-9]+}}_{{link,[1-9][0-9]*}}.txt'\n    \
             shell: 'echo >> {ran}; read -r n < {{input}}; echo \"$((n + 1))\" > {{output}}'\n"
        );
        Ok(fs::write(directory.join("Snakefile"), text)?)
    }

    /// Every command ran in this directory exactly once, and every chain counted to its end in `results`.
    pub(super) fn verify(self, directory: &Path, results: &Path) -> anyhow::Result<()> {
        let ran = fs::read_to_string(directory.join(RAN)).with_context(|| absolute(directory).unwrap_or_default())?;
        let commands = ran.lines().count();
        ensure!(commands == self.steps(), "{commands} commands ran in {}, not {}", directory.display(), self.steps());
        for chain in 0..self.chains {
            let path = results.join(format!("{chain}_{}.txt", CHAIN - 1));
            let found = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            ensure!(found.trim() == (CHAIN - 1).to_string(), "{} says {found}", path.display());
        }
        Ok(())
    }
}

/// The path of [`RAN`] from anywhere: commands run in directories of their own.
fn absolute(directory: &Path) -> anyhow::Result<String> {
    Ok(std::path::absolute(directory.join(RAN))?.display().to_string())
}

/// A flow of one command.
pub(super) fn write_one(directory: &Path) -> anyhow::Result<()> {
    let text = format!(
        "flow: one\nsteps:\n  one:\n    run: {ONE}\n    out: {{ n: {{ file: one.txt }} }}\noutputs: {{ n: one.n }}\n"
    );
    Ok(fs::write(directory.join("flow.yaml"), text)?)
}
