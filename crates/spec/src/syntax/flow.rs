//! A flow file as a whole: its inputs, its steps, its outputs, and its settings.

use super::{
    MapKey, NodeKind, YamlNode,
    fields::FieldReader,
    outs::{self, OutputDecl},
    step::{self, StepDecl},
};
use crate::{
    ResultsMode,
    source::{Span, Text},
    types::{self, TypeDecl},
};
use onceflow_exec::action::Shell;

/// The declarations of a flow file.
#[derive(Clone, Debug)]
pub(crate) struct FlowDecl {
    pub(crate) name: Text,
    pub(crate) description: Option<String>,
    pub(crate) inputs: Vec<InputDecl>,
    pub(crate) secrets: Vec<Text>,
    pub(crate) env: Vec<(MapKey, Text)>,
    pub(crate) shell: Option<Shell>,
    pub(crate) keep_ms: Option<u64>,
    pub(crate) history_ms: Option<u64>,
    pub(crate) finish_independent: bool,
    pub(crate) store_inputs: bool,
    pub(crate) results_mode: Option<ResultsMode>,
    pub(crate) steps: Vec<StepDecl>,
    pub(crate) outputs: Vec<OutputDecl>,
}

/// An input of a flow.
#[derive(Clone, Debug)]
pub(crate) struct InputDecl {
    pub(crate) name: MapKey,
    pub(crate) shape: TypeDecl,
    pub(crate) default: Option<YamlNode>,
    pub(crate) help: Option<String>,
}

/// Reads a flow from a tree; `None` if the tree is no flow at all.
pub(crate) fn read(reader: FieldReader<'_>, root: &YamlNode) -> Option<FlowDecl> {
    let mut fields = reader.fields(root, "a flow file")?;
    fields.span = Span::new(root.span.start(), root.span.start());
    let name = fields.text("flow");
    match &name {
        Some(name) => file_name(reader, name, "a flow"),
        None => fields.missing("name", "`flow: NAME` comes first"),
    }
    let on_failure = ["stop", "finish_independent"];
    let flow = FlowDecl {
        name: name.unwrap_or(Text { text: "flow".into(), span: root.span, style: crate::source::ScalarQuoting::Plain }),
        description: fields.text("description").map(|text| text.text),
        inputs: fields.get("inputs").map(|node| read_inputs(reader, node)).unwrap_or_default(),
        secrets: fields.get("secrets").map(|node| read_secrets(reader, node)).unwrap_or_default(),
        env: fields.get("env").map(|node| step::read_env(reader, node)).unwrap_or_default(),
        shell: fields.get("shell").and_then(|node| step::read_shell(reader, node)),
        keep_ms: fields.get("keep").and_then(|node| reader.duration(node, "`keep`")),
        history_ms: fields.get("history").and_then(|node| reader.duration(node, "`history`")),
        finish_independent: fields
            .get("on_failure")
            .and_then(|node| reader.word(node, "`on_failure`", &on_failure))
            .is_some_and(|word| word == "finish_independent"),
        store_inputs: fields.get("store_inputs").and_then(|node| reader.bool(node, "`store_inputs`")).unwrap_or(false),
        results_mode: fields
            .get("results_mode")
            .and_then(|node| reader.word(node, "`results_mode`", &ResultsMode::WORDS))
            .and_then(ResultsMode::of),
        steps: fields.get("steps").map(|node| step::read_all(reader, node)).unwrap_or_default(),
        outputs: fields.get("outputs").map(|node| outs::read_given(reader, node, "`outputs`")).unwrap_or_default(),
    };
    if flow.steps.is_empty() && flow.outputs.is_empty() && reader.report.is_empty() {
        fields.missing("steps", "`steps:` says what is done");
    }
    fields.finish();
    Some(flow)
}

/// Reports an invalid name of what a file declares.
pub(crate) fn file_name(reader: FieldReader<'_>, name: &Text, what: &str) {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if name.text.is_empty() || name.text.len() > 100 || !name.text.chars().all(plain) {
        let shown = super::fields::clipped(&name.text);
        let hint = "letters, digits, `_` and `-`, at most 100 of them";
        reader.say(name.span, "OF0108", format!("`{shown}` cannot be the name of {what}"), hint);
    }
}

pub(crate) fn read_secrets(reader: FieldReader<'_>, node: &YamlNode) -> Vec<Text> {
    let names = step::words_of(reader, node, "`secrets`");
    for name in &names {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if !name.text.chars().all(plain) || name.text.starts_with(|c: char| c.is_ascii_digit()) {
            let message = format!("`{}` cannot be the name of a secret", super::fields::clipped(&name.text));
            reader.say(name.span, "OF0108", message, "it names a variable of the environment, never the secret itself");
        }
    }
    names
}

pub(crate) fn read_inputs(reader: FieldReader<'_>, node: &YamlNode) -> Vec<InputDecl> {
    reader.entries(node, "`inputs`").iter().filter_map(|(key, node)| read_input(reader, key, node)).collect()
}

fn read_input(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode) -> Option<InputDecl> {
    reader.member(&name.name, name.span, "an input");
    const OWN: &[&str] = &["type", "enum", "default", "help", "optional"];
    let long = match &node.what {
        NodeKind::Map(entries) => entries.iter().any(|(key, _)| OWN.contains(&key.name.as_str())),
        _ => false,
    };
    if !long {
        if node.is_null() {
            let message = format!("input `{}` has no type", name.name);
            reader.say(name.span, "OF0105", message, format!("`{}: file`, for example", name.name));
            return Some(InputDecl { name: name.clone(), shape: TypeDecl::UNCLEAR, default: None, help: None });
        }
        let shape = types::read(reader, node).unwrap_or(TypeDecl::UNCLEAR);
        return Some(InputDecl { name: name.clone(), shape, default: None, help: None });
    }
    let mut fields = reader.fields(node, format!("input `{}`", name.name))?;
    let ty = fields.take("type").map(|(_, node)| types::read(reader, node));
    let choices = fields.get("enum").map(|node| (node.span, step::words_of(reader, node, "`enum`")));
    let default = fields.get("default").cloned();
    let help = fields.text("help").map(|text| text.text);
    let optional = fields.get("optional").and_then(|node| reader.bool(node, "`optional`")).unwrap_or(false);
    if ty.is_none() && choices.is_none() {
        fields.missing("`type`", "");
    }
    fields.finish();
    let shape = match (ty, choices) {
        (Some(ty), None) => ty.unwrap_or(TypeDecl::UNCLEAR),
        (ty, Some((span, words))) => {
            let text = TypeDecl::Plain(onceflow_core::model::Type::Text);
            if ty.flatten().is_some_and(|ty| *ty.required() != text) {
                reader.say(span, "OF0113", format!("input `{}` has choices, so it is text", name.name), "");
            }
            TypeDecl::Enum(words.into_iter().map(|word| word.text).collect())
        }
        (None, None) => TypeDecl::UNCLEAR,
    };
    let shape = if optional { shape.optional() } else { shape };
    Some(InputDecl { name: name.clone(), shape, default, help })
}
