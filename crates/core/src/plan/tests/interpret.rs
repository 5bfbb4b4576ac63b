//! The naive meaning of a program: every node runs once per instance, values are numbers, and a task's output is a hash
//! of the inputs it depends on. Two programs with equal numbers compute the same.

use crate::{
    model::{
        FusedSource, Program, Source,
        program::{BlockIndex, NodeOp},
    },
    payload::Payload,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    None,
    Number(u64),
    List(Vec<Value>),
}

impl Value {
    fn holds(&self) -> bool {
        matches!(self, Value::Number(number) if number % 2 == 1)
    }

    fn elements(&self) -> Vec<Value> {
        match self {
            Value::None => vec![],
            Value::Number(number) => (0..number % 3).map(|at| Value::Number(number ^ (at << 7))).collect(),
            Value::List(elements) => elements.clone(),
        }
    }

    fn hash(&self, into: &mut blake3::Hasher) {
        match self {
            Value::None => drop(into.update(b"none")),
            Value::Number(number) => drop(into.update(b"number").update(&number.to_le_bytes())),
            Value::List(elements) => {
                into.update(b"list").update(&(elements.len() as u64).to_le_bytes());
                elements.iter().for_each(|element| element.hash(into));
            }
        }
    }
}

/// Returns a number as a payload.
pub(super) fn constant(number: u64) -> Payload {
    Payload::inline(number.to_le_bytes())
}

fn read(payload: &Payload) -> Value {
    match payload {
        Payload::Inline(bytes) => {
            Value::Number(bytes.iter().fold(7, |all, byte| all * 31 % 1_000_003 + u64::from(*byte)))
        }
        _ => Value::None,
    }
}

/// The values an instance of a block has computed.
pub(super) struct Instance {
    /// The values by node and output.
    pub(super) nodes: Vec<Vec<Value>>,
    pub(super) outputs: Vec<Value>,
}

/// Runs one instance of a block.
pub(super) fn run(program: &Program, block: BlockIndex, inputs: &[Value]) -> Instance {
    let block = &program.blocks[block as usize];
    assert_eq!(block.inputs.len(), inputs.len());
    let mut nodes: Vec<Vec<Value>> = Vec::new();
    let get = |nodes: &[Vec<Value>], source: Source| match source {
        Source::Input(input) => inputs[usize::from(input)].clone(),
        Source::Node(node, port) => nodes[node as usize][usize::from(port)].clone(),
        Source::Constant(constant) => read(&program.constants[constant as usize]),
        Source::None => Value::None,
    };
    for node in &block.nodes {
        node.gate.iter().for_each(|gate| drop(get(&nodes, *gate)));
        let given: Vec<_> = node.inputs.iter().map(|source| get(&nodes, *source)).collect();
        let outputs = operate(program, &node.op, &given, node.outputs.len());
        assert_eq!(outputs.len(), node.outputs.len());
        nodes.push(outputs);
    }
    let outputs = block.outputs.iter().map(|output| get(&nodes, output.from)).collect();
    Instance { nodes, outputs }
}

fn operate(program: &Program, op: &NodeOp, given: &[Value], outputs: usize) -> Vec<Value> {
    let body_of = |body: BlockIndex, given: &[Value]| run(program, body, given).outputs[..].to_vec();
    match op {
        NodeOp::Task(at) => task(program, *at, given, outputs),
        NodeOp::Fused(tasks) => {
            let mut inner: Vec<Vec<Value>> = Vec::new();
            let mut all = vec![Value::None; outputs];
            for fused in tasks {
                let source = |source: &FusedSource| match source {
                    FusedSource::Input(input) => given[usize::from(*input)].clone(),
                    FusedSource::Task(task, port) => inner[usize::from(*task)][usize::from(*port)].clone(),
                };
                let given: Vec<_> = fused.inputs.iter().map(source).collect();
                let gave = task(program, fused.task, &given, fused.outputs.len());
                for (value, output) in gave.iter().zip(&fused.outputs) {
                    output.iter().for_each(|output| all[usize::from(*output)] = value.clone());
                }
                inner.push(gave);
            }
            all
        }
        NodeOp::Relay => vec![given[0].clone(); outputs],
        NodeOp::Each { body, .. } => {
            let varying: Vec<_> = program.blocks[*body as usize].inputs.iter().map(|input| input.varying).collect();
            let lists: Vec<_> = given.iter().map(Value::elements).collect();
            let count = lists.iter().zip(&varying).filter(|(_, varies)| **varies).map(|(list, _)| list.len()).min();
            let element = |at: usize| {
                let pick = |(port, value): (usize, &Value)| {
                    if varying[port] { lists[port][at].clone() } else { value.clone() }
                };
                body_of(*body, &given.iter().enumerate().map(pick).collect::<Vec<_>>())
            };
            let rows: Vec<_> = (0..count.unwrap_or(0)).map(element).collect();
            (0..outputs).map(|port| Value::List(rows.iter().map(|row| row[port].clone()).collect())).collect()
        }
        NodeOp::Loop { body, carried } => {
            let mut given = given.to_vec();
            for _ in 0..3 {
                let gave = body_of(*body, &given);
                if !gave[outputs].holds() {
                    return gave[..outputs].to_vec();
                }
                carried
                    .iter()
                    .for_each(|(output, input)| given[usize::from(*input)] = gave[usize::from(*output)].clone());
            }
            body_of(*body, &given)[..outputs].to_vec()
        }
        NodeOp::Choice { arms } => {
            let arm = arms.iter().find(|arm| arm.guard.is_none_or(|guard| given[usize::from(guard)].holds()));
            arm.map_or(vec![Value::None; outputs], |arm| body_of(arm.body, given)[..outputs].to_vec())
        }
        NodeOp::Call { body } => body_of(*body, given)[..outputs].to_vec(),
    }
}

fn task(program: &Program, task: u32, given: &[Value], outputs: usize) -> Vec<Value> {
    let task = &program.tasks[task as usize];
    assert_eq!(given.len(), task.inputs.len());
    let give = |output: usize| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(task.name.as_bytes()).update(b"@").update(task.version.as_bytes());
        hasher.update(&(output as u64).to_le_bytes());
        for (input, value) in given.iter().enumerate().filter(|(input, _)| task.depends(output, *input)) {
            hasher.update(&(input as u64).to_le_bytes());
            value.hash(&mut hasher);
        }
        let number = u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight bytes"));
        if task.name.starts_with("list") {
            Value::List((0..number % 4).map(|at| Value::Number(number.rotate_left(at as u32))).collect())
        } else {
            Value::Number(number)
        }
    };
    (0..outputs).map(give).collect()
}
