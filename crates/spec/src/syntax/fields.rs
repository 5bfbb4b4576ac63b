//! Reads the keys of maps: the caller asks for the keys it knows, problems are reported, and reading continues.

use super::{MapKey, NodeKind, YamlNode};
use crate::{
    problem::Diagnostics,
    source::{SourceFile, Span, Text},
    words,
};
use onceflow_core::model::SourceLocation;

/// A source of values, and the report for their problems.
#[derive(Clone, Copy)]
pub(crate) struct FieldReader<'a> {
    pub(crate) source: &'a SourceFile,
    pub(crate) report: &'a Diagnostics,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn say(&self, span: Span, code: &'static str, message: impl Into<String>, hint: impl Into<String>) {
        self.report.at(self.source, span, code, message, hint);
    }

    /// Returns the place of a span, as graphs carry it for later messages.
    pub(crate) fn origin(&self, span: Span) -> SourceLocation {
        let (line, column) = self.source.position(span.start());
        SourceLocation { file: self.source.file().into(), line, column }
    }

    fn wanted(&self, node: &YamlNode, what: &str, wanted: &str) {
        self.say(node.span, "OF0106", format!("{what} must be {wanted}, but {} stands here", node.found()), "");
    }

    /// Starts reading the keys of a map.
    pub(crate) fn fields(self, node: &'a YamlNode, what: impl Into<String>) -> Option<Fields<'a>> {
        let what = what.into();
        match &node.what {
            NodeKind::Map(entries) => Some(Fields {
                reader: self,
                span: node.span,
                what,
                left: entries.iter().map(|(key, value)| (key, value)).collect(),
                known: vec![],
            }),
            _ => {
                self.wanted(node, &what, "a map");
                None
            }
        }
    }

    /// Returns the entries of a map whose keys are the user's own.
    pub(crate) fn entries(self, node: &'a YamlNode, what: &str) -> &'a [(MapKey, YamlNode)] {
        match &node.what {
            NodeKind::Map(entries) => entries,
            _ if node.is_null() => &[],
            _ => {
                self.wanted(node, what, "a map");
                &[]
            }
        }
    }

    pub(crate) fn list(self, node: &'a YamlNode, what: &str) -> &'a [YamlNode] {
        match &node.what {
            NodeKind::List(items) => items,
            _ => {
                self.wanted(node, what, "a list");
                &[]
            }
        }
    }

    pub(crate) fn text(self, node: &YamlNode, what: &str) -> Option<Text> {
        let Some(text) = node.text() else {
            self.wanted(node, what, "a text");
            return None;
        };
        if text.text.contains('\0') {
            let hint =
                "no program, file or variable can have one; write the two characters `\\` and `0` in single quotes";
            self.say(node.span, "OF0140", format!("{what} has a NUL character in it"), hint);
            return None;
        }
        Some(text)
    }

    /// Reports a construct that is allowed but probably not intended.
    pub(crate) fn warn(&self, span: Span, message: impl Into<String>) {
        self.report.warn(self.source, span, message);
    }

    /// Reads one of these words.
    pub(crate) fn word(self, node: &YamlNode, what: &str, words: &[&'static str]) -> Option<&'static str> {
        let text = self.text(node, what)?;
        let found = words.iter().find(|word| **word == text.text).copied();
        if found.is_none() {
            let message = format!("{what} cannot be `{}`", clipped(&text.text));
            self.say(node.span, "OF0112", message, format!("it is one of {}", words::list(words.iter().copied())));
        }
        found
    }

    pub(crate) fn bool(self, node: &YamlNode, what: &str) -> Option<bool> {
        match node.to_json() {
            serde_json::Value::Bool(bool) => Some(bool),
            _ => {
                self.wanted_value(node, what, "true or false");
                None
            }
        }
    }

    pub(crate) fn int(self, node: &YamlNode, what: &str, least: i64, most: i64) -> Option<i64> {
        let Some(int) = node.to_json().as_i64() else {
            self.wanted_value(node, what, "a whole number");
            return None;
        };
        if !(least..=most).contains(&int) {
            let message = format!("{what} must be between {least} and {most}, not {int}");
            self.say(node.span, "OF0133", message, "");
            return None;
        }
        Some(int)
    }

    pub(crate) fn number(self, node: &YamlNode, what: &str) -> Option<f64> {
        let number = node.to_json().as_f64();
        if number.is_none() {
            self.wanted_value(node, what, "a number");
        }
        number
    }

    fn wanted_value(self, node: &YamlNode, what: &str, wanted: &str) {
        match node.text() {
            Some(text) => {
                let message = format!("{what} must be {wanted}, but `{}` stands here", clipped(&text.text));
                self.say(node.span, "OF0111", message, "");
            }
            None => self.wanted(node, what, wanted),
        }
    }

    pub(crate) fn duration(self, node: &YamlNode, what: &str) -> Option<u64> {
        let text = self.text(node, what)?;
        let ms = words::duration_ms(&text.text);
        if ms.is_none() {
            let message = format!("{what} cannot be `{}`", clipped(&text.text));
            self.say(node.span, "OF0111", message, words::DURATION_RULE);
        }
        ms
    }

    pub(crate) fn size(self, node: &YamlNode, what: &str) -> Option<u64> {
        let text = self.text(node, what)?;
        let bytes = words::size_bytes(&text.text);
        if bytes.is_none() {
            let message = format!("{what} cannot be `{}`", clipped(&text.text));
            self.say(node.span, "OF0111", message, words::SIZE_RULE);
        }
        bytes
    }

    /// Reports an invalid name of an input, an output or a field.
    pub(crate) fn member(self, name: &str, span: Span, what: &str) {
        if let Some(why) = words::bad_member(name) {
            self.say(span, "OF0108", format!("`{}` cannot be the name of {what}", clipped(name)), why);
        }
    }

    /// Reports an invalid name of a step or a variable.
    pub(crate) fn name(self, name: &str, span: Span, what: &str) {
        if let Some(why) = words::bad_name(name) {
            self.say(span, "OF0108", format!("`{}` cannot be the name of {what}", clipped(name)), why);
        }
    }
}

/// Shortens a text for a message.
pub(crate) fn clipped(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.chars().count() > 60 || line.len() < text.trim_end().len() {
        true => format!("{}…", line.chars().take(60).collect::<String>()),
        false => line.to_owned(),
    }
}

/// A map whose keys are known to the language.
pub(crate) struct Fields<'a> {
    pub(crate) reader: FieldReader<'a>,
    pub(crate) span: Span,
    what: String,
    left: Vec<(&'a MapKey, &'a YamlNode)>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, name: &'static str) -> Option<(&'a MapKey, &'a YamlNode)> {
        self.known.push(name);
        let at = self.left.iter().position(|(key, _)| key.name == name)?;
        Some(self.left.remove(at))
    }

    /// Returns the value of a key, unless it is missing or null.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<&'a YamlNode> {
        self.take(name).map(|(_, node)| node).filter(|node| !node.is_null())
    }

    /// Returns the value of a key without taking it.
    pub(crate) fn peek(&self, name: &str) -> Option<&'a YamlNode> {
        self.left.iter().find(|(key, _)| key.name == name).map(|(_, node)| *node)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(key, _)| key.name == name)
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<Text> {
        let reader = self.reader;
        self.take(name).and_then(|(_, node)| reader.text(node, &format!("`{name}`")))
    }

    pub(crate) fn missing(&self, what: &str, hint: &str) {
        self.reader.say(self.span, "OF0105", format!("{} has no {what}", self.what), hint);
    }

    /// Reports the remaining keys as unknown.
    pub(crate) fn finish(self) {
        for (key, _) in &self.left {
            let message = format!("{} has no key `{}`", self.what, clipped(&key.name));
            let mut known = self.known.clone();
            known.dedup();
            let hint = words::meant(&key.name, known.iter().copied());
            self.reader.say(key.span, "OF0104", message, hint);
        }
    }
}
