//! The outputs of a step: found where they were declared, checked, and read.

mod find;
mod text;

pub use find::check;
pub(crate) use find::{ExpectedOutput, plan};
pub(crate) use text::{TEXT_BYTES_MAX, first_lines, parse as parse_text, read_text};

use crate::{
    action::Capture,
    codes,
    expr::{self, Bindings},
    value::PortValue,
    work::WorkDir,
};
use onceflow_core::model::{Port, Type};
use onceflow_engine::task::Failure;
use serde_json::Value as Json;
use std::{
    fs::File,
    io::{Read, Seek},
};

/// The temporary file for a command's standard output, if that is an output.
pub(crate) const STDOUT: &str = "stdout";

/// Reads the values of all outputs; their files are still where the step left them.
pub(crate) fn collect(
    work: &WorkDir,
    ports: &[Port],
    captures: &[Capture],
    planned: &[ExpectedOutput],
    stdout: Option<&mut File>,
) -> Result<Vec<PortValue>, Failure> {
    let mut stdout = Stdout { work, file: stdout, json: None };
    let mut values = Vec::with_capacity(ports.len());
    for (at, port) in ports.iter().enumerate() {
        let value = match (captures.get(at), planned.get(at)) {
            (Some(Capture::Path(_)), Some(ExpectedOutput::Path(found))) => found.value(work, port)?,
            (Some(Capture::Stdout), _) => read_text(stdout.rewound()?, port, "standard output")?,
            (Some(Capture::Json(source)), _) => stdout.json(port, source)?,
            _ => return Err(codes::failure(codes::OTHER_VERSION, "an output has no place it is found at").finally()),
        };
        values.push(value);
    }
    Ok(values)
}

/// Standard output as JSON, read once.
struct Stdout<'a> {
    work: &'a WorkDir,
    file: Option<&'a mut File>,
    json: Option<Bindings>,
}

impl Stdout<'_> {
    fn rewound(&mut self) -> Result<&mut File, Failure> {
        let file =
            self.file.as_deref_mut().ok_or_else(|| codes::failure(codes::WORK, "standard output was not kept"))?;
        file.rewind().map_err(|error| codes::work("standard output could not be read", &error))?;
        Ok(file)
    }

    fn json(&mut self, port: &Port, source: &str) -> Result<PortValue, Failure> {
        if self.json.is_none() {
            self.json = Some(parse(self.rewound()?)?);
        }
        let scope = self.json.as_ref().expect("it was read");
        let wrong = |why: String| {
            let what = format!("output `{}` could not be read from what was written to standard output", port.name);
            codes::because(codes::failure(codes::OUTPUT_VALUE, what), why)
        };
        let value = expr::eval(source, scope).map_err(|error| wrong(error.to_string()))?;
        find::resolve(self.work, value, &port.ty, &port.name).map_err(|refused| match refused {
            find::OutputError::Type(mismatch) => wrong(mismatch.to_string()),
            find::OutputError::File(failed) => failed,
        })
    }
}

/// Returns the names an expression over an answer can use: `stdout` is all of it, and its fields have their own names.
fn parse(file: &mut File) -> Result<Bindings, Failure> {
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| codes::work("standard output could not be read", &error))?;
    let json: Json = serde_json::from_slice(&bytes).map_err(|error| {
        let what = format!("what was written to standard output is not JSON: {error}");
        let failed = codes::failure(codes::NO_JSON, what);
        let failed = codes::because(failed, format!("it begins with:\n{}", first_lines(&bytes)));
        codes::because(failed, "hint: write one JSON object to standard output, and everything else to standard error")
    })?;
    let value = PortValue::from_json(json, &Type::Json).expect("all JSON is JSON");
    let mut scope = Bindings::new();
    if let PortValue::Record(fields) = &value {
        fields.iter().for_each(|(name, field)| scope.set(name.as_str(), field.clone()));
    }
    scope.set("stdout", value);
    Ok(scope)
}
