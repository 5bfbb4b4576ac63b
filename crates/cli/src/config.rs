//! Settings. In descending precedence: a flag, `ONCEFLOW_…`, `onceflow.toml` (the nearest upwards, then the user's),
//! the default. Within a file, a profile takes precedence over the rest.

pub(crate) mod file;
mod fill;
pub(crate) mod schema;
pub(crate) mod settings;
mod sources;

pub(crate) use fill::{Retention, fill, is_said};
pub(crate) use sources::{ByReference, SourcePolicy};

use crate::{codes, exit::Exit, fault::Fault, words::nearest};
use file::ConfigFile;
use onceflow_spec::{Problem, Problems};
use serde_json::Value;
use settings::{OTHERS, SETTINGS};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// The value of a setting, and its origin.
#[derive(Clone, Debug)]
pub(crate) struct SettingValue {
    pub(crate) value: Value,
    pub(crate) origin: SettingOrigin,
}

/// The place that a setting's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingOrigin {
    Flag(&'static str),
    Variable(String),
    File { path: PathBuf, line: u32, profile: Option<String> },
    Default,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Flag(name) => write!(f, "--{name}"),
            SettingOrigin::Variable(name) => f.write_str(name),
            SettingOrigin::File { path, line, profile: None } => write!(f, "{}:{line}", path.display()),
            SettingOrigin::File { path, line, profile: Some(profile) } => {
                write!(f, "{}:{line}, profile {profile}", path.display())
            }
            SettingOrigin::Default => f.write_str("default"),
        }
    }
}

/// All settings that have a value or a default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    known: BTreeMap<&'static str, SettingValue>,
    /// Warnings: oddities that are not errors.
    pub(crate) warnings: Vec<String>,
    /// The files that were read, nearest first.
    pub(crate) files: Vec<PathBuf>,
}

impl Config {
    /// Returns the value of a setting, if it has one.
    pub(crate) fn get(&self, name: &str) -> Option<&SettingValue> {
        self.known.get(name)
    }

    /// Sets a value that takes precedence over the present one.
    pub(crate) fn set(&mut self, name: &'static str, value: Value, origin: SettingOrigin) {
        self.known.insert(name, SettingValue { value, origin });
    }

    /// Finds the files, seen from `here`, and reads them and the environment.
    ///
    /// # Errors
    /// All problems of the files and the environment.
    pub(crate) fn load(here: &Path, profile: Option<&str>, env: &[(String, String)]) -> Result<Self, Fault> {
        let mut problems = Vec::new();
        let mut config = Config::default();
        for setting in &SETTINGS {
            if let Some(value) = setting.default.and_then(|default| setting.kind.read(default).ok()) {
                config.set(setting.name, value, SettingOrigin::Default);
            }
        }
        let mut files = Vec::new();
        for path in paths(here, env) {
            files.extend(open(&path)?.map(|text| file::read(&path, &text, &mut problems)));
        }
        config.files = files.iter().map(|file| file.path.clone()).collect();
        // The nearest file takes precedence, so it is applied last.
        files.iter().rev().for_each(|file| config.take(file, profile));
        if let Some(profile) = profile {
            known_profile(profile, &files, &mut problems);
        }
        config.environment(env, &mut problems);
        match problems.is_empty() {
            true => Ok(config),
            false => Err(Fault::problems(Exit::Usage, Problems(problems))),
        }
    }

    fn take(&mut self, file: &ConfigFile, profile: Option<&str>) {
        // Settings of the profile take precedence over the file's general ones, so they are applied last.
        let all = file.said.iter().filter(|said| said.profile.is_none());
        let own = file.said.iter().filter(|said| profile.is_some() && said.profile.as_deref() == profile);
        for said in all.chain(own) {
            let origin =
                SettingOrigin::File { path: file.path.clone(), line: said.line, profile: said.profile.clone() };
            self.set(said.setting, said.value.clone(), origin);
        }
    }

    fn environment(&mut self, env: &[(String, String)], problems: &mut Vec<Problem>) {
        let variables: Vec<_> = SETTINGS.iter().map(settings::Setting::variable).collect();
        for (name, value) in env.iter().filter(|(name, value)| name.starts_with("ONCEFLOW_") && !value.is_empty()) {
            if let Some(at) = variables.iter().position(|variable| variable == name) {
                let setting = &SETTINGS[at];
                match setting.kind.read(value) {
                    Ok(value) => self.set(setting.name, value, SettingOrigin::Variable(name.clone())),
                    Err(rule) => problems.push(Problem::new(codes::CONFIG, format!("{name} cannot be this: {rule}"))),
                }
            } else if !OTHERS.contains(&name.as_str()) {
                // All names share the prefix, so only the rest is compared to find the one that was meant.
                let own = |name: &'_ str| name.strip_prefix("ONCEFLOW_").unwrap_or_default().to_owned();
                let known: Vec<_> = variables.iter().map(String::as_str).chain(OTHERS).map(own).collect();
                if let Some(near) = nearest(&own(name), known.iter().map(String::as_str)) {
                    self.warnings.push(format!("warning: {name} is no setting; did you mean ONCEFLOW_{near}?"));
                }
            }
        }
    }
}

/// Reports a problem if no file has settings for the profile that is asked for.
fn known_profile(profile: &str, files: &[ConfigFile], problems: &mut Vec<Problem>) {
    let all: Vec<_> = files.iter().flat_map(|file| &file.profiles).map(String::as_str).collect();
    if all.contains(&profile) {
        return;
    }
    let hint = match nearest(profile, all.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if all.is_empty() => String::from("no onceflow.toml has a table [profile.NAME]"),
        None => format!("there is {}", all.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    problems.push(Problem::new(codes::CONFIG, format!("there is no profile `{profile}`")).hint(hint));
}

/// The paths where files may be: the nearest upwards, then the user's.
fn paths(here: &Path, env: &[(String, String)]) -> Vec<PathBuf> {
    let set = |name: &str| env.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value);
    let nearest = here.ancestors().map(|above| above.join(file::NAME)).find(|path| path.is_file());
    let base = set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| set("HOME").map(|home| Path::new(home).join(".config")));
    let users = base.map(|base| base.join("onceflow").join(file::NAME));
    let users = users.filter(|path| Some(path) != nearest.as_ref());
    nearest.into_iter().chain(users).collect()
}

/// Returns the text of a file; `None` if it does not exist.
fn open(path: &Path) -> Result<Option<String>, Fault> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::new(Exit::Usage, codes::CONFIG, format!("cannot read {}: {error}", path.display()))),
    }
}
