//! What a flow gives, by a plain sequential interpreter: no store, no time, nothing goes wrong but what tasks do by
//! themselves. Also what every step is given, by address.

use crate::{
    behaviour::Behaviour,
    value::{Value, given, task_number},
};
use onceflow_core::model::{
    Effect, InstancePath, Node, Program, Source, TaskSpec, Type,
    program::{BlockIndex, NodeOp},
};
use std::collections::BTreeMap;

/// What arrives at a port.
#[derive(Clone, Debug, PartialEq)]
enum Out {
    Value(Value),
    /// It failed where something handles that.
    Failed,
    /// It failed, and the run with it: this never comes.
    Never,
}

/// One step of a flow.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Its task.
    pub task: String,
    /// The version of its task.
    pub version: String,
    /// What it is given.
    pub inputs: Vec<Value>,
    /// What it does to the world.
    pub effect: Effect,
    /// Whether it fails for good.
    pub fails: bool,
    /// Whether it can be undone.
    pub undoable: bool,
}

/// What a flow comes to.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// What it gives, by name; none if it fails.
    pub outputs: Option<Vec<(String, Value)>>,
    /// Every step that runs user code, by address.
    pub steps: BTreeMap<String, Expected>,
    /// Whether all of it follows from the inputs alone.
    pub exact: bool,
}

const STEPS_MAX: usize = 150;
const DEPTH_MAX: usize = 14;

struct Interpreter<'a> {
    program: &'a Program,
    repaired: bool,
    steps: BTreeMap<String, Expected>,
    exact: bool,
    failed: bool,
    count: usize,
}

/// What a program gives for inputs; none if it goes on for too long to be simulated.
pub fn meaning(program: &Program, inputs: &[Value], repaired: bool) -> Option<Meaning> {
    let mut interpreter =
        Interpreter { program, repaired, steps: BTreeMap::new(), exact: true, failed: false, count: 0 };
    let inputs: Vec<_> = inputs.iter().cloned().map(Out::Value).collect();
    let outputs = interpreter.block(0, &inputs, &InstancePath::root(), 0, false)?;
    let Interpreter { steps, exact, failed, .. } = interpreter;
    let names = program.blocks[0].outputs.iter().filter(|output| !output.hidden);
    let named = |(output, port): (Out, &onceflow_core::model::BlockOutput)| match output {
        Out::Value(value) => Some((port.port.name.clone(), value)),
        Out::Failed | Out::Never => None,
    };
    let outputs: Option<Vec<_>> = outputs.into_iter().zip(names).map(named).collect();
    Some(Meaning { outputs: outputs.filter(|_| !failed), steps, exact })
}

impl Interpreter<'_> {
    fn block(
        &mut self,
        block: BlockIndex,
        inputs: &[Out],
        place: &InstancePath,
        depth: usize,
        guarded: bool,
    ) -> Option<Vec<Out>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let program = self.program;
        let block = &program.blocks[block as usize];
        let mut made: Vec<Vec<Out>> = Vec::new();
        let read = |made: &[Vec<Out>], source: Source| match source {
            Source::Input(input) => inputs[usize::from(input)].clone(),
            Source::Node(node, port) => made[node as usize][usize::from(port)].clone(),
            Source::Constant(at) => Out::Value(Value::of_payload(&program.constants[at as usize])),
            Source::None => Out::Value(Value::None),
        };
        for node in &block.nodes {
            let mut inputs: Vec<_> = node.inputs.iter().map(|source| read(&made, *source)).collect();
            let never = inputs.contains(&Out::Never) || node.gate.is_some_and(|gate| read(&made, gate) == Out::Never);
            let outputs = if never {
                vec![Out::Never; node.outputs.len()]
            } else if inputs.contains(&Out::Failed) {
                failed_outputs(node)
            } else {
                self.node(node, &mut inputs, place, depth, guarded)?
            };
            assert_eq!(outputs.len(), node.outputs.len(), "{node:?}");
            made.push(outputs);
        }
        Some(block.outputs.iter().map(|output| read(&made, output.from)).collect())
    }

    fn node(
        &mut self,
        node: &Node,
        inputs: &mut [Out],
        place: &InstancePath,
        depth: usize,
        guarded: bool,
    ) -> Option<Vec<Out>> {
        let own = node.outputs.len() - usize::from(node.attempt);
        let inside = guarded || node.attempt;
        let outputs = match &node.op {
            NodeOp::Task(task) => self.task(*task, node, inputs, place)?,
            NodeOp::Relay => Some(vec![inputs[0].clone(); own]),
            NodeOp::Fused(_) => unreachable!("what is interpreted is not fused"),
            NodeOp::Call { body } => self.closed(*body, inputs, &place.called(node), depth, inside, own)?,
            NodeOp::Choice { arms } => {
                let holds = |guard: Option<u16>| {
                    guard.is_none_or(|guard| inputs[usize::from(guard)] == Out::Value(Value::Bool(true)))
                };
                match arms.iter().find(|arm| holds(arm.guard)) {
                    Some(arm) => self.closed(arm.body, inputs, place, depth, inside, own)?,
                    None => Some(vec![Out::Value(Value::None); own]),
                }
            }
            NodeOp::Each { body, .. } => self.each(*body, inputs, place, depth, inside, own)?,
            NodeOp::Loop { body, carried } => {
                let mut iteration = 0;
                loop {
                    let at = place.numbered(iteration);
                    let Some(mut given) = self.closed(*body, inputs, &at, depth, inside, own + 1)? else { break None };
                    if given.contains(&Out::Never) {
                        break Some(vec![Out::Never; own]);
                    }
                    let more = given.get(own) == Some(&Out::Value(Value::Bool(true)));
                    given.truncate(own);
                    if !more {
                        break Some(given);
                    }
                    for (output, input) in carried {
                        let value = given.get(usize::from(*output)).cloned();
                        inputs[usize::from(*input)] = value.expect("the condition is not carried");
                    }
                    iteration += 1;
                }
            }
        };
        Some(match outputs {
            None if guarded || node.attempt => failed_outputs(node),
            None => {
                self.failed = true;
                vec![Out::Never; node.outputs.len()]
            }
            // Something inside failed, and nothing around handles it.
            Some(outputs) if outputs.contains(&Out::Never) => vec![Out::Never; node.outputs.len()],
            Some(mut outputs) => {
                outputs.extend(node.attempt.then_some(Out::Value(Value::None)));
                outputs
            }
        })
    }

    /// The outputs of an instance; none if something in it failed and that is handled further out.
    fn closed(
        &mut self,
        body: BlockIndex,
        inputs: &[Out],
        place: &InstancePath,
        depth: usize,
        guarded: bool,
        own: usize,
    ) -> Option<Option<Vec<Out>>> {
        let mut outputs = self.block(body, inputs, place, depth + 1, guarded)?;
        if outputs.contains(&Out::Never) {
            return Some(Some(vec![Out::Never; own]));
        }
        if outputs.contains(&Out::Failed) {
            return Some(None);
        }
        outputs.truncate(own);
        Some(Some(outputs))
    }

    fn each(
        &mut self,
        body: BlockIndex,
        inputs: &[Out],
        place: &InstancePath,
        depth: usize,
        guarded: bool,
        own: usize,
    ) -> Option<Option<Vec<Out>>> {
        let over: Vec<_> = self.program.blocks[body as usize].inputs.iter().map(|input| input.varying).collect();
        let elements = |at: usize| match &inputs[at] {
            Out::Value(Value::List(elements)) => elements.clone(),
            other => unreachable!("{other:?} is no list"),
        };
        let lists: Vec<_> = over.iter().enumerate().map(|(at, over)| over.then(|| elements(at))).collect();
        let lens: Vec<_> = lists.iter().flatten().map(Vec::len).collect();
        if lens.iter().any(|len| *len != lens[0]) {
            return Some(None);
        }
        let mut lists_out = vec![Vec::new(); own];
        let (mut failed, mut never) = (false, false);
        for round in 0..lens.first().copied().unwrap_or(0) {
            let input =
                |at: usize| lists[at].as_ref().map_or_else(|| inputs[at].clone(), |l| Out::Value(l[round].clone()));
            let inputs: Vec<_> = (0..over.len()).map(input).collect();
            match self.closed(body, &inputs, &place.numbered(round as u64), depth, guarded, own)? {
                None => failed = true,
                Some(outputs) if outputs.contains(&Out::Never) => never = true,
                Some(outputs) => {
                    for (list, output) in lists_out.iter_mut().zip(outputs) {
                        if let Out::Value(value) = output {
                            list.push(value);
                        }
                    }
                }
            }
        }
        if never {
            return Some(Some(vec![Out::Never; own.max(1)]));
        }
        if failed {
            return Some(None);
        }
        Some(Some(lists_out.into_iter().map(|list| Out::Value(Value::List(list))).collect()))
    }

    /// What a task gives; `None` inside if it fails for good.
    fn task(&mut self, task: u32, node: &Node, inputs: &[Out], place: &InstancePath) -> Option<Option<Vec<Out>>> {
        self.count += 1;
        if self.count > STEPS_MAX {
            return None;
        }
        let spec = &self.program.tasks[task as usize];
        let inputs: Vec<_> = inputs
            .iter()
            .map(|input| match input {
                Out::Value(value) => value.clone(),
                Out::Failed | Out::Never => unreachable!("looked at before"),
            })
            .collect();
        let behaviour = Behaviour::of(spec);
        self.exact &= !behaviour.random;
        let fails = fails(spec, &inputs, self.repaired);
        let expected = Expected {
            task: spec.name.clone(),
            version: spec.version.clone(),
            inputs: inputs.clone(),
            effect: spec.effect,
            fails,
            undoable: spec.compensation.is_some(),
        };
        self.steps.insert(place.address(&node.path), expected);
        if fails {
            return Some(None);
        }
        let mut outputs: Vec<_> = outputs_of(spec, &inputs, 0).into_iter().map(Out::Value).collect();
        if outputs.is_empty() {
            outputs.push(Out::Value(Value::Unit));
        }
        Some(Some(outputs))
    }
}

fn failed_outputs(node: &Node) -> Vec<Out> {
    if !node.attempt {
        return vec![Out::Failed; node.outputs.len()];
    }
    let mut outputs = vec![Out::Value(Value::None); node.outputs.len()];
    if let Some(error) = outputs.last_mut() {
        *error = Out::Value(Value::Text);
    }
    outputs
}

/// Whether a task fails for good with these inputs.
pub fn fails(spec: &TaskSpec, inputs: &[Value], repaired: bool) -> bool {
    let behaviour = Behaviour::of(spec);
    let cured = behaviour.repairable && repaired;
    behaviour.fails > 0
        && !cured
        && task_number(&spec.name, &spec.version, inputs).is_multiple_of(u64::from(behaviour.fails))
}

/// What a task gives. The salt is chance.
pub fn outputs_of(spec: &TaskSpec, inputs: &[Value], salt: u64) -> Vec<Value> {
    let limit = u64::from(Behaviour::of(spec).counts_to);
    if limit > 0 {
        let n = match inputs {
            // Whatever it is given counts as a beginning, unless it is a count.
            [Value::Int(n)] if *n < 1000 => *n + 1,
            _ => 1,
        };
        return vec![Value::Int(n), Value::Bool(n < limit)];
    }
    let types: Vec<Type> = spec.outputs.iter().map(|port| port.ty.clone()).collect();
    given(&spec.name, &spec.version, salt, inputs, &types)
}
