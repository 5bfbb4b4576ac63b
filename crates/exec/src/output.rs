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
use onceflow_core::model::Port;
use onceflow_engine::task::Failure;
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
    let mut stdout = Stdout { work, file: stdout, json: None, scope: None };
    let last = captures.iter().rposition(|capture| matches!(capture, Capture::Json(_)));
    let mut values = Vec::with_capacity(ports.len());
    for (at, port) in ports.iter().enumerate() {
        let value = match (captures.get(at), planned.get(at)) {
            (Some(Capture::Path(_)), Some(ExpectedOutput::Path(found))) => found.value(work, port)?,
            (Some(Capture::Stdout), _) => read_text(stdout.rewound()?, port, "standard output")?,
            (Some(Capture::Json(source)), _) => stdout.json(port, source, last == Some(at))?,
            _ => return Err(codes::failure(codes::OTHER_VERSION, "an output has no place it is found at").finally()),
        };
        values.push(value);
    }
    assert_eq!(values.len(), ports.len(), "an output of the step was not read");
    Ok(values)
}

/// Standard output as JSON, read once.
struct Stdout<'a> {
    work: &'a WorkDir,
    file: Option<&'a mut File>,
    json: Option<PortValue>,
    scope: Option<Bindings>,
}

impl Stdout<'_> {
    fn rewound(&mut self) -> Result<&mut File, Failure> {
        let file =
            self.file.as_deref_mut().ok_or_else(|| codes::failure(codes::WORK, "standard output was not kept"))?;
        file.rewind().map_err(|error| codes::work("standard output could not be read", &error))?;
        Ok(file)
    }

    /// Reads an output; the last one takes its part of the answer instead of copying it.
    fn json(&mut self, port: &Port, source: &str, is_last: bool) -> Result<PortValue, Failure> {
        if self.json.is_none() {
            self.json = Some(parse(self.rewound()?)?);
        }
        let json = self.json.as_mut().expect("it was read");
        let wrong = |why: String| {
            let what = format!("output `{}` could not be read from what was written to standard output", port.name);
            codes::because(codes::failure(codes::OUTPUT_VALUE, what), why)
        };
        // Most outputs are a field as it is, and may be large: they are taken without the copies that an expression makes.
        let value = match named(json, source) {
            Some(value) if is_last => std::mem::replace(value, PortValue::Null),
            Some(value) => value.clone(),
            None => {
                let scope = self.scope.get_or_insert_with(|| bindings(json));
                expr::eval(source, scope).map_err(|error| wrong(error.to_string()))?
            }
        };
        find::resolve(self.work, value, &port.ty, &port.name).map_err(|refused| match refused {
            find::OutputError::Type(mismatch) => wrong(mismatch.to_string()),
            find::OutputError::File(failed) => failed,
        })
    }
}

/// Returns the part of an answer that an expression stands for, if it is a mere path of names: `stdout` is all of the
/// answer, and its fields have their own names.
fn named<'a>(json: &'a mut PortValue, source: &str) -> Option<&'a mut PortValue> {
    let compiled = expr::compile(source).ok()?;
    let path = &compiled.as_reference()?.path;
    let path = path.strip_prefix(&["stdout".to_owned()][..]).unwrap_or(path);
    path.iter().try_fold(json, |value, name| match value {
        PortValue::Record(fields) => fields.get_mut(name),
        _ => None,
    })
}

/// Returns the names an expression over an answer can use.
fn bindings(json: &PortValue) -> Bindings {
    let mut scope = Bindings::new();
    if let PortValue::Record(fields) = json {
        fields.iter().for_each(|(name, field)| scope.set(name.as_str(), field.clone()));
    }
    scope.set("stdout", json.clone());
    scope
}

fn parse(file: &mut File) -> Result<PortValue, Failure> {
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| codes::work("standard output could not be read", &error))?;
    PortValue::parse_json(&bytes).map_err(|error| {
        let what = format!("what was written to standard output is not JSON: {error}");
        let failed = codes::failure(codes::NO_JSON, what);
        let failed = codes::because(failed, format!("it begins with:\n{}", first_lines(&bytes)));
        codes::because(failed, "hint: write one JSON object to standard output, and everything else to standard error")
    })
}
