//! One graph while it is described, and how it captures: a port of a graph further out becomes an input of every graph
//! between there and where it is used.

use super::state::{BuilderState, Closed};
use onceflow_core::model::{Connection, Endpoint, Graph, Module, Port, SourceLocation, Type};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// A [`Port`](crate::Port) without its type.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortHandle {
    flow: u64,
    scope: u32,
    source: ScopeSource,
}

impl PortHandle {
    pub(super) fn new(flow: u64, scope: u32, source: ScopeSource) -> Self {
        PortHandle { flow, scope, source }
    }

    pub(super) fn source(self) -> ScopeSource {
        self.source
    }
}

/// Where a connection can start in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeSource {
    /// An input of the graph.
    Input(u16),
    /// An output of a module.
    Module(u32, u16),
}

/// A graph that is being described.
#[derive(Default)]
pub(super) struct Scope {
    id: u32,
    graph: Graph,
    /// Per module the names of its outputs.
    outputs: Vec<Arc<[String]>>,
    /// The names of its modules.
    names: HashSet<String>,
    /// Per base the number that the next module called after it tries first, so that a thousand steps of one task do
    /// not ask for a thousand names each.
    numbers: BTreeMap<String, u64>,
    /// Ports it captures from the enclosing graph, each with the name of the input that brings it.
    captures: Vec<(ScopeSource, String)>,
}

/// A nested graph that is finished, and what it takes from the graph around it: from where, and as which input.
pub(super) struct Nested {
    pub(super) graph: Graph,
    pub(super) captures: Vec<(ScopeSource, String)>,
}

impl Scope {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn module_name(&self, module: u32) -> &str {
        &self.graph.modules[module as usize].name
    }

    pub(super) fn outputs_of(&self, module: u32) -> impl Iterator<Item = ScopeSource> {
        (0..self.outputs[module as usize].len()).map(move |at| ScopeSource::Module(module, index(at)))
    }

    /// Adds a module, under the name it was given, or one made from the name it has.
    pub(super) fn add(&mut self, mut module: Module, name: Option<String>, outputs: Arc<[String]>) -> u32 {
        module.name = name.unwrap_or_else(|| self.free_name(&module.name));
        self.names.insert(module.name.clone());
        self.graph.modules.push(module);
        self.outputs.push(outputs);
        u32::try_from(self.graph.modules.len() - 1).expect("a graph has fewer than four billion modules")
    }

    /// `base`, `base_2`, `base_3`: the first that is not taken.
    fn free_name(&mut self, base: &str) -> String {
        if !self.names.contains(base) {
            return base.into();
        }
        let number = match self.numbers.get_mut(base) {
            Some(number) => number,
            None => self.numbers.entry(base.into()).or_insert(2),
        };
        loop {
            let name = format!("{base}_{number}");
            *number += 1;
            if !self.names.contains(&name) {
                return name;
            }
        }
    }

    pub(super) fn connect(&mut self, from: ScopeSource, module: u32, input: &str, origin: &SourceLocation) {
        let to = Endpoint { module: Some(self.module_name(module).into()), port: input.into() };
        self.connect_to(from, to, origin);
    }

    fn connect_to(&mut self, from: ScopeSource, to: Endpoint, origin: &SourceLocation) {
        let from = self.endpoint(from);
        self.graph.connections.push(Connection { from, to, origin: Some(origin.clone()) });
    }

    fn endpoint(&self, source: ScopeSource) -> Endpoint {
        match source {
            ScopeSource::Input(at) => Endpoint { module: None, port: self.graph.inputs[usize::from(at)].name.clone() },
            ScopeSource::Module(module, at) => Endpoint {
                module: Some(self.module_name(module).into()),
                port: self.outputs[module as usize][usize::from(at)].clone(),
            },
        }
    }

    /// Describes a source for users: the input, or the module, with its port if it has several.
    pub(super) fn describe(&self, source: ScopeSource) -> String {
        let Endpoint { module, port } = self.endpoint(source);
        match (source, module) {
            (ScopeSource::Module(at, _), Some(module)) if self.outputs[at as usize].len() > 1 => {
                format!("{module}_{port}")
            }
            (_, Some(module)) => module,
            (_, None) => port,
        }
    }

    /// The input that brings what the graph around it has at `from`; a new one, if there is none yet.
    fn capture(&mut self, from: ScopeSource, description: &str, ty: &Type) -> ScopeSource {
        let known = self.captures.iter().find(|(known, _)| *known == from);
        let name = match known {
            Some((_, name)) => name.clone(),
            None => {
                let name = unique(description, |name| {
                    let taken = |port: &Port| port.name == name;
                    self.graph.inputs.iter().any(taken) || self.captures.iter().any(|(_, capture)| capture == name)
                });
                self.captures.push((from, name.clone()));
                name
            }
        };
        let inputs = &mut self.graph.inputs;
        let at = inputs.iter().position(|port| port.name == name).unwrap_or_else(|| {
            inputs.push(Port::new(name, ty.clone()));
            inputs.len() - 1
        });
        ScopeSource::Input(index(at))
    }
}

impl BuilderState {
    /// Begins a nested graph, and gives its inputs.
    pub(super) fn open(&mut self, inputs: Vec<Port>, captures: Vec<(ScopeSource, String)>) -> Vec<PortHandle> {
        let (flow, id, count) = (self.flow, self.scopes_ever, inputs.len());
        self.scopes_ever += 1;
        let graph = Graph { inputs, ..Graph::default() };
        self.scopes.push(Scope { id, graph, captures, ..Scope::default() });
        (0..count).map(|at| PortHandle::new(flow, id, ScopeSource::Input(index(at)))).collect()
    }

    /// Ends the nested graph that was begun last, which gives this.
    #[track_caller]
    pub(super) fn close(
        &mut self,
        what: &'static str,
        given: Vec<(Port, PortHandle)>,
        origin: &SourceLocation,
    ) -> Nested {
        for (port, handle) in given {
            let from = self.resolve(handle, &port.ty);
            let top = self.top();
            top.connect_to(from, Endpoint { module: None, port: port.name.clone() }, origin);
            top.graph.outputs.push(port);
        }
        let Scope { id, graph, captures, .. } = self.scopes.pop().expect("the graph that was begun last");
        if !self.scopes.is_empty() {
            let closed = Closed {
                what,
                origin: origin.clone(),
                inputs: graph.inputs.iter().map(|port| port.name.clone()).collect(),
                modules: graph.modules.iter().map(|module| module.name.clone()).collect(),
            };
            self.closed.insert(id, closed);
        }
        Nested { graph, captures }
    }

    /// Where a port is in the innermost graph; captures it from further out, if that is where it is.
    #[track_caller]
    pub(super) fn resolve(&mut self, handle: PortHandle, ty: &Type) -> ScopeSource {
        assert!(handle.flow == self.flow, "a port of one flow was used in another: make it an input of that flow");
        let Some(level) = self.scopes.iter().position(|scope| scope.id == handle.scope) else {
            panic!("{}", self.escaped(handle));
        };
        (level + 1..self.scopes.len()).fold(handle.source, |source, inner| {
            let description = self.scopes[inner - 1].describe(source);
            self.scopes[inner].capture(source, &description, ty)
        })
    }

    /// Makes the message for a port that is used though its closure has ended.
    fn escaped(&self, handle: PortHandle) -> String {
        let help = "let the closure return it, and use what the part gives";
        let Some(Closed { what, origin, inputs, modules }) = self.closed.get(&handle.scope) else {
            return format!("a port was used outside of the closure it was made in: {help}");
        };
        let name = match handle.source {
            ScopeSource::Input(at) => inputs.get(usize::from(at)),
            ScopeSource::Module(module, _) => modules.get(module as usize),
        };
        let name = name.map_or("?", String::as_str);
        let SourceLocation { file, line, column } = origin;
        format!(
            "port `{name}` was used outside of the closure it was made in, of the {what} at {file}:{line}:{column}: {help}"
        )
    }
}

/// `base`, `base_2`, `base_3`: the first that is not taken.
pub(super) fn unique(base: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(base) {
        return base.into();
    }
    (2_u64..).map(|at| format!("{base}_{at}")).find(|name| !taken(name)).expect("one of so many is free")
}

fn index(at: usize) -> u16 {
    u16::try_from(at).expect("a module has fewer than 65536 ports")
}
