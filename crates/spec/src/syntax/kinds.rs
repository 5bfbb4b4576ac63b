//! The kind of a step: one of ten.

use super::{
    MapKey, NodeKind, YamlNode,
    fields::{FieldReader, Fields},
    http::{self, HttpDecl},
    scope::{self, ScopeDecl},
    step::{self, StepDecl},
};
use crate::{source::Text, words};

/// The kind of a step.
#[derive(Clone, Debug)]
pub(crate) enum StepKind {
    Run(Text),
    Script {
        interpreter: Vec<String>,
        code: Text,
    },
    Http(HttpDecl),
    /// Expressions by the names of outputs; one without a name belongs to the single output in `out`.
    Expr(Vec<(Option<MapKey>, Text)>),
    /// The name of an event.
    Wait(Text),
    Scope(Box<ScopeDecl>),
    Stream(StreamPlace),
    Flow(Text),
    Steps(Vec<StepDecl>),
    Choose(Vec<StepDecl>),
}

/// Where the stream of a step stands.
#[derive(Clone, Debug)]
pub(crate) enum StreamPlace {
    /// In a file of its own.
    File(Text),
    /// In the step.
    Here(YamlNode),
}

impl StepKind {
    /// The step has an action of its own.
    pub(crate) fn is_leaf(&self) -> bool {
        !matches!(self, StepKind::Flow(_) | StepKind::Steps(_) | StepKind::Choose(_))
    }
}

const KINDS: &[&str] = &["run", "script", "http", "expr", "wait", "scope", "stream", "flow", "steps", "choose"];

/// Reads the kind from the fields of a step; `None` after reporting a problem.
pub(crate) fn read(fields: &mut Fields<'_>, what: &str) -> Option<StepKind> {
    let reader = fields.reader;
    let mut found: Vec<_> = KINDS.iter().filter_map(|kind| fields.take(kind)).collect();
    let code = fields.take("code");
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(key, _)| key.name.as_str()).collect();
        let message = format!("{what} has {} at once", words::list(names));
        reader.say(found[1].0.span, "OF0113", message, "a step does one thing; make it two steps");
        return None;
    }
    let Some((key, node)) = found.pop() else {
        let hint = format!("it is one of {}", words::list(KINDS.iter().copied()));
        fields.missing("part that says what it does", &hint);
        return None;
    };
    if let (Some((code, _)), true) = (code, key.name != "script") {
        reader.say(
            code.span,
            "OF0113",
            format!("{what} has `code`, but no `script`"),
            "`script: python3` says what reads it",
        );
    }
    Some(match key.name.as_str() {
        "run" => StepKind::Run(reader.text(node, "`run`")?),
        "script" => StepKind::Script { interpreter: interpreter(reader, node)?, code: read_code(fields, code)? },
        "http" => StepKind::Http(http::read(reader, node)?),
        "expr" => StepKind::Expr(read_expr(reader, node)?),
        "wait" => StepKind::Wait(reader.text(node, "`wait`")?),
        "scope" => StepKind::Scope(Box::new(scope::read(reader, node, what)?)),
        "stream" if matches!(node.what, NodeKind::Map(_)) => StepKind::Stream(StreamPlace::Here(node.clone())),
        "stream" => StepKind::Stream(StreamPlace::File(reader.text(node, "`stream`")?)),
        "flow" => StepKind::Flow(reader.text(node, "`flow`")?),
        "steps" => StepKind::Steps(step::read_all(reader, node)),
        _ => StepKind::Choose(read_arms(reader, node, what)),
    })
}

/// Reads the interpreter of a script.
pub(super) fn interpreter(reader: FieldReader<'_>, node: &YamlNode) -> Option<Vec<String>> {
    let words: Vec<String> = match &node.what {
        NodeKind::List(_) => step::words_of(reader, node, "`script`").into_iter().map(|word| word.text).collect(),
        _ => {
            let text = reader.text(node, "`script`")?;
            if text.text.contains('\n') {
                let hint = "`script: python3`, and the code under `code:`";
                reader.say(node.span, "OF0106", "`script` names the interpreter", hint);
                return None;
            }
            text.text.split_whitespace().map(str::to_owned).collect()
        }
    };
    if words.is_empty() {
        reader.say(node.span, "OF0105", "`script` names no interpreter", "`script: python3`");
        return None;
    }
    Some(words)
}

/// Reads the code of a script.
pub(super) fn read_code(fields: &Fields<'_>, code: Option<(&MapKey, &YamlNode)>) -> Option<Text> {
    match code {
        Some((_, node)) => fields.reader.text(node, "`code`"),
        None => {
            fields.missing("`code`", "`script` names the interpreter, `code` is what it runs");
            None
        }
    }
}

fn read_expr(reader: FieldReader<'_>, node: &YamlNode) -> Option<Vec<(Option<MapKey>, Text)>> {
    if let NodeKind::Scalar(..) = node.what {
        return Some(vec![(None, reader.text(node, "`expr`")?)]);
    }
    let mut found = Vec::new();
    for (key, node) in reader.entries(node, "`expr`") {
        reader.member(&key.name, key.span, "an output");
        found.push((Some(key.clone()), reader.text(node, &format!("`{}`", key.name))?));
    }
    if found.is_empty() {
        reader.say(node.span, "OF0105", "`expr` computes nothing", "`expr: { total: a.n + b.n }`");
        return None;
    }
    Some(found)
}

fn read_arms(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> Vec<StepDecl> {
    let mut arms = Vec::new();
    let nodes = reader.list(node, "`choose`");
    for (at, node) in nodes.iter().enumerate() {
        let name = MapKey { name: format!("arm{}", at + 1), span: node.span };
        let label = format!("arm {} of {what}", at + 1);
        let Some(arm) = step::read(reader, &name, node, &label) else { continue };
        if arm.when.is_none() && at + 1 < nodes.len() {
            let message = format!("{label} has no `when`, so those after it are never taken");
            reader.say(arm.span, "OF0105", message, "only the last arm may do without");
        }
        if arm.each.is_some() || arm.attempt {
            let hint = "put it into `steps:` inside the arm";
            reader.say(arm.span, "OF0113", format!("{label} cannot have `each` or `attempt`"), hint);
        }
        arms.push(arm);
    }
    if nodes.is_empty() {
        reader.say(node.span, "OF0105", format!("{what} has no arms"), "`choose: [{ when: …, run: … }, { run: … }]`");
    }
    arms
}
