//! Values that connect modules: a reference alone is a connection, everything else is computed by a task of its own.

use super::{Lowering, draft::port, references::Allowed, task, texts::TaskInputs};
use crate::{source::Text, syntax::step::StepSettings};
use onceflow_core::{
    model::{Endpoint, Module, Port, SourceLocation, Type, graph::ModuleKind},
    payload::Payload,
};
use onceflow_engine::task::Data;
use onceflow_exec::{
    action::{Action, Expr},
    expr,
};
use std::ops::Range;

impl Lowering<'_> {
    /// Provides the value of an expression in the innermost graph: through a connection if it is a bare reference, else
    /// as the output of a task called `name` that computes it.
    pub(super) fn value(
        &mut self,
        text: &Text,
        range: Range<usize>,
        name: &str,
        wanted: Option<&Type>,
    ) -> Option<(Endpoint, Type)> {
        let bound = self.references().bind(text, range, Allowed::default())?;
        if let Some(take) = bound.plain {
            return Some((take.from, take.ty));
        }
        let ty = self.references().expression_type(&bound, wanted, text.span)?;
        let origin = self.reader.origin(text.span);
        if bound.takes.all.is_empty()
            && let Some(constant) = constant(&bound.source, &ty)
        {
            let kind = ModuleKind::Constant(Port::new("value", ty.clone()), constant);
            self.graphs.top().add(Module { name: name.to_owned(), kind, origin: Some(origin), attempt: false });
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
        let spec = task::spec(&action, takes.ports(), outputs, &StepSettings::default(), &self.files.class);
        self.graphs.top().add_task(name, spec, takes, origin, false);
    }

    /// Lowers a condition; returns the endpoint of its boolean in the innermost graph. `None` after reporting that it
    /// is not a boolean.
    pub(super) fn condition(&mut self, text: &Text, module: &str, what: &str) -> Option<Endpoint> {
        let bound = self.references().bind(text, 0..text.text.len(), Allowed::default())?;
        match bound.ty.clone() {
            // JSON may turn out to be a boolean at run time.
            Some(Type::Bool | Type::Json) | None => {}
            Some(other) => {
                let hint = match &other {
                    Type::Option(_) => format!("`{} != null` asks whether it is there", text.text.trim()),
                    Type::List(_) => format!("`size({}) > 0` asks whether there are any", text.text.trim()),
                    Type::Int | Type::Float => format!("`{} > 0`, for example", text.text.trim()),
                    _ => String::new(),
                };
                self.reader.say(text.span, "OF0125", format!("`{what}` is true or false, but this is {other}"), hint);
                return None;
            }
        }
        match bound.plain {
            Some(take) if take.ty == Type::Bool => Some(take.from),
            _ => {
                let origin = self.reader.origin(text.span);
                self.computed(module, bound.source, &bound.takes, &Type::Bool, origin);
                Some(port(module, "value"))
            }
        }
    }
}

fn constant(source: &str, ty: &Type) -> Option<Payload> {
    let value = expr::eval(source, &expr::Bindings::default()).ok()?;
    payload(&value.conform(ty).ok()?.into_data(ty).ok()?)
}

/// Encodes a value as a constant of the flow; `None` if it holds a file.
pub(super) fn payload(data: &Data) -> Option<Payload> {
    Some(match data {
        Data::Bytes(bytes) => Payload::inline(bytes),
        Data::List(elements) => {
            let element = |data: &Data| match data {
                Data::None => Some(None),
                some => payload(some).map(Some),
            };
            Payload::List(elements.iter().map(|data| element(&data)).collect::<Option<Vec<_>>>()?.into())
        }
        Data::None => Payload::inline([0xc0]),
        Data::File(_) => return None,
    })
}
