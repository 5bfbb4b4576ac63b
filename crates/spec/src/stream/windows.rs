//! Windows, triggers and the ranges of joins.

use super::declare::duration;
use crate::syntax::{
    YamlNode,
    fields::{FieldReader, Fields},
};
use onceflow_stream::{
    step::join::JoinRange,
    window::{Early, Trigger, WindowKind, Windowing},
};

const HINT: &str =
    "`{ tumbling: 1m }`, `{ sliding: 1h, every: 5m }`, `{ session: 30m }`, or no `window`: one for all time";

/// Reports a duration of nothing.
pub(super) fn positive(reader: FieldReader<'_>, node: &YamlNode, what: &str, ms: i64) -> Option<i64> {
    if ms <= 0 {
        reader.say(node.span, "OF0133", format!("{what} must be longer than nothing"), "");
        return None;
    }
    Some(ms)
}

fn size(fields: &mut Fields<'_>, name: &'static str) -> Option<Option<i64>> {
    let reader = fields.reader;
    let Some(node) = fields.get(name) else { return Some(None) };
    let what = format!("`{name}`");
    positive(reader, node, &what, duration(reader, node, &what)?).map(Some)
}

/// Reads a window; `None` after reporting a problem.
pub(super) fn read(reader: FieldReader<'_>, node: &YamlNode) -> Option<Windowing> {
    let mut fields = reader.fields(node, "a window")?;
    let sizes = (size(&mut fields, "tumbling"), size(&mut fields, "sliding"), size(&mut fields, "session"));
    let every = size(&mut fields, "every");
    let lateness = fields.get("lateness").map(|node| duration(reader, node, "`lateness`"));
    let early = fields.get("early").map(|node| read_early(reader, node));
    let late_count = fields.get("late_count").map(|node| reader.int(node, "`late_count`", 1, i64::MAX));
    let late_after = fields.get("late_after").map(|node| reader.duration(node, "`late_after`"));
    let mode = fields.get("mode").and_then(|node| reader.word(node, "`mode`", &["accumulating", "discarding"]));
    let span = fields.span;
    fields.finish();
    let kind = match (sizes.0?, sizes.1?, sizes.2?, every?) {
        (Some(size_ms), None, None, None) => WindowKind::Tumbling { size_ms },
        (None, Some(size_ms), None, Some(slide_ms)) => WindowKind::Sliding { size_ms, slide_ms },
        (None, None, Some(gap_ms), None) => WindowKind::Session { gap_ms },
        (None, None, None, None) => WindowKind::Global,
        _ => {
            reader.say(span, "OF0113", "a window is one of tumbling, sliding (with `every`) and session", HINT);
            return None;
        }
    };
    let mut trigger = Trigger::at_end();
    if let Some(early) = early {
        trigger = trigger.early(early?);
    }
    if let Some(count) = late_count {
        trigger = trigger.late_count(u64::try_from(count?).ok()?);
    }
    if let Some(after) = late_after {
        let counted = trigger.late_count;
        trigger = trigger.late_after(after?);
        if late_count.is_some() {
            trigger = trigger.late_count(counted);
        }
    }
    if mode == Some("discarding") {
        trigger = trigger.discarding();
    }
    let lateness = lateness.unwrap_or(Some(0))?;
    Some(Windowing::new(kind).trigger(trigger).lateness(lateness))
}

fn read_early(reader: FieldReader<'_>, node: &YamlNode) -> Option<Early> {
    let mut fields = reader.fields(node, "`early`")?;
    let count = fields.get("count").map(|node| reader.int(node, "`count`", 1, i64::MAX));
    let after = fields.get("after").map(|node| reader.duration(node, "`after`"));
    let span = fields.span;
    fields.finish();
    match (count, after) {
        (Some(count), None) => u64::try_from(count?).ok().map(Early::Count),
        (None, Some(after)) => after.map(Early::AfterMs),
        _ => {
            reader.say(span, "OF0113", "`early` is `{ count: N }` or `{ after: TIME }`", "");
            None
        }
    }
}

/// Reads which records of a join belong together.
pub(super) fn join_range(fields: &mut Fields<'_>) -> Option<JoinRange> {
    let reader = fields.reader;
    let window = size(fields, "window")?;
    let mut side = |name: &'static str| {
        let node = fields.get(name)?;
        Some(duration(reader, node, &format!("`{name}`")))
    };
    match (window, side("before"), side("after")) {
        (Some(size_ms), None, None) => Some(JoinRange::Window { size_ms }),
        (None, before, after) if before.is_some() || after.is_some() => {
            let (before_ms, after_ms) = (before.unwrap_or(Some(0))?, after.unwrap_or(Some(0))?);
            Some(JoinRange::Interval { before_ms, after_ms })
        }
        _ => {
            let hint = "`window: 10m`, or how much earlier and later the other record may be: `before: 0`, `after: 5m`";
            reader.say(fields.span, "OF0105", "a join says which records belong together", hint);
            None
        }
    }
}
