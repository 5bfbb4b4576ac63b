//! The record of a run, step by step: the code, the source of each input, and the outputs as far as they are known.
//! Answers where a value comes from, and how two runs differ.

use super::{
    Engine,
    kept::KeptValues,
    known::{KnownValues, PreviousPlan},
};
use crate::{Error, RunHistory, RunStatus};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Digest, ValueId,
    model::{
        Block, InstancePath, Node, Port, Program, Type,
        program::{FusedSource, FusedTask, NodeOp, PortIndex, ROOT, Source},
    },
    payload::{Outcome, Payload, Stored},
    protocol::{
        ids::RunId,
        keys::{self, Keys},
        rows::{self, Head},
    },
};

/// The source of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An input of the run.
    Input(String),
    /// An output of a step.
    Step {
        /// The address of the step.
        address: String,
        /// The output port.
        port: String,
    },
    /// The element that the step runs for, of the list that an each goes over.
    Element(Box<Origin>),
    /// A constant of the flow.
    Constant(Digest),
    /// No source.
    None,
}

/// An outermost step of a run, or one that an each runs for every element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Its address.
    pub address: String,
    /// The task, or `each`, `loop`, `choice`, `call`.
    pub kind: String,
    /// Equal for equal code: a version, or the digest of what is inside.
    pub code: String,
    /// Its inputs, each with its source.
    pub inputs: Vec<(String, Origin)>,
    /// Its outputs, each with its value where that is known.
    pub outputs: Vec<(Port, Option<Outcome>)>,
    /// The steps that an each runs for every element.
    pub inside: Option<EachBody>,
}

/// The body of an each, which runs for every element. Eaches that go through their elements together are one here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EachBody {
    /// The steps, with `*` for the number of the element. Steps inside of containers among them are not listed.
    pub steps: Vec<StepRecord>,
    /// The source of an element, for each output of the each.
    pub outputs: Vec<Origin>,
}

/// The code, inputs and outputs of a run, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: RunId,
    /// The name of its flow.
    pub flow: String,
    /// The digest of the flow: equal for flows of equal meaning.
    pub code: Digest,
    /// Its status.
    pub status: RunStatus,
    /// Its inputs, by name.
    pub inputs: Vec<(String, Digest)>,
    /// Its outermost steps; none if its program is not kept any more.
    pub steps: Vec<StepRecord>,
    /// Its outputs, each with its source and, where it is known, its value; without their types if the program is not
    /// kept any more.
    pub outputs: Vec<(Port, Origin, Option<Outcome>)>,
}

/// A value of which only the digest is known.
fn of_digest(digest: Digest) -> Outcome {
    if digest == Digest::NONE {
        return Outcome::None;
    }
    Outcome::Value(Payload::Stored(Stored { id: ValueId::default(), digest, len: 0 }))
}

impl Engine {
    /// The record of a run, as far as it is kept.
    ///
    /// # Errors
    /// [`Error::NoRun`] if there is none of this key.
    pub fn record<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Record, Error>> {
        Box::pin(async move { self.find(key).await?.history().record().await })
    }
}

impl<'a> RunHistory<'a> {
    /// The record of the run, as far as it is kept.
    ///
    /// # Errors
    /// [`Error::NoRun`] if its history has ended.
    pub fn record(self) -> BoxFuture<'a, Result<Record, Error>> {
        Box::pin(async move {
            let (summary, header) = (self.handle.summary().await?, self.handle.request().header().await?);
            let row = self.handle.shared.row(keys::heads().key(&self.handle.key)).await?;
            let head = row.as_deref().and_then(rows::read::<Head>);
            let (generation, outputs) = match head {
                Some(Head::Finished(finished)) => (finished.generation, finished.outputs),
                Some(Head::Active(_)) | None => (onceflow_core::protocol::ids::Generation(summary.generation), vec![]),
            };
            let mut record = Record {
                key: summary.key,
                id: summary.id,
                flow: header.flow.clone(),
                code: header.asked,
                status: summary.status,
                inputs: header.inputs.clone(),
                steps: vec![],
                outputs: vec![],
            };
            let Some(before) = PreviousPlan::read(&self.handle.shared.values, &header).await? else {
                let unknown = |(name, outcome)| (Port { name, ty: Type::Json }, Origin::None, Some(outcome));
                record.outputs = outputs.into_iter().map(unknown).collect();
                return Ok(record);
            };
            let program = &before.program;
            let root = &program.blocks[ROOT as usize];
            let input = |port: PortIndex| {
                let name = &root.inputs[usize::from(port)].port.name;
                let digest =
                    header.inputs.iter().find(|(input, _)| input == name).map_or(Digest::NONE, |(_, digest)| *digest);
                of_digest(digest)
            };
            let known = match header.keep_ms {
                Some(_) => {
                    let keys = Keys::new(self.handle.id(), generation);
                    KeptValues::new(&self.handle.shared.kernel, &keys).of_program(program, &input).await?
                }
                None => KnownValues::new(),
            };
            let scope = Scope { program, block: root, around: None };
            for (at, node) in (0..).zip(&root.nodes) {
                let value = |port: PortIndex| known.get(&(at, port)).map(|(outcome, _)| outcome.clone());
                record.steps.extend(scope.steps(node, &value));
            }
            for output in root.outputs.iter().filter(|output| !output.hidden) {
                let port = output.port.clone();
                let given = outputs.iter().find(|(given, _)| *given == port.name).map(|(_, outcome)| outcome.clone());
                record.outputs.push((port, scope.origin(output.from), given));
            }
            Ok(record)
        })
    }
}

/// A block, and the each whose body it is.
#[derive(Clone, Copy)]
struct Scope<'a> {
    program: &'a Program,
    block: &'a Block,
    /// The each that runs the block for every element, and its own scope.
    around: Option<(&'a Node, &'a Scope<'a>)>,
}

impl Scope<'_> {
    /// The steps that a node stands for: one, several that were fused, or none.
    fn steps(&self, node: &Node, value: &dyn Fn(PortIndex) -> Option<Outcome>) -> Vec<StepRecord> {
        let program = self.program;
        let address = InstancePath::root().address(&node.path);
        let hex = |digest: &Digest| digest.to_string();
        let body = |kind: &str, block: u32| (kind.to_owned(), hex(&program.blocks[block as usize].digest));
        let (kind, code) = match &node.op {
            NodeOp::Relay => return vec![],
            NodeOp::Fused(tasks) => return tasks.iter().map(|task| self.fused(node, tasks, task, value)).collect(),
            NodeOp::Task(task) => {
                let spec = &program.tasks[*task as usize];
                (spec.name.clone(), spec.version.clone())
            }
            NodeOp::Each { body: block, .. } => body("each", *block),
            NodeOp::Loop { body: block, .. } => body("loop", *block),
            NodeOp::Call { body: block } => body("call", *block),
            NodeOp::Choice { arms } => {
                let arms: Vec<_> = arms.iter().map(|arm| hex(&program.blocks[arm.body as usize].digest)).collect();
                (String::from("choice"), arms.join("+"))
            }
        };
        let inputs = node.inputs.iter().enumerate();
        let inputs = inputs.map(|(port, from)| (self.name(node, port), self.origin(*from))).collect();
        let outputs = (0..).zip(&*node.outputs).map(|(port, output)| (output.clone(), value(port))).collect();
        vec![StepRecord { address, kind, code, inputs, outputs, inside: self.inside(node) }]
    }

    /// The record of one of several tasks that are fused into a node.
    fn fused(
        &self,
        node: &Node,
        tasks: &[FusedTask],
        task: &FusedTask,
        value: &dyn Fn(PortIndex) -> Option<Outcome>,
    ) -> StepRecord {
        let spec = &self.program.tasks[task.task as usize];
        let from = |source: &FusedSource| match source {
            FusedSource::Input(port) => self.origin(node.inputs[usize::from(*port)]),
            FusedSource::Task(at, port) => {
                let other = &tasks[usize::from(*at)];
                let spec = &self.program.tasks[other.task as usize];
                let port = spec.outputs.get(usize::from(*port)).map_or("done", |port| &port.name).to_owned();
                Origin::Step { address: InstancePath::root().address(&other.path), port }
            }
        };
        let inputs = spec.inputs.iter().map(|port| port.name.clone()).zip(task.inputs.iter().map(from));
        let outputs = spec.outputs.iter().zip(&task.outputs);
        StepRecord {
            address: InstancePath::root().address(&task.path),
            kind: spec.name.clone(),
            code: spec.version.clone(),
            inputs: inputs.collect(),
            outputs: outputs.map(|(port, at)| (port.clone(), at.and_then(value))).collect(),
            inside: None,
        }
    }

    /// The name of an input of a node.
    fn name(&self, node: &Node, port: usize) -> String {
        let of_block = |block: u32| self.program.blocks[block as usize].inputs.get(port).map(|input| &input.port);
        let named = match &node.op {
            NodeOp::Task(task) => self.program.tasks[*task as usize].inputs.get(port),
            NodeOp::Each { body, .. } | NodeOp::Loop { body, .. } | NodeOp::Call { body } => of_block(*body),
            NodeOp::Choice { arms } => arms.first().and_then(|arm| of_block(arm.body)),
            NodeOp::Relay | NodeOp::Fused(_) => None,
        };
        named.map_or_else(|| port.to_string(), |port| port.name.clone())
    }

    /// The body of an outermost each.
    fn inside(&self, node: &Node) -> Option<EachBody> {
        let (NodeOp::Each { body, .. }, None) = (&node.op, self.around) else { return None };
        let block = &self.program.blocks[*body as usize];
        let scope = Scope { program: self.program, block, around: Some((node, self)) };
        let outputs = block.outputs.iter().filter(|output| !output.hidden).map(|output| scope.origin(output.from));
        let steps = block.nodes.iter().flat_map(|node| scope.steps(node, &|_| None));
        Some(EachBody { steps: steps.collect(), outputs: outputs.collect() })
    }

    /// The source of a value of the block: relays are followed, and fused tasks are looked into.
    fn origin(&self, from: Source) -> Origin {
        match (from, self.around) {
            (Source::Input(port), None) => Origin::Input(self.block.inputs[usize::from(port)].port.name.clone()),
            (Source::Input(port), Some((node, outer))) => {
                let from = outer.origin(node.inputs[usize::from(port)]);
                match self.block.inputs[usize::from(port)].varying {
                    true => Origin::Element(Box::new(from)),
                    false => from,
                }
            }
            (Source::Constant(at), _) => Origin::Constant(self.program.constants[at as usize].digest()),
            (Source::None, _) => Origin::None,
            (Source::Node(at, port), _) => {
                let node = &self.block.nodes[at as usize];
                match &node.op {
                    NodeOp::Relay => node.inputs.first().map_or(Origin::None, |from| self.origin(*from)),
                    _ => {
                        let (path, port) = onceflow_core::plan::validity::output_address(node, port);
                        Origin::Step { address: InstancePath::root().address(path), port: port.to_owned() }
                    }
                }
            }
        }
    }
}
