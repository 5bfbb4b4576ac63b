//! What the verbs do, a file each. They give back how the process ends, or why it could not be done.

pub(crate) mod background;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod fsck;
pub(crate) mod graph;
pub(crate) mod init;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod reclaim;
pub(crate) mod reference;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod timeline;
pub(crate) mod version;
pub(crate) mod watch;
pub(crate) mod worker;
pub(crate) mod workers;
