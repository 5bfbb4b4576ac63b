//! Random well-formed flows of every kind of module, nested, with tasks of every behaviour.

use crate::{
    behaviour::{Behaviour, Style, counter, task},
    value::Value,
};
use onceflow_core::model::{
    Arm, Connection, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, graph::ModuleKind,
};
use onceflow_store::testing::random::Random;

/// Makes flows. There are few types, so that there is always something to connect.
struct Maker<'a> {
    random: &'a mut Random,
    style: Style,
    budget: usize,
    tasks: usize,
    /// Which flow of the world this is: tasks of different flows have different names.
    family: usize,
    /// The flow that is being made, as far as others see it.
    this: (String, Graph),
    /// Around how many arms that may not be taken this is: only there may the flow call itself.
    guarded: usize,
}

type Available = Vec<(Endpoint, Type)>;
type Flows = [(String, Graph)];

fn end(module: Option<&str>, port: &str) -> Endpoint {
    Endpoint { module: module.map(str::to_owned), port: port.to_owned() }
}

fn module(name: &str, kind: ModuleKind, attempt: bool) -> Module {
    Module { name: name.to_owned(), kind, origin: None, attempt }
}

impl Maker<'_> {
    fn ports(&mut self, name: &str, least: usize, most: usize) -> Vec<Port> {
        let count = least + self.random.below(most - least + 1);
        let types = [Type::Int, Type::Int, Type::Bool, Type::list(Type::Int), Type::option(Type::Int), Type::Bytes];
        (0..count).map(|at| Port::new(format!("{name}{at}"), self.random.pick(&types).clone())).collect()
    }

    /// A source of a type, made if there is none.
    fn source(&mut self, graph: &mut Graph, available: &mut Available, ty: &Type) -> Option<Endpoint> {
        if matches!(ty, Type::Option(_)) && self.random.percent(30) {
            return None;
        }
        if matches!(ty, Type::List(_)) && self.style.random && self.random.percent(40) {
            return Some(self.any_list(graph, ty));
        }
        let fitting: Vec<_> = available.iter().filter(|(_, given)| ty.accepts(given)).cloned().collect();
        if !fitting.is_empty() && self.random.percent(95) {
            // What was made last is likelier, so that flows are deep.
            let recent = fitting.len() - 1 - self.random.below(fitting.len()).min(self.random.below(fitting.len()));
            return Some(fitting[recent].0.clone());
        }
        let inner = if let Type::Option(inner) = ty { inner } else { ty };
        let mut value = Value::made(inner, self.random.bits());
        if let Value::Bytes(_, number) = value {
            value = Value::Bytes(12, number);
        }
        let name = format!("made{}", graph.modules.len());
        let kind = ModuleKind::Constant(Port::new("value", inner.clone()), value.payload());
        graph.modules.push(module(&name, kind, false));
        let made = end(Some(&name), "value");
        available.push((made.clone(), inner.clone()));
        Some(made)
    }

    /// A task that takes its time and gives a list of unknown length.
    fn any_list(&mut self, graph: &mut Graph, ty: &Type) -> Endpoint {
        self.tasks += 1;
        let name = format!("{}t{}", char::from(b'a' + self.family as u8), self.tasks);
        let mut spec = TaskSpec::new(name, vec![], vec![Port::new("value", ty.clone())]);
        spec.params = Behaviour { random: true, slow: 120, ..Behaviour::default() }.to_params();
        let name = format!("any{}", graph.modules.len());
        graph.modules.push(module(&name, ModuleKind::Task(spec.into()), false));
        end(Some(&name), "value")
    }

    fn connect(&mut self, graph: &mut Graph, available: &mut Available, to: Endpoint, ty: &Type, must: bool) {
        let ty = if must && let Type::Option(inner) = ty { inner } else { ty };
        if let Some(from) = self.source(graph, available, ty) {
            graph.connections.push(Connection { from, to, origin: None });
        }
    }

    fn graph(&mut self, inputs: Vec<Port>, outputs: Vec<Port>, depth: usize, flows: &Flows) -> Graph {
        let mut available: Available = inputs.iter().map(|port| (end(None, &port.name), port.ty.clone())).collect();
        let mut graph = Graph { inputs, outputs, ..Graph::default() };
        for at in 0..1 + self.random.below(5) {
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            let name = format!("m{at}");
            let (kind, inputs, outputs) = self.kind(depth, flows);
            for port in inputs {
                self.connect(&mut graph, &mut available, end(Some(&name), &port.name), &port.ty, false);
            }
            let attempt = self.random.percent(15);
            available.extend(outputs.into_iter().map(|port| match attempt && !matches!(port.ty, Type::Option(_)) {
                true => (end(Some(&name), &port.name), Type::option(port.ty)),
                false => (end(Some(&name), &port.name), port.ty),
            }));
            graph.modules.push(module(&name, kind, attempt));
        }
        for port in graph.outputs.clone() {
            self.connect(&mut graph, &mut available, end(None, &port.name), &port.ty, true);
        }
        graph
    }

    /// A module, what it takes and what it gives.
    fn kind(&mut self, depth: usize, flows: &Flows) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        // Where chance decides how wide and deep a flow is, one that calls itself may never end.
        if self.guarded > 0 && !self.style.random && self.random.percent(15) {
            let (name, graph) = self.this.clone();
            return (ModuleKind::Call { flow: name }, graph.inputs, graph.outputs);
        }
        match if depth == 0 || self.random.percent(50) { 0 } else { 1 + self.random.below(5) } {
            0 => {
                let (inputs, outputs) = (self.ports("i", 0, 3), self.ports("o", 0, 2));
                self.tasks += 1;
                let name = format!("{}t{}", char::from(b'a' + self.family as u8), self.tasks);
                let spec = task(self.random, self.style, name, inputs.clone(), outputs.clone());
                (ModuleKind::Task(spec.into()), inputs, outputs)
            }
            1 => {
                let (inputs, outputs) = (self.ports("i", 0, 3), self.ports("o", 0, 3));
                (ModuleKind::Composite(self.graph(inputs.clone(), outputs.clone(), depth - 1, flows)), inputs, outputs)
            }
            2 => self.each(depth, flows),
            3 => self.repeat(depth, flows),
            4 => self.choice(depth, flows),
            _ if flows.is_empty() => self.kind(0, flows),
            _ => {
                let (name, graph) = self.random.pick(flows).clone();
                (ModuleKind::Call { flow: name }, graph.inputs, graph.outputs)
            }
        }
    }

    fn each(&mut self, depth: usize, flows: &Flows) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        let mut inputs = self.ports("i", 1, 2);
        inputs[0].ty = Type::Int;
        let outputs = self.ports("o", 0, 2);
        let body = self.graph(inputs.clone(), outputs.clone(), depth - 1, flows);
        let over = vec![inputs[0].name.clone()];
        let list = |port: &Port| Port::new(port.name.clone(), Type::list(port.ty.clone()));
        let taken = inputs.iter().map(|port| if over.contains(&port.name) { list(port) } else { port.clone() });
        let taken = taken.collect();
        let concurrency = self.random.percent(40).then(|| 1 + self.random.below(2) as u32);
        (ModuleKind::Each { body, over, concurrency }, taken, outputs.iter().map(list).collect())
    }

    fn repeat(&mut self, depth: usize, flows: &Flows) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        let mut inputs = self.ports("i", 0, 2);
        let outputs = self.ports("o", 0, 2);
        inputs.push(Port::new("n", Type::Int));
        let mut all = outputs.clone();
        all.extend([Port::new("n", Type::Int), Port::new("more", Type::Bool)]);
        let mut body = self.graph(inputs.clone(), outputs.clone(), depth - 1, flows);
        body.outputs = all;
        let counter = counter(1 + self.random.below(3) as u8);
        body.modules.push(module("count", ModuleKind::Task(counter.into()), false));
        let join = |from, to| Connection { from, to, origin: None };
        body.connections.push(join(end(None, "n"), end(Some("count"), "n")));
        body.connections.push(join(end(Some("count"), "n"), end(None, "n")));
        body.connections.push(join(end(Some("count"), "more"), end(None, "more")));
        let mut carried = vec![(String::from("n"), String::from("n"))];
        for input in inputs.iter().filter(|input| input.name != "n") {
            let fitting = outputs.iter().find(|output| input.ty.accepts(&output.ty));
            carried.extend(fitting.map(|output| (output.name.clone(), input.name.clone())));
        }
        let given = outputs.into_iter().chain([Port::new("n", Type::Int)]).collect();
        (ModuleKind::Loop { body, carried, condition: "more".into() }, inputs, given)
    }

    fn choice(&mut self, depth: usize, flows: &Flows) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        let (inputs, outputs) = (self.ports("i", 0, 2), self.ports("o", 0, 2));
        let default = self.random.percent(50);
        let count = 1 + self.random.below(2);
        let mut taken = inputs.clone();
        self.guarded += usize::from(!default);
        let mut arms = Vec::new();
        for at in 0..count {
            let guard = (!default || at + 1 < count).then(|| format!("g{at}"));
            taken.extend(guard.iter().map(|guard| Port::new(guard.clone(), Type::Bool)));
            let body = self.graph(inputs.clone(), outputs.clone(), depth - 1, flows);
            arms.push(Arm { name: format!("a{at}"), guard, body });
        }
        self.guarded -= usize::from(!default);
        let given = outputs.iter().map(|port| match default || matches!(port.ty, Type::Option(_)) {
            true => port.clone(),
            false => Port::new(port.name.clone(), Type::option(port.ty.clone())),
        });
        (ModuleKind::Choice { arms }, taken, given.collect())
    }
}

/// A flow `main`, and one or two that it may call.
pub fn make(random: &mut Random, style: Style, family: usize) -> Library {
    let mut budget = 6 + random.below(20);
    if random.percent(20) {
        budget = 1 + random.below(3);
    }
    let depth = 1 + random.below(3);
    let mut maker =
        Maker { random, style, budget, tasks: 0, family, this: (String::new(), Graph::default()), guarded: 0 };
    let mut flows: Vec<(String, Graph)> = Vec::new();
    for name in ["f", "main"] {
        let (inputs, outputs) = (maker.ports("i", 1, 3), maker.ports("o", 1, 3));
        maker.this = (name.into(), Graph { inputs: inputs.clone(), outputs: outputs.clone(), ..Graph::default() });
        if name == "main" {
            maker.budget = maker.budget.max(2);
        }
        let graph = maker.graph(inputs, outputs, depth, &flows);
        flows.push((name.to_owned(), graph));
    }
    Library { flows: flows.into_iter().collect() }
}

/// Changes the version of some tasks: their code, as far as a user can tell.
pub fn change_code(random: &mut Random, library: &Library) -> Library {
    let mut library = library.clone();
    let mut tasks = 0;
    for graph in library.flows.values_mut() {
        visit(graph, &mut |_| tasks += 1);
    }
    let chosen = random.below(tasks.max(1));
    let mut at = 0;
    for graph in library.flows.values_mut() {
        visit(graph, &mut |spec| {
            if at == chosen {
                spec.version = format!("{}x", spec.version);
            }
            at += 1;
        });
    }
    library
}

/// Every task of a graph, however deep.
pub fn visit(graph: &mut Graph, with: &mut impl FnMut(&mut onceflow_core::model::TaskSpec)) {
    for module in &mut graph.modules {
        match &mut module.kind {
            ModuleKind::Task(spec) => with(std::sync::Arc::make_mut(spec)),
            ModuleKind::Constant(..) | ModuleKind::Call { .. } => {}
            ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
                visit(body, with);
            }
            ModuleKind::Choice { arms } => arms.iter_mut().for_each(|arm| visit(&mut arm.body, with)),
        }
    }
}
