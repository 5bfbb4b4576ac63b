//! Values with their spans: what YAML and JSON have in common.

use crate::source::{ScalarQuoting, Span, Text};

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) span: Span,
    pub(crate) what: NodeKind,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeKind {
    /// Text, a number, true, null: what it is depends on who asks, unless it is quoted.
    Scalar(String, ScalarQuoting),
    List(Vec<YamlNode>),
    /// Every key once.
    Map(Vec<(MapKey, YamlNode)>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapKey {
    pub(crate) name: String,
    pub(crate) span: Span,
}

impl YamlNode {
    /// Nothing: `null`, `~`, or a key without a value.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.what, NodeKind::Scalar(text, ScalarQuoting::Plain) if matches!(text.as_str(), "" | "null" | "~" | "Null" | "NULL"))
    }

    pub(crate) fn text(&self) -> Option<Text> {
        match &self.what {
            NodeKind::Scalar(text, style) if !self.is_null() => {
                Some(Text { text: text.clone(), span: self.span, style: *style })
            }
            _ => None,
        }
    }

    /// How people call what stands there.
    pub(crate) fn found(&self) -> &'static str {
        match &self.what {
            NodeKind::Scalar(..) if self.is_null() => "nothing",
            NodeKind::Scalar(..) => "a single value",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// As JSON. What is not quoted and looks like a number, true, false or null is one.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.what {
            NodeKind::List(items) => items.iter().map(YamlNode::to_json).collect(),
            NodeKind::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key.name.clone(), value.to_json()));
                serde_json::Value::Object(entries.collect())
            }
            NodeKind::Scalar(text, ScalarQuoting::Plain) => plain(text),
            NodeKind::Scalar(text, _) => serde_json::Value::String(text.clone()),
        }
    }

    /// How many values it is made of.
    pub(crate) fn count(&self) -> usize {
        match &self.what {
            NodeKind::Scalar(..) => 1,
            NodeKind::List(items) => 1 + items.iter().map(YamlNode::count).sum::<usize>(),
            NodeKind::Map(entries) => 1 + entries.iter().map(|(_, value)| 1 + value.count()).sum::<usize>(),
        }
    }

    /// How deep values are in it.
    pub(crate) fn depth(&self) -> usize {
        match &self.what {
            NodeKind::Scalar(..) => 1,
            NodeKind::List(items) => 1 + items.iter().map(YamlNode::depth).max().unwrap_or(0),
            NodeKind::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
        }
    }
}

/// A scalar without quotes, by YAML 1.2's core rules: `yes` and `on` are text, and only `true` and `false` are not.
fn plain(text: &str) -> serde_json::Value {
    match text {
        "" | "null" | "~" | "Null" | "NULL" => return serde_json::Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'-' | b'+'));
    if is_number {
        if let Ok(int) = text.trim_start_matches('+').parse::<i64>() {
            return int.into();
        }
        if let Ok(float) = text.parse::<f64>()
            && let Some(number) = serde_json::Number::from_f64(float)
        {
            return serde_json::Value::Number(number);
        }
    }
    serde_json::Value::String(text.to_owned())
}
