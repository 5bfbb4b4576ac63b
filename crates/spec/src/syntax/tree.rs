//! Values with their spans: the common data model of YAML and JSON.

use crate::source::{ScalarQuoting, Span, Text};
use std::{borrow::Cow, fmt, ops::Deref};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) span: Span,
    pub(crate) what: NodeKind,
}

/// The kind and content of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeKind {
    /// Text, a number, true, null: unless it is quoted, the expected type decides which.
    Scalar(ScalarText, ScalarQuoting),
    List(Vec<YamlNode>),
    /// A map, with every key once.
    Map(Vec<(MapKey, YamlNode)>),
}

const _: () = assert!(size_of::<YamlNode>() <= 40, "a file of inputs may hold millions of values");

/// The text of a scalar. Numbers and words stay off the heap, where each would take more than its own length.
#[derive(Clone, PartialEq)]
pub(crate) struct ScalarText(TextPlace);

#[derive(Clone, PartialEq)]
enum TextPlace {
    Short { len: u8, bytes: [u8; ScalarText::SHORT_BYTES_MAX] },
    Long(Box<str>),
}

impl ScalarText {
    /// The number of bytes that, with the length and the tag, fill three words.
    const SHORT_BYTES_MAX: usize = 22;
}

impl From<Cow<'_, str>> for ScalarText {
    fn from(text: Cow<'_, str>) -> Self {
        let mut bytes = [0; ScalarText::SHORT_BYTES_MAX];
        ScalarText(match bytes.get_mut(..text.len()) {
            Some(short) => {
                short.copy_from_slice(text.as_bytes());
                TextPlace::Short { len: text.len() as u8, bytes }
            }
            None => TextPlace::Long(text.into()),
        })
    }
}

impl Deref for ScalarText {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            TextPlace::Short { len, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*len)]).expect("the bytes of a text")
            }
            TextPlace::Long(text) => text,
        }
    }
}

impl fmt::Debug for ScalarText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapKey {
    pub(crate) name: String,
    pub(crate) span: Span,
}

impl YamlNode {
    /// The value is null: `null`, `~`, or a key without a value.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.what, NodeKind::Scalar(text, ScalarQuoting::Plain) if matches!(&**text, "" | "null" | "~" | "Null" | "NULL"))
    }

    pub(crate) fn text(&self) -> Option<Text> {
        match &self.what {
            NodeKind::Scalar(text, style) if !self.is_null() => {
                Some(Text { text: text.to_string(), span: self.span, style: *style })
            }
            _ => None,
        }
    }

    /// Names the kind of the value for a message.
    pub(crate) fn found(&self) -> &'static str {
        match &self.what {
            NodeKind::Scalar(..) if self.is_null() => "nothing",
            NodeKind::Scalar(..) => "a single value",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// Converts the value to JSON. An unquoted scalar that looks like a number, true, false or null is one.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.what {
            NodeKind::List(items) => items.iter().map(YamlNode::to_json).collect(),
            NodeKind::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key.name.clone(), value.to_json()));
                serde_json::Value::Object(entries.collect())
            }
            NodeKind::Scalar(text, ScalarQuoting::Plain) => plain(text),
            NodeKind::Scalar(text, _) => serde_json::Value::String(text.to_string()),
        }
    }

    /// Returns the number of values in it.
    pub(crate) fn count(&self) -> usize {
        match &self.what {
            NodeKind::Scalar(..) => 1,
            NodeKind::List(items) => 1 + items.iter().map(YamlNode::count).sum::<usize>(),
            NodeKind::Map(entries) => 1 + entries.iter().map(|(_, value)| 1 + value.count()).sum::<usize>(),
        }
    }

    /// Returns the depth of nested values in it.
    pub(crate) fn depth(&self) -> usize {
        match &self.what {
            NodeKind::Scalar(..) => 1,
            NodeKind::List(items) => 1 + items.iter().map(YamlNode::depth).max().unwrap_or(0),
            NodeKind::Map(entries) => 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
        }
    }
}

/// Converts an unquoted scalar by YAML 1.2's core rules: `true` and `false` are booleans, `yes` and `on` are text.
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
