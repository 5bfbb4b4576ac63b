//! Checks one graph: its names, its connections, that every required port is fed, and that there are no cycles.

use super::{
    MistakeKind, MistakeList, NameRole,
    components::{components, cycle, is_cycle},
    face::Face,
    links::{Feed, Feeds, ModuleNames, UNKNOWN_PORT, order},
    names::{is_name, meant},
};
use crate::{
    limits::MODULE_PORTS_MAX,
    model::{Connection, Endpoint, Graph, Library, Port, SourceLocation, Type},
};
use std::collections::{BTreeMap, BTreeSet};

/// A graph to be checked.
pub(super) struct Checked<'a> {
    pub(super) library: &'a Library,
    pub(super) graph: &'a Graph,
    /// Its address; empty for the root.
    pub(super) place: &'a str,
    /// The outputs that are requested; `None` is all.
    pub(super) wanted: Option<&'a BTreeSet<&'a str>>,
}

/// Returns the address, `/` for the root.
pub(super) fn or_root(place: &str) -> String {
    if place.is_empty() { String::from("/") } else { place.to_owned() }
}

/// One end of a connection, as far as it could be resolved.
enum End<'a> {
    /// A port, with the index of its module (`None` is the graph itself) and its own index.
    Port(&'a Port, Option<usize>, usize),
    /// A module without such a port, or one whose own ports are unknown.
    NoPort(Option<usize>),
    /// There is no such module.
    NoModule,
}

/// The valid connections of a graph.
struct Links {
    feeds: Feeds,
    /// Pairs of modules joined by connections that are mistakes and so have no place in `feeds`: they may form cycles
    /// too.
    others: Vec<(u32, u32)>,
}

impl Checked<'_> {
    /// Reports all mistakes of the graph and of the graphs inside it.
    pub(super) fn check(&self, mistakes: &mut MistakeList) {
        let faces: Vec<_> = self.graph.modules.iter().map(|module| Face::of(self.library, module)).collect();
        check_ports(&self.graph.inputs, &self.graph.outputs, self.place, None, mistakes);
        let names = ModuleNames::of(&self.graph.modules);
        self.modules(&names, mistakes);
        let links = self.connections(&names, &faces, mistakes);
        self.all_fed(&names, &links.feeds, &faces, mistakes);
        self.cycles(&links, mistakes);
        drop((names, links, faces));
        for module in &self.graph.modules {
            self.module(module, mistakes);
        }
    }

    fn modules(&self, names: &ModuleNames<'_>, mistakes: &mut MistakeList) {
        let modules = &self.graph.modules;
        let most = mistakes.graph_modules_max;
        if modules.len() > most {
            mistakes.too_many("modules", self.place, modules.len() as u64, most as u64, None);
        }
        for (at, module) in modules.iter().enumerate() {
            let address = || format!("{}/{}", self.place, module.name);
            if !is_name(&module.name) {
                mistakes.bad_name(NameRole::Module, &module.name, address(), module.origin.as_ref());
            }
            if names.index(&module.name) != Some(at) {
                let what = MistakeKind::DuplicateName {
                    named: NameRole::Module,
                    name: module.name.clone(),
                    of: or_root(self.place),
                };
                mistakes.add(what, address(), module.origin.as_ref(), None);
            }
        }
    }

    fn connections(&self, names: &ModuleNames<'_>, faces: &[Option<Face<'_>>], mistakes: &mut MistakeList) -> Links {
        let inputs = faces.iter().map(|face| face.as_ref().map_or(0, |face| face.inputs.len()));
        let mut links = Links { feeds: Feeds::empty(self.graph, inputs), others: vec![] };
        for connection in &self.graph.connections {
            let from = self.end(names, faces, connection, true, mistakes);
            let to = self.end(names, faces, connection, false, mistakes);
            if links.note(self.graph, &from, &to) == Noted::Twice {
                let (of, address) = self.addresses(&connection.to);
                let what = MistakeKind::ConnectedTwice { port: connection.to.port.clone(), of };
                mistakes.add(what, address, connection.origin.as_ref(), None);
            }
            if let (End::Port(from, ..), End::Port(to, ..)) = (from, to)
                && !to.ty.accepts(&from.ty)
            {
                self.mismatch(connection, from, to, mistakes);
            }
        }
        links
    }

    /// Returns the address of the module, and of its port.
    fn addresses(&self, endpoint: &Endpoint) -> (String, String) {
        match &endpoint.module {
            Some(module) => {
                let of = format!("{}/{module}", self.place);
                (of.clone(), format!("{of}:{}", endpoint.port))
            }
            None => (or_root(self.place), format!("{}:{}", or_root(self.place), endpoint.port)),
        }
    }

    fn mismatch(&self, connection: &Connection, from: &Port, to: &Port, mistakes: &mut MistakeList) {
        let (of, address) = self.addresses(&connection.to);
        let hint = match (&to.ty, &from.ty) {
            (Type::List(inner), given) if inner.accepts(given) => {
                "it takes a list: gather them with an each".to_owned()
            }
            (wanted, Type::List(inner)) if wanted.accepts(inner) => {
                format!("use an each over {}, to do this for every element", self.addresses(&connection.from).1)
            }
            (wanted, Type::Option(inner)) if wanted.accepts(inner) => {
                "it may be none: take an option, or put it into an arm of a choice".to_owned()
            }
            _ => String::new(),
        };
        let what = MistakeKind::Mismatch {
            port: to.name.clone(),
            of,
            takes: to.ty.clone(),
            from: self.addresses(&connection.from).1,
            gives: from.ty.clone(),
        };
        mistakes.add(what, address, connection.origin.as_ref(), (!hint.is_empty()).then_some(hint));
    }

    fn end<'b>(
        &'b self,
        names: &ModuleNames<'_>,
        faces: &'b [Option<Face<'_>>],
        connection: &Connection,
        is_start: bool,
        mistakes: &mut MistakeList,
    ) -> End<'b> {
        let endpoint = if is_start { &connection.from } else { &connection.to };
        let origin = connection.origin.as_ref();
        let (module, ports, others, named) = match &endpoint.module {
            None if is_start => (None, &self.graph.inputs[..], &self.graph.outputs[..], NameRole::Input),
            None => (None, &self.graph.outputs[..], &self.graph.inputs[..], NameRole::Output),
            Some(module) => match names.index(module).map(|at| (at, &faces[at])) {
                Some((at, Some(face))) if is_start => (Some(at), &face.outputs[..], &face.inputs[..], NameRole::Output),
                Some((at, Some(face))) => (Some(at), &face.inputs[..], &face.outputs[..], NameRole::Input),
                Some((at, None)) => return End::NoPort(Some(at)),
                None => {
                    let hint = meant(module, self.graph.modules.iter().map(|module| module.name.as_str()));
                    let what = MistakeKind::UnknownModule { module: module.clone(), of: or_root(self.place) };
                    mistakes.add(what, self.addresses(endpoint).1, origin, hint);
                    return End::NoModule;
                }
            },
        };
        if let Some(at) = ports.iter().position(|port| port.name == endpoint.port) {
            return End::Port(&ports[at], module, at);
        }
        let hint = match others.iter().any(|port| port.name == endpoint.port) {
            true if is_start => {
                Some(String::from("a connection leads from an input of the flow, or an output of a module"))
            }
            true => Some(String::from("a connection leads to an output of the flow, or an input of a module")),
            false => meant(&endpoint.port, ports.iter().map(|port| port.name.as_str())),
        };
        let (of, address) = self.addresses(endpoint);
        mistakes.add(MistakeKind::UnknownPort { named, port: endpoint.port.clone(), of }, address, origin, hint);
        End::NoPort(module)
    }

    /// Reports every required port that nothing feeds.
    fn all_fed(&self, names: &ModuleNames<'_>, feeds: &Feeds, faces: &[Option<Face<'_>>], mistakes: &mut MistakeList) {
        // Of ports with the same name only the first can be connected, and the duplicate name is reported elsewhere.
        let is_open = |ports: &[Port], feeds: &[Feed], at: usize| {
            let is_open = |at: usize| matches!(feeds[at], Feed::Nothing | Feed::Nowhere);
            is_open(at) && ports.iter().position(|port| port.name == ports[at].name).is_some_and(is_open)
        };
        for (at, (module, face)) in self.graph.modules.iter().zip(faces).enumerate() {
            let inputs = face.as_ref().map_or(&[][..], |face| &face.inputs);
            for (input, port) in inputs.iter().enumerate().filter(|(_, port)| !matches!(port.ty, Type::Option(_))) {
                // The same holds for modules with the same name.
                if is_open(inputs, feeds.to(at), input) && names.index(&module.name) == Some(at) {
                    let of = format!("{}/{}", self.place, module.name);
                    let address = format!("{of}:{}", port.name);
                    let hint = format!("it takes {}", port.ty);
                    mistakes.add(
                        MistakeKind::Unconnected { port: port.name.clone(), of },
                        address,
                        module.origin.as_ref(),
                        Some(hint),
                    );
                }
            }
        }
        let outputs = &self.graph.outputs;
        for (at, port) in outputs.iter().enumerate() {
            let wanted = self.wanted.is_none_or(|wanted| wanted.contains(port.name.as_str()));
            if wanted && is_open(outputs, feeds.to(self.graph.modules.len()), at) {
                let of = or_root(self.place);
                let address = format!("{of}:{}", port.name);
                mistakes.add(MistakeKind::OutputUnconnected { port: port.name.clone(), of }, address, None, None);
            }
        }
    }

    fn cycles(&self, links: &Links, mistakes: &mut MistakeList) {
        let count = self.graph.modules.len();
        let all = links.feeds.links().chain(links.others.iter().copied());
        if order(count, all.clone()).is_none_or(|order| order.len() == count) {
            return;
        }
        let mut edges = vec![vec![]; count];
        all.for_each(|(from, to)| edges[from as usize].push(to as usize));
        for edges in &mut edges {
            edges.sort_unstable();
            edges.dedup();
        }
        let mut cyclic: Vec<_> = components(&edges);
        cyclic.retain(|component| is_cycle(&edges, component));
        cyclic.sort();
        for component in cyclic {
            let round = cycle(&edges, &component);
            let name = |at: &usize| format!("{}/{}", self.place, self.graph.modules[*at].name);
            let modules = round.iter().chain(&round[..1]).map(name).collect();
            let origin = self.graph.modules[round[0]].origin.as_ref();
            let hint = "what goes round is a loop, with carried ports";
            mistakes.add(MistakeKind::Cycle { modules }, name(&round[0]), origin, Some(hint.to_owned()));
        }
    }
}

/// Tells whether a connection is the first into its port.
#[derive(PartialEq, Eq)]
enum Noted {
    First,
    Twice,
}

impl Links {
    fn note(&mut self, graph: &Graph, from: &End<'_>, to: &End<'_>) -> Noted {
        let start = match *from {
            End::Port(_, Some(module), port) => {
                Feed::Module(module as u32, u16::try_from(port).unwrap_or(UNKNOWN_PORT))
            }
            End::Port(_, None, port) => Feed::Graph(port as u32),
            End::NoPort(Some(module)) => Feed::Module(module as u32, UNKNOWN_PORT),
            End::NoPort(None) => Feed::Graph(u32::from(UNKNOWN_PORT)),
            End::NoModule => Feed::Nowhere,
        };
        let (module, noted) = match *to {
            End::Port(_, module, port) => {
                let is_first = self.feeds.connect(module.unwrap_or(graph.modules.len()), port, start);
                (module, if is_first { Noted::First } else { Noted::Twice })
            }
            End::NoPort(module) => (module, Noted::First),
            End::NoModule => (None, Noted::First),
        };
        let has_place = matches!(to, End::Port(..)) && noted == Noted::First;
        if let (Feed::Module(from, _), Some(to), false) = (start, module, has_place) {
            self.others.push((from, to as u32));
        }
        noted
    }
}

/// Checks the names and the number of the ports of a module or a graph.
pub(super) fn check_ports(
    inputs: &[Port],
    outputs: &[Port],
    place: &str,
    origin: Option<&SourceLocation>,
    mistakes: &mut MistakeList,
) {
    for (ports, named, what) in [(inputs, NameRole::Input, "inputs"), (outputs, NameRole::Output, "outputs")] {
        if ports.len() > MODULE_PORTS_MAX {
            mistakes.too_many(what, place, ports.len() as u64, MODULE_PORTS_MAX as u64, origin);
        }
        let mut seen = BTreeMap::new();
        for port in ports {
            let address = || format!("{}:{}", or_root(place), port.name);
            if !is_name(&port.name) {
                mistakes.bad_name(named, &port.name, address(), origin);
            }
            let count = seen.entry(&port.name).or_insert(0);
            *count += 1;
            if *count == 2 {
                let what = MistakeKind::DuplicateName { named, name: port.name.clone(), of: or_root(place) };
                mistakes.add(what, address(), origin, None);
            }
        }
    }
}
