//! Converts a tree or words to values of a type.

use super::{globs, read, sheet};
use crate::{
    Problem, SourceLocation, TypeDecl,
    limits::DATA_NODES_MAX,
    problem::Diagnostics,
    source::SourceFile,
    syntax::{self, NodeBudget, NodeKind, YamlNode, fields::clipped},
    words,
};
use onceflow_core::model::Type;
use onceflow_exec::value::{DirectoryValue, FileValue, PortValue};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The requirement that input files exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilePresence {
    /// Files must exist.
    AreThere,
    /// Named files may be gone; directories and patterns are read.
    MayBeGone,
    /// The file system is not consulted yet.
    AreNotLookedAt,
}

/// The settings of a conversion.
pub(crate) struct Convert<'a> {
    /// The directory that relative paths start from.
    pub(crate) base: &'a Path,
    /// The requirement that files exist.
    pub(crate) files: FilePresence,
    /// The purpose of the value, for messages.
    pub(crate) what: String,
}

/// The place of a value, for messages.
pub(super) struct ValueSite<'a> {
    /// Computed for a message only: a place in a long line takes long to find.
    pub(super) place: &'a dyn Fn() -> Option<SourceLocation>,
    pub(super) report: &'a Diagnostics,
}

impl ValueSite<'_> {
    pub(super) fn say(&self, code: &'static str, message: String, hint: String) -> Option<PortValue> {
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        self.report.push(Problem { code, message, place: (self.place)(), hint });
        None
    }
}

impl Convert<'_> {
    fn inside(&self, part: String) -> Convert<'_> {
        Convert { base: self.base, files: self.files, what: format!("{part} of {}", self.what) }
    }

    /// Converts words of a command line.
    pub(super) fn words(&self, given: &[&str], shape: &TypeDecl, report: &Diagnostics) -> Option<PortValue> {
        let at = ValueSite { place: &|| None, report };
        if let TypeDecl::List(element) = shape.required() {
            let whole = |word: &str| word.starts_with(['[', '@']) || sheet::record(shape).is_some();
            if !given.iter().any(|word| whole(word)) {
                let element_of = |word: &&str| self.elements(word, element, &at);
                let elements: Option<Vec<Vec<PortValue>>> = given.iter().map(element_of).collect();
                return elements.map(|elements| PortValue::List(elements.into_iter().flatten().collect()));
            }
        }
        match given {
            [word] => self.word(word, shape, &at),
            _ => at.say(
                "OF0211",
                format!("{} is given {} times", self.what, given.len()),
                "only a list takes several".into(),
            ),
        }
    }

    /// Converts one word to elements of a list: a pattern may match many files.
    fn elements(&self, word: &str, element: &TypeDecl, at: &ValueSite<'_>) -> Option<Vec<PortValue>> {
        match element.required() {
            TypeDecl::Plain(Type::File) => self.pattern(word, at),
            _ => self.word(word, element, at).map(|value| vec![value]),
        }
    }

    /// Converts one word.
    fn word(&self, word: &str, shape: &TypeDecl, at: &ValueSite<'_>) -> Option<PortValue> {
        if word.is_empty() && matches!(shape, TypeDecl::Option(_)) {
            return Some(PortValue::Null);
        }
        let shape = shape.required();
        if sheet::record(shape).is_some() && !word.starts_with('[') {
            return self.sheet(Path::new(word.strip_prefix('@').unwrap_or(word)), shape, at.report);
        }
        let is_path = matches!(shape, TypeDecl::Plain(Type::File | Type::Directory));
        if let (Some(path), false) = (word.strip_prefix('@'), is_path) {
            return self.content(Path::new(path), shape, at);
        }
        match shape {
            TypeDecl::List(_) | TypeDecl::Record(_) | TypeDecl::Plain(Type::Json) => {
                let source = SourceFile::new(self.what.clone(), word.to_owned());
                let tree = syntax::parse(&source, NodeBudget { nodes: DATA_NODES_MAX }, at.report)?;
                self.node(&tree, shape, &source, at.report)
            }
            _ => self.scalar(word, shape, at),
        }
    }

    /// Converts the content of a file.
    fn content(&self, path: &Path, shape: &TypeDecl, at: &ValueSite<'_>) -> Option<PortValue> {
        let source = read(&self.base.join(path), at.report)?;
        match shape {
            TypeDecl::Plain(Type::Text) => Some(PortValue::text(source.text())),
            TypeDecl::Plain(Type::Bytes) => Some(PortValue::Bytes(source.text().as_bytes().to_vec())),
            TypeDecl::List(_) | TypeDecl::Record(_) | TypeDecl::Plain(Type::Json) => {
                let tree = syntax::parse(&source, NodeBudget { nodes: DATA_NODES_MAX }, at.report)?;
                let base = path.parent().unwrap_or(Path::new("")).to_owned();
                let convert = Convert { base: &base, files: self.files, what: self.what.clone() };
                convert.node(&tree, shape, &source, at.report)
            }
            _ => self.scalar(source.text().trim(), shape, at),
        }
    }

    /// Reads a sample sheet as a list of records.
    pub(super) fn sheet(&self, path: &Path, shape: &TypeDecl, report: &Diagnostics) -> Option<PortValue> {
        let path = self.base.join(path);
        let source = read(&path, report)?;
        let base = path.parent().unwrap_or(Path::new("")).to_owned();
        let convert = Convert { base: &base, files: self.files, what: self.what.clone() };
        if sheet::is_sheet(&path) {
            return sheet::read(&convert, &source, sheet::record(shape)?, report);
        }
        let tree = syntax::parse(&source, NodeBudget { nodes: DATA_NODES_MAX }, report)?;
        convert.node(&tree, shape, &source, report)
    }

    /// Converts a node of a tree.
    pub(crate) fn node(
        &self,
        node: &YamlNode,
        shape: &TypeDecl,
        source: &SourceFile,
        report: &Diagnostics,
    ) -> Option<PortValue> {
        let at = ValueSite { place: &|| Some(source.place(node.span)), report };
        if node.is_null() {
            return match shape {
                TypeDecl::Option(_) => Some(PortValue::Null),
                TypeDecl::Plain(Type::Json | Type::Unit) => Some(PortValue::Null),
                _ => at.say(
                    "OF0203",
                    format!("{} must be {}, but nothing is given", self.what, shape.ty()),
                    String::new(),
                ),
            };
        }
        let shape = shape.required();
        match (shape, &node.what) {
            (TypeDecl::Plain(Type::Json), _) => PortValue::from_json(node.to_json(), &Type::Json).ok(),
            (TypeDecl::List(element), NodeKind::List(items)) => {
                let item = |(at, item)| self.inside(format!("element {at}")).node(item, element, source, report);
                let items: Vec<_> = items.iter().enumerate().map(item).collect();
                items.into_iter().collect::<Option<_>>().map(PortValue::List)
            }
            (TypeDecl::List(_), NodeKind::Scalar(text, _)) if sheet::record(shape).is_some() => {
                self.sheet(Path::new(&**text), shape, report)
            }
            (TypeDecl::List(element), NodeKind::Scalar(text, _)) if element.ty() == Type::File => {
                self.pattern(text, &at).map(PortValue::List)
            }
            (TypeDecl::Record(fields), NodeKind::Map(entries)) => self.record(node, fields, entries, source, report),
            (TypeDecl::List(_) | TypeDecl::Record(_), _) | (_, NodeKind::List(_) | NodeKind::Map(_)) => {
                let message = format!("{} must be {}, but {} is given", self.what, shape.ty(), node.found());
                at.say("OF0203", message, String::new())
            }
            (_, NodeKind::Scalar(text, _)) => self.scalar(text, shape, &at),
        }
    }

    fn record(
        &self,
        node: &YamlNode,
        fields: &BTreeMap<String, TypeDecl>,
        entries: &[(syntax::MapKey, YamlNode)],
        source: &SourceFile,
        report: &Diagnostics,
    ) -> Option<PortValue> {
        let mut found = BTreeMap::new();
        for (key, value) in entries {
            let Some(shape) = fields.get(&key.name) else {
                let at = ValueSite { place: &|| Some(source.place(key.span)), report };
                let hint = words::meant(&key.name, fields.keys().map(String::as_str));
                at.say("OF0203", format!("{} has no field `{}`", self.what, clipped(&key.name)), hint);
                continue;
            };
            let value = self.inside(format!("`{}`", key.name)).node(value, shape, source, report)?;
            found.insert(key.name.clone(), value);
        }
        for (name, shape) in fields {
            if found.contains_key(name) {
                continue;
            }
            if !matches!(shape, TypeDecl::Option(_)) {
                let at = ValueSite { place: &|| Some(source.place(node.span)), report };
                return at.say(
                    "OF0203",
                    format!("{} has no `{name}`, which is {}", self.what, shape.ty()),
                    String::new(),
                );
            }
            found.insert(name.clone(), PortValue::Null);
        }
        (found.len() == fields.len()).then_some(PortValue::Record(found))
    }

    /// Converts a text to a value that is not composed of others.
    pub(super) fn scalar(&self, text: &str, shape: &TypeDecl, at: &ValueSite<'_>) -> Option<PortValue> {
        let wrong = |hint: &str| {
            let message = format!("{} must be {}, but `{}` is given", self.what, shape.ty(), clipped(text));
            at.say("OF0203", message, hint.to_owned())
        };
        match shape {
            TypeDecl::Enum(choices) if !choices.iter().any(|choice| choice == text) => {
                let message = format!("{} cannot be `{}`", self.what, clipped(text));
                at.say("OF0206", message, format!("it is one of {}", words::list(choices.iter().map(String::as_str))))
            }
            TypeDecl::Enum(_) | TypeDecl::Plain(Type::Text) => Some(PortValue::text(text)),
            TypeDecl::Plain(Type::Int) => text.trim().parse().ok().map(PortValue::Int).or_else(|| wrong("")),
            TypeDecl::Plain(Type::Float) => match text.trim().parse::<f64>() {
                Ok(float) if float.is_finite() => Some(PortValue::Float(float)),
                _ => wrong(""),
            },
            TypeDecl::Plain(Type::Bool) => match text.trim() {
                "true" => Some(PortValue::Bool(true)),
                "false" => Some(PortValue::Bool(false)),
                _ => wrong("`true` or `false`"),
            },
            TypeDecl::Plain(Type::Bytes) => Some(PortValue::Bytes(text.as_bytes().to_vec())),
            TypeDecl::Plain(Type::File) => self.file(text, at),
            TypeDecl::Plain(Type::Directory) => self.directory(text, at),
            TypeDecl::Plain(Type::Unit) => Some(PortValue::Null),
            TypeDecl::Option(inner) if text.is_empty() && inner.ty() != Type::Text => Some(PortValue::Null),
            TypeDecl::Option(inner) => self.scalar(text, inner, at),
            TypeDecl::Plain(_) | TypeDecl::List(_) | TypeDecl::Record(_) => {
                let source = SourceFile::new(self.what.clone(), text.to_owned());
                let tree = syntax::parse(&source, NodeBudget { nodes: DATA_NODES_MAX }, at.report)?;
                self.node(&tree, shape, &source, at.report)
            }
        }
    }

    fn path(&self, text: &str) -> PathBuf {
        let joined = self.base.join(text);
        std::path::absolute(&joined).unwrap_or(joined)
    }

    fn file(&self, text: &str, at: &ValueSite<'_>) -> Option<PortValue> {
        let path = self.path(text);
        if self.files != FilePresence::AreNotLookedAt && !path.exists() && globs::is_pattern(text) {
            let mut files = self.pattern(text, at)?;
            if files.len() == 1 {
                return files.pop();
            }
            let message = format!("{} is one file, but `{text}` matches {}", self.what, files.len());
            return at.say("OF0203", message, String::new());
        }
        let is_gone = self.files == FilePresence::MayBeGone && !path.exists();
        if self.files != FilePresence::AreNotLookedAt && !path.is_file() && !is_gone {
            let what = match (path.is_dir(), path.exists()) {
                (true, _) => "is a directory",
                (false, true) => "is a pipe or a device, not a regular file",
                (false, false) => "is not there",
            };
            return at.say("OF0204", format!("{}: the file `{text}` {what}", self.what), self.where_from(text));
        }
        match FileValue::from_path(path) {
            Ok(file) => Some(file.into()),
            Err(wrong) => at.say("OF0203", format!("{}: {wrong}", self.what), String::new()),
        }
    }

    fn where_from(&self, text: &str) -> String {
        match self.base.as_os_str().is_empty() || Path::new(text).is_absolute() {
            true => String::new(),
            false => format!("paths here are relative to {}", self.base.display()),
        }
    }

    fn directory(&self, text: &str, at: &ValueSite<'_>) -> Option<PortValue> {
        let path = self.path(text);
        if self.files == FilePresence::AreNotLookedAt {
            return Some(DirectoryValue { path, files: vec![] }.into());
        }
        if !path.is_dir() {
            let what = if path.exists() { "is not a directory" } else { "is not there" };
            return at.say("OF0204", format!("{}: the directory `{text}` {what}", self.what), self.where_from(text));
        }
        match DirectoryValue::read(path) {
            Ok(directory) => Some(directory.into()),
            Err(error) => at.say("OF0204", format!("{}: `{text}` cannot be read: {error}", self.what), String::new()),
        }
    }

    /// Returns the files that a path or a pattern matches, in the order of their names.
    fn pattern(&self, text: &str, at: &ValueSite<'_>) -> Option<Vec<PortValue>> {
        if !globs::is_pattern(text) || self.path(text).exists() {
            return self.file(text, at).map(|file| vec![file]);
        }
        match globs::find(self.base, text) {
            Ok(files) if files.is_empty() && self.files != FilePresence::AreNotLookedAt => {
                at.say("OF0205", format!("{}: no file matches `{text}`", self.what), self.where_from(text));
                None
            }
            Ok(files) => files.iter().map(|path| self.file(&path.to_string_lossy(), at)).collect(),
            Err(why) => {
                at.say("OF0205", format!("{}: `{text}` is not a pattern: {why}", self.what), String::new());
                None
            }
        }
    }
}
