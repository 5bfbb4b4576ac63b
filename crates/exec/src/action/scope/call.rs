//! A flow that a scope calls, as the program carries it: with all flows that it calls itself, so that any process can run it,
//! and end it, also when its file has changed or is gone.

use base64::{Engine, prelude::BASE64_STANDARD};
use onceflow_core::{
    model::{CheckedFlow, Library, Port, Type},
    protocol::rows,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A flow that a scope calls: a run for each message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCall {
    /// The name of the flow.
    pub flow: String,
    /// The digest of its program.
    identity: String,
    /// The flow and those that it calls, as bytes in base64.
    library: String,
    /// Its inputs.
    pub inputs: Vec<CallInput>,
    /// Its outputs, which are the fields of the message.
    pub outputs: Vec<Port>,
}

/// An input of a flow that a scope calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallInput {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The words that it may be, if they are listed.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Where its value comes from.
    pub given: CallGiven,
    /// Its value otherwise; none without a default.
    pub default: Option<Value>,
}

/// Where the value of an input of a called flow comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallGiven {
    /// An expression over `message`.
    Expr(String),
    /// The field of its name of the message, if it has one.
    Field,
    /// Its default.
    Default,
}

impl FileCall {
    /// A call of a checked flow. The places of its steps in their files are left out: a session goes on if only they change.
    ///
    /// # Errors
    /// If the flow is not sound without its places, which cannot be.
    pub fn new(flow: &CheckedFlow, inputs: Vec<CallInput>, outputs: Vec<Port>) -> Self {
        let mut library = Library::clone(flow.library());
        library.clear_origins();
        FileCall {
            flow: flow.name().to_owned(),
            identity: flow.identity().digest.to_string(),
            library: BASE64_STANDARD.encode(rows::bytes(&library)),
            inputs,
            outputs,
        }
    }

    /// The flow, checked again.
    ///
    /// # Errors
    /// If it was written by another version of this tool.
    pub(crate) fn checked(&self) -> Result<CheckedFlow, String> {
        let other = || format!("the flow `{}` was planned by another version of onceflow", self.flow);
        let bytes = BASE64_STANDARD.decode(&self.library).map_err(|_| other())?;
        let library: Library = rows::read(&bytes).ok_or_else(other)?;
        CheckedFlow::check(library, &self.flow).map_err(|errors| format!("{}: {errors}", other()))
    }

    /// Forgets the flow, but for the digest of its program.
    pub(super) fn clear_library(&mut self) {
        self.library.clear();
    }
}
