//! The plan of a pipeline as its row has it: everything that stored rows depend on. Stages and edges have numbers that
//! stay theirs when the pipeline is changed, and that no other gets, so rows are found again by the names of steps.

use crate::{
    data,
    error::StreamError,
    plan::{StateFact, StepFacts, StepKind, StreamPlan},
    run::{keys::Station, options::EdgeMode},
};
use onceflow_core::Row;
use serde::{Deserialize, Serialize};

/// The format of a pipeline's rows.
const FORMAT: u32 = 7;

/// The plan of a pipeline as it was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstalledPlan {
    format: u32,
    pub(crate) edge_mode: EdgeMode,
    /// The stages, in the order of the plan.
    pub(crate) stages: Vec<InstalledStage>,
    pub(crate) edges: Vec<InstalledEdge>,
    /// The numbers of the next new stage and the next new edge.
    pub(crate) next_ids: (u16, u16),
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstalledStage {
    pub(crate) id: u16,
    pub(crate) partitions: u16,
    /// Its steps; rows belong to the first one and to the sinks.
    pub(crate) steps: Vec<InstalledStep>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstalledStep {
    pub(crate) name: String,
    pub(crate) role: StepRole,
    /// Everything that its rows depend on.
    pub(crate) state: Vec<StateFact>,
}

/// The rows that a step has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StepRole {
    /// Positions.
    Source,
    /// State of keys, timers, ids of clients or calls.
    Stateful,
    /// The places of its chunks.
    Sink,
    /// None.
    Stateless,
}

/// A connection between two stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstalledEdge {
    pub(crate) id: u16,
    /// The sending stage, and its step whose output is sent.
    pub(crate) from: (u16, String),
    /// The receiving stage, and which of its inputs it is.
    pub(crate) to: (u16, u16),
    /// Parts are combined before they are sent.
    pub(crate) lifted: bool,
    /// The type of the records that are sent, or combined.
    pub(crate) records: String,
}

impl InstalledStep {
    /// The store has rows that are this step's alone.
    pub(crate) fn has_rows(&self) -> bool {
        self.role != StepRole::Stateless
    }
}

impl InstalledStage {
    /// Returns its name, for people.
    pub(crate) fn name(&self) -> String {
        self.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(" → ")
    }

    /// Returns its partitions.
    pub(crate) fn stations(&self) -> impl Iterator<Item = Station> + use<> {
        let stage = self.id;
        (0..self.partitions).map(move |partition| Station { stage, partition })
    }

    pub(crate) fn first(&self) -> &InstalledStep {
        self.steps.first().expect("a stage has a step")
    }

    /// Returns the names of its sinks, in the order in which its rows number them.
    pub(crate) fn sinks(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter(|step| step.role == StepRole::Sink).map(|step| step.name.as_str())
    }
}

impl InstalledPlan {
    /// Returns the plan of a pipeline that is new: its stages and edges are numbered in their order.
    pub(crate) fn new(steps: &[StepFacts], planned: &StreamPlan, partitions: &[u16], edge_mode: EdgeMode) -> Self {
        let names = unique_names(steps);
        let step = |step: &usize| InstalledStep {
            name: names[*step].clone(),
            role: match steps[*step].kind {
                StepKind::Source => StepRole::Source,
                StepKind::Combine { .. } | StepKind::Stateful => StepRole::Stateful,
                StepKind::Sink => StepRole::Sink,
                StepKind::Stateless | StepKind::KeyBy | StepKind::Merge | StepKind::Gather => StepRole::Stateless,
            },
            state: state_of(steps, *step),
        };
        let stages: Vec<_> = (0..)
            .zip(&planned.stages)
            .zip(partitions)
            .map(|((id, own), partitions)| InstalledStage {
                id,
                partitions: *partitions,
                steps: own.iter().map(step).collect(),
            })
            .collect();
        let edges: Vec<_> = (0..)
            .zip(&planned.edges)
            .map(|(id, edge)| InstalledEdge {
                id,
                from: (number(edge.from.1), names[edge.from.0].clone()),
                to: (number(edge.to.1), number(edge.port)),
                lifted: edge.lifted,
                records: steps[edge.from.0].output.clone(),
            })
            .collect();
        let next_ids = (number(stages.len()), number(edges.len()));
        InstalledPlan { format: FORMAT, edge_mode, stages, edges, next_ids }
    }

    pub(crate) fn to_row(&self) -> Row {
        Row::from(data::encode(self))
    }

    /// Reads the plan of a pipeline.
    pub(crate) fn from_row(name: &str, row: &Row) -> Result<Self, StreamError> {
        // Rows of every format begin with a number; those of formats before 7 with the length of a text, which is longer.
        let format: u32 = postcard::take_from_bytes(row).map_or(0, |(format, _)| format);
        if format != FORMAT {
            return Err(StreamError::OtherFormat { name: name.to_owned() });
        }
        Ok(data::decode(row)?)
    }

    /// Returns the stage of this number.
    pub(crate) fn stage(&self, id: u16) -> Option<&InstalledStage> {
        self.stages.iter().find(|stage| stage.id == id)
    }

    /// Returns the stage that an edge leads to.
    pub(crate) fn receiver(&self, edge: u16) -> Option<u16> {
        self.edges.iter().find(|own| own.id == edge).map(|own| own.to.0)
    }
}

pub(crate) fn number(count: usize) -> u16 {
    u16::try_from(count).expect("a pipeline has fewer than 65536 stages, edges and partitions")
}

/// Returns names for steps by which each can be told from the others: of several with one name, all but the first have
/// their number behind it.
fn unique_names(steps: &[StepFacts]) -> Vec<String> {
    let earlier = |at: usize| steps[..at].iter().filter(|step| step.name == steps[at].name).count();
    let name = |at: usize| match earlier(at) {
        0 => steps[at].name.clone(),
        earlier => format!("{} ({})", steps[at].name, earlier + 1),
    };
    (0..steps.len()).map(name).collect()
}

/// Returns what the rows of a step depend on: what it says itself, and what the steps say that give its inputs their keys.
fn state_of(steps: &[StepFacts], step: usize) -> Vec<StateFact> {
    let own = &steps[step];
    let mut state = own.state.clone();
    if matches!(own.kind, StepKind::Combine { .. } | StepKind::Stateful) {
        for (port, input) in own.inputs.iter().enumerate() {
            let of = |fact: &StateFact| match own.inputs.len() {
                1 => fact.clone(),
                _ => StateFact { field: format!("{} of input {}", fact.field, port + 1), value: fact.value.clone() },
            };
            state.extend(steps[*input].state.iter().map(of));
        }
    }
    state
}
