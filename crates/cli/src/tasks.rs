//! The tasks of a flow as it was lowered: who takes them, and which of them must not run twice.

use onceflow_core::model::{Effect, Graph, Library, TaskSpec, graph::Kind};

/// Lets all tasks of a library be taken by the workers of one class.
pub(crate) fn set_class(library: &mut Library, class: &str) {
    library.flows.values_mut().for_each(|graph| in_graph(graph, &mut |task| task.class = class.to_owned()));
}

fn in_graph(graph: &mut Graph, change: &mut impl FnMut(&mut TaskSpec)) {
    for module in &mut graph.modules {
        match &mut module.kind {
            Kind::Task(task) => in_task(task, change),
            Kind::Composite(body) | Kind::Loop { body, .. } | Kind::Each { body, .. } => in_graph(body, change),
            Kind::Choice { arms } => arms.iter_mut().for_each(|arm| in_graph(&mut arm.body, change)),
            Kind::Constant(..) | Kind::Call { .. } => {}
        }
    }
}

fn in_task(task: &mut TaskSpec, change: &mut impl FnMut(&mut TaskSpec)) {
    change(task);
    if let Some(undo) = &mut task.compensation {
        in_task(undo, change);
    }
}

/// Whether the step at an address, or one inside it, must not run twice.
pub(crate) fn runs_once_only(library: &Library, flow: &str, address: &str) -> bool {
    let plain: String = plain(address);
    let path: Vec<_> = plain.split('/').filter(|part| !part.is_empty()).collect();
    library.flows.get(flow).is_some_and(|graph| once_in(library, graph, &path, DEPTH_MAX))
}

/// Flows may call themselves.
const DEPTH_MAX: usize = 64;

/// An address without the numbers of elements and iterations.
fn plain(address: &str) -> String {
    let mut inside = false;
    let keep = |c: &char| {
        match c {
            '[' | '@' => inside = true,
            '/' => inside = false,
            _ => {}
        }
        !inside
    };
    address.chars().filter(keep).collect()
}

fn once_in(library: &Library, graph: &Graph, path: &[&str], depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let named = |name: &str| path.first().is_none_or(|first| *first == name);
    graph.modules.iter().filter(|module| named(&module.name)).any(|module| {
        let rest = path.get(1..).unwrap_or_default();
        match &module.kind {
            Kind::Task(task) => matches!(task.effect, Effect::AtMostOnce | Effect::Transactional),
            Kind::Composite(body) | Kind::Loop { body, .. } | Kind::Each { body, .. } => {
                once_in(library, body, rest, depth - 1)
            }
            Kind::Choice { arms } => arms.iter().any(|arm| {
                let rest = if rest.first() == Some(&arm.name.as_str()) { &rest[1..] } else { rest };
                once_in(library, &arm.body, rest, depth - 1)
            }),
            Kind::Call { flow } => {
                library.flows.get(flow).is_some_and(|graph| once_in(library, graph, rest, depth - 1))
            }
            Kind::Constant(..) => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::model::graph::Module;

    fn task(name: &str, effect: Effect) -> Module {
        let mut spec = TaskSpec::new(name, vec![], vec![]);
        spec.effect = effect;
        spec.compensation = Some(Box::new(TaskSpec::new("undo", vec![], vec![])));
        Module { name: name.into(), kind: Kind::Task(spec), origin: None, attempt: false }
    }

    fn library() -> Library {
        let body = Graph { modules: vec![task("x", Effect::AtMostOnce), task("y", Effect::Pure)], ..Graph::default() };
        let each = Kind::Each { body, over: vec![], concurrency: None };
        let each = Module { name: "e".into(), kind: each, origin: None, attempt: false };
        let graph = Graph { modules: vec![each, task("p", Effect::Idempotent)], ..Graph::default() };
        Library { flows: [(String::from("f"), graph)].into() }
    }

    #[test]
    fn steps_that_must_not_run_twice_are_found_by_their_address() {
        let library = library();
        let table = [("/p", false), ("/e", true), ("/e[3]/x", true), ("/e[3]/y", false), ("/z", false)];
        for (address, expected) in table {
            assert_eq!(runs_once_only(&library, "f", address), expected, "{address}");
        }
    }

    #[test]
    fn every_task_gets_the_class_also_those_that_undo() {
        let mut library = library();
        set_class(&mut library, "c");
        let text = format!("{library:?}");
        assert_eq!(text.matches("class: \"c\"").count(), 6);
    }
}
