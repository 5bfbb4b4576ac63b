//! The version of a leaf: all that its results depend on beside its inputs. That is its text with inputs referred to by
//! position, so that the names of steps are no part of it.

use onceflow_core::model::Port;
use onceflow_exec::{
    action::{Action, Capture, HttpBody, JsonTemplate, Template, TemplatePart},
    expr,
};

/// Returns the version of a task.
pub(super) fn version(action: &Action, inputs: &[Port], outputs: &[Port], said: &str) -> String {
    let types: Vec<_> = outputs.iter().map(|port| port.ty.to_string()).collect();
    PortIndex(inputs).action(action.clone()).version(&format!("{}\0{said}", types.join(";")))
}

/// Returns, for each expression, the inputs it refers to.
pub(super) fn depends(action: &Action, inputs: &[Port]) -> Vec<Vec<u16>> {
    let Action::Expr(all) = action else { return vec![] };
    let mentioned = |source: &String| {
        let compiled = expr::compile(source).ok();
        let paths = compiled.iter().flat_map(|compiled| compiled.references());
        let mut found: Vec<u16> =
            paths.filter_map(|path| PortIndex(inputs).find(&path.path)).map(|(at, _)| at).collect();
        // Every expression waits for the steps in `after`.
        found.extend((0..inputs.len()).filter(|at| inputs[*at].name.starts_with("after-")).map(|at| at as u16));
        found.sort_unstable();
        found.dedup();
        found
    };
    all.outputs.iter().map(mentioned).collect()
}

struct PortIndex<'a>(&'a [Port]);

impl PortIndex<'_> {
    /// Finds the input that a path begins with, and the number of names of the path that are its own.
    fn find(&self, path: &[String]) -> Option<(u16, usize)> {
        let named = |len: usize| {
            let name = path.get(..len)?.join("-");
            self.0.iter().position(|port| port.name == name).map(|at| (at as u16, len))
        };
        named(2).or_else(|| named(1))
    }

    fn expression(&self, source: &mut String) {
        let Ok(compiled) = expr::compile(source) else { return };
        for reference in compiled.references().iter().rev() {
            if let Some((at, used)) = self.find(&reference.path) {
                let rest: String = reference.path[used..].iter().map(|name| format!(".{name}")).collect();
                source.replace_range(reference.span.clone(), &format!("_{at}{rest}"));
            }
        }
    }

    fn template(&self, template: &mut Template) {
        for part in &mut template.0 {
            if let TemplatePart::Hole(source) = part {
                self.expression(source);
            }
        }
    }

    fn action(&self, mut action: Action) -> Action {
        match &mut action {
            Action::Command(command) => {
                self.template(&mut command.run);
                command.env.values_mut().for_each(|template| self.template(template));
                self.captures(&mut command.outputs);
            }
            Action::Script(script) => {
                script.env.values_mut().for_each(|template| self.template(template));
                self.captures(&mut script.outputs);
            }
            Action::Http(http) => {
                self.template(&mut http.url);
                http.headers.iter_mut().for_each(|(_, template)| self.template(template));
                match &mut http.body {
                    Some(HttpBody::Json(json)) => self.json(json),
                    Some(HttpBody::Text(template)) => self.template(template),
                    Some(HttpBody::File(source)) => self.expression(source),
                    None => {}
                }
                self.captures(&mut http.outputs);
            }
            Action::Expr(all) => all.outputs.iter_mut().for_each(|source| self.expression(source)),
            Action::Stream(stream) => stream.given.values_mut().for_each(|source| self.expression(source)),
            // Its commands and expressions see messages, not inputs.
            Action::Wait(_) | Action::Scope(_) => {}
        }
        action
    }

    fn captures(&self, captures: &mut [Capture]) {
        for capture in captures {
            if let Capture::Path(template) = capture {
                self.template(template);
            }
        }
    }

    fn json(&self, json: &mut JsonTemplate) {
        match json {
            JsonTemplate::Literal(_) => {}
            JsonTemplate::Text(template) => self.template(template),
            JsonTemplate::List(items) => items.iter_mut().for_each(|item| self.json(item)),
            JsonTemplate::Record(fields) => fields.iter_mut().for_each(|(_, value)| self.json(value)),
        }
    }
}
