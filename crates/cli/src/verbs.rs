//! What the verbs do, a file each. They give back how the process ends, or why it could not be done.

pub(crate) mod error;
pub(crate) mod fsck;
pub(crate) mod init;
pub(crate) mod ls;
pub(crate) mod reclaim;
pub(crate) mod version;
