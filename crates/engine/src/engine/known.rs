//! The known values of a run's outermost steps that are still valid for a new request.
//!
//! A run with `keep` is looked up step by step: equal code and equal inputs mean equal outputs. A run without still
//! holds the inputs of its unfinished steps; such a value is valid if everything it was computed from is unchanged.

use super::{CheckedStart, live::Live};
use crate::{Error, runs::Run};
use onceflow_core::{
    Digest, Key,
    model::{
        Block, InstancePath, Program,
        program::{NodeIndex, PortIndex, ROOT, Source},
    },
    payload::Outcome,
    plan::{
        Change, Explanation, KeyedBlock, ProvenanceKeys as Provenance, changes, separate_joined_eaches,
        validity::output_address,
    },
    protocol::{
        ids::{END, FrameId, StepId},
        rows::{self, Header},
    },
};
use onceflow_store::values::Values;
use std::collections::BTreeMap;

/// Known values of the root block: the outcome of each, and the row that keeps it, if one does.
pub(super) type KnownValues = BTreeMap<(NodeIndex, PortIndex), (Outcome, Option<Key>)>;

/// The prefix of the name that a reused value has as an input of a plan.
const REUSED: &str = "reuse:";

/// The program and inputs that a run was started with.
pub(super) struct PreviousPlan {
    pub(super) program: Program,
    pub(super) inputs: Vec<(String, Digest)>,
}

impl PreviousPlan {
    /// The full program and inputs that a run was started with, including the parts that its plan did not need.
    pub(super) async fn read(values: &Values, header: &Header) -> Result<Option<Self>, Error> {
        let stored = header.full.as_ref().unwrap_or(&header.program);
        let bytes = match values.read_all(&stored.id).await {
            Ok(bytes) => bytes,
            Err(onceflow_store::values::Error::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let program = rows::read(&bytes).ok_or_else(|| Error::damaged("the program of a run"))?;
        Ok(Some(PreviousPlan { program, inputs: header.inputs.clone() }))
    }
}

impl PreviousPlan {
    /// The differences of every node to the new request.
    pub(super) fn changes(&self, asked: &CheckedStart) -> Vec<Change> {
        let (old, new) = (self.provenance(), provenance(&asked.program, &asked.inputs.digests()));
        let old = KeyedBlock { program: &self.program, block: ROOT, keys: &old };
        changes(old, KeyedBlock { program: &asked.program, block: ROOT, keys: &new })
    }

    /// The explanation with a line for each of several eaches that are joined into one node.
    pub(super) fn separate_joined_eaches(&self, asked: &CheckedStart, explanation: Explanation) -> Explanation {
        let (old, new) = (self.provenance(), provenance(&asked.program, &asked.inputs.digests()));
        let old = KeyedBlock { program: &self.program, block: ROOT, keys: &old };
        let new = KeyedBlock { program: &asked.program, block: ROOT, keys: &new };
        separate_joined_eaches(explanation, &asked.program, Some((old, new)))
    }

    fn provenance(&self) -> Provenance {
        provenance(&self.program, &self.inputs)
    }
}

fn provenance(program: &Program, inputs: &[(String, Digest)]) -> Provenance {
    let digest = |name: &str| inputs.iter().find(|(input, _)| input == name).map(|(_, digest)| *digest);
    let inputs: Vec<_> = program.blocks[ROOT as usize].inputs.iter().map(|input| digest(&input.port.name)).collect();
    Provenance::new(program, ROOT, &inputs)
}

/// The name of an output of the root block, which is the same across programs.
fn name_of(block: &Block, node: NodeIndex, port: PortIndex) -> String {
    let (path, port) = output_address(&block.nodes[node as usize], port);
    format!("{}:{port}", InstancePath::root().address(path))
}

fn outputs(block: &Block) -> impl Iterator<Item = (NodeIndex, PortIndex)> {
    let ports = |(at, node): (NodeIndex, &onceflow_core::model::Node)| {
        (0..node.outputs.len()).map(move |port| (at, port as u16))
    };
    (0..).zip(&block.nodes).flat_map(ports)
}

/// The outputs of a finished run, by the name of the node output that gave them.
pub(super) fn given_out(before: &PreviousPlan, outputs: &[(String, Outcome)]) -> BTreeMap<String, Outcome> {
    let block = &before.program.blocks[ROOT as usize];
    let given = |output: &onceflow_core::model::program::BlockOutput| {
        let Source::Node(node, port) = output.from else { return None };
        let (_, outcome) = outputs.iter().find(|(name, _)| *name == output.port.name)?;
        Some((name_of(block, node, port), outcome.clone()))
    };
    block.outputs.iter().filter(|output| !output.hidden).filter_map(given).collect()
}

/// The held values that are valid for the new request.
pub(super) fn still_right(held: BTreeMap<String, Outcome>, before: &PreviousPlan, asked: &CheckedStart) -> KnownValues {
    let (old, new) = (before.provenance(), provenance(&asked.program, &asked.inputs.digests()));
    let (old_block, new_block) = (&before.program.blocks[ROOT as usize], &asked.program.blocks[ROOT as usize]);
    let old_keys: BTreeMap<_, _> =
        outputs(old_block).map(|(node, port)| (name_of(old_block, node, port), old.output(node, port))).collect();
    let right = |(node, port): (NodeIndex, PortIndex)| {
        let name = name_of(new_block, node, port);
        let has_same_key = old_keys.get(&name) == Some(&new.output(node, port));
        let outcome = if crate::seams::is_valid(has_same_key) { held.get(&name) } else { None };
        Some(((node, port), (outcome?.clone(), None)))
    };
    outputs(new_block).filter_map(right).collect()
}

/// The inputs that the outermost unfinished steps of a run hold, by the name of the node output that gave them.
pub(super) fn held(run: &Run, live: &Live) -> Result<BTreeMap<String, Outcome>, Error> {
    let mut found = BTreeMap::new();
    let block = &run.plan.program.blocks[ROOT as usize];
    let mut add = |source: Source, outcome: &Outcome| {
        let name = match source {
            Source::Node(node, port) => name_of(block, node, port),
            Source::Input(port) => match block.inputs[usize::from(port)].port.name.strip_prefix(REUSED) {
                Some(name) => name.to_owned(),
                None => return,
            },
            Source::Constant(_) | Source::None => return,
        };
        if !matches!(outcome, Outcome::Failed(_)) {
            found.insert(name, outcome.clone());
        }
    };
    let root = live.frames.get(&FrameId::ROOT);
    let root = root.ok_or_else(|| Error::damaged(format!("the frame of run `{}`", run.key)))?;
    for (port, held) in (0..).zip(&root.inputs) {
        if let Some(held) = held {
            add(Source::Input(port), &held.outcome);
        }
    }
    let source = |step: StepId, port: u16| match step {
        StepId { frame: FrameId::ROOT, node: END, .. } => {
            block.outputs.get(usize::from(port)).map(|output| output.from)
        }
        StepId { frame: FrameId::ROOT, node, .. } => {
            block.nodes.get(node as usize)?.inputs.get(usize::from(port)).copied()
        }
        _ => None,
    };
    for (step, received) in live.received() {
        if let Some(source) = source(step, received.port) {
            add(source, &received.outcome);
        }
    }
    for frame in live.frames.values() {
        let Some((opener, _)) = frame.opened_by else { continue };
        for (port, held) in (0..).zip(&frame.inputs) {
            if let (Some(held), Some(source)) = (held, source(opener, port)) {
                add(source, &held.outcome);
            }
        }
    }
    Ok(found)
}
