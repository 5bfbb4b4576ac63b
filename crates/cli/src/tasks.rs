//! The tasks of a lowered flow, and the workers that take them.

use crate::session::Who;
use onceflow_core::model::{Graph, Library, TaskSpec, graph::ModuleKind};
use std::sync::Arc;

/// Returns a library whose tasks are taken by these processes, for the run of this key.
pub(crate) fn for_workers(library: &Library, who: Who, key: &str) -> Library {
    let mut library = library.clone();
    set_class(&mut library, |class| who.class(key, class));
    library
}

/// Sets the class of workers that take each task of a library, computed from the class in the flow file.
fn set_class(library: &mut Library, class: impl Fn(&str) -> String) {
    library.flows.values_mut().for_each(|graph| in_graph(graph, &mut |task| task.class = class(&task.class)));
}

fn in_graph(graph: &mut Graph, change: &mut impl FnMut(&mut TaskSpec)) {
    for module in &mut graph.modules {
        match &mut module.kind {
            ModuleKind::Task(task) => in_task(Arc::make_mut(task), change),
            ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
                in_graph(body, change);
            }
            ModuleKind::Choice { arms } => arms.iter_mut().for_each(|arm| in_graph(&mut arm.body, change)),
            ModuleKind::Constant(..) | ModuleKind::Call { .. } => {}
        }
    }
}

fn in_task(task: &mut TaskSpec, change: &mut impl FnMut(&mut TaskSpec)) {
    change(task);
    if let Some(undo) = &mut task.compensation {
        in_task(undo, change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::model::{Effect, graph::Module};

    fn task(name: &str, effect: Effect) -> Module {
        let mut spec = TaskSpec::new(name, vec![], vec![]);
        spec.effect = effect;
        spec.compensation = Some(Box::new(TaskSpec::new("undo", vec![], vec![])));
        Module { name: name.into(), kind: ModuleKind::Task(spec.into()), origin: None, attempt: false }
    }

    fn library() -> Library {
        let body = Graph { modules: vec![task("x", Effect::AtMostOnce), task("y", Effect::Pure)], ..Graph::default() };
        let each = ModuleKind::Each { body, over: vec![], concurrency: None };
        let each = Module { name: "e".into(), kind: each, origin: None, attempt: false };
        let graph = Graph { modules: vec![each, task("p", Effect::Idempotent)], ..Graph::default() };
        Library { flows: [(String::from("f"), graph)].into() }
    }

    #[test]
    fn every_task_gets_the_class_also_those_that_undo() {
        let mut library = library();
        set_class(&mut library, |class| format!("{class}/c"));
        let text = format!("{library:?}");
        assert_eq!(text.matches("class: \"default/c\"").count(), 6);
    }
}
