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

/// The field of a failed record that says why.
pub(super) const ERROR: &str = "error";

/// The names of a fold: its value so far, and that of another part.
pub(super) const ACC: &str = "acc";
pub(super) const OTHER: &str = "other";

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
    /// Checks an expression that may use some names; `None` after reporting its problems. Of a [`RECORD`] whose fields are
    /// known, fields may be named without it: `count > 3` for `record.count > 3`.
    pub(super) fn check(reader: FieldReader<'_>, text: &Text, names: &[(&str, &Type)]) -> Option<Self> {
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
        let scope = ExpressionNames { names };
        let (before, mut bare) = (reader.report.len(), Vec::new());
        for reference in compiled.references() {
            let span = reader.source.inside(text, reference.span.clone());
            let Some((path, ty)) = scope.resolve(&reference.path) else {
                let message = format!("nothing is called `{}` here", reference.path[0]);
                reader.say(span, "OF0116", message, scope.hint(&reference.path[0]));
                continue;
            };
            if path.len() > reference.path.len() {
                bare.push(reference.span.start);
            }
            if let Some((of, missing, there)) = missing_field(ty, &path) {
                let message = format!("`{of}` has no field `{missing}`");
                reader.say(span, "OF0117", message, words::meant(&missing, there.iter().map(String::as_str)));
            }
        }
        if reader.report.len() > before {
            return None;
        }
        let known = |path: &[String]| {
            let (path, ty) = scope.resolve(path)?;
            type_of(ty, &path[1..])
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
        let compiled = if bare.is_empty() { compiled } else { expr::compile(&with_record(&text.text, bare)).ok()? };
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

    /// Returns its text, in which fields have their record's name.
    pub(super) fn text(&self) -> &str {
        self.compiled.source()
    }

    /// Computes its value.
    pub(super) fn eval(&self, scope: &Bindings) -> Result<PortValue, String> {
        self.compiled.eval(scope).map_err(|error| error.to_string())
    }
}

/// The names that an expression may use.
struct ExpressionNames<'a> {
    names: &'a [(&'a str, &'a Type)],
}

impl<'a> ExpressionNames<'a> {
    /// Returns the whole path that a path means, and the type of its first name; `None` if nothing is called so.
    fn resolve(&self, path: &[String]) -> Option<(Vec<String>, &'a Type)> {
        if let Some((_, ty)) = self.names.iter().find(|(name, _)| *name == path[0]) {
            return Some((path.to_vec(), ty));
        }
        let (_, ty) = self.names.iter().find(|(name, _)| *name == RECORD)?;
        let Type::Record(fields) = ty else { return None };
        fields
            .contains_key(&path[0])
            .then(|| (std::iter::once(RECORD.to_owned()).chain(path.iter().cloned()).collect(), *ty))
    }

    fn hint(&self, missing: &str) -> String {
        let fields = self.names.iter().filter(|(name, _)| *name == RECORD).flat_map(|(_, ty)| infer::fields(ty));
        let known: Vec<&str> = self.names.iter().map(|(name, _)| *name).chain(fields).collect();
        match words::meant(missing, known.iter().copied()) {
            meant if meant.is_empty() => {
                let names = words::list(self.names.iter().map(|(name, _)| *name));
                match self.names {
                    [] => String::from("this expression sees no names"),
                    _ => format!("this expression sees {names}"),
                }
            }
            meant => meant,
        }
    }
}

/// Writes `record.` in front of the names of fields.
fn with_record(text: &str, mut places: Vec<usize>) -> String {
    places.sort_unstable();
    places.dedup();
    let mut whole = text.to_owned();
    for place in places.into_iter().rev() {
        whole.insert_str(place, "record.");
    }
    whole
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
    /// Makes the failure of a record that has no other way.
    pub(super) fn failure(self, why: String, scope: &Bindings) -> RecordFailure {
        match self {
            OnError::Skip => RecordFailure::Skip,
            OnError::Stop | OnError::Divert => {
                RecordFailure::Stop(OnError::message(why, scope.root(RECORD).unwrap_or(&PortValue::Null)))
            }
        }
    }

    /// Says which record it is that failed.
    pub(super) fn message(why: String, record: &PortValue) -> String {
        let record = record.to_json().to_string();
        let cut: String = record.chars().take(SHOWN_CHARS_MAX).collect();
        let more = if cut.len() < record.len() { "…" } else { "" };
        format!("{why}; the record is {cut}{more}")
    }
}

/// The record of a side output for a record that failed.
pub(super) fn failed_record(record: PortValue, why: String) -> PortValue {
    let fields = [(String::from(RECORD), record), (String::from(ERROR), PortValue::text(why))];
    PortValue::Record(fields.into_iter().collect())
}
