//! Merges the command line with the settings: every flag that was given becomes a setting, and every one that was not
//! takes its value from its setting.

use super::{Config, SettingOrigin, SourcePolicy};
use crate::args::{Cli, Color, Common, Flow, Verb};
use clap::{ArgMatches, parser::ValueSource};
use onceflow_spec::ResultsMode;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Retention: the defaults for flows that set none, and the upper limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) keep_ms: Option<u64>,
    pub(crate) history_ms: Option<u64>,
    pub(crate) keep_ms_max: Option<u64>,
    pub(crate) history_ms_max: Option<u64>,
}

impl Retention {
    /// Returns how long inner values outlive a run for which the flag, or else the flow, asks for `said`.
    pub(crate) fn keep(&self, said: Option<u64>) -> Option<u64> {
        let keep = said.or(self.keep_ms).filter(|ms| *ms > 0)?;
        Some(self.keep_ms_max.map_or(keep, |most| keep.min(most))).filter(|ms| *ms > 0)
    }

    /// Returns the same for a run's history; `default` if neither a setting nor `said` sets it.
    pub(crate) fn history(&self, said: Option<u64>, default: u64) -> u64 {
        let history = said.or(self.history_ms).unwrap_or(default);
        self.history_ms_max.map_or(history, |most| history.min(most))
    }

    /// Returns a warning for each of the two that exceeds its limit.
    pub(crate) fn too_long(&self, keep: Option<u64>, history: Option<u64>) -> Vec<String> {
        let one = |what: &str, said: Option<u64>, most: Option<u64>| {
            let (said, most) = (said?, most?);
            let told = |ms| crate::words::duration(ms);
            (said > most)
                .then(|| format!("warning: {what} is {} here, not {}: retention.{what}_max", told(most), told(said)))
        };
        [one("keep", keep, self.keep_ms_max), one("history", history, self.history_ms_max)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// The command line gives this option, before the verb or behind it.
pub(crate) fn is_said(matches: &ArgMatches, name: &str) -> bool {
    let verb = matches.subcommand().map(|(_, matches)| matches);
    let source = |matches: &ArgMatches| matches.try_contains_id(name).ok().and_then(|_| matches.value_source(name));
    [Some(matches), verb].into_iter().flatten().any(|matches| source(matches) == Some(ValueSource::CommandLine))
}

/// Merges both ways: flags into settings, settings into flags.
pub(crate) fn fill(cli: &mut Cli, matches: &ArgMatches, config: &mut Config) {
    let is_said = |name: &str| is_said(matches, name);
    common(&mut cli.common, &is_said, config);
    match &mut cli.verb {
        Verb::Run(run) => {
            flow(&mut run.flow, &is_said, config);
            option(&mut run.jobs, "jobs", "jobs", &is_said, config, number);
            match is_said("out") {
                true => config.set("out", json!(run.out.to_string_lossy()), SettingOrigin::Flag("out")),
                false => run.out = text(config, "out").map_or_else(|| run.out.clone(), PathBuf::from),
            }
            match is_said("results_mode") {
                true => config.set(
                    "results_mode",
                    json!(run.results_mode.map(ResultsMode::word)),
                    SettingOrigin::Flag("results-mode"),
                ),
                false => run.results_mode_otherwise = results_mode(config),
            }
            option(&mut run.lease, "lease", "worker.lease", &is_said, config, Value::as_u64);
        }
        Verb::Explain(explain) => flow(&mut explain.flow, &is_said, config),
        Verb::Retry(retry) => {
            option(&mut retry.go_on.jobs, "jobs", "jobs", &is_said, config, number);
            retry.go_on.results_mode = results_mode(config);
        }
        Verb::Fork(fork) => {
            option(&mut fork.go_on.jobs, "jobs", "jobs", &is_said, config, number);
            fork.retention = retention(config);
            fork.sources = sources(&mut fork.store_inputs, &is_said, config);
            fork.go_on.results_mode = results_mode(config);
        }
        Verb::Import(import) => import.retention = retention(config),
        Verb::Worker(worker) => {
            option(&mut worker.jobs, "jobs", "jobs", &is_said, config, number);
            option(&mut worker.cpus, "cpus", "worker.cpus", &is_said, config, Value::as_f64);
            option(&mut worker.memory, "memory", "worker.memory", &is_said, config, Value::as_u64);
            option(&mut worker.lease, "lease", "worker.lease", &is_said, config, Value::as_u64);
            match is_said("label") {
                true => config.set("worker.labels", json!(worker.label), SettingOrigin::Flag("label")),
                false => {
                    let labels = config.get("worker.labels").and_then(|known| known.value.as_array());
                    worker.label =
                        labels.into_iter().flatten().filter_map(|label| label.as_str().map(str::to_owned)).collect();
                }
            }
        }
        _ => {}
    }
}

fn common(common: &mut Common, is_said: &impl Fn(&str) -> bool, config: &mut Config) {
    match is_said("store") {
        true => {
            let shown = common.store.as_ref().map(|store| store.to_string_lossy().into_owned());
            config.set("store", json!(shown), SettingOrigin::Flag("store"));
        }
        // The environment was read with the other settings, except for values that are not UTF-8.
        false => common.store = text(config, "store").map(PathBuf::from).or(common.store.take()),
    }
    match is_said("quiet") {
        true => config.set("quiet", json!(true), SettingOrigin::Flag("quiet")),
        false => common.quiet = config.get("quiet").is_some_and(|known| known.value == true),
    }
    let word = match common.color {
        Color::Auto => "auto",
        Color::Always => "always",
        Color::Never => "never",
    };
    match is_said("color") {
        true => config.set("color", json!(word), SettingOrigin::Flag("color")),
        false => {
            common.color = match text(config, "color").as_deref() {
                Some("always") => Color::Always,
                Some("never") => Color::Never,
                _ => Color::Auto,
            };
        }
    }
}

/// Returns how results are written to their directory, from the settings.
fn results_mode(config: &Config) -> ResultsMode {
    text(config, "results_mode").and_then(|word| ResultsMode::of(&word)).unwrap_or_default()
}

/// Returns which input files are copied into the store and which are read in place, from the flag and the settings.
fn sources(stored: &mut bool, is_said: &impl Fn(&str) -> bool, config: &mut Config) -> SourcePolicy {
    match is_said("store_inputs") {
        true => config.set("store_inputs", json!(*stored), SettingOrigin::Flag("store-inputs")),
        false => *stored = config.get("store_inputs").is_some_and(|known| known.value == true),
    }
    let shared = config.get("shared_paths").and_then(|known| known.value.as_array());
    let shared = shared.into_iter().flatten().filter_map(|path| path.as_str().map(PathBuf::from)).collect();
    SourcePolicy { stored: *stored, shared }
}

fn flow(flow: &mut Flow, is_said: &impl Fn(&str) -> bool, config: &mut Config) {
    flow.retention = retention(config);
    flow.sources = sources(&mut flow.store_inputs, is_said, config);
    for (name, setting, said) in [("keep", "retention.keep", flow.keep), ("history", "retention.history", flow.history)]
    {
        if is_said(name) {
            config.set(setting, json!(said), SettingOrigin::Flag(name));
        }
    }
}

fn retention(config: &Config) -> Retention {
    let ms = |name: &str| config.get(name).and_then(|known| known.value.as_u64());
    Retention {
        keep_ms: ms("retention.keep"),
        history_ms: ms("retention.history"),
        keep_ms_max: ms("retention.keep_max"),
        history_ms_max: ms("retention.history_max"),
    }
}

fn option<T: Clone + serde::Serialize>(
    given: &mut Option<T>,
    flag: &'static str,
    setting: &'static str,
    is_said: &impl Fn(&str) -> bool,
    config: &mut Config,
    read: impl Fn(&Value) -> Option<T>,
) {
    if is_said(flag) {
        config.set(setting, json!(given), SettingOrigin::Flag(flag));
    } else if let Some(known) = config.get(setting).filter(|known| known.origin != SettingOrigin::Default) {
        *given = read(&known.value);
    }
}

fn number(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|number| u16::try_from(number).ok())
}

fn text(config: &Config, name: &str) -> Option<String> {
    config.get(name).and_then(|known| known.value.as_str()).map(str::to_owned)
}
