//! Resolves the references of an expression, and infers its type: every name becomes an input of a task, or a problem with
//! a hint.

use super::{
    draft::{GraphDrafts, ResolvedName, UnresolvedName, own},
    texts::{Take, TaskInputs},
};
use crate::{
    source::{Span, Text},
    syntax::{
        fields::{FieldReader, clipped},
        flow::FlowDecl,
    },
    words,
};
use onceflow_core::model::Type;
use onceflow_exec::expr::{self, infer};
use std::ops::Range;

/// The names that an expression may use beside those of the flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed<'a> {
    /// The outputs of the command, as `out.NAME`.
    pub(super) out: Option<&'a [String]>,
    /// `cpus`, `memory`, `attempt`, `key`.
    pub(super) step: bool,
    /// `secrets.NAME`.
    pub(super) secrets: bool,
}

/// Names that every step has beside its inputs.
const OF_STEP: &[&str] = &["cpus", "memory", "attempt", "key"];

/// An expression whose names are resolved.
pub(super) struct Bound {
    /// The source, with every reference in full.
    pub(super) source: String,
    /// The reference, if the expression is nothing but one.
    pub(super) plain: Option<Take>,
    pub(super) takes: TaskInputs,
    /// Its type, if that can be inferred.
    pub(super) ty: Option<Type>,
}

/// The names that one place of a flow file may refer to.
pub(super) struct References<'r> {
    pub(super) reader: FieldReader<'r>,
    pub(super) flow: &'r FlowDecl,
    pub(super) graphs: &'r mut GraphDrafts,
    /// Names that the leaf gives to its inputs.
    pub(super) aliases: &'r [(String, Type)],
}

impl References<'_> {
    /// Resolves all references of the expression at `range` of a text; `None` after reporting a problem.
    pub(super) fn bind(&mut self, text: &Text, range: Range<usize>, allowed: Allowed<'_>) -> Option<Bound> {
        let source = text.text[range.clone()].to_owned();
        let compiled = match expr::compile(&source) {
            Ok(compiled) => compiled,
            Err(wrong) => {
                // Later errors are mostly caused by the first, so only that is reported.
                if let Some(wrong) = wrong.into_iter().next() {
                    let span =
                        self.reader.source.inside(text, range.start + wrong.span.start..range.start + wrong.span.end);
                    let message = format!("`{}` is not an expression: {}", clipped(&source), wrong.message);
                    self.reader.say(span, "OF0115", message, syntax_hint(&source));
                }
                return None;
            }
        };
        let mut takes = TaskInputs::default();
        let mut edits = Vec::new();
        let mut types = Vec::new();
        let mut plain = None;
        let before = self.reader.report.len();
        for reference in compiled.references() {
            let at = range.start + reference.span.start..range.start + reference.span.end;
            let span = self.reader.source.inside(text, at);
            let Some((take, used)) = self.reference(&reference.path, span, allowed, &mut takes, &source) else {
                continue;
            };
            if used == reference.path.len() && compiled.as_reference().is_some() {
                plain = Some(take.clone());
            }
            let rest = reference.path[used..].iter();
            let full: Vec<_> = take.path.iter().chain(rest).map(String::as_str).collect();
            edits.push((reference.span.clone(), full.join(".")));
            let ty = reference.path[used..].iter().try_fold(take.ty.clone(), |ty, name| infer::field(&ty, name));
            types.push((reference.path.as_slice(), ty));
            takes.add(take);
        }
        if self.reader.report.len() > before {
            return None;
        }
        let known = |path: &[String]| types.iter().find(|(known, _)| *known == path).and_then(|(_, ty)| ty.clone());
        let ty = match &plain {
            Some(take) => Some(take.ty.clone()),
            None => self.typed(text, range, &known)?,
        };
        Some(Bound { source: edited(&source, edits), plain, takes, ty })
    }

    /// Infers the type of the expression at `range` of a text, if possible; `None` after reporting wrong calls.
    pub(super) fn typed(&self, text: &Text, range: Range<usize>, known: infer::TypeLookup<'_>) -> Option<Option<Type>> {
        match infer::infer(&text.text[range.clone()], known) {
            Ok(ty) => Some(ty),
            Err(problems) => {
                for infer::TypeProblem { span, message, hint } in problems {
                    let span = self.reader.source.inside(text, range.start + span.start..range.start + span.end);
                    self.reader.say(span, "OF0141", message, hint);
                }
                None
            }
        }
    }

    /// Resolves one reference to an input and the number of names of its path that this consumes; `None` if the
    /// reference takes no input, or has a problem.
    fn reference(
        &mut self,
        path: &[String],
        span: Span,
        allowed: Allowed<'_>,
        takes: &mut TaskInputs,
        whole: &str,
    ) -> Option<(Take, usize)> {
        let root = path[0].as_str();
        if let (Some(outs), "out") = (allowed.out, root) {
            self.own_output(path, outs, span);
            return None;
        }
        if allowed.step && OF_STEP.contains(&root) {
            return None;
        }
        if root == "secrets" {
            self.secret(path, span, allowed, takes);
            return None;
        }
        let origin = self.reader.origin(span);
        if let Some((name, ty)) = self.aliases.iter().find(|(name, _)| name == root).cloned() {
            let take = Take { path: vec![name], ty, from: own(""), origin };
            return self.fields_of(&take.ty, &path[1..], &path[..1], span).map(|()| (take, 1));
        }
        match self.graphs.lookup(path, &origin) {
            Ok(ResolvedName { from, ty, path: full, used }) => {
                self.fields_of(&ty, &path[used..], &path[..used], span)?;
                Some((Take { path: full, ty, from, origin }, used))
            }
            Err(missing) => {
                self.missing(missing, path, span, allowed, whole);
                None
            }
        }
    }

    fn own_output(&self, path: &[String], outs: &[String], span: Span) {
        let hint = || words::meant(path.get(1).map_or("", String::as_str), outs.iter().map(String::as_str));
        match path {
            [_] => self.reader.say(span, "OF0118", "`out` is not one value", hint()),
            [_, name, rest @ ..] if outs.contains(name) => {
                if let Some(field) = rest.first() {
                    let message = format!("`out.{name}` is where the output will be; it has no `{field}` yet");
                    self.reader.say(span, "OF0117", message, format!("`${{{{ out.{name} }}}}` is its path"));
                }
            }
            [_, name, ..] => self.reader.say(span, "OF0117", format!("this step has no output `{name}`"), hint()),
            [] => {}
        }
    }

    fn secret(&self, path: &[String], span: Span, allowed: Allowed<'_>, takes: &mut TaskInputs) {
        let declared = || self.flow.secrets.iter().map(|secret| secret.text.as_str());
        let Some(name) = path.get(1) else {
            return self.reader.say(span, "OF0126", "`secrets` is not one value", "`secrets.NAME`");
        };
        if !allowed.secrets {
            let hint = "secrets are for `run`, `env` and `headers`: what is computed from them would be stored";
            self.reader.say(span, "OF0126", format!("the secret `{name}` cannot be used here"), hint);
        } else if !declared().any(|secret| secret == name) {
            let meant = words::meant(name, declared());
            let hint = if meant.is_empty() { format!("add `secrets: [{name}]` to the flow") } else { meant };
            self.reader.say(span, "OF0126", format!("the secret `{name}` is not declared"), hint);
        } else {
            takes.secret(name);
        }
    }

    /// Checks that the type has these fields; `None` after reporting the one that is missing.
    fn fields_of(&self, ty: &Type, names: &[String], of: &[String], span: Span) -> Option<()> {
        let (mut ty, mut of) = (ty.clone(), of.join("."));
        for name in names {
            let Some(inner) = infer::field(&ty, name) else {
                let fields = infer::fields(&ty);
                let hint = match (&ty, fields.is_empty()) {
                    (Type::List(inner), _) if infer::field(inner, name).is_some() => {
                        format!("`{of}[0].{name}` is that of the first; `{of}.map(x, x.{name})` are those of all")
                    }
                    _ => words::meant(name, fields),
                };
                self.reader.say(span, "OF0117", format!("`{of}` is {ty}, which has no field `{name}`"), hint);
                return None;
            };
            ty = inner;
            of = format!("{of}.{name}");
        }
        Some(())
    }

    fn missing(&self, missing: UnresolvedName, path: &[String], span: Span, allowed: Allowed<'_>, whole: &str) {
        match missing {
            UnresolvedName::Root => {
                let message = format!("nothing is called `{}` here", path[0]);
                self.reader.say(span, "OF0116", message, self.root_hint(path, allowed, whole));
            }
            UnresolvedName::Part { of, part, there } if of == "inputs" => {
                let hint = words::meant(&part, there.iter().map(String::as_str));
                self.reader.say(span, "OF0116", format!("the flow has no input `{part}`"), hint);
            }
            UnresolvedName::Part { of, part, there } if of == "out" => {
                let hint = words::meant(&part, there.iter().map(String::as_str));
                self.reader.say(span, "OF0117", format!("the loop gives no `{part}`"), hint);
            }
            UnresolvedName::Part { of, part, there } => {
                let hint = words::meant(&part, there.iter().map(String::as_str));
                self.reader.say(span, "OF0117", format!("step `{of}` has no output `{part}`"), hint);
            }
            UnresolvedName::Several { of, there } => {
                let hint = match there.first() {
                    Some(first) => format!("`{of}.{first}`, for example"),
                    None => String::from("it gives nothing"),
                };
                self.reader.say(span, "OF0118", format!("`{of}` is not one value"), hint);
            }
        }
    }

    fn root_hint(&self, path: &[String], allowed: Allowed<'_>, whole: &str) -> String {
        let root = path[0].as_str();
        if self.flow.inputs.iter().any(|input| input.name.name == root) {
            return format!("did you mean `inputs.{}`?", path.join("."));
        }
        if OF_STEP.contains(&root) && !allowed.step {
            return format!("`{root}` is known in `run`, `env` and `http` only");
        }
        let known = self.graphs.known();
        let mut known: Vec<_> = known.iter().map(String::as_str).collect();
        known.extend(self.aliases.iter().map(|(name, _)| name.as_str()));
        if allowed.step {
            known.extend(OF_STEP);
        }
        let hint = words::meant(root, known);
        match (hint.starts_with("did"), whole == root) {
            (false, true) => format!("a text in an expression has quotes of its own: `\"'{root}'\"`"),
            _ => hint,
        }
    }

    /// Returns the type of an expression; `None` after reporting that it does not fit, or must be declared.
    pub(super) fn expression_type(&self, bound: &Bound, wanted: Option<&Type>, span: Span) -> Option<Type> {
        match (wanted, bound.ty.clone()) {
            (Some(wanted), Some(seen)) if !fits(wanted, &seen) => {
                let message = format!("{wanted} is wanted, but `{}` is {seen}", clipped(&bound.source));
                self.reader.say(span, "OF0130", message, "");
                None
            }
            (Some(wanted), _) => Some(wanted.clone()),
            (None, Some(seen)) => Some(seen),
            (None, None) if bound.takes.all.iter().all(|take| infer::is_data(&take.ty)) => Some(Type::Json),
            (None, None) => {
                let message = format!("the type of `{}` cannot be seen", clipped(&bound.source));
                self.reader.say(
                    span,
                    "OF0138",
                    message,
                    "say it: `expr: …` in a step of its own, with `out: { name: TYPE }`",
                );
                None
            }
        }
    }
}

/// A computed value may be of the wanted type: numbers are converted, and JSON may turn out to be anything.
pub(super) fn fits(wanted: &Type, seen: &Type) -> bool {
    let numbers = matches!((wanted, seen), (Type::Float, Type::Int) | (Type::Option(_), Type::Json));
    let inside = match (wanted, seen) {
        (Type::Option(wanted), Type::Option(seen)) | (Type::List(wanted), Type::List(seen)) => fits(wanted, seen),
        (Type::Option(wanted), seen) => fits(wanted, seen),
        _ => false,
    };
    wanted.accepts(seen) || numbers || inside || *seen == Type::Json
}

fn edited(source: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut edited = source.to_owned();
    for (range, text) in edits {
        edited.replace_range(range, &text);
    }
    edited
}

pub(crate) fn syntax_hint(source: &str) -> &'static str {
    if source.contains("${{") {
        "this is an expression already: leave out `${{` and `}}`"
    } else if source.contains(" and ") || source.contains(" or ") || source.contains("not ") {
        "`and`, `or`, `not` are `&&`, `||`, `!`"
    } else if source.contains('=') && !source.contains("==") && !source.contains("!=") {
        "to compare is `==`"
    } else {
        ""
    }
}
