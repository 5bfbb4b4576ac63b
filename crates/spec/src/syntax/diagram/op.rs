//! Reads an operation of a diagram, by its type.

use super::{BuilderTask, Diagram, Place, Region, field, key as named, text};
use crate::{
    source::Text,
    syntax::{
        MapKey, NodeKind, YamlNode,
        fields::Fields,
        scope::{OpDecl, OpWork, TargetDecl, TaskDecl},
    },
    words,
};
use onceflow_exec::{action::KeepEntries, expr};

const TYPES: &[&str] = &[
    "node",
    "section",
    "scope",
    "stream_out",
    "fork_clone",
    "fork_result",
    "unzip",
    "split",
    "join",
    "transform",
    "buffer",
    "buffer_access",
    "listen",
];

/// Keys that every operation may have, and that do not change what it does.
const IGNORED: [&str; 4] = ["display_text", "trace", "extensions", "serialize"];

/// The name by which CEL in diagrams calls the message.
const REQUEST: &str = "request";

impl<'a> Diagram<'a> {
    pub(super) fn operation(
        &mut self,
        key: &MapKey,
        node: &'a YamlNode,
        place: &Place<'a>,
        on_error: Option<&TargetDecl>,
        region: &mut Region,
    ) {
        let reader = self.reader;
        let what = format!("operation `{}`", key.name);
        let Some(mut fields) = reader.fields(node, what.clone()) else { return };
        fields.span = key.span;
        for ignored in IGNORED {
            let _means_nothing_here = fields.take(ignored);
        }
        let name = named(&format!("{}{}", place.prefix, key.name), key.span);
        let kind = fields.get("type").cloned();
        let Some(kind) = kind else {
            return fields.missing("`type`", &format!("it is one of {}", words::list(TYPES.iter().copied())));
        };
        if field(node, "type").as_deref() == Some("script") {
            let hint = "a task with `run: python3 …` in `extensions.onceflow.tasks` can be its builder as a node";
            return reader.say(kind.span, "OF0144", format!("{what} is a script, which cannot be run here"), hint);
        }
        let Some(kind) = reader.word(&kind, "`type`", TYPES) else { return };
        match kind {
            "node" => self.node(name, &mut fields, place, on_error, region),
            "section" => self.section(key, &mut fields, place, on_error, region),
            "scope" => self.nested(name, &mut fields, place, on_error, region),
            "stream_out" => match fields.text("name") {
                Some(stream) => drop(region.streams.insert(stream.text)),
                None => fields.missing("`name`", "the stream of the scope"),
            },
            "buffer" => {
                let keep = fields.get("settings").map_or(Some(KeepEntries::Last(1)), |node| self.keep(node));
                region.buffers.extend(keep.map(|keep| (name, keep)));
            }
            kind => {
                if let Some((work, next, other)) = self.plain(kind, &name, &mut fields, place, on_error, region) {
                    region.ops.push(OpDecl { name, work, next, other, streams: vec![], delivery: None });
                }
            }
        }
        fields.finish();
    }

    /// Reads an operation that is one of ours.
    fn plain(
        &mut self,
        kind: &str,
        name: &MapKey,
        fields: &mut Fields<'a>,
        place: &Place<'a>,
        on_error: Option<&TargetDecl>,
        region: &mut Region,
    ) -> Option<(OpWork, Option<TargetDecl>, Option<TargetDecl>)> {
        let span = name.span;
        Some(match kind {
            "fork_clone" => {
                let targets = self.targets(fields, place)?;
                (OpWork::Expr(text("message", span)), Some(TargetDecl::All(targets)), None)
            }
            "fork_result" => {
                let (ok, err) = (self.needed(fields, "ok", place), self.needed(fields, "err", place));
                let parts = vec![(named("Ok", span), ok?), (named("Err", span), err?)];
                (OpWork::Split(parts), None, None)
            }
            "unzip" => (OpWork::Unzip(self.targets(fields, place)?), None, None),
            "split" => {
                let mut parts = Vec::new();
                let reader = self.reader;
                let list = fields.get("sequential").map(|node| reader.list(node, "`sequential`")).unwrap_or_default();
                for (at, node) in list.iter().enumerate() {
                    parts.extend(self.target(node, place).map(|target| (named(&at.to_string(), node.span), target)));
                }
                let keyed = fields.get("keyed").map(|node| reader.entries(node, "`keyed`")).unwrap_or_default();
                for (key, node) in keyed {
                    parts.extend(self.target(node, place).map(|target| (key.clone(), target)));
                }
                let rest = fields.get("remaining").and_then(|node| self.target(node, place));
                (OpWork::Split(parts), None, rest)
            }
            "join" => {
                let parts = self.buffers(fields, place)?;
                let clone = fields.get("clone").map(|node| self.reader.list(node, "`clone`")).unwrap_or_default();
                let clone: Vec<String> = clone.iter().filter_map(|node| node.text()).map(|text| text.text).collect();
                let copied = parts.iter().filter(|(label, _)| clone.contains(label)).map(|(_, buffer)| buffer.clone());
                let copied = copied.collect();
                let next = self.needed(fields, "next", place)?;
                // The parts of the join are called as the diagram calls them, not as its buffers.
                let parts_op = named(&format!("{} parts", name.name), span);
                let source = parts_of(&parts);
                region.ops.push(OpDecl {
                    name: parts_op.clone(),
                    work: OpWork::Expr(text(&source, span)),
                    next: Some(next),
                    other: None,
                    streams: vec![],
                    delivery: None,
                });
                let buffers = parts.into_iter().map(|(_, buffer)| buffer).collect();
                (OpWork::Join { buffers, clone: copied }, Some(TargetDecl::Name(text(&parts_op.name, span))), None)
            }
            "transform" => {
                let cel = fields.text("cel");
                if cel.is_none() {
                    fields.missing("`cel`", "an expression over `request`");
                }
                let failed = fields.get("on_error").and_then(|node| self.target(node, place));
                let next = self.needed(fields, "next", place)?;
                if let Some(failed) = failed.or_else(|| on_error.cloned()) {
                    region.ops.push(watch(name, failed));
                }
                (OpWork::Expr(over_message(cel?)), Some(next), None)
            }
            kind => {
                let buffers = self.buffers(fields, place)?.into_iter().map(|(_, buffer)| buffer).collect();
                let next = self.needed(fields, "next", place)?;
                match kind {
                    "listen" => (OpWork::Listen { buffers, take: vec![] }, Some(next), None),
                    _ => (OpWork::Access { buffers, take: vec![] }, Some(next), None),
                }
            }
        })
    }

    /// Reads a node: the task that its builder names. One that leads to a fork on results gives `Ok` and `Err`.
    fn node(
        &mut self,
        name: MapKey,
        fields: &mut Fields<'a>,
        place: &Place<'a>,
        on_error: Option<&TargetDecl>,
        region: &mut Region,
    ) {
        let (builder, config) = (fields.text("builder"), fields.get("config").cloned());
        let leads_to_fork = fields.peek("next").and_then(YamlNode::text).is_some_and(|next| {
            place
                .names
                .get(next.text.as_str())
                .is_some_and(|node| field(node, "type").as_deref() == Some("fork_result"))
        });
        let next = self.needed(fields, "next", place);
        let streams = self.streams(fields, place);
        let Some(builder) = builder else {
            return fields.missing("`builder`", "the name of a task in `extensions.onceflow.tasks`");
        };
        let Some(task) = self.tasks.get(&builder.text).map(|(_, task)| task.clone()) else {
            let known: Vec<&str> = self.tasks.keys().map(String::as_str).collect();
            let hint = match words::meant(&builder.text, known.iter().copied()) {
                hint if hint.is_empty() => {
                    format!(
                        "`\"extensions\": {{ \"onceflow\": {{ \"tasks\": {{ \"{}\": {{ \"run\": … }} }} }} }}`",
                        builder.text
                    )
                }
                hint => hint,
            };
            let message = format!("there is no task for the builder `{}`", builder.text);
            return self.reader.say(builder.span, "OF0145", message, hint);
        };
        self.used.insert(builder.text);
        let Some(next) = next else { return };
        let span = name.span;
        let work = match task {
            BuilderTask::Task(task) => OpWork::Task(task),
            BuilderTask::Expr(source) => OpWork::Expr(source),
        };
        let mut after = name.clone();
        if let Some(config) = config {
            // The message of a task with a configuration has both.
            after = named(&format!("{} configured", name.name), span);
            let source = format!("{{'config': {}, 'request': message}}", config.to_json());
            region.ops.push(plain_op(name.clone(), &source, TargetDecl::Name(text(&after.name, span))));
        }
        let is_task = matches!(work, OpWork::Task(_));
        let (mut next, mut other) = (next, on_error.filter(|_| is_task).cloned());
        if leads_to_fork && is_task {
            let (ok, err) = (named(&format!("{} ok", name.name), span), named(&format!("{} err", name.name), span));
            region.ops.push(plain_op(ok.clone(), "{'Ok': message}", next.clone()));
            region.ops.push(plain_op(err.clone(), "{'Err': message}", next));
            next = TargetDecl::Name(text(&ok.name, span));
            other = Some(TargetDecl::Name(text(&err.name, span)));
        }
        if !is_task && let Some(failed) = on_error {
            region.ops.push(watch(&after, failed.clone()));
        }
        region.ops.push(OpDecl { name: after, work, next: Some(next), other, streams, delivery: None });
    }

    fn nested(
        &mut self,
        name: MapKey,
        fields: &mut Fields<'a>,
        place: &Place<'a>,
        on_error: Option<&TargetDecl>,
        region: &mut Region,
    ) {
        let (start, ops) = (fields.get("start"), fields.get("ops"));
        let settings = fields.get("settings");
        let inner_error = fields.get("on_implicit_error");
        let next = self.needed(fields, "next", place);
        let streams = self.streams(fields, place);
        let (Some(start), Some(ops)) = (start, ops) else {
            return fields.missing("`start` or `ops`", "a scope has both");
        };
        let mut own = Region { ops: vec![], buffers: vec![], streams: Default::default() };
        let scope = self.region(ops.span, (start, ops), &Place::outermost(), inner_error, &mut own);
        let (Some(mut scope), Some(next)) = (scope, next) else { return };
        if let Some(settings) = settings.and_then(|node| self.reader.fields(node, "`settings`")) {
            let mut settings = settings;
            let flag = settings.get("uninterruptible");
            scope.uninterruptible = flag.and_then(|node| self.reader.bool(node, "`uninterruptible`")).unwrap_or(false);
            settings.finish();
        }
        let work = OpWork::Task(TaskDecl::Scope(Box::new(scope)));
        region.ops.push(OpDecl { name, work, next: Some(next), other: on_error.cloned(), streams, delivery: None });
    }

    fn streams(&self, fields: &mut Fields<'a>, place: &Place<'a>) -> Vec<(MapKey, TargetDecl)> {
        let entries = fields.get("stream_out").map(|node| self.reader.entries(node, "`stream_out`"));
        let entries = entries.unwrap_or_default().iter();
        entries.filter_map(|(key, node)| Some((key.clone(), self.target(node, place)?))).collect()
    }

    fn needed(&self, fields: &mut Fields<'a>, name: &'static str, place: &Place<'a>) -> Option<TargetDecl> {
        match fields.get(name) {
            Some(node) => self.target(node, place),
            None => {
                fields.missing(&format!("`{name}`"), "a target; `{ \"builtin\": \"dispose\" }` is nowhere");
                None
            }
        }
    }

    fn targets(&self, fields: &mut Fields<'a>, place: &Place<'a>) -> Option<Vec<TargetDecl>> {
        let list = fields.get("next").map(|node| self.reader.list(node, "`next`")).unwrap_or_default();
        if list.is_empty() {
            fields.missing("`next`", "a list of targets");
        }
        let targets: Option<Vec<_>> = list.iter().map(|node| self.target(node, place)).collect();
        targets.filter(|targets| !targets.is_empty())
    }

    /// Reads buffers: one, a list, or a map; each with its key or number.
    fn buffers(&self, fields: &mut Fields<'a>, place: &Place<'a>) -> Option<Vec<(String, Text)>> {
        let Some(node) = fields.get("buffers") else {
            fields.missing("`buffers`", "a list, or a map, of buffers");
            return None;
        };
        let listed: Vec<(String, &YamlNode)> = match &node.what {
            NodeKind::List(items) => items.iter().enumerate().map(|(at, node)| (at.to_string(), node)).collect(),
            NodeKind::Map(entries) if !entries.iter().any(|(key, _)| self.is_section(&key.name, place)) => {
                entries.iter().map(|(key, node)| (key.name.clone(), node)).collect()
            }
            _ => vec![(String::from("0"), node)],
        };
        let mut found = Vec::new();
        for (label, node) in listed {
            match self.target(node, place)? {
                TargetDecl::Push(buffer) => found.push((label, buffer)),
                _ => {
                    self.reader.say(node.span, "OF0116", "this is no buffer", "an operation of the type `buffer`");
                    return None;
                }
            }
        }
        Some(found)
    }

    fn is_section(&self, name: &str, place: &Place<'a>) -> bool {
        place.names.get(name).is_some_and(|node| field(node, "type").as_deref() == Some("section"))
    }

    fn keep(&self, settings: &'a YamlNode) -> Option<KeepEntries> {
        let mut fields = self.reader.fields(settings, "`settings`")?;
        let retention = fields.get("retention");
        fields.finish();
        let Some(node) = retention else { return Some(KeepEntries::Last(1)) };
        if let NodeKind::Scalar(..) = node.what {
            return self.reader.word(node, "`retention`", &["keep_all"]).map(|_| KeepEntries::All);
        }
        let mut fields = self.reader.fields(node, "`retention`")?;
        let mut number = |name: &'static str| {
            let number = fields.get(name).and_then(|node| self.reader.int(node, &format!("`{name}`"), 1, 1_000_000));
            number.and_then(|number| u32::try_from(number).ok())
        };
        let (last, first) = (number("keep_last"), number("keep_first"));
        fields.finish();
        last.map(KeepEntries::Last).or(first.map(KeepEntries::First))
    }
}

fn plain_op(name: MapKey, source: &str, next: TargetDecl) -> OpDecl {
    let work = OpWork::Expr(text(source, name.span));
    OpDecl { name, work, next: Some(next), other: None, streams: vec![], delivery: None }
}

/// Sends what an operation fails with to a target.
fn watch(of: &MapKey, target: TargetDecl) -> OpDecl {
    let name = named(&format!("{} failed", of.name), of.span);
    let work = OpWork::Watch(vec![text(&of.name, of.span)]);
    OpDecl { name, work, next: Some(target), other: None, streams: vec![], delivery: None }
}

/// The expression for the message of a join: a list if its buffers are one, else a record by their keys.
fn parts_of(parts: &[(String, Text)]) -> String {
    let quoted = |name: &str| serde_json::Value::String(name.to_owned()).to_string();
    let value = |buffer: &Text| format!("message[{}]", quoted(&buffer.text));
    let is_list = parts.iter().enumerate().all(|(at, (label, _))| *label == at.to_string());
    match is_list {
        true => format!("[{}]", parts.iter().map(|(_, buffer)| value(buffer)).collect::<Vec<_>>().join(", ")),
        false => {
            let fields = parts.iter().map(|(label, buffer)| format!("{}: {}", quoted(label), value(buffer)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The expression with `request` called `message`.
fn over_message(mut cel: Text) -> Text {
    if let Ok(compiled) = expr::compile(&cel.text) {
        for reference in compiled.references().iter().rev().filter(|reference| reference.path[0] == REQUEST) {
            let start = reference.span.start;
            cel.text.replace_range(start..start + REQUEST.len(), "message");
        }
    }
    cel
}
