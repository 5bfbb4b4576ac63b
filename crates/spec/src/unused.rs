//! Finds steps that never run, because they have outputs and none is read. They are no problem, but may surprise the
//! user.

use onceflow_core::model::{Graph, Library, graph::ModuleKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A step whose outputs are never read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unused {
    /// Its name, prefixed with the steps it is nested in.
    pub step: String,
    /// The file it is in, and the line, from 1.
    pub place: Option<(String, u32)>,
}

impl std::fmt::Display for Unused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((file, line)) = &self.place {
            write!(f, "{file}:{line}: ")?;
        }
        write!(f, "step `{}` does not run: nothing reads its outputs", self.step)?;
        f.write_str(" (name it in `outputs`, or take away its `out`)")
    }
}

/// Returns all unused steps.
pub(crate) fn find(library: &Library) -> Vec<Unused> {
    let mut found = Vec::new();
    library.flows.values().for_each(|graph| in_graph(graph, "", &mut found));
    found
}

fn in_graph(graph: &Graph, around: &str, found: &mut Vec<Unused>) {
    let read: BTreeSet<_> = graph.connections.iter().filter_map(|joined| joined.from.module.as_deref()).collect();
    for module in &graph.modules {
        let step = format!("{around}{}", module.name);
        if !read.contains(module.name.as_str()) && gives(&module.kind) && !has_effect(&module.kind) {
            let place = module.origin.as_ref().map(|origin| (origin.file.to_string(), origin.line));
            found.push(Unused { step, place });
        } else if let ModuleKind::Composite(body) = &module.kind {
            in_graph(body, &format!("{step}."), found);
        }
    }
}

fn gives(kind: &ModuleKind) -> bool {
    match kind {
        ModuleKind::Task(task) => !task.outputs.is_empty(),
        ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
            !body.outputs.is_empty()
        }
        ModuleKind::Choice { arms } => arms.iter().any(|arm| !arm.body.outputs.is_empty()),
        ModuleKind::Constant(..) | ModuleKind::Call { .. } => false,
    }
}

/// A step without outputs is inside; such a step runs for its effect although nothing reads it.
fn has_effect(kind: &ModuleKind) -> bool {
    let inside = |body: &Graph| body.modules.iter().any(|module| has_effect(&module.kind));
    match kind {
        ModuleKind::Task(task) => task.outputs.is_empty(),
        ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => inside(body),
        ModuleKind::Choice { arms } => arms.iter().any(|arm| inside(&arm.body)),
        ModuleKind::Constant(..) | ModuleKind::Call { .. } => false,
    }
}
