//! Nested graphs under construction, and the names known in each. A name from an outer graph becomes an input of every
//! graph between.

use super::texts::TaskInputs;
use onceflow_core::model::{
    Connection, Endpoint, Graph, Module, Port, SourceLocation, TaskSpec, Type, graph::ModuleKind,
};
use std::collections::BTreeMap;

/// A graph under construction.
#[derive(Default)]
pub(super) struct GraphDraft {
    pub(super) graph: Graph,
    /// Modules, each with the position of the step it belongs to.
    modules: Vec<(usize, Module)>,
    /// The step that is being built.
    pub(super) at: usize,
    pub(super) names: BTreeMap<String, NameTarget>,
    /// Inputs that stand for names of outer graphs.
    captured: Vec<(String, Vec<String>, SourceLocation)>,
}

/// The target of a name.
#[derive(Clone, Debug)]
pub(super) enum NameTarget {
    /// The inputs of the flow: ports of its graph.
    Inputs(Vec<Port>),
    /// An input of this graph.
    Variable(Type),
    /// A step and its outputs.
    Step(Vec<Port>),
    /// A step whose outputs are not known: it has a problem, or it waits for itself.
    Unclear,
    /// The outputs of the graph: each with its source and type.
    Given(Vec<(String, Endpoint, Type)>),
}

/// The result of resolving a path of names.
#[derive(Clone, Debug)]
pub(super) struct ResolvedName {
    /// Its endpoint in the innermost graph.
    pub(super) from: Endpoint,
    pub(super) ty: Type,
    /// The path in full: `align` alone is `align.bam`.
    pub(super) path: Vec<String>,
    /// The number of names of the given path that were consumed.
    pub(super) used: usize,
}

/// The reason why a path cannot be resolved.
#[derive(Debug)]
pub(super) enum UnresolvedName {
    /// Nothing has this name.
    Root,
    /// `of` has no such part; it has these.
    Part { of: String, part: String, there: Vec<String> },
    /// `of` is not one value; it has these parts.
    Several { of: String, there: Vec<String> },
}

impl GraphDraft {
    pub(super) fn add(&mut self, module: Module) {
        self.modules.push((self.at, module));
    }

    /// Adds a task, and connects its inputs.
    pub(super) fn add_task(
        &mut self,
        name: &str,
        spec: TaskSpec,
        takes: &TaskInputs,
        origin: SourceLocation,
        attempt: bool,
    ) {
        for take in &takes.all {
            self.connect(take.from.clone(), port(name, take.port()), take.origin.clone());
        }
        self.add(Module { name: name.to_owned(), kind: ModuleKind::Task(spec.into()), origin: Some(origin), attempt });
    }

    pub(super) fn connect(&mut self, from: Endpoint, to: Endpoint, origin: SourceLocation) {
        self.graph.connections.push(Connection { from, to, origin: Some(origin) });
    }

    /// Returns the graph, with its modules in the order of the steps.
    fn finish(mut self) -> (Graph, Vec<(String, Vec<String>, SourceLocation)>) {
        self.modules.sort_by_key(|(at, _)| *at);
        self.graph.modules = self.modules.into_iter().map(|(_, module)| module).collect();
        (self.graph, self.captured)
    }
}

/// Makes an endpoint: a port of a module.
pub(super) fn port(module: &str, port: impl Into<String>) -> Endpoint {
    Endpoint { module: Some(module.to_owned()), port: port.into() }
}

/// Makes an endpoint: an input or an output of the graph itself.
pub(super) fn own(port: impl Into<String>) -> Endpoint {
    Endpoint { module: None, port: port.into() }
}

/// The nested graphs; the last is the innermost.
#[derive(Default)]
pub(super) struct GraphDrafts(Vec<GraphDraft>);

impl GraphDrafts {
    pub(super) fn open(&mut self, frame: GraphDraft) {
        self.0.push(frame);
    }

    pub(super) fn top(&mut self) -> &mut GraphDraft {
        self.0.last_mut().expect("a graph is being built")
    }

    /// Closes the innermost graph, to be the body of `module`, and connects the names it took from outer graphs.
    pub(super) fn close(&mut self, module: &str) -> Graph {
        let (graph, captured) = self.0.pop().expect("a graph is being built").finish();
        for (name, path, origin) in captured {
            if let Ok(found) = self.lookup(&path, &origin) {
                self.join(found.from, port(module, name), origin);
            }
        }
        graph
    }

    /// Connects two ports, unless they are connected already: several arms of a choice may take the same value.
    fn join(&mut self, from: Endpoint, to: Endpoint, origin: SourceLocation) {
        let top = self.top();
        if !top.graph.connections.iter().any(|connection| connection.to == to) {
            top.connect(from, to, origin);
        }
    }

    /// Closes the outermost graph.
    pub(super) fn finish(&mut self) -> Graph {
        self.0.pop().expect("a graph is being built").finish().0
    }

    /// The name is known here.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.0.iter().any(|frame| frame.names.contains_key(name))
    }

    /// The types of the step are not known, because it has a problem or waits for itself.
    pub(super) fn is_unclear(&self, step: &str) -> bool {
        self.0
            .iter()
            .rev()
            .find_map(|frame| frame.names.get(step))
            .is_some_and(|named| matches!(named, NameTarget::Unclear))
    }

    /// Returns the outputs of a step that is known here.
    pub(super) fn outputs_of(&self, step: &str) -> Option<Vec<String>> {
        self.0.iter().rev().find_map(|frame| match frame.names.get(step) {
            Some(NameTarget::Step(ports)) => Some(ports.iter().map(|port| port.name.clone()).collect()),
            Some(NameTarget::Unclear) => Some(vec![String::from("value")]),
            _ => None,
        })
    }

    /// Returns all names known here.
    pub(super) fn known(&self) -> Vec<String> {
        self.0.iter().rev().flat_map(|frame| frame.names.keys().cloned()).collect()
    }

    /// Resolves a path, seen from the innermost graph.
    pub(super) fn lookup(&mut self, path: &[String], origin: &SourceLocation) -> Result<ResolvedName, UnresolvedName> {
        let level = self.0.iter().rposition(|frame| frame.names.contains_key(&path[0])).ok_or(UnresolvedName::Root)?;
        let mut found = self.0[level].names[&path[0]].find(path)?;
        for frame in &mut self.0[level + 1..] {
            let name = found.path.join("-");
            if !frame.graph.inputs.iter().any(|port| port.name == name) {
                frame.graph.inputs.push(Port::new(name.clone(), found.ty.clone()));
                frame.captured.push((name.clone(), found.path.clone(), origin.clone()));
            }
            found.from = own(name);
        }
        Ok(found)
    }
}

impl NameTarget {
    fn find(&self, path: &[String]) -> Result<ResolvedName, UnresolvedName> {
        let root = path[0].clone();
        let full = |part: &str| vec![root.clone(), part.to_owned()];
        let names = |ports: &[Port]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
        let pick = |ports: &[Port]| match path.get(1) {
            Some(part) => match ports.iter().find(|port| port.name == *part) {
                Some(port) => Ok((port.clone(), 2)),
                None => Err(UnresolvedName::Part { of: root.clone(), part: part.clone(), there: names(ports) }),
            },
            None => Err(UnresolvedName::Several { of: root.clone(), there: names(ports) }),
        };
        match self {
            NameTarget::Inputs(ports) => {
                let (input, used) = pick(ports)?;
                Ok(ResolvedName { from: own(input.name.clone()), path: full(&input.name), ty: input.ty, used })
            }
            NameTarget::Variable(ty) => {
                Ok(ResolvedName { from: own(root.clone()), ty: ty.clone(), path: vec![root], used: 1 })
            }
            NameTarget::Step(ports) => {
                let (output, used) = match (ports.as_slice(), path.len()) {
                    ([only], 1) => (only.clone(), 1),
                    _ => pick(ports)?,
                };
                Ok(ResolvedName {
                    from: port(&root, output.name.clone()),
                    path: full(&output.name),
                    ty: output.ty,
                    used,
                })
            }
            NameTarget::Unclear => {
                let output = path.get(1).map_or("value", String::as_str);
                let used = path.len().min(2);
                Ok(ResolvedName { from: port(&root, output), path: full(output), ty: Type::Json, used })
            }
            NameTarget::Given(outputs) => {
                let ports: Vec<_> = outputs.iter().map(|(name, _, ty)| Port::new(name.clone(), ty.clone())).collect();
                let (output, used) = pick(&ports)?;
                let (_, from, _) =
                    outputs.iter().find(|(name, ..)| *name == output.name).ok_or(UnresolvedName::Root)?;
                Ok(ResolvedName { from: from.clone(), path: full(&output.name), ty: output.ty, used })
            }
        }
    }
}
