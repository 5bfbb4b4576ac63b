//! Lowers a flow file to the graph that the kernel checks and runs: a reference becomes a connection, an expression a
//! task, nested steps a graph.
//!
//! | module | what it owns |
//! |---|---|
//! | `files` | flow files: each is read once, however many flows call it |
//! | `draft` | graphs within graphs, and the names known in each |
//! | `references` | the references of an expression, resolved, and its type |
//! | `texts` | texts with holes: what they take becomes inputs of one task |
//! | `order` | the order of steps by their references |
//! | `steps`, `containers`, `repeat`, `call` | steps and the constructs around them |
//! | `value` | values that connect modules: references, constants, computed |
//! | `leaf`, `action`, `http` | leaves: steps with an action of their own |
//! | `scope` | scopes, which are leaves with a graph of their own |
//! | `stream` | streams, which are leaves that are given files and give files |
//! | `task` | the task of a leaf, and its settings |
//! | `digest` | versions: all that results depend on |

mod action;
mod call;
mod containers;
mod digest;
mod draft;
pub(crate) mod files;
mod http;
mod leaf;
mod order;
mod references;
mod repeat;
mod scope;
mod steps;
mod stream;
mod task;
mod texts;
mod value;

pub(crate) use references::syntax_hint;

use crate::{
    source::Text,
    syntax::{fields::FieldReader, flow::FlowDecl},
};
use draft::{GraphDraft, GraphDrafts, NameTarget};
use files::LoadedFiles;
use onceflow_core::model::{Graph, Port};
use references::References;

/// The steps of a flow file that is being lowered, with the nested graphs they become.
struct Lowering<'a> {
    reader: FieldReader<'a>,
    flow: &'a FlowDecl,
    files: &'a mut LoadedFiles,
    graphs: GraphDrafts,
    /// Steps that leaves wait for, beside those they take inputs from.
    after: Vec<Text>,
}

/// Lowers a flow file to its graph.
fn lower(reader: FieldReader<'_>, flow: &FlowDecl, files: &mut LoadedFiles) -> Graph {
    let inputs: Vec<_> = flow.inputs.iter().map(|input| Port::new(input.name.name.clone(), input.shape.ty())).collect();
    let mut lowering = Lowering { reader, flow, files, graphs: GraphDrafts::default(), after: vec![] };
    let mut root = GraphDraft::default();
    root.graph.inputs.clone_from(&inputs);
    root.names.insert("inputs".into(), NameTarget::Inputs(inputs));
    lowering.graphs.open(root);
    lowering.steps(&flow.steps);
    lowering.gives(&flow.outputs, "outputs");
    lowering.graphs.finish()
}

impl Lowering<'_> {
    /// Resolves the references of an expression beside the steps.
    fn references(&mut self) -> References<'_> {
        References { reader: self.reader, flow: self.flow, graphs: &mut self.graphs, aliases: &[] }
    }
}
