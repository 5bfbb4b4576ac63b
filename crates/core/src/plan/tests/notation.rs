//! A tiny notation for graphs: `x->a.ax; a.ap->p`. Plain names are the parent's ports, `a.ax` is a port of sub-module
//! `a`, `/a` its vertex. Dependencies are maximal, unless given: `ax->ap aq; ay->ap`.

use crate::plan::{
    DependencyGraph, DependencyGraphBuilder, Frontier, PortSource, PortTarget, Vertex, VertexKind, VertexState,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct Ports {
    ins: Vec<String>,
    outs: Vec<String>,
}

/// A graph and the names of its sub-modules and ports.
pub(super) struct Named {
    pub(super) graph: DependencyGraph,
    modules: Vec<String>,
    /// The in-ports of the parent.
    inputs: Vec<String>,
    outputs: Vec<String>,
    ports: Vec<Ports>,
}

fn number(names: &mut Vec<String>, name: &str) -> u32 {
    let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    at as u32
}

/// Parses the notation, with maximal dependencies.
pub(super) fn graph(text: &str) -> Named {
    parse(text, None)
}

/// Parses the notation; `depends` gives per in-port the out-ports of its sub-module that depend on it.
pub(super) fn graph_with(text: &str, depends: &str) -> Named {
    parse(text, Some(depends))
}

fn parse(text: &str, depends: Option<&str>) -> Named {
    let (mut modules, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    let mut ports: Vec<Ports> = Vec::new();
    let mut connections = Vec::new();
    for connection in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (from, to) = connection.split_once("->").expect("from->to");
        let mut port = |end: &str, out: bool| {
            let (module, port) = end.trim().split_once('.')?;
            let module = number(&mut modules, module);
            ports.resize_with(modules.len(), Ports::default);
            let names = &mut ports[module as usize];
            Some((module, number(if out { &mut names.outs } else { &mut names.ins }, port)))
        };
        let place = match port(from, true) {
            Some((module, at)) => PortSource::Port(module, at),
            None => PortSource::Input(number(&mut inputs, from.trim())),
        };
        let target = match port(to, false) {
            Some((module, at)) => PortTarget::Port(module, at),
            None => PortTarget::Output(number(&mut outputs, to.trim())),
        };
        connections.push((place, target));
    }
    let mut builder = DependencyGraphBuilder::new(inputs.len() as u32, outputs.len() as u32);
    for ports in &ports {
        match depends {
            None => builder.module(ports.ins.len() as u32, ports.outs.len() as u32),
            Some(depends) => builder.module_with(ports.ins.len() as u32, &rows(ports, depends)),
        };
    }
    connections.into_iter().for_each(|(from, to)| builder.connect(from, to));
    Named { graph: builder.build(), modules, inputs, outputs, ports }
}

/// Returns, per out-port of a sub-module, the in-ports it depends on.
fn rows(ports: &Ports, depends: &str) -> Vec<Vec<u32>> {
    let on: BTreeMap<&str, Vec<&str>> = depends
        .split(';')
        .map(|part| part.split_once("->").expect("in->outs"))
        .map(|(port, outs)| (port.trim(), outs.split_whitespace().collect()))
        .collect();
    let depends = |port: &String, out: &String| on.get(port.as_str()).is_some_and(|outs| outs.contains(&out.as_str()));
    let row = |out: &String| (0..).zip(&ports.ins).filter(|(_, port)| depends(port, out)).map(|(at, _)| at).collect();
    ports.outs.iter().map(row).collect()
}

impl Named {
    pub(super) fn name(&self, vertex: Vertex) -> String {
        match self.graph.kind(vertex) {
            VertexKind::Input(at) => self.inputs[at as usize].clone(),
            VertexKind::Output(at) => self.outputs[at as usize].clone(),
            VertexKind::Module(at) => format!("/{}", self.modules[at as usize]),
            VertexKind::Port(module, port) => self.ports[module as usize].ins[port as usize].clone(),
        }
    }

    pub(super) fn inputs(&self, names: &str) -> Vec<u32> {
        names.split_whitespace().map(|name| number(&mut self.inputs.clone(), name)).collect()
    }

    pub(super) fn outputs(&self, names: &str) -> Vec<u32> {
        names.split_whitespace().map(|name| number(&mut self.outputs.clone(), name)).collect()
    }

    /// Returns the names of all vertices in this state, in order.
    pub(super) fn in_state(&self, frontier: &Frontier<'_>, state: VertexState) -> BTreeSet<String> {
        let these = (0..self.graph.vertices()).filter(|vertex| frontier.state(*vertex) == state);
        these.map(|vertex| self.name(vertex)).collect()
    }

    /// Returns W: the out-ports that must deliver, with their sub-modules.
    pub(super) fn delivering(&self, frontier: &Frontier<'_>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (module, ports) in (0..).zip(&self.ports) {
            let outs = (0..).zip(&ports.outs).filter(|(at, _)| frontier.delivers(module, *at));
            names.extend(outs.map(|(_, name)| format!("{}.{name}", self.modules[module as usize])));
        }
        names
    }
}

impl Named {
    pub(super) fn place(&self, place: PortSource) -> String {
        match place {
            PortSource::Input(at) => self.inputs[at as usize].clone(),
            PortSource::Port(module, port) => {
                format!("{}.{}", self.modules[module as usize], self.ports[module as usize].outs[port as usize])
            }
        }
    }
}
