//! Expressions over a record: checked against the type of the record, and evaluated for each.

use super::declare::OnError;
use crate::{
    lower::syntax_hint,
    source::Text,
    syntax::fields::{FieldReader, clipped},
    words,
};
use onceflow_core::model::Type;
use onceflow_exec::{
    expr::{self, Bindings, Compiled, infer},
    value::PortValue,
};
use onceflow_stream::RecordFailure;
use std::sync::Arc;

/// The name of the record in expressions.
pub(super) const RECORD: &str = "record";

/// The name of a generated record's number.
pub(super) const NUMBER: &str = "n";

/// Characters of a record that a message shows.
const SHOWN_CHARS_MAX: usize = 300;

/// An expression that was checked.
#[derive(Clone, Debug)]
pub(super) struct RecordExpression {
    compiled: Arc<Compiled>,
    /// Its type, as far as it can be inferred; JSON otherwise.
    pub(super) ty: Type,
}

impl RecordExpression {
    /// Checks an expression that may use one name; `None` after reporting its problems.
    pub(super) fn check(reader: FieldReader<'_>, text: &Text, (name, ty): (&str, &Type)) -> Option<Self> {
        let compiled = match expr::compile(&text.text) {
            Ok(compiled) => compiled,
            Err(wrong) => {
                // Later errors are mostly caused by the first, so only that is reported.
                let wrong = wrong.into_iter().next()?;
                let message = format!("`{}` is not an expression: {}", clipped(&text.text), wrong.message);
                let span = reader.source.inside(text, wrong.span);
                reader.say(span, "OF0115", message, syntax_hint(&text.text));
                return None;
            }
        };
        let before = reader.report.len();
        for reference in compiled.references() {
            let span = reader.source.inside(text, reference.span.clone());
            if reference.path[0] != name {
                let message = format!("nothing is called `{}` here", reference.path[0]);
                let is_field = infer::field(ty, &reference.path[0]).is_some() && *ty != Type::Json;
                let hint = match is_field {
                    true => format!("did you mean `{name}.{}`?", reference.path.join(".")),
                    false => format!("an expression of a stream sees `{name}`"),
                };
                reader.say(span, "OF0116", message, hint);
            } else if let Some((of, missing, there)) = missing_field(ty, &reference.path) {
                let message = format!("`{of}` has no field `{missing}`");
                reader.say(span, "OF0117", message, words::meant(&missing, there.iter().map(String::as_str)));
            }
        }
        if reader.report.len() > before {
            return None;
        }
        let known = |path: &[String]| {
            (path.first().map(String::as_str) == Some(name)).then(|| type_of(ty, &path[1..])).flatten()
        };
        let inferred = match compiled.as_reference() {
            Some(reference) => known(&reference.path),
            None => match infer::infer(&text.text, &known) {
                Ok(ty) => ty,
                Err(problems) => {
                    for problem in problems {
                        let span = reader.source.inside(text, problem.span);
                        reader.say(span, "OF0141", problem.message, problem.hint);
                    }
                    return None;
                }
            },
        };
        Some(RecordExpression { compiled, ty: inferred.unwrap_or(Type::Json) })
    }

    /// Reports that its value cannot be one of these types; true if it may be.
    pub(super) fn must_be(&self, reader: FieldReader<'_>, text: &Text, wanted: &[Type], code: &'static str) -> bool {
        let is_right = self.ty == Type::Json || wanted.iter().any(|wanted| wanted.accepts(&self.ty));
        if !is_right {
            let wanted: Vec<_> = wanted.iter().map(ToString::to_string).collect();
            let message = format!("{} is wanted, but `{}` is {}", wanted.join(" or "), clipped(&text.text), self.ty);
            reader.say(text.span, code, message, "");
        }
        is_right
    }

    /// Returns the last name, if it is nothing but a reference: `page` of `record.page`.
    pub(super) fn own_name(&self) -> Option<&str> {
        let path = &self.compiled.as_reference()?.path;
        path.get(1..)?.last().map(String::as_str)
    }

    /// Computes its value.
    pub(super) fn eval(&self, scope: &Bindings) -> Result<PortValue, String> {
        self.compiled.eval(scope).map_err(|error| error.to_string())
    }
}

fn type_of(ty: &Type, path: &[String]) -> Option<Type> {
    path.iter().try_fold(ty.clone(), |ty, name| infer::field(&ty, name))
}

/// Finds the first field of a path that its type does not have: its owner, its name, and the fields there are.
fn missing_field(ty: &Type, path: &[String]) -> Option<(String, String, Vec<String>)> {
    let mut ty = ty.clone();
    for at in 1..path.len() {
        match infer::field(&ty, &path[at]) {
            Some(field) => ty = field,
            None => {
                let there = infer::fields(&ty).into_iter().map(str::to_owned).collect();
                return Some((path[..at].join("."), path[at].clone(), there));
            }
        }
    }
    None
}

/// The names of an expression over a record.
pub(super) fn scope(record: PortValue) -> Bindings {
    let mut scope = Bindings::new();
    scope.set(RECORD, record);
    scope
}

/// Returns the record of a scope.
pub(super) fn record_of(mut scope: Bindings) -> PortValue {
    scope.take(RECORD).unwrap_or(PortValue::Null)
}

impl OnError {
    /// Makes the failure of a record.
    pub(super) fn failure(self, why: String, scope: &Bindings) -> RecordFailure {
        match self {
            OnError::Skip => RecordFailure::Skip,
            OnError::Stop => {
                let record = scope.root(RECORD).map(|record| record.to_json().to_string()).unwrap_or_default();
                let cut: String = record.chars().take(SHOWN_CHARS_MAX).collect();
                let more = if cut.len() < record.len() { "…" } else { "" };
                RecordFailure::Stop(format!("{why}; the record is {cut}{more}"))
            }
        }
    }
}
