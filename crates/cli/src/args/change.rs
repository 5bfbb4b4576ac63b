//! Options of the verbs that change or resume a run.

use super::{key, time, word};
use clap::Args;
use std::path::PathBuf;

/// Options of verbs whose changes cannot be undone.
#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct Sure {
    /// Print what would be done, and do nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Do not ask, though a person is there to answer
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Options of verbs that resume a run.
#[derive(Args, Debug, Clone)]
pub(crate) struct GoOn {
    /// Steps at a time; 0 leaves all to workers [default: the number of processors]
    #[arg(long, short, value_name = "N")]
    pub(crate) jobs: Option<u16>,
    /// Return at once; the run goes on in the background
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Where results go [default: where they were to go]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The mode from the settings, used if the run does not set one.
    #[arg(skip)]
    pub(crate) results_mode: onceflow_spec::ResultsMode,
}

/// The stream of a verb that takes streams only.
#[derive(Args, Debug)]
pub(crate) struct NamedStream {
    /// A stream, by its name or file
    #[arg(value_name = "STREAM")]
    pub(crate) stream: String,
}

#[derive(Args, Debug)]
pub(crate) struct Savepoints {
    /// A stream that is paused or rests, by its name or file
    #[arg(value_name = "STREAM", requires = "name")]
    pub(crate) stream: Option<String>,
    /// Name of the savepoint
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Remove the savepoint of this name
    #[arg(long, value_name = "NAME", conflicts_with = "stream")]
    pub(crate) rm: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Cancel {
    /// A key, the beginning of a key or id, or - for the latest; a stream by its name or file
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Abandon undos that failed: the run ends, and its effects stay
    #[arg(long)]
    pub(crate) abandon: bool,
    #[command(flatten)]
    pub(crate) sure: Sure,
}

#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Cancel it first if it has not ended; remove it though something was not undone
    #[arg(long, short)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) sure: Sure,
}

#[derive(Args, Debug)]
pub(crate) struct Retry {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Of what failed, only this step and what is inside it
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
    #[command(flatten)]
    pub(crate) go_on: GoOn,
    /// Print what would be tried again, and do nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("outcome").required(true).args(["done", "redo", "fail"]))]
pub(crate) struct Resolve {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The step; none if only one waits
    #[arg(value_name = "STEP")]
    pub(crate) step: Option<String>,
    /// It took effect, and gave what -o says
    #[arg(long)]
    pub(crate) done: bool,
    /// It did not take effect: it runs again
    #[arg(long)]
    pub(crate) redo: bool,
    /// It failed, because of this
    #[arg(long, value_name = "WHY")]
    pub(crate) fail: Option<String>,
    /// With --done: an output; a list takes several, a value that is not a word is JSON
    #[arg(long = "output", short = 'o', value_name = "NAME=VALUE", value_parser = word, requires = "done")]
    pub(crate) output: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) sure: Sure,
}

#[derive(Args, Debug)]
pub(crate) struct Send {
    /// A key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The event, as `wait` names it
    #[arg(value_name = "EVENT")]
    pub(crate) event: String,
    /// Payload of the event: its one value, or a JSON object with all of them
    #[arg(value_name = "VALUE", conflicts_with = "output")]
    pub(crate) value: Option<String>,
    /// One of the values of the event
    #[arg(long = "output", short = 'o', value_name = "NAME=VALUE", value_parser = word)]
    pub(crate) output: Vec<(String, String)>,
    /// Deliver it at most once, however often it is sent under this id
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The step, if several wait for the same
    #[arg(long, value_name = "STEP")]
    pub(crate) step: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Fork {
    /// The run to begin from: a key, the beginning of a key or id, or - for the latest
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Name of the new run
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: String,
    /// An input with another value; a file or list may be a glob
    #[arg(long = "input", short = 'i', value_name = "NAME=VALUE", value_parser = word)]
    pub(crate) input: Vec<(String, String)>,
    /// How long inner values outlive the run [default: as in the old run]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) keep: Option<u64>,
    /// Upper limits of retention, from the settings.
    #[arg(skip)]
    pub(crate) retention: crate::config::Retention,
    /// Copy input files into the store, instead of reading them where they are
    #[arg(long)]
    pub(crate) store_inputs: bool,
    /// Decides which input files are copied into the store and which are read in place, from the settings.
    #[arg(skip)]
    pub(crate) sources: crate::config::SourcePolicy,
    #[command(flatten)]
    pub(crate) go_on: GoOn,
    /// Print what would run and why, and do nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}
