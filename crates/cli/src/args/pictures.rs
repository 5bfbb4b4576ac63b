//! Options of the verbs that draw.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct Graph {
    /// A flow file; or a run: a key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "FLOW|RUN", default_value = "-")]
    pub(crate) what: String,
    /// How it is drawn [default: by the name of FILE, else text]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    /// Write it to this file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Svg,
    Dot,
    Mermaid,
}

#[derive(Args, Debug)]
pub(crate) struct Timeline {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN", default_value = "-")]
    pub(crate) run: String,
    /// Write it to this file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Report {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN", default_value = "-")]
    pub(crate) run: String,
    /// Write it to this file; - is stdout [default: report-KEY.html]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
