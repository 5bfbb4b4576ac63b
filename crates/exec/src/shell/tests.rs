//! Promises of commands.
