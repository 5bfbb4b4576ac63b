//! The `onceflow` command: parses its arguments, does what they ask, and reports the outcome.
//!
//! | module | responsibility |
//! |---|---|
//! | `args` | the command line |
//! | `config` | settings that the command line does not give, and their origin |
//! | `verbs` | the verbs, a file each |
//! | `printer`, `view`, `progress`, `words` | output for people and programs |
//! | `location`, `session`, `runs`, `steps` | the store, the runs in it, and their steps |
//! | `worker_setup`, `run_worker`, `resume` | taking steps: of one run, or of any; resuming a run |
//! | `follow` | following a run that other processes work on |
//! | `event_log` | the event log of a run, as the store keeps it |
//! | `digests`, `flows`, `housekeeping` | files beside the store: caches; their removal |
//! | `results` | outputs as files |
//! | `streams` | stream files, and streams in the store |
//! | `history`, `picture`, `pictured`, `timeline`, `page` | the history of a run, drawn and reported |
//! | `doctor` | diagnosis of the machine |
//! | `asking` | confirmation by the user |
//! | `exit`, `fault`, `codes`, `pages` | exit codes and errors |

mod args;
mod asked;
mod asking;
mod codes;
mod config;
mod digests;
mod doctor;
mod event_log;
mod executors;
mod exit;
mod fault;
mod finish;
mod flows;
mod follow;
mod foresight;
mod history;
mod housekeeping;
mod inventory;
mod location;
mod page;
mod pages;
mod pending;
mod picture;
mod pictured;
mod plan;
mod printer;
mod progress;
mod results;
mod resume;
mod run_meta;
mod run_worker;
mod runs;
mod scopes;
mod session;
mod signals;
mod steps;
mod streams;
mod timeline;
mod verbs;
mod view;
mod words;

mod worker_setup;

use args::{Cli, Color, Common, Verb};
use clap::{CommandFactory, FromArgMatches};
use config::Config;
use exit::Exit;
use fault::Fault;
use printer::Printer;
use std::process::ExitCode;

/// The first argument of a guard, a process that ends our children if we cannot: see `onceflow_exec::guard`.
const GUARD: &str = "__guard";

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == GUARD) {
        onceflow_exec::guard::main();
        return ExitCode::SUCCESS;
    }
    log();
    let parsed = Cli::command().try_get_matches().and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (mut cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return misunderstood(&error),
    };
    let config = configured(&mut cli, &matches);
    let printer = Printer::new(&cli.common).names_store(&cli.common, |option| config::is_said(&matches, option));
    let went = config.and_then(|config| go(&cli, &config, &printer));
    match went.and_then(|exit| printer.wrote_all().map(|()| exit)) {
        Ok(exit) => exit.into(),
        Err(mut fault) => {
            fault.hint = fault.hint.map(|hint| printer.on_same_store(&hint));
            if printer.json {
                printer.data(&fault.to_json());
            }
            printer.warn(fault.to_string());
            fault.exit.into()
        }
    }
}

/// Reports what clap found. Help and the version go to stdout and are no errors; anything else goes to stderr with a
/// code, and as JSON if the arguments, which were not understood, contain `--json`.
fn misunderstood(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let Some(message) = text.strip_prefix("error: ") else {
        // If even printing fails, there is nowhere to report it.
        drop(error.print());
        return ExitCode::from(if error.use_stderr() { Exit::Usage as u8 } else { 0 });
    };
    let fault = Fault::usage(message.split("\n\n").next().unwrap_or_default());
    let json = std::env::args_os().any(|word| word == "--json");
    let printer = Printer::new(&Common { store: None, profile: None, json, quiet: false, color: Color::Auto });
    if json {
        printer.data(&fault.to_json());
    }
    printer.warn(format!("error[{}]: {}", codes::USAGE, message.trim_end()));
    fault.exit.into()
}

/// Sets up the log on stderr, filtered by `ONCEFLOW_LOG`.
fn log() {
    // Warnings about files left alone because they are not onceflow's are always shown.
    let asked = std::env::var("ONCEFLOW_LOG");
    let filter = asked.clone().unwrap_or_else(|_| format!("off,{}=warn", onceflow_exec::home::LEFT));
    let filter = tracing_subscriber::EnvFilter::new(filter);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time();
    // No other code sets a subscriber, so this cannot fail.
    let _set = log.with_target(asked.is_ok()).try_init();
}

/// Fills options that the command line does not give from the settings.
fn configured(cli: &mut Cli, matches: &clap::ArgMatches) -> Result<Config, Fault> {
    // These verbs must work even when settings are wrong.
    if matches!(cli.verb, Verb::Error(_) | Verb::Version | Verb::Completions(_) | Verb::Man(_) | Verb::Reference) {
        return Ok(Config::default());
    }
    let env: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut config = Config::load(&here()?, cli.common.profile.as_deref(), &env)?;
    config::fill(cli, matches, &mut config);
    Ok(config)
}

fn here() -> Result<std::path::PathBuf, Fault> {
    std::env::current_dir().map_err(Fault::system("no current directory"))
}

fn go(cli: &Cli, config: &Config, printer: &Printer) -> Result<Exit, Fault> {
    config.warnings.iter().for_each(|line| printer.say(line));
    // Verbs that need no store.
    match &cli.verb {
        Verb::Error(args) => return verbs::error::run(args, printer),
        Verb::Init(args) => return verbs::init::run(args, printer),
        Verb::Check(args) if !args.against_runs => return Ok(verbs::check::run(args, printer)),
        Verb::Version => return Ok(verbs::version::run(printer)),
        Verb::Config(args) => return Ok(verbs::config::run(args, config, printer)),
        Verb::Completions(args) => return Ok(verbs::completions::run(args, printer)),
        Verb::Man(args) => return verbs::man::run(args, printer),
        Verb::Reference => return Ok(verbs::reference::run(printer)),
        _ => {}
    }
    let mut location = location::find(cli.common.store.as_deref(), &here()?);
    location.found_above(&here()?).iter().for_each(|line| printer.say(line));
    location.bytes_max = config.get("retention.bytes_max").and_then(|known| known.value.as_u64());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Fault::system("no runtime"))?;
    let exit = runtime.block_on(async {
        match &cli.verb {
            Verb::Run(args) => verbs::run::run(args, location, printer).await,
            Verb::Explain(args) => verbs::explain::run(args, location, printer).await,
            Verb::Ls(args) => verbs::ls::run(args, location, printer).await,
            Verb::Show(args) => verbs::show::run(args, location, printer).await,
            Verb::Watch(args) => verbs::watch::run(args, location, printer).await,
            Verb::Logs(args) => verbs::logs::run(args, location, printer).await,
            Verb::Graph(args) => verbs::graph::run(args, location, printer).await,
            Verb::Timeline(args) => verbs::timeline::run(args, location, printer).await,
            Verb::Report(args) => verbs::report::run(args, location, printer).await,
            Verb::Cancel(args) => verbs::cancel::run(args, location, printer).await,
            Verb::Pause(args) => verbs::pause::pause(args, location, printer).await,
            Verb::Resume(args) => verbs::pause::resume(args, location, printer).await,
            Verb::Drain(args) => verbs::pause::drain(args, location, printer).await,
            Verb::Savepoint(args) => verbs::savepoint::run(args, location, printer).await,
            Verb::Rm(args) => verbs::rm::run(args, location, printer).await,
            Verb::Worker(args) => verbs::worker::run(args, location, printer).await,
            Verb::Workers(args) => verbs::workers::run(args, location, printer).await,
            Verb::Fsck(args) => verbs::fsck::run(args, location, printer).await,
            Verb::Reclaim(args) => verbs::reclaim::run(args, location, printer).await,
            Verb::Why(args) => verbs::why::run(args, location, printer).await,
            Verb::Retry(args) => verbs::retry::run(args, location, printer).await,
            Verb::Resolve(args) => verbs::resolve::run(args, location, printer).await,
            Verb::Send(args) => verbs::send::run(args, location, printer).await,
            Verb::Fork(args) => verbs::fork::run(args, location, printer).await,
            Verb::Du(args) => verbs::du::run(args, location, printer).await,
            Verb::Lineage(args) => verbs::lineage::run(args, location, printer).await,
            Verb::Diff(args) => verbs::diff::run(args, location, printer).await,
            Verb::Export(args) => verbs::export::run(args, location, printer).await,
            Verb::Import(args) => verbs::export::import(args, location, printer).await,
            Verb::Check(args) => verbs::against::run(&args.flows, location, printer).await,
            Verb::Attend(args) => verbs::background::attend(args, location, printer).await,
            Verb::Doctor(args) => verbs::doctor::run(args, location, printer).await,
            Verb::Error(_) | Verb::Init(_) | Verb::Version => unreachable!("these need no store"),
            Verb::Config(_) | Verb::Completions(_) | Verb::Man(_) | Verb::Reference => unreachable!("neither do these"),
        }
    });
    runtime.shutdown_background();
    exit
}
