//! Checks one module by the rules of its kind.

use super::{
    MistakeKind, MistakeList, NameRole,
    face::Face,
    graphs::{Checked, check_ports},
    names::{is_name, meant},
};
use crate::{
    limits::{ARMS_MAX, MODULE_PORTS_MAX},
    model::{Arm, Graph, Module, Port, TaskSpec, Type, graph::ERROR, graph::ModuleKind},
};
use std::{collections::BTreeSet, sync::Arc};

fn find<'a>(ports: &'a [Port], name: &str) -> Option<&'a Port> {
    ports.iter().find(|port| port.name == name)
}

fn known(ports: &[Port]) -> impl Iterator<Item = &str> + Clone {
    ports.iter().map(|port| port.name.as_str())
}

impl Checked<'_> {
    /// Checks a module of this graph, and the graphs inside it.
    pub(super) fn module(&self, module: &Module, mistakes: &mut MistakeList) {
        if let ModuleKind::Task(spec) = &module.kind
            && !module.attempt
            && mistakes.is_sound(spec)
        {
            return;
        }
        let place = &*format!("{}/{}", self.place, module.name);
        let kind = KindCheck { module, place };
        match &module.kind {
            ModuleKind::Task(spec) => kind.task(spec, mistakes),
            ModuleKind::Constant(port, _) => {
                check_ports(&[], std::slice::from_ref(port), place, module.origin.as_ref(), mistakes);
            }
            ModuleKind::Composite(body) => self.body(body, place, mistakes),
            ModuleKind::Loop { body, carried, condition } => {
                kind.repeat(body, carried, condition, mistakes);
                self.loop_body(body, condition, place, mistakes);
            }
            ModuleKind::Each { body, over, concurrency } => {
                kind.each(body, over, *concurrency, mistakes);
                self.body(body, &format!("{place}[*]"), mistakes);
            }
            ModuleKind::Choice { arms } => {
                kind.choice(arms, mistakes);
                for arm in arms {
                    self.body(&arm.body, &format!("{place}/{}", arm.name), mistakes);
                }
            }
            ModuleKind::Call { flow } if !self.library.flows.contains_key(flow) => {
                mistakes.unknown_flow(self.library, flow, place.to_owned(), module.origin.as_ref());
            }
            ModuleKind::Call { .. } => {}
        }
        if module.attempt {
            let face = Face::of(self.library, module).unwrap_or_default();
            kind.attempt(&face, mistakes);
        }
    }

    fn body(&self, graph: &Graph, place: &str, mistakes: &mut MistakeList) {
        Checked { library: self.library, graph, place, wanted: None }.check(mistakes);
    }

    /// Checks the body of a loop. An unconnected condition is reported for the loop, not for its body.
    fn loop_body(&self, body: &Graph, condition: &str, place: &str, mistakes: &mut MistakeList) {
        let wanted: BTreeSet<_> = known(&body.outputs).filter(|output| *output != condition).collect();
        let place = format!("{place}@*");
        Checked { library: self.library, graph: body, place: &place, wanted: Some(&wanted) }.check(mistakes);
    }
}

/// A module to be checked by the rules of its kind, and its address.
struct KindCheck<'a> {
    module: &'a Module,
    place: &'a str,
}

impl KindCheck<'_> {
    fn of(&self) -> String {
        self.place.to_owned()
    }

    fn add(&self, what: MistakeKind, hint: Option<String>, mistakes: &mut MistakeList) {
        mistakes.add(what, self.of(), self.module.origin.as_ref(), hint);
    }

    fn at_port(&self, what: MistakeKind, port: &str, hint: Option<String>, mistakes: &mut MistakeList) {
        mistakes.add(what, format!("{}:{port}", self.place), self.module.origin.as_ref(), hint);
    }

    fn task(&self, spec: &Arc<TaskSpec>, mistakes: &mut MistakeList) {
        let before = mistakes.len();
        check_ports(&spec.inputs, &spec.outputs, self.place, self.module.origin.as_ref(), mistakes);
        let in_range = |inputs: &Vec<u16>| inputs.iter().all(|input| usize::from(*input) < spec.inputs.len());
        if let Some(depends) = &spec.depends
            && !(depends.len() == spec.outputs.len() && depends.iter().all(in_range))
        {
            self.add(MistakeKind::BadDepends { of: self.of() }, None, mistakes);
        }
        if spec.retry.attempts == 0 {
            self.add(MistakeKind::NoAttempts { of: self.of() }, Some(String::from("1 is no retry")), mistakes);
        }
        if mistakes.len() == before {
            mistakes.note_sound(spec);
        }
    }

    fn repeat(&self, body: &Graph, carried: &[(String, String)], condition: &str, mistakes: &mut MistakeList) {
        let (of, name) = (self.of(), condition.to_owned());
        match find(&body.outputs, condition) {
            None => {
                let hint = meant(condition, known(&body.outputs));
                self.add(MistakeKind::ConditionUnknown { condition: name, of }, hint, mistakes);
            }
            Some(port) if port.ty != Type::Bool => {
                let what = MistakeKind::ConditionNotBool { condition: name, of, gives: port.ty.clone() };
                self.at_port(what, condition, None, mistakes);
            }
            Some(_) => {
                let fed = |to: &crate::model::Endpoint| to.module.is_none() && to.port == condition;
                if !body.connections.iter().any(|connection| fed(&connection.to)) {
                    self.at_port(MistakeKind::ConditionUnconnected { condition: name, of }, condition, None, mistakes);
                }
            }
        }
        let mut seen = BTreeSet::new();
        for (output, input) in carried {
            self.carried(body, output, input, mistakes);
            if !seen.insert(input) {
                self.at_port(MistakeKind::CarriedTwice { port: input.clone(), of: self.of() }, input, None, mistakes);
            }
        }
    }

    fn carried(&self, body: &Graph, output: &str, input: &str, mistakes: &mut MistakeList) {
        let (gives, takes) = (find(&body.outputs, output), find(&body.inputs, input));
        for (found, named, port, ports) in
            [(gives, NameRole::Output, output, &body.outputs), (takes, NameRole::Input, input, &body.inputs)]
        {
            if found.is_none() {
                let what = MistakeKind::CarriedUnknown { named, port: port.to_owned(), of: self.of() };
                self.at_port(what, port, meant(port, known(ports)), mistakes);
            }
        }
        if let (Some(gives), Some(takes)) = (gives, takes)
            && !takes.ty.accepts(&gives.ty)
        {
            let what = MistakeKind::CarriedMismatch {
                output: output.to_owned(),
                gives: gives.ty.clone(),
                input: input.to_owned(),
                takes: takes.ty.clone(),
                of: self.of(),
            };
            self.at_port(what, input, None, mistakes);
        }
    }

    fn each(&self, body: &Graph, over: &[String], concurrency: Option<u32>, mistakes: &mut MistakeList) {
        if over.is_empty() {
            let hint = Some(String::from("name the inputs that are iterated"));
            self.add(MistakeKind::OverNothing { of: self.of() }, hint, mistakes);
        }
        if concurrency == Some(0) {
            let hint = Some(String::from("leave the concurrency out to have no limit"));
            self.add(MistakeKind::NoConcurrency { of: self.of() }, hint, mistakes);
        }
        let mut seen = BTreeSet::new();
        for port in over {
            if find(&body.inputs, port).is_none() {
                let what = MistakeKind::OverUnknown { port: port.clone(), of: self.of() };
                self.at_port(what, port, meant(port, known(&body.inputs)), mistakes);
            }
            if !seen.insert(port) {
                self.at_port(MistakeKind::OverTwice { port: port.clone(), of: self.of() }, port, None, mistakes);
            }
        }
    }

    fn choice(&self, arms: &[Arm], mistakes: &mut MistakeList) {
        if arms.is_empty() {
            self.add(MistakeKind::NoArms { of: self.of() }, None, mistakes);
        }
        if arms.len() > ARMS_MAX {
            mistakes.too_many("arms", self.place, arms.len() as u64, ARMS_MAX as u64, self.module.origin.as_ref());
        }
        let mut seen = BTreeSet::new();
        for arm in arms {
            self.arm(arm, arms, mistakes);
            if !seen.insert(&arm.name) {
                let what = MistakeKind::DuplicateName { named: NameRole::Arm, name: arm.name.clone(), of: self.of() };
                self.add(what, None, mistakes);
            }
        }
        let last = arms.len().saturating_sub(1);
        for arm in arms[..last].iter().filter(|arm| arm.guard.is_none()) {
            self.add(MistakeKind::DefaultNotLast { arm: arm.name.clone(), of: self.of() }, None, mistakes);
        }
        self.agree(arms.iter().map(|arm| &arm.body.inputs), true, mistakes);
        self.agree(arms.iter().map(|arm| &arm.body.outputs), false, mistakes);
        let library = crate::model::Library::default();
        let face = Face::of(&library, self.module).unwrap_or_default();
        let one_arm = arms.iter().any(|arm| arm.body.inputs.len().max(arm.body.outputs.len()) > MODULE_PORTS_MAX);
        if face.inputs.len().max(face.outputs.len()) > MODULE_PORTS_MAX && !one_arm {
            let found = face.inputs.len().max(face.outputs.len()) as u64;
            let origin = self.module.origin.as_ref();
            mistakes.too_many("ports (those of all arms together)", self.place, found, MODULE_PORTS_MAX as u64, origin);
        }
    }

    fn arm(&self, arm: &Arm, arms: &[Arm], mistakes: &mut MistakeList) {
        if !is_name(&arm.name) {
            let address = format!("{}/{}", self.place, arm.name);
            mistakes.bad_name(NameRole::Arm, &arm.name, address, self.module.origin.as_ref());
        }
        let Some(guard) = &arm.guard else { return };
        if !is_name(guard) {
            mistakes.bad_name(NameRole::Input, guard, format!("{}:{guard}", self.place), self.module.origin.as_ref());
        }
        let also = arms.iter().find_map(|arm| find(&arm.body.inputs, guard));
        if let Some(port) = also.filter(|port| port.ty != Type::Bool) {
            let what = MistakeKind::GuardNotBool { guard: guard.clone(), of: self.of(), takes: port.ty.clone() };
            self.at_port(what, guard, None, mistakes);
        }
    }

    /// Reports ports of the same name with different types: they are one port of the choice, so they have one type;
    /// outputs may be options in some arms.
    fn agree<'b>(&self, arms: impl Iterator<Item = &'b Vec<Port>>, are_inputs: bool, mistakes: &mut MistakeList) {
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
                    true => MistakeKind::ArmsTake { port: name, of, one, other },
                    false => MistakeKind::ArmsGive { port: name, of, one, other },
                };
                self.at_port(what, &port.name, None, mistakes);
            }
        }
    }

    fn attempt(&self, face: &Face<'_>, mistakes: &mut MistakeList) {
        if face.outputs.iter().filter(|port| port.name == ERROR).count() > 1 {
            self.at_port(MistakeKind::ErrorTaken { of: self.of() }, ERROR, None, mistakes);
        }
        if face.outputs.len() == MODULE_PORTS_MAX + 1 {
            let (found, most) = (face.outputs.len() as u64, MODULE_PORTS_MAX as u64);
            mistakes.too_many("outputs (`error` included)", self.place, found, most, self.module.origin.as_ref());
        }
    }
}

fn plain(ty: &Type) -> &Type {
    if let Type::Option(inner) = ty { inner } else { ty }
}
