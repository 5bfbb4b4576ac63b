//! Lowering preserves meaning: a flow, executed naively as it is described, and its program, executed node by node,
//! give the same outputs, run the same steps without outputs, and the program runs nothing that the flow would not.
//!
//! Tasks here are fakes: their output is a number that depends on the task's name and on all its inputs.

use onceflow_core::{
    model::{
        Endpoint, Graph, Library, Module, Program, Source, TaskSpec, Type, check, graph::ModuleKind, program::NodeOp,
    },
    payload::Payload,
};
use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Unit,
    None,
    Number(u64),
    List(Vec<Value>),
    /// A constant's bytes; the reader interprets them.
    Constant(Vec<u8>),
}

fn number(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Value {
    fn holds(&self) -> bool {
        number(self) % 2 == 1
    }

    fn elements(&self) -> Vec<Value> {
        match self {
            Value::List(elements) => elements.clone(),
            other => made(&Type::list(Type::Int), number(other)).elements(),
        }
    }
}

fn made(ty: &Type, seed: u64) -> Value {
    match ty {
        Type::Unit => Value::Unit,
        Type::Option(_) if seed.is_multiple_of(4) => Value::None,
        Type::Option(inner) => made(inner, number(&seed)),
        Type::List(inner) => Value::List((0..seed % 4).map(|at| made(inner, number(&(seed, at)))).collect()),
        _ => Value::Number(seed),
    }
}

/// The tasks that were run, and how often. Its methods return `None` when the execution takes too long.
#[derive(Default)]
pub(crate) struct Ran {
    tasks: BTreeMap<(String, u64), usize>,
    done: BTreeMap<(String, u64), usize>,
    steps: usize,
}

const STEPS_MAX: usize = 20_000;
const DEPTH_MAX: usize = 40;
const ITERATIONS_MAX: usize = 4;

impl Ran {
    fn task(&mut self, spec: &TaskSpec, inputs: &[Value], attempt: bool) -> Option<Vec<Value>> {
        self.steps += 1;
        let seed = number(&(&spec.name, &spec.version, inputs));
        *self.tasks.entry((spec.name.clone(), seed)).or_default() += 1;
        let mut outputs: Vec<_> =
            spec.outputs.iter().enumerate().map(|(at, port)| made(&port.ty, number(&(seed, at)))).collect();
        if outputs.is_empty() {
            *self.done.entry((spec.name.clone(), seed)).or_default() += 1;
            outputs.push(Value::Unit);
        }
        outputs.extend(attempt.then_some(Value::None));
        (self.steps < STEPS_MAX).then_some(outputs)
    }
}

fn constant(payload: &Payload) -> Value {
    let Payload::Inline(bytes) = payload else { panic!("tests have small constants") };
    if *payload == Payload::unit() { Value::Unit } else { Value::Constant(bytes.to_vec()) }
}

/// Returns the rounds of an each: the elements of all iterated lists.
fn rounds(inputs: &[Value], over: &[bool]) -> Vec<Vec<Value>> {
    let lists: Vec<_> = inputs.iter().zip(over).map(|(input, over)| over.then(|| input.elements())).collect();
    let count = lists.iter().flatten().map(Vec::len).min().unwrap_or(0);
    let at =
        |round: usize, input: usize| lists[input].as_ref().map_or_else(|| inputs[input].clone(), |l| l[round].clone());
    (0..count).map(|round| (0..inputs.len()).map(|input| at(round, input)).collect()).collect()
}

/// Returns, per output, the list of the results of all rounds.
fn gathered(rounds: Vec<Vec<Value>>, outputs: usize) -> Vec<Value> {
    (0..outputs).map(|at| Value::List(rounds.iter().map(|round| round[at].clone()).collect())).collect()
}

struct Flow<'a> {
    library: &'a Library,
    ran: Ran,
}

type Named = BTreeMap<String, Value>;

impl Flow<'_> {
    fn graph(&mut self, graph: &Graph, inputs: &Named, depth: usize) -> Option<Named> {
        let mut given: BTreeMap<Endpoint, Value> = BTreeMap::new();
        let give = |given: &mut BTreeMap<_, _>, module: Option<&Module>, values: &Named| {
            let module = module.map(|module| module.name.clone());
            let end = |port: &String| Endpoint { module: module.clone(), port: port.clone() };
            given.extend(values.iter().map(|(port, value)| (end(port), value.clone())));
        };
        give(&mut given, None, inputs);
        let mut waiting: Vec<_> = graph.modules.iter().collect();
        while !waiting.is_empty() {
            let before = waiting.len();
            for module in std::mem::take(&mut waiting) {
                let into = || graph.connections.iter().filter(|c| c.to.module.as_ref() == Some(&module.name));
                if !into().all(|connection| given.contains_key(&connection.from)) {
                    waiting.push(module);
                    continue;
                }
                let inputs: Named = into().map(|c| (c.to.port.clone(), given[&c.from].clone())).collect();
                let outputs = self.module(module, &inputs, depth)?;
                give(&mut given, Some(module), &outputs);
            }
            assert!(waiting.len() < before, "a cycle");
        }
        let into = graph.connections.iter().filter(|connection| connection.to.module.is_none());
        Some(into.map(|connection| (connection.to.port.clone(), given[&connection.from].clone())).collect())
    }

    fn module(&mut self, module: &Module, inputs: &Named, depth: usize) -> Option<Named> {
        if depth > DEPTH_MAX {
            return None;
        }
        let get = |name: &str| inputs.get(name).cloned().unwrap_or(Value::None);
        let error = module.attempt.then(|| (String::from("error"), Value::None));
        let outputs: Named = match &module.kind {
            ModuleKind::Task(spec) => {
                let inputs: Vec<_> = spec.inputs.iter().map(|port| get(&port.name)).collect();
                let names = spec.outputs.iter().map(|port| port.name.clone());
                let names = names.chain(spec.outputs.is_empty().then(|| String::from("done")));
                names.zip(self.ran.task(spec, &inputs, module.attempt)?).collect()
            }
            ModuleKind::Constant(port, payload) => [(port.name.clone(), constant(payload))].into(),
            ModuleKind::Composite(body) => self.graph(body, &all(body, get), depth + 1)?,
            ModuleKind::Call { flow } => {
                let body = &self.library.flows[flow];
                self.graph(body, &all(body, get), depth + 1)?
            }
            ModuleKind::Each { body, over, .. } => {
                let names: Vec<_> = body.inputs.iter().map(|port| port.name.clone()).collect();
                let values: Vec<_> = names.iter().map(|name| get(name)).collect();
                let over: Vec<_> = names.iter().map(|name| over.contains(name)).collect();
                let mut lists: BTreeMap<_, Vec<Value>> =
                    body.outputs.iter().map(|port| (port.name.clone(), vec![])).collect();
                for round in rounds(&values, &over) {
                    let inputs = names.iter().cloned().zip(round).collect();
                    for (name, value) in self.graph(body, &inputs, depth + 1)? {
                        lists.get_mut(&name).expect("an output").push(value);
                    }
                }
                lists.into_iter().map(|(name, list)| (name, Value::List(list))).collect()
            }
            ModuleKind::Loop { body, carried, condition } => {
                let mut inputs = all(body, get);
                let mut iteration = 1;
                loop {
                    let mut outputs = self.graph(body, &inputs, depth + 1)?;
                    inputs.extend(carried.iter().map(|(output, input)| (input.clone(), outputs[output].clone())));
                    let more = outputs.remove(condition).expect("the condition").holds();
                    if !more || iteration == ITERATIONS_MAX {
                        break outputs;
                    }
                    iteration += 1;
                }
            }
            ModuleKind::Choice { arms } => {
                let names = arms.iter().flat_map(|arm| &arm.body.outputs).map(|port| (port.name.clone(), Value::None));
                let mut outputs: Named = names.collect();
                let taken = arms.iter().find(|arm| arm.guard.as_ref().is_none_or(|guard| get(guard).holds()));
                if let Some(arm) = taken {
                    outputs.extend(self.graph(&arm.body, &all(&arm.body, get), depth + 1)?);
                }
                outputs
            }
        };
        Some(outputs.into_iter().chain(error).collect())
    }
}

fn all(body: &Graph, get: impl Fn(&str) -> Value) -> Named {
    body.inputs.iter().map(|port| (port.name.clone(), get(&port.name))).collect()
}

struct Machine<'a> {
    program: &'a Program,
    ran: Ran,
}

impl Machine<'_> {
    fn block(&mut self, block: u32, inputs: &[Value], depth: usize) -> Option<Vec<Value>> {
        if depth > 2 * DEPTH_MAX {
            return None;
        }
        let block = &self.program.blocks[block as usize];
        let mut made: Vec<Vec<Value>> = Vec::new();
        let read = |made: &[Vec<Value>], source: Source| match source {
            Source::Input(input) => inputs[usize::from(input)].clone(),
            Source::Node(node, port) => made[node as usize][usize::from(port)].clone(),
            Source::Constant(at) => constant(&self.program.constants[at as usize]),
            Source::None => Value::None,
        };
        for node in &block.nodes {
            let inputs: Vec<_> = node.inputs.iter().map(|source| read(&made, *source)).collect();
            let own = node.outputs.len() - usize::from(node.attempt);
            let mut outputs = match &node.op {
                NodeOp::Task(task) => self.ran.task(&self.program.tasks[*task as usize], &inputs, false)?,
                NodeOp::Relay => vec![inputs[0].clone()],
                NodeOp::Fused(_) => panic!("lowering does not fuse"),
                NodeOp::Call { body } => self.block(*body, &inputs, depth + 1)?,
                NodeOp::Each { body, .. } => {
                    let over: Vec<_> =
                        self.program.blocks[*body as usize].inputs.iter().map(|input| input.varying).collect();
                    let rounds = rounds(&inputs, &over).into_iter().map(|round| self.block(*body, &round, depth + 1));
                    gathered(rounds.collect::<Option<_>>()?, own)
                }
                NodeOp::Loop { body, carried } => self.repeat(*body, carried, inputs, own, depth)?,
                NodeOp::Choice { arms } => {
                    let holds = |guard: Option<u16>| guard.is_none_or(|guard| inputs[usize::from(guard)].holds());
                    match arms.iter().find(|arm| holds(arm.guard)) {
                        Some(arm) => self.block(arm.body, &inputs, depth + 1)?,
                        None => vec![Value::None; own],
                    }
                }
            };
            outputs.truncate(own);
            outputs.extend(node.attempt.then_some(Value::None));
            assert_eq!(outputs.len(), node.outputs.len(), "{node:?}");
            made.push(outputs);
        }
        Some(block.outputs.iter().filter(|output| !output.hidden).map(|output| read(&made, output.from)).collect())
    }

    fn repeat(
        &mut self,
        body: u32,
        carried: &[(u16, u16)],
        inputs: Vec<Value>,
        own: usize,
        depth: usize,
    ) -> Option<Vec<Value>> {
        let mut inputs = inputs;
        for iteration in 1.. {
            let outputs = self.block(body, &inputs, depth + 1)?;
            for (output, input) in carried {
                inputs[usize::from(*input)] = outputs[usize::from(*output)].clone();
            }
            if !outputs[own].holds() || iteration == ITERATIONS_MAX {
                return Some(outputs);
            }
        }
        None
    }
}

/// Asserts that the program of `main` does what the flow describes; returns whether that could be determined.
pub(crate) fn assert_same(library: &Library, requested: Option<&[String]>) -> bool {
    let program = check(library, "main", requested).unwrap_or_else(|errors| panic!("{errors}"));
    let main = &library.flows["main"];
    let inputs: Vec<_> = (0..main.inputs.len()).map(|at| made(&main.inputs[at].ty, number(&at))).collect();
    let named = main.inputs.iter().map(|port| port.name.clone()).zip(inputs.iter().cloned()).collect();
    let mut flow = Flow { library, ran: Ran::default() };
    let mut machine = Machine { program: &program, ran: Ran::default() };
    let Some(expected) = flow.graph(main, &named, 0) else { return false };
    let Some(found) = machine.block(0, &inputs, 0) else { return false };
    let names = program.blocks[0].outputs.iter().filter(|output| !output.hidden).map(|output| &output.port.name);
    for (name, value) in names.zip(found) {
        assert_eq!(value, expected[name], "output {name}");
    }
    if requested.is_none() {
        assert_eq!(machine.ran.done, flow.ran.done, "steps without outputs");
    }
    for (task, count) in &machine.ran.tasks {
        assert!(flow.ran.tasks.get(task).is_some_and(|most| count <= most), "{task:?} ran {count} times");
    }
    true
}
