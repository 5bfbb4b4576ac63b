//! Lowers a flow file to the graph that the kernel checks and runs: a reference becomes a connection, an expression a
//! task, nested steps a graph.
//!
//! | module | what it owns |
//! |---|---|
//! | `files` | flow files: each is read once, however many flows call it |
//! | `frame` | graphs within graphs, and the names known in each |
//! | `expression` | the references of expressions and holes |
//! | `infer` | the types of expressions |
//! | `order` | the order of steps by their references |
//! | `steps`, `containers`, `repeat`, `call` | steps and the constructs around them |
//! | `scope` | scopes, which are leaves with a graph of their own |
//! | `leaf`, `action` | leaves: steps with an action of their own |
//! | `digest` | versions: all that results depend on |

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
mod scope;
mod steps;

use crate::{
    problem::Diagnostics,
    source::{SourceFile, Span},
    syntax::flow::FlowDecl,
};
pub(crate) use expression::syntax_hint;

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
    /// Names that the current leaf gives to its inputs.
    aliases: Vec<(String, Type)>,
    /// Steps that leaves wait for, beside those they take inputs from.
    after: Vec<crate::source::Text>,
}

/// Lowers a flow file to its graph.
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
        let (line, column) = self.source.position(span.start());
        SourceLocation { file: self.source.file().into(), line, column }
    }
}
