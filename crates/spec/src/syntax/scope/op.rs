//! Reads an operation: its work, and where its messages go.

use super::{
    DeliveryDecl, OpDecl, OpWork, TASK_KINDS, TargetDecl, TaskDecl, TrimDecl, read_target, read_task, take_task,
};
use crate::{
    source::Text,
    syntax::{
        MapKey, NodeKind, YamlNode,
        fields::{FieldReader, Fields},
        step::words_of,
    },
    words,
};

/// The kinds of operations.
pub(crate) const OP_KINDS: &[&str] = &[
    "run", "script", "http", "call", "scope", "inject", "expr", "when", "match", "spread", "collect", "join", "listen",
    "access", "push", "split", "unzip", "open", "close", "gate", "trim", "watch", "sleep", "wait",
];

/// Words of other languages for kinds of ours.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("flow", "`call: FILE` runs the flow of a file for each message"),
    ("steps", "`scope:` nests operations"),
    ("buffer", "`buffers:` of the scope declares it"),
];

pub(super) fn read(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode) -> Option<OpDecl> {
    reader.name(&name.name, name.span, "an operation");
    let what = format!("operation `{}`", name.name);
    let mut fields = reader.fields(node, what.clone())?;
    fields.span = name.span;
    let mut found: Vec<_> = OP_KINDS.iter().filter_map(|kind| fields.take(kind)).collect();
    if let Some((word, hint)) = OTHER_WORDS.iter().find(|(word, _)| fields.has(word)) {
        let message = format!("{what} has `{word}`, which operations of scopes do not have");
        reader.say(name.span, "OF0142", message, *hint);
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
    let kind = kind.name.as_str();
    let targets = Targets::of(kind);
    let mut target = |key: &'static str| -> Option<TargetDecl> {
        fields.get(key).and_then(|node| read_target(reader, node, &format!("`{key}` of {what}")))
    };
    let next = targets.next.and_then(&mut target);
    let other = targets.other.and_then(&mut target);
    let streams = match targets.has_streams {
        true => fields.get("streams").map(|node| parts(reader, node, "`streams`")).unwrap_or_default(),
        false => vec![],
    };
    let delivery = match targets.has_delivery {
        true => fields.get("delivery").and_then(|node| read_delivery(reader, node)),
        false => None,
    };
    let work = read_work(reader, kind, node, &mut fields, &what);
    if let (Some(key), None, Some(_)) = (targets.next, &next, &work) {
        fields.missing(&format!("`{key}`"), "it says where the message goes; `dispose` is nowhere");
    }
    fields.finish();
    Some(OpDecl { name: name.clone(), work: work?, next, other, streams, delivery })
}

/// The keys of a kind that say where messages go.
struct Targets {
    next: Option<&'static str>,
    other: Option<&'static str>,
    has_streams: bool,
    /// It has a task whose messages may be delivered one at a time.
    has_delivery: bool,
}

impl Targets {
    fn of(kind: &str) -> Self {
        let (next, other) = match kind {
            "when" => (Some("then"), Some("else")),
            "match" => (None, Some("else")),
            "split" => (None, Some("rest")),
            "unzip" => (None, None),
            "inject" => (Some("next"), Some("err")),
            kind if TASK_KINDS.contains(&kind) => (Some("next"), Some("err")),
            _ => (Some("next"), None),
        };
        Targets {
            next,
            other,
            has_streams: matches!(kind, "scope" | "inject"),
            has_delivery: TASK_KINDS.contains(&kind),
        }
    }
}

fn read_work(
    reader: FieldReader<'_>,
    kind: &str,
    node: &YamlNode,
    fields: &mut Fields<'_>,
    what: &str,
) -> Option<OpWork> {
    let label = format!("`{kind}`");
    let mut list =
        |key: &'static str| fields.get(key).map(|node| words_of(reader, node, &format!("`{key}`"))).unwrap_or_default();
    Some(match kind {
        "run" | "script" | "http" | "call" | "scope" => OpWork::Task(read_task(fields, kind, node, what)?),
        "inject" => read_inject(reader, node)?,
        "expr" => OpWork::Expr(reader.text(node, &label)?),
        "when" => OpWork::When(reader.text(node, &label)?),
        "match" => {
            let on = reader.text(node, &label);
            let cases = fields.get("cases").map(|node| parts(reader, node, "`cases`")).unwrap_or_default();
            if cases.is_empty() {
                fields.missing("`cases`", "`cases: { WORD: TARGET }`");
            }
            OpWork::Match { on: on?, cases }
        }
        "spread" => OpWork::Spread(reader.text(node, &label)?),
        "join" => OpWork::Join { buffers: words_of(reader, node, &label), clone: list("clone") },
        "listen" => OpWork::Listen { buffers: words_of(reader, node, &label), take: list("take") },
        "access" => OpWork::Access { buffers: words_of(reader, node, &label), take: list("take") },
        "push" => OpWork::Push { buffer: reader.text(node, &label)?, value: fields.text("value") },
        "open" => OpWork::Open(words_of(reader, node, &label)),
        "close" => OpWork::Close(words_of(reader, node, &label)),
        "gate" => {
            let mut inner = reader.fields(node, label)?;
            let buffers = inner.get("buffers").map(|node| words_of(reader, node, "`buffers`")).unwrap_or_default();
            let open = inner.text("open");
            if open.is_none() {
                inner.missing("`open`", "a truth over `message`: the buffers are opened, or closed");
            }
            inner.finish();
            OpWork::Gate { buffers, open: open? }
        }
        "trim" => OpWork::Trim(read_trim(reader, node)?),
        "watch" => OpWork::Watch(words_of(reader, node, &label)),
        "wait" => OpWork::Wait(reader.text(node, &label)?),
        "sleep" => OpWork::Sleep(reader.duration(node, &label)?),
        "split" => OpWork::Split(parts(reader, node, &label)),
        "unzip" => {
            let targets = reader.list(node, &label).iter();
            OpWork::Unzip(targets.filter_map(|node| read_target(reader, node, &label)).collect())
        }
        _ => {
            let mut fields = reader.fields(node, label)?;
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

/// Named parts with a target each.
fn parts(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> Vec<(MapKey, TargetDecl)> {
    let part = |(key, node): &(MapKey, YamlNode)| {
        Some((key.clone(), read_target(reader, node, &format!("part `{}`", key.name))?))
    };
    reader.entries(node, what).iter().filter_map(part).collect()
}

fn read_inject(reader: FieldReader<'_>, node: &YamlNode) -> Option<OpWork> {
    let mut fields = reader.fields(node, "`inject`")?;
    let choose = fields.text("choose");
    let mut among: Vec<(MapKey, TaskDecl)> = Vec::new();
    for (key, node) in fields.get("among").map(|node| reader.entries(node, "`among`")).unwrap_or_default() {
        reader.name(&key.name, key.span, "a task");
        let what = format!("task `{}`", key.name);
        let Some(mut inner) = reader.fields(node, what.clone()) else { continue };
        inner.span = key.span;
        among.extend(take_task(&mut inner, &what).map(|task| (key.clone(), task)));
        inner.finish();
    }
    if choose.is_none() {
        fields.missing("`choose`", "an expression for the name of a task: `message.kind`");
    }
    if among.is_empty() {
        fields.missing("`among`", "`among: { NAME: { run: … } }`: the tasks to choose from");
    }
    fields.finish();
    Some(OpWork::Inject { choose: choose?, among })
}

/// Reads how messages are delivered; `None` for all at once.
fn read_delivery(reader: FieldReader<'_>, node: &YamlNode) -> Option<DeliveryDecl> {
    let always = || Some(Text { text: String::from("true"), ..reader.text(node, "`delivery`")? });
    if let NodeKind::Scalar(..) = node.what {
        return match reader.word(node, "`delivery`", &["parallel", "serial", "preempt", "ensure"])? {
            "serial" => Some(DeliveryDecl::default()),
            "preempt" => Some(DeliveryDecl { preempt: always(), ..DeliveryDecl::default() }),
            "ensure" => Some(DeliveryDecl { ensure: always(), ..DeliveryDecl::default() }),
            _ => None,
        };
    }
    let mut fields = reader.fields(node, "`delivery`")?;
    let (serial_by, preempt, ensure) = (fields.text("serial_by"), fields.text("preempt"), fields.text("ensure"));
    fields.finish();
    Some(DeliveryDecl { serial_by, preempt, ensure })
}

fn read_trim(reader: FieldReader<'_>, node: &YamlNode) -> Option<TrimDecl> {
    if let NodeKind::Scalar(..) = node.what {
        return reader.text(node, "`trim`").map(TrimDecl::Only);
    }
    let mut fields = reader.fields(node, "`trim`")?;
    let (from, to): (Option<Text>, Option<Text>) = (fields.text("from"), fields.text("to"));
    if from.is_none() {
        fields.missing("`from`", "`trim: OPERATION`, `{ from: OPERATION }` or `{ from: OPERATION, to: OPERATION }`");
    }
    fields.finish();
    match (from?, to) {
        (from, Some(to)) => Some(TrimDecl::Between(from, to)),
        (from, None) => Some(TrimDecl::From(from)),
    }
}
