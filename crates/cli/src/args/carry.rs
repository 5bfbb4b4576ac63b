//! Options of the verbs that carry runs from store to store.

use super::{Sure, key};
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Where to; must not be there
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    /// File that `export` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Name of the run in this store [default: its old name]
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: Option<String>,
    /// Replace a run of this key that has ended
    #[arg(long)]
    pub(crate) replace: bool,
    /// Upper limits of retention, from the settings.
    #[arg(skip)]
    pub(crate) retention: crate::config::Retention,
    #[command(flatten)]
    pub(crate) sure: Sure,
}
