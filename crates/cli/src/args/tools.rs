//! Options of the verbs that are about the tool itself.

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Write a page for every verb into this directory; without it, the first page goes to stdout
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Config {
    /// Print where each value comes from
    #[arg(long)]
    pub(crate) origin: bool,
    /// Print the JSON Schema of onceflow.toml instead
    #[arg(long, conflicts_with = "origin")]
    pub(crate) schema: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {}
