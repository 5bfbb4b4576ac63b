//! One graph: its names, its connections, that everything is fed, and that nothing goes round.

use super::{
    Named, Report, What,
    components::{components, cycle, is_cycle},
    face::Face,
    names::{is_name, meant},
    siblings::Siblings,
};
use crate::{
    limits::MODULE_PORTS_MAX,
    model::{Connection, Endpoint, Graph, Library, Origin, Port, Type},
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
    pub(super) fn check(&self, report: &mut Report) {
        let faces: Vec<_> = self.graph.modules.iter().map(|module| Face::of(self.library, module)).collect();
        check_ports(&self.graph.inputs, &self.graph.outputs, self.place, None, report);
        self.modules(report);
        let siblings = Siblings::of(self.graph);
        self.connections(&siblings, &faces, report);
        self.all_fed(&siblings, &faces, report);
        self.cycles(&siblings, report);
        for module in &self.graph.modules {
            self.module(module, &format!("{}/{}", self.place, module.name), report);
        }
    }

    fn modules(&self, report: &mut Report) {
        let modules = &self.graph.modules;
        let most = report.graph_modules_max;
        if modules.len() > most {
            report.too_many("modules", self.place, modules.len() as u64, most as u64, None);
        }
        let mut seen = HashSet::with_capacity(modules.len());
        for module in modules {
            let address = || format!("{}/{}", self.place, module.name);
            if !is_name(&module.name) {
                report.bad_name(Named::Module, &module.name, address(), module.origin.as_ref());
            }
            if !seen.insert(&module.name) {
                let what =
                    What::DuplicateName { named: Named::Module, name: module.name.clone(), of: or_root(self.place) };
                report.add(what, address(), module.origin.as_ref(), None);
            }
        }
    }

    fn connections(&self, siblings: &Siblings<'_>, faces: &[Option<Face<'_>>], report: &mut Report) {
        let mut fed = HashSet::with_capacity(self.graph.connections.len());
        for connection in &self.graph.connections {
            let from = self.end(siblings, faces, connection, true, report);
            let to = self.end(siblings, faces, connection, false, report);
            if let End::Port(_) = to
                && !fed.insert(&connection.to)
            {
                let (of, address) = self.addresses(&connection.to);
                let what = What::ConnectedTwice { port: connection.to.port.clone(), of };
                report.add(what, address, connection.origin.as_ref(), None);
            }
            if let (End::Port(from), End::Port(to)) = (from, to)
                && !to.ty.accepts(&from.ty)
            {
                self.mismatch(connection, from, to, report);
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

    fn mismatch(&self, connection: &Connection, from: &Port, to: &Port, report: &mut Report) {
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
        let what = What::Mismatch {
            port: to.name.clone(),
            of,
            takes: to.ty.clone(),
            from: self.addresses(&connection.from).1,
            gives: from.ty.clone(),
        };
        report.add(what, address, connection.origin.as_ref(), (!hint.is_empty()).then_some(hint));
    }

    fn end<'b>(
        &'b self,
        siblings: &Siblings<'_>,
        faces: &'b [Option<Face<'_>>],
        connection: &Connection,
        is_start: bool,
        report: &mut Report,
    ) -> End<'b> {
        let endpoint = if is_start { &connection.from } else { &connection.to };
        let origin = connection.origin.as_ref();
        let (ports, others, named) = match &endpoint.module {
            None if is_start => (&self.graph.inputs[..], &self.graph.outputs[..], Named::Input),
            None => (&self.graph.outputs[..], &self.graph.inputs[..], Named::Output),
            Some(module) => match siblings.index(module).map(|at| &faces[at]) {
                Some(Some(face)) if is_start => (&face.outputs[..], &face.inputs[..], Named::Output),
                Some(Some(face)) => (&face.inputs[..], &face.outputs[..], Named::Input),
                Some(None) => return End::Unclear,
                None => {
                    let hint = meant(module, self.graph.modules.iter().map(|module| module.name.as_str()));
                    let what = What::UnknownModule { module: module.clone(), of: or_root(self.place) };
                    report.add(what, self.addresses(endpoint).1, origin, hint);
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
        report.add(What::UnknownPort { named, port: endpoint.port.clone(), of }, address, origin, hint);
        End::Nothing
    }

    /// Everything that must be fed is.
    fn all_fed(&self, siblings: &Siblings<'_>, faces: &[Option<Face<'_>>], report: &mut Report) {
        for (at, (module, face)) in self.graph.modules.iter().zip(faces).enumerate() {
            let inputs = face.iter().flat_map(|face| face.inputs.iter());
            for port in inputs.filter(|port| !matches!(port.ty, Type::Option(_))) {
                // Of modules with one name only the first can be connected, and the name is complained about.
                if siblings.index(&module.name) == Some(at) && siblings.feeding.of(Some(at), &port.name).is_none() {
                    let of = format!("{}/{}", self.place, module.name);
                    let address = format!("{of}:{}", port.name);
                    let hint = format!("it takes {}", port.ty);
                    report.add(
                        What::Unconnected { port: port.name.clone(), of },
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
                report.add(What::OutputUnconnected { port: port.name.clone(), of }, address, None, None);
            }
        }
    }

    fn cycles(&self, siblings: &Siblings<'_>, report: &mut Report) {
        let mut cyclic: Vec<_> = components(&siblings.feeds);
        cyclic.retain(|component| is_cycle(&siblings.feeds, component));
        cyclic.sort();
        for component in cyclic {
            let round = cycle(&siblings.feeds, &component);
            let name = |at: &usize| format!("{}/{}", self.place, self.graph.modules[*at].name);
            let modules = round.iter().chain(&round[..1]).map(name).collect();
            let origin = self.graph.modules[round[0]].origin.as_ref();
            let hint = "what goes round is a loop, with carried ports";
            report.add(What::Cycle { modules }, name(&round[0]), origin, Some(hint.to_owned()));
        }
    }
}

/// Names and number of the ports of a module or a graph.
pub(super) fn check_ports(
    inputs: &[Port],
    outputs: &[Port],
    place: &str,
    origin: Option<&Origin>,
    report: &mut Report,
) {
    for (ports, named, what) in [(inputs, Named::Input, "inputs"), (outputs, Named::Output, "outputs")] {
        if ports.len() > MODULE_PORTS_MAX {
            report.too_many(what, place, ports.len() as u64, MODULE_PORTS_MAX as u64, origin);
        }
        let mut seen = BTreeMap::new();
        for port in ports {
            let address = || format!("{}:{}", or_root(place), port.name);
            if !is_name(&port.name) {
                report.bad_name(named, &port.name, address(), origin);
            }
            let count = seen.entry(&port.name).or_insert(0);
            *count += 1;
            if *count == 2 {
                let what = What::DuplicateName { named, name: port.name.clone(), of: or_root(place) };
                report.add(what, address(), origin, None);
            }
        }
    }
}
