//! Unbounded data on a store: typed pipelines whose results are right however often their workers are killed.
//!
//! A pipeline is planned into a few stages. A stage is divided into partitions; each has one writer, which takes
//! records, runs the steps of the stage on them, and commits **one batch**: input positions, ids, state, timers, outputs
//! and watermarks together. Nothing else changes anything, so a crash leaves a bundle done or not begun.
//!
//! ```
//! use onceflow_store::{backend::memory::Memory, world::RealWorld};
//! use onceflow_stream::{EventTime, FileSink, Generator, Pipeline, combine::Sum, window::Windowing};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let pipeline = Pipeline::new("squares");
//! let numbers = pipeline.source("numbers", Generator::new(100, |n| (n, EventTime(n as i64))));
//! let sums = numbers
//!     .key_value("last digit", |n: u64| (n % 10, n * n))
//!     .combine("sum", Windowing::tumbling(50), Sum::new());
//! sums.sink("file", FileSink::new(directory.path().join("sums")), |sum, line| {
//!     line.extend(format!("{} {} {}\n", sum.window.start.0, sum.key, sum.value).bytes());
//! });
//! println!("{}", pipeline.explain());
//! let world = RealWorld::here();
//! let result = pipeline.run(Arc::new(Memory::new(world.clone())), world).await?;
//! assert_eq!(result.stages[0].counts.records_in, 100);
//! # Ok(()) }
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`pipeline`] | streams and steps with their types; sources and sinks |
//! | [`plan`] | fusion and lifting, with reasons |
//! | [`upgrade`] | which state a changed pipeline goes on with, and why not |
//! | [`window`], [`combine`], [`step`] | windows, triggers, combines, state and timers, joins |
//! | [`identity`], [`block`], [`catalog`] | ids and stamps of records, blocks of them, the ids that were seen |
//! | `testing` | the suites that every source and sink passes (feature `testing`) |
//! | `run` | bundles, commits, claims, the exactly-once way between stages |

#![forbid(unsafe_code)]

pub mod block;
pub mod catalog;
pub mod combine;
mod data;
mod error;
mod event_time;
pub mod identity;
pub mod pipeline;
pub mod plan;
mod run;
mod seams;
pub mod step;
#[cfg(feature = "testing")]
pub mod testing;
pub mod upgrade;
pub mod window;

pub use data::{BadValue, StreamData};
pub use error::StreamError;
pub use event_time::EventTime;
pub use onceflow_store::BoxFuture;
#[cfg(feature = "postgres")]
pub use pipeline::sql::postgres::PostgresSink;
#[cfg(feature = "sqlite")]
pub use pipeline::sql::sqlite::SqliteSink;
pub use pipeline::{
    KeyedStream, Pipeline, RecordFailure, Stream,
    call::{CallFailure, CallId, CallTarget, RecordCall},
    dated::{DatedFileSink, DatedName},
    flow_call::{FailedCall, FlowCalls},
    http_ingest::{DecodeRequest, HttpIngest, IngestRequest, IngestedRecord},
    http_sink::{HttpPayload, HttpSink},
    lines::{LineDecoder, StdinLines},
    of_step::{StepOutput, StepPipeline, ends_step_pipelines},
    secret::SecretText,
    sink::{FileSink, SinkChunk, SinkPart, SinkParts, SinkWriter, StdoutSink, StreamSink, WriteProgress},
    source::{FileLines, Generator, NextRecord, SplitReader, StreamSource},
    sql::{SqlColumnType, SqlSinkId, SqlTable},
    tail::{FollowedFiles, GivenFile, GivenFiles},
};
pub use run::{
    control::StreamControl,
    desired::{cancel, drain, pause, resume},
    keys::Station,
    meta::{CatalogSize, Counts},
    options::{EdgeMode, StreamOptions},
    savepoint::{Savepoint, begin_from_savepoint, make_savepoint, remove_savepoint, savepoints},
    sink_bytes::{SinkBytes, SinkTotal, sink_bytes},
    status::{StageStatus, StreamPhase, StreamStatus, pipelines, remove, status},
    transport::{MemoryTransport, StreamMessage, Transport},
    worker::{StageCounts, StreamResult},
};
pub use step::{KeyedRecord, PaneResult};

/// The examples of the page, compiled as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/book/src/streams.md")]
    struct Streams;
}
