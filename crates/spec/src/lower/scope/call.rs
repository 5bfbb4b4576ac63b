//! Flows that operations and cleanup flows of a scope call. The scope carries them, so none may lead back to the scope.

use super::{ScopeLowering, has_files};
use crate::{FlowInput, check, lower::references::Allowed, source::Text, syntax::scope::CallDecl, words};
use onceflow_core::model::{CheckedFlow, Type};
use onceflow_exec::{
    action::{CallGiven, CallInput, FileCall},
    value::PortValue,
};

impl ScopeLowering<'_> {
    /// Lowers a call; `None` after reporting a problem.
    pub(super) fn scope_call(&mut self, call: &CallDecl) -> Option<FileCall> {
        let (reader, file) = (self.references.reader, &call.file);
        let before = reader.report.len();
        let callee = match self.files.callee(reader, file) {
            Ok(callee) => callee,
            Err(problem) => {
                if let Some((message, hint)) = problem {
                    self.say(file.span, "OF0127", message, hint);
                }
                return None;
            }
        };
        let flow = self.called_flow(call, &callee.name)?;
        for (key, _) in call.ins.iter().flatten() {
            if !callee.inputs.iter().any(|input| input.name == key.name) {
                let hint = words::meant(&key.name, callee.inputs.iter().map(|input| input.name.as_str()));
                let message = format!("the flow `{}` has no input `{}`", file.text, key.name);
                self.say(key.span, "OF0128", message, hint);
            }
        }
        let inputs: Vec<_> = callee.inputs.iter().filter_map(|input| self.call_input(call, input)).collect();
        for output in callee.outputs.iter().flatten().filter(|output| has_files(&output.ty)) {
            let message =
                format!("output `{}` of `{}` is {}, which no message can hold", output.name, file.text, output.ty);
            let hint = "let the flow store the file where it belongs, and give its path as a text";
            self.say(file.span, "OF0142", message, hint);
        }
        let outputs = callee.outputs.filter(|_| reader.report.len() == before)?;
        Some(FileCall::new(&flow, inputs, outputs))
    }

    /// The flow that is called, checked for itself; `None` after reporting a problem.
    fn called_flow(&mut self, call: &CallDecl, name: &str) -> Option<CheckedFlow> {
        let library = self.files.library.called_by(name);
        if let Some(around) = library.flows.keys().find(|flow| self.files.loading.contains(*flow)) {
            let message = format!("`{}` leads back to this scope: the flow `{around}` is around it", call.file.text);
            let hint = "a flow that a scope calls does not call the scope again; a cycle of operations repeats things";
            self.say(call.file.span, "OF0142", message, hint);
            return None;
        }
        match self.files.called.get(name) {
            Some(known) => known.clone(),
            None => {
                let checked = check::run(library, name, &self.files.sources, self.references.reader.report);
                self.files.called.insert(name.to_owned(), checked.clone());
                checked
            }
        }
    }

    fn call_input(&mut self, call: &CallDecl, input: &FlowInput) -> Option<CallInput> {
        let given = call.ins.as_ref().and_then(|ins| ins.iter().find(|(key, _)| key.name == input.name));
        if call.ins.is_some() && given.is_none() && input.is_required() {
            let message = format!("the flow `{}` needs the input `{}`", call.file.text, input.name);
            self.say(call.file.span, "OF0129", message, format!("`in: {{ {}: … }}`; it is {}", input.name, input.ty));
            return None;
        }
        // An option that is left out is none.
        let is_none = given.is_none() && call.ins.is_some() && input.default.is_none();
        if has_files(&input.ty) && !is_none {
            let message =
                format!("input `{}` of `{}` is {}, which no message holds", input.name, call.file.text, input.ty);
            self.say(call.file.span, "OF0142", message, "let the flow take its path as a text");
            return None;
        }
        let given = match given {
            Some((_, text)) => CallGiven::Expr(self.call_expression(text, &input.ty)?),
            None if call.ins.is_some() => CallGiven::Default,
            None => CallGiven::Field,
        };
        let default = input.default.as_ref().map(PortValue::to_json);
        Some(CallInput {
            name: input.name.clone(),
            ty: input.ty.clone(),
            choices: input.choices.clone(),
            given,
            default,
        })
    }

    fn call_expression(&mut self, text: &Text, ty: &Type) -> Option<String> {
        let bound = self.references.bind(text, 0..text.text.len(), Allowed::default())?;
        self.only_messages(text.span, &bound.takes);
        self.references.expression_type(&bound, Some(ty), text.span)?;
        Some(bound.source)
    }
}
