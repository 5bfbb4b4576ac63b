//! The parts of a checked stream: sources, steps and sinks, and what they read.

use super::sink_step;
use crate::stream::{
    StreamPart,
    call::CheckedCall,
    combine::StreamCombine,
    declare::{DatabaseDecl, LineFormat, OnError, RecordTarget},
    expression::RecordExpression,
    secret::SecretTemplate,
};
use onceflow_core::model::Type;
use onceflow_stream::{step::join::JoinRange, window::Windowing};
use std::net::SocketAddr;

/// The outputs of a source or step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) enum NodeOutput {
    Main,
    /// Records that came after their window.
    Late,
    /// Records for which its filter is false.
    Rejects,
    /// Records that it failed for.
    Errors,
}

impl NodeOutput {
    pub(super) const SIDES: [(&'static str, NodeOutput); 3] =
        [("late", NodeOutput::Late), ("rejects", NodeOutput::Rejects), ("errors", NodeOutput::Errors)];
}

/// A node that is read, and which of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) struct StreamInput {
    pub(in crate::stream) node: usize,
    pub(in crate::stream) output: NodeOutput,
}

/// A source, step or sink.
#[derive(Debug)]
pub(in crate::stream) struct CheckedNode {
    pub(in crate::stream) name: String,
    /// The nodes it reads.
    pub(in crate::stream) inputs: Vec<StreamInput>,
    /// Records for which it is false do not come to the work.
    pub(in crate::stream) filter: Option<RecordExpression>,
    pub(in crate::stream) work: CheckedWork,
    pub(in crate::stream) ty: Type,
    pub(in crate::stream) on_error: OnError,
}

/// The work of a node.
#[derive(Debug)]
pub(in crate::stream) enum CheckedWork {
    Source { origin: CheckedOrigin, format: LineFormat, time: Option<RecordExpression>, out_of_order_ms: i64 },
    Merge,
    Map(Vec<(Option<String>, RecordExpression)>),
    FlatMap(RecordExpression),
    Once { id: RecordExpression, horizon_ms: i64 },
    Combine { key: Vec<(String, RecordExpression)>, windowing: Windowing, combine: StreamCombine },
    Join { keys: [RecordExpression; 2], range: JoinRange },
    Enrich { keys: [RecordExpression; 2], table: CheckedTable },
    Call(CheckedCall),
    Sink { to: RecordTarget, format: LineFormat },
}

/// Where the rows of a table come from.
#[derive(Clone, Debug)]
pub(in crate::stream) enum CheckedTable {
    File {
        path: String,
        ty: Type,
    },
    /// A file that is given under the name of the step.
    Given {
        ty: Type,
    },
    /// The last of the nodes that the step reads.
    Stream,
}

/// Where the records of a source come from.
#[derive(Clone, Debug)]
pub(in crate::stream) enum CheckedOrigin {
    Files {
        pattern: String,
        follow: bool,
        idle_ms: u64,
    },
    Directory {
        path: String,
        subdirectories: bool,
        follow: bool,
        idle_ms: u64,
    },
    /// Files that are given under the name of the source.
    Given {
        subdirectories: bool,
    },
    Stdin,
    Generate {
        record: RecordExpression,
        count: Option<u64>,
        every_ms: u64,
    },
    Http {
        address: SocketAddr,
        id: Option<RecordExpression>,
        horizon_ms: i64,
        headers: Vec<(String, SecretTemplate)>,
    },
}

impl CheckedNode {
    /// Returns the inputs whose records are its own: not the other side of a join, and no table.
    pub(in crate::stream) fn own_inputs(&self) -> &[StreamInput] {
        match self.work {
            CheckedWork::Join { .. } | CheckedWork::Enrich { table: CheckedTable::Stream, .. } => {
                &self.inputs[..self.inputs.len() - 1]
            }
            _ => &self.inputs,
        }
    }

    pub(in crate::stream) fn part(&self) -> StreamPart {
        let kind = match &self.work {
            CheckedWork::Source { origin: CheckedOrigin::Files { .. } | CheckedOrigin::Given { .. }, .. } => "file",
            CheckedWork::Source { origin: CheckedOrigin::Stdin, .. } => "stdin",
            CheckedWork::Source { origin: CheckedOrigin::Generate { .. }, .. } => "generate",
            CheckedWork::Source { origin: CheckedOrigin::Http { .. }, .. } => "http",
            CheckedWork::Source { origin: CheckedOrigin::Directory { .. }, .. } => "directory",
            CheckedWork::Merge if self.filter.is_some() => "filter",
            CheckedWork::Merge => "merge",
            CheckedWork::Map(_) => "map",
            CheckedWork::FlatMap(_) => "flat_map",
            CheckedWork::Once { .. } => "once",
            CheckedWork::Combine { .. } => "combine",
            CheckedWork::Join { .. } => "join",
            CheckedWork::Enrich { .. } => "enrich",
            CheckedWork::Call(_) => "call",
            CheckedWork::Sink { to: RecordTarget::File(_) | RecordTarget::Dated(_), .. } => "file",
            CheckedWork::Sink { to: RecordTarget::Stdout, .. } => "stdout",
            CheckedWork::Sink { to: RecordTarget::Http { .. }, .. } => "http",
            CheckedWork::Sink { to: RecordTarget::Sql(sql), .. } => match sql.database {
                DatabaseDecl::Sqlite(_) => "sqlite",
                DatabaseDecl::Postgres(..) => "postgres",
            },
        };
        let is_sink = matches!(self.work, CheckedWork::Sink { .. });
        let planned = if is_sink { sink_step(&self.name) } else { self.name.clone() };
        let inputs = self.inputs.iter().map(|input| input.node).collect();
        StreamPart { name: self.name.clone(), kind, inputs, is_sink, planned }
    }
}
