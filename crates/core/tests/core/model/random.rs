//! Random flows: well-formed ones pass and lower to sound programs; damaged ones are refused or pass, and nothing
//! panics.

use super::meaning::assert_same;
use onceflow_core::{
    model::{
        Arm, Connection, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, Wiring, check, graph::ModuleKind,
        program::NodeOp,
    },
    payload::Payload,
};

/// A seeded random number generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, most: usize) -> usize {
        // The constants are those of Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most.max(1)
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Makes random flows. All types are int, list<int>, list<list<int>> .. or bool, so that there is always a port to
/// connect.
struct Maker {
    random: Random,
    budget: usize,
    /// The flow that is being made, with the ports that others see.
    this: (String, Graph),
    /// The number of conditional arms around the current module: only inside one may the flow call itself.
    guarded: usize,
}

type Available = Vec<(Endpoint, Type)>;

fn endpoint(module: Option<&str>, port: &str) -> Endpoint {
    Endpoint { module: module.map(str::to_owned), port: port.to_owned() }
}

impl Maker {
    fn ports(&mut self, name: &str, least: usize, most: usize) -> Vec<Port> {
        let count = least + self.random.below(most - least + 1);
        let types = [Type::Int, Type::Int, Type::Bool, Type::list(Type::Int), Type::option(Type::Int)];
        (0..count).map(|at| Port::new(format!("{name}{at}"), self.random.pick(&types).clone())).collect()
    }

    /// Returns a source of a type, created if there is none.
    fn source(&mut self, graph: &mut Graph, available: &mut Available, ty: &Type) -> Option<Endpoint> {
        if matches!(ty, Type::Option(_)) && self.random.chance(30) {
            return None;
        }
        let fitting: Vec<_> = available.iter().filter(|(_, given)| ty.accepts(given)).cloned().collect();
        if !fitting.is_empty() && self.random.chance(95) {
            return Some(self.random.pick(&fitting).0.clone());
        }
        let name = format!("made{}", graph.modules.len());
        let payload = Payload::inline([self.random.below(3) as u8]);
        let kind = ModuleKind::Constant(Port::new("value", ty.clone()), payload);
        graph.modules.push(Module { name: name.clone(), kind, origin: None, attempt: false });
        let made = endpoint(Some(&name), "value");
        available.push((made.clone(), ty.clone()));
        Some(made)
    }

    fn connect(&mut self, graph: &mut Graph, available: &mut Available, to: Endpoint, ty: &Type, must: bool) {
        let ty = if must && let Type::Option(inner) = ty { inner } else { ty };
        if let Some(from) = self.source(graph, available, ty) {
            graph.connections.push(Connection { from, to, origin: None });
        }
    }

    fn graph(&mut self, inputs: Vec<Port>, outputs: Vec<Port>, depth: usize, flows: &[(String, Graph)]) -> Graph {
        let mut available: Available =
            inputs.iter().map(|port| (endpoint(None, &port.name), port.ty.clone())).collect();
        let mut graph = Graph { inputs, outputs, ..Graph::default() };
        let count = self.random.below(6);
        for at in 0..count {
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            let name = format!("m{at}");
            let (kind, inputs, outputs) = self.kind(depth, flows);
            for port in inputs {
                self.connect(&mut graph, &mut available, endpoint(Some(&name), &port.name), &port.ty, false);
            }
            let attempt = self.random.chance(15);
            let gives = outputs.into_iter().map(|port| match attempt && !matches!(port.ty, Type::Option(_)) {
                true => (endpoint(Some(&name), &port.name), Type::option(port.ty)),
                false => (endpoint(Some(&name), &port.name), port.ty),
            });
            available.extend(gives);
            graph.modules.push(Module { name, kind, origin: None, attempt });
        }
        for port in graph.outputs.clone() {
            self.connect(&mut graph, &mut available, endpoint(None, &port.name), &port.ty, true);
        }
        // The order in which modules are written has no meaning.
        let turn = self.random.below(graph.modules.len());
        graph.modules.rotate_left(turn);
        graph
    }

    /// Returns a module with its inputs and outputs.
    fn kind(&mut self, depth: usize, flows: &[(String, Graph)]) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        if self.guarded > 0 && self.random.chance(25) {
            let (name, graph) = self.this.clone();
            return (ModuleKind::Call { flow: name }, graph.inputs, graph.outputs);
        }
        let leaf = depth == 0 || self.random.chance(40);
        match if leaf { 0 } else { 1 + self.random.below(5) } {
            0 => {
                let (inputs, outputs) = (self.ports("i", 0, 3), self.ports("o", 0, 2));
                let name = format!("t{}", self.random.below(4));
                (ModuleKind::Task(TaskSpec::new(name, inputs.clone(), outputs.clone()).into()), inputs, outputs)
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

    fn each(&mut self, depth: usize, flows: &[(String, Graph)]) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        let mut inputs = self.ports("i", 1, 3);
        inputs[0].ty = Type::Int;
        let outputs = self.ports("o", 0, 2);
        let body = self.graph(inputs.clone(), outputs.clone(), depth - 1, flows);
        let over: Vec<_> = inputs.iter().filter(|port| port.ty == Type::Int).map(|port| port.name.clone()).collect();
        let list = |port: &Port| Port::new(port.name.clone(), Type::list(port.ty.clone()));
        let taken = inputs.iter().map(|port| if over.contains(&port.name) { list(port) } else { port.clone() });
        let taken = taken.collect();
        let concurrency = self.random.chance(30).then_some(3);
        (ModuleKind::Each { body, over, concurrency }, taken, outputs.iter().map(list).collect())
    }

    fn repeat(&mut self, depth: usize, flows: &[(String, Graph)]) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        let inputs = self.ports("i", 1, 3);
        let mut outputs = self.ports("o", 0, 2);
        let at = self.random.below(outputs.len() + 1);
        outputs.insert(at, Port::new("more", Type::Bool));
        let body = self.graph(inputs.clone(), outputs.clone(), depth - 1, flows);
        let mut carried = Vec::new();
        for input in &inputs {
            let fitting = outputs.iter().find(|output| input.ty.accepts(&output.ty));
            carried.extend(fitting.map(|output| (output.name.clone(), input.name.clone())));
        }
        outputs.remove(at);
        (ModuleKind::Loop { body, carried, condition: "more".into() }, inputs, outputs)
    }

    fn choice(&mut self, depth: usize, flows: &[(String, Graph)]) -> (ModuleKind, Vec<Port>, Vec<Port>) {
        let (inputs, outputs) = (self.ports("i", 0, 3), self.ports("o", 0, 2));
        let default = self.random.chance(50);
        let count = 1 + self.random.below(3);
        let mut taken = inputs.clone();
        self.guarded += usize::from(!default);
        let arms = (0..count).map(|at| {
            let guard = (!default || at + 1 < count).then(|| format!("g{at}"));
            taken.extend(guard.iter().map(|guard| Port::new(guard.clone(), Type::Bool)));
            Arm { name: format!("a{at}"), guard, body: self.graph(inputs.clone(), outputs.clone(), depth - 1, flows) }
        });
        let arms = arms.collect();
        self.guarded -= usize::from(!default);
        let given = outputs.iter().map(|port| match default || matches!(port.ty, Type::Option(_)) {
            true => port.clone(),
            false => Port::new(port.name.clone(), Type::option(port.ty.clone())),
        });
        (ModuleKind::Choice { arms }, taken, given.collect())
    }
}

fn make(seed: u64) -> Library {
    let mut maker = Maker { random: Random(seed), budget: 60, this: (String::new(), Graph::default()), guarded: 0 };
    let mut flows = Vec::new();
    for name in ["f", "g", "main"] {
        let (inputs, outputs) = (maker.ports("i", 1, 3), maker.ports("o", 0, 3));
        maker.this = (name.into(), Graph { inputs: inputs.clone(), outputs: outputs.clone(), ..Graph::default() });
        let graph = maker.graph(inputs, outputs, 3, &flows);
        flows.push((name.to_owned(), graph));
    }
    Library { flows: flows.into_iter().collect() }
}

#[test]
fn programs_do_what_their_flows_say() {
    let mut known = 0;
    for seed in 0..2_000 {
        let library = make(seed);
        known += usize::from(assert_same(&library, None));
        for output in &library.flows["main"].outputs {
            assert_same(&library, Some(std::slice::from_ref(&output.name)));
        }
    }
    assert!(known > 1_500, "only {known} came to an end");
}

#[test]
fn a_well_formed_graph_passes_and_lowers_to_a_sound_program() {
    let (mut calls, mut eaches) = (0, 0);
    for seed in 0..1_000 {
        let library = make(seed);
        let program = check(&library, "main", None).unwrap_or_else(|errors| panic!("seed {seed}: {errors}"));
        program.assert_sound();
        let nodes = || program.blocks.iter().flat_map(|block| &block.nodes);
        calls += nodes().filter(|node| matches!(node.op, NodeOp::Call { .. }) && !node.attempt).count();
        eaches += nodes().filter(|node| matches!(node.op, NodeOp::Each { .. })).count();
        assert_eq!(Wiring::of(&program).blocks.len(), program.blocks.len());
        let outputs: Vec<_> = library.flows["main"].outputs.iter().map(|port| port.name.clone()).collect();
        for output in &outputs {
            let part = check(&library, "main", Some(std::slice::from_ref(output))).expect("a part of what passes");
            part.assert_sound();
            let tasks =
                |program: &onceflow_core::model::Program| program.blocks.iter().map(|b| b.nodes.len()).sum::<usize>();
            assert!(tasks(&part) <= tasks(&program), "seed {seed}: a part is more than the whole");
        }
        assert_eq!(check(&library, "main", Some(&outputs)).expect("all of it"), program, "seed {seed}");
    }
    assert!(calls > 100 && eaches > 100, "{calls} flows that recur, {eaches} eaches");
}

/// Visits a graph and every graph inside it, however deep.
fn graphs(graph: &mut Graph, visit: &mut impl FnMut(&mut Graph)) {
    visit(graph);
    for module in &mut graph.modules {
        match &mut module.kind {
            ModuleKind::Task(_) | ModuleKind::Constant(..) | ModuleKind::Call { .. } => {}
            ModuleKind::Composite(body) | ModuleKind::Loop { body, .. } | ModuleKind::Each { body, .. } => {
                graphs(body, visit);
            }
            ModuleKind::Choice { arms } => arms.iter_mut().for_each(|arm| graphs(&mut arm.body, visit)),
        }
    }
}

fn damage(graph: &mut Graph, random: &mut Random) {
    let (connections, modules) = (graph.connections.len(), graph.modules.len());
    match random.below(10) {
        0 if connections > 0 => drop(graph.connections.remove(random.below(connections))),
        1 if connections > 0 => graph.connections.push(random.pick(&graph.connections.clone()).clone()),
        2 if connections > 0 => {
            let other = random.pick(&graph.connections.clone()).from.clone();
            graph.connections[random.below(connections)].from = other;
        }
        3 if connections > 0 => {
            let other = random.pick(&graph.connections.clone()).to.clone();
            graph.connections[random.below(connections)].to = other;
        }
        4 if modules > 0 => drop(graph.modules.remove(random.below(modules))),
        5 if modules > 0 => graph.modules[random.below(modules)].name = String::from("m0"),
        6 if modules > 0 => graph.modules[random.below(modules)].attempt ^= true,
        7 if modules > 0 => graph.modules[random.below(modules)].kind = ModuleKind::Call { flow: "main".into() },
        8 if modules > 0 => match &mut graph.modules[random.below(modules)].kind {
            ModuleKind::Loop { condition, carried, .. } => {
                condition.push('x');
                carried.reverse();
            }
            ModuleKind::Each { over, .. } => drop(over.pop()),
            ModuleKind::Choice { arms } => arms.reverse(),
            ModuleKind::Task(spec) => std::sync::Arc::make_mut(spec).outputs.truncate(1),
            _ => {}
        },
        _ => graph.outputs.push(Port::new("o0", Type::Text)),
    }
}

#[test]
fn a_damaged_graph_never_panics_and_is_sound_if_it_passes() {
    let (mut refused, mut passed) = (0, 0);
    for seed in 0..3_000 {
        let mut library = make(seed);
        let mut random = Random(seed ^ 0xdead);
        let percent = 5 + random.below(40);
        for name in ["f", "g", "main"] {
            let graph = library.flows.get_mut(name).expect("made");
            graphs(graph, &mut |graph| {
                if random.chance(percent) {
                    damage(graph, &mut random);
                }
            });
        }
        match check(&library, "main", None) {
            Ok(program) => {
                program.assert_sound();
                passed += 1;
            }
            Err(errors) => {
                assert!(!errors.to_string().is_empty());
                assert_eq!(check(&library, "main", None), Err(errors), "seed {seed}: another order");
                refused += 1;
            }
        }
    }
    assert!(refused > 500 && passed > 100, "{refused} {passed}");
}
