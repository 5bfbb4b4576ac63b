//! What the verbs do, a file each. They give back how the process ends, or why it could not be done.

pub(crate) mod against;
pub(crate) mod background;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fork;
pub(crate) mod fsck;
pub(crate) mod init;
pub(crate) mod lineage;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod reclaim;
pub(crate) mod resolve;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod show;
pub(crate) mod version;
pub(crate) mod watch;
pub(crate) mod why;
pub(crate) mod worker;
pub(crate) mod workers;
