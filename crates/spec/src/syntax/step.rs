//! A step: its kind, its inputs and outputs, its repetition, its condition, and its settings.

use super::{
    MapKey, NodeKind, YamlNode,
    fields::{FieldReader, Fields, clipped},
    kinds::{self, StepKind, StreamPlace},
    outs::{self, LeafOutput, OutputDecl},
};
use crate::{
    limits::{self, CPUS_MAX},
    source::{Span, Text},
    words,
};
use onceflow_core::model::{Effect, Retry};
use onceflow_exec::action::Shell;

/// A declared step.
#[derive(Clone, Debug)]
pub(crate) struct StepDecl {
    pub(crate) name: MapKey,
    pub(crate) span: Span,
    pub(crate) kind: StepKind,
    /// Inputs under names of its own; for a call, the inputs of the called flow.
    pub(crate) ins: Vec<(MapKey, Text)>,
    /// Inputs under the names they already have.
    pub(crate) uses: Vec<Text>,
    /// The outputs of a leaf.
    pub(crate) outs: Vec<LeafOutput>,
    /// The outputs of a graph of steps.
    pub(crate) gives: Vec<OutputDecl>,
    pub(crate) each: Option<Each>,
    pub(crate) at_most: Option<u32>,
    pub(crate) when: Option<Text>,
    pub(crate) repeat: Option<Repeat>,
    pub(crate) attempt: bool,
    pub(crate) after: Vec<Text>,
    pub(crate) undo: Option<Box<StepDecl>>,
    pub(crate) how: StepSettings,
}

/// The execution settings of a leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepSettings {
    pub(crate) effect: Option<Effect>,
    pub(crate) retry: Retry,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) cpu_milli: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) version: String,
    pub(crate) env: Vec<(MapKey, Text)>,
    pub(crate) secrets: Vec<Text>,
    pub(crate) shell: Option<Shell>,
    pub(crate) labels: Vec<String>,
}

/// `a, b in zip(x, y)`.
#[derive(Clone, Debug)]
pub(crate) struct Each {
    pub(crate) text: Text,
    /// The variables, and the expressions they iterate over, as ranges of the text.
    pub(crate) over: Vec<(String, std::ops::Range<usize>)>,
}

/// A loop around the steps.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    pub(crate) span: Span,
    pub(crate) carry: Vec<(MapKey, Text)>,
    pub(crate) again: Option<Text>,
    pub(crate) max: Option<i64>,
}

/// Keys that only leaves have.
const LEAF_KEYS: &[&str] =
    &["effect", "undo", "retry", "timeout", "resources", "version", "env", "secrets", "shell", "labels"];

/// Reads the steps of a map, in order.
pub(crate) fn read_all(reader: FieldReader<'_>, node: &YamlNode) -> Vec<StepDecl> {
    let entries = reader.entries(node, "`steps`");
    entries.iter().filter_map(|(key, node)| read(reader, key, node, &format!("step `{}`", key.name))).collect()
}

/// Reads a step; `None` if the node is no step at all.
pub(crate) fn read(reader: FieldReader<'_>, name: &MapKey, node: &YamlNode, what: &str) -> Option<StepDecl> {
    reader.name(&name.name, name.span, "a step");
    let mut fields = reader.fields(node, what)?;
    fields.span = name.span;
    let used: Vec<_> = LEAF_KEYS.iter().copied().filter(|key| fields.has(key)).collect();
    let when = fields.text("when");
    let each = fields.text("each").and_then(|text| read_each(reader, text));
    let kind = kinds::read(&mut fields, what);
    let mut step = StepDecl {
        name: name.clone(),
        span: name.span,
        outs: vec![],
        gives: vec![],
        ins: vec![],
        uses: vec![],
        each,
        at_most: fields.get("at_most").and_then(|node| reader.int(node, "`at_most`", 1, 1_000_000)).map(|n| n as u32),
        when,
        repeat: fields.get("loop").and_then(|node| read_repeat(reader, node)),
        attempt: fields.get("attempt").and_then(|node| reader.bool(node, "`attempt`")).unwrap_or(false),
        after: fields.get("after").map(|node| words_of(reader, node, "`after`")).unwrap_or_default(),
        undo: read_undo(reader, &mut fields, name),
        how: read_how(reader, &mut fields),
        kind: StepKind::Steps(vec![]),
    };
    match fields.get("in") {
        Some(node) if matches!(node.what, NodeKind::List(_)) => step.uses = words_of(reader, node, "`in`"),
        Some(node) => {
            let is_call = matches!(kind, Some(StepKind::Flow(_) | StepKind::Stream(StreamPlace::File(_))));
            step.ins = expressions(reader, node, "`in`", is_call);
        }
        None => {}
    }
    let out = fields.take("out");
    fields.finish();
    step.kind = kind?;
    if let Some((key, node)) = out {
        match &step.kind {
            StepKind::Steps(_) => step.gives = outs::read_given(reader, node, "`out`"),
            StepKind::Flow(_) | StepKind::Stream(_) | StepKind::Choose(_) => {
                let who = match step.kind {
                    StepKind::Flow(_) => "the flow says",
                    StepKind::Stream(_) => "the sinks say",
                    _ => "the arms say",
                };
                let message = format!("{what} has no `out` of its own: {who} what it gives");
                reader.say(key.span, "OF0113", message, "leave it out");
            }
            _ => step.outs = outs::read(reader, node),
        }
    }
    combinations(reader, &step, &used, what);
    doubts(reader, &step, what);
    Some(step)
}

/// Warns about constructs that are allowed but probably not intended.
fn doubts(reader: FieldReader<'_>, step: &StepDecl, what: &str) {
    if step.how.effect == Some(Effect::AtMostOnce) && step.how.retry.attempts > 1 {
        let message = format!(
            "{what} is `at_most_once`, so a `retry` is made only of an attempt that never began: one that began is never \
             started again"
        );
        reader.warn(step.span, message);
    }
    let path = |out: &LeafOutput| match &out.from {
        outs::OutputPlace::Path(path) if !path.text.contains("${{") => {
            Some(path.text.trim_start_matches("./").trim_end_matches('/').to_owned())
        }
        _ => None,
    };
    for (at, out) in step.outs.iter().enumerate() {
        let Some(wanted) = path(out) else { continue };
        if let Some(other) = step.outs[..at].iter().find(|other| path(other).as_ref() == Some(&wanted)) {
            let names = format!("`{}` and `{}`", other.name.name, out.name.name);
            reader.warn(out.name.span, format!("outputs {names} of {what} are one file, `{wanted}`"));
        }
    }
}

fn combinations(reader: FieldReader<'_>, step: &StepDecl, leaf_keys: &[&str], what: &str) {
    let is_leaf = step.kind.is_leaf();
    if !is_leaf && !leaf_keys.is_empty() {
        let message = format!("{what} does nothing itself, so it has no {}", words::list(leaf_keys.iter().copied()));
        reader.say(step.span, "OF0113", message, "say it of the steps inside");
    }
    if step.at_most.is_some() && step.each.is_none() {
        reader.say(step.span, "OF0113", format!("{what} has `at_most`, but no `each`"), "");
    }
    if let Some(repeat) = &step.repeat
        && !matches!(step.kind, StepKind::Steps(_))
    {
        let hint = "put it into `steps:` of its own, with an `out:` that gives what is carried";
        reader.say(repeat.span, "OF0113", format!("{what} has a `loop`, but no `steps`"), hint);
    }
    if matches!(step.kind, StepKind::Steps(_) | StepKind::Choose(_)) && !(step.ins.is_empty() && step.uses.is_empty()) {
        let hint = "steps inside see the names around them";
        reader.say(step.span, "OF0113", format!("{what} has steps inside, so it has no `in`"), hint);
    }
    if let (StepKind::Flow(_) | StepKind::Stream(StreamPlace::File(_)), Some(used)) = (&step.kind, step.uses.first()) {
        let hint = "`in: { NAME: … }` names the inputs of the file";
        reader.say(used.span, "OF0106", "`in` of a call must be a map, but a list stands here", hint);
    }
    if let (Some(when), StepKind::Choose(_)) = (&step.when, &step.kind) {
        let hint = "put it into the `when` of the arms";
        reader.say(when.span, "OF0113", format!("{what} has both `choose` and `when`"), hint);
    }
}

/// Reads a map of expressions under the user's own names.
pub(crate) fn expressions(reader: FieldReader<'_>, node: &YamlNode, what: &str, is_call: bool) -> Vec<(MapKey, Text)> {
    let entries = reader.entries(node, what).iter();
    entries
        .filter_map(|(key, node)| {
            // For a call, the names are checked against the inputs of the called flow.
            if !is_call {
                reader.name(&key.name, key.span, "an input");
            }
            Some((key.clone(), reader.text(node, &format!("`{}`", key.name))?))
        })
        .collect()
}

/// Reads a list of words, or a single one.
pub(crate) fn words_of(reader: FieldReader<'_>, node: &YamlNode, what: &str) -> Vec<Text> {
    match &node.what {
        NodeKind::Scalar(..) => reader.text(node, what).into_iter().collect(),
        _ => reader.list(node, what).iter().filter_map(|node| reader.text(node, what)).collect(),
    }
}

fn read_each(reader: FieldReader<'_>, text: Text) -> Option<Each> {
    match split_each(&text.text) {
        Some(over) => {
            for (name, _) in &over {
                reader.name(name, text.span, "a variable");
            }
            Some(Each { text, over })
        }
        None => {
            let hint = "`each: sample in inputs.samples`, or `each: r1, r2 in zip(inputs.left, inputs.right)`";
            reader.say(text.span, "OF0123", format!("`each: {}` cannot be understood", clipped(&text.text)), hint);
            None
        }
    }
}

/// Splits an `each` into its variables and the ranges of the expressions they iterate over.
fn split_each(text: &str) -> Option<Vec<(String, std::ops::Range<usize>)>> {
    let at = text.find(" in ")?;
    let names: Vec<_> = text[..at].split(',').map(|name| name.trim().to_owned()).collect();
    let trimmed = |from: usize, to: usize| {
        let part = &text[from..to];
        let start = from + part.len() - part.trim_start().len();
        (start < to && !part.trim().is_empty()).then(|| start..start + part.trim().len())
    };
    let whole = trimmed(at + 4, text.len())?;
    let inner = text[whole.clone()].strip_prefix("zip(").and_then(|rest| rest.strip_suffix(')'));
    let over = match inner {
        None if names.len() == 1 => vec![whole],
        None => return None,
        Some(inner) => {
            let mut from = whole.start + 4;
            let mut parts = Vec::new();
            for part in arguments(inner) {
                parts.push(trimmed(from, from + part)?);
                from += part + 1;
            }
            parts
        }
    };
    (over.len() == names.len()).then(|| names.into_iter().zip(over).collect())
}

/// Returns the lengths of the arguments, split at commas outside brackets and quotes.
fn arguments(text: &str) -> Vec<usize> {
    let (mut depth, mut quote, mut lengths, mut start) = (0_i32, None, Vec::new(), 0);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth -= 1,
            (None, b',') if depth == 0 => {
                lengths.push(at - start);
                start = at + 1;
            }
            _ => {}
        }
    }
    lengths.push(text.len() - start);
    lengths
}

fn read_repeat(reader: FieldReader<'_>, node: &YamlNode) -> Option<Repeat> {
    let mut fields = reader.fields(node, "`loop`")?;
    let carry = fields.get("carry").map(|node| expressions(reader, node, "`carry`", false)).unwrap_or_default();
    let again = fields.text("while");
    let max = fields.get("max").and_then(|node| reader.int(node, "`max`", 1, i64::from(u32::MAX)));
    if again.is_none() && max.is_none() {
        fields.missing("end", "give it `while`, `max`, or both");
    }
    fields.finish();
    Some(Repeat { span: node.span, carry, again, max })
}

fn read_undo(reader: FieldReader<'_>, fields: &mut Fields<'_>, name: &MapKey) -> Option<Box<StepDecl>> {
    let (key, node) = fields.take("undo")?;
    let own = MapKey { name: name.name.clone(), span: key.span };
    // A bad name was already reported for the step.
    let own = if words::bad_name(&own.name).is_some() { MapKey { name: "undo".into(), ..own } } else { own };
    let step = read(reader, &own, node, &format!("`undo` of step `{}`", name.name))?;
    let plain = step.each.is_none() && step.when.is_none() && !step.attempt && step.after.is_empty();
    let is_task = matches!(step.kind, StepKind::Run(_) | StepKind::Script { .. } | StepKind::Http(_));
    let gives_and_takes = !step.outs.is_empty() || !step.ins.is_empty() || !step.uses.is_empty();
    if !is_task || !plain || step.undo.is_some() || gives_and_takes {
        let hint = "it sees what its step sees";
        reader.say(key.span, "OF0137", "an `undo` is a `run`, `script` or `http`, and gives nothing", hint);
        return None;
    }
    Some(Box::new(step))
}

fn read_how(reader: FieldReader<'_>, fields: &mut Fields<'_>) -> StepSettings {
    let mut how = StepSettings::default();
    let effects = ["pure", "idempotent", "at_most_once"];
    how.effect = fields.get("effect").and_then(|node| reader.word(node, "`effect`", &effects)).map(|word| match word {
        "pure" => Effect::Pure,
        "at_most_once" => Effect::AtMostOnce,
        _ => Effect::Idempotent,
    });
    if let Some(node) = fields.get("retry") {
        how.retry = read_retry(reader, node).unwrap_or_default();
    }
    if let Some((node, ms)) = fields.get("timeout").and_then(|node| Some((node, reader.duration(node, "`timeout`")?))) {
        if ms == 0 {
            reader.say(node.span, "OF0133", "a `timeout` must be longer than 0", "leave it out for none at all");
        }
        how.timeout_ms = Some(ms);
    }
    if let Some(mut resources) = fields.get("resources").and_then(|node| reader.fields(node, "`resources`")) {
        how.cpu_milli = resources.get("cpus").and_then(|node| read_cpus(reader, node));
        how.memory_bytes = resources.get("memory").and_then(|node| reader.size(node, "`memory`"));
        resources.finish();
    }
    how.version = fields.text("version").map(|text| text.text).unwrap_or_default();
    how.env = fields.get("env").map(|node| read_env(reader, node)).unwrap_or_default();
    how.secrets = fields.get("secrets").map(|node| words_of(reader, node, "`secrets`")).unwrap_or_default();
    how.shell = fields.get("shell").and_then(|node| read_shell(reader, node));
    how.labels = fields.get("labels").map(|node| read_labels(reader, node)).unwrap_or_default();
    how
}

/// Reads the labels that a worker must have to take the step: sorted, each once.
fn read_labels(reader: FieldReader<'_>, node: &YamlNode) -> Vec<String> {
    let mut labels = Vec::new();
    for text in words_of(reader, node, "`labels`") {
        match words::is_label(&text.text) {
            true => labels.push(text.text),
            false => {
                let message = format!("`{}` cannot be a label", clipped(&text.text));
                reader.say(text.span, "OF0139", message, "letters, digits, `-`, `_` and `.`, at most 32 of them");
            }
        }
    }
    labels.sort();
    labels.dedup();
    if labels.len() > limits::LABELS_MAX {
        let message = format!("a step asks for at most {} labels, not {}", limits::LABELS_MAX, labels.len());
        reader.say(node.span, "OF0139", message, "one label may stand for several things");
    }
    labels
}

fn read_cpus(reader: FieldReader<'_>, node: &YamlNode) -> Option<u32> {
    let cpus = reader.number(node, "`cpus`")?;
    if !(0.0..=CPUS_MAX).contains(&cpus) {
        reader.say(node.span, "OF0133", format!("`cpus` must be between 0 and {CPUS_MAX}, not {cpus}"), "");
        return None;
    }
    Some((cpus * 1000.0).round() as u32)
}

fn read_retry(reader: FieldReader<'_>, node: &YamlNode) -> Option<Retry> {
    let mut retry = Retry::default();
    if matches!(node.what, NodeKind::Scalar(..)) {
        retry.attempts = reader.int(node, "`retry`", 1, 1_000_000)? as u32;
        return Some(retry);
    }
    let mut fields = reader.fields(node, "`retry`")?;
    if let Some(attempts) = fields.get("attempts").and_then(|node| reader.int(node, "`attempts`", 1, 1_000_000)) {
        retry.attempts = attempts as u32;
    }
    if let Some(ms) = fields.get("backoff").and_then(|node| reader.duration(node, "`backoff`")) {
        retry.backoff_ms = ms;
        retry.backoff_ms_max = retry.backoff_ms_max.max(ms);
    }
    if let Some(ms) = fields.get("max").and_then(|node| reader.duration(node, "`max`")) {
        retry.backoff_ms_max = ms;
    }
    fields.finish();
    Some(retry)
}

/// Reads variables of the environment.
pub(crate) fn read_env(reader: FieldReader<'_>, node: &YamlNode) -> Vec<(MapKey, Text)> {
    let mut found = Vec::new();
    for (key, node) in reader.entries(node, "`env`") {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if key.name.is_empty() || !key.name.chars().all(plain) || key.name.starts_with(|c: char| c.is_ascii_digit()) {
            let message = format!("`{}` cannot be the name of a variable of the environment", clipped(&key.name));
            reader.say(key.span, "OF0135", message, "letters, digits and `_`, and no digit first");
            continue;
        }
        let empty = Text { text: String::new(), span: node.span, style: crate::source::ScalarQuoting::Plain };
        let text = if node.is_null() { Some(empty) } else { reader.text(node, &format!("`{}`", key.name)) };
        found.extend(text.map(|text| (key.clone(), text)));
    }
    found
}

/// Reads the shell for commands.
pub(crate) fn read_shell(reader: FieldReader<'_>, node: &YamlNode) -> Option<Shell> {
    if let NodeKind::List(_) = node.what {
        let words = words_of(reader, node, "`shell`");
        if words.is_empty() {
            reader.say(node.span, "OF0105", "`shell` has no program", "`shell: [bash, -e]`");
            return None;
        }
        return Some(Shell::Custom(words.into_iter().map(|word| word.text).collect()));
    }
    match reader.word(node, "`shell`", &["bash", "sh"])? {
        "sh" => Some(Shell::Sh),
        _ => Some(Shell::Bash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_each_names_its_variables_and_what_they_go_over() {
        let split = |text: &str| {
            let over = split_each(text)?;
            Some(over.into_iter().map(|(name, at)| format!("{name}={}", &text[at])).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(split("s in inputs.samples").as_deref(), Some("s=inputs.samples"));
        assert_eq!(split("a, b in zip(x.y, f(z, [1, 2]))").as_deref(), Some("a=x.y b=f(z, [1, 2])"));
        assert_eq!(split("x in zip(a)").as_deref(), Some("x=a"));
        for bad in ["", "x", "x in ", "a, b in x", "a in zip(x, y)", "a, b in zip(x)", "a, b in zip(x,)", "x of y"] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }
}
