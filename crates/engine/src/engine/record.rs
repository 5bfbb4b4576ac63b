//! What a run was made of, step by step: code, where each input comes from, and what is known of what came out. For
//! those who ask where something comes from, or what two runs differ in.

use super::{Engine, known::Known, summary::RunStatus};
use crate::{Error, Handle};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Name,
    model::{
        Node, Place, Program,
        program::{FusedSource, NodeIndex, Op, PortIndex, ROOT, Source},
    },
    payload::{Digest, Outcome, Payload, Stored},
    protocol::{
        ids::RunId,
        keys::{self, Keys},
        rows::{self, Head},
    },
};

/// Where something comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An input of the run.
    Input(String),
    /// An output of a step.
    Step {
        /// Where the step is.
        address: String,
        /// Which output.
        port: String,
    },
    /// The flow itself says it.
    Constant(Digest),
    /// Nothing.
    None,
}

/// An outermost step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Where it is.
    pub address: String,
    /// The task, or `each`, `loop`, `choice`, `call`.
    pub kind: String,
    /// Equal for equal code: a version, or the digest of what is inside.
    pub code: String,
    /// What it takes, and from where.
    pub inputs: Vec<(String, Origin)>,
    /// What it gives; with the value, where that is known.
    pub outputs: Vec<(String, Option<Outcome>)>,
}

/// What a run was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is called.
    pub key: String,
    /// Which run it is.
    pub id: RunId,
    /// What its flow is called.
    pub flow: String,
    /// Digest of all the flow means.
    pub code: Digest,
    /// How it stands.
    pub status: RunStatus,
    /// Its inputs, by name.
    pub inputs: Vec<(String, Digest)>,
    /// Its outermost steps; none if its program is not kept any more.
    pub steps: Vec<StepRecord>,
    /// What it gives, from where, and the value where that is known.
    pub outputs: Vec<(String, Origin, Option<Outcome>)>,
}

/// Something of which only the digest is known.
fn of_digest(digest: Digest) -> Outcome {
    if digest == [0; 32] {
        return Outcome::None;
    }
    Outcome::Value(Payload::Stored(Stored { id: Name::default(), digest, len: 0 }))
}

impl Engine {
    /// What a run was made of, as far as that is kept.
    ///
    /// # Errors
    /// [`Error::NoRun`] if there is none of this key.
    pub fn record<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Record, Error>> {
        Box::pin(async move { self.find(key).await?.record().await })
    }
}

impl Handle {
    /// What the run was made of, as far as that is kept.
    ///
    /// # Errors
    /// [`Error::NoRun`] if its history has ended.
    pub fn record(&self) -> BoxFuture<'_, Result<Record, Error>> {
        Box::pin(async move {
            let (summary, header) = (self.summary().await?, self.header().await?);
            let row = self.shared.row(keys::heads().key(&self.key)).await?;
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
            let Some(before) = self.shared.before(&header).await? else {
                let unknown = |(name, outcome)| (name, Origin::None, Some(outcome));
                record.outputs = outputs.into_iter().map(unknown).collect();
                return Ok(record);
            };
            let program = &before.program;
            let root = &program.blocks[ROOT as usize];
            let input = |port: PortIndex| {
                let name = &root.inputs[usize::from(port)].port.name;
                let digest =
                    header.inputs.iter().find(|(input, _)| input == name).map_or([0; 32], |(_, digest)| *digest);
                of_digest(digest)
            };
            let known = match header.keep_ms {
                Some(_) => self.shared.kept_of(&Keys::new(self.id(), generation), program, &input).await?,
                None => Known::new(),
            };
            for (at, node) in (0..).zip(&root.nodes) {
                record.steps.extend(steps(program, at, node, &known));
            }
            for output in root.outputs.iter().filter(|output| !output.hidden) {
                let name = output.port.name.clone();
                let given = outputs.iter().find(|(given, _)| *given == name).map(|(_, outcome)| outcome.clone());
                record.outputs.push((name, origin(program, output.from), given));
            }
            Ok(record)
        })
    }
}

/// The steps that a node is: one, several that were fused, or none.
fn steps(program: &Program, at: NodeIndex, node: &Node, known: &Known) -> Vec<StepRecord> {
    let value = |port: PortIndex| known.get(&(at, port)).map(|(outcome, _)| outcome.clone());
    let address = Place::root().address(&node.path);
    let hex = |digest: &Digest| digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let body = |kind: &str, block: u32| (kind.to_owned(), hex(&program.blocks[block as usize].digest));
    let (kind, code) = match &node.op {
        Op::Relay => return vec![],
        Op::Fused(tasks) => {
            let one = |task: &onceflow_core::model::program::FusedTask| {
                let spec = &program.tasks[task.task as usize];
                let from = |source: &FusedSource| match source {
                    FusedSource::Input(port) => origin(program, node.inputs[usize::from(*port)]),
                    FusedSource::Task(at, port) => {
                        let other = &tasks[usize::from(*at)];
                        let spec = &program.tasks[other.task as usize];
                        let port = spec.outputs.get(usize::from(*port)).map_or("done", |port| &port.name).to_owned();
                        Origin::Step { address: Place::root().address(&other.path), port }
                    }
                };
                let inputs = spec.inputs.iter().map(|port| port.name.clone()).zip(task.inputs.iter().map(from));
                let outputs = spec.outputs.iter().zip(&task.outputs);
                StepRecord {
                    address: Place::root().address(&task.path),
                    kind: spec.name.clone(),
                    code: spec.version.clone(),
                    inputs: inputs.collect(),
                    outputs: outputs.map(|(port, at)| (port.name.clone(), at.and_then(value))).collect(),
                }
            };
            return tasks.iter().map(one).collect();
        }
        Op::Task(task) => {
            let spec = &program.tasks[*task as usize];
            (spec.name.clone(), spec.version.clone())
        }
        Op::Each { body: block, .. } => body("each", *block),
        Op::Loop { body: block, .. } => body("loop", *block),
        Op::Call { body: block } => body("call", *block),
        Op::Choice { arms } => {
            let arms: Vec<_> = arms.iter().map(|arm| hex(&program.blocks[arm.body as usize].digest)).collect();
            (String::from("choice"), arms.join("+"))
        }
    };
    let name = |port: usize| match &node.op {
        Op::Task(task) => program.tasks[*task as usize].inputs.get(port).map(|port| port.name.clone()),
        Op::Each { body, .. } | Op::Loop { body, .. } | Op::Call { body } => {
            program.blocks[*body as usize].inputs.get(port).map(|input| input.port.name.clone())
        }
        Op::Choice { arms } => arms
            .first()
            .and_then(|arm| program.blocks[arm.body as usize].inputs.get(port))
            .map(|input| input.port.name.clone()),
        Op::Relay | Op::Fused(_) => None,
    };
    let inputs = node.inputs.iter().enumerate();
    let inputs = inputs.map(|(port, from)| (name(port).unwrap_or_else(|| port.to_string()), origin(program, *from)));
    let outputs = (0..).zip(&node.outputs).map(|(port, output)| (output.name.clone(), value(port)));
    vec![StepRecord { address, kind, code, inputs: inputs.collect(), outputs: outputs.collect() }]
}

/// Where something of the root block comes from: through relays, and into what was fused.
fn origin(program: &Program, from: Source) -> Origin {
    let root = &program.blocks[ROOT as usize];
    match from {
        Source::Input(port) => Origin::Input(root.inputs[usize::from(port)].port.name.clone()),
        Source::Constant(at) => Origin::Constant(program.constants[at as usize].digest()),
        Source::None => Origin::None,
        Source::Node(at, port) => {
            let node = &root.nodes[at as usize];
            match &node.op {
                Op::Relay => node.inputs.first().map_or(Origin::None, |from| origin(program, *from)),
                _ => {
                    let (path, port) = onceflow_core::plan::validity::output_address(node, port);
                    Origin::Step { address: Place::root().address(path), port: port.to_owned() }
                }
            }
        }
    }
}
