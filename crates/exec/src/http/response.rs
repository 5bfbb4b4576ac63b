//! The answer of a server, and the outputs that are read from it.

use super::unreached;
use crate::{
    ExecutorContext,
    action::{Capture, Http},
    codes,
    expr::{self, Bindings},
    home, job,
    output::{first_lines, parse_text},
    render,
    value::{FileValue, PortValue},
};
use onceflow_core::model::{TaskSpec, Type};
use onceflow_engine::task::{Data, Failure, Step};
use reqwest::{Response, header::CONTENT_TYPE};
use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

/// The longest answer that is read into a value. A longer one must be captured as a file.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes read of a rejected answer, for the message.
const BEGINNING_BYTES_MAX: usize = 2048;

/// Reads the beginning of a rejected answer.
pub(super) async fn beginning(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > BEGINNING_BYTES_MAX {
            break;
        }
    }
    first_lines(&bytes)
}

/// Reads the outputs of a call that succeeded.
pub(super) async fn outputs(
    shared: &ExecutorContext,
    (step, spec): (&Step, &TaskSpec),
    http: &Http,
    what: &str,
    mut answer: Response,
    scope: &Bindings,
) -> Result<Vec<Data>, Failure> {
    let is_file = |capture: &Capture| matches!(capture, Capture::Path(_));
    let (file, path) = match http.outputs.iter().any(is_file) {
        true => place(shared, step).map(|(file, path)| (Some(file), Some(path)))?,
        false => (None, None),
    };
    let mut names = Bindings::new();
    names.set("status", PortValue::Int(i64::from(answer.status().as_u16())));
    names.set("headers", headers(&answer));
    let says_json = is_json(&answer);
    let reads = http.outputs.iter().any(|capture| !is_file(capture));
    let bytes = receive(&mut answer, what, file, reads).await?;
    names.set("body", body(&bytes, says_json));
    // The flow is checked: so many captures were made from the same declarations as the ports.
    assert_eq!(spec.outputs.len(), http.outputs.len(), "every output of {what} is read from a place of its own");
    let mut given = Vec::with_capacity(spec.outputs.len());
    for (port, capture) in spec.outputs.iter().zip(&http.outputs) {
        let wrong = |why: String| {
            let what = format!("{what} was answered, but output `{}` cannot be read from it", port.name);
            let failed = codes::because(codes::failure(codes::HTTP_BODY, what), why);
            codes::because(failed, format!("the answer begins with:\n{}", first_lines(&bytes))).finally()
        };
        let value = match (capture, &path) {
            (Capture::Path(template), Some(path)) => {
                let name = render::text(template, scope, Path::new(""))?;
                let name = name.rsplit('/').next().unwrap_or_default().to_owned();
                FileValue { name, path: path.clone() }.into()
            }
            (Capture::Json(source), _) => {
                let value = expr::eval(source, &names).map_err(|error| wrong(error.to_string()))?;
                fit(value, &port.ty).map_err(|mismatch| wrong(format!("`{source}`: {mismatch}")))?
            }
            _ => parse_text(&bytes, &port.ty).map_err(|why| wrong(format!("it {why}")))?,
        };
        given.push(job::give(value, port)?);
    }
    assert_eq!(given.len(), spec.outputs.len(), "{what} gives one value for each output of its task");
    Ok(given)
}

/// Converts a value to a type. JSON has no bytes, so they are base64 text there.
fn fit(value: PortValue, ty: &Type) -> Result<PortValue, crate::value::Mismatch> {
    match (ty, value) {
        (Type::Bytes, PortValue::Text(text)) => PortValue::from_json(serde_json::Value::String(text), ty),
        (ty, value) => value.conform(ty),
    }
}

/// Creates the file for an answer that is captured as a file.
fn place(shared: &ExecutorContext, step: &Step) -> Result<(File, PathBuf), Failure> {
    let made = shared.home.out_file(step.run(), &home::safe(&step.address()));
    made.map_err(|error| codes::work("the answer has no place", &error))
}

/// Reads the answer: into a file, into memory, or both.
async fn receive(answer: &mut Response, what: &str, mut file: Option<File>, reads: bool) -> Result<Vec<u8>, Failure> {
    let unwritten = |error: std::io::Error| codes::work("the answer could not be written", &error);
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| unreached(what, &error))? {
        if let Some(file) = &mut file {
            file.write_all(&chunk).map_err(unwritten)?;
        }
        if reads {
            bytes.extend_from_slice(&chunk);
        }
        if bytes.len() > BODY_BYTES_MAX {
            let failed = format!("the answer to {what} is larger than {BODY_BYTES_MAX} bytes");
            let failed = codes::failure(codes::HTTP_BODY, failed).finally();
            return Err(codes::because(failed, "hint: declare the output as a file"));
        }
    }
    Ok(bytes)
}

fn headers(answer: &Response) -> PortValue {
    let mut fields: BTreeMap<String, PortValue> = BTreeMap::new();
    for (name, value) in answer.headers() {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match fields.get_mut(name.as_str()) {
            Some(PortValue::Text(known)) => *known = format!("{known}, {text}"),
            _ => drop(fields.insert(name.as_str().to_owned(), PortValue::Text(text))),
        }
    }
    PortValue::Record(fields)
}

/// The answer is declared as JSON, or has no declared type and so may be JSON.
fn is_json(answer: &Response) -> bool {
    let says = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    says.is_none_or(|says| says.contains("json"))
}

/// Returns the body as expressions see it: parsed if it is JSON, else as text.
fn body(bytes: &[u8], says_json: bool) -> PortValue {
    let json = says_json.then(|| serde_json::from_slice(bytes).ok()).flatten();
    match json {
        Some(json) => PortValue::from_json(json, &Type::Json).unwrap_or(PortValue::Null),
        None if bytes.is_empty() => PortValue::Null,
        None => PortValue::Text(String::from_utf8_lossy(bytes).into_owned()),
    }
}
