//! A short notation for graphs.

use onceflow_core::model::{
    CheckedFlow, Connection, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, graph::ModuleKind,
};

/// A builder of graphs.
#[derive(Clone, Default)]
pub(crate) struct G(pub(crate) Graph);

impl G {
    pub(crate) fn new() -> Self {
        G::default()
    }

    pub(crate) fn input(mut self, name: &str, ty: Type) -> Self {
        self.0.inputs.push(Port::new(name, ty));
        self
    }

    pub(crate) fn output(mut self, name: &str, ty: Type) -> Self {
        self.0.outputs.push(Port::new(name, ty));
        self
    }

    pub(crate) fn module(mut self, name: &str, kind: ModuleKind) -> Self {
        self.0.modules.push(Module { name: name.into(), kind, origin: None, attempt: false });
        self
    }

    /// As [`G::module`], but a failure inside is handled.
    pub(crate) fn attempt(mut self, name: &str, kind: ModuleKind) -> Self {
        self.0.modules.push(Module { name: name.into(), kind, origin: None, attempt: true });
        self
    }

    pub(crate) fn task(self, name: &str, spec: &TaskSpec) -> Self {
        self.module(name, ModuleKind::Task(spec.clone().into()))
    }

    /// `x -> a.in; a.out -> p`
    pub(crate) fn connect(mut self, text: &str) -> Self {
        for one in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
            let (from, to) = one.split_once("->").expect("from -> to");
            self.0.connections.push(Connection { from: end(from), to: end(to), origin: None });
        }
        self
    }

    pub(crate) fn graph(self) -> Graph {
        self.0
    }

    /// The flow `main`, checked.
    pub(crate) fn flow(self) -> CheckedFlow {
        checked(Library { flows: [(String::from("main"), self.0)].into() })
    }
}

/// The flow `main` of a library, checked.
pub(crate) fn checked(library: Library) -> CheckedFlow {
    CheckedFlow::check(library, "main").unwrap_or_else(|errors| panic!("{errors}"))
}

fn end(text: &str) -> Endpoint {
    match text.trim().split_once('.') {
        Some((module, port)) => Endpoint { module: Some(module.into()), port: port.into() },
        None => Endpoint { module: None, port: text.trim().into() },
    }
}

/// A chain of `n` modules of one task with input `x`.
pub(crate) fn chain(spec: &TaskSpec, n: usize) -> G {
    let mut g = G::new().input("x", Type::Int).output("y", Type::Int);
    for at in 0..n {
        g = g.task(&format!("f{at}"), spec);
        let from = if at == 0 { String::from("x") } else { format!("f{}.out", at - 1) };
        g = g.connect(&format!("{from} -> f{at}.x"));
    }
    g.connect(&format!("f{}.out -> y", n - 1))
}

/// Each element of `xs` through `body`, whose input is `x` and whose output is `y`.
pub(crate) fn each(body: Graph) -> ModuleKind {
    ModuleKind::Each { body, over: vec![String::from("x")], concurrency: None }
}
