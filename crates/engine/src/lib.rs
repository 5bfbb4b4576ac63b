//! Runs flows on a store.
//!
//! There is no orchestrator. A run is rows in a store; any worker may claim a ready step, run it, and commit, and that
//! commit, one atomic batch, is the only way anything changes. All state of a run is in the store: killing an engine
//! costs only time.
//!
//! | module | what it owns |
//! |---|---|
//! | [`task`] | the interface to user code |
//! | `engine` | starts runs, and finds them |
//! | `handle` | a run from outside: outputs, end, cancel |
//! | `worker` | claims ready steps, as many as its capacity allows; heartbeats |
//! | `perform` | performs a claimed step, a file for each kind |
//! | `kernel` | the way of work from claim to durable commit, whatever the work is |
//! | `commit` | a flow's step as work of the kernel |
//! | `queues` | reads and tidies the queues of steps |
//! | `registry` | registrations of workers and writers: which are there, and which are gone |
//! | `runs` | runs as this process has read them |
//! | `run_rows` | reads the rows of a run, by kind |
//! | `signals` | signals between the parts of an engine |
//! | `data` | converts between the data of tasks and the payloads of rows |
//! | `tx` | a flow's own rows, and its outbox |
//! | [`scope`] | sessions of light scopes, in memory |
//! | [`events`] | events of runs, in order |
//! | `event_log` | writes the events of runs into the store, and reads them |

#![forbid(unsafe_code)]

mod commit;
mod data;
mod engine;
mod error;
mod event_log;
pub mod events;
mod handle;
mod kernel;
mod options;
mod perform;
mod queues;
mod registry;
mod resources;
mod run_rows;
mod runs;
pub mod scope;
mod seams;
mod shared;
mod signals;
mod status;
pub mod task;
mod tx;
mod worker;

pub use data::{ALIVE, ValueOutline};
pub use engine::{
    Attendant, EachBody, EachProgress, Engine, ExportedRun, Fork, HISTORY_MS, ImportOptions, Intent,
    KEYLESS_HISTORY_MS, Origin, Outline, PLANS_MAX, Preview, Reasons, Record, RunProgress, RunUsage, Signature, Start,
    StartedStep, StepRecord, UndecidedStep, Usage, UsageKind, UsagePart,
    summary::Summary,
    workers::{Backlog, MissingTask, WorkerInfo, WorkerStep},
};
pub use error::{DAMAGE, Error, SOURCE_CHANGED, is_damage};
pub use event_log::{
    EventLogOptions, EventLogReader, LogEntry, LogEntryKind, ReportedOutcome, Unlisted, UnlistedCounts,
};
pub use events::{Event, EventKind};
pub use handle::{Handle, Resolution, RunHistory, RunOutputs, RunRequest, RunSteps};
pub use onceflow_store::values::census::Weight;
pub use options::{About, Options};
pub use perform::logs::StepLog;
pub use resources::{Need, Resources};
pub use status::RunStatus;
