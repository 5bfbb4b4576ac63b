//! Lowers calls over HTTP, of steps and in scopes.

use super::{references::Allowed, texts::TaskTexts};
use crate::syntax::{
    fields::clipped,
    http::{HttpBodyDecl, HttpDecl},
};
use onceflow_core::model::Type;
use onceflow_exec::{
    action::{self, HttpBody},
    expr::infer,
};

/// Lowers the request of a call, and which answers are good.
pub(super) fn call(texts: &mut TaskTexts<'_>, http: &HttpDecl) -> action::Http {
    let plain = Allowed { out: None, step: true, secrets: false };
    let secret = Allowed { secrets: true, ..plain };
    let url = texts.template(&http.url, plain);
    let begins = |prefix: &str| http.url.text.starts_with(prefix);
    if !(begins("http://") || begins("https://") || begins("${{")) {
        let message = format!("`{}` is not a URL", clipped(&http.url.text));
        texts.references.reader.say(http.url.span, "OF0136", message, "it begins with `http://` or `https://`");
    }
    let headers = http.headers.iter().map(|(key, text)| (key.name.clone(), texts.template(text, secret)));
    let headers = headers.collect();
    let body = match &http.body {
        None => None,
        Some(HttpBodyDecl::Text(text)) => Some(HttpBody::Text(texts.template(text, plain))),
        Some(HttpBodyDecl::Json(node)) => Some(HttpBody::Json(texts.json(node, plain))),
        Some(HttpBodyDecl::File(text)) => {
            let bound = texts.references.bind(text, 0..text.text.len(), plain);
            let ty = bound.as_ref().and_then(|bound| bound.ty.clone());
            if let Some(ty) = ty.filter(|ty| *ty != Type::File && infer::field(ty, "stem").is_none()) {
                texts.references.reader.say(text.span, "OF0136", format!("`file` sends a file, but this is {ty}"), "");
            }
            bound.map(|bound| {
                bound.takes.all.into_iter().for_each(|take| texts.takes.add(take));
                HttpBody::File(bound.source)
            })
        }
    };
    let key_header = http.key_header.clone().unwrap_or_else(action::key_header);
    let accept = if http.accept.is_empty() { action::accept() } else { http.accept.clone() };
    action::Http {
        method: http.method.clone(),
        url,
        headers,
        body,
        key_header,
        accept,
        outputs: vec![],
        secrets: vec![],
    }
}
