//! The stages of a running pipeline, their partitions, and the edges between them.

use super::keys::Station;

/// An edge between two stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeLayout {
    /// Its number in the pipeline.
    pub(crate) id: u16,
    /// The sending stage and its number of partitions.
    pub(crate) from: (u16, u16),
    /// The receiving stage and its number of partitions.
    pub(crate) to: (u16, u16),
    /// Which of the receiver's inputs it is.
    pub(crate) port: usize,
}

/// A stage; one that the pipeline had earlier and has no more is without partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageLayout {
    pub(crate) partitions: u16,
    pub(crate) inputs: Vec<EdgeLayout>,
    pub(crate) outputs: Vec<EdgeLayout>,
    /// The names of its sinks.
    pub(crate) sinks: Vec<String>,
}

impl StageLayout {
    /// Returns the number of destinations of every outgoing edge.
    pub(crate) fn destinations(&self) -> Vec<usize> {
        self.outputs.iter().map(|edge| usize::from(edge.to.1)).collect()
    }

    /// Returns all partitions that send to this stage, with their edges.
    pub(crate) fn senders(&self) -> impl Iterator<Item = (u16, Station)> {
        self.inputs
            .iter()
            .flat_map(|edge| (0..edge.from.1).map(|partition| (edge.id, Station { stage: edge.from.0, partition })))
    }
}

/// Returns all partitions of all stages.
pub(crate) fn stations(stages: &[StageLayout]) -> impl Iterator<Item = Station> {
    stages.iter().enumerate().flat_map(|(stage, layout)| {
        let stage = u16::try_from(stage).expect("a pipeline has fewer stages");
        (0..layout.partitions).map(move |partition| Station { stage, partition })
    })
}
