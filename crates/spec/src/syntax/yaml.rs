//! Parses text to a tree. YAML 1.2, of which JSON is a subset; one document, no tags but the standard ones. Time and
//! memory are bounded for any text: there are limits on depth, size and the expansion of aliases.

use super::tree::{MapKey, NodeKind, YamlNode};
use crate::{
    limits::DEPTH_MAX,
    problem::Diagnostics,
    source::{ScalarQuoting, SourceFile, Span},
    words,
};
use granit_parser::{Event, Parser, ScalarStyle};
use std::collections::BTreeMap;

/// The limits on the content of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeBudget {
    pub(crate) nodes: usize,
}

/// Parses a text; `None` after reporting a problem. Duplicate keys are reported, and left out.
pub(crate) fn parse(source: &SourceFile, budget: NodeBudget, report: &Diagnostics) -> Option<YamlNode> {
    let mut reading =
        TreeBuilder { source, report, open: vec![], root: None, anchors: BTreeMap::new(), left: budget.nodes };
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    options.block_nesting_limit = DEPTH_MAX;
    options.flow_nesting_limit = DEPTH_MAX;
    for event in Parser::new_from_str_with_options(source.text(), options) {
        let (event, span) = match event {
            Ok((event, span)) => (event, bytes(source, &span)),
            Err(error) => {
                reading.refused(&error);
                return None;
            }
        };
        reading.event(event, span)?;
    }
    if reading.root.is_none() {
        let hint = "a flow file starts with `flow: NAME`";
        report.at(source, Span::new(0, 0), "OF0102", format!("{} is empty", source.file()), hint);
    }
    reading.root
}

fn bytes(source: &SourceFile, span: &granit_parser::Span) -> Span {
    let at = |marker: &granit_parser::Marker| marker.byte_offset().unwrap_or(source.text().len());
    Span::new(at(&span.start), at(&span.end))
}

/// Returns the most likely advice for a parser error.
fn hint(info: &str, line: &str) -> &'static str {
    let has_hole = line.contains("${{");
    if info.contains("tab") && line.trim_start_matches(' ').starts_with('\t') {
        "YAML is indented with spaces, not with tabs"
    } else if info.contains("flow") && has_hole {
        "inside `{ }` and `[ ]` a text with `${{ … }}` must be quoted"
    } else if info.contains("mapping values") {
        "a text with `: ` in it must be quoted, or stand in a block: `run: |` and then indented lines"
    } else if info.contains("anchor") || info.contains("alias") || info.contains("cannot start any token") {
        "a text that starts with `*`, `&`, `@` or a backtick must be quoted"
    } else if info.contains("quote") {
        "a text with quotes in it is best written as a block: `run: |` and then indented lines"
    } else if info.contains("bracket") {
        "every `{` and `[` needs its end"
    } else {
        ""
    }
}

/// A collection that is not closed yet, with its anchor.
enum OpenCollection {
    List(Span, usize, Vec<YamlNode>),
    /// A map; also the key that waits for its value, and the positions of the keys so far.
    Map(Span, usize, Vec<(MapKey, YamlNode)>, Option<YamlNode>, BTreeMap<String, usize>),
}

struct TreeBuilder<'a> {
    source: &'a SourceFile,
    report: &'a Diagnostics,
    open: Vec<OpenCollection>,
    root: Option<YamlNode>,
    /// The values that aliases stand for, by the id of the anchor.
    anchors: BTreeMap<usize, YamlNode>,
    /// The number of values still allowed.
    left: usize,
}

impl TreeBuilder<'_> {
    fn say(&self, span: Span, code: &'static str, message: impl Into<String>, hint: impl Into<String>) {
        self.report.at(self.source, span, code, message, hint);
    }

    fn refused(&self, error: &granit_parser::ScanError) {
        let at = error.marker().byte_offset().unwrap_or(0);
        let (span, info) = (Span::new(at, at + 1), error.info());
        if info.contains("nesting") || info.contains("recursion") {
            let message = format!("values are nested more than {DEPTH_MAX} deep");
            return self.say(span, "OF0107", message, "");
        }
        self.say(
            span,
            "OF0101",
            format!("this is not YAML: {info}"),
            hint(&info, &self.source.place(span).source_line),
        );
    }

    fn spend(&mut self, nodes: usize, span: Span) -> Option<()> {
        match self.left.checked_sub(nodes) {
            Some(left) => self.left = left,
            None => {
                let hint = "aliases (`*name`) count as what they stand for";
                self.say(span, "OF0107", "there are too many values in this file", hint);
                return None;
            }
        }
        Some(())
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.tag(tag.as_deref(), span)?;
                self.spend(1, span)?;
                let style = match style {
                    ScalarStyle::Plain => ScalarQuoting::Plain,
                    ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => ScalarQuoting::Quoted,
                    ScalarStyle::Literal | ScalarStyle::Folded => ScalarQuoting::Block,
                };
                self.node(YamlNode { span, what: NodeKind::Scalar(text.into(), style) }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), span)?;
                self.enter(OpenCollection::List(span, anchor, vec![]), span)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), span)?;
                self.enter(OpenCollection::Map(span, anchor, vec![], None, BTreeMap::new()), span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(span),
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    self.say(span, "OF0107", "this alias stands for something that contains it", "");
                    return None;
                };
                self.spend(node.count(), span)?;
                if self.open.len() + node.depth() > DEPTH_MAX {
                    self.say(span, "OF0107", format!("values are nested more than {DEPTH_MAX} deep"), "");
                    return None;
                }
                self.node(node, 0)
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                self.say(span, "OF0101", "a second document (`---`) starts here", "a file holds one flow");
                None
            }
            _ => Some(()),
        }
    }

    fn tag(&self, tag: Option<&granit_parser::Tag>, span: Span) -> Option<()> {
        let Some(tag) = tag.filter(|tag| tag.is_custom()) else { return Some(()) };
        self.say(span, "OF0101", format!("the tag `{}` means nothing here", tag.original()), "leave it out");
        None
    }

    fn enter(&mut self, open: OpenCollection, span: Span) -> Option<()> {
        self.spend(1, span)?;
        if self.open.len() >= DEPTH_MAX {
            self.say(span, "OF0107", format!("values are nested more than {DEPTH_MAX} deep"), "");
            return None;
        }
        self.open.push(open);
        Some(())
    }

    fn leave(&mut self, end: Span) -> Option<()> {
        let (span, anchor, what) = match self.open.pop()? {
            OpenCollection::List(span, anchor, items) => (span, anchor, NodeKind::List(items)),
            OpenCollection::Map(span, anchor, entries, ..) => (span, anchor, NodeKind::Map(entries)),
        };
        self.node(YamlNode { span: Span::new(span.start(), end.end()), what }, anchor)
    }

    /// Adds a node to the innermost open collection.
    fn node(&mut self, node: YamlNode, anchor: usize) -> Option<()> {
        if anchor != 0 {
            self.spend(node.count(), node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        let entry = match self.open.last_mut() {
            None => {
                self.root = Some(node);
                return Some(());
            }
            Some(OpenCollection::List(_, _, items)) => {
                items.push(node);
                return Some(());
            }
            Some(OpenCollection::Map(_, _, _, key @ None, _)) => {
                *key = Some(node);
                return Some(());
            }
            Some(OpenCollection::Map(_, _, _, key, _)) => key.take().map(|key| (key, node)),
        };
        let (key, node) = entry?;
        self.entry(key, node)
    }

    fn entry(&mut self, key: YamlNode, node: YamlNode) -> Option<()> {
        let NodeKind::Scalar(name, style) = key.what else {
            let hint = "a text with `${{ … }}` must be quoted where it stands alone, or inside `{ }` and `[ ]`";
            self.say(key.span, "OF0101", "a key of a map must be a single word", hint);
            return None;
        };
        let name = name.to_string();
        if name == "<<" && style == ScalarQuoting::Plain {
            let hint = "write out what is the same, or put it into a flow of its own and call it";
            self.say(key.span, "OF0104", "merge keys (`<<`) are not known here", hint);
            return Some(());
        }
        let Some(OpenCollection::Map(_, _, entries, _, seen)) = self.open.last_mut() else { return None };
        if let Some(first) = seen.get(&name) {
            let (line, _) = self.source.position(*first);
            let message = format!("{} is here twice", words::list([name.as_str()]));
            self.say(key.span, "OF0103", message, format!("the first is in line {line}"));
            return Some(());
        }
        seen.insert(name.clone(), key.span.start());
        entries.push((MapKey { name, span: key.span }, node));
        Some(())
    }
}
