//! Runs flows on a store.
//!
//! There is no orchestrator. A run is rows in a store; any worker may take a ready step, run it, and commit, and that
//! commit, one atomic batch, is the only way anything changes. The engine holds no truth: kill it anywhere, only time is
//! lost.
//!
//! | module | what it owns |
//! |---|---|
//! | [`task`] | what user code looks like to the engine |
//! | `engine` | starts runs, and finds them |
//! | `handle` | a run from outside: outputs, end, cancel |
//! | `worker` | takes ready steps, as many as there is room for; signs of life |
//! | `perform` | what is done with a step, a file for each kind |
//! | `commit` | sends what was decided, and decides again if it must |
//! | `data` | what tasks see, and what rows hold |
//! | `tx` | the rows of a flow's own, and its outbox |
//! | [`events`] | what happened, in order |

#![forbid(unsafe_code)]

mod commit;
mod data;
mod engine;
mod error;
pub mod events;
mod handle;
mod options;
mod perform;
mod resources;
mod seams;
mod shared;
mod status;
pub mod task;
mod tx;
mod worker;

pub use data::{ALIVE, ValueOutline};
pub use engine::{
    Attendant, EachBody, EachProgress, Engine, ExportedRun, Fork, HISTORY_MS, ImportOptions, KEYLESS_HISTORY_MS, Move,
    Origin, Outline, PLANS_MAX, Reasons, Record, RunProgress, RunUsage, Signature, Start, StartedStep, StepRecord,
    UndecidedStep, Usage, UsageKind, UsagePart,
    summary::Summary,
    workers::{Backlog, MissingTask, WorkerInfo, WorkerStep},
};
pub use error::{DAMAGE, Error, SOURCE_CHANGED, is_damage};
pub use events::{Event, EventKind};
pub use handle::{Handle, Resolution};
pub use onceflow_store::values::census::Weight;
pub use options::{About, Options};
pub use perform::logs::StepLog;
pub use resources::{Need, Resources};
pub use status::RunStatus;
