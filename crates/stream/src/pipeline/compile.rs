//! Makes a runtime of a planned pipeline: stages as programs.

use super::{StepNode, StepWork, sink::SinkWriter, source::io_error};
use crate::{
    error::StreamError,
    plan::{StepKind, StreamPlan},
    run::{
        Runtime,
        chain::AnyPush,
        control::StreamControl,
        installed::InstalledPlan,
        keys::{Station, StreamKeys},
        layout::{EdgeLayout, StageLayout},
        options::StreamOptions,
        partition::Program,
        rest::Backlog,
        transport::Transport,
    },
};
use onceflow_store::{Records, World};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

/// The steps of a pipeline with their stages and edges.
struct Compiled {
    steps: Vec<StepNode>,
    planned: StreamPlan,
    /// For each stage of the plan, its number in the store and its partitions.
    stages: Vec<(u16, u16)>,
}

/// Returns the plan that a pipeline has in the store if it is new there.
pub(super) fn installed(steps: &[StepNode], planned: &StreamPlan, options: StreamOptions) -> InstalledPlan {
    let partitions: Vec<u16> = (planned.stages.iter())
        .map(|stage| match &steps[stage[0]].work {
            StepWork::Source { splits, .. } => *splits,
            _ if steps[stage[0]].facts.kind == StepKind::Gather => 1,
            _ => options.partitions.max(1),
        })
        .collect();
    let facts: Vec<_> = steps.iter().map(|step| step.facts.clone()).collect();
    InstalledPlan::new(&facts, planned, &partitions, options.edges)
}

/// Makes the runtime of a plan with the numbers that its stages and edges have in the store.
pub(super) fn compile(
    name: String,
    steps: Vec<StepNode>,
    (planned, installed): (StreamPlan, InstalledPlan),
    options: StreamOptions,
    (transport, control, locks): (Arc<dyn Transport>, StreamControl, Option<PathBuf>),
    records: Arc<dyn Records>,
    world: Arc<dyn World>,
) -> Runtime {
    let partitions = |id: u16| installed.stage(id).map_or(0, |stage| stage.partitions);
    let edges: Vec<EdgeLayout> = (installed.edges.iter())
        .map(|edge| EdgeLayout {
            id: edge.id,
            from: (edge.from.0, partitions(edge.from.0)),
            to: (edge.to.0, partitions(edge.to.0)),
            port: usize::from(edge.to.1),
        })
        .collect();
    let mut stages = vec![StageLayout::default(); usize::from(installed.next_ids.0)];
    for own in &installed.stages {
        stages[usize::from(own.id)] = StageLayout {
            partitions: own.partitions,
            inputs: edges.iter().filter(|edge| edge.to.0 == own.id).copied().collect(),
            outputs: edges.iter().filter(|edge| edge.from.0 == own.id).copied().collect(),
            sinks: own.sinks().map(str::to_owned).collect(),
        };
    }
    let own = installed.stages.iter().map(|stage| (stage.id, stage.partitions)).collect();
    let compiled = Compiled { steps, planned, stages: own };
    Runtime {
        keys: StreamKeys::new(&name),
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
        plan_row: installed.to_row(),
        installed,
        holds_sources: AtomicBool::default(),
        is_paused: AtomicBool::default(),
    }
}

impl Compiled {
    /// Makes the program of a partition: each step pushes into those after it, the last ones into edges and sinks.
    fn build(
        &self,
        station: Station,
        position: Option<&[u8]>,
    ) -> Result<(Program, Vec<Box<dyn SinkWriter>>), StreamError> {
        let stage = self.stages.iter().position(|(id, _)| *id == station.stage);
        let stage = stage.ok_or(StreamError::Damaged("a stage is not in the plan"))?;
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
                let writer = sink.open(station.partition, self.stages[stage].1);
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
