//! The flow file.
