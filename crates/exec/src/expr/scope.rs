//! The names an expression can use, and their values: a tree, as `inputs.reads` and `align.bam` are.

use crate::value::PortValue;
use std::collections::BTreeMap;

/// Names and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    names: BTreeMap<String, PortValue>,
}

impl Bindings {
    /// No names.
    pub fn new() -> Self {
        Bindings::default()
    }

    /// Gives a value to a name.
    pub fn set(&mut self, name: impl Into<String>, value: PortValue) {
        self.names.insert(name.into(), value);
    }

    /// Gives a value to the path that a port stands for: `inputs-reads` is `inputs.reads`.
    pub fn bind(&mut self, port: &str, value: PortValue) {
        let mut parts = port.split('-');
        let Some(root) = parts.next() else { return };
        let mut place = self.names.entry(root.to_owned()).or_insert(PortValue::Null);
        for part in parts {
            if !matches!(place, PortValue::Record(_)) {
                *place = PortValue::Record(BTreeMap::new());
            }
            let PortValue::Record(fields) = place else { unreachable!("it was made one") };
            place = fields.entry(part.to_owned()).or_insert(PortValue::Null);
        }
        *place = value;
    }

    /// Takes the value of a name out.
    pub fn take(&mut self, name: &str) -> Option<PortValue> {
        self.names.remove(name)
    }

    /// The value of a name.
    pub fn root(&self, name: &str) -> Option<&PortValue> {
        self.names.get(name)
    }

    /// All names and values.
    pub fn names(&self) -> &BTreeMap<String, PortValue> {
        &self.names
    }

    /// Returns the value at a path: fields of records, and properties of files.
    pub fn get(&self, path: &[String]) -> Option<PortValue> {
        let (root, fields) = path.split_first()?;
        let mut value = self.names.get(root)?;
        for (at, field) in fields.iter().enumerate() {
            match value {
                PortValue::Record(known) => value = known.get(field)?,
                PortValue::File(file) if at + 1 == fields.len() => {
                    let text = |text: &str| Some(PortValue::text(text));
                    return match field.as_str() {
                        "path" => text(&file.path.to_string_lossy()),
                        "name" => text(&file.name),
                        "stem" => text(file.stem()),
                        "ext" => text(file.ext()),
                        _ => None,
                    };
                }
                _ => return None,
            }
        }
        Some(value.clone())
    }
}
