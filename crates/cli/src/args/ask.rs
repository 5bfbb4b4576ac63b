//! Options of the verbs that tell about runs and the store.

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// A key, the beginning of a key or id, or - for the latest; a stream by its name or file
    #[arg(value_name = "RUN", default_value = "-")]
    pub(crate) run: String,
    /// Print the figures of a stream as text for Prometheus; - means every stream
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// A key, the beginning of a key or id, or - for the latest; a stream by its name or file
    #[arg(value_name = "RUN", default_value = "-")]
    pub(crate) run: String,
}

#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN", default_value = "-")]
    pub(crate) run: String,
    /// Only steps at or below this address: `align`, `align[3]`
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
    /// Only if the last attempt, which is the one that is kept, is this
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Go on until the run rests
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Why {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The step: `align`, `align[3]/sort`
    #[arg(value_name = "STEP")]
    pub(crate) step: String,
}

#[derive(Args, Debug)]
pub(crate) struct Du {
    /// A key, the beginning of a key or id, or - for the latest; none is all
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Lineage {
    /// A file, or the BLAKE3 digest of one (or its beginning)
    #[arg(value_name = "FILE|DIGEST")]
    pub(crate) what: String,
}

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) one: String,
    /// The other
    #[arg(value_name = "RUN")]
    pub(crate) other: String,
}
