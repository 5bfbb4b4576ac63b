//! Binds the references of expressions and holes: every name becomes an input of the task, or a problem with a hint.

use super::{
    Lowering,
    draft::{ResolvedName, UnresolvedName, own, port},
};
use crate::{
    source::{Span, Text},
    syntax::fields::clipped,
    words,
};
use onceflow_core::model::{Endpoint, Module, Port, SourceLocation, Type, graph::ModuleKind};
use onceflow_exec::{
    action::{Action, Expr, Template, TemplatePart},
    expr::{self, infer},
    template,
};
use std::ops::Range;

/// A value that a task takes as an input.
#[derive(Clone, Debug)]
pub(super) struct Take {
    /// Its path; the port is this joined with `-`.
    pub(super) path: Vec<String>,
    pub(super) ty: Type,
    pub(super) from: Endpoint,
    pub(super) origin: SourceLocation,
}

/// All inputs of a task, each once, in order of appearance.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskInputs {
    pub(super) all: Vec<Take>,
    pub(super) secrets: Vec<String>,
}

impl Take {
    pub(super) fn port(&self) -> String {
        self.path.join("-")
    }
}

impl TaskInputs {
    pub(super) fn add(&mut self, take: Take) {
        if !self.all.iter().any(|other| other.path == take.path) {
            self.all.push(take);
        }
    }

    fn secret(&mut self, name: &str) {
        if !self.secrets.iter().any(|other| other == name) {
            self.secrets.push(name.to_owned());
        }
    }

    pub(super) fn ports(&self) -> Vec<Port> {
        self.all.iter().map(|take| Port::new(take.port(), take.ty.clone())).collect()
    }
}

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

impl Lowering<'_> {
    /// Parses a text with holes and binds every hole.
    pub(super) fn template(&mut self, text: &Text, allowed: Allowed<'_>, takes: &mut TaskInputs) -> Template {
        let parsed = match template::parse(&text.text) {
            Ok(parsed) => parsed,
            Err(wrong) => {
                for wrong in wrong {
                    let span = self.source.inside(text, wrong.span);
                    self.say(span, "OF0114", wrong.message, wrong.hint.unwrap_or_default());
                }
                return Template::default();
            }
        };
        let mut parts = Vec::new();
        for (part, span) in parsed.template.0.into_iter().zip(parsed.spans) {
            parts.push(match part {
                TemplatePart::Text(text) => TemplatePart::Text(text),
                TemplatePart::Hole(source) => {
                    TemplatePart::Hole(self.hole(text, span, allowed, takes).unwrap_or(source))
                }
            });
        }
        Template(parts)
    }

    /// Binds the expression at `range` of a text, and adds its references to `takes`.
    pub(super) fn hole(
        &mut self,
        text: &Text,
        range: Range<usize>,
        allowed: Allowed<'_>,
        takes: &mut TaskInputs,
    ) -> Option<String> {
        let bound = self.bind(text, range, allowed)?;
        bound.takes.all.into_iter().for_each(|take| takes.add(take));
        bound.takes.secrets.iter().for_each(|secret| takes.secret(secret));
        Some(bound.source)
    }

    /// Resolves all references of the expression at `range` of a text; `None` after reporting a problem.
    pub(super) fn bind(&mut self, text: &Text, range: Range<usize>, allowed: Allowed<'_>) -> Option<Bound> {
        let source = text.text[range.clone()].to_owned();
        let compiled = match expr::compile(&source) {
            Ok(compiled) => compiled,
            Err(wrong) => {
                // Later errors are mostly caused by the first, so only that is reported.
                if let Some(wrong) = wrong.into_iter().next() {
                    let span = self.source.inside(text, range.start + wrong.span.start..range.start + wrong.span.end);
                    let message = format!("`{}` is not an expression: {}", clipped(&source), wrong.message);
                    self.say(span, "OF0115", message, syntax_hint(&source));
                }
                return None;
            }
        };
        let mut takes = TaskInputs::default();
        let mut edits = Vec::new();
        let mut types = Vec::new();
        let mut plain = None;
        let before = self.report.len();
        for reference in compiled.references() {
            let at = range.start + reference.span.start..range.start + reference.span.end;
            let span = self.source.inside(text, at);
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
        if self.report.len() > before {
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
                    let span = self.source.inside(text, range.start + span.start..range.start + span.end);
                    self.say(span, "OF0141", message, hint);
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
        let origin = self.origin(span);
        if let Some((name, ty)) = self.aliases.iter().find(|(name, _)| name == root).cloned() {
            let take = Take { path: vec![name], ty, from: own(""), origin };
            return self.fields_of(&take.ty, &path[1..], &path[..1], span).map(|()| (take, 1));
        }
        match self.frames.lookup(path, &origin) {
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
            [_] => self.say(span, "OF0118", "`out` is not one value", hint()),
            [_, name, rest @ ..] if outs.contains(name) => {
                if let Some(field) = rest.first() {
                    let message = format!("`out.{name}` is where the output will be; it has no `{field}` yet");
                    self.say(span, "OF0117", message, format!("`${{{{ out.{name} }}}}` is its path"));
                }
            }
            [_, name, ..] => self.say(span, "OF0117", format!("this step has no output `{name}`"), hint()),
            [] => {}
        }
    }

    fn secret(&self, path: &[String], span: Span, allowed: Allowed<'_>, takes: &mut TaskInputs) {
        let declared = || self.flow.secrets.iter().map(|secret| secret.text.as_str());
        let Some(name) = path.get(1) else {
            return self.say(span, "OF0126", "`secrets` is not one value", "`secrets.NAME`");
        };
        if !allowed.secrets {
            let hint = "secrets are for `run`, `env` and `headers`: what is computed from them would be stored";
            self.say(span, "OF0126", format!("the secret `{name}` cannot be used here"), hint);
        } else if !declared().any(|secret| secret == name) {
            let meant = words::meant(name, declared());
            let hint = if meant.is_empty() { format!("add `secrets: [{name}]` to the flow") } else { meant };
            self.say(span, "OF0126", format!("the secret `{name}` is not declared"), hint);
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
                self.say(span, "OF0117", format!("`{of}` is {ty}, which has no field `{name}`"), hint);
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
                self.say(span, "OF0116", message, self.root_hint(path, allowed, whole));
            }
            UnresolvedName::Part { of, part, there } if of == "inputs" => {
                let hint = words::meant(&part, there.iter().map(String::as_str));
                self.say(span, "OF0116", format!("the flow has no input `{part}`"), hint);
            }
            UnresolvedName::Part { of, part, there } if of == "out" => {
                let hint = words::meant(&part, there.iter().map(String::as_str));
                self.say(span, "OF0117", format!("the loop gives no `{part}`"), hint);
            }
            UnresolvedName::Part { of, part, there } => {
                let hint = words::meant(&part, there.iter().map(String::as_str));
                self.say(span, "OF0117", format!("step `{of}` has no output `{part}`"), hint);
            }
            UnresolvedName::Several { of, there } => {
                let hint = match there.first() {
                    Some(first) => format!("`{of}.{first}`, for example"),
                    None => String::from("it gives nothing"),
                };
                self.say(span, "OF0118", format!("`{of}` is not one value"), hint);
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
        let known = self.frames.known();
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

    /// Provides the value of an expression in the innermost graph: through a connection if it is a bare reference, else
    /// as the output of a task called `name` that computes it.
    pub(super) fn value(
        &mut self,
        text: &Text,
        range: Range<usize>,
        name: &str,
        wanted: Option<&Type>,
    ) -> Option<(Endpoint, Type)> {
        let bound = self.bind(text, range, Allowed::default())?;
        if let Some(take) = bound.plain {
            return Some((take.from, take.ty));
        }
        let ty = self.expression_type(&bound, wanted, text.span)?;
        let origin = self.origin(text.span);
        if bound.takes.all.is_empty()
            && let Some(constant) = constant(&bound.source, &ty)
        {
            let kind = ModuleKind::Constant(Port::new("value", ty.clone()), constant);
            self.frames.top().add(Module { name: name.to_owned(), kind, origin: Some(origin), attempt: false });
        } else {
            self.computed(name, bound.source, &bound.takes, &ty, origin);
        }
        Some((port(name, "value"), ty))
    }

    /// Adds a task that computes one value.
    pub(super) fn computed(
        &mut self,
        name: &str,
        source: String,
        takes: &TaskInputs,
        ty: &Type,
        origin: SourceLocation,
    ) {
        let action = Action::Expr(Expr { outputs: vec![source] });
        let outputs = vec![Port::new("value", ty.clone())];
        let spec = self.task(&action, takes.ports(), outputs, &crate::syntax::step::StepSettings::default());
        self.add_task(name, spec, takes, origin, false);
    }

    /// Returns the type of an expression; `None` after reporting that it does not fit, or must be declared.
    pub(super) fn expression_type(&self, bound: &Bound, wanted: Option<&Type>, span: Span) -> Option<Type> {
        match (wanted, bound.ty.clone()) {
            (Some(wanted), Some(seen)) if !fits(wanted, &seen) => {
                let message = format!("{wanted} is wanted, but `{}` is {seen}", clipped(&bound.source));
                self.say(span, "OF0130", message, "");
                None
            }
            (Some(wanted), _) => Some(wanted.clone()),
            (None, Some(seen)) => Some(seen),
            (None, None) if bound.takes.all.iter().all(|take| infer::is_data(&take.ty)) => Some(Type::Json),
            (None, None) => {
                let message = format!("the type of `{}` cannot be seen", clipped(&bound.source));
                self.say(span, "OF0138", message, "say it: `expr: …` in a step of its own, with `out: { name: TYPE }`");
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

fn constant(source: &str, ty: &Type) -> Option<onceflow_core::payload::Payload> {
    let value = expr::eval(source, &expr::Bindings::default()).ok()?;
    super::call::payload(&value.conform(ty).ok()?.into_data(ty).ok()?)
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
