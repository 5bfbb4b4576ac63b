//! One graph: its names, its connections, that everything is fed, and that nothing goes round.

use super::{
    MistakeKind, MistakeList, NameRole,
    components::{components, cycle, is_cycle},
    face::Face,
    names::{is_name, meant},
    siblings::Siblings,
};
use crate::{
    limits::MODULE_PORTS_MAX,
    model::{Connection, Endpoint, Graph, Library, Port, SourceLocation, Type},
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A graph to be checked.
pub(super) struct Checked<'a> {
    pub(super) library: &'a Library,
    pub(super) graph: &'a Graph,
    /// Its address; empty for the root.
    pub(super) place: &'a str,
    /// The outputs that are requested; `None` is all.
    pub(super) wanted: Option<&'a BTreeSet<&'a str>>,
}

/// An address that is never empty.
pub(super) fn or_root(place: &str) -> String {
    if place.is_empty() { String::from("/") } else { place.to_owned() }
}

/// One end of a connection, as far as it is known.
enum End<'a> {
    Port(&'a Port),
    /// Something else is wrong with that module.
    Unclear,
    Nothing,
}

impl Checked<'_> {
    /// Says all that is wrong with it and with what is inside.
    pub(super) fn check(&self, mistakes: &mut MistakeList) {
        let faces: Vec<_> = self.graph.modules.iter().map(|module| Face::of(self.library, module)).collect();
        check_ports(&self.graph.inputs, &self.graph.outputs, self.place, None, mistakes);
        self.modules(mistakes);
        let siblings = Siblings::of(self.graph);
        self.connections(&siblings, &faces, mistakes);
        self.all_fed(&siblings, &faces, mistakes);
        self.cycles(&siblings, mistakes);
        for module in &self.graph.modules {
            self.module(module, &format!("{}/{}", self.place, module.name), mistakes);
        }
    }

    fn modules(&self, mistakes: &mut MistakeList) {
        let modules = &self.graph.modules;
        let most = mistakes.graph_modules_max;
        if modules.len() > most {
            mistakes.too_many("modules", self.place, modules.len() as u64, most as u64, None);
        }
        let mut seen = HashSet::with_capacity(modules.len());
        for module in modules {
            let address = || format!("{}/{}", self.place, module.name);
            if !is_name(&module.name) {
                mistakes.bad_name(NameRole::Module, &module.name, address(), module.origin.as_ref());
            }
            if !seen.insert(&module.name) {
                let what = MistakeKind::DuplicateName {
                    named: NameRole::Module,
                    name: module.name.clone(),
                    of: or_root(self.place),
                };
                mistakes.add(what, address(), module.origin.as_ref(), None);
            }
        }
    }

    fn connections(&self, siblings: &Siblings<'_>, faces: &[Option<Face<'_>>], mistakes: &mut MistakeList) {
        let mut fed = HashSet::with_capacity(self.graph.connections.len());
        for connection in &self.graph.connections {
            let from = self.end(siblings, faces, connection, true, mistakes);
            let to = self.end(siblings, faces, connection, false, mistakes);
            if let End::Port(_) = to
                && !fed.insert(&connection.to)
            {
                let (of, address) = self.addresses(&connection.to);
                let what = MistakeKind::ConnectedTwice { port: connection.to.port.clone(), of };
                mistakes.add(what, address, connection.origin.as_ref(), None);
            }
            if let (End::Port(from), End::Port(to)) = (from, to)
                && !to.ty.accepts(&from.ty)
            {
                self.mismatch(connection, from, to, mistakes);
            }
        }
    }

    /// The address of the module, and of its port.
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
        siblings: &Siblings<'_>,
        faces: &'b [Option<Face<'_>>],
        connection: &Connection,
        is_start: bool,
        mistakes: &mut MistakeList,
    ) -> End<'b> {
        let endpoint = if is_start { &connection.from } else { &connection.to };
        let origin = connection.origin.as_ref();
        let (ports, others, named) = match &endpoint.module {
            None if is_start => (&self.graph.inputs[..], &self.graph.outputs[..], NameRole::Input),
            None => (&self.graph.outputs[..], &self.graph.inputs[..], NameRole::Output),
            Some(module) => match siblings.index(module).map(|at| &faces[at]) {
                Some(Some(face)) if is_start => (&face.outputs[..], &face.inputs[..], NameRole::Output),
                Some(Some(face)) => (&face.inputs[..], &face.outputs[..], NameRole::Input),
                Some(None) => return End::Unclear,
                None => {
                    let hint = meant(module, self.graph.modules.iter().map(|module| module.name.as_str()));
                    let what = MistakeKind::UnknownModule { module: module.clone(), of: or_root(self.place) };
                    mistakes.add(what, self.addresses(endpoint).1, origin, hint);
                    return End::Nothing;
                }
            },
        };
        if let Some(port) = ports.iter().find(|port| port.name == endpoint.port) {
            return End::Port(port);
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
        End::Nothing
    }

    /// Everything that must be fed is.
    fn all_fed(&self, siblings: &Siblings<'_>, faces: &[Option<Face<'_>>], mistakes: &mut MistakeList) {
        for (at, (module, face)) in self.graph.modules.iter().zip(faces).enumerate() {
            let inputs = face.iter().flat_map(|face| face.inputs.iter());
            for port in inputs.filter(|port| !matches!(port.ty, Type::Option(_))) {
                // Of modules with one name only the first can be connected, and the name is complained about.
                if siblings.index(&module.name) == Some(at) && siblings.feeding.of(Some(at), &port.name).is_none() {
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
        for port in &self.graph.outputs {
            let wanted = self.wanted.is_none_or(|wanted| wanted.contains(port.name.as_str()));
            if wanted && siblings.feeding.of(None, &port.name).is_none() {
                let of = or_root(self.place);
                let address = format!("{of}:{}", port.name);
                mistakes.add(MistakeKind::OutputUnconnected { port: port.name.clone(), of }, address, None, None);
            }
        }
    }

    fn cycles(&self, siblings: &Siblings<'_>, mistakes: &mut MistakeList) {
        let mut cyclic: Vec<_> = components(&siblings.feeds);
        cyclic.retain(|component| is_cycle(&siblings.feeds, component));
        cyclic.sort();
        for component in cyclic {
            let round = cycle(&siblings.feeds, &component);
            let name = |at: &usize| format!("{}/{}", self.place, self.graph.modules[*at].name);
            let modules = round.iter().chain(&round[..1]).map(name).collect();
            let origin = self.graph.modules[round[0]].origin.as_ref();
            let hint = "what goes round is a loop, with carried ports";
            mistakes.add(MistakeKind::Cycle { modules }, name(&round[0]), origin, Some(hint.to_owned()));
        }
    }
}

/// Names and number of the ports of a module or a graph.
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
