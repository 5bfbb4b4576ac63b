//! A flow that was checked. The type is the proof: it is made by checking alone, has no way to change, and is all that
//! an engine takes, so a flow is checked once, by its loader.

use super::{
    Errors, Identity, Library, Program,
    check::{check_within, requested_outputs},
    lower::lower,
};
use crate::limits::GRAPH_MODULES_MAX;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
};

/// A flow without mistakes, for all of its outputs or for some. Cheap to clone.
///
/// Serialised, it is a proof only to the same build that checked it: the reader must know that the bytes are whole and
/// its own, because reading them does not check the flow again.
///
/// ```
/// use onceflow_core::model::{CheckedFlow, Graph, Library};
///
/// let library = Library { flows: [(String::from("nothing"), Graph::default())].into() };
/// let flow = CheckedFlow::check(library.clone(), "nothing").unwrap();
/// assert!(flow.program().blocks[0].nodes.is_empty());
/// assert!(CheckedFlow::check(library, "something").is_err());
/// ```
#[derive(Clone, Serialize, Deserialize)]
pub struct CheckedFlow {
    library: Arc<Library>,
    name: String,
    requested: Option<Vec<String>>,
    identity: Identity,
    /// Computed from the rest when it is first needed: a flow that is only compared with a run is not lowered.
    #[serde(skip)]
    program: OnceLock<Arc<Program>>,
}

impl CheckedFlow {
    /// Checks the flow of this name, and all flows that it calls.
    ///
    /// # Errors
    /// All mistakes, at once.
    pub fn check(library: impl Into<Arc<Library>>, name: impl Into<String>) -> Result<Self, Errors> {
        CheckedFlow::check_within(GRAPH_MODULES_MAX, library, name)
    }

    /// As [`CheckedFlow::check`], for graphs of up to `graph_modules_max` modules.
    ///
    /// # Errors
    /// All mistakes, at once.
    pub fn check_within(
        graph_modules_max: usize,
        library: impl Into<Arc<Library>>,
        name: impl Into<String>,
    ) -> Result<Self, Errors> {
        let (library, name) = (library.into(), name.into());
        let program = check_within(graph_modules_max, &library, &name, None)?;
        Ok(CheckedFlow { library, name, requested: None, identity: program.identity(), program: lowered(program) })
    }

    /// Returns the same flow for these of its outputs: steps that none of them needs do not run. Checks the names only.
    ///
    /// # Errors
    /// The names that are no outputs of the flow.
    pub fn only(&self, outputs: &[String]) -> Result<Self, Errors> {
        let (wanted, all) = requested_outputs(&self.library.flows[&self.name], Some(outputs))?;
        let program = lower(&self.library, &self.name, &wanted, wanted == all);
        Ok(CheckedFlow {
            library: self.library.clone(),
            name: self.name.clone(),
            requested: Some(outputs.to_vec()),
            identity: program.identity(),
            program: lowered(program),
        })
    }

    /// The name of the flow.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The flow and those it calls, as they were described.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// The requested outputs; `None` is all.
    pub fn requested(&self) -> Option<&[String]> {
        self.requested.as_deref()
    }

    /// The identity of the program.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The program that gives the requested outputs.
    pub fn program(&self) -> &Arc<Program> {
        self.program.get_or_init(|| {
            let outputs = requested_outputs(&self.library.flows[&self.name], self.requested());
            let (wanted, all) = outputs.unwrap_or_else(|errors| unreachable!("a checked flow has mistakes: {errors}"));
            let program = lower(&self.library, &self.name, &wanted, wanted == all);
            assert_eq!(program.identity(), self.identity, "flow `{}` is lowered to another program", self.name);
            Arc::new(program)
        })
    }

    /// The classes of workers that its tasks ask for.
    pub fn classes(&self) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        self.library.for_each_task(&mut |task| _ = found.insert(task.class.as_str()));
        found
    }
}

fn lowered(program: Program) -> OnceLock<Arc<Program>> {
    OnceLock::from(Arc::new(program))
}

/// Without the program, which the library determines.
impl fmt::Debug for CheckedFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckedFlow { library, name, requested, identity, program: _ } = self;
        f.debug_struct("CheckedFlow")
            .field("name", name)
            .field("requested", requested)
            .field("identity", identity)
            .field("library", library)
            .finish()
    }
}
