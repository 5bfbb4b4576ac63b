//! The command line: one struct of options per verb. The verbs themselves are in `verbs`, a file each.

mod ask;
mod carry;
mod change;
pub(crate) mod pictures;
pub(crate) mod tools;

pub(crate) use ask::{Diff, Du, Lineage, Logs, Show, Watch, Why};
pub(crate) use carry::{Export, Import};
pub(crate) use change::{Cancel, Fork, GoOn, NamedStream, Resolve, Retry, Rm, Savepoints, Send, Sure};

use clap::{Args, Parser, Subcommand, ValueEnum};
use onceflow_spec::ResultsMode;
use std::path::PathBuf;

/// Runs flows from files: every step once, nothing redone that need not be, nothing left behind.
#[derive(Parser, Debug)]
#[command(name = "onceflow", version, after_help = crate::exit::help())]
#[command(propagate_version = false, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options that every verb takes.
#[derive(Args, Debug, Clone)]
pub(crate) struct Common {
    /// Directory of the store, paged:DIR, or redis://HOST [default: the nearest .onceflow/ upwards, or a new one here]
    #[arg(long, global = true, env = "ONCEFLOW_STORE", value_name = "DIR|URL", hide_env_values = true)]
    pub(crate) store: Option<PathBuf>,
    /// Use the profile of this name in onceflow.toml
    #[arg(long, global = true, env = "ONCEFLOW_PROFILE", value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Answer in JSON on stdout
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only errors on stderr
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: Color,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Start a flow, or resume it
    Run(Box<Run>),
    /// Explain what `run` would do, and why
    Explain(Explain),
    /// List runs
    Ls(Ls),
    /// Show one run: steps, outputs, failures
    Show(Show),
    /// Follow a run until it ends or waits
    Watch(Watch),
    /// Print the logs of steps
    Logs(Logs),
    /// Draw a flow or a run
    Graph(pictures::Graph),
    /// Draw a timeline of the steps of a run
    Timeline(pictures::Timeline),
    /// Write a report of a run as one HTML file
    Report(pictures::Report),
    /// Explain why a step ran, or did not
    Why(Why),
    /// Resume a run that failed or was interrupted
    Retry(Retry),
    /// Report the outcome of an at-most-once step that was interrupted
    Resolve(Resolve),
    /// Send an event to the step that waits for it
    Send(Send),
    /// Start a new run from an old one, with other inputs
    Fork(Fork),
    /// Show disk usage by run and purpose
    Du(Du),
    /// Trace a file back to inputs and code
    Lineage(Lineage),
    /// Compare two runs
    Diff(Diff),
    /// Write a run that has ended to a file
    Export(Export),
    /// Import a run that `export` wrote
    Import(Import),
    /// Stop a run and undo it; stop a stream and drop its state
    Cancel(Cancel),
    /// Pause a stream: it keeps its positions and its state
    Pause(NamedStream),
    /// Let a paused stream go on
    Resume(NamedStream),
    /// Let the workers of a stream finish what was read, and end
    Drain(NamedStream),
    /// Make a savepoint of a stream; without a stream, list all
    Savepoint(Savepoints),
    /// Remove a run that has ended, and all that is kept of it
    Rm(Rm),
    /// Take steps of any run on a shared store
    Worker(Worker),
    /// List workers, and what waits
    Workers(Workers),
    /// Check flow files
    Check(Check),
    /// Delete values and files that nothing needs
    #[command(visible_alias = "gc")]
    Reclaim(Reclaim),
    /// Verify that the store is whole
    Fsck(Fsck),
    /// Explain an error code
    Error(Error),
    /// Write a small flow to start from
    Init(Init),
    /// Print the version
    Version,
    /// Print every setting, and what it is now
    Config(tools::Config),
    /// Check this machine: store, disk, shell, clock
    Doctor(tools::Doctor),
    /// Print the completion script of a shell
    Completions(tools::Completions),
    /// Print or write manual pages
    Man(tools::Man),
    /// Print every verb and option in Markdown
    #[command(hide = true)]
    Reference,
    /// Work on a run that was started with --no-wait
    #[command(hide = true, name = "attend")]
    Attend(Attend),
}

/// A flow file with its inputs and the options of its run.
#[derive(Args, Debug, Clone)]
pub(crate) struct Flow {
    /// The flow file (YAML or JSON)
    #[arg(value_name = "FLOW")]
    pub(crate) flow: PathBuf,
    /// An input; a file or list may be a glob: -i 'reads=data/*.fq'
    #[arg(long = "input", short = 'i', value_name = "NAME=VALUE", value_parser = word)]
    pub(crate) input: Vec<(String, String)>,
    /// A file of inputs: YAML, JSON or CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) inputs: Option<PathBuf>,
    /// Only this output, and what it needs (may be repeated)
    #[arg(long = "output", short = 'o', value_name = "NAME")]
    pub(crate) output: Vec<String>,
    /// Name of the run; the same key is the same run [default: the flow's name]
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: Option<String>,
    /// How long inner values outlive the run, so that later runs reuse them: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) keep: Option<u64>,
    /// How long the result can be asked for [default: 7d]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) history: Option<u64>,
    /// Read every input file, even if it looks unchanged
    #[arg(long)]
    pub(crate) verify: bool,
    /// Copy input files into the store, instead of reading them where they are
    #[arg(long)]
    pub(crate) store_inputs: bool,
    /// Start anew, as if there were no run of this key
    #[arg(long)]
    pub(crate) new: bool,
    /// Decides which input files are copied into the store and which are read in place, from the settings.
    #[arg(skip)]
    pub(crate) sources: crate::config::SourcePolicy,
    /// Retention from the settings: the defaults if neither these options nor the flow set it, and the upper limits.
    #[arg(skip)]
    pub(crate) retention: crate::config::Retention,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) flow: Flow,
    /// Steps at a time; 0 leaves all to workers [default: the number of processors]
    #[arg(long, short, value_name = "N")]
    pub(crate) jobs: Option<u16>,
    /// Let workers take steps too, though the store is a directory
    #[arg(long)]
    pub(crate) shared: bool,
    /// Lease of a step: after so long without a heartbeat another worker takes it
    #[arg(long, value_name = "TIME", value_parser = time, hide = true)]
    pub(crate) lease: Option<u64>,
    /// Print what would be done, and do nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Return at once; the run goes on in the background
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Where results go
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) out: PathBuf,
    /// How results get there: copy, link (to the store's own files) or move (out of the store) [default: copy]
    #[arg(long, value_name = "MODE", value_parser = results_mode)]
    pub(crate) results_mode: Option<ResultsMode>,
    /// The mode from the settings, used if neither this option nor the flow sets one.
    #[arg(skip)]
    pub(crate) results_mode_otherwise: ResultsMode,
    /// Let steps run again that must not start twice, because their code or inputs changed
    #[arg(long)]
    pub(crate) accept_code_change: bool,
    /// Begin a stream where this savepoint was made
    #[arg(long, value_name = "SAVEPOINT")]
    pub(crate) from: Option<String>,
    /// Drop the state of a step that the stream has no more (may be repeated)
    #[arg(long, value_name = "STEP")]
    pub(crate) drop: Vec<String>,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) flow: Flow,
    /// Show skipped steps and every element of an each
    #[arg(long, short)]
    pub(crate) all: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Ls {}

#[derive(Args, Debug)]
pub(crate) struct Worker {
    /// Steps at a time [default: the number of processors]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// Take steps that ask for this label, too (may be repeated)
    #[arg(long, value_name = "LABEL", value_parser = label)]
    pub(crate) label: Vec<String>,
    /// At most so many steps at a time that ask for this label
    #[arg(long, value_name = "LABEL=N", value_parser = class)]
    pub(crate) class: Vec<(String, usize)>,
    /// Processors that steps may reserve together [default: those that are there, or as many as --jobs]
    #[arg(long, value_name = "N", value_parser = cpus)]
    pub(crate) cpus: Option<f64>,
    /// Memory that steps may reserve together: 8GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Lease of a step: after so long without a heartbeat another worker takes it [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<u64>,
    /// End when nothing is ready
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Workers {}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Flow files
    #[arg(value_name = "FLOW", required = true)]
    pub(crate) flows: Vec<PathBuf>,
    /// Also check whether the unfinished runs of these flows can resume with them
    #[arg(long)]
    pub(crate) against_runs: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Reclaim {
    #[command(flatten)]
    pub(crate) sure: Sure,
}

#[derive(Args, Debug)]
pub(crate) struct Fsck {
    /// Read the bytes of every object too, and compare them with their digests; without, only lengths are
    #[arg(long)]
    pub(crate) deep: bool,
    /// Repair what is wrong
    #[arg(long)]
    pub(crate) repair: bool,
    /// Refuse a store that is in use, so that every finding is certain
    #[arg(long)]
    pub(crate) at_rest: bool,
    #[command(flatten)]
    pub(crate) sure: Sure,
}

#[derive(Args, Debug)]
pub(crate) struct Error {
    /// The code; none lists all
    #[arg(value_name = "CODE")]
    pub(crate) code: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Where; made if it is not there
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// Arguments of a background process that attends a run; the run and its program are already in the store.
#[derive(Args, Debug, Clone)]
pub(crate) struct Attend {
    pub(crate) key: String,
    #[arg(long)]
    pub(crate) jobs: Option<u16>,
}

fn word(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(String::from("an input is NAME=VALUE")),
    }
}

fn results_mode(text: &str) -> Result<ResultsMode, String> {
    ResultsMode::of(text).ok_or_else(|| format!("it is one of {}", ResultsMode::WORDS.join(", ")))
}

fn key(text: &str) -> Result<String, String> {
    let max = onceflow_core::limits::RUN_KEY_BYTES_MAX;
    match text.len() {
        0 => Err(String::from("a key has at least one letter")),
        len if len > max => Err(format!("a key has at most {max} bytes, not {len}")),
        _ => Ok(text.to_owned()),
    }
}

fn label(text: &str) -> Result<String, String> {
    match onceflow_spec::is_label(text) {
        true => Ok(text.to_owned()),
        false => Err(String::from("a label has letters, digits, `-`, `_` and `.`, at most 32 of them")),
    }
}

fn class(text: &str) -> Result<(String, usize), String> {
    let (name, most) = text.split_once('=').ok_or("a limit is LABEL=N")?;
    let most = most.parse().ok().filter(|most| *most > 0).ok_or("N is a number above 0")?;
    Ok((label(name)?, most))
}

fn cpus(text: &str) -> Result<f64, String> {
    let cpus = text.parse::<f64>().ok().filter(|cpus| (0.001..=1_000_000.0).contains(cpus));
    cpus.ok_or_else(|| String::from("processors are a number, such as 8 or 0.5"))
}

fn size(text: &str) -> Result<u64, String> {
    onceflow_spec::size_bytes(text).ok_or_else(|| String::from("a size is a number and B, kB, MB, GB, KiB, MiB or GiB"))
}

fn time(text: &str) -> Result<u64, String> {
    onceflow_spec::duration_ms(text)
        .ok_or_else(|| String::from("a time is a number and ms, s, m, h, d or w: 30m, 12h, 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_input_is_a_name_and_a_value_that_may_hold_anything() {
        assert_eq!(word("a=b=c"), Ok((String::from("a"), String::from("b=c"))));
        assert_eq!(word("a="), Ok((String::from("a"), String::new())));
        assert!(word("=b").is_err() && word("b").is_err());
    }
}
