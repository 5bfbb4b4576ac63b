//! The table of all settings, used by the file, the environment, the schema and the documentation.

use crate::words::nearest;
use serde_json::{Value, json};

/// A setting.
pub(crate) struct Setting {
    /// The name as in a file: `retention.keep`.
    pub(crate) name: &'static str,
    pub(crate) kind: SettingKind,
    /// The default, as text; `None` if it depends on the machine or the directory.
    pub(crate) default: Option<&'static str>,
    pub(crate) help: &'static str,
}

/// The kind of value that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingKind {
    /// A directory or the address of a server.
    Store,
    /// A directory.
    Path,
    /// Directories.
    Paths,
    /// How results are written to their directory.
    ResultsMode,
    /// The number of concurrent steps.
    Jobs,
    /// A number of processors.
    Processors,
    Time,
    Size,
    Bool,
    Color,
    Labels,
}

/// All settings.
pub(crate) const SETTINGS: [Setting; 17] = [
    Setting {
        name: "store",
        kind: SettingKind::Store,
        default: None,
        help: "The store: a directory, paged:DIR, or redis://HOST.",
    },
    Setting { name: "out", kind: SettingKind::Path, default: Some("results"), help: "Where `run` puts results." },
    Setting {
        name: "results_mode",
        kind: SettingKind::ResultsMode,
        default: Some("copy"),
        help: "How results get there, if neither `--results-mode` nor the flow says: copied, linked or moved.",
    },
    Setting {
        name: "store_inputs",
        kind: SettingKind::Bool,
        default: Some("false"),
        help: "Copy input files into the store, instead of reading them where they are.",
    },
    Setting {
        name: "shared_paths",
        kind: SettingKind::Paths,
        default: None,
        help: "Directories that every machine finds at the same path: a server's store refers to input files there.",
    },
    Setting { name: "jobs", kind: SettingKind::Jobs, default: None, help: "Steps at a time, of `run` and `worker`." },
    Setting { name: "color", kind: SettingKind::Color, default: Some("auto"), help: "When to use colour." },
    Setting { name: "quiet", kind: SettingKind::Bool, default: Some("false"), help: "No talk but errors." },
    Setting {
        name: "retention.keep",
        kind: SettingKind::Time,
        default: Some("0"),
        help: "How long inner values outlive a run, if neither `--keep` nor the flow says.",
    },
    Setting {
        name: "retention.history",
        kind: SettingKind::Time,
        default: Some("7d"),
        help: "How long a finished run can be asked about, if neither `--history` nor the flow says.",
    },
    Setting {
        name: "retention.keep_max",
        kind: SettingKind::Time,
        default: None,
        help: "The longest that inner values outlive a run, whatever a flow or an option asks for.",
    },
    Setting {
        name: "retention.history_max",
        kind: SettingKind::Time,
        default: None,
        help: "The longest that a finished run can be asked about, whatever a flow or an option asks for.",
    },
    Setting {
        name: "retention.bytes_max",
        kind: SettingKind::Size,
        default: None,
        help: "The most that large values in the store may take together; what is more is refused as no room.",
    },
    Setting {
        name: "worker.labels",
        kind: SettingKind::Labels,
        default: None,
        help: "Labels of steps that `worker` takes, too.",
    },
    Setting {
        name: "worker.cpus",
        kind: SettingKind::Processors,
        default: None,
        help: "Processors that steps of a worker may reserve together.",
    },
    Setting {
        name: "worker.memory",
        kind: SettingKind::Size,
        default: None,
        help: "Memory that steps of a worker may reserve together.",
    },
    Setting {
        name: "worker.lease",
        kind: SettingKind::Time,
        default: Some("30s"),
        help: "How long a step stays a worker's own without a sign of life.",
    },
];

/// Environment variables that share our prefix and are not settings; the last three are set for steps.
pub(crate) const OTHERS: [&str; 7] = [
    "ONCEFLOW_PROFILE",
    "ONCEFLOW_LOG",
    "ONCEFLOW_REDIS_USERNAME",
    "ONCEFLOW_REDIS_PASSWORD",
    "ONCEFLOW_KEY",
    "ONCEFLOW_ADDRESS",
    "ONCEFLOW_ATTEMPT",
];

impl Setting {
    /// Describes the default, where it is not a value that could be written down.
    pub(crate) fn otherwise(&self) -> &'static str {
        match self.name {
            "store" => "the nearest .onceflow upwards, else one here",
            "jobs" => "the number of processors",
            "worker.cpus" => "the processors there are",
            "worker.labels" | "shared_paths" => "none",
            _ => "no bound",
        }
    }

    /// Returns its name in the environment: `ONCEFLOW_RETENTION_KEEP`.
    pub(crate) fn variable(&self) -> String {
        format!("ONCEFLOW_{}", self.name.to_uppercase().replace('.', "_"))
    }
}

/// Finds a setting by name.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Returns the names directly in a table; `""` is the file itself.
pub(crate) fn names_in(table: &str) -> Vec<&'static str> {
    let inside = |name: &'static str| match table {
        "" => Some(name.split('.').next().unwrap_or(name)),
        table => name.strip_prefix(table)?.strip_prefix('.'),
    };
    let mut names: Vec<_> = SETTINGS.iter().filter_map(|setting| inside(setting.name)).collect();
    names.dedup();
    names
}

/// Returns a hint for an unknown name: the setting that was probably meant, or the names there are.
pub(crate) fn meant(word: &str, table: &str) -> String {
    let here = names_in(table);
    let known = here.iter().copied().chain((table.is_empty()).then_some("profile"));
    if let Some(near) = nearest(word, known) {
        return format!("did you mean `{near}`?");
    }
    // The name may be right and stand in the wrong table.
    let elsewhere = SETTINGS.iter().find(|setting| setting.name.rsplit('.').next() == Some(word));
    match elsewhere {
        Some(setting) => format!("did you mean `{}`?", setting.name),
        None => format!("there is {}", here.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    }
}

impl SettingKind {
    /// Parses a text into data: times in milliseconds, sizes in bytes.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub(crate) fn read(self, text: &str) -> Result<Value, &'static str> {
        let rule = self.rule();
        match self {
            SettingKind::Store | SettingKind::Path => (!text.is_empty()).then(|| json!(text)).ok_or(rule),
            SettingKind::Jobs => text.parse::<u16>().ok().filter(|jobs| *jobs > 0).map(|jobs| json!(jobs)).ok_or(rule),
            SettingKind::Processors => {
                let cpus = text.parse::<f64>().ok().filter(|cpus| (0.001..=1_000_000.0).contains(cpus));
                cpus.map(|cpus| json!(cpus)).ok_or(rule)
            }
            SettingKind::Time => onceflow_spec::duration_ms(text).map(|ms| json!(ms)).ok_or(rule),
            SettingKind::Size => onceflow_spec::size_bytes(text).map(|bytes| json!(bytes)).ok_or(rule),
            SettingKind::Bool => match text {
                "true" | "1" | "yes" => Ok(json!(true)),
                "false" | "0" | "no" => Ok(json!(false)),
                _ => Err(rule),
            },
            // Separated by colons, as in PATH.
            SettingKind::Paths => {
                let paths: Vec<_> = text.split(':').filter(|path| !path.is_empty()).collect();
                (!paths.is_empty() && paths.iter().all(|path| path.starts_with('/'))).then(|| json!(paths)).ok_or(rule)
            }
            SettingKind::ResultsMode => onceflow_spec::ResultsMode::of(text).map(|_| json!(text)).ok_or(rule),
            SettingKind::Color => ["auto", "always", "never"].contains(&text).then(|| json!(text)).ok_or(rule),
            SettingKind::Labels => {
                let labels: Vec<_> = text.split(',').map(str::trim).filter(|label| !label.is_empty()).collect();
                labels.iter().all(|label| onceflow_spec::is_label(label)).then(|| json!(labels)).ok_or(rule)
            }
        }
    }

    /// States which values are valid.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            SettingKind::Store => "a store is a directory, `paged:DIR`, or `redis://HOST`",
            SettingKind::Path => "a directory is a text",
            SettingKind::Paths => "shared paths are a list of absolute directories: [\"/data\"]",
            SettingKind::ResultsMode => "results are put in their place by \"copy\", \"link\" or \"move\"",
            SettingKind::Jobs => "steps at a time are a whole number from 1 to 65535",
            SettingKind::Processors => "processors are a number, such as 8 or 0.5",
            SettingKind::Time => {
                "a time is a number and a unit: \"500ms\", \"30s\", \"10m\", \"12h\", \"7d\", \"2w\", or \"0\""
            }
            SettingKind::Size => "a size is a number and a unit: \"512MiB\", \"2GB\"",
            SettingKind::Bool => "it is true or false",
            SettingKind::Color => "colour is \"auto\", \"always\" or \"never\"",
            SettingKind::Labels => "labels are a list of texts of letters, digits, `-`, `_` and `.`: [\"gpu\"]",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_one_that_can_be_said() {
        for setting in &SETTINGS {
            if let Some(default) = setting.default {
                assert!(setting.kind.read(default).is_ok(), "{}", setting.name);
            }
        }
    }

    #[test]
    fn a_misspelt_or_misplaced_setting_gets_a_suggestion() {
        assert_eq!(meant("hystory", "retention"), "did you mean `history`?");
        assert_eq!(meant("profiles", ""), "did you mean `profile`?");
        assert_eq!(meant("keep_max", ""), "did you mean `retention.keep_max`?");
        assert!(meant("nonsense", "worker").starts_with("there is `labels`, "));
    }
}
