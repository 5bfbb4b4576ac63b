//! Makes a runtime of a planned pipeline: stages as programs, and the rows of a pipeline that runs for the first time.

use super::{StepNode, StepWork, sink::SinkWriter, source::io_error};
use crate::{
    data,
    error::StreamError,
    plan::{StepKind, StreamPlan},
    run::{
        Runtime,
        chain::AnyPush,
        control::StreamControl,
        keys::{self, Station, StreamKeys},
        layout::{self, EdgeLayout, StageLayout},
        options::StreamOptions,
        partition::{Program, SHARD},
        rest::Backlog,
        status::InstalledPlan,
        transport::Transport,
    },
};
use onceflow_core::{Batch, Row};
use onceflow_store::{Records, World, records::get_one};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

/// The format of a pipeline's rows.
const FORMAT: u32 = 6;

/// The steps of a pipeline with their stages and edges.
struct Compiled {
    steps: Vec<StepNode>,
    planned: StreamPlan,
    stages: Vec<StageLayout>,
}

fn number(count: usize) -> u16 {
    u16::try_from(count).expect("a pipeline has fewer than 65536 stages, edges and partitions")
}

pub(super) fn compile(
    name: String,
    steps: Vec<StepNode>,
    planned: &StreamPlan,
    options: StreamOptions,
    (transport, control, locks): (Arc<dyn Transport>, StreamControl, Option<PathBuf>),
    records: Arc<dyn Records>,
    world: Arc<dyn World>,
) -> Runtime {
    let partitions: Vec<u16> = (planned.stages.iter())
        .map(|stage| match &steps[stage[0]].work {
            StepWork::Source { splits, .. } => *splits,
            _ if steps[stage[0]].facts.kind == StepKind::Gather => 1,
            _ => options.partitions.max(1),
        })
        .collect();
    let edge = |(id, edge): (usize, &crate::plan::StageEdge)| EdgeLayout {
        id: number(id),
        from: (number(edge.from.1), partitions[edge.from.1]),
        to: (number(edge.to.1), partitions[edge.to.1]),
        port: edge.port,
    };
    let edges: Vec<EdgeLayout> = planned.edges.iter().enumerate().map(edge).collect();
    let stages: Vec<StageLayout> = (planned.stages.iter().enumerate())
        .map(|(stage, own)| StageLayout {
            partitions: partitions[stage],
            inputs: edges.iter().filter(|edge| usize::from(edge.to.0) == stage).copied().collect(),
            outputs: edges.iter().filter(|edge| usize::from(edge.from.0) == stage).copied().collect(),
            sinks: own.iter().filter(|step| matches!(steps[**step].work, StepWork::Sink { .. })).count(),
        })
        .collect();
    let stage_name =
        |stage: &Vec<usize>| stage.iter().map(|step| steps[*step].facts.name.as_str()).collect::<Vec<_>>().join(" → ");
    let stage_names = planned.stages.iter().map(stage_name).collect();
    let sinks_of = |stage: &Vec<usize>| {
        let sinks = stage.iter().filter(|step| matches!(steps[**step].work, StepWork::Sink { .. }));
        sinks.map(|step| steps[*step].facts.name.clone()).collect()
    };
    let sink_names = planned.stages.iter().map(sinks_of).collect();
    let states: Vec<_> = steps.iter().map(|step| step.facts.state.as_str()).filter(|state| !state.is_empty()).collect();
    let fingerprint = format!("{FORMAT} {:?} {:?} {states:?}\n{planned}", partitions, options.edges);
    let compiled = Compiled { steps, planned: planned.clone(), stages: stages.clone() };
    Runtime {
        keys: StreamKeys::new(&name),
        stage_names,
        sink_names,
        locks,
        lowered_bundles: Mutex::default(),
        backlog: Backlog::default(),
        build: Box::new(move |station, position| compiled.build(station, position)),
        name,
        records,
        world,
        stages,
        options,
        transport,
        control,
        fingerprint,
    }
}

impl Compiled {
    /// Makes the program of a partition: each step pushes into those after it, the last ones into edges and sinks.
    fn build(
        &self,
        station: Station,
        position: Option<&[u8]>,
    ) -> Result<(Program, Vec<Box<dyn SinkWriter>>), StreamError> {
        let stage = usize::from(station.stage);
        let first = self.planned.stages[stage][0];
        let lifted = self.planned.edges.iter().any(|edge| edge.to.1 == stage && edge.lifted);
        let step = &self.steps[first];
        let program = match &step.work {
            StepWork::Source { open, .. } => Program::Source(open(station.partition, position, self.output(first))?),
            StepWork::Stateless { make, program } => Program::Stage(program(make(self.output(first)))),
            StepWork::Stateful { program, .. } => Program::Stage(program(self.output(first), lifted)),
            StepWork::Sink { make, program, .. } => Program::Stage(program(make(0))),
        };
        let mut writers = Vec::new();
        for step in &self.planned.stages[stage] {
            if let StepWork::Sink { sink, .. } = &self.steps[*step].work {
                let writer = sink.open(station.partition, self.stages[stage].partitions);
                writers.push(writer.map_err(|error| io_error(&self.steps[*step].facts.name, error))?);
            }
        }
        Ok((program, writers))
    }

    /// The steps and edges that read a step, as one push.
    fn output(&self, step: usize) -> AnyPush {
        let stage_of = |step: usize| self.planned.stages.iter().position(|stage| stage.contains(&step));
        let stage = stage_of(step).expect("every step has a stage");
        let own = &self.planned.stages[stage];
        let mut readers = Vec::new();
        for reader in own.iter().filter(|reader| self.steps[**reader].facts.inputs.contains(&step)) {
            readers.push(match &self.steps[*reader].work {
                StepWork::Stateless { make, .. } => make(self.output(*reader)),
                StepWork::Sink { make, .. } => {
                    let sinks = own.iter().filter(|step| matches!(self.steps[**step].work, StepWork::Sink { .. }));
                    make(sinks.take_while(|step| *step != reader).count())
                }
                StepWork::Source { .. } | StepWork::Stateful { .. } => unreachable!("such a step starts a stage"),
            });
        }
        let outputs = self.planned.edges.iter().filter(|edge| edge.from.1 == stage).enumerate();
        for (at, edge) in outputs.filter(|(_, edge)| edge.from.0 == step) {
            readers.push(match &self.steps[edge.to.0].work {
                StepWork::Stateful { senders, .. } => senders[edge.port](at, edge.lifted),
                _ => (self.steps[step].sender)(at),
            });
        }
        (self.steps[step].fan_out)(readers)
    }
}

/// Puts the rows of a pipeline that runs for the first time, with this batch: its plan, and a queue row for every partition.
pub(super) async fn install(runtime: &Runtime, mut batch: Batch) -> Result<(), StreamError> {
    let partitions = runtime.stages.iter().map(|stage| stage.partitions);
    let stages = runtime.stage_names.iter().cloned().zip(partitions).collect();
    let mut receivers: Vec<_> = runtime.stages.iter().flat_map(|stage| &stage.inputs).collect();
    receivers.sort_by_key(|edge| edge.id);
    let installed = InstalledPlan {
        fingerprint: runtime.fingerprint.clone(),
        stages,
        sinks: runtime.sink_names.clone(),
        receivers: receivers.iter().map(|edge| edge.to.0).collect(),
    };
    let (keys, plan) = (&runtime.keys, Row::from(data::encode(&installed)));
    batch.require_absent(keys.plan()).put(keys.plan(), plan.clone());
    batch.put(keys::pipelines().key(&runtime.name), Row::default());
    for station in layout::stations(&runtime.stages) {
        batch.put(keys.queue().key(station.to_bytes()), keys.ready_row());
    }
    let _refused_if_it_exists = runtime.records.commit(batch).await?;
    match get_one(&*runtime.records, SHARD, keys.plan()).await? {
        Some(stored) if stored == plan => Ok(()),
        None => Err(StreamError::Removed { name: runtime.name.clone() }),
        _ => Err(StreamError::Changed { name: runtime.name.clone() }),
    }
}
