//! Parses values that a step writes as text.

use crate::{codes, value::PortValue};
use onceflow_core::model::{Port, Type};
use onceflow_engine::task::Failure;
use std::{fs::File, io::Read};

/// The longest text that is read as a value. A longer one must be an output of type file.
pub(crate) const TEXT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads a value of a port's type from a regular file of text.
pub(crate) fn read_text(file: &mut File, port: &Port, place: &str) -> Result<PortValue, Failure> {
    let wrong = |why: String| {
        let what = format!("output `{}` is no {}: {why}", port.name, port.ty);
        codes::failure(codes::OUTPUT_VALUE, what)
    };
    let unread = |error: std::io::Error| codes::work(format!("{place} could not be read"), &error);
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        let size = file.metadata().map_err(unread)?.len();
        return Err(
            wrong(format!("{place} has {size} bytes, more than {TEXT_BYTES_MAX}; declare it as a file")).finally()
        );
    }
    parse(&bytes, &port.ty).map_err(|why| {
        let failed = wrong(format!("{place} {why}"));
        match bytes.is_empty() {
            true => failed,
            false => codes::because(failed, format!("it begins with:\n{}", first_lines(&bytes))),
        }
    })
}

/// Parses a value of a type from text. A list is JSON, or has one element on each line.
pub(crate) fn parse(bytes: &[u8], ty: &Type) -> Result<PortValue, String> {
    if *ty == Type::Bytes {
        return Ok(PortValue::Bytes(bytes.to_vec()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| String::from("is not UTF-8"))?;
    let line = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    match ty {
        Type::Unit => Ok(PortValue::Null),
        Type::Option(_) if text.trim().is_empty() => Ok(PortValue::Null),
        Type::Option(inner) => parse(bytes, inner),
        Type::Text => Ok(PortValue::text(line)),
        Type::Int => number(text, str::parse::<i64>).map(PortValue::Int),
        Type::Float => number(text, str::parse::<f64>).map(PortValue::Float),
        Type::Bool => match text.trim() {
            "true" => Ok(PortValue::Bool(true)),
            "false" => Ok(PortValue::Bool(false)),
            _ => Err(String::from("is neither `true` nor `false`")),
        },
        Type::List(inner) if !text.trim_start().starts_with('[') => {
            let elements = line.lines().map(|line| parse(line.as_bytes(), inner));
            elements.collect::<Result<_, _>>().map(PortValue::List)
        }
        _ => {
            let json = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
            PortValue::from_json(json, ty).map_err(|wrong| format!("does not fit: {wrong}"))
        }
    }
}

fn number<T, E: std::fmt::Display>(text: &str, parse: fn(&str) -> Result<T, E>) -> Result<T, String> {
    match text.trim() {
        "" => Err(String::from("is empty")),
        text => parse(text).map_err(|error| format!("does not hold one: {error}")),
    }
}

/// Returns the first lines, bounded, for a message.
pub(crate) fn first_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).replace('\0', "\u{fffd}");
    let lines: Vec<_> = text.lines().take(5).collect();
    let more = if lines.join("\n").len() + 1 < bytes.len() { "\n…" } else { "" };
    format!("{}{more}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_by_its_type() {
        let ints = Type::list(Type::Int);
        let cases = [
            ("42\n", Type::Int, "42"),
            (" -7 ", Type::Int, "-7"),
            ("1e3", Type::Float, "1000.0"),
            ("true\n", Type::Bool, "true"),
            ("a\nb\n\n", Type::Text, "\"a\\nb\\n\""),
            ("", Type::Text, "\"\""),
            ("", Type::option(Type::Int), "null"),
            ("3", Type::option(Type::Int), "3"),
            ("1\n2\n3\n", ints.clone(), "[1,2,3]"),
            ("[1, 2]", ints.clone(), "[1,2]"),
            ("", ints.clone(), "[]"),
            ("{\"b\": [1]}", Type::Json, "{\"b\":[1]}"),
        ];
        for (text, ty, expected) in cases {
            let value = parse(text.as_bytes(), &ty).unwrap_or_else(|error| panic!("{text:?} as {ty}: {error}"));
            assert_eq!(value.to_json().to_string(), expected, "{text:?} as {ty}");
        }
        let wrong = [
            ("x", Type::Int, "does not hold one: invalid digit found in string"),
            ("", Type::Int, "is empty"),
            ("1\nx", ints, "does not hold one: invalid digit found in string"),
            ("yes", Type::Bool, "is neither `true` nor `false`"),
            ("{", Type::Json, "is not JSON: EOF while parsing an object at line 1 column 1"),
        ];
        for (text, ty, expected) in wrong {
            assert_eq!(parse(text.as_bytes(), &ty).unwrap_err(), expected, "{text:?} as {ty}");
        }
    }
}
