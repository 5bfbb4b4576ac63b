//! One module: what its kind asks for.

use super::{
    Named, Report, What,
    face::Face,
    graphs::{Checked, check_ports},
    names::{is_name, meant},
};
use crate::{
    limits::{ARMS_MAX, MODULE_PORTS_MAX},
    model::{Arm, Graph, Module, Port, TaskSpec, Type, graph::ERROR, graph::Kind},
};
use std::collections::BTreeSet;

fn find<'a>(ports: &'a [Port], name: &str) -> Option<&'a Port> {
    ports.iter().find(|port| port.name == name)
}

fn known(ports: &[Port]) -> impl Iterator<Item = &str> + Clone {
    ports.iter().map(|port| port.name.as_str())
}

impl Checked<'_> {
    /// Checks a module of this graph, and what is inside it.
    pub(super) fn module(&self, module: &Module, place: &str, report: &mut Report) {
        let kind = KindCheck { module, place };
        match &module.kind {
            Kind::Task(spec) => kind.task(spec, report),
            Kind::Constant(port, _) => {
                check_ports(&[], std::slice::from_ref(port), place, module.origin.as_ref(), report);
            }
            Kind::Composite(body) => self.body(body, place, report),
            Kind::Loop { body, carried, condition } => {
                kind.repeat(body, carried, condition, report);
                self.loop_body(body, condition, place, report);
            }
            Kind::Each { body, over, concurrency } => {
                kind.each(body, over, *concurrency, report);
                self.body(body, &format!("{place}[*]"), report);
            }
            Kind::Choice { arms } => {
                kind.choice(arms, report);
                for arm in arms {
                    self.body(&arm.body, &format!("{place}/{}", arm.name), report);
                }
            }
            Kind::Call { flow } if !self.library.flows.contains_key(flow) => {
                report.unknown_flow(self.library, flow, place.to_owned(), module.origin.as_ref());
            }
            Kind::Call { .. } => {}
        }
        if module.attempt {
            let face = Face::of(self.library, module).unwrap_or_default();
            kind.attempt(&face, report);
        }
    }

    fn body(&self, graph: &Graph, place: &str, report: &mut Report) {
        Checked { library: self.library, graph, place, wanted: None }.check(report);
    }

    /// That a condition is not given is said of the loop, not of its body.
    fn loop_body(&self, body: &Graph, condition: &str, place: &str, report: &mut Report) {
        let wanted: BTreeSet<_> = known(&body.outputs).filter(|output| *output != condition).collect();
        let place = format!("{place}@*");
        Checked { library: self.library, graph: body, place: &place, wanted: Some(&wanted) }.check(report);
    }
}

/// A module whose kind is looked at.
struct KindCheck<'a> {
    module: &'a Module,
    place: &'a str,
}

impl KindCheck<'_> {
    fn of(&self) -> String {
        self.place.to_owned()
    }

    fn add(&self, what: What, hint: Option<String>, report: &mut Report) {
        report.add(what, self.of(), self.module.origin.as_ref(), hint);
    }

    fn at_port(&self, what: What, port: &str, hint: Option<String>, report: &mut Report) {
        report.add(what, format!("{}:{port}", self.place), self.module.origin.as_ref(), hint);
    }

    fn task(&self, spec: &TaskSpec, report: &mut Report) {
        check_ports(&spec.inputs, &spec.outputs, self.place, self.module.origin.as_ref(), report);
        let in_range = |inputs: &Vec<u16>| inputs.iter().all(|input| usize::from(*input) < spec.inputs.len());
        if let Some(depends) = &spec.depends
            && !(depends.len() == spec.outputs.len() && depends.iter().all(in_range))
        {
            self.add(What::BadDepends { of: self.of() }, None, report);
        }
        if spec.retry.attempts == 0 {
            self.add(What::NoAttempts { of: self.of() }, Some(String::from("1 is no retry")), report);
        }
    }

    fn repeat(&self, body: &Graph, carried: &[(String, String)], condition: &str, report: &mut Report) {
        let (of, name) = (self.of(), condition.to_owned());
        match find(&body.outputs, condition) {
            None => {
                let hint = meant(condition, known(&body.outputs));
                self.add(What::ConditionUnknown { condition: name, of }, hint, report);
            }
            Some(port) if port.ty != Type::Bool => {
                let what = What::ConditionNotBool { condition: name, of, gives: port.ty.clone() };
                self.at_port(what, condition, None, report);
            }
            Some(_) => {
                let fed = |to: &crate::model::Endpoint| to.module.is_none() && to.port == condition;
                if !body.connections.iter().any(|connection| fed(&connection.to)) {
                    self.at_port(What::ConditionUnconnected { condition: name, of }, condition, None, report);
                }
            }
        }
        let mut seen = BTreeSet::new();
        for (output, input) in carried {
            self.carried(body, output, input, report);
            if !seen.insert(input) {
                self.at_port(What::CarriedTwice { port: input.clone(), of: self.of() }, input, None, report);
            }
        }
    }

    fn carried(&self, body: &Graph, output: &str, input: &str, report: &mut Report) {
        let (gives, takes) = (find(&body.outputs, output), find(&body.inputs, input));
        for (found, named, port, ports) in
            [(gives, Named::Output, output, &body.outputs), (takes, Named::Input, input, &body.inputs)]
        {
            if found.is_none() {
                let what = What::CarriedUnknown { named, port: port.to_owned(), of: self.of() };
                self.at_port(what, port, meant(port, known(ports)), report);
            }
        }
        if let (Some(gives), Some(takes)) = (gives, takes)
            && !takes.ty.accepts(&gives.ty)
        {
            let what = What::CarriedMismatch {
                output: output.to_owned(),
                gives: gives.ty.clone(),
                input: input.to_owned(),
                takes: takes.ty.clone(),
                of: self.of(),
            };
            self.at_port(what, input, None, report);
        }
    }

    fn each(&self, body: &Graph, over: &[String], concurrency: Option<u32>, report: &mut Report) {
        if over.is_empty() {
            let hint = Some(String::from("name the inputs that are iterated"));
            self.add(What::OverNothing { of: self.of() }, hint, report);
        }
        if concurrency == Some(0) {
            let hint = Some(String::from("leave the concurrency out to have no limit"));
            self.add(What::NoConcurrency { of: self.of() }, hint, report);
        }
        let mut seen = BTreeSet::new();
        for port in over {
            if find(&body.inputs, port).is_none() {
                let what = What::OverUnknown { port: port.clone(), of: self.of() };
                self.at_port(what, port, meant(port, known(&body.inputs)), report);
            }
            if !seen.insert(port) {
                self.at_port(What::OverTwice { port: port.clone(), of: self.of() }, port, None, report);
            }
        }
    }

    fn choice(&self, arms: &[Arm], report: &mut Report) {
        if arms.is_empty() {
            self.add(What::NoArms { of: self.of() }, None, report);
        }
        if arms.len() > ARMS_MAX {
            report.too_many("arms", self.place, arms.len() as u64, ARMS_MAX as u64, self.module.origin.as_ref());
        }
        let mut seen = BTreeSet::new();
        for arm in arms {
            self.arm(arm, arms, report);
            if !seen.insert(&arm.name) {
                let what = What::DuplicateName { named: Named::Arm, name: arm.name.clone(), of: self.of() };
                self.add(what, None, report);
            }
        }
        let last = arms.len().saturating_sub(1);
        for arm in arms[..last].iter().filter(|arm| arm.guard.is_none()) {
            self.add(What::DefaultNotLast { arm: arm.name.clone(), of: self.of() }, None, report);
        }
        self.agree(arms.iter().map(|arm| &arm.body.inputs), true, report);
        self.agree(arms.iter().map(|arm| &arm.body.outputs), false, report);
        let library = crate::model::Library::default();
        let face = Face::of(&library, self.module).unwrap_or_default();
        let one_arm = arms.iter().any(|arm| arm.body.inputs.len().max(arm.body.outputs.len()) > MODULE_PORTS_MAX);
        if face.inputs.len().max(face.outputs.len()) > MODULE_PORTS_MAX && !one_arm {
            let found = face.inputs.len().max(face.outputs.len()) as u64;
            let origin = self.module.origin.as_ref();
            report.too_many("ports (those of all arms together)", self.place, found, MODULE_PORTS_MAX as u64, origin);
        }
    }

    fn arm(&self, arm: &Arm, arms: &[Arm], report: &mut Report) {
        if !is_name(&arm.name) {
            let address = format!("{}/{}", self.place, arm.name);
            report.bad_name(Named::Arm, &arm.name, address, self.module.origin.as_ref());
        }
        let Some(guard) = &arm.guard else { return };
        if !is_name(guard) {
            report.bad_name(Named::Input, guard, format!("{}:{guard}", self.place), self.module.origin.as_ref());
        }
        let also = arms.iter().find_map(|arm| find(&arm.body.inputs, guard));
        if let Some(port) = also.filter(|port| port.ty != Type::Bool) {
            let what = What::GuardNotBool { guard: guard.clone(), of: self.of(), takes: port.ty.clone() };
            self.at_port(what, guard, None, report);
        }
    }

    /// Ports with one name are one port, so they have one type; outputs may be options in some arms.
    fn agree<'b>(&self, arms: impl Iterator<Item = &'b Vec<Port>>, are_inputs: bool, report: &mut Report) {
        let mut first: Vec<&Port> = Vec::new();
        let mut said = BTreeSet::new();
        for port in arms.flatten() {
            let Some(one) = first.iter().find(|other| other.name == port.name) else {
                first.push(port);
                continue;
            };
            let equal = if are_inputs { one.ty == port.ty } else { plain(&one.ty) == plain(&port.ty) };
            if !equal && said.insert(&port.name) {
                let (name, of, one, other) = (port.name.clone(), self.of(), one.ty.clone(), port.ty.clone());
                let what = match are_inputs {
                    true => What::ArmsTake { port: name, of, one, other },
                    false => What::ArmsGive { port: name, of, one, other },
                };
                self.at_port(what, &port.name, None, report);
            }
        }
    }

    fn attempt(&self, face: &Face<'_>, report: &mut Report) {
        if face.outputs.iter().filter(|port| port.name == ERROR).count() > 1 {
            self.at_port(What::ErrorTaken { of: self.of() }, ERROR, None, report);
        }
        if face.outputs.len() == MODULE_PORTS_MAX + 1 {
            let (found, most) = (face.outputs.len() as u64, MODULE_PORTS_MAX as u64);
            report.too_many("outputs (`error` included)", self.place, found, most, self.module.origin.as_ref());
        }
    }
}

fn plain(ty: &Type) -> &Type {
    if let Type::Option(inner) = ty { inner } else { ty }
}
