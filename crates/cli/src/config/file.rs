//! Parses one `onceflow.toml`: its settings, each with its position, and all of its problems at once.

use super::settings::{self, Setting, SettingKind};
use crate::codes;
use onceflow_spec::{Problem, SourceLocation};
use onceflow_store::store::StoreUrl;
use serde_json::{Value, json};
use std::{
    ops::Range,
    path::{Path, PathBuf},
};
use toml_edit::{Document, Item, TableLike};

/// The name of the file.
pub(crate) const NAME: &str = "onceflow.toml";

/// The value a file gives one setting.
#[derive(Clone, Debug)]
pub(crate) struct FileSetting {
    pub(crate) setting: &'static str,
    pub(crate) value: Value,
    /// The profile whose table has it; `None` if it holds for all.
    pub(crate) profile: Option<String>,
    pub(crate) line: u32,
}

/// A file that was read.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) said: Vec<FileSetting>,
    pub(crate) profiles: Vec<String>,
}

/// Reads a file; problems are added to `problems`.
pub(crate) fn read(path: &Path, text: &str, problems: &mut Vec<Problem>) -> ConfigFile {
    let mut file = ConfigFile { path: path.to_owned(), said: vec![], profiles: vec![] };
    let mut reading = ConfigParser { name: path.display().to_string(), text, problems };
    match Document::parse(text) {
        Err(error) => reading.wrong(error.span(), error.message().trim().replace('\n', ", "), None),
        Ok(document) => reading.table(document.as_table(), "", None, &mut file),
    }
    file
}

struct ConfigParser<'a> {
    name: String,
    text: &'a str,
    problems: &'a mut Vec<Problem>,
}

impl ConfigParser<'_> {
    fn table(&mut self, table: &dyn TableLike, inside: &str, profile: Option<&str>, file: &mut ConfigFile) {
        for (word, item) in table.iter() {
            let span = table.key(word).and_then(toml_edit::Key::span);
            let name = if inside.is_empty() { word.to_owned() } else { format!("{inside}.{word}") };
            if inside.is_empty() && profile.is_none() && word == "profile" {
                self.profiles(item, span, file);
            } else if let Some(setting) = settings::find(&name) {
                self.setting(setting, item, profile, file);
            } else if !settings::names_in(&name).is_empty() {
                match item.as_table_like() {
                    Some(table) => self.table(table, &name, profile, file),
                    None => self.wrong(item.span().or(span), format!("`{name}` is a table"), Some(format!("[{name}]"))),
                }
            } else {
                let of = profile.map_or(String::new(), |profile| format!("profile.{profile}."));
                let hint = settings::meant(word, inside);
                self.wrong(span, format!("there is no setting `{of}{name}`"), Some(hint));
            }
        }
    }

    fn profiles(&mut self, item: &Item, span: Option<Range<usize>>, file: &mut ConfigFile) {
        let Some(table) = item.as_table_like() else {
            let hint = String::from("[profile.NAME], and then `--profile NAME`");
            return self.wrong(item.span().or(span), String::from("`profile` is a table of profiles"), Some(hint));
        };
        for (name, item) in table.iter() {
            match item.as_table_like() {
                Some(settings) => {
                    file.profiles.push(name.to_owned());
                    self.table(settings, "", Some(name), file);
                }
                None => {
                    let span = table.key(name).and_then(toml_edit::Key::span).or(item.span());
                    self.wrong(span, format!("profile `{name}` is a table"), Some(format!("[profile.{name}]")));
                }
            }
        }
    }

    fn setting(&mut self, setting: &'static Setting, item: &Item, profile: Option<&str>, file: &mut ConfigFile) {
        match value(setting.kind, item) {
            Some(value) => {
                let value = match (setting.kind, value.as_str()) {
                    // A relative directory is relative to the file that names it.
                    (SettingKind::Path, Some(path)) => json!(beside(&file.path, path)),
                    (SettingKind::Store, Some(url)) => {
                        let base = file.path.parent().unwrap_or(Path::new(""));
                        json!(StoreUrl::parse(Path::new(url)).below(base).to_string())
                    }
                    _ => value,
                };
                let line = self.place(item.span()).line;
                file.said.push(FileSetting { setting: setting.name, value, profile: profile.map(str::to_owned), line });
            }
            None => {
                let message = format!("`{}` cannot be this: {}", setting.name, setting.kind.rule());
                self.wrong(item.span(), message, None);
            }
        }
    }

    fn wrong(&mut self, span: Option<Range<usize>>, message: String, hint: Option<String>) {
        let place = Some(self.place(span));
        self.problems.push(Problem { code: codes::CONFIG, message, place, hint });
    }

    fn place(&self, span: Option<Range<usize>>) -> SourceLocation {
        let span = span.unwrap_or(0..0);
        let start = self.text.floor_char_boundary(span.start.min(self.text.len()));
        let end = self.text.floor_char_boundary(span.end.clamp(start, self.text.len()));
        let before = &self.text[..start];
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let source_line = self.text[begin..].lines().next().unwrap_or_default().to_owned();
        let count = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        SourceLocation {
            file: self.name.clone(),
            line: count(&before.chars().filter(|letter| *letter == '\n').collect::<String>()) + 1,
            column: count(&self.text[begin..start]) + 1,
            len: count(self.text[start..end].lines().next().unwrap_or_default()).max(1),
            source_line,
        }
    }
}

/// Returns a setting's value as data; `None` if it is not of its kind.
fn value(kind: SettingKind, item: &Item) -> Option<Value> {
    let text = match kind {
        SettingKind::Labels => {
            let labels: Option<Vec<_>> = item.as_array()?.iter().map(|label| label.as_str()).collect();
            let labels = labels?;
            return labels.iter().all(|label| onceflow_spec::is_label(label)).then(|| json!(labels));
        }
        SettingKind::Paths => {
            let paths: Option<Vec<_>> = item.as_array()?.iter().map(|path| path.as_str()).collect();
            let paths = paths?;
            return paths.iter().all(|path| path.starts_with('/')).then(|| json!(paths));
        }
        SettingKind::Bool => return item.as_bool().map(|it| json!(it)),
        SettingKind::Jobs => item.as_integer()?.to_string(),
        SettingKind::Processors => {
            item.as_integer().map(|it| it.to_string()).or_else(|| item.as_float().map(|it| it.to_string()))?
        }
        SettingKind::Time if item.as_integer() == Some(0) => String::from("0"),
        SettingKind::Store
        | SettingKind::Path
        | SettingKind::Time
        | SettingKind::Size
        | SettingKind::Color
        | SettingKind::ResultsMode => item.as_str()?.to_owned(),
    };
    kind.read(&text).ok()
}

/// Resolves a path against the directory of a file.
fn beside(file: &Path, path: &str) -> String {
    let directory = file.parent().unwrap_or(Path::new(""));
    directory.join(path).display().to_string()
}
