//! Calls to flows in other files.

use super::{Lowering, draft::port, value::payload};
use crate::{source::Text, syntax::step::StepDecl, words};
use onceflow_core::model::{Module, Port, Type, graph::ModuleKind};

impl Lowering<'_> {
    pub(super) fn call(&mut self, step: &StepDecl, file: &Text, name: &str) -> Option<Vec<Port>> {
        if let Some(after) = self.after.first() {
            let hint = "give the flow an input, and let its first step mention it";
            self.reader.say(after.span, "OF0134", "a flow that is called cannot wait for other steps", hint);
        }
        let callee = match self.files.callee(self.reader, file) {
            Ok(callee) => callee,
            Err(problem) => {
                if let Some((message, hint)) = problem {
                    self.reader.say(file.span, "OF0127", message, hint);
                }
                return None;
            }
        };
        let origin = self.reader.origin(step.span);
        for input in &callee.inputs {
            let Some((key, text)) = step.ins.iter().find(|(key, _)| key.name == input.name) else {
                self.left_out(step, input, name);
                continue;
            };
            let ty = input.shape.ty();
            let made = format!("{name}-in-{}", key.name);
            let Some((from, given)) = self.value(text, 0..text.text.len(), &made, Some(&ty)) else { continue };
            if !ty.accepts(&given) {
                let message = format!("input `{}` of `{}` is {ty}, but {given} is given", key.name, file.text);
                let hint = match &given {
                    Type::List(inner) if ty.accepts(inner) => format!("`each: x in {}`, and then `x`", text.text),
                    _ => String::new(),
                };
                self.reader.say(text.span, "OF0130", message, hint);
                continue;
            }
            let origin = self.reader.origin(text.span);
            self.graphs.top().connect(from, port(name, key.name.clone()), origin);
        }
        for (key, _) in &step.ins {
            if !callee.inputs.iter().any(|input| input.name == key.name) {
                let hint = words::meant(&key.name, callee.inputs.iter().map(|input| input.name.as_str()));
                let message = format!("the flow `{}` has no input `{}`", file.text, key.name);
                self.reader.say(key.span, "OF0128", message, hint);
            }
        }
        let kind = ModuleKind::Call { flow: callee.name };
        self.graphs.top().add(Module { name: name.to_owned(), kind, origin: Some(origin), attempt: step.attempt });
        callee.outputs
    }

    /// Handles an input that is not given: it must have a default, or be an option.
    fn left_out(&mut self, step: &StepDecl, input: &crate::FlowInput, name: &str) {
        let ty = input.shape.ty();
        let data = input.default.clone().and_then(|value| value.into_data(&ty).ok());
        if let Some(constant) = data.as_ref().and_then(payload) {
            let made = format!("{name}-in-{}", input.name);
            let origin = self.reader.origin(step.span);
            let kind = ModuleKind::Constant(Port::new("value", ty), constant);
            let top = self.graphs.top();
            top.add(Module { name: made.clone(), kind, origin: Some(origin.clone()), attempt: false });
            top.connect(port(&made, "value"), port(name, input.name.clone()), origin);
        } else if !matches!(ty, Type::Option(_)) {
            let message = format!("the flow that step `{}` calls needs the input `{}`", step.name.name, input.name);
            self.reader.say(step.span, "OF0129", message, format!("`in: {{ {}: … }}`; it is {ty}", input.name));
        }
    }
}
