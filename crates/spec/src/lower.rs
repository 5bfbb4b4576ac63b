//! From what a flow file says to the graph that the kernel checks and runs: what is mentioned becomes a connection, what
//! is computed becomes a task, what is nested becomes a graph.
//!
//! | module | what it owns |
//! |---|---|
//! | `files` | flow files: each is read once, whoever calls it |
//! | `frame` | graphs within graphs, and the names known in each |
//! | `expression` | what expressions and holes mention |
//! | `infer` | what type an expression has |
//! | `order` | steps after those they mention |
//! | `steps`, `containers`, `repeat`, `call` | steps and what is around them |
//! | `leaf`, `action` | steps that do something themselves |
//! | `digest` | what results depend on |

mod action;
mod call;
mod containers;
mod digest;
mod draft;
mod expression;
pub(crate) mod files;
mod leaf;
mod order;
mod repeat;
mod steps;

use crate::{
    problem::Diagnostics,
    source::{SourceFile, Span},
    syntax::flow::FlowDecl,
};
use draft::{GraphDraft, GraphDrafts, NameTarget};
use files::LoadedFiles;
use onceflow_core::model::{Graph, Port, SourceLocation, Type};

/// A flow file that is being lowered.
struct Lowering<'a> {
    source: &'a SourceFile,
    report: &'a Diagnostics,
    flow: &'a FlowDecl,
    files: &'a mut LoadedFiles,
    frames: GraphDrafts,
    /// Names that the leaf being lowered gives to what it takes.
    aliases: Vec<(String, Type)>,
    /// What leaves wait for beside what they take.
    after: Vec<crate::source::Text>,
}

/// The graph of a flow file.
fn lower(source: &SourceFile, report: &Diagnostics, flow: &FlowDecl, files: &mut LoadedFiles) -> Graph {
    let inputs: Vec<_> = flow.inputs.iter().map(|input| Port::new(input.name.name.clone(), input.shape.ty())).collect();
    let mut lowering =
        Lowering { source, report, flow, files, frames: GraphDrafts::default(), aliases: vec![], after: vec![] };
    let mut root = GraphDraft::default();
    root.graph.inputs.clone_from(&inputs);
    root.names.insert("inputs".into(), NameTarget::Inputs(inputs));
    lowering.frames.open(root);
    lowering.steps(&flow.steps);
    lowering.gives(&flow.outputs, "outputs");
    lowering.frames.finish()
}

impl Lowering<'_> {
    fn say(&self, span: Span, code: &'static str, message: impl Into<String>, hint: impl Into<String>) {
        self.report.at(self.source, span, code, message, hint);
    }

    fn origin(&self, span: Span) -> SourceLocation {
        let (line, column) = self.source.position(span.start);
        SourceLocation { file: self.source.file().into(), line, column }
    }
}
