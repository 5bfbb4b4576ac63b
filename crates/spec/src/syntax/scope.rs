//! Reads a scope: buffers, operations with their targets, cleanup flows.

use super::{MapKey, NodeKind, YamlNode, fields::FieldReader, fields::clipped, step::words_of};
use crate::{source::Span, source::Text, words};
use onceflow_exec::action::{CleanupOn, KeepEntries};

/// A declared scope.
#[derive(Clone, Debug)]
pub(crate) struct ScopeDecl {
    pub(crate) span: Span,
    pub(crate) start: Option<TargetDecl>,
    pub(crate) buffers: Vec<(MapKey, KeepEntries)>,
    pub(crate) ops: Vec<OpDecl>,
    pub(crate) cleanups: Vec<CleanupDecl>,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) rounds_max: Option<u32>,
}

/// A declared operation.
#[derive(Clone, Debug)]
pub(crate) struct OpDecl {
    pub(crate) name: MapKey,
    pub(crate) work: OpWork,
    pub(crate) next: Option<TargetDecl>,
    pub(crate) other: Option<TargetDecl>,
}

/// The work of an operation.
#[derive(Clone, Debug)]
pub(crate) enum OpWork {
    Run(Text),
    Expr(Text),
    When(Text),
    Spread(Text),
    Collect { min: u32, max: Option<u32> },
    Join(Vec<Text>),
    Listen(Vec<Text>),
    Split(Vec<(MapKey, TargetDecl)>),
    Open(Vec<Text>),
    Close(Vec<Text>),
    Sleep(u64),
}

/// Where a message goes.
#[derive(Clone, Debug)]
pub(crate) enum TargetDecl {
    Name(Text),
    Push(Text),
    Stream(Text),
    All(Vec<TargetDecl>),
}

/// A declared cleanup flow.
#[derive(Clone, Debug)]
pub(crate) struct CleanupDecl {
    pub(crate) name: MapKey,
    pub(crate) on: CleanupOn,
    pub(crate) with: Vec<Text>,
    pub(crate) run: Text,
    pub(crate) timeout_ms: Option<u64>,
}

/// The kinds of operations.
pub(crate) const OP_KINDS: &[&str] =
    &["run", "expr", "when", "spread", "collect", "join", "listen", "split", "open", "close", "sleep"];

/// Kinds that scopes in Rust have, and those in files do not have yet.
const ONLY_IN_RUST: &[&str] =
    &["flow", "call", "scope", "script", "http", "steps", "access", "trim", "gate", "watch", "inject", "buffer"];

pub(crate) fn read(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> Option<ScopeDecl> {
    let mut fields = reader.fields(node, format!("the scope of {what}"))?;
    let start = match fields.get("start") {
        Some(node) => read_target(reader, node, "`start`"),
        None => {
            fields.missing("`start`", "it names the operation that gets the first message");
            None
        }
    };
    let buffers = fields.get("buffers").map(|node| read_buffers(reader, node)).unwrap_or_default();
    let ops = fields.get("ops").map(|node| reader.entries(node, "`ops`")).unwrap_or_default();
    let ops = ops.iter().filter_map(|(name, node)| read_op(reader, name, node)).collect();
    let cleanups = fields.get("cleanup").map(|node| reader.entries(node, "`cleanup`")).unwrap_or_default();
    let cleanups = cleanups.iter().filter_map(|(name, node)| read_cleanup(reader, name, node)).collect();
    let deadline_ms = fields.get("deadline").and_then(|node| reader.duration(node, "`deadline`"));
    let rounds = fields.get("rounds_max").and_then(|node| reader.int(node, "`rounds_max`", 1, i64::from(u32::MAX)));
    let rounds_max = rounds.and_then(|rounds| u32::try_from(rounds).ok());
    fields.finish();
    Some(ScopeDecl { span: node.span, start, buffers, ops, cleanups, deadline_ms, rounds_max })
}

fn read_buffers(reader: FieldReader<'_>, node: &YamlNode) -> Vec<(MapKey, KeepEntries)> {
    let mut found = Vec::new();
    for (name, node) in reader.entries(node, "`buffers`") {
        reader.name(&name.name, name.span, "a buffer");
        let mut keep = KeepEntries::All;
        if !node.is_null()
            && let Some(mut fields) = reader.fields(node, format!("buffer `{}`", name.name))
        {
            keep = fields.text("keep").and_then(|text| read_keep(reader, &text)).unwrap_or(keep);
            fields.finish();
        }
        found.push((name.clone(), keep));
    }
    found
}

fn read_keep(reader: FieldReader<'_>, text: &Text) -> Option<KeepEntries> {
    let number = |rest: &str| rest.trim().parse().ok().filter(|number: &u32| *number > 0);
    let keep = match text.text.trim() {
        "all" => Some(KeepEntries::All),
        word if word.starts_with("last ") => number(&word[5..]).map(KeepEntries::Last),
        word if word.starts_with("first ") => number(&word[6..]).map(KeepEntries::First),
        _ => None,
    };
    if keep.is_none() {
        let message = format!("`keep` cannot be `{}`", clipped(&text.text));
        reader.say(text.span, "OF0112", message, "it is `all`, `last 3` or `first 3`");
    }
    keep
}

fn read_target(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> Option<TargetDecl> {
    match &node.what {
        NodeKind::List(items) => {
            let targets: Vec<_> = items.iter().filter_map(|item| read_target(reader, item, what)).collect();
            if items.is_empty() {
                reader.say(node.span, "OF0105", format!("{what} leads nowhere"), "`dispose` says so on purpose");
            }
            (!targets.is_empty()).then_some(TargetDecl::All(targets))
        }
        NodeKind::Map(_) => {
            let mut fields = reader.fields(node, what)?;
            let (push, stream) = (fields.text("push"), fields.text("stream"));
            let target = match (push, stream) {
                (Some(buffer), None) => Some(TargetDecl::Push(buffer)),
                (None, Some(stream)) => Some(TargetDecl::Stream(stream)),
                _ => {
                    let hint = "`{ push: BUFFER }` or `{ stream: NAME }`";
                    reader.say(node.span, "OF0106", format!("{what} cannot be understood"), hint);
                    None
                }
            };
            fields.finish();
            target
        }
        NodeKind::Scalar(..) => reader.text(node, what).map(TargetDecl::Name),
    }
}

fn read_op(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode) -> Option<OpDecl> {
    reader.name(&name.name, name.span, "an operation");
    let what = format!("operation `{}`", name.name);
    let mut fields = reader.fields(node, what.clone())?;
    fields.span = name.span;
    let refused: Vec<_> = ONLY_IN_RUST.iter().copied().filter(|kind| fields.has(kind)).collect();
    let mut found: Vec<_> = OP_KINDS.iter().filter_map(|kind| fields.take(kind)).collect();
    if !refused.is_empty() {
        let message = format!("{what} has {}, which scopes in flow files do not have yet", words::list(refused));
        let hint = format!("it is one of {}", words::list(OP_KINDS.iter().copied()));
        reader.say(name.span, "OF0142", message, hint);
        return None;
    }
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(key, _)| key.name.as_str()).collect();
        let message = format!("{what} has {} at once", words::list(names));
        reader.say(found[1].0.span, "OF0113", message, "an operation does one thing; make it two");
        return None;
    }
    let Some((kind, node)) = found.pop() else {
        let hint = format!("it is one of {}", words::list(OP_KINDS.iter().copied()));
        fields.missing("part that says what it does", &hint);
        return None;
    };
    let (next_key, other_key): (&'static str, Option<&'static str>) = match kind.name.as_str() {
        "run" => ("next", Some("err")),
        "when" => ("then", Some("else")),
        "split" => ("next", Some("rest")),
        _ => ("next", None),
    };
    let mut target = |key: &'static str| -> Option<TargetDecl> {
        fields.get(key).and_then(|node| read_target(reader, node, &format!("`{key}` of {what}")))
    };
    let next = target(next_key);
    let other = other_key.and_then(target);
    let work = read_work(reader, kind, node);
    if let (Some(OpWork::Split(_)), Some(_)) = (&work, &next) {
        reader.say(
            name.span,
            "OF0113",
            format!("{what} has `next`, but each part says where it goes"),
            "`rest` is for the others",
        );
    }
    let leads = next.is_some() || matches!(work, Some(OpWork::Split(_)) | None);
    if !leads {
        fields.missing(&format!("`{next_key}`"), "it says where the message goes; `dispose` is nowhere");
    }
    fields.finish();
    Some(OpDecl { name: name.clone(), work: work?, next, other })
}

fn read_work(reader: FieldReader<'_>, kind: &MapKey, node: &YamlNode) -> Option<OpWork> {
    let what = format!("`{}`", kind.name);
    Some(match kind.name.as_str() {
        "run" => OpWork::Run(reader.text(node, &what)?),
        "expr" => OpWork::Expr(reader.text(node, &what)?),
        "when" => OpWork::When(reader.text(node, &what)?),
        "spread" => OpWork::Spread(reader.text(node, &what)?),
        "join" => OpWork::Join(words_of(reader, node, &what)),
        "listen" => OpWork::Listen(words_of(reader, node, &what)),
        "open" => OpWork::Open(words_of(reader, node, &what)),
        "close" => OpWork::Close(words_of(reader, node, &what)),
        "sleep" => OpWork::Sleep(reader.duration(node, &what)?),
        "split" => {
            let parts = reader.entries(node, &what).iter();
            let part = |(key, node): &(MapKey, YamlNode)| {
                Some((key.clone(), read_target(reader, node, &format!("part `{}`", key.name))?))
            };
            OpWork::Split(parts.filter_map(part).collect())
        }
        _ => {
            let mut fields = reader.fields(node, what)?;
            let mut number = |name: &'static str| {
                let number = fields.get(name).and_then(|node| reader.int(node, &format!("`{name}`"), 0, 1_000_000));
                number.and_then(|number| u32::try_from(number).ok())
            };
            let (min, max) = (number("min").unwrap_or(0), number("max"));
            fields.finish();
            OpWork::Collect { min, max }
        }
    })
}

fn read_cleanup(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode) -> Option<CleanupDecl> {
    reader.name(&name.name, name.span, "a cleanup flow");
    let what = format!("cleanup `{}`", name.name);
    let mut fields = reader.fields(node, what)?;
    fields.span = name.span;
    let on = match fields.get("on") {
        Some(node) => reader.word(node, "`on`", &["cancel", "terminate", "either"]),
        None => Some("either"),
    };
    let with = fields.get("with").map(|node| words_of(reader, node, "`with`")).unwrap_or_default();
    let timeout_ms = fields.get("timeout").and_then(|node| reader.duration(node, "`timeout`"));
    let run = fields.text("run");
    if run.is_none() && !fields.has("run") {
        fields.missing("`run`", "a cleanup flow in a file is one command");
    }
    fields.finish();
    let on = match on? {
        "cancel" => CleanupOn::Cancel,
        "terminate" => CleanupOn::Terminate,
        _ => CleanupOn::Either,
    };
    Some(CleanupDecl { name: name.clone(), on, with, run: run?, timeout_ms })
}
