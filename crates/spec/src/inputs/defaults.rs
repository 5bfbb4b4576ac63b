//! The inputs of a flow and their defaults. Paths are relative to the flow file.

use super::convert::{Convert, FilePresence};
use crate::{
    FlowInput, TypeDecl,
    problem::{Diagnostics, Problem},
    syntax::{fields::FieldReader, flow::InputDecl},
};
use std::path::Path;

/// Reads the inputs that a flow declares.
pub(crate) fn read(reader: FieldReader<'_>, inputs: &[InputDecl]) -> Vec<FlowInput> {
    inputs.iter().map(|input| read_one(reader, input)).collect()
}

fn read_one(reader: FieldReader<'_>, decl: &InputDecl) -> FlowInput {
    let base = Path::new(reader.source.file()).parent().unwrap_or(Path::new(""));
    let what = format!("the default of input `{}`", decl.name.name);
    let convert = Convert { base, files: FilePresence::AreNotLookedAt, what };
    let found = Diagnostics::default();
    let default = decl.default.as_ref().and_then(|node| convert.node(node, &decl.shape, reader.source, &found));
    if let Err(problems) = found.result() {
        for problem in problems.0 {
            reader.report.push(Problem { code: "OF0132", ..problem });
        }
    }
    let choices = match decl.shape.required() {
        TypeDecl::Enum(words) => words.clone(),
        _ => vec![],
    };
    FlowInput {
        name: decl.name.name.clone(),
        ty: decl.shape.ty(),
        shape: decl.shape.clone(),
        default,
        choices,
        help: decl.help.clone(),
    }
}
