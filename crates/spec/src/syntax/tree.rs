//! Values with their spans: what YAML and JSON have in common.

use crate::source::{Span, Style, Text};

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) what: What,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// Text, a number, true, null: what it is depends on who asks, unless it is quoted.
    Scalar(String, Style),
    List(Vec<Node>),
    /// Every key once.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) span: Span,
}

impl Node {
    /// Nothing: `null`, `~`, or a key without a value.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.what, What::Scalar(text, Style::Plain) if matches!(text.as_str(), "" | "null" | "~" | "Null" | "NULL"))
    }

    pub(crate) fn text(&self) -> Option<Text> {
        match &self.what {
            What::Scalar(text, style) if !self.is_null() => {
                Some(Text { text: text.clone(), span: self.span, style: *style })
            }
            _ => None,
        }
    }

    /// How people call what stands there.
    pub(crate) fn found(&self) -> &'static str {
        match &self.what {
            What::Scalar(..) if self.is_null() => "nothing",
            What::Scalar(..) => "a single value",
            What::List(_) => "a list",
            What::Map(_) => "a map",
        }
    }

    /// As JSON. What is not quoted and looks like a number, true, false or null is one.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.what {
            What::List(items) => items.iter().map(Node::to_json).collect(),
            What::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key.name.clone(), value.to_json()));
                serde_json::Value::Object(entries.collect())
            }
            What::Scalar(text, Style::Plain) => plain(text),
            What::Scalar(text, _) => serde_json::Value::String(text.clone()),
        }
    }

    /// How many values it is made of.
    pub(crate) fn count(&self) -> usize {
        match &self.what {
            What::Scalar(..) => 1,
            What::List(items) => 1 + items.iter().map(Node::count).sum::<usize>(),
            What::Map(entries) => 1 + entries.iter().map(|(_, value)| 1 + value.count()).sum::<usize>(),
        }
    }

    /// How deep values are in it.
    pub(crate) fn depth(&self) -> usize {
        match &self.what {
            What::Scalar(..) => 1,
            What::List(items) => 1 + items.iter().map(Node::depth).max().unwrap_or(0),
            What::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
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
