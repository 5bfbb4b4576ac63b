//! Builds the request of an HTTP call.

use crate::{
    action::{Http, HttpBody, JsonTemplate, Template, TemplatePart},
    codes,
    expr::{self, Bindings},
    job::uncomputed,
    render,
    shell::{Unfit, words_of},
    value::PortValue,
};
use onceflow_engine::task::Failure;
use reqwest::{
    Client, Method, Request, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value as Json;
use std::{fmt::Write, path::Path};

/// The size of the largest file that is sent.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Makes the failure of a request that cannot be built. A retry would fail the same way.
fn wrong(what: impl std::fmt::Display) -> Failure {
    let mut failed = codes::failure(codes::UNFIT, what).finally();
    failed.not_done = true;
    failed
}

/// Builds the whole request.
pub(super) fn build(client: &Client, http: &Http, scope: &Bindings, key: &str) -> Result<Request, Failure> {
    let text = url(&http.url, scope)?;
    let url = Url::parse(&text).map_err(|error| wrong(format!("`{text}` is no URL: {error}")))?;
    let method = http.method.to_ascii_uppercase();
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| wrong(format!("`{method}` is no HTTP method")))?;
    let mut headers = HeaderMap::new();
    header(&mut headers, &http.key_header, key)?;
    for (name, template) in &http.headers {
        header(&mut headers, name, &render::text(template, scope, Path::new(""))?)?;
    }
    let mut request = client.request(method, url);
    if let Some(body) = &http.body {
        let (content_type, bytes) = content(body, scope)?;
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
        request = request.body(bytes);
    }
    request.headers(headers).build().map_err(|error| wrong(format!("the request cannot be made: {error}")))
}

fn header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Failure> {
    let known =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(format!("`{name}` is no name of a header")))?;
    let value = HeaderValue::from_str(value).or_else(|_| HeaderValue::from_bytes(value.as_bytes())).map_err(|_| {
        wrong(format!("header `{name}` cannot hold its value: it has a line break or another control character"))
    })?;
    headers.insert(known, value);
    Ok(())
}

/// Renders the URL. Values are percent-encoded, so that none can change the target of the call, except for a hole at
/// the beginning, which is the server's address.
pub(super) fn url(template: &Template, scope: &Bindings) -> Result<String, Failure> {
    let mut url = String::new();
    for part in &template.0 {
        match part {
            TemplatePart::Text(text) => url.push_str(text),
            TemplatePart::Hole(source) => {
                let value = expr::eval(source, scope).map_err(|error| uncomputed(&error))?;
                let words = words_of(&value, Path::new(""))
                    .map_err(|Unfit(why)| wrong(format!("`{source}` cannot be part of a URL: {why}")))?;
                match url.is_empty() {
                    true => url.push_str(&words.concat()),
                    false => url.push_str(&words.iter().map(|word| encode(word)).collect::<Vec<_>>().join(",")),
                }
            }
        }
    }
    Ok(url)
}

/// Percent-encodes all but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => write!(encoded, "%{byte:02X}").expect("text can be written"),
        }
    }
    encoded
}

fn content(body: &HttpBody, scope: &Bindings) -> Result<(&'static str, Vec<u8>), Failure> {
    match body {
        HttpBody::Json(template) => Ok(("application/json", json(template, scope)?.to_string().into_bytes())),
        HttpBody::Text(template) => {
            Ok(("text/plain; charset=utf-8", render::text(template, scope, Path::new(""))?.into_bytes()))
        }
        HttpBody::File(source) => match expr::eval(source, scope).map_err(|error| uncomputed(&error))? {
            PortValue::File(file) => read(&file.path, &file.name).map(|bytes| ("application/octet-stream", bytes)),
            PortValue::Bytes(bytes) => Ok(("application/octet-stream", bytes)),
            other => Err(wrong(format!("`{source}` should be a file, but is {}", other.describe()))),
        },
    }
}

fn read(path: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let unread = |error: std::io::Error| codes::work(format!("file `{name}` cannot be read"), &error);
    let size = std::fs::metadata(path).map_err(unread)?.len();
    match size > FILE_BYTES_MAX {
        true => Err(wrong(format!("file `{name}` has {size} bytes; at most {FILE_BYTES_MAX} are sent"))),
        false => std::fs::read(path).map_err(unread),
    }
}

/// Renders JSON with values in it. A text that is exactly one hole becomes the value, with its type.
fn json(template: &JsonTemplate, scope: &Bindings) -> Result<Json, Failure> {
    Ok(match template {
        JsonTemplate::Literal(json) => json.clone(),
        JsonTemplate::Text(template) => match template.0.as_slice() {
            [TemplatePart::Hole(source)] => expr::eval(source, scope).map_err(|error| uncomputed(&error))?.to_json(),
            _ => Json::String(render::text(template, scope, Path::new(""))?),
        },
        JsonTemplate::List(elements) => {
            Json::Array(elements.iter().map(|element| json(element, scope)).collect::<Result<_, _>>()?)
        }
        JsonTemplate::Record(fields) => {
            let fields = fields.iter().map(|(name, field)| Ok((name.clone(), json(field, scope)?)));
            Json::Object(fields.collect::<Result<_, Failure>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_changes_where_a_call_goes() {
        let mut scope = Bindings::new();
        scope.set("base", PortValue::text("https://example.org/api"));
        scope.set("id", PortValue::text("a/../b?x=1#y z&é%"));
        scope.set("ids", PortValue::List(vec![PortValue::Int(1), PortValue::text("a,b")]));
        let template = crate::template::parse("${{ base }}/orders/${{ id }}?of=${{ ids }}").unwrap().template;
        let expected = "https://example.org/api/orders/a%2F..%2Fb%3Fx%3D1%23y%20z%26%C3%A9%25?of=1,a%2Cb";
        assert_eq!(url(&template, &scope).unwrap(), expected);
        assert_eq!(Url::parse(expected).unwrap().as_str(), expected);
    }

    #[test]
    fn a_text_that_is_one_hole_keeps_its_type() {
        let mut scope = Bindings::new();
        scope.set("n", PortValue::Int(7));
        scope.set("xs", PortValue::List(vec![PortValue::text("\"")]));
        let text = |text: &str| JsonTemplate::Text(crate::template::parse(text).unwrap().template);
        let template = JsonTemplate::Record(vec![
            ("n".into(), text("${{ n }}")),
            ("s".into(), text("no. ${{ n }}")),
            ("xs".into(), JsonTemplate::List(vec![text("${{ xs }}"), JsonTemplate::Literal(Json::Null)])),
        ]);
        assert_eq!(json(&template, &scope).unwrap().to_string(), r#"{"n":7,"s":"no. 7","xs":[["\""],null]}"#);
    }
}
