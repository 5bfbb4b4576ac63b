//! Stub.
use crate::model::Program;
pub(super) fn pipeline(_program: &mut Program) {}
