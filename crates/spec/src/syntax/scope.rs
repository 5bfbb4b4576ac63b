//! Reads a scope: buffers, operations with their targets, cleanup flows.

mod op;

use super::{
    MapKey, NodeKind, YamlNode,
    fields::{FieldReader, Fields, clipped},
    http::{self, HttpDecl},
    kinds::{interpreter, read_code},
    step::{expressions, words_of},
};
use crate::{source::Span, source::Text, words};
use onceflow_exec::action::{CleanupOn, KeepEntries};
pub(crate) use op::OP_KINDS;

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
    pub(crate) uninterruptible: bool,
}

/// A declared operation.
#[derive(Clone, Debug)]
pub(crate) struct OpDecl {
    pub(crate) name: MapKey,
    pub(crate) work: OpWork,
    pub(crate) next: Option<TargetDecl>,
    pub(crate) other: Option<TargetDecl>,
    pub(crate) streams: Vec<(MapKey, TargetDecl)>,
    pub(crate) delivery: Option<DeliveryDecl>,
}

/// The delivery of messages one at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryDecl {
    pub(crate) serial_by: Option<Text>,
    pub(crate) preempt: Option<Text>,
    pub(crate) ensure: Option<Text>,
}

/// The work of an operation.
#[derive(Clone, Debug)]
pub(crate) enum OpWork {
    Task(TaskDecl),
    Inject {
        choose: Text,
        among: Vec<(MapKey, TaskDecl)>,
    },
    Expr(Text),
    When(Text),
    Match {
        on: Text,
        cases: Vec<(MapKey, TargetDecl)>,
    },
    Spread(Text),
    Collect {
        min: u32,
        max: Option<u32>,
    },
    Join {
        buffers: Vec<Text>,
        clone: Vec<Text>,
    },
    Listen {
        buffers: Vec<Text>,
        take: Vec<Text>,
    },
    Access {
        buffers: Vec<Text>,
        take: Vec<Text>,
    },
    Push {
        buffer: Text,
        value: Option<Text>,
    },
    Split(Vec<(MapKey, TargetDecl)>),
    Unzip(Vec<TargetDecl>),
    Open(Vec<Text>),
    Close(Vec<Text>),
    Gate {
        buffers: Vec<Text>,
        open: Text,
    },
    Trim(TrimDecl),
    Watch(Vec<Text>),
    Sleep(u64),
    /// The name of an event.
    Wait(Text),
}

/// Work outside of the session.
#[derive(Clone, Debug)]
pub(crate) enum TaskDecl {
    Run(Text),
    Script { interpreter: Vec<String>, code: Text },
    Http(Box<HttpDecl>),
    Call(CallDecl),
    Scope(Box<ScopeDecl>),
}

/// A flow that is called.
#[derive(Clone, Debug)]
pub(crate) struct CallDecl {
    pub(crate) file: Text,
    /// Its inputs; `None` are the fields of the message with their names.
    pub(crate) ins: Option<Vec<(MapKey, Text)>>,
}

/// The part that a trim cleans.
#[derive(Clone, Debug)]
pub(crate) enum TrimDecl {
    Only(Text),
    From(Text),
    Between(Text, Text),
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
    pub(crate) task: TaskDecl,
    pub(crate) timeout_ms: Option<u64>,
}

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
    let ops = ops.iter().filter_map(|(name, node)| op::read(reader, name, node)).collect();
    let cleanups = fields.get("cleanup").map(|node| reader.entries(node, "`cleanup`")).unwrap_or_default();
    let cleanups = cleanups.iter().filter_map(|(name, node)| read_cleanup(reader, name, node)).collect();
    let deadline_ms = fields.get("deadline").and_then(|node| reader.duration(node, "`deadline`"));
    let rounds = fields.get("rounds_max").and_then(|node| reader.int(node, "`rounds_max`", 1, i64::from(u32::MAX)));
    let rounds_max = rounds.and_then(|rounds| u32::try_from(rounds).ok());
    let uninterruptible = fields.get("settings").and_then(|node| read_settings(reader, node)).unwrap_or(false);
    fields.finish();
    Some(ScopeDecl { span: node.span, start, buffers, ops, cleanups, deadline_ms, rounds_max, uninterruptible })
}

/// Reads the settings: whether the scope is uninterruptible. `durable` may be said; scopes of files always are.
fn read_settings(reader: FieldReader<'_>, node: &YamlNode) -> Option<bool> {
    let mut fields = reader.fields(node, "`settings`")?;
    let uninterruptible = fields.get("uninterruptible").and_then(|node| reader.bool(node, "`uninterruptible`"));
    let durable = fields.get("durable").and_then(|node| Some((node, reader.bool(node, "`durable`")?)));
    if let Some((node, false)) = durable {
        let hint = "scopes that live in memory are written in Rust";
        reader.say(node.span, "OF0143", "a scope in a flow file is always durable", hint);
    }
    fields.finish();
    uninterruptible
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

/// The kinds of tasks.
pub(crate) const TASK_KINDS: &[&str] = &["run", "script", "http", "call", "scope"];

/// Reads a task of this kind; `fields` are those beside it.
fn read_task(fields: &mut Fields<'_>, kind: &str, node: &YamlNode, what: &str) -> Option<TaskDecl> {
    let reader = fields.reader;
    Some(match kind {
        "run" => TaskDecl::Run(reader.text(node, "`run`")?),
        "script" => {
            let code = fields.take("code");
            TaskDecl::Script { interpreter: interpreter(reader, node)?, code: read_code(fields, code)? }
        }
        "http" => TaskDecl::Http(Box::new(http::read(reader, node)?)),
        "call" => {
            let ins = fields.get("in").map(|node| expressions(reader, node, "`in`", true));
            TaskDecl::Call(CallDecl { file: reader.text(node, "`call`")?, ins })
        }
        _ => TaskDecl::Scope(Box::new(read(reader, node, what)?)),
    })
}

/// Reads the one task that a map has; `None` after reporting a problem.
pub(crate) fn take_task(fields: &mut Fields<'_>, what: &str) -> Option<TaskDecl> {
    let reader = fields.reader;
    let mut found: Vec<_> = TASK_KINDS.iter().filter_map(|kind| fields.take(kind)).collect();
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|(key, _)| key.name.as_str()).collect();
        let message = format!("{what} has {} at once", words::list(names));
        reader.say(found[1].0.span, "OF0113", message, "it does one thing; a `scope` does several");
        return None;
    }
    let Some((key, node)) = found.pop() else {
        let hint = format!("it is one of {}", words::list(TASK_KINDS.iter().copied()));
        fields.missing("part that says what it does", &hint);
        return None;
    };
    read_task(fields, &key.name, node, what)
}

fn read_cleanup(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode) -> Option<CleanupDecl> {
    reader.name(&name.name, name.span, "a cleanup flow");
    let what = format!("cleanup `{}`", name.name);
    let mut fields = reader.fields(node, what.clone())?;
    fields.span = name.span;
    let on = match fields.get("on") {
        Some(node) => reader.word(node, "`on`", &["cancel", "terminate", "either"]),
        None => Some("either"),
    };
    let with = fields.get("with").map(|node| words_of(reader, node, "`with`")).unwrap_or_default();
    let timeout_ms = fields.get("timeout").and_then(|node| reader.duration(node, "`timeout`"));
    let task = take_task(&mut fields, &what);
    fields.finish();
    let on = match on? {
        "cancel" => CleanupOn::Cancel,
        "terminate" => CleanupOn::Terminate,
        _ => CleanupOn::Either,
    };
    Some(CleanupDecl { name: name.clone(), on, with, task: task?, timeout_ms })
}
