//! Texts with holes: each hole is an expression, and what it refers to becomes an input of the one task the texts are of.

use super::references::{Allowed, References};
use crate::{
    source::Text,
    syntax::{NodeKind, YamlNode},
};
use onceflow_core::model::{Endpoint, Port, SourceLocation, Type};
use onceflow_exec::{
    action::{JsonTemplate, Shell, Template, TemplatePart},
    shell, template,
};
use std::ops::Range;

/// A value that a task takes as an input.
#[derive(Clone, Debug)]
pub(super) struct Take {
    /// Its path; the port is this joined with `-`.
    pub(super) path: Vec<String>,
    pub(super) ty: Type,
    pub(super) from: Endpoint,
    pub(super) origin: SourceLocation,
}

/// All inputs of a task, each once, in order of appearance.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskInputs {
    pub(super) all: Vec<Take>,
    pub(super) secrets: Vec<String>,
}

impl Take {
    pub(super) fn port(&self) -> String {
        self.path.join("-")
    }
}

impl TaskInputs {
    pub(super) fn add(&mut self, take: Take) {
        if !self.all.iter().any(|other| other.path == take.path) {
            self.all.push(take);
        }
    }

    pub(super) fn secret(&mut self, name: &str) {
        if !self.secrets.iter().any(|other| other == name) {
            self.secrets.push(name.to_owned());
        }
    }

    pub(super) fn ports(&self) -> Vec<Port> {
        self.all.iter().map(|take| Port::new(take.port(), take.ty.clone())).collect()
    }
}

/// The texts of one task, and the inputs they were found to take.
pub(super) struct TaskTexts<'r> {
    pub(super) references: References<'r>,
    pub(super) takes: &'r mut TaskInputs,
}

impl TaskTexts<'_> {
    /// Parses a text with holes and resolves the references of every hole.
    pub(super) fn template(&mut self, text: &Text, allowed: Allowed<'_>) -> Template {
        let parsed = match template::parse(&text.text) {
            Ok(parsed) => parsed,
            Err(wrong) => {
                for wrong in wrong {
                    let span = self.references.reader.source.inside(text, wrong.span);
                    self.references.reader.say(span, "OF0114", wrong.message, wrong.hint.unwrap_or_default());
                }
                return Template::default();
            }
        };
        let mut parts = Vec::new();
        for (part, span) in parsed.template.0.into_iter().zip(parsed.spans) {
            parts.push(match part {
                TemplatePart::Text(text) => TemplatePart::Text(text),
                TemplatePart::Hole(source) => TemplatePart::Hole(self.hole(text, span, allowed).unwrap_or(source)),
            });
        }
        Template(parts)
    }

    /// Resolves the expression at `range` of a text, whose references become inputs.
    pub(super) fn hole(&mut self, text: &Text, range: Range<usize>, allowed: Allowed<'_>) -> Option<String> {
        let bound = self.references.bind(text, range, allowed)?;
        bound.takes.all.into_iter().for_each(|take| self.takes.add(take));
        bound.takes.secrets.iter().for_each(|secret| self.takes.secret(secret));
        Some(bound.source)
    }

    /// Reads a JSON value whose texts may have holes.
    pub(super) fn json(&mut self, node: &YamlNode, allowed: Allowed<'_>) -> JsonTemplate {
        match &node.what {
            NodeKind::List(items) => JsonTemplate::List(items.iter().map(|item| self.json(item, allowed)).collect()),
            NodeKind::Map(entries) => {
                let field = |(key, value): &(_, YamlNode)| -> (String, JsonTemplate) {
                    let key: &crate::syntax::MapKey = key;
                    (key.name.clone(), self.json(value, allowed))
                };
                JsonTemplate::Record(entries.iter().map(field).collect())
            }
            NodeKind::Scalar(..) => match (node.to_json(), node.text()) {
                (serde_json::Value::String(_), Some(text)) => JsonTemplate::Text(self.template(&text, allowed)),
                (json, _) => JsonTemplate::Literal(json),
            },
        }
    }

    /// Reports holes at places of the shell's text where no value can go.
    pub(super) fn check_shell(&self, text: &Text, bound: &Template, shell: &Shell) {
        let (Ok(parsed), Err(refused)) = (template::parse(&text.text), shell::scan(bound, shell.dialect())) else {
            return;
        };
        for refused in refused {
            let span = parsed.spans.get(refused.part).cloned().unwrap_or(0..text.text.len());
            self.references.reader.say(
                self.references.reader.source.inside(text, span),
                "OF0119",
                refused.message,
                refused.hint,
            );
        }
    }
}
