//! Converts a value to words of a command, or to text inside a word.

use crate::value::{PortValue, relative};
use std::path::Path;

/// A value that cannot be part of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit(pub(crate) String);

/// Converts a value to words: one for each element of a list, none for null, else a single one. A record is JSON.
pub(crate) fn words(value: &PortValue, base: &Path) -> Result<Vec<String>, Unfit> {
    let mut found = Vec::new();
    collect(value, base, &mut found)?;
    match found.iter().any(|word| word.contains('\0')) {
        true => Err(Unfit(String::from("it holds the character NUL, which no command can be given"))),
        false => Ok(found),
    }
}

/// Returns the words joined with spaces.
pub(crate) fn text(value: &PortValue, base: &Path) -> Result<String, Unfit> {
    Ok(words(value, base)?.join(" "))
}

fn collect(value: &PortValue, base: &Path, found: &mut Vec<String>) -> Result<(), Unfit> {
    found.push(match value {
        PortValue::Null => return Ok(()),
        PortValue::List(elements) => return elements.iter().try_for_each(|element| collect(element, base, found)),
        PortValue::Bool(value) => value.to_string(),
        PortValue::Int(value) => value.to_string(),
        PortValue::Float(value) => format!("{value:?}"),
        PortValue::Text(text) => text.clone(),
        PortValue::Bytes(bytes) => String::from_utf8(bytes.clone())
            .map_err(|_| Unfit(String::from("its bytes are no text; write them to a file in a step before")))?,
        PortValue::Record(_) => value.to_json_in(base).to_string(),
        PortValue::File(file) => relative(&file.path, base),
        PortValue::Directory(directory) => relative(&directory.path, base),
    });
    Ok(())
}
